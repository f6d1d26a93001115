"""What a run sought, an effective length, as a report; and the words for it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import inf

from needlemap.records.loaded import Loaded
from needlemap.reports.labels import bounded_label, length_labels, score_label, tokens_label
from needlemap.reports.report import Fact, Report, Row, Table, keyed
from needlemap.stats.effective import Effective, Rule
from needlemap.stats.seek import Sought, result_of_run
from needlemap.text import counted, short

# Of the lengths that a seek asked.
_LENGTHS_SHOWN = 3


def seeks(run: Loaded) -> bool:
    """Return True if a run seeks an effective length.

    Its cells have uneven numbers of trials, so it has no mean.
    """
    return run.about.named.seek is not None


def seek_result_of(run: Loaded) -> Sought | None:
    """Return the result so far of a run that seeks.

    If the run does not seek, or if nothing is scored yet, None is returned.
    """
    return result_of_run(run.about, run.records) if seeks(run) else None


def effective_of(sought: Sought, rule: Rule) -> Effective | None:
    """Return what was sought as the effective length of its own rule, or None for another rule."""
    if rule.kind != "absolute" or rule.threshold != sought.threshold:
        return None
    return Effective(
        rule=rule,
        value=sought.point,
        low=sought.low,
        high=sought.high,
        shortest=sought.axis.lengths[0],
        longest=sought.axis.lengths[-1],
        clusters=int(sought.asked.asks.sum()),
        crawls=sought.crawls,
    )


def seek_report(run: Loaded) -> Report:
    """Return the result of a run that seeks, with the raw counts of each length.

    Lengths are in tokens; an end beyond the axis is null and named in `beyond`.
    """
    sought, settings = seek_result_of(run), run.about.named
    title = f"{settings.model} · {settings.task} · sought to {settings.within:g} %"
    if sought is None:
        return Report("seek", title, (Fact(said="nothing is scored yet"),))
    return Report("seek", title, (Fact(said=title), *_facts(sought, settings.within)))


def _facts(sought: Sought, within: float) -> Iterator[Fact | Table]:
    ends = {"value": sought.point, "low": sought.low, "high": sought.high}
    beyond = {0.0: "below the shortest", inf: "beyond the longest"}
    spent = f", stopped at {sought.spent:.0f} times a plain grid's tokens" if sought.spent else ""
    shortfall = "" if sought.close else f" (wished within {within:g} %: not reached{spent})"
    line = length_line(sought)
    head, _, value = f"{line}{shortfall}".partition(": ")
    yield Fact(value=value, said=f"{line}{shortfall}", head=head.capitalize())
    yield Fact("threshold", 100 * sought.threshold)
    for name, end in ends.items():
        yield Fact(name, None if end is None or end in beyond else round(end))
    yield Fact("beyond", {name: beyond[end] for name, end in ends.items() if end in beyond})
    yield from keyed({"crawls": sought.crawls, "rough": sought.rough, "close": sought.close})
    yield Fact(
        "assumes", assumption(sought), "" if assumption(sought) in line else assumption(sought)
    )
    yield Fact("stopped_at_grids", round(sought.spent, 1) or None)
    asks = f"{asked_line(sought)}; design effect {sought.effect:.1f}"
    yield Fact("haystacks", int(sought.asked.asks.sum()), asks)
    yield Fact("trials", int(sought.asked.trials.sum()))
    yield from keyed({"tokens": sought.tokens, "design_effect": round(sought.effect, 3)})
    title = "what was asked, length by length (uneven on purpose, so no mean over all of it):"
    yield Table("lengths", rows=tuple(_rows(sought)), title=title)


def _rows(sought: Sought) -> Iterator[Row]:
    """Yield a row for each length that has a haystack."""
    labels = length_labels(sought.axis.lengths)
    counts = asked_by_length(sought)
    texts = [
        (labels[length], score_label(hits / trials), f"{hits:g}/{trials:.0f}", f"{asks:.0f}")
        for length, asks, trials, hits in counts
    ]
    widths = [max(len(row[column]) for row in texts) for column in range(4)]
    for (length, asks, trials, hits), row in zip(counts, texts, strict=True):
        values = {"length_tokens": length, "haystacks": int(asks), "n": int(trials)}
        line = f"  {'  '.join(map(str.rjust, row, widths))} haystack{'s' * (row[3] != '1')}"
        yield Row(values | {"hits": round(hits, 6)}, (line,))


def assumption(sought: Sought) -> str:
    """Return the assumption of the result: a smooth curve between some lengths."""
    lengths = [tokens_label(length) for length, *_ in asked_by_length(sought)]
    dots = ", ..." if len(lengths) > _LENGTHS_SHOWN else ""
    lengths_shown = ", ".join(lengths[:_LENGTHS_SHOWN])
    return f"as far as a smooth curve between the lengths asked: {lengths_shown}{dots}"


def length_line(sought: Sought) -> str:
    """Return a line on the effective length.

    If it is beyond the longest length, the assumption is added.
    """
    line = _length_words(sought)
    return f"{line}, {assumption(sought)}" if ">=" in line else line


def _length_words(sought: Sought) -> str:
    level = f"{100 * sought.threshold:g}"
    lengths = sought.axis.lengths
    label = partial(bounded_label, shortest=lengths[0], longest=lengths[-1])
    low, high = label(sought.low), label(sought.high)
    if sought.rough:
        return (
            f"effective length: crawls through {level} % between {low} and {high}, hits and misses "
            f"repeat cell by cell: ask a grid, too"
        )
    if sought.crawls:
        return f"effective length: crawls through {level} % between {low} and {high}"
    if sought.low == sought.high:
        return f"effective length at {level} %: {low}"
    if sought.point is None:
        return f"effective length at {level} %: between {low} and {high}"
    return f"effective length at {level} %: {label(sought.point)} [{low}, {high}]"


def asked_line(sought: Sought) -> str:
    """Return a line on the haystacks, trials and tokens that were sent."""
    asks, trials = int(sought.asked.asks.sum()), int(sought.asked.trials.sum())
    tokens = f"{short(sought.tokens)} tokens with room for answers"
    return f"{counted(asks, 'haystack')}, {counted(trials, 'trial')}, {tokens}"


def asked_by_length(sought: Sought) -> list[tuple[int, float, int, float]]:
    """Return for each length that was asked its tokens, haystacks, trials and hits."""
    counts = sought.asked
    rows = zip(sought.axis.lengths, counts.asks, counts.trials, counts.hits, strict=True)
    return [(length, asks, int(trials), hits) for length, asks, trials, hits in rows if trials]
