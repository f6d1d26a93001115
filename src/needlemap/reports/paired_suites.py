"""Two suites' folders compared family by family; families that asked something else are refused."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.maps.pairs import Pairs
from needlemap.maps.suite_comparison import SuiteComparison, compare_families
from needlemap.reports.comparison import Names
from needlemap.reports.paired import MARGIN, margin_share, pair_loaded, unfinished
from needlemap.reports.suite_comparison import SuiteNames
from needlemap.runs.loaded import load_run
from needlemap.runs.session import called
from needlemap.runs.store import RunFolder
from needlemap.runs.suite_folder import SuiteFolder


def compare_suites(
    first: SuiteFolder, second: SuiteFolder, margin: float = MARGIN
) -> tuple[SuiteComparison, SuiteNames]:
    """The comparison of two suites on the families that both have begun. margin: in points.

    Raises NeedlemapError when a family cannot be compared, SettingsError for a margin that means nothing or
    one suite given twice.
    """
    share = margin_share(margin)
    if first.path.resolve() == second.path.resolve():
        raise SettingsError(f"Suite '{first.path}' is given twice. Give the folders of two suites.")
    begun = [[run.name for run in folder.runs] for folder in (first, second)]
    both = [family for family in begun[0] if family in begun[1]]
    if not both:
        raise NeedlemapError(
            f"'{first.path}' and '{second.path}' have begun no family of one name ({_listed(begun[0])}; "
            f"{_listed(begun[1])}). Run the same suite with both models."
        )
    pairs, names = {}, {}
    for family in both:
        pairs[family], names[family] = _paired(family, first.path, second.path)
    titles = _called(first, both[0]), _called(second, both[0])
    alone = [tuple(name for name in each if name not in both) for each in begun]
    return compare_families(pairs, share), SuiteNames(*titles, names, alone[0], alone[1])


def _called(folder: SuiteFolder, family: str) -> str:
    model = called(RunFolder(folder.path / family).about()["settings"])
    return f"suite {folder.suite} · {model} ({folder.path})"


def _listed(families: Iterable[str]) -> str:
    return ", ".join(families) or "none"


def _paired(family: str, first: Path, second: Path) -> tuple[Pairs, Names]:
    runs = load_run(first / family), load_run(second / family)
    try:
        pairs, names = pair_loaded(*runs)
        if not pairs.n:
            raise unfinished(*runs)
    except NeedlemapError as error:
        raise NeedlemapError(f"Family '{family}': {error}") from None
    return pairs, names
