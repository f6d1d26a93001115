"""What any observer shows while a run is asked: the map filling in, plain lines, the live
page, contexts.

Contexts are text files, for people who want to read what was asked (setting save_contexts).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from needlemap.asking import TrialObserver
from needlemap.asking.run import FamiliesToAsk, ModelsObserver
from needlemap.asking.session import Session, make_run_file
from needlemap.files import make_inside, write_whole
from needlemap.grid import percent
from needlemap.records.families import Families
from needlemap.records.loaded import Loaded
from needlemap.records.record import Record
from needlemap.records.run_file import RunFile
from needlemap.reports.renderers.heat import break_line, terminal_map
from needlemap.reports.run_notes import Tally
from needlemap.stats.means import Map
from needlemap.text import printable, show
from needlemap.trials import Trial

_FAILURE_LINES = 3
# Around the depth rows: the map's own lines, the last failure, replicas, bar and tally.
_LINES_AROUND = 15


class ShowingObserver(ModelsObserver):
    """Shows how the asking proceeds. families: those of the model that is asked."""

    def __init__(self, families: Families) -> None:
        self.families = families

    def begins_model(self, name: str, asking: FamiliesToAsk) -> None:
        """Show its families from now on."""
        self.families = asking.families

    def view(self, name: str, session: Session) -> LiveView:
        """Return what shows a family's trials as they end: lines or a map.

        Nothing is shown if the run is to be quiet.
        """
        if session.experiment.settings.quiet:
            return LiveView()
        tally = Tally(len(session.experiment.trials), session.done, session.budget.state)
        map_view = self.map_view(session)
        if map_view is None:
            return ProgressLines(tally)
        records = list(session.folder.records())
        return map_view(tally, records, make_run_file(session.experiment, session.folder))

    def map_view(self, session: Session) -> type[MapView] | None:
        """Return which map fills in, or None."""

    @contextmanager
    def watch(self, name: str, session: Session) -> Iterator[TrialObserver]:
        """Enter the view, which also saves the contexts if the settings ask for them."""
        settings = session.experiment.settings
        with self.view(name, session) as view:
            if settings.save_contexts:
                view.contexts = (session.folder.path if settings.save else Path()) / "contexts"
            yield view


class LiveView(TrialObserver, ExitStack):
    """A watcher that is entered before a run and left after it; this one shows nothing.

    contexts: the folder for a file of each context, in the run's folder or, if no run is kept, in
    the current one. If it is None, contexts are not saved.
    """

    contexts: Path | None = None

    def trial_begins(self, trial: Trial) -> None:
        """Save the context as len_L_depth_D_repeat_R.txt as its prompt goes out."""
        if self.contexts is None:
            return
        make_inside(self.contexts)
        for repeat, cell in trial.places:
            name = f"len_{cell.length_tokens}_depth_{percent(cell.depth):g}_repeat_{repeat}.txt"
            write_whole(self.contexts / name, trial.prompt.context_text.encode())


class TallyView(LiveView):
    """A view that counts, and is drawn anew as trials end, every so many seconds at most."""

    every_s = 10.0

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self.tally = tally
        self.standing = ""
        self._drawn = time.monotonic()

    def planned(self, trials: Sequence[Trial]) -> None:
        """Keep how many tokens each trial is to compute."""
        self.tally.plan(trials)

    def recorded(self, record: Record) -> None:
        """Count a record, show why it failed, and draw when it is time to."""
        self.tally.add(record)
        if record.failure:
            self.failed(record.failure, f"{record.failure}: {record.error}")
        if time.monotonic() - self._drawn >= self.every_s:
            self._drawn = time.monotonic()
            self.draw()

    def show_standing(self, standing: str) -> None:
        """Show the state of the replicas when it changes."""
        if standing != self.standing:
            self.standing = standing
            self.stands()

    def show_event(self, event: str) -> None:
        """Print an event at once."""
        show(event, file=sys.stderr, flush=True)

    def failed(self, kind: str, reason: str) -> None:
        """Show that a trial failed."""

    def stands(self) -> None:
        """Show that the state of the replicas has changed."""

    def draw(self) -> None:
        """Show the map so far."""


class ProgressLines(TallyView):
    """A line every ten seconds, for logs; and each kind of failure once."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self._kinds: set[str] = set()

    def failed(self, kind: str, reason: str) -> None:
        """Print a failure of a new kind."""
        if kind not in self._kinds:
            self._kinds.add(kind)
            self.show_event(reason)

    def stands(self) -> None:
        """Print the state."""
        self.show_event(self.standing)

    def draw(self) -> None:
        """Print the tally."""
        self.show_event(self.tally.line())


def in_notebook() -> bool:
    """Return True if a notebook's kernel runs this, which shows pictures."""
    ipython = sys.modules.get("IPython")
    return hasattr(ipython.get_ipython() if ipython else None, "kernel")


class MapView(TallyView):
    """A view that draws the map of the records so far.

    earlier_records: those that were there. run_file: its run.json.
    """

    def __init__(self, tally: Tally, earlier_records: list[Record], run_file: RunFile) -> None:
        super().__init__(tally)
        self.failures: dict[str, str] = {}
        self._records = list(earlier_records)
        self._run_file = run_file

    def recorded(self, record: Record) -> None:
        """Keep a record for the map."""
        self._records.append(record)
        super().recorded(record)

    def failed(self, kind: str, reason: str) -> None:
        """Keep the last failure of each kind, the last of all at the end."""
        self.failures.pop(kind, None)
        self.failures[kind] = reason

    @property
    def map(self) -> Map:
        """Return the map by now."""
        return Loaded("", self._run_file, tuple(self._records)).map


class NotebookMap(MapView):
    """The map filling in as a picture in a notebook's cell.

    At the end its line stays, and what failed.
    """

    every_s = 2.0

    def __enter__(self) -> Self:
        display = import_module("IPython.display").display
        self._handle = display(self._mime_bundle(), raw=True, display_id=True)
        self.callback(self.draw, over=True)
        return self

    def draw(self, over: bool = False) -> None:
        """Draw the picture anew, or remove it once the run is over."""
        self._handle.update(self._mime_bundle(over), raw=True)

    def _mime_bundle(self, over: bool = False) -> dict[str, str]:
        """Return all of it as HTML that loads nothing, and as text."""
        from needlemap.reports.figures.figure import Figure, Shown, draw

        lines = [*self.failures.values(), self.standing, self.tally.line(over=over)]
        words = printable("\n".join(filter(None, lines)))
        picture = "" if over else draw(Figure((Shown(self.map),))).svg
        return {"text/html": f"<pre>{escape(words)}</pre>{picture}", "text/plain": words}


class LiveMap(MapView):
    """The map filling in, and why the last trial failed."""

    every_s = 0.5

    def __enter__(self) -> Self:
        self._console = Console(stderr=True)
        live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live = self.enter_context(live)
        self.draw()
        return self

    def stands(self) -> None:
        """Redraw."""
        self.draw()

    def show_event(self, event: str) -> None:
        """Print an event above the map."""
        self._live.console.print(Text(event), soft_wrap=True)

    def draw(self) -> None:
        """Draw the map, then lines below it."""
        rows = max(1, self._console.height - _LINES_AROUND)
        parts = [terminal_map(self.map, max_rows=rows)]
        if self.failures:
            lines = break_line(list(self.failures.values())[-1], self._console.width)
            dots = " …" if len(lines) > _FAILURE_LINES else ""
            parts.append(Text("\n".join(lines[:_FAILURE_LINES]) + dots, style="red"))
        if self.standing:
            parts.append(Text(self.standing, no_wrap=True, overflow="ellipsis"))
        bar = self.tally.bar(self._console.width)
        if self._console.options.ascii_only:
            bar = bar.replace("█", "#").replace("░", ".").replace("·", "-")
        parts += [Text(bar, no_wrap=True), Text(self.tally.line(over=True), style="bold")]
        self._live.update(Group(*parts), refresh=True)
