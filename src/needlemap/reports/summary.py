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
    """All lines; none without a score. Raises SettingsError for an unknown rule."""
    mean = total_score(cube)
    if mean is None:
        return []
    return [
        *_few_lines(cube, mean.clusters),
        *(_all_prompts_lines(cube, mean) if cube.counted else [_means_line(mean)]),
        *_missing_lines(cube, mean),
        *_effective_lines(cube, rules),
        *_depth_lines(cube),
        *_again_lines(cube),
        *([_power_line(mean)] if cube.counted and not cube.linear else []),
    ]


def _few_lines(cube: Cube, clusters: int) -> list[str]:
    """What so few repeats cannot tell, and what enough would cost; nothing where they are
    enough."""
    if clusters >= FEWEST or cube.one_haystack or not cube.counted:
        return []
    more = FEWEST / len(cube.repeats) - 1
    prompts, tokens = (
        round(more * int(count))
        for count in (cube.asked.sum(), cube.asked.sum(axis=(0, 2)) @ cube.lengths)
    )
    return [
        f"{counted(clusters, 'repeat')} cannot tell how haystacks differ: intervals are wide, "
        f"effective "
        f"lengths have none, a comparison is about {'this' if clusters == 1 else 'these'} only. "
        f"--repeats {FEWEST} tells: {prompts:,} more prompts, {tokens_label(tokens)} tokens"
    ]


def _all_prompts_lines(cube: Cube, mean: ClusterMean) -> list[str]:
    unit = "haystack" if any(cube.lengths) else "sample"
    line = f"all prompts: {_score(mean)} (n={mean.n:,}, {counted(mean.clusters, unit)}"
    if cube.linear:
        return [f"{line}; each length is the ratio of its summed gains)"]
    if mean.standard_error is not None and mean.design_effect is not None:
        error = f"standard error {score_label(mean.standard_error)}"
        return [f"{line}, {error} by {unit}, design effect {mean.design_effect:.1f})"]
    few = f"{line}: prompts of one are taken to correlate by {ASSUMED:g})"
    alone = interval_label(*effective_wilson(mean.score, mean.n, 1.0, 1))
    return [few, f"  were all prompts independent: {alone}"] if cube.one_haystack else [few]


def _means_line(mean: ClusterMean) -> str:
    """The mean of records that are means themselves."""
    return (
        f"all cells: {score_label(mean.score)} ({n_label(mean.n, counted=False)} of an unknown "
        "number of answers: no n, no interval)"
    )


def _missing_lines(cube: Cube, mean: ClusterMean) -> list[str]:
    """Bounds of what missing prompts leave open: of all, and of each length that misses
    some."""
    bounds = missing_bounds(mean.score * mean.n, mean.n, cube.missing)
    if not cube.missing or bounds is None:
        return []
    low, high = map(score_label, bounds)
    what = counted(cube.missing, "missing prompt")
    labels, lost = length_labels(cube.lengths), cube.asked & ~cube.known
    by_length = [
        f"{labels[length]} {low} to {high} ({missing})"
        for at, length in enumerate(cube.lengths)
        if (missing := int(lost[:, at].sum()))
        for low, high in [_ends(cube.scores[:, at], missing)]
    ]
    return [
        f"{what}: {low} if all were wrong, {high} if all were right",
        f"  by length, and how many: {' · '.join(by_length)}",
    ]


def _ends(scores: Array, missing: int) -> tuple[str, str]:
    bounds = missing_bounds(float(np.nansum(scores)), int((~np.isnan(scores)).sum()), missing)
    low, high = bounds or (0.0, 1.0)
    return score_label(low), score_label(high)


def _effective_lines(cube: Cube, rules: Sequence[str]) -> list[str]:
    known = held_by(partial(effective_length, cube), rules)
    if not known:
        return []
    shown = [f"{each.rule.name} {effective_label(each)}" for each in known]
    unscored = [length for at, length in enumerate(cube.lengths) if not cube.known[:, at].any()]
    none = (
        f"; nothing was scored at {', '.join(length_labels(unscored).values())}" if unscored else ""
    )
    lines = [f"effective length: {' · '.join(shown)}{none}"]
    if not cube.counted:
        return lines
    if cube.one_haystack:
        lines.append(
            "  intervals as if cells were independent: all repeats count as of one haystack"
        )
    elif any(each.clusters < FEWEST for each in known):
        lines.append(
            f"  no intervals from fewer than {FEWEST} haystacks: --repeats {FEWEST} or more"
        )
    return [*lines, *_missing_lengths(cube, [each.rule for each in known])]


def _missing_lengths(cube: Cube, rules: Sequence[Rule]) -> list[str]:
    """Effective lengths if all that is missing were wrong, and if it were right."""
    lost = cube.asked & ~cube.known
    if not lost.any():
        return []
    ends = [
        replace(
            cube, scores=np.where(lost, end, cube.scores), spread=np.where(lost, end, cube.spread)
        )
        for end in (0.0, 1.0)
    ]
    shown = []
    for rule in rules:
        low, high = (
            effective_length(each, rule, draws=0) for each in ends
        )  # no intervals of these
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
    """With its interval, if it has one."""
    return f"{score_label(mean.score)}{interval_behind(mean)}"


def _again_lines(cube: Cube) -> list[str]:
    """The noise floor, from prompts that were asked more than once."""
    noise = noise_floor(cube.again)
    if noise is None:
        return []
    line = f"asked again: {noise.differing} of {noise.n} prompts scored otherwise the second time"
    share = f"{score_label(noise.differing / noise.n)} % {interval_label(noise.low, noise.high)}"
    floor = "" if not noise.differing else f"; {floor_label(noise, cube.n)}"
    return [f"{line} ({share}){floor}{_where_seen(cube)}"]


def _where_seen(cube: Cube) -> str:
    """At which lengths prompts were asked again, where it was not at all of them."""
    seen = sorted(set(cube.again_at))
    if not seen or len(seen) == len(cube.lengths):
        return ""
    labels = length_labels(seen)
    where = labels[seen[0]] if len(seen) == 1 else f"{labels[seen[0]]} to {labels[seen[-1]]}"
    return (
        f"; seen at {len(seen)} of {len(cube.lengths)} lengths, {where}: others may be more or "
        f"less noisy"
    )


def _power_line(mean: ClusterMean) -> str:
    """Pairs at which a comparison is sure of a loss: where losses fall singly, and where they
    cluster as scores do."""
    clusters = mean.clusters if mean.clusters >= FEWEST else None
    effect = mean.design_effect or 1.0
    singly, together = (
        trials_needed(DROP, design_effect=each, clusters=clusters) for each in (1.0, effect)
    )
    to = (
        f", {together:,} where they fall by haystack as scores do"
        if together > 1.1 * singly
        else ""
    )
    only = "" if clusters else " of these haystacks"
    return (
        f"pairs: you have {mean.n:,}; that a loss of {100 * DROP:g} points{only} is sure takes "
        f"about {singly:,} where losses fall singly{to} (80 % power)"
    )


def read_families(families: Families) -> dict[str, Loaded | None]:
    """Each family of a run, None where it was not begun."""
    begun = families.begun
    return {
        name: load_run(families.folder(name)) if name in begun else None for name in families.names
    }


MEAN = "mean"


def score_name(families: Families) -> str:
    """What the score of all families is called: as the last that the suite names, or mean."""
    return printable([MEAN, *families.scores][-1], line=True)


def scores_of(families: Families, read: Mapping[str, Loaded | None]) -> FamilyScores:
    """The score of all families: the last that the suite names, or their mean."""
    return _together(score_weights(families), read)


def score_weights(families: Families) -> Mapping[str, float]:
    """The weight of each family that counts in the score of all."""
    return [dict.fromkeys(families.names, 1.0), *families.scores.values()][-1]


def weighted_scores(
    families: Families, read: Mapping[str, Loaded | None]
) -> dict[str, FamilyScores]:
    """The scores that the suite names."""
    return {name: _together(weights, read) for name, weights in families.scores.items()}


def _together(weights: Mapping[str, float], read: Mapping[str, Loaded | None]) -> FamilyScores:
    """A weighted mean of families: without any length until all of them were begun."""
    cubes = [run.cube for family in weights if (run := read.get(family)) is not None]
    whole = len(cubes) == len(weights)
    return FamilyScores(cubes if whole else [], weights=[*weights.values()] if whole else None)


def overall_of(families: Families, read: Mapping[str, Loaded | None]) -> ClusterMean | Mean | None:
    """The mean of a run, of several families their score; None without a score of each."""
    only = read.get("")
    return only.map.total if only else scores_of(families, read).overall()


def means_of(
    families: Families, read: Mapping[str, Loaded | None]
) -> Mapping[int, ClusterMean | Mean]:
    """The mean of a run by length, of several families their score, as the terminal has it."""
    only = read.get("")
    return only.map.margins if only else scores_of(families, read).means()


def count_label(run: Loaded | None) -> str:
    """How many trials of a family have a score, and how many are missing."""
    if run is None:
        return "not begun"
    missing = f", {run.map.missing:,} missing" if run.map.missing else ""
    return f"{run.map.n:,}{missing}{withheld_label(run.map)}"


def held_by(of: Callable[[Rule], Effective | None], rules: Sequence[str]) -> list[Effective]:
    """How far scores hold, by each rule that tells. of: what a rule gives. Raises
    SettingsError for an unknown rule."""
    return [found for rule in rules if (found := of(parse_rule(rule))) is not None]


def _interval_line(name: str, means: dict[int, Mean]) -> str:
    """The score's 95 % interval by length."""
    labels = length_labels(list(means))
    known = [
        f"{labels[at]} {interval_label(mean.low, mean.high)}"
        for at, mean in means.items()
        if mean.low is not None
    ]
    if not known:
        return f"no intervals from fewer than {FEWEST} haystacks: --repeats {FEWEST} or more"
    return f"{name} over families, 95 %: {' · '.join(known)}"


def mean_length_lines(name: str, means: dict[int, Mean], found: Sequence[Effective]) -> list[str]:
    """How sure the score of all families is, and how far it holds."""
    published, threshold = published_length(means), f"{100 * PUBLISHED:g}"
    said = _length(published, list(means))
    shown = [f"{each.rule.name} {effective_label(each)}" for each in found]
    return [
        _interval_line(name, means),
        f"effective length as published, the largest whose mean exceeds {threshold}: {said}",
        f"effective length of the {name}: {' · '.join(shown)}",
    ]


def _length(found: float | None, lengths: Sequence[int]) -> str:
    labels = length_labels(lengths)
    if found == inf:
        return f">={labels[max(lengths)]}"
    return labels[int(found)] if found else f"<{labels[min(lengths)]}"
