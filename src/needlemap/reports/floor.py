"""A comparison beside what a second training seed changes.

Two trainings that differ in their seed alone differ in their scores, too. `compare A B --floor
SEED` compares A with such a seed of it on the same trials: B's change is said to be within the
seeds' spread where it is no larger than theirs. The verdict stays at its margin, which was
fixed before anything was seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from needlemap.maps.comparison import Comparison
from needlemap.maps.difference import Difference
from needlemap.reports.labels import in_percent, interval, length_labels, points
from needlemap.reports.report import Fact


def floor_facts(comparison: Comparison, seeds: Mapping[str, Comparison]) -> Iterator[Fact]:
    """Facts on B's change beside that of other seeds. seeds: A against each, by name."""
    spread = [each.overall for each in seeds.values()]
    for name, seed in zip(seeds, spread, strict=True):
        said = (
            f"seed {name}: {points(seed.value)} points {interval(seed)} against A, {seed.n} pairs"
        )
        yield Fact(said=said)
    word = word_of(comparison.overall, spread)
    rows = list(_by_length(comparison, seeds))
    value = {
        "word": word,
        "change": in_percent(comparison.overall.value),
        "seeds": [in_percent(each.value) for each in spread],
        "by_length": rows,
    }
    yield Fact("floor", value, _sentence(word, comparison.overall, spread))
    if rows:
        labels = length_labels([row["length_tokens"] for row in rows])
        each = (f"{labels[row['length_tokens']]} {row['word']}" for row in rows)
        yield Fact(said=f"beside the seeds' spread, by length: {' · '.join(each)}")
    if len(seeds) == 1:
        yield Fact(
            said="One other seed tells little of how far seeds spread. Give more: --floor again."
        )


def word_of(change: Difference, seeds: list[Difference]) -> str:
    """'within' where a change is no larger than that of a seed; 'beyond' where its whole
    interval is larger than all of the seeds' intervals; else 'larger', which may be chance."""
    if abs(change.value) <= max(abs(each.value) for each in seeds):
        return "within"
    most = max(max(abs(each.low), abs(each.high)) for each in seeds)
    return "beyond" if change.low > most or change.high < -most else "larger"


def _sentence(word: str, change: Difference, seeds: list[Difference]) -> str:
    most = points(max(abs(each.value) for each in seeds)).lstrip("+")
    moved = f"B differs from A by {points(change.value)} points, another seed of A by up to {most}"
    ends = {
        "within": "B's change is within the seeds' spread",
        "beyond": "B's change is beyond the seeds' spread, with its whole interval",
        "larger": "B's change is larger than the seeds' spread, but the intervals do not tell them "
        "apart",
    }
    return f"{ends[word]}: {moved}. The verdict is at the margin, not at this spread."


def _by_length(comparison: Comparison, seeds: Mapping[str, Comparison]) -> Iterator[dict[str, Any]]:
    """The same length by length, of runs with one family; lengths that every seed was
    asked."""
    if comparison.only is None:
        return
    theirs = [
        {row.length_tokens: row.difference for row in each.only.lengths}
        for each in seeds.values()
        if each.only is not None
    ]
    for row in comparison.only.lengths:
        spread = [each[row.length_tokens] for each in theirs if row.length_tokens in each]
        if len(spread) == len(seeds):
            yield {
                "length_tokens": row.length_tokens,
                "word": word_of(row.difference, spread),
                "change": in_percent(row.difference.value),
                "seeds": max(in_percent(abs(each.value)) for each in spread),
            }
