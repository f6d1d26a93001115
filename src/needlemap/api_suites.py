"""The Python interface to suites: `run_suite` asks and keeps, `load_suite` reads, `compare_suites` pairs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needlemap.api import Run, asked, check_outcome, plain_settings, save_runs
from needlemap.errors import NeedlemapError
from needlemap.maps.effective import Effective, parse_rule
from needlemap.maps.families import Families, Mean, published_length
from needlemap.models.base import Model
from needlemap.reports.suite import RULES, Family, families_of, suite_lines, together
from needlemap.runs.runner import Outcome
from needlemap.runs.session import Session
from needlemap.runs.suite_folder import SuiteFolder, is_suite, open_suite
from needlemap.runs.suite_session import ask_families
from needlemap.sync import run_coroutine
from needlemap.text.printable import show

if TYPE_CHECKING:
    import altair

    from needlemap.compared_suites import ComparedSuites


@dataclass(frozen=True)
class SuiteRun:
    """A suite's folder. outcomes: how the asking of each family ended; of none that had nothing left to ask.

    It is read at each call, so a suite that goes on elsewhere shows what it has.
    """

    path: Path
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)

    @property
    def runs(self) -> dict[str, Run]:
        """The families that were begun, each a run like any other."""
        return {path.name: Run(path, self.outcomes.get(path.name)) for path in self._folder.runs}

    def scores(self) -> dict[str, dict[int, float | None]]:
        """Per family the score by length in tokens; None where nothing was measured."""
        return {each.name: each.map.by_length for each in self._families() if each.map is not None}

    def means(self) -> dict[int, Mean]:
        """The mean over families by length, where all of them have a score: score, low, high."""
        return self._together().means()

    def effective(self, rule: str = "absolute:85") -> Effective | None:
        """How far the mean holds by a rule of docs/statistics.md, with an interval; None without a mean.

        Raises SettingsError for an unknown rule.
        """
        return self._together().effective(parse_rule(rule))

    def published_length(self) -> float | None:
        """RULER's rule: the largest length in tokens whose mean exceeds 85.6.

        Infinite where it is the longest tested, 0 where there is none, None without a mean.
        """
        return published_length(self.means())

    @property
    def text(self) -> str:
        """The table that `needlemap run suite:...` prints."""
        return "\n".join(suite_lines(self._folder.suite, self._families(), RULES)) + "\n"

    def to_pandas(self) -> Any:
        """One row a family and length: family, length, score, n, low, high. Raises NeedlemapError without
        pandas."""
        from needlemap.maps.frame import margin_frame

        return margin_frame({each.name: each.map for each in self._families() if each.map is not None})

    def plot(self, *, palette: str = "amber") -> altair.ConcatChart:
        """All families' maps, side by side. Raises SettingsError for an unknown palette."""
        import altair

        from needlemap.reports.figure import figure_chart, figure_of
        from needlemap.runs.loaded import load_run

        figure, _ = figure_of([load_run(path) for path in self._folder.runs], palette=palette)
        chart: altair.ConcatChart = altair.ConcatChart.from_dict(figure_chart(figure))
        return chart

    def save(
        self,
        path: str | Path,
        *,
        title: str | None = None,
        palette: str = "amber",
        width: str | None = None,
    ) -> Path:
        """All families as a figure, a page or a table, by the suffix, as `Run.save`. Raises SettingsError."""
        return save_runs(self._folder.runs, path, title, palette, width)

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Any:
        """What a notebook shows: the maps, and the table beside them."""
        from needlemap.reports.notebook import with_text

        return with_text(self.plot(), self.text, include, exclude)

    @property
    def _folder(self) -> SuiteFolder:
        return open_suite(self.path)

    def _families(self) -> list[Family]:
        return families_of(self._folder)

    def _together(self) -> Families:
        return together(self._families())


def load_suite(path: str | Path) -> SuiteRun:
    """A suite that is on the disk. Raises NeedlemapError when none is."""
    if not is_suite(Path(path)):
        raise NeedlemapError(f"No suite at '{path}': it holds no suite.json.")
    return SuiteRun(Path(path))


def run_suite(
    suite: str | Path, *, out: str | Path | None = None, trust_run: bool = False, **settings: Any
) -> SuiteRun:
    """Ask the families of a suite, one after the other, from one budget; resumes a suite that is at `out`.

    suite: a suite's name, or a .yaml file. trust_run: go on with one of another machine. settings: as `run`
    takes them, but for those that make a family. Raises NeedlemapError when every request would fail, and
    SettingsError.
    """
    from needlemap.commands.run import fresh
    from needlemap.commands.suite import begun, refuse_for_suite
    from needlemap.runs.origin import check_origin
    from needlemap.suites import MARK
    from needlemap.suites import load_suite as read_suite

    named = read_suite(str(suite).removeprefix(MARK))
    settled = named.settle(plain_settings(settings))
    first = next(iter(settled.values()))
    refuse_for_suite(named, first, live=False)
    path = Path(out) if out is not None else fresh(first, f"suite-{named.name}")
    check_origin(path, trust_run)
    folder, asking = begun(named, settled, path), _Asking()
    run_coroutine(ask_families(folder, settled, asking))
    if asking.refused:
        raise NeedlemapError(f"{' '.join(asking.refused)} The other families are kept in '{path}'.")
    return SuiteRun(path, asking.outcomes)


class _Asking:
    """Asks family after family, until one ends as all others would."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self.refused: list[str] = []

    async def ask(self, family: str, session: Session, model: Model) -> bool:
        """Whether to go on. Raises NeedlemapError when every request would fail."""
        if not session.experiment.settings.quiet:
            show(family, file=sys.stderr, flush=True)
        outcome = await asked(session, model)
        check_outcome(outcome)
        self.outcomes[family] = outcome
        return not outcome.over

    def unprepared(self, family: str, error: NeedlemapError) -> None:
        """Keep it for the end."""
        self.refused.append(f"Family '{family}': {error}")


def compare_suites(
    a: SuiteRun | str | Path, b: SuiteRun | str | Path, *, margin: float = 2.0
) -> ComparedSuites:
    """B against A, family by family on the same trials, and their mean: difference, interval, verdict.

    margin: the loss in points that does not matter. Raises NeedlemapError when a family asked something else.
    """
    from needlemap.compared_suites import compared_suites

    first, second = (each.path if isinstance(each, SuiteRun) else Path(each) for each in (a, b))
    return compared_suites(first, second, margin)
