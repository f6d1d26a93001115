"""What a run comes to, in a few lines under its map: mean, effective length, depths, noise, power."""

from __future__ import annotations

from math import inf

from needlemap.maps.clusters import FEWEST, ClusterMean, noise_floor
from needlemap.maps.cube import Cube
from needlemap.maps.difference import missing_bounds
from needlemap.maps.effective import LEAST_BASE, RULES, Effective, effective_length, parse_rule
from needlemap.maps.intervals import trials_needed
from needlemap.maps.map import position_gap, total_score
from needlemap.reports.labels import (
    depth_score_labels,
    floor_label,
    interval_label,
    length_labels,
    n_label,
    score_label,
)

DROP = 0.05


def summary_lines(cube: Cube, rules: tuple[str, ...] = RULES) -> list[str]:
    """All lines; none without a score. Raises SettingsError for an unknown rule."""
    mean = total_score(cube)
    if mean is None:
        return []
    return [
        _mean_line(mean) if cube.counted else _means_line(mean),
        *_missing_lines(mean, cube.missing),
        *_effective_lines(cube, rules),
        *_depth_lines(cube),
        *_again_lines(cube),
        *([_power_line(mean)] if cube.counted else []),
    ]


def effective_label(effective: Effective) -> str:
    """A rule's value with its interval, as '11k [8k, 18k]' or '>=128k [64k, >=128k]'; auc in percent."""
    if effective.rule.kind == "relative" and effective.value is None:
        return f"- (below {100 * LEAST_BASE:g} at {_tokens(effective.shortest)})"
    value = _value(effective, effective.value)
    if effective.low is None or effective.high is None:
        return value
    return f"{value} [{_value(effective, effective.low)}, {_value(effective, effective.high)}]"


def _value(effective: Effective, value: float | None) -> str:
    if value is None or effective.rule.kind == "auc":
        return score_label(value)
    if value == inf:
        return f">={_tokens(effective.longest)}"
    return _tokens(value) if value else f"<{_tokens(effective.shortest)}"


def _tokens(length: float) -> str:
    return length_labels([round(length)])[round(length)]


def _mean_line(mean: ClusterMean) -> str:
    haystacks = f"{mean.clusters} haystack{'s' * (mean.clusters != 1)}"
    interval = interval_label(mean.low, mean.high)
    line = f"all prompts: {score_label(mean.score)} {interval} (n={mean.n}, {haystacks}"
    if mean.standard_error is None or mean.design_effect is None:
        return f"{line}: too few to see how they differ, so the interval is as of independent prompts)"
    error = f"standard error {100 * mean.standard_error:.1f}"
    return f"{line}, {error} by haystack, design effect {mean.design_effect:.1f})"


def _means_line(mean: ClusterMean) -> str:
    """Where the records are means: of what, nobody knows."""
    return (
        f"all cells: {score_label(mean.score)} ({n_label(mean.n, counted=False)} of nobody knows how many "
        "answers: no n, no interval)"
    )


def _missing_lines(mean: ClusterMean, missing: int) -> list[str]:
    bounds = missing_bounds(mean.score * mean.n, mean.n, missing)
    if not missing or bounds is None:
        return []
    low, high = map(score_label, bounds)
    what = f"{missing} missing prompt{'s' * (missing != 1)}"
    return [f"{what}: {low} if all were wrong, {high} if all were right"]


def _effective_lines(cube: Cube, rules: tuple[str, ...]) -> list[str]:
    found = [effective_length(cube, parse_rule(rule)) for rule in rules]
    known = [each for each in found if each is not None]
    shown = [f"{each.rule.name} {effective_label(each)}" for each in known]
    lines = [f"effective length: {' · '.join(shown)}"]
    if not cube.counted:
        return lines
    if cube.one_haystack:
        lines.append("  no intervals: all repeats count as of one haystack")
    elif any(each.clusters < FEWEST for each in known):
        lines.append(f"  no intervals from fewer than {FEWEST} haystacks: --repeats {FEWEST} or more")
    return lines


def _depth_lines(cube: Cube) -> list[str]:
    gap = position_gap(cube)
    if gap is None:
        return []
    worst, best = (
        f"{label} {_score(row.mean)}"
        for label, row in zip(depth_score_labels(gap, cube.depths), gap, strict=True)
    )
    if gap[0].mean.score == gap[1].mean.score:
        return [f"by depth: {score_label(gap[0].mean.score)} at every depth"]
    return [f"by depth: lowest at {worst}, highest at {best}"]


def _score(mean: ClusterMean) -> str:
    """With its interval, if it has one."""
    return score_label(mean.score) + ("" if mean.low is None else f" {interval_label(mean.low, mean.high)}")


def _again_lines(cube: Cube) -> list[str]:
    """The noise floor, from prompts that were asked more than once."""
    noise = noise_floor(cube.again)
    if noise is None:
        return []
    line = f"asked again: {noise.differing} of {noise.n} prompts scored otherwise the second time"
    share = f"{score_label(noise.differing / noise.n)} % {interval_label(noise.low, noise.high)}"
    floor = "" if not noise.differing else f"; {floor_label(noise, cube.n)}"
    return [f"{line} ({share}){floor}"]


def _power_line(mean: ClusterMean) -> str:
    """In a paired comparison; its differences are taken to cluster as the scores do."""
    needed = trials_needed(DROP, design_effect=mean.design_effect or 1.0)
    return (
        f"power: to see a drop of {100 * DROP:g} points you need about {needed:,} paired trials; "
        f"you have {mean.n:,}"
    )
