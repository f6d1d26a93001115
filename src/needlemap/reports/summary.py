"""What a run comes to, in a few lines: mean, effective length, depths, noise, power."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
    """Return all lines; none without a score. Raises SettingsError for an unknown rule."""
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
    """Return what so few repeats cannot show, and what enough would cost.

    Nothing is returned if they are enough.
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
    line = f"all prompts: {_score(mean)} (n={mean.n:,}, {counted(mean.clusters, unit)}"
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
    """Return bounds of what missing prompts leave open: of all, and of each such length."""
    bounds = missing_bounds(mean.score * mean.n, mean.n, cube.missing)
    if not cube.missing or bounds is None:
        return []
    low, high = map(score_label, bounds)
    missing_prompts = counted(cube.missing, "missing prompt")
    labels = length_labels(cube.lengths)
    missing_by_length = (cube.asked & ~cube.known).sum(axis=(0, 2))
    by_length = []
    for index, length in enumerate(cube.lengths):
        if missing := int(missing_by_length[index]):
            least, most = _ends(cube.scores[:, index], missing)
            by_length.append(f"{labels[length]} {least} to {most} ({missing})")
    return [
        f"{missing_prompts}: {low} if all were wrong, {high} if all were right",
        f"  by length, and how many: {' · '.join(by_length)}",
    ]


def _ends(scores: Array, missing: int) -> tuple[str, str]:
    bounds = missing_bounds(float(np.nansum(scores)), int((~np.isnan(scores)).sum()), missing)
    low, high = bounds or (0.0, 1.0)
    return score_label(low), score_label(high)


def _effective_lines(cube: Cube, rules: Sequence[str]) -> list[str]:
    effective_lengths = held_by(partial(effective_length, cube), rules)
    if not effective_lengths:
        return []
    shown = [
        f"{effective.rule.name} {effective_label(effective)}" for effective in effective_lengths
    ]
    unscored = [
        length for index, length in enumerate(cube.lengths) if not cube.known[:, index].any()
    ]
    note = ""
    if unscored:
        note = f"; nothing was scored at {', '.join(length_labels(unscored).values())}"
    lines = [f"effective length: {' · '.join(shown)}{note}"]
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
    """Return effective lengths if all that is missing were wrong, and if it were right."""
    is_missing = cube.asked & ~cube.known
    if not is_missing.any():
        return []
    all_wrong, all_right = (
        replace(
            cube,
            scores=np.where(is_missing, score, cube.scores),
            spread=np.where(is_missing, score, cube.spread),
        )
        for score in (0.0, 1.0)
    )
    shown = []
    for rule in rules:
        # Without draws: these have no intervals.
        low = effective_length(all_wrong, rule, draws=0)
        high = effective_length(all_right, rule, draws=0)
        if low and high and rule.kind != "worst-depth":
            shown.append(
                f"{rule.name} {effective_value(low, low.value)} to "
                f"{effective_value(high, high.value)}"
            )
    return [f"  if all missing trials were wrong, or right: {' · '.join(shown)}"]


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
    """Return a score with its interval, if it has one."""
    return f"{score_label(mean.score)}{interval_behind(mean)}"


def _again_lines(cube: Cube) -> list[str]:
    """Return the noise floor, from prompts that were sent more than once."""
    noise = noise_floor(cube.again)
    if noise is None:
        return []
    line = f"asked again: {noise.differing} of {noise.n} prompts scored otherwise the second time"
    share = f"{score_label(noise.differing / noise.n)} % {interval_label(noise.low, noise.high)}"
    floor = "" if not noise.differing else f"; {floor_label(noise, cube.n)}"
    return [f"{line} ({share}){floor}{_where_seen(cube)}"]


def _where_seen(cube: Cube) -> str:
    """Return at which lengths prompts were sent again, if it was not at all of them."""
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
    """Return the pairs at which a comparison is sure of a loss.

    They are given for losses that fall singly, and that cluster as scores do.
    """
    clusters = mean.clusters if mean.clusters >= FEWEST else None
    effect = mean.design_effect or 1.0
    singly = trials_needed(DROP, design_effect=1.0, clusters=clusters)
    together = trials_needed(DROP, design_effect=effect, clusters=clusters)
    addition = ""
    if together > 1.1 * singly:
        addition = f", or {together:,} if losses fall by text as scores do"
    scope = "" if clusters else " on these texts"
    return (
        f"Sample size: {mean.n:,}. To detect a {100 * DROP:g}-point loss{scope} with 80 % power "
        f"you need about {singly:,}{addition}."
    )


def read_families(families: Families) -> dict[str, Loaded | None]:
    """Return each family of a run, None for one that was not started."""
    started = families.started_names
    return {
        name: load_run(families.folder(name)) if name in started else None
        for name in families.names
    }


MEAN = "mean"


def score_name(families: Families) -> str:
    """Return the name of the score of all families: the last that the suite names, or mean."""
    return printable([MEAN, *families.scores][-1], line=True)


def scores_of(families: Families, read: Mapping[str, Loaded | None]) -> FamilyScores:
    """Return the score of all families: the last that the suite names, or their mean."""
    return _together(score_weights(families), read)


def score_weights(families: Families) -> Mapping[str, float]:
    """Return the weight of each family that counts in the score of all."""
    return [dict.fromkeys(families.names, 1.0), *families.scores.values()][-1]


def weighted_scores(
    families: Families, read: Mapping[str, Loaded | None]
) -> dict[str, FamilyScores]:
    """Return the scores that the suite names."""
    return {name: _together(weights, read) for name, weights in families.scores.items()}


def _together(weights: Mapping[str, float], read: Mapping[str, Loaded | None]) -> FamilyScores:
    """Return a weighted mean of families; without any length until all of them were started."""
    cubes = [run.cube for family in weights if (run := read.get(family)) is not None]
    is_complete = len(cubes) == len(weights)
    return FamilyScores(
        cubes if is_complete else [], weights=[*weights.values()] if is_complete else None
    )


def overall_of(families: Families, read: Mapping[str, Loaded | None]) -> ClusterMean | Mean | None:
    """Return the mean of a run, of several families their score.

    Returns None without a score of each.
    """
    only = read.get("")
    return only.map.total if only else scores_of(families, read).overall()


def means_of(
    families: Families, read: Mapping[str, Loaded | None]
) -> Mapping[int, ClusterMean | Mean]:
    """Return the mean of a run by length, of several families their score.

    They are as the terminal shows them.
    """
    only = read.get("")
    return only.map.margins if only else scores_of(families, read).means()


def count_label(run: Loaded | None) -> str:
    """Return how many trials of a family have a score, and how many are missing."""
    if run is None:
        return "not begun"
    missing = f", {run.map.missing:,} missing" if run.map.missing else ""
    return f"{run.map.n:,}{missing}{withheld_label(run.map)}"


def held_by(length_by: Callable[[Rule], Effective | None], rules: Sequence[str]) -> list[Effective]:
    """Return how far scores hold, by each rule that gives a length.

    length_by: what a rule gives. Raises SettingsError for an unknown rule.
    """
    return [effective for rule in rules if (effective := length_by(parse_rule(rule))) is not None]


def _interval_line(name: str, means: dict[int, Mean]) -> str:
    """Return the score's 95 % interval by length."""
    labels = length_labels(list(means))
    intervals = [
        f"{labels[length]} {interval_label(mean.low, mean.high)}"
        for length, mean in means.items()
        if mean.low is not None
    ]
    if not intervals:
        return f"no intervals from fewer than {FEWEST} haystacks: --repeats {FEWEST} or more"
    return f"{name} over families, 95 %: {' · '.join(intervals)}"


def mean_length_lines(
    name: str, means: dict[int, Mean], effective_lengths: Sequence[Effective]
) -> list[str]:
    """Return how sure the score of all families is, and how far it holds."""
    threshold = f"{100 * PUBLISHED:g}"
    label = _length(published_length(means), list(means))
    shown = [
        f"{effective.rule.name} {effective_label(effective)}" for effective in effective_lengths
    ]
    return [
        _interval_line(name, means),
        f"effective length as published, the largest whose mean exceeds {threshold}: {label}",
        f"effective length of the {name}: {' · '.join(shown)}",
    ]


def _length(effective: float | None, lengths: Sequence[int]) -> str:
    labels = length_labels(lengths)
    if effective == inf:
        return f">={labels[max(lengths)]}"
    return labels[int(effective)] if effective else f"<{labels[min(lengths)]}"
