"""The Python interface: `run` asks and keeps, `load` reads, `compare` pairs two, `make_plan` counts first.

It takes the settings that YAML files and flags take, by the same names. It prints nothing but progress.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needlemap.asking.lent import with_lent_prompts
from needlemap.asking.run import Asking, ask_families, run_coroutine
from needlemap.asking.runner import Outcome
from needlemap.asking.session import Session
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.maps.columns import margin_frame, trial_frame
from needlemap.maps.effective import Effective, Mean, parse_rule, published_length
from needlemap.maps.map import Map
from needlemap.models.base import Model
from needlemap.records.families import Families, check_origin, families_of, fresh_folder
from needlemap.records.folder import RunFolder
from needlemap.records.loaded import Loaded, load_map, load_run
from needlemap.records.record import Record
from needlemap.reports.closing import Tally
from needlemap.reports.labels import length_range, overall_label
from needlemap.reports.live import Lines, ShowingFace, View
from needlemap.reports.summary import family_lines, read_families, scores_of
from needlemap.reports.table import is_table, write_table
from needlemap.settings.suites import choose
from needlemap.text.printable import show

if TYPE_CHECKING:
    from needlemap.reports.compared import Compared
    from needlemap.reports.figures.canvas import Drawing


@dataclass(frozen=True)
class Run:
    """A run's folder. outcomes: how the asking of each family ended, '' being the name of a run's only one;
    of none that had nothing left to ask. None where nothing was to be asked (`load`).

    It is read at each call, so a run that goes on elsewhere shows what it has.
    """

    path: Path
    outcomes: Mapping[str, Outcome] | None = None

    @property
    def outcome(self) -> Outcome | None:
        """How the asking ended, of all families together; None where nothing was to be asked."""
        return None if self.outcomes is None else sum(self.outcomes.values(), Outcome())

    @property
    def families(self) -> dict[str, Run]:
        """The families that were begun, each a run like any other; of a run with one, itself under ''."""
        found = families_of(self.path)
        if found.is_plain:
            return {"": self}
        mine = {name: {"": each} for name, each in (self.outcomes or {}).items()}
        return {name: Run(found.folder(name), mine.get(name)) for name in found.begun}

    def about(self) -> dict[str, Any]:
        """What run.json holds: settings, versions, hashes. Raises NeedlemapError for several families."""
        return RunFolder(self._only()).about()

    def map(self) -> Map:
        """Per cell the mean score, n and interval. Raises NeedlemapError for several families."""
        return load_map(self._only())

    def scores(self) -> dict[str, dict[int, float | None]]:
        """Per family the score by length in tokens; None where nothing was measured."""
        return {name: run.map.by_length for name, run in self._read().items() if run is not None}

    def means(self) -> dict[int, Mean]:
        """The mean over families by length, where all of them have a score: score, low, high."""
        return scores_of(self._read()).means()

    def effective(self, rule: str = "absolute:85") -> Effective | None:
        """How far the mean holds by a rule of docs/statistics.md, with an interval; None without a mean.

        Raises SettingsError for an unknown rule.
        """
        return scores_of(self._read()).effective(parse_rule(rule))

    def published_length(self) -> float | None:
        """RULER's rule: the largest length in tokens whose mean exceeds 85.6.

        Infinite where it is the longest tested, 0 where there is none, None without a mean.
        """
        return published_length(self.means())

    def records(self) -> list[Record]:
        """One record a trial, of all families: of several, the last that was scored, else the last."""
        return [record for run in self._read().values() if run is not None for record in run.records]

    def to_pandas(self) -> Any:
        """One row a trial; of several families one a family and length: family, length, score, n, low, high.
        Raises NeedlemapError when pandas is not installed."""
        if families_of(self.path).is_plain:
            return trial_frame(self.records())
        return margin_frame({name: run.map for name, run in self._read().items() if run is not None})

    @property
    def text(self) -> str:
        """What `needlemap report` prints of several families; of one, a line."""
        found = families_of(self.path)
        if not found.is_plain:
            return "\n".join(family_lines(found.suite, self._read())) + "\n"
        map = self.map()
        said = f"{map.model}, {map.task}, {length_range(map.lengths)}, {overall_label(map)}"
        return f"Run('{self.path}': {said})"

    def plot(self, *, title: str | None = None, palette: str | None = None) -> Drawing:
        """The map as a picture, or all families' maps. Raises SettingsError for an unknown palette."""
        from needlemap.reports.figures.figure import draw, figure_of

        runs = [load_run(path) for path in families_of(self.path).folders]
        return draw(figure_of(runs, title=title, palette=palette)[0])

    def save(
        self,
        path: str | Path,
        *,
        title: str | None = None,
        palette: str | None = None,
        width: str | None = None,
    ) -> Path:
        """The maps (.png, .svg, .pdf), the page (.html) or the cells (.csv, .parquet), by the suffix.

        width: of a figure for a paper, as '3.25in' or 'column'. Raises SettingsError for any other.
        """
        if Path(path).suffix.lower() == ".html":
            from needlemap.reports.page.document import write_page

            return write_page([self.path], path, title=title, palette=palette)
        loaded = [load_run(run) for run in families_of(self.path).folders]
        if is_table(path):
            return write_table(loaded, path)
        from needlemap.reports.figures.figure import figure_of, write_figure
        from needlemap.reports.style import parse_width

        figure, _ = figure_of(loaded, title=title, palette=palette)
        return write_figure(figure, path, width=parse_width(width) if width else None)

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Any:
        """What a notebook shows: the picture and the text."""
        return self.plot().with_text(repr(self))

    def _only(self) -> Path:
        """The folder of a run's only family. Raises NeedlemapError for several."""
        found = families_of(self.path)
        if not found.is_plain:
            raise NeedlemapError(
                f"'{self.path}' has several families. Take one of them: .families[{found.names[0]!r}]"
            )
        return self.path

    def _read(self) -> dict[str, Loaded | None]:
        return read_families(families_of(self.path))


def load(path: str | Path) -> Run:
    """A run that is on the disk: asked here, elsewhere, or imported. Raises NeedlemapError when none is."""
    found = families_of(path)
    if found.is_plain:
        RunFolder(path).about()
    return Run(found.path)


def run(
    preset: str | None = None,
    *,
    out: str | Path | None = None,
    live: bool = False,
    trust_run: bool = False,
    **settings: Any,
) -> Run:
    """Ask, score, keep; resumes a run that is at `out` (by default a new folder under runs/).

    preset: a preset's name, a .yaml file, or suite:NAME for several families. live: also serve the page, and
    print its address. trust_run: go on with a run that this machine did not begin, or ask the prompts of one.
    settings: any of `needlemap run --help`, by name; unknown ones raise SettingsError. Works in notebooks
    too. Raises NeedlemapError when every request would fail.
    """
    chosen = with_lent_prompts(choose(preset, plain_settings(settings)), trust_run)
    if not chosen.first.save:
        raise SettingsError("save=False keeps no run that could be returned. Leave it out.")
    path = Path(out) if out is not None else fresh_folder(chosen.first, chosen.suite)
    check_origin(path, trust_run)
    if chosen.told:
        show(f"note: {chosen.told}", file=sys.stderr)
    asking = Asking.of(chosen, path)
    with _Progress(asking.families, live) as face:
        outcomes = run_coroutine(ask_families(asking, face))
        face.tell_unserved()
    if face.refused:
        raise NeedlemapError(f"{' '.join(face.refused)} The other families are kept in '{path}'.")
    return Run(path, outcomes)


class _Progress(ShowingFace):
    """Shows a line of progress every ten seconds, unless `quiet`. refused: families that cannot be asked."""

    def __init__(self, families: Families, live: bool) -> None:
        super().__init__(families, live)
        self.refused: list[str] = []

    def begins(self, name: str, session: Session, model: Model | None) -> None:
        """Say which of several."""
        if name and not session.experiment.settings.quiet:
            show(name, file=sys.stderr, flush=True)

    def view(self, name: str, session: Session) -> View:
        """Lines."""
        if session.experiment.settings.quiet:
            return View()
        return Lines(Tally(len(session.experiment.trials), session.done, session.budget.state))

    def ended(self, name: str, session: Session, outcome: Outcome) -> None:
        """Raises NeedlemapError when every request would fail."""
        if outcome.canary:
            raise NeedlemapError(f"Stopped before spending more. {outcome.canary}")
        if outcome.hopeless:
            raise NeedlemapError(f"Stopped, every request would fail: {outcome.hopeless}")

    def left_out(self, name: str, error: NeedlemapError) -> None:
        """Keep it for the end."""
        self.refused.append(f"Family '{name}': {error}")


def compare(a: Run | str | Path, b: Run | str | Path, *, margin: float = 2.0) -> Compared:
    """B against A on the same trials, paired: difference, interval, verdict. Each a run or its folder.

    Of several families each is compared, and their mean decides. margin: the loss in points that does not
    matter. Raises NeedlemapError when the two asked something else.
    """
    from needlemap.reports.compared import compared

    return compared(_folder(a), _folder(b), margin)


def make_plan(
    preset: str | None = None,
    *,
    workers: int | None = None,
    tokens_per_second: float | None = None,
    model_config: str | Path | None = None,
    cache_tokens: int | None = None,
    cache_block: int = 16,
    **settings: Any,
) -> dict[str, Any]:
    """What a run would ask and cost in each mode, before any call: what `needlemap plan --json` prints.

    preset, settings: as `run` takes them. The others: as `needlemap plan --help` says. Raises SettingsError.
    """
    from needlemap.plan.reckoned import Terms, reckon

    file = Path(model_config) if model_config is not None else None
    terms = Terms(workers, tokens_per_second, file, cache_tokens, cache_block)
    return reckon(with_lent_prompts(choose(preset, plain_settings(settings))), terms).plain()


def _folder(run: Run | str | Path) -> Path:
    return run.path if isinstance(run, Run) else Path(run)


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Paths as the texts that settings hold."""
    return {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
