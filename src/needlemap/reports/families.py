"""Several families in one table: score by length of each, the mean over them, and how far that holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from needlemap.maps.clusters import FEWEST
from needlemap.maps.effective import PUBLISHED, FamilyScores, Mean, parse_rule, published_length
from needlemap.maps.map import Map
from needlemap.records.families import Families
from needlemap.records.loaded import Loaded, load_run
from needlemap.reports.labels import interval_label, length_labels, score_label
from needlemap.reports.summary import effective_label
from needlemap.text.printable import printable

RULES = (f"absolute:{100 * PUBLISHED:g}", "absolute:85", "relative:85", "auc")
_WIDTH = 6


def read_families(families: Families) -> dict[str, Loaded | None]:
    """Each family of a run, None where it was not begun."""
    begun = families.begun
    return {name: load_run(families.folder(name)) if name in begun else None for name in families.names}


def scores_of(read: Mapping[str, Loaded | None]) -> FamilyScores:
    """Their scores taken together: of none, until all were begun."""
    cubes = [run.cube for run in read.values() if run is not None]
    return FamilyScores(cubes if len(cubes) == len(read) else [])


def family_lines(suite: str, read: Mapping[str, Loaded | None], rules: tuple[str, ...] = RULES) -> list[str]:
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


def _effective_lines(mean: FamilyScores, means: dict[int, Mean], rules: tuple[str, ...]) -> list[str]:
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
