"""A run under way as a page in the browser (`needlemap run --live`): watches, and serves till it is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from needlemap.maps.answers import latest_records
from needlemap.printable import show
from needlemap.reports.live import Silent, Tally
from needlemap.reports.page.document import page_html
from needlemap.reports.page.feed import Feed, Payload, Version
from needlemap.reports.page.page import fitted
from needlemap.reports.page.payload import summary
from needlemap.reports.page.server import PageServer
from needlemap.runs.loaded import Loaded
from needlemap.runs.record import Record
from needlemap.runs.session import Session, about

GRACE_S = 2.0  # for which an open page may fetch the end


class LivePage(Silent):
    """Says its address on standard error when it is entered; left, it lets an open page fetch the end."""

    def __init__(self, session: Session) -> None:
        self._about, self._path = about(session.experiment, session.folder), session.folder.path
        tally = Tally(len(session.experiment.trials), session.done, session.budget.state)
        self._feed = Feed(self._payload, tally, list(session.folder.records()))
        self._server: PageServer | None = None

    def __enter__(self) -> Self:
        self._server = PageServer(self._feed, _document)
        show(f"live: {self._server.url}", file=sys.stderr, flush=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._feed.end()
        try:
            self._wait()
        except KeyboardInterrupt:  # who presses Ctrl-C now wants no page: the run's own end stands
            pass
        finally:
            if self._server is not None:
                self._server.close()

    def recorded(self, record: Record) -> None:
        """Keep it for the page."""
        self._feed.add(record)

    def _wait(self) -> None:
        until = time.monotonic() + GRACE_S
        while self._feed.seen and not self._feed.delivered and time.monotonic() < until:
            time.sleep(0.02)

    def _payload(self, records: Sequence[Record], live: dict[str, Any]) -> Payload:
        run = Loaded(str(self._path), self._about, tuple(latest_records(records)))
        trials, notes = fitted([run])
        return summary([run], made=datetime.now(UTC), notes=[notes], live=live), trials


def _document(version: Version) -> str:
    return page_html(version.summary, version.trials, live=True)
