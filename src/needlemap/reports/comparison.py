"""A comparison of two runs as text and as JSON. Differences are in points, that is percent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from needlemap.maps.bootstrap import FEWEST
from needlemap.maps.comparison import CellChange, Comparison, LengthDifference
from needlemap.maps.difference import Difference
from needlemap.maps.verdict import Verdict
from needlemap.reports.labels import depth_labels, floor_label, length_labels, score_label

EXPLORED = 5  # cells shown


@dataclass(frozen=True, slots=True)
class Names:
    """How the two runs are called, and in what their settings differ, as a phrase."""

    first: str
    second: str
    differ: str


def comparison_text(comparison: Comparison, names: Names) -> str:
    """All lines; the verdict last."""
    lines = [f"A  {names.first}", f"B  {names.second}"]
    lines += [f"differ in {names.differ}"] if names.differ else []
    lines += _tested(comparison) if comparison.counted else _untested(comparison)
    warning = comparison.verdict.warning
    lines += [f"warning: {warning}"] if warning else []
    lines.append(f"verdict: {verdict_label(comparison)}")
    return "\n".join(lines) + "\n"


def _tested(comparison: Comparison) -> list[str]:
    overall = comparison.overall
    return [
        f"{overall.n} pairs, {_haystacks(overall.clusters)}{_left_out(comparison)}",
        f"{_means(overall)} {interval(overall)}",
        f"B lost {overall.lost}, gained {overall.gained}; p={p_label(overall.p)} ({_test(comparison)})",
        *_bounds(comparison),
        *_noise(comparison),
        f"by length (p by Holm's correction over {len(comparison.lengths)}; intervals of one length each):",
        *_lengths(comparison.lengths),
        *_cells(comparison),
        f"power: to see a drop of {_number(comparison.margin)} points 80 times in 100, about "
        f"{comparison.needed:,} pairs are needed; you have {overall.n:,}",
    ]


def _untested(comparison: Comparison) -> list[str]:
    """Where nobody knows how many answers a score stands for: differences, without interval or test."""
    labels = length_labels([each.length_tokens for each in comparison.lengths])
    wide = max(map(len, labels.values()), default=0)
    return [
        f"{comparison.overall.n} means in both{_left_out(comparison)}",
        _means(comparison.overall),
        "by length:",
        *(f"  {labels[each.length_tokens]:>{wide}}  {_row(each)}" for each in comparison.lengths),
    ]


def comparison_json(comparison: Comparison, names: Names) -> dict[str, Any]:
    """The same as a mapping that JSON can hold; depths in percent, differences in points."""
    bounds = comparison.bounds and [_rounded(bound) for bound in comparison.bounds]
    return {
        "a": names.first,
        "b": names.second,
        "differ": names.differ,
        "margin": _rounded(comparison.margin),
        "verdict": verdict_word(comparison.verdict, comparison.margin),
        "more_trials": comparison.verdict.more,
        "warning": comparison.verdict.warning,
        "overall": _fields(comparison.overall),
        "bounds": bounds,
        "graded": comparison.graded,
        "counted": comparison.counted,
        "dropped": comparison.dropped,
        "only_a": comparison.only_first,
        "only_b": comparison.only_second,
        "needed": comparison.needed,
        "noise": _noise_fields(comparison),
        "lengths": [
            {
                "length_tokens": each.length_tokens,
                **_fields(each.difference),
                "p_holm": each.adjusted_p,
            }
            for each in comparison.lengths
        ],
        "cells": [
            {
                "length_tokens": cell.length_tokens,
                "depth_percent": _rounded(cell.depth),
                "difference": _rounded(cell.change),
                "n": cell.n,
                "lost": cell.lost,
                "gained": cell.gained,
                "p_uncorrected": cell.p,
            }
            for cell in comparison.cells
        ],
    }


def verdict_word(verdict: Verdict, margin: float) -> str:
    """One of 'no worse than 2 points', 'worse', 'cannot tell'."""
    return f"no worse than {_number(margin)} points" if verdict.word == "no worse" else verdict.word


def verdict_label(comparison: Comparison) -> str:
    """The verdict, and why or what would tell."""
    verdict, margin = comparison.verdict, _number(comparison.margin)
    word = verdict_word(verdict, comparison.margin)
    if verdict.word == "worse" and comparison.overall.high < -comparison.margin:
        return f"{word} (the whole 95 % interval is a loss of more than {margin} points)"
    if verdict.word == "worse":
        return f"{word} (the whole 95 % interval is a loss, and it reaches {margin} points or more)"
    if verdict.more is not None:
        more = f"about {verdict.more:,} more trials would tell, if the difference stays"
        return f"{word} (margin {margin} points; {more})"
    return word if verdict.word == "no worse" else f"{word} (margin {margin} points)"


def points(share: float) -> str:
    """A difference with its sign, in points.

    >>> points(-0.0731), points(0.0)
    ('-7.3', '+0.0')
    """
    return f"{100 * share + 0.0:+.1f}".replace("-0.0", "+0.0")


def interval(difference: Difference) -> str:
    """Its 95 % interval in points."""
    return f"[{points(difference.low)}, {points(difference.high)}]"


def p_label(p: float) -> str:
    """A p-value with as many digits as it is worth.

    >>> p_label(0.0312), p_label(0.00001), p_label(1.0)
    ('0.031', '<0.001', '1')
    """
    return "<0.001" if p < 0.001 else f"{p:.3f}".rstrip("0").rstrip(".")


def _means(overall: Difference) -> str:
    means = f"A {score_label(overall.first)}, B {score_label(overall.second)}"
    return f"{means}: difference {points(overall.value)} points"


def _lengths(lengths: Sequence[LengthDifference]) -> list[str]:
    labels = length_labels([each.length_tokens for each in lengths])
    wide = max(map(len, labels.values()), default=0)
    return [
        f"  {labels[each.length_tokens]:>{wide}}  {_row(each)} "
        f"{interval(each.difference)}  n={each.difference.n}  p={p_label(each.adjusted_p)}"
        for each in lengths
    ]


def _row(each: LengthDifference) -> str:
    first, second = score_label(each.difference.first), score_label(each.difference.second)
    return f"{first:>5} {second:>5}  {points(each.difference.value):>6}"


def _cells(comparison: Comparison) -> list[str]:
    """The cells that changed most; a hint where to look, which proves nothing."""
    changed = [cell for cell in comparison.cells if cell.change]
    if not changed:
        return []
    lengths = length_labels([each.length_tokens for each in comparison.lengths])
    depths = depth_labels(sorted({cell.depth for cell in comparison.cells}))
    most = sorted(changed, key=_by_change)[:EXPLORED]
    shown = [
        f"{lengths[c.length_tokens]} at {depths[c.depth]} {points(c.change)} (n={c.n}, p={p_label(c.p)})"
        for c in most
    ]
    return [f"cells that changed most (exploration, not corrected): {', '.join(shown)}"]


def _by_change(cell: CellChange) -> tuple[float, float]:
    return cell.p, -abs(cell.change)


def _bounds(comparison: Comparison) -> list[str]:
    if comparison.bounds is None:
        return []
    low, high = map(points, comparison.bounds)
    return [f"whatever the missing scores were, the difference lies in [{low}, {high}]"]


def _noise(comparison: Comparison) -> list[str]:
    noise = comparison.noise
    if noise is None:
        return []
    line = f"the same experiment twice: {noise.differing} of {noise.n} prompts differ"
    if not noise.differing:
        return [line]
    return [f"{line}; {floor_label(noise, noise.n)}"]


def _left_out(comparison: Comparison) -> str:
    counts = (
        (comparison.dropped, "dropped, without both scores"),
        (comparison.only_first, "trials of A alone"),
        (comparison.only_second, "trials of B alone"),
    )
    return "".join(f"; {count} {what}" for count, what in counts if count)


def _haystacks(clusters: int) -> str:
    if clusters == 1:
        return "1 haystack: what follows is about this one only"
    few = ", few: intervals are rough" if clusters < FEWEST else ""
    return f"{clusters} haystacks{few}"


def _test(comparison: Comparison) -> str:
    if comparison.graded and comparison.overall.clusters == 1:
        return "sign flips of prompts, which takes them as independent"
    if comparison.graded:
        return "sign flips of whole haystacks; interval by bootstrap over haystacks"
    return "exact McNemar, which takes prompts as independent"


def _fields(difference: Difference) -> dict[str, Any]:
    return {
        "score_a": _rounded(difference.first),
        "score_b": _rounded(difference.second),
        "difference": _rounded(difference.value),
        "low": _rounded(difference.low),
        "high": _rounded(difference.high),
        "p": difference.p,
        "n": difference.n,
        "haystacks": difference.clusters,
        "lost": difference.lost,
        "gained": difference.gained,
    }


def _noise_fields(comparison: Comparison) -> dict[str, Any] | None:
    noise = comparison.noise
    if noise is None:
        return None
    return {"n": noise.n, "differing": noise.differing, "smallest": _rounded(noise.smallest(noise.n))}


def _rounded(share: float) -> float:
    return round(100 * share, 6)


def _number(margin: float) -> str:
    return f"{100 * margin:.6g}"
