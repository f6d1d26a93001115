"""The page of a run under way, over HTTP, for a browser on this machine and for nobody else.

It listens on the loopback address alone, and answers only who knows the token in the path and names this
machine as the host (so that no other site reaches it through a name of its own: DNS rebinding). It changes
nothing: GET and HEAD only.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import BoundedSemaphore, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from needlemap.reports.page.feed import Feed, Version

HOLD_S = 10.0  # how long a request for news waits for some: a hidden tab's timers are slow, its requests not
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

    def __init__(self, feed: Feed, document: Callable[[Version], str]) -> None:
        """Raises OSError when no port can be had."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.feed, self.document = feed, document
        self.root = f"/{secrets.token_urlsafe(16)}/"
        self.hosts = (f"127.0.0.1:{self.server_port}", f"localhost:{self.server_port}")
        self._room = BoundedSemaphore(MOST_READERS)
        self._thread = Thread(target=self.serve_forever, args=(0.1,), name="needlemap-page", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{self.hosts[0]}{self.root}"

    def close(self) -> None:
        """Answer nobody any more."""
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, while there are few; others find the connection closed, and come again."""
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
    """One request. HTTP/1.0: each has a connection of its own, so none is left open when the run ends."""

    server: PageServer
    server_version, sys_version = "needlemap", ""
    timeout = 30.0

    def do_GET(self) -> None:
        """The page, its news, or why not."""
        parts = urlsplit(self.path)
        try:
            if self.headers.get("Host") not in self.server.hosts:
                self._refuse(
                    HTTPStatus.FORBIDDEN, f"Known as {self.server.hosts[0]} only: forward that very port."
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
