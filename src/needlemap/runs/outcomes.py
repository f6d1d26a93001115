"""What became of a trial: scored, scored although the model refused or was cut off, or why it was not.

Only what the model did is scored, so the first four are scores and every other outcome is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from needlemap.maps.intervals import wilson

if TYPE_CHECKING:
    from needlemap.runs.record import Record

SCORED = "scored"
REFUSED = "refused by the model"
ANSWER_SPENT = "answer budget spent"
THINKING_SPENT = "thinking budget spent"
THE_MODELS = (SCORED, REFUSED, ANSWER_SPENT, THINKING_SPENT)
SKIPPED = "skipped by budget"  # of trials without a record
NOT_MEASURED = "not measured"  # an imported trial without a score

_REFUSALS = ("refusal", "content_filter")
_CUTS = ("length", "max_tokens", "model_context_window_exceeded")


def outcome_of(record: Record) -> str:
    """The outcome of one record: a failure's own word, or one of `THE_MODELS`."""
    if record.score is None:
        return record.failure or NOT_MEASURED
    if record.finish in _REFUSALS:
        return REFUSED
    if record.finish in _CUTS:
        thought = record.thinking or record.thinking_tokens
        return THINKING_SPENT if thought and not (record.answer or "").strip() else ANSWER_SPENT
    return SCORED


def outcome_counts(records: Iterable[Record]) -> dict[str, int]:
    """How many records ended how; the model's own outcomes first, then failures by name."""
    found = Counter(record.outcome for record in records)
    names = [*THE_MODELS, *sorted(set(found).difference(THE_MODELS))]
    return {name: found[name] for name in names if found[name]}


def outcome_lines(counts: Mapping[str, int], skipped: int = 0) -> list[str]:
    """What a report says of outcomes: nothing where every trial was simply scored.

    >>> outcome_lines({"scored": 17, "answer budget spent": 3, "timed out": 1}, skipped=4)[0]
    'outcomes: 17 scored · 3 answer budget spent · 1 timed out · 4 skipped by budget'
    """
    whole = {**counts, **({SKIPPED: skipped} if skipped else {})}
    if set(whole) <= {SCORED}:
        return []
    lines = ["outcomes: " + " · ".join(f"{count} {name}" for name, count in whole.items())]
    cut, n = sum(counts.get(name, 0) for name in (ANSWER_SPENT, THINKING_SPENT)), 0
    n = sum(counts.get(name, 0) for name in THE_MODELS)
    interval = wilson(cut, n)
    if cut and interval:
        low, high = (f"{100 * end:.1f}" for end in interval)
        lines.append(f"cut off: {cut}/{n} = {100 * cut / n:.1f} % [{low}, {high}] of the answers")
    return lines
