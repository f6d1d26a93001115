"""What a run comes to, in a few lines: mean, effective length, depths, noise, power."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from math import inf

import numpy as np

from needlemap.records.families import Families
from needlemap.records.loaded import Loaded, load_run
from needlemap.reports.labels import (
    depth_score_labels,
    effective_label,
    effective_value,
    floor_label,
    interval_behind,
    interval_label,
    length_labels,
    n_label,
    score_label,
    tokens_label,
    withheld_label,
)
from needlemap.reports.seek_report import seeks
from needlemap.stats import Array, Cube
from needlemap.stats.difference import missing_bounds
from needlemap.stats.effective import (
    PUBLISHED,
    RULES,
    Effective,
    FamilyScores,
    Mean,
    Rule,
    effective_length,
    parse_rule,
    published_length,
)
from needlemap.stats.intervals import (
    ASSUMED,
    FEWEST,
    ClusterMean,
    effective_wilson,
    noise_floor,
    trials_needed,
)
from needlemap.stats.means import position_gap, total_score
from needlemap.text import counted, printable

DROP = 0.05
FAMILY_RULES = (f"absolute:{100 * PUBLISHED:g}", "absolute:85", "relative:85", "auc")
NO_MEAN = "no mean over families yet: no length has a score of each of them"


def summary_lines(cube: Cube, rules: Sequence[str] = RULES) -> list[str]:
    """Return the lines on a run's scores, or none if nothing was scored.

    If a rule is unknown, SettingsError is raised.
    """
    mean = total_score(cube)
    if mean is None:
        return []
    lines = _few_lines(cube, mean.clusters)
    lines += _all_prompts_lines(cube, mean) if cube.counted else [_means_line(mean)]
    lines += _missing_lines(cube, mean)
    lines += _effective_lines(cube, rules)
    lines += _depth_lines(cube)
    lines += _again_lines(cube)
    if cube.counted and not cube.linear:
        lines.append(_power_line(mean))
    return lines


def _few_lines(cube: Cube, clusters: int) -> list[str]:
    """Return a line on what too few repeats cannot show, and on the cost of enough of them.

    If there are enough repeats, there is no line.
    """
    if clusters >= FEWEST or cube.one_haystack or not cube.counted:
        return []
    further = FEWEST / len(cube.repeats) - 1
    prompts = round(further * int(cube.asked.sum()))
    tokens = round(further * int(cube.asked.sum(axis=(0, 2)) @ cube.lengths))
    line = (
        f"With {counted(clusters, 'repeat')} the variation between texts is unknown: intervals are "
        f"wide, effective lengths have none, and a comparison holds for "
        f"{'this text' if clusters == 1 else 'these texts'} only."
    )
    # A run that was stopped may have more repeats than it has answers of.
    if prompts > 0:
        cost = f"{prompts:,} more prompts, {tokens_label(tokens)} tokens"
        line += f" For reliable intervals use --repeats {FEWEST} ({cost})."
    return [line]


def _all_prompts_lines(cube: Cube, mean: ClusterMean) -> list[str]:
    unit = "haystack" if any(cube.lengths) else "sample"
    line = f"all prompts: {_score_text(mean)} (n={mean.n:,}, {counted(mean.clusters, unit)}"
    if cube.linear:
        return [f"{line}; each length is the ratio of its summed gains)"]
    if mean.standard_error is not None and mean.design_effect is not None:
        error = f"standard error {score_label(mean.standard_error)}"
        return [f"{line}, {error} by {unit}, design effect {mean.design_effect:.1f})"]
    with_assumption = f"{line}: prompts of one are taken to correlate by {ASSUMED:g})"
    if_independent = interval_label(*effective_wilson(mean.score, mean.n, 1.0, 1))
    return (
        [with_assumption, f"  were all prompts independent: {if_independent}"]
        if cube.one_haystack
        else [with_assumption]
    )


def _means_line(mean: ClusterMean) -> str:
    """Return the mean of records that are means themselves."""
    return (
        f"all cells: {score_label(mean.score)} ({n_label(mean.n, counted=False)} of an unknown "
        "number of answers: no n, no interval)"
    )


def _missing_lines(cube: Cube, mean: ClusterMean) -> list[str]:
    """Return bounds of the mean that missing prompts leave open, of all and of each length."""
    bounds = missing_bounds(mean.score * mean.n, mean.n, cube.missing)
    if not cube.missing or bounds is None:
        return []
    low, high = map(score_label, bounds)
    missing_prompts = counted(cube.missing, "missing prompt")
    labels = length_labels(cube.lengths)
    missing_by_length = (cube.asked & ~cube.known).sum(axis=(0, 2))
    by_length = []
    for index, length in enumerate(cube.lengths):
        if missing_count := int(missing_by_length[index]):
            lowest, highest = _bound_labels(cube.scores[:, index], missing_count)
            by_length.append(f"{labels[length]} {lowest} to {highest} ({missing_count})")
    return [
        f"{missing_prompts}: {low} if all were wrong, {high} if all were right",
        f"  by length, and how many: {' · '.join(by_length)}",
    ]


def _bound_labels(scores: Array, missing_count: int) -> tuple[str, str]:
    bounds = missing_bounds(float(np.nansum(scores)), int((~np.isnan(scores)).sum()), missing_count)
    low, high = bounds or (0.0, 1.0)
    return score_label(low), score_label(high)


def _effective_lines(cube: Cube, rules: Sequence[str]) -> list[str]:
    effective_lengths = effective_lengths_by(partial(effective_length, cube), rules)
    if not effective_lengths:
        return []
    rule_labels = [
        f"{effective.rule.name} {effective_label(effective)}" for effective in effective_lengths
    ]
    unscored_lengths = [
        length for index, length in enumerate(cube.lengths) if not cube.known[:, index].any()
    ]
    note = ""
    if unscored_lengths:
        note = f"; nothing was scored at {', '.join(length_labels(unscored_lengths).values())}"
    lines = [f"effective length: {' · '.join(rule_labels)}{note}"]
    if not cube.counted:
        return lines
    if cube.one_haystack:
        lines.append(
            "  intervals as if cells were independent: all repeats count as of one haystack"
        )
    elif any(effective.clusters < FEWEST for effective in effective_lengths):
        lines.append(
            f"  no intervals from fewer than {FEWEST} haystacks: --repeats {FEWEST} or more"
        )
    return [*lines, *_missing_lengths(cube, [effective.rule for effective in effective_lengths])]


def _missing_lengths(cube: Cube, rules: Sequence[Rule]) -> list[str]:
    """Return a line on effective lengths if all missing trials were wrong, and if all were right.

    If no trial is missing, or if these bound no rule, there is no line.
    """
    if not cube.missing:
        return []
    all_wrong, all_right = cube.filled(0.0), cube.filled(1.0)
    rule_ranges = []
    for rule in rules:
        # What is missing at the shortest length moves a relative threshold, too, and the worst
        # depth may be another one.
        if rule.kind in ("relative", "worst-depth"):
            continue
        # Without draws: these have no intervals.
        low = effective_length(all_wrong, rule, draws=0)
        high = effective_length(all_right, rule, draws=0)
        if low and high:
            rule_ranges.append(
                f"{rule.name} {effective_value(low, low.value)} to "
                f"{effective_value(high, high.value)}"
            )
    if not rule_ranges:
        return []
    return [f"  if all missing trials were wrong, or right: {' · '.join(rule_ranges)}"]


def _depth_lines(cube: Cube) -> list[str]:
    gap = position_gap(cube)
    if gap is None:
        return []
    lowest, highest = (
        f"{label} {_score_text(row.mean)}"
        for label, row in zip(depth_score_labels(gap, cube.depths), gap, strict=True)
    )
    if gap[0].mean.score == gap[1].mean.score:
        return [f"by depth: {score_label(gap[0].mean.score)} at every depth"]
    return [f"by depth: lowest at {lowest}, highest at {highest}"]


def _score_text(mean: ClusterMean) -> str:
    """Return a score with its interval, if it has one."""
    return f"{score_label(mean.score)}{interval_behind(mean)}"


def _again_lines(cube: Cube) -> list[str]:
    """Return a line on the noise floor, if prompts were sent more than once."""
    noise = noise_floor(cube.again)
    if noise is None:
        return []
    line = f"asked again: {noise.differing} of {noise.n} prompts scored otherwise the second time"
    share = f"{score_label(noise.differing / noise.n)} % {interval_label(noise.low, noise.high)}"
    floor = "" if not noise.differing else f"; {floor_label(noise, cube.n)}"
    return [f"{line} ({share}){floor}{_where_seen(cube)}"]


def _where_seen(cube: Cube) -> str:
    """Return the lengths at which prompts were sent again, or '' if it was at all of them."""
    lengths = sorted(set(cube.again_at))
    if not lengths or len(lengths) == len(cube.lengths):
        return ""
    labels = length_labels(lengths)
    where = (
        labels[lengths[0]]
        if len(lengths) == 1
        else f"{labels[lengths[0]]} to {labels[lengths[-1]]}"
    )
    return (
        f"; seen at {len(lengths)} of {len(cube.lengths)} lengths, {where}: others may be more or "
        f"less noisy"
    )


def _power_line(mean: ClusterMean) -> str:
    """Return a line on the pairs that a comparison needs to detect a loss.

    If losses that cluster as scores do need many more, their number is given too.
    """
    clusters = mean.clusters if mean.clusters >= FEWEST else None
    effect = mean.design_effect or 1.0
    independent_pairs = trials_needed(DROP, design_effect=1.0, clusters=clusters)
    clustered_pairs = trials_needed(DROP, design_effect=effect, clusters=clusters)
    addition = ""
    if clustered_pairs > 1.1 * independent_pairs:
        addition = f", or {clustered_pairs:,} if losses fall by text as scores do"
    scope = "" if clusters else " on these texts"
    return (
        f"Sample size: {mean.n:,}. To detect a {100 * DROP:g}-point loss{scope} with 80 % power "
        f"you need about {independent_pairs:,}{addition}."
    )


def read_families(families: Families) -> dict[str, Loaded | None]:
    """Read each family of a run. A family that was not started is None."""
    started_names = families.started_names
    return {
        name: load_run(families.folder(name)) if name in started_names else None
        for name in families.names
    }


MEAN = "mean"


def score_name(families: Families) -> str:
    """Return the name of the score of all families: the last that the suite names, or mean."""
    return printable([MEAN, *families.scores][-1], line=True)


def scores_of(
    families: Families,
    runs_by_family: Mapping[str, Loaded | None],
    counted_names: Collection[str] | None = None,
    missing: float | None = None,
) -> FamilyScores:
    """Return the score of all families: the last that the suite names, or their mean.

    The parts of a check, an ab or a storm have none: they repeat a run, or vary it.

    counted_names: the families that count; None for all. missing: the score that each prompt
    without one counts as; None if these are left out.
    """
    if families.has_findings:
        return FamilyScores([])
    weights = [dict.fromkeys(families.names, 1.0), *families.scores.values()][-1]
    if counted_names is not None:
        weights = {name: weight for name, weight in weights.items() if name in counted_names}
    return _weighted_mean(weights, runs_by_family, missing)


def weighted_scores(
    families: Families, runs_by_family: Mapping[str, Loaded | None]
) -> dict[str, FamilyScores]:
    """Return the scores that the suite names."""
    return {
        name: _weighted_mean(weights, runs_by_family) for name, weights in families.scores.items()
    }


def _weighted_mean(
    weights: Mapping[str, float],
    runs_by_family: Mapping[str, Loaded | None],
    missing: float | None = None,
) -> FamilyScores:
    """Return a weighted mean of families.

    Until all of them were started, or if one of them seeks, it has no length.
    """
    runs = [run for family in weights if (run := runs_by_family.get(family)) is not None]
    cubes = [run.cube if missing is None else run.cube.filled(missing) for run in runs]
    is_complete = len(runs) == len(weights) and not any(map(seeks, runs))
    return FamilyScores(
        cubes if is_complete else [], weights=[*weights.values()] if is_complete else None
    )


def overall_of(
    families: Families, runs_by_family: Mapping[str, Loaded | None]
) -> ClusterMean | Mean | None:
    """Return the mean of a run or, if it has several families, their score.

    If a family has no score, if the run seeks, or if it is a check, an ab or a storm, None is
    returned.
    """
    single_run = runs_by_family.get("")
    if single_run is None:
        return scores_of(families, runs_by_family).overall()
    return None if seeks(single_run) else single_run.map.total


def means_of(
    families: Families, runs_by_family: Mapping[str, Loaded | None]
) -> Mapping[int, ClusterMean | Mean]:
    """Return the mean of a run by length or, if it has several families, their score by length."""
    single_run = runs_by_family.get("")
    return single_run.map.margins if single_run else scores_of(families, runs_by_family).means()


def count_label(run: Loaded | None) -> str:
    """Return the number of trials of a family with a score, and of those missing, in words."""
    if run is None:
        return "not started"
    missing_note = f", {run.map.missing:,} missing" if run.map.missing else ""
    return f"{run.map.n:,}{missing_note}{withheld_label(run.map)}"


def effective_lengths_of(run: Loaded, rules: Sequence[str]) -> list[Effective]:
    """Return the effective length of a run by each rule that gives one.

    A run that seeks has none: it has the length that it sought. If a rule is unknown,
    SettingsError is raised.
    """
    return [] if seeks(run) else effective_lengths_by(partial(effective_length, run.cube), rules)


def effective_lengths_by(
    length_by: Callable[[Rule], Effective | None], rules: Sequence[str]
) -> list[Effective]:
    """Return the effective length by each rule that gives one.

    length_by: computes it by a rule. If a rule is unknown, SettingsError is raised.
    """
    return [effective for rule in rules if (effective := length_by(parse_rule(rule))) is not None]


def _interval_line(name: str, means: dict[int, Mean], overall: Mean | None) -> str:
    """Return the score's 95 % interval by length, and that of all lengths."""
    labels = length_labels(list(means))
    intervals = [
        f"{labels[length]} {interval_label(mean.low, mean.high)}"
        for length, mean in means.items()
        if mean.low is not None
    ]
    if not intervals:
        return f"no intervals from fewer than {FEWEST} haystacks: --repeats {FEWEST} or more"
    if overall is not None:
        intervals.append(f"all{interval_behind(overall)}")
    return f"{name} over families, 95 %: {' · '.join(intervals)}"


def mean_length_lines(
    name: str,
    means: dict[int, Mean],
    overall: Mean | None,
    effective_lengths: Sequence[Effective],
) -> list[str]:
    """Return lines on the intervals of the score of all families, and its effective lengths."""
    threshold = f"{100 * PUBLISHED:g}"
    label = _length_label(published_length(means), list(means))
    rule_labels = [
        f"{effective.rule.name} {effective_label(effective)}" for effective in effective_lengths
    ]
    return [
        _interval_line(name, means, overall),
        f"effective length as published, the largest whose mean exceeds {threshold}: {label}",
        f"effective length of the {name}: {' · '.join(rule_labels)}",
    ]


def _length_label(effective: float | None, lengths: Sequence[int]) -> str:
    labels = length_labels(lengths)
    if effective == inf:
        return f">={labels[max(lengths)]}"
    return labels[int(effective)] if effective else f"<{labels[min(lengths)]}"
