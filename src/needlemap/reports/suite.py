"""A suite in one table: score by length per family, the mean over families, and how far that holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from needlemap.maps.bootstrap import FEWEST
from needlemap.maps.cube import Cube
from needlemap.maps.effective import parse_rule
from needlemap.maps.families import PUBLISHED, Families, Mean, published_length
from needlemap.maps.map import Map
from needlemap.reports.labels import interval_label, length_labels, score_label
from needlemap.reports.summary import effective_label
from needlemap.runs.loaded import load_run
from needlemap.runs.session import cube_of_run
from needlemap.runs.suite_folder import SuiteFolder
from needlemap.text.printable import printable

RULES = (f"absolute:{100 * PUBLISHED:g}", "absolute:85", "relative:85", "auc")
_WIDTH = 6


@dataclass(frozen=True, slots=True)
class Family:
    """One family as it was measured: None where it was not begun."""

    name: str
    map: Map | None
    cube: Cube | None


def families_of(folder: SuiteFolder) -> list[Family]:
    """What each family of a suite's folder came to."""
    found = []
    for name in folder.families:
        if folder.path / name in folder.runs:
            run = load_run(folder.path / name)
            found.append(Family(name, run.map, cube_of_run(run.about, run.records)))
        else:
            found.append(Family(name, None, None))
    return found


def together(families: Sequence[Family]) -> Families:
    """Their mean: of none, until all were begun."""
    cubes = [family.cube for family in families if family.cube is not None]
    return Families(cubes if len(cubes) == len(families) else [])


def suite_lines(name: str, families: Sequence[Family], rules: tuple[str, ...] = RULES) -> list[str]:
    """All lines: title, a row a family, the mean, effective lengths. Raises SettingsError for a rule."""
    maps = [family.map for family in families if family.map is not None]
    lengths = sorted({length for map in maps for length in map.lengths})
    if not lengths:
        return [f"suite {name}: nothing was asked yet"]
    wide = max(len("family"), *(len(family.name) for family in families))
    labels = length_labels(lengths)
    heads = [labels[length].rjust(_WIDTH) for length in lengths]
    lines = [
        f"suite {name} · {', '.join(dict.fromkeys(map.model for map in maps))}",
        " ".join(["family".ljust(wide), *heads, "   all", "    n"]),
        *(_row(family, lengths, wide) for family in families),
        *_mean_lines(families, lengths, wide, rules),
    ]
    return [printable(line, line=True) if at == 0 else printable(line) for at, line in enumerate(lines)]


def _row(family: Family, lengths: Sequence[int], wide: int) -> str:
    margins = family.map.margins if family.map else {}
    scores = [score_label(margins[length].score) if length in margins else "-" for length in lengths]
    overall, n = (family.map.overall, family.map.n) if family.map else (None, 0)
    missing = family.map.missing if family.map else 0
    end = f"  {missing} missing" if missing else "" if family.map else "  not begun"
    cells = [*(text.rjust(_WIDTH) for text in scores), score_label(overall).rjust(_WIDTH), f"{n:5,}"]
    return " ".join([family.name.ljust(wide), *cells]) + end


def _mean_lines(
    families: Sequence[Family], lengths: Sequence[int], wide: int, rules: tuple[str, ...]
) -> list[str]:
    """The mean over families, where each of them has a score, and how far it holds."""
    mean = together(families)
    means = mean.means()
    texts = [score_label(means[length].score if length in means else None) for length in lengths]
    whole = sum(mean.score for mean in means.values()) / len(means) if means else None
    cells = [text.rjust(_WIDTH) for text in (*texts, score_label(whole))]
    lines = [" ".join(["mean".ljust(wide), *cells])]
    if not means:
        return [*lines, "no mean over families yet: no length has a score of each of them"]
    return [*lines, _interval_line(means), *_effective_lines(mean, means, rules)]


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


def _effective_lines(mean: Families, means: dict[int, Mean], rules: tuple[str, ...]) -> list[str]:
    published, threshold = published_length(means), f"{100 * PUBLISHED:g}"
    said = _length(published, list(means))
    ours = [(rule, mean.effective(parse_rule(rule))) for rule in rules]
    shown = [f"{rule} {effective_label(each)}" for rule, each in ours if each is not None]
    return [
        f"effective length as published, the largest whose mean exceeds {threshold}: {said}",
        f"effective length of the mean: {' · '.join(shown)}",
    ]


def _length(found: float | None, lengths: Sequence[int]) -> str:
    labels = length_labels(lengths)
    if found == inf:
        return f">={labels[max(lengths)]}"
    return labels[int(found)] if found else f"<{labels[min(lengths)]}"
