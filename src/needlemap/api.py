"""The Python interface: `run` asks and keeps, `load` reads, `compare` pairs two, `make_plan` counts first.

It takes the settings that YAML files and flags take, by the same names. It prints nothing but progress.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.maps.answers import latest_records
from needlemap.maps.frame import trial_frame
from needlemap.maps.map import Map
from needlemap.models.base import Model
from needlemap.reports.table_file import is_table, write_table
from needlemap.runs.loaded import load_run
from needlemap.runs.origin import check_origin
from needlemap.runs.record import Record
from needlemap.runs.runner import Outcome, Watcher
from needlemap.runs.session import Session, load_map, make_model, stored_title
from needlemap.runs.store import RunFolder
from needlemap.runs.suite_folder import is_suite
from needlemap.suites import suite_name
from needlemap.sync import run_coroutine

if TYPE_CHECKING:
    import altair

    from needlemap.compared import Compared


@dataclass(frozen=True)
class Run:
    """A run's folder. outcome: how the asking ended, None where nothing was asked (`load`).

    It is read at each call, so a run that goes on elsewhere shows what it has.
    """

    path: Path
    outcome: Outcome | None = None

    def about(self) -> dict[str, Any]:
        """What run.json holds: settings, versions, hashes."""
        return RunFolder(self.path).about()

    def map(self) -> Map:
        """Per cell the mean score, n and interval."""
        return load_map(self.path)

    def records(self) -> list[Record]:
        """One record a trial: of several, the last that was scored, else the last."""
        return list(latest_records(RunFolder(self.path).records()))

    def to_pandas(self) -> Any:
        """One row a trial. Raises NeedlemapError when pandas is not installed."""
        return trial_frame(self.records())

    def plot(self, *, title: str | None = None, palette: str = "amber") -> altair.LayerChart:
        """The map as an Altair chart. Raises SettingsError for an unknown palette."""
        from needlemap.reports.chart import heat_map

        return heat_map(self.map(), title=title or stored_title(self.path), palette=palette)

    def save(
        self,
        path: str | Path,
        *,
        title: str | None = None,
        palette: str = "amber",
        width: str | None = None,
    ) -> Path:
        """The map (.png, .svg, .pdf), the page (.html) or the cells (.csv, .parquet), by the suffix.

        width: of a figure for a paper, as '3.25in' or 'column'. Raises SettingsError for any other.
        """
        return save_runs([self.path], path, title, palette, width)

    def __repr__(self) -> str:
        from needlemap.reports.labels import length_range, overall_label

        map = self.map()
        return (
            f"Run('{self.path}': {map.model}, {map.task}, {length_range(map.lengths)}, {overall_label(map)})"
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Any:
        """What a notebook shows: the chart, by the renderer that Altair was told to use."""
        from needlemap.reports.notebook import with_text

        return with_text(self.plot(), repr(self), include, exclude)


def save_runs(
    runs: Sequence[Path], path: str | Path, title: str | None, palette: str, width: str | None
) -> Path:
    """What `Run.save` writes, of several runs. Raises SettingsError."""
    if Path(path).suffix.lower() == ".html":
        from needlemap.reports.page.document import write_page

        return write_page(runs, path, title=title, palette=palette)
    loaded = [load_run(run) for run in runs]
    if is_table(path):
        return write_table(loaded, path)
    from needlemap.reports.figure import figure_of, write_figure
    from needlemap.reports.style import parse_width

    figure, _ = figure_of(loaded, title=title, palette=palette)
    return write_figure(figure, path, width=parse_width(width) if width else None)


def load(path: str | Path) -> Run:
    """A run that is on the disk: asked here, elsewhere, or imported. Raises NeedlemapError when none is."""
    if is_suite(Path(path)):
        raise NeedlemapError(f"'{path}' is a suite's folder. Type: needlemap.load_suite({str(path)!r})")
    found = Run(Path(path))
    found.about()
    return found


def run(
    preset: str | None = None,
    *,
    out: str | Path | None = None,
    live: bool = False,
    trust_run: bool = False,
    **settings: Any,
) -> Run:
    """Ask, score, keep; resumes a run that is at `out` (by default a new folder under runs/).

    preset: a preset's name or a .yaml file. live: also serve the page, and print its address. trust_run: go
    on with a run that this machine did not begin. settings: any
    of `needlemap run --help`, by name; unknown ones raise SettingsError. Works in notebooks too. Raises
    NeedlemapError when every request would fail.
    """
    from needlemap.commands.run import fresh
    from needlemap.commands.settle import settle
    from needlemap.trials.build import prepare

    if (suite := suite_name(preset)) is not None:
        raise SettingsError(f"A suite is several runs. Type: needlemap.run_suite({suite!r}, ...)")
    settled = settle(preset, plain_settings(settings))
    if not settled.save:
        raise SettingsError("save=False keeps no run that could be returned. Leave it out.")
    path = Path(out) if out is not None else fresh(settled)
    check_origin(path, trust_run)
    session = Session.open(prepare(settled), path)
    outcome = _asked(session, live) if session.wanted else Outcome()
    check_outcome(outcome)
    return Run(path, outcome)


def compare(a: Run | str | Path, b: Run | str | Path, *, margin: float = 2.0) -> Compared:
    """B against A on the same trials, paired: difference, interval, verdict. Each a run or its folder.

    margin: the loss in points that does not matter. Raises NeedlemapError when the two asked something else.
    """
    from needlemap.compared import compared

    first, second = _folder(a), _folder(b)
    if is_suite(first) and is_suite(second):
        raise NeedlemapError("Two suites are compared by needlemap.compare_suites(a, b).")
    return compared(first, second, margin)


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
    from needlemap.commands.plan import Terms, plan_summary

    file = Path(model_config) if model_config is not None else None
    terms = Terms(workers, tokens_per_second, file, cache_tokens, cache_block)
    return plan_summary(preset, terms, plain_settings(settings))


def _folder(run: Run | str | Path) -> Path:
    return run.path if isinstance(run, Run) else Path(run)


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Paths as the texts that settings hold."""
    return {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}


def _asked(session: Session, live: bool) -> Outcome:
    """Ask what is left, with the page if `live`."""
    from needlemap.commands.run import page_of

    with page_of(session, live) as page:
        model = make_model(session.experiment.settings) if session.asks else None
        return run_coroutine(asked(session, model, page, close=True))


async def asked(session: Session, model: Model | None, *watchers: Watcher, close: bool = False) -> Outcome:
    """Ask what is left, with a line of progress every ten seconds unless `quiet`. close: the model, after."""
    from needlemap.reports.live import Lines, Silent, Tally, Together
    from needlemap.runs.contexts import SavingContexts

    settings = session.experiment.settings
    tally = Tally(len(session.experiment.trials), session.done, session.budget.state)
    saving = [SavingContexts(session.folder.path)] if settings.save_contexts else []
    with Silent() if settings.quiet else Lines(tally) as view:
        return await session.run(model, Together(view, *watchers, *saving), close=close)


def check_outcome(outcome: Outcome) -> None:
    """Raises NeedlemapError when every request would fail."""
    if outcome.canary:
        raise NeedlemapError(f"Stopped before spending more. {outcome.canary}")
    if outcome.hopeless:
        raise NeedlemapError(f"Stopped, every request would fail: {outcome.hopeless}")
