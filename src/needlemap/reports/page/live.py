"""The page of a run under way (`needlemap run --live`), for a browser on this machine only.

`PageFeed` makes versions of the page when somebody asks, seldom enough not to slow the run
down. `PageServer` gives them out: it listens on the loopback address alone, and answers only
who knows the token in the path and names this machine as the host (so that no other site
reaches it through a name of its own: DNS rebinding). It changes nothing: GET and HEAD only.
`LivePage` watches the run, and serves till it is left.
"""

from __future__ import annotations

import gzip
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import BoundedSemaphore, Event, Lock, Thread
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from needlemap.asking import TrialObserver
from needlemap.asking.session import Session, about
from needlemap.maps import latest_records
from needlemap.records.families import Families
from needlemap.records.loaded import Loaded, load_run
from needlemap.records.record import Record
from needlemap.reports.page.document import as_json, page_html
from needlemap.reports.page.sheets import Subject
from needlemap.reports.page.summary import fitted, summary
from needlemap.reports.run_notes import Tally
from needlemap.text import show

AT_LEAST_S = 1.0  # from the end of one build to the next
TIMES_AS_LONG = 20  # as the last build took, so that builds take 5 % of the time at most
_LOOK_EVERY_S = 0.1
_LEVEL = 1  # of gzip: it goes no further than this machine

Payload = tuple[dict[str, Any], list[bytes]]  # summary, and of each run its trials, `packed`
Make = Callable[[list[Record], dict[str, Any]], Payload]


@dataclass(frozen=True, slots=True)
class Version:
    """The page's data after so many records. over: the run ended; data: its JSON, gzipped."""

    number: int
    over: bool
    summary: dict[str, Any]
    trials: list[bytes]
    data: bytes


class PageFeed:
    """Takes records from the run, gives versions to any number of readers.

    make: summary and trials of records, given also what the summary's `live` is to say.
    before: records of earlier starts.
    """

    def __init__(self, make: Make, tally: Tally, before: Sequence[Record]) -> None:
        self._make, self._tally, self._records = make, tally, list(before)
        self._earlier = 0  # numbers that versions had before this family
        self._adding, self._building = Lock(), Lock()
        self._over = Event()
        self._built: Version | None = None
        self._due = 0.0
        self._readers = 0
        self.seen = self.seen_over = (
            False  # whether any version, and whether the last one, reached a reader
        )

    def add(self, record: Record) -> None:
        """One more record; cheap, as the run calls it."""
        with self._adding:
            self._tally.add(record)
            self._records.append(record)

    def begin(self, tally: Tally, before: Sequence[Record]) -> None:
        """Another family's records from now on."""
        with self._adding:
            self._earlier += len(self._records) + 1
            self._tally, self._records = tally, list(before)

    def end(self) -> None:
        """Nothing follows: who waits for news gets the last version at once."""
        self._over.set()

    @property
    def delivered(self) -> bool:
        """Whether the last version reached a reader, and none is still being given
        anything."""
        return self.seen_over and not self._readers

    @contextmanager
    def reading(self, *, since: int = -1, patience_s: float = 0.0) -> Iterator[Version]:
        """The last version; waits up to `patience_s` for one after number `since`.

        It counts as delivered when the block ends without an error.
        """
        with self._adding:
            self._readers += 1
        try:
            version = self._newer(since, time.monotonic() + patience_s)
            yield version
            self.seen = True
            self.seen_over = self.seen_over or version.over
        finally:
            with self._adding:
                self._readers -= 1

    def _newer(self, since: int, until: float) -> Version:
        while (version := self._latest()).number <= since:
            if self._over.is_set() or time.monotonic() >= until:
                break
            self._over.wait(_LOOK_EVERY_S)
        return version

    def _latest(self) -> Version:
        """The last version built, or a new one where that is due; readers that come meanwhile
        wait."""
        with self._building:
            over = self._over.is_set()
            fresh = self._built is not None and self._built.number == self._number(over)
            if self._built is None or (not fresh and (over or time.monotonic() >= self._due)):
                start = time.monotonic()
                self._built = self._build(over)
                now = time.monotonic()
                self._due = now + max(AT_LEAST_S, TIMES_AS_LONG * (now - start))
            return self._built

    def _number(self, over: bool) -> int:
        return self._earlier + len(self._records) + over

    def _build(self, over: bool) -> Version:
        with self._adding:
            records, number, line = (
                list(self._records),
                self._number(over),
                self._tally.line(over=over),
            )
        state, shown = ("ended", f"run ended · {line}") if over else ("running", line)
        live = {"state": state, "line": shown, "version": number}
        summary, trials = self._make(records, live)
        rest = as_json({"version": number, "summary": summary}).removesuffix(b"}")
        data = b'%s,"trials":[%s]}' % (rest, b",".join(map(gzip.decompress, trials)))
        return Version(number, over, summary, trials, gzip.compress(data, _LEVEL))


# how long a request for news waits for some: a hidden tab's timers are slow, its requests not
HOLD_S = 10.0
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'none'",  # what no <meta> can say
    "X-Frame-Options": "DENY",
}
MOST_READERS = 64  # connections at a time; a tab has one open for news, and one more now and then
_DIGITS = 15  # of a version's number
_JSON = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
_HTML = {"Content-Type": "text/html; charset=utf-8"}
_PLAIN = {"Content-Type": "text/plain; charset=utf-8"}


class PageServer(ThreadingHTTPServer):
    """Serves a feed from a daemon thread until `close`. document: a version's page as HTML."""

    daemon_threads = True

    def __init__(self, feed: PageFeed, document: Callable[[Version], str]) -> None:
        """Raises OSError when no port can be had."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.feed, self.document = feed, document
        self.root = f"/{secrets.token_urlsafe(16)}/"
        self.hosts = (f"127.0.0.1:{self.server_port}", f"localhost:{self.server_port}")
        self._room = BoundedSemaphore(MOST_READERS)
        self._thread = Thread(
            target=self.serve_forever, args=(0.1,), name="needlemap-page", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{self.hosts[0]}{self.root}"

    def close(self) -> None:
        """Stop answering."""
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, while there are few; others find the connection closed, and come
        again."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One request, from its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def server_bind(self) -> None:
        """Without the base's look-up of this machine's name, which may ask a name server."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that went away is no news; the terminal belongs to the map."""


class _Handler(BaseHTTPRequestHandler):
    """One request. HTTP/1.0: each has a connection of its own, so none is left open when the
    run ends."""

    server: PageServer
    server_version, sys_version = "needlemap", ""
    timeout = 30.0

    def do_GET(self) -> None:
        """The page, its news, or why not."""
        parts = urlsplit(self.path)
        try:
            if self.headers.get("Host") not in self.server.hosts:
                self._refuse(
                    HTTPStatus.FORBIDDEN,
                    f"Known as {self.server.hosts[0]} only: forward that very port.",
                )
            elif self._names(parts.path, ""):
                self._document()
            elif self._names(parts.path, "data"):
                self._news(parse_qs(parts.query).get("since", [""])[0])
            else:
                self._refuse(HTTPStatus.NOT_FOUND)
        except OSError:
            raise  # the reader went away
        except Exception as error:
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")

    def do_HEAD(self) -> None:
        """As GET, without the body."""
        self.do_GET()

    def do_POST(self) -> None:
        """Refused, as all that could change something."""
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED)

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal belongs to the map, and the token to the user."""

    def _names(self, path: str, name: str) -> bool:
        return secrets.compare_digest(path.encode(), f"{self.server.root}{name}".encode())

    def _document(self) -> None:
        with self.server.feed.reading() as version:
            self._reply(HTTPStatus.OK, _HTML, self.server.document(version).encode())

    def _news(self, since: str) -> None:
        number = int(since) if since.isascii() and since.isdigit() and len(since) <= _DIGITS else -1
        with self.server.feed.reading(since=number, patience_s=HOLD_S) as version:
            if version.number > number:
                self._reply(HTTPStatus.OK, _JSON, version.data)
            else:
                self._reply(HTTPStatus.NO_CONTENT, {}, b"")

    def _refuse(self, status: HTTPStatus, why: str = "") -> None:
        allow = {"Allow": "GET, HEAD"} if status is HTTPStatus.METHOD_NOT_ALLOWED else {}
        self._reply(status, {**_PLAIN, **allow}, f"{why or status.phrase}\n".encode())

    def _reply(self, status: HTTPStatus, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        size = {} if status is HTTPStatus.NO_CONTENT else {"Content-Length": str(len(body))}
        for name, value in {**_HEADERS, **headers, **size}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


GRACE_S = 2.0  # for which an open page may fetch the end


class LivePage(TrialObserver, ExitStack):
    """Says its address on standard error when it is entered; left, it lets an open page fetch
    the end.

    It shows the family that is asked, and beside it those that were begun before.
    """

    def __init__(self, families: Families, name: str, session: Session) -> None:
        super().__init__()
        self._families = families
        self._feed = PageFeed(self._payload, *self._turn(name, session))

    def begin(self, name: str, session: Session) -> None:
        """Show another family."""
        self._feed.begin(*self._turn(name, session))

    def __enter__(self) -> Self:
        server = PageServer(self._feed, _document)
        self.callback(server.close)
        self.callback(self._wait)
        show(f"live: {server.url}", file=sys.stderr, flush=True)
        return self

    def recorded(self, record: Record) -> None:
        """Keep it for the page."""
        self._feed.add(record)

    def _wait(self) -> None:
        """Till an open page has the end. Who presses Ctrl-C now wants no page: the run's own
        end stands."""
        self._feed.end()
        until = time.monotonic() + GRACE_S
        with suppress(KeyboardInterrupt):
            while self._feed.seen and not self._feed.delivered and time.monotonic() < until:
                time.sleep(0.02)

    def _turn(self, name: str, session: Session) -> tuple[Tally, list[Record]]:
        """A family's tally and the records that it has; the others are read now."""
        self._path, self._about = session.folder.path, about(session.experiment, session.folder)
        self._others = {
            path: load_run(path) for path in self._families.folders if path != self._path
        }
        tally = Tally(len(session.experiment.trials), session.done, session.budget.state, name)
        return tally, list(session.folder.records())

    def _payload(self, records: Sequence[Record], live: dict[str, Any]) -> Payload:
        asked = Loaded(str(self._path), self._about, tuple(latest_records(records)))
        shown = {**self._others, self._path: asked}
        read = {name: shown.get(self._families.folder(name)) for name in self._families.names}
        subject = Subject(self._families, read) if any(read.values()) else Subject.of(asked)
        trials, notes = fitted(subject.runs)
        told = [notes] * len(subject.runs)
        return summary([subject], made=datetime.now(UTC), notes=told, live=live), trials


def _document(version: Version) -> str:
    return page_html(version.summary, version.trials, live=True)
