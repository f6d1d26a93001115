"""What any face shows while a run is asked: a view of the trials, the live page, saved contexts.

Contexts are text files, for people who want to read what was asked (setting save_contexts).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from needlemap.asking.run import Face
from needlemap.asking.runner import Watcher
from needlemap.asking.session import Session
from needlemap.files import make_inside, write_whole
from needlemap.records.families import Families
from needlemap.reports.live import Silent, Together, View
from needlemap.settings.grid import percent
from needlemap.text.printable import show
from needlemap.trials.repeat import Trial

if TYPE_CHECKING:
    from needlemap.reports.page.live import LivePage


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
        return Silent()

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
        name = f"len_{trial.cell.length_tokens}_depth_{percent(trial.cell.depth):g}_repeat_{trial.repeat}.txt"
        write_whole(self._folder / name, trial.prompt.context_text.encode())
