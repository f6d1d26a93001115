"""What a run that seeks an effective length knows, as text and as JSON; and what it would ask, for a plan."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isinf
from typing import Any

import numpy as np

from needlemap.maps.seek import PLACES, Sought
from needlemap.records.loaded import Loaded
from needlemap.reports.labels import length_labels, score_label
from needlemap.settings.grid import make_grid
from needlemap.settings.prices import Prices
from needlemap.settings.settings import Settings
from needlemap.text.printable import counted, dollars, printable, short


def seek_text(run: Loaded) -> str | None:
    """All lines: what is known, and the raw counts of each length beside it; None for a run that seeks
    nothing."""
    settings = run.about["settings"]
    if settings.get("seek") is None:
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
    if run.about["settings"].get("seek") is None:
        return None
    from needlemap.asking.seek import sought_in  # late: it brings all that makes prompts

    return sought_in(run.about, run.records)


def families_sought(suite: str, read: Mapping[str, Loaded | None]) -> str:
    """What each family of a suite that seeks knows; '' of another. No mean, as each is asked unevenly."""
    begun = [run for run in read.values() if run is not None]
    if not begun or begun[0].about["settings"].get("seek") is None:
        return ""
    wide, lines = max(map(len, read)), [f"suite {suite} · {begun[0].map.model}"]
    for name, run in read.items():
        found = None if run is None else sought_of(run)
        known = "nothing is scored yet" if found is None else f"{length_line(found)} · {asked_line(found)}"
        lines.append(f"{name:<{wide}}  {known}")
    return printable("\n".join(lines))


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
    return f"{counted(asks, 'haystack')}, {counted(trials, 'trial')}, {short(found.tokens)} prompt tokens"


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


def seek_plan(settings: Settings) -> dict[str, Any]:
    """What a seek would ask: by kind of model the prompt tokens, in all a range, and a grid beside it."""
    from needlemap.asking.seek import rehearsed

    lengths = make_grid(settings.lengths, settings.depths).lengths
    kinds = rehearsed(settings)
    ends = [each[0] for each in kinds.values()], [each[2] for each in kinds.values()]
    return {
        "seek": settings.seek,
        "within": settings.within,
        "lengths": [lengths[0], lengths[-1]],
        "tokens": {name: [round(each) for each in three] for name, three in kinds.items()},
        "least": round(min(ends[0])),
        "most": round(max(ends[1])),
        "grid": round(15 * np.geomspace(lengths[0], lengths[-1], 15).sum()),
        "notes": list(_NOTES),
    }


_NOTES = (
    "No better than plain repeats (--repeats) for a model that holds to the end, or falls at the longest "
    "lengths: the tokens are there anyway. With a prefix cache repeats cost a quarter, seeking two thirds.",
    "Where hits and misses repeat cell by cell (salt and pepper) it says so and gives no point: ask a grid.",
)


def seek_plan_text(settings: Settings) -> str:
    """The plan as lines."""
    plan = seek_plan(settings)
    names = list(plan["tokens"])
    wide = max(map(len, names))
    least, most = (_cost(settings, plan[end]) for end in ("least", "most"))
    rows = [
        f"  {name:<{wide}}  {_cost(settings, middle)} [{short(low)}, {short(high)}]"
        for name, (low, middle, high) in plan["tokens"].items()
    ]
    first, last = map(in_short, plan["lengths"])
    return "\n".join(
        [
            f"{settings.model} · seek {settings.seek:g} % within {settings.within:g} %, {first} to {last}, "
            f"{PLACES} prompts a haystack",
            f"prompt tokens asked: {least} to {most}, by what the model is like (median [10 %, 90 %]):",
            *rows,
            f"  {'beside it a 15 x 15 grid, once':<{wide}}  {_cost(settings, plan['grid'])}",
            *plan["notes"],
        ]
    )


def _cost(settings: Settings, tokens: float) -> str:
    usd = Prices.of(settings).usd(round(tokens), 0, 0)
    return short(round(tokens)) + (f" (${dollars(usd)})" if usd else "")
