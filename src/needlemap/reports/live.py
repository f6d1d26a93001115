"""What any face shows while a run is asked: the map filling in, plain lines, the live page, contexts.

Contexts are text files, for people who want to read what was asked (setting save_contexts).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from html import escape
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from needlemap.asking import Watcher
from needlemap.asking.run import Face
from needlemap.asking.session import Session, about
from needlemap.files import make_inside, write_whole
from needlemap.maps.means import Map
from needlemap.records.families import Families
from needlemap.records.loaded import Loaded
from needlemap.records.record import Record
from needlemap.reports.closing import Tally
from needlemap.reports.terminal import broken, terminal_map
from needlemap.settings.grid import percent
from needlemap.text import printable, show
from needlemap.trials import Trial

if TYPE_CHECKING:
    from needlemap.reports.page.live import LivePage


_PLAIN_EVERY_S = 10.0
_REDRAW_EVERY_S, _PICTURE_EVERY_S = 0.5, 2.0
_FAILURE_LINES = 3
_LINES_AROUND = 14  # around the depth rows: the map's own lines, the last failure, replicas, the tally


class ShowingFace(Face):
    """Entered before a run and left after it. live: also serve the page, as long as something is asked."""

    def __init__(self, families: Families, live: bool = False) -> None:
        self.families = families
        self._live = live
        self._page: LivePage | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def view(self, name: str, session: Session) -> View:
        """What shows a family's trials as they end."""
        return View()

    @contextmanager
    def watch(self, name: str, session: Session) -> Iterator[Watcher]:
        """The view, the page and the contexts, together."""
        page = self._page_of(name, session) if self._live and session.todo else None
        saves = session.experiment.settings.save_contexts
        saving = SavingContexts(session.folder.path) if saves else None
        with self.view(name, session) as view:
            yield Together(*(each for each in (view, page, saving) if each is not None))

    def tell_unserved(self) -> None:
        """Say so where a page was wanted and nothing was left to ask."""
        if self._live and self._page is None:
            make = f"needlemap report {self.families.path} -o report.html"
            show(f"live: nothing is left to ask, so no page is served. To make one: {make}", file=sys.stderr)

    def _page_of(self, name: str, session: Session) -> LivePage:
        from needlemap.reports.page.live import LivePage  # late: a run without it needs no server

        if self._page is None:
            self._page = self._stack.enter_context(LivePage(self.families, name, session))
        else:
            self._page.begin(name, session)
        return self._page


class SavingContexts(Watcher):
    """A watcher that writes contexts/len_L_depth_D_repeat_R.txt into a run's folder as prompts go out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "contexts"

    def asked(self, trial: Trial) -> None:
        """Write the context."""
        make_inside(self._folder)
        for repeat, cell in trial.places:
            name = f"len_{cell.length_tokens}_depth_{percent(cell.depth):g}_repeat_{repeat}.txt"
            write_whole(self._folder / name, trial.prompt.context_text.encode())


class View(Watcher):
    """A watcher that is entered before a run and left after it; this one shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class Together(View):
    """Several watchers as one."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def asked(self, trial: Trial) -> None:
        """Tell each."""
        for watcher in self._watchers:
            watcher.asked(trial)

    def recorded(self, record: Record) -> None:
        """Tell each."""
        for watcher in self._watchers:
            watcher.recorded(record)

    def said(self, event: str) -> None:
        """Tell each."""
        for watcher in self._watchers:
            watcher.said(event)

    def told(self, standing: str) -> None:
        """Tell each."""
        for watcher in self._watchers:
            watcher.told(standing)


class Lines(View):
    """A line every ten seconds, for logs; and each kind of failure once."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._last = time.monotonic()
        self._seen: set[str] = set()
        self._standing = ""

    def recorded(self, record: Record) -> None:
        """Print when it is time to."""
        self._tally.add(record)
        if record.failure and record.failure not in self._seen:
            self._seen.add(record.failure)
            show(f"{record.failure}: {record.error}", file=sys.stderr, flush=True)
        if time.monotonic() - self._last >= _PLAIN_EVERY_S:
            self._last = time.monotonic()
            show(self._tally.line(), file=sys.stderr, flush=True)

    def told(self, standing: str) -> None:
        """Print it when it changes."""
        if standing != self._standing:
            self._standing = standing
            show(standing, file=sys.stderr, flush=True)

    def said(self, event: str) -> None:
        """Print at once."""
        show(event, file=sys.stderr, flush=True)


def map_maker(session: Session) -> Callable[[list[Record]], Map]:
    """What makes the map of records so far."""
    known = about(session.experiment, session.folder)
    return lambda records: Loaded("", known, tuple(records)).map


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this, which shows pictures."""
    ipython = sys.modules.get("IPython")
    return hasattr(ipython.get_ipython() if ipython else None, "kernel")


class NotebookMap(View):
    """The map filling in as a picture in a notebook's cell; at the end its line stays, and what failed.

    make: a map of the records so far.
    """

    def __init__(self, tally: Tally, before: list[Record], make: Callable[[list[Record]], Map]) -> None:
        self._tally, self._records, self._make = tally, list(before), make
        self._drawn, self._told = 0.0, dict[str, str]()

    def __enter__(self) -> Self:
        display = import_module("IPython.display").display
        self._handle = display(self._shown(picture=True), raw=True, display_id=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.update(self._shown(picture=False), raw=True)

    def recorded(self, record: Record) -> None:
        """Draw anew, every two seconds at most."""
        self._tally.add(record)
        self._records.append(record)
        if record.failure:
            self._told[record.failure] = f"{record.failure}: {record.error}"
        if time.monotonic() - self._drawn >= _PICTURE_EVERY_S:
            self._handle.update(self._shown(picture=True), raw=True)

    def told(self, standing: str) -> None:
        """Keep it for the next picture."""
        self._told["standing"] = standing

    def said(self, event: str) -> None:
        """Print at once."""
        show(event, file=sys.stderr, flush=True)

    def _shown(self, *, picture: bool) -> dict[str, str]:
        """All of it as HTML that loads nothing, and as text."""
        from needlemap.reports.figures.figure import Figure, Shown, draw

        self._drawn = time.monotonic()
        words = printable("\n".join([*filter(None, self._told.values()), self._tally.line(over=not picture)]))
        drawn = draw(Figure((Shown(self._make(self._records)),))).svg if picture else ""
        return {"text/html": f"<pre>{escape(words)}</pre>{drawn}", "text/plain": words}


class LiveMap(View):
    """The map filling in, and why the last trial failed. make: a map of the records so far."""

    def __init__(self, tally: Tally, before: list[Record], make: Callable[[list[Record]], Map]) -> None:
        self._tally, self._records, self._make = tally, list(before), make
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._drawn = 0.0
        self._failure = self._standing = ""

    def __enter__(self) -> Self:
        self._live.__enter__()
        self._draw()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def recorded(self, record: Record) -> None:
        """Redraw, twice a second at most."""
        self._tally.add(record)
        self._records.append(record)
        if record.failure:
            self._failure = f"{record.failure}: {record.error}"
        if time.monotonic() - self._drawn >= _REDRAW_EVERY_S:
            self._draw()

    def told(self, standing: str) -> None:
        """Redraw when it changes."""
        if standing != self._standing:
            self._standing = standing
            self._draw()

    def said(self, event: str) -> None:
        """Print above the map."""
        self._live.console.print(Text(event), soft_wrap=True)

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        rows = max(1, self._console.height - _LINES_AROUND)
        parts = [terminal_map(self._make(self._records), max_rows=rows)]
        if self._failure:
            lines = broken(self._failure, self._console.width)
            more = " …" if len(lines) > _FAILURE_LINES else ""
            parts.append(Text("\n".join(lines[:_FAILURE_LINES]) + more, style="red"))
        if self._standing:
            parts.append(Text(self._standing, no_wrap=True, overflow="ellipsis"))
        parts.append(Text(self._tally.line(), style="bold"))
        self._live.update(Group(*parts), refresh=True)
