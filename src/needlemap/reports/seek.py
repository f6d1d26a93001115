"""What a run that seeks an effective length knows, as text and as JSON; and what it would ask, for a plan."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isinf
from typing import Any

from needlemap.maps.seek import Sought, sought_in
from needlemap.records.loaded import Loaded
from needlemap.reports.labels import length_labels, score_label
from needlemap.text import counted, printable, short


def seeks(run: Loaded) -> bool:
    """Whether a run was to find an effective length: its cells were asked unevenly, so it has no mean."""
    return run.about["settings"].get("seek") is not None


def seek_text(run: Loaded) -> str | None:
    """All lines: what is known, and the raw counts of each length beside it; None for a run that seeks
    nothing."""
    settings = run.about["settings"]
    if not seeks(run):
        return None
    found = sought_of(run)
    if found is None:
        return "nothing is scored yet"
    wish = "" if found.close else f" (wished within {settings['within']:g} %: not reached)"
    lines = [
        f"{settings['model']} · {settings['task']} · sought to {settings['within']:g} %",
        f"{length_line(found)}{wish}",
        f"{asked_line(found)}; design effect {found.effect:.1f}",
        "what was asked, length by length (uneven on purpose, so no mean over all of it):",
        *_counts(found),
    ]
    return "\n".join(lines)


def sought_of(run: Loaded) -> Sought | None:
    """What a run that seeks knows by now; None for another, and before anything is scored."""
    return sought_in(run.about, run.records) if seeks(run) else None


def families_sought(suite: str, read: Mapping[str, Loaded | None]) -> str:
    """What each family of a suite that seeks knows; '' of another. No mean, as each is asked unevenly."""
    begun = [run for run in read.values() if run is not None]
    if not begun or not seeks(begun[0]):
        return ""
    wide, lines = max(map(len, read)), [f"suite {suite} · {begun[0].map.model}"]
    for name, run in read.items():
        found = None if run is None else sought_of(run)
        known = "nothing is scored yet" if found is None else f"{length_line(found)} · {asked_line(found)}"
        lines.append(f"{name:<{wide}}  {known}")
    return printable("\n".join(lines))


def sought_sheet(read: Mapping[str, Loaded | None], places: Mapping[str, int]) -> dict[str, Any]:
    """The same for a page: what stands in its sheet in place of means. places: of each begun family."""
    if not families_sought("", read):
        return {}
    rows = []
    for name, run in read.items():
        found, known = None if run is None else sought_of(run), ("nothing is scored yet", "")
        if found is not None:
            known = length_line(found).partition(": ")[2], asked_line(found).partition(",")[0]
        begun = name in places
        line, to = (list(places).index(name), ["run", places[name]]) if begun else (None, None)
        rows.append({"to": to, "line": line, "cells": [name, *([text, None] for text in known)]})
    said, head = f"{len(read)} families", ["Family", "Effective length", "Asked"]
    readings = [["Sought", said, "no mean is made", "main"]]
    return {"says": said, "readings": readings, "table": {"head": head, "rows": rows}, "lines": []}


def length_line(found: Sought) -> str:
    """The effective length, in a line."""
    level = f"{100 * found.threshold:g}"
    low, high = _label(found, found.low), _label(found, found.high)
    if found.rough:
        return (
            f"effective length: crawls through {level} % between {low} and {high}, hits and misses repeat "
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
        return f"<{in_short(lengths[0])}"
    return f">={in_short(lengths[-1])}" if isinf(tokens) else in_short(round(tokens))


def in_short(length: int) -> str:
    """One length.

    >>> in_short(16_000)
    '16k'
    """
    return length_labels([length])[length]


def _counts(found: Sought) -> list[str]:
    """A row a length that was asked."""
    asked, labels = found.asked, length_labels(found.axis.lengths)
    rows = [
        (labels[length], score_label(hits / trials), f"{hits:g}/{trials:.0f}", f"{asks:.0f}")
        for length, asks, trials, hits in zip(
            found.axis.lengths, asked.asks, asked.trials, asked.hits, strict=True
        )
        if trials
    ]
    wide = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        "  " + "  ".join(text.rjust(width) for text, width in zip(row, wide, strict=True)) + _noun(row[3])
        for row in rows
    ]


def _noun(asks: str) -> str:
    return " haystack" if asks == "1" else " haystacks"


def seek_fields(run: Loaded) -> dict[str, Any] | None:
    """The same for programs: lengths in tokens; an end beyond the axis is null and named in `beyond`."""
    found = sought_of(run)
    if found is None:
        return None
    ends = {"value": found.point, "low": found.low, "high": found.high}
    beyond = {0.0: "below the shortest", inf: "beyond the longest"}
    return {
        "threshold": 100 * found.threshold,
        **{name: None if end is None or end in beyond else round(end) for name, end in ends.items()},
        "beyond": {name: beyond[end] for name, end in ends.items() if end in beyond},
        "crawls": found.crawls,
        "rough": found.rough,
        "close": found.close,
        "haystacks": int(found.asked.asks.sum()),
        "trials": int(found.asked.trials.sum()),
        "tokens": found.tokens,
        "design_effect": round(found.effect, 3),
        "lengths": [
            {"length_tokens": length, "haystacks": int(asks), "n": int(trials), "hits": round(hits, 6)}
            for length, asks, trials, hits in zip(
                found.axis.lengths, found.asked.asks, found.asked.trials, found.asked.hits, strict=True
            )
            if trials
        ],
    }
