"""The Python interface: `run` asks and keeps, `load` reads what was kept; both give a `Run`.

It takes the settings that YAML files and flags take, by the same names. It prints nothing but progress.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needlemap.apart import run_coroutine
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.maps.frame import trial_frame
from needlemap.maps.map import Map, latest_records
from needlemap.runs.record import Record
from needlemap.runs.runner import Outcome
from needlemap.runs.session import Session, load_map, make_model, stored_title
from needlemap.runs.store import RunFolder

if TYPE_CHECKING:
    import altair


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

    def save(self, path: str | Path, *, title: str | None = None, palette: str = "amber") -> Path:
        """The map as a file: .png, .svg, .pdf, .html or .csv. Raises SettingsError for any other."""
        from needlemap.reports.figure import write_figure

        return write_figure(self.map(), path, title=title or stored_title(self.path), palette=palette)

    def __repr__(self) -> str:
        from needlemap.reports.labels import length_range, overall_label

        map = self.map()
        return (
            f"Run('{self.path}': {map.model}, {map.task}, {length_range(map.lengths)}, {overall_label(map)})"
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Any:
        """What a notebook shows: the chart, by the renderer that Altair was told to use."""
        shown = self.plot()._repr_mimebundle_(include, exclude)
        bundle, *metadata = shown if isinstance(shown, tuple) else (shown or {},)
        whole = {**bundle, "text/plain": repr(self)}
        return (whole, *metadata) if metadata else whole


def load(path: str | Path) -> Run:
    """A run that is on the disk: asked here, elsewhere, or imported. Raises NeedlemapError when none is."""
    found = Run(Path(path))
    found.about()
    return found


def run(preset: str | None = None, *, out: str | Path | None = None, **settings: Any) -> Run:
    """Ask, score, keep; resumes a run that is at `out` (by default a new folder under runs/).

    preset: a preset's name or a .yaml file. settings: any of `needlemap run --help`, by name; unknown ones
    raise SettingsError. Works in notebooks too. Raises NeedlemapError when every request would fail.
    """
    from needlemap.commands.run import fresh
    from needlemap.commands.settle import settle
    from needlemap.trials import prepare

    settled = settle(preset, _plain(settings))
    if not settled.save:
        raise SettingsError("save=False keeps no run that could be returned. Leave it out.")
    path = Path(out) if out is not None else fresh(settled)
    session = Session.open(prepare(settled), path)
    outcome = _asked(session, path) if session.todo else Outcome()
    if outcome.hopeless:
        raise NeedlemapError(f"Stopped, every request would fail: {outcome.hopeless}")
    return Run(path, outcome)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Paths as the texts that settings hold."""
    return {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}


def _asked(session: Session, path: Path) -> Outcome:
    """Ask what is left, with a line of progress every ten seconds unless `quiet`."""
    from needlemap.reports.live import Lines, Silent, Tally
    from needlemap.runs.contexts import SavingContexts

    settings = session.experiment.settings
    tally = Tally(len(session.experiment.trials), session.done)
    with Silent() if settings.quiet else Lines(tally) as view:
        watcher = SavingContexts(view, path) if settings.save_contexts else view
        return run_coroutine(session.run(make_model(settings), watcher))
