"""A comparison of two runs as text and as JSON. Differences are in points, that is percent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from needlemap.maps.bootstrap import FEWEST
from needlemap.maps.comparison import CellChange, Comparison, LengthDifference
from needlemap.maps.difference import Difference
from needlemap.maps.verdict import Verdict
from needlemap.reports.labels import depth_labels, floor_label, length_labels, score_label

if TYPE_CHECKING:
    from needlemap.maps.suite_comparison import SuiteComparison
    from needlemap.reports.suite_comparison import SuiteNames

EXPLORED = 5  # cells shown


@dataclass(frozen=True, slots=True)
class Names:
    """How the two runs are called, in what their settings differ, as a phrase, and what else to say."""

    first: str
    second: str
    differ: str
    notes: tuple[str, ...] = ()


def comparison_text(comparison: Comparison, names: Names) -> str:
    """All lines; the verdict last."""
    lines = [f"A  {names.first}", f"B  {names.second}"]
    lines += [f"differ in {names.differ}"] if names.differ else []
    lines += [f"note: {note}" for note in names.notes]
    lines += _tested(comparison) if comparison.counted else _untested(comparison)
    warning = comparison.verdict.warning
    lines += [f"warning: {warning}"] if warning else []
    lines.append(f"verdict: {verdict_label(comparison.verdict, comparison.overall, comparison.margin)}")
    return "\n".join(lines) + "\n"


def _tested(comparison: Comparison) -> list[str]:
    overall = comparison.overall
    return [
        f"{overall.n} pairs, {haystacks_label(overall.clusters)}{_left_out(comparison)}",
        f"{means_label(overall)} {interval(overall)}",
        f"B lost {overall.lost}, gained {overall.gained}; p={p_label(overall.p)} ({_how(comparison)})",
        *bounds_lines(comparison.bounds),
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
        means_label(comparison.overall),
        "by length:",
        *(f"  {labels[each.length_tokens]:>{wide}}  {_row(each)}" for each in comparison.lengths),
    ]


def comparison_json(comparison: Comparison, names: Names) -> dict[str, Any]:
    """The same as a mapping that JSON can hold; depths in percent, differences in points."""
    return {
        **verdict_fields(comparison, names),
        "dropped": comparison.dropped,
        "only_a": comparison.only_first,
        "only_b": comparison.only_second,
        "needed": comparison.needed,
        "noise": _noise_fields(comparison),
        "lengths": [
            {
                "length_tokens": each.length_tokens,
                **difference_fields(each.difference),
                "p_holm": each.adjusted_p,
            }
            for each in comparison.lengths
        ],
        "cells": [
            {
                "length_tokens": cell.length_tokens,
                "depth_percent": in_points(cell.depth),
                "difference": in_points(cell.change),
                "n": cell.n,
                "lost": cell.lost,
                "gained": cell.gained,
                "p_uncorrected": cell.p,
            }
            for cell in comparison.cells
        ],
    }


def verdict_word(verdict: Verdict, margin: float) -> str:
    """One of 'better', 'no worse than 2 points', 'worse', 'cannot tell'."""
    return f"no worse than {_number(margin)} points" if verdict.word == "no worse" else verdict.word


def verdict_label(verdict: Verdict, overall: Difference, share: float) -> str:
    """The verdict, and why or what would tell. share: the margin."""
    margin, word = _number(share), verdict_word(verdict, share)
    if verdict.word == "better":
        return f"{word} (the whole 95 % interval is a gain)"
    if verdict.word == "worse" and overall.high < -share:
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


def means_label(overall: Difference) -> str:
    """Both scores and their difference."""
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
    places = {depth: f" at {label}" if len(depths) > 1 else "" for depth, label in depths.items()}
    shown = [
        f"{lengths[c.length_tokens]}{places[c.depth]} {points(c.change)} (n={c.n}, p={p_label(c.p)})"
        for c in most
    ]
    return [f"cells that changed most (exploration, not corrected): {', '.join(shown)}"]


def _by_change(cell: CellChange) -> tuple[float, float]:
    return cell.p, -abs(cell.change)


def bounds_lines(bounds: tuple[float, float] | None) -> list[str]:
    """How far missing scores could move the difference; nothing where none is missing."""
    if bounds is None:
        return []
    low, high = map(points, bounds)
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


def haystacks_label(clusters: int) -> str:
    """Of how many haystacks the pairs are."""
    if clusters == 1:
        return "1 haystack: what follows is about this one only"
    few = ", few: intervals are rough" if clusters < FEWEST else ""
    return f"{clusters} haystacks{few}"


def _how(comparison: Comparison) -> str:
    """Which test p is of, and how the interval was made where that is not one of pairs."""
    test = tested_by(comparison.overall)
    bootstrap = comparison.graded and comparison.overall.clusters > 1
    return f"{test}; interval by bootstrap over haystacks" if bootstrap else test


def tested_by(overall: Difference) -> str:
    """Which test a p is of."""
    if not overall.flipped:
        return "exact McNemar, which takes prompts as independent"
    if overall.clusters == 1:
        return "sign flips of prompts, which takes them as independent"
    return "sign flips of whole haystacks"


def verdict_fields(comparison: Comparison | SuiteComparison, names: Names | SuiteNames) -> dict[str, Any]:
    """What JSON holds of any comparison: whose, how it was judged, and the whole difference."""
    bounds = comparison.bounds and [in_points(bound) for bound in comparison.bounds]
    return {
        "a": names.first,
        "b": names.second,
        "differ": names.differ,
        "notes": list(names.notes),
        "margin": in_points(comparison.margin),
        "verdict": verdict_word(comparison.verdict, comparison.margin),
        "more_trials": comparison.verdict.more,
        "warning": comparison.verdict.warning,
        "overall": difference_fields(comparison.overall),
        "bounds": bounds,
        "graded": comparison.graded,
        "counted": comparison.counted,
    }


def difference_fields(difference: Difference) -> dict[str, Any]:
    """A difference as JSON holds it, in points."""
    return {
        "score_a": in_points(difference.first),
        "score_b": in_points(difference.second),
        "difference": in_points(difference.value),
        "low": in_points(difference.low),
        "high": in_points(difference.high),
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
    return {"n": noise.n, "differing": noise.differing, "smallest": in_points(noise.smallest(noise.n))}


def in_points(share: float) -> float:
    """A share for JSON, without binary noise."""
    return round(100 * share, 6)


def _number(margin: float) -> str:
    return f"{100 * margin:.6g}"
