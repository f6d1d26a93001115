"""What a run comes to, in a few lines: mean, effective length, depths, noise, power; families as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path

from needlemap.maps.clusters import FEWEST, ClusterMean, noise_floor
from needlemap.maps.cube import Cube
from needlemap.maps.difference import missing_bounds
from needlemap.maps.effective import (
    LEAST_BASE,
    PUBLISHED,
    RULES,
    Effective,
    FamilyScores,
    Mean,
    effective_length,
    parse_rule,
    published_length,
)
from needlemap.maps.intervals import trials_needed
from needlemap.maps.map import Map, position_gap, total_score
from needlemap.records.families import Families, families_of
from needlemap.records.loaded import Loaded, load_run
from needlemap.reports.labels import (
    depth_score_labels,
    floor_label,
    interval_label,
    length_labels,
    n_label,
    score_label,
)
from needlemap.text.printable import printable

DROP = 0.05
FAMILY_RULES = (f"absolute:{100 * PUBLISHED:g}", "absolute:85", "relative:85", "auc")
_WIDTH = 6
NO_MEAN = "no mean over families yet: no length has a score of each of them"


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
    error = f"standard error {score_label(mean.standard_error)}"
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


def read_families(families: Families) -> dict[str, Loaded | None]:
    """Each family of a run, None where it was not begun."""
    begun = families.begun
    return {name: load_run(families.folder(name)) if name in begun else None for name in families.names}


def scores_of(read: Mapping[str, Loaded | None]) -> FamilyScores:
    """Their scores taken together: of none, until all were begun."""
    cubes = [run.cube for run in read.values() if run is not None]
    return FamilyScores(cubes if len(cubes) == len(read) else [])


def family_lines(
    suite: str, read: Mapping[str, Loaded | None], rules: tuple[str, ...] = FAMILY_RULES
) -> list[str]:
    """All lines: title, a row a family, the mean, effective lengths. Raises SettingsError for a rule."""
    maps = [run.map for run in read.values() if run is not None]
    lengths = sorted({length for map in maps for length in map.lengths})
    if not lengths:
        return [f"suite {suite}: nothing was asked yet"]
    wide = max(len("family"), *map(len, read))
    labels = length_labels(lengths)
    heads = [labels[length].rjust(_WIDTH) for length in lengths]
    lines = [
        f"suite {suite} · {', '.join(dict.fromkeys(map.model for map in maps))}",
        " ".join(["family".ljust(wide), *heads, "   all", "    n"]),
        *(_row(name, run.map if run else None, lengths, wide) for name, run in read.items()),
        *_mean_lines(scores_of(read), lengths, wide, rules),
    ]
    return [printable(line, line=True) if at == 0 else printable(line) for at, line in enumerate(lines)]


def model_lines(paths: Sequence[Path]) -> list[str]:
    """A row a run: its model, score by length, of several families their mean; lengths that any has."""
    read = [(families, read_families(families)) for families in map(families_of, paths)]
    rows = [_model_row(families, found) for families, found in read]
    lengths = sorted({length for _, scores, _, _ in rows for length in scores})
    wide = max(len("model"), *(len(name) for name, *_ in rows))
    labels = length_labels(lengths)
    heads = " ".join(["model".ljust(wide), *(labels[length].rjust(_WIDTH) for length in lengths), "   all"])
    return [heads, *(_told_model(row, lengths, wide) for row in rows)]


_ModelRow = tuple[str, dict[int, float], float | None, int]


def _model_row(families: Families, read: Mapping[str, Loaded | None]) -> _ModelRow:
    """Its name, its scores, their mean, and how many trials are missing."""
    begun = [run for run in read.values() if run is not None]
    name = begun[0].map.model if begun else str(families.path)
    missing = sum(run.map.missing for run in begun)
    if families.is_plain:
        map = begun[0].map
        return name, {length: mean.score for length, mean in map.margins.items()}, map.overall, missing
    scores = scores_of(read)
    mean = scores.overall()
    by_length = {length: mean.score for length, mean in scores.means().items()}
    return name, by_length, None if mean is None else mean.score, missing


def _told_model(row: _ModelRow, lengths: Sequence[int], wide: int) -> str:
    name, scores, overall, missing = row
    cells = [score_label(scores.get(length)).rjust(_WIDTH) for length in lengths]
    end = f"  {missing:,} missing" if missing else ""
    return printable(" ".join([name.ljust(wide), *cells, score_label(overall).rjust(_WIDTH)]) + end)


def _row(name: str, map: Map | None, lengths: Sequence[int], wide: int) -> str:
    margins = map.margins if map else {}
    scores = [score_label(margins[length].score) if length in margins else "-" for length in lengths]
    overall, n, missing = (map.overall, map.n, map.missing) if map else (None, 0, 0)
    end = f"  {missing} missing" if missing else "" if map else "  not begun"
    cells = [*(text.rjust(_WIDTH) for text in scores), score_label(overall).rjust(_WIDTH), f"{n:5,}"]
    return " ".join([name.ljust(wide), *cells]) + end


def _mean_lines(mean: FamilyScores, lengths: Sequence[int], wide: int, rules: tuple[str, ...]) -> list[str]:
    """The mean over families, where each of them has a score, and how far it holds."""
    means = mean.means()
    texts = [score_label(means[length].score if length in means else None) for length in lengths]
    cells = [text.rjust(_WIDTH) for text in (*texts, score_label(mean_of(means)))]
    lines = [" ".join(["mean".ljust(wide), *cells])]
    return [*lines, *(mean_length_lines(mean, means, rules) if means else [NO_MEAN])]


def mean_of(means: Mapping[int, Mean]) -> float | None:
    """The mean over families and lengths; None without a length that all have."""
    return sum(mean.score for mean in means.values()) / len(means) if means else None


def _interval_line(means: dict[int, Mean]) -> str:
    """The mean's 95 % interval by length."""
    labels = length_labels(list(means))
    known = [
        f"{labels[at]} {interval_label(mean.low, mean.high)}"
        for at, mean in means.items()
        if mean.low is not None
    ]
    if not known:
        return f"no intervals from fewer than {FEWEST} haystacks: --repeats {FEWEST} or more"
    return f"mean over families, 95 %: {' · '.join(known)}"


def mean_length_lines(mean: FamilyScores, means: dict[int, Mean], rules: tuple[str, ...]) -> list[str]:
    """How sure the mean over families is, and how far it holds."""
    published, threshold = published_length(means), f"{100 * PUBLISHED:g}"
    said = _length(published, list(means))
    ours = [(rule, mean.effective(parse_rule(rule))) for rule in rules]
    shown = [f"{rule} {effective_label(each)}" for rule, each in ours if each is not None]
    return [
        _interval_line(means),
        f"effective length as published, the largest whose mean exceeds {threshold}: {said}",
        f"effective length of the mean: {' · '.join(shown)}",
    ]


def _length(found: float | None, lengths: Sequence[int]) -> str:
    labels = length_labels(lengths)
    if found == inf:
        return f">={labels[max(lengths)]}"
    return labels[int(found)] if found else f"<{labels[min(lengths)]}"
