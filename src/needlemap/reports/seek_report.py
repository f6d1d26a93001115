"""What a run sought, an effective length, as a report; and the words for it."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isinf

from needlemap.records.loaded import Loaded
from needlemap.reports.labels import length_labels, score_label, tokens_label
from needlemap.reports.report import Fact, Report, Row, Table, keyed
from needlemap.stats.seek import Sought, sought_in
from needlemap.text import counted, short

_LENGTHS_SHOWN = 3  # of the lengths that a seek asked


def seeks(run: Loaded) -> bool:
    """Whether a run was to find an effective length: its cells were asked unevenly, so it has
    no mean."""
    return run.about.named.seek is not None


def sought_of(run: Loaded) -> Sought | None:
    """What a run that seeks knows by now; None for another, and before anything is scored."""
    return sought_in(run.about, run.records) if seeks(run) else None


def seek_report(run: Loaded) -> Report:
    """The result of a run that seeks, beside the raw counts of each length. Lengths in tokens;
    an end beyond the axis is null and named in `beyond`."""
    found, named = sought_of(run), run.about.named
    title = f"{named.model} · {named.task} · sought to {named.within:g} %"
    if found is None:
        return Report("seek", title, (Fact(said="nothing is scored yet"),))
    return Report("seek", title, (Fact(said=title), *_facts(found, named.within)))


def _facts(found: Sought, within: float) -> Iterator[Fact | Table]:
    ends = {"value": found.point, "low": found.low, "high": found.high}
    beyond = {0.0: "below the shortest", inf: "beyond the longest"}
    spent = f", stopped at {found.spent:.0f} times a plain grid's tokens" if found.spent else ""
    wish = "" if found.close else f" (wished within {within:g} %: not reached{spent})"
    line = length_line(found)
    head, _, value = f"{line}{wish}".partition(": ")
    yield Fact(value=value, said=f"{line}{wish}", head=head.capitalize())
    yield Fact("threshold", 100 * found.threshold)
    for name, end in ends.items():
        yield Fact(name, None if end is None or end in beyond else round(end))
    yield Fact("beyond", {name: beyond[end] for name, end in ends.items() if end in beyond})
    yield from keyed({"crawls": found.crawls, "rough": found.rough, "close": found.close})
    yield Fact("assumes", assumed(found), "" if assumed(found) in line else assumed(found))
    yield Fact("stopped_at_grids", round(found.spent, 1) or None)
    asks = f"{asked_line(found)}; design effect {found.effect:.1f}"
    yield Fact("haystacks", int(found.asked.asks.sum()), asks)
    yield Fact("trials", int(found.asked.trials.sum()))
    yield from keyed({"tokens": found.tokens, "design_effect": round(found.effect, 3)})
    why = "what was asked, length by length (uneven on purpose, so no mean over all of it):"
    yield Table("lengths", rows=tuple(_rows(found)), title=why)


def _rows(found: Sought) -> Iterator[Row]:
    """A row a length that was asked."""
    labels, asked = length_labels(found.axis.lengths), asked_by_length(found)
    shown = [
        (labels[length], score_label(hits / trials), f"{hits:g}/{trials:.0f}", f"{asks:.0f}")
        for length, asks, trials, hits in asked
    ]
    wide = [max(len(row[column]) for row in shown) for column in range(4)]
    for (length, asks, trials, hits), row in zip(asked, shown, strict=True):
        values = {"length_tokens": length, "haystacks": int(asks), "n": int(trials)}
        line = f"  {'  '.join(map(str.rjust, row, wide))} haystack{'s' * (row[3] != '1')}"
        yield Row(values | {"hits": round(hits, 6)}, (line,))


def assumed(found: Sought) -> str:
    """What the line rests on."""
    lengths = [tokens_label(length) for length, *_ in asked_by_length(found)]
    more = ", ..." if len(lengths) > _LENGTHS_SHOWN else ""
    shown = ", ".join(lengths[:_LENGTHS_SHOWN])
    return f"as far as a smooth curve between the lengths asked: {shown}{more}"


def length_line(found: Sought) -> str:
    """The effective length, in a line. It says "to the end" only with the assumption behind
    it."""
    line = _length_words(found)
    return f"{line}, {assumed(found)}" if ">=" in line else line


def _length_words(found: Sought) -> str:
    level = f"{100 * found.threshold:g}"
    low, high = _label(found, found.low), _label(found, found.high)
    if found.rough:
        return (
            f"effective length: crawls through {level} % between {low} and {high}, hits and misses "
            f"repeat "
            "cell by cell: ask a grid, too"
        )
    if found.crawls:
        return f"effective length: crawls through {level} % between {low} and {high}"
    if found.low == found.high:
        return f"effective length at {level} %: {low}"
    if found.point is None:
        return f"effective length at {level} %: between {low} and {high}"
    return f"effective length at {level} %: {_label(found, found.point)} [{low}, {high}]"


def asked_line(found: Sought) -> str:
    """How much was asked."""
    asks, trials = int(found.asked.asks.sum()), int(found.asked.trials.sum())
    tokens = f"{short(found.tokens)} tokens with room for answers"
    return f"{counted(asks, 'haystack')}, {counted(trials, 'trial')}, {tokens}"


def _label(found: Sought, tokens: float) -> str:
    lengths = found.axis.lengths
    if tokens == 0:
        return f"<{tokens_label(lengths[0])}"
    return f">={tokens_label(lengths[-1])}" if isinf(tokens) else tokens_label(round(tokens))


def asked_by_length(found: Sought) -> list[tuple[int, float, int, float]]:
    """For each length that was asked: its tokens, haystacks, trials, hits."""
    asked = found.asked
    rows = zip(found.axis.lengths, asked.asks, asked.trials, asked.hits, strict=True)
    return [(length, asks, int(trials), hits) for length, asks, trials, hits in rows if trials]
