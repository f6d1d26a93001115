"""What a server counted in a run, beside what it was asked, in words.

Only what records hold is said: a server that reports nothing has neither cached nor computed anything here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from needlemap.records.record import Record
from needlemap.settings.settings import LEAST_FRAMING

_TOLERANCE = 0.02  # share by which a server's count may differ from the length asked
_ALIKE_TOKENS = 2  # differences that vary by no more than this are a chat template's
_LONG_TEMPLATE_TOKENS = 100  # more is another tokenizer, where there is one length only to tell by
_KEPT = "each record keeps the server's own count"
_CUT_OFF = 0.9  # the longest prompts' ratio of counted to asked, against the shortest's


def usage_lines(records: Iterable[Record], *, remote: bool, framing_tokens: int = 0) -> list[str]:
    """What is worth saying when a run ends. remote: whether a server was asked, which should have counted.

    framing_tokens: what the run's settings say that the server's chat template adds.
    """
    answered = [record for record in records if record.latency_s is not None and not record.rescored]
    counted = [record for record in answered if record.prompt_tokens is not None]
    if answered and remote and not counted:
        promise = sum(record.shared_tokens or 0 for record in answered)
        cached = f", and whether the planned {promise:,} came from its cache" if promise else ""
        return [f"the server reports no usage: nobody knows how many tokens it counted{cached}"]
    return [
        *cache_lines(answered, remote=remote),
        *(_length_lines(counted, framing_tokens) if remote else []),
    ]


def judge_lines(records: Iterable[Record]) -> list[str]:
    """What a judge's verdicts cost; nothing where none was paid for."""
    costs = [record.judge_usd for record in records]
    paid = sum(cost or 0.0 for cost in costs)
    unknown = costs.count(None)
    if not paid and not unknown:
        return []
    return [f"judge: ${paid:.4f}" + (f", and {unknown:,} verdicts at an unknown price" if unknown else "")]


def cache_lines(records: Iterable[Record], *, remote: bool = False) -> list[str]:
    """Cached tokens beside the plan's promise."""
    answered = [record for record in records if record.latency_s is not None and not record.rescored]
    promise = sum(record.shared_tokens or 0 for record in answered)
    if all(record.cached_tokens is None for record in answered):
        if not (remote and promise):
            return []
        return [f"cached: not reported by the server, so nobody knows (planned: {promise:,})"]
    cached = sum(record.cached_tokens or 0 for record in answered)
    asked = sum(
        _asked(record) if record.prompt_tokens is None else record.prompt_tokens for record in answered
    )
    plan = f"; planned {promise:,}" if promise else ""
    return [f"cached: {cached:,} of {asked:,} prompt tokens{plan}"]


def _length_lines(counted: Sequence[Record], framing_tokens: int) -> list[str]:
    """A warning when the server's counts are not the lengths asked, and what mends it."""
    rows = sorted((_asked(record) + framing_tokens, record.prompt_tokens or 0) for record in counted)
    off = [(asked, found) for asked, found in rows if abs(found - asked) > _TOLERANCE * asked]
    if not off:
        return []
    asked, found = max(off, key=lambda row: abs(row[1] - row[0]) / row[0])
    differences = [found - asked for asked, found in rows]
    remedy = _remedy(rows, differences, framing_tokens, counted[0].model)
    return [
        f"warning: the server counted {found:,} tokens where {asked:,} were asked; {len(off)} of {len(rows)} "
        f"prompts are off by more than {_TOLERANCE:.0%}. {remedy}"
    ]


def _remedy(
    rows: Sequence[tuple[int, int]], differences: Sequence[int], framing_tokens: int, model: str
) -> str:
    """rows: (asked, counted) by length."""
    alike = max(differences) - min(differences) <= _ALIKE_TOKENS
    if alike and (rows[-1][0] > 1.5 * rows[0][0] or abs(differences[0]) <= _LONG_TEMPLATE_TOKENS):
        framing = framing_tokens + round(median(differences))
        if framing >= LEAST_FRAMING and len(rows) > 1:
            why = (
                "Its chat template adds as many to each" if framing > 0 else "It counts as many fewer of each"
            )
            return f"{why}: use --framing-tokens {framing}."
    shortest, longest = (found / asked for asked, found in (rows[0], rows[-1]))
    if longest < _CUT_OFF * min(shortest, 1):
        return "It seems to cut long prompts off: start it with a longer context, or use shorter --lengths."
    if model.startswith("anthropic/"):
        return f"No vocabulary of Claude is public, and lengths are those of the one you chose: {_KEPT}."
    return (
        "Its tokenizer is another one: use --tokenizer with a path to its tokenizer.json, or --tokenizer "
        f"server (vLLM, llama.cpp); {_KEPT}."
    )


def _asked(record: Record) -> int:
    return record.prompt.tokens if record.prompt else record.length_tokens
