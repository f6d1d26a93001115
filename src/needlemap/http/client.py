"""Servers: their base URLs, keys and headers; one request and its reply, read within bounds.

For code that waits and code that does not. Redirects are not followed, a body is read by
pieces up to `LARGEST_BYTES` unpacked, and secrets that were sent are hidden in every reply
before it is shown or kept. A request is repeated only for an address that lacks its /v1.
Replies are read as plain JSON, so that every provider's own fields survive. Secrets come from
the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from ipaddress import ip_address
from shlex import quote
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from needlemap.allowance import LIMIT_HEADERS, read_allowance
from needlemap.deadline import TimeUp, call_within
from needlemap.errors import SettingsError, Spent, Unmeasured
from needlemap.http import faults
from needlemap.http.compatible import HEADERS, KEY, is_deployment, joined
from needlemap.http.events import StreamedReply, is_stream, words_of
from needlemap.http.wording import message_of
from needlemap.secrets import Secrets, hidden, scrub
from needlemap.untrusted import OutOfBounds, read_json
from needlemap.version import __version__

if TYPE_CHECKING:
    import ssl

    from httpx import Client, Response

    from needlemap.models import Answer

    Reader = Callable[[dict[str, Any], float], Answer]

LENT = "NEEDLEMAP_KEY_"  # begins a variable that holds a key given as an argument, for a moment
NO_KEY = "none"  # said of a server that wants none: nothing is sent
_HEADER = re.compile(r"[!#$%&'*+.^_`|~\w-]+", re.ASCII)
CONNECT_S = 20.0  # for a connection, at most: an address that nobody answers at is not waited for
LARGEST_BYTES = 64 * 2**20  # of a reply's body, unpacked
# A stream's last event is often not the end of its body, which some servers never send. What comes
# so soon lets the connection serve the next request.
_LINGER_S = 0.25
_REFUSAL_BYTES = 2**20  # of a refusal's body; what is behind is not read
_START_BYTES = 64  # of a body: enough to tell a stream of events from JSON
_PACKED = ("", "identity", "gzip", "deflate")  # one layer of what unpacks by at most 1,032 times
_PLAIN = (
    "user-agent",
    "accept",
    "content-type",
)  # no secrets
VERSIONED = re.compile(r"/v\d")
_HOST = re.compile(r"[\w.-]+:\d{1,5}(/.*)?")
_REQUEST = re.compile(r"/(chat/completions|completions|messages|models|responses)/*(?=\?|$)")
_Client = TypeVar("_Client")


def base_url_of(given: str | None, variable: str, home: str) -> str:
    """The address to ask: the given one, else the environment's, else the provider's own.

    Raises SettingsError for what is no address, and for one that holds a key.
    """
    url = given or os.environ.get(variable) or home
    check_address(url, variable.replace("BASE_URL", "API_KEY"))
    return url.rstrip("/")


def check_address(url: str, variable: str = KEY) -> None:
    """Raises SettingsError for an invalid address, and for one that holds a key, since
    run.json and error messages would keep it."""
    shown = hidden(url)
    try:
        parts = urlsplit(url.encode().decode())  # not what a terminal gave that is no text
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        host = parts.hostname or ""
        host.encode("idna")
        if host.rpartition(".")[2].isdigit():
            ip_address(host)
    except ValueError:
        sound = False
    if not sound:
        near = (
            f"http://{shown.rstrip('/')}" if _HOST.fullmatch(shown) else "http://127.0.0.1:8000/v1"
        )
        raise SettingsError(f"'{shown}' is no base URL. Type one such as {near}.")
    if request := _REQUEST.search(shown):
        raise SettingsError(
            f"'{shown}' is the address of one request. Type: --base-url "
            f"{quote(shown[: request.start()] + shown[request.end() :])}"
        )
    if shown != url:
        raise SettingsError(
            f"The base URL {shown} holds a key, which run.json would keep. Take it out, and "
            f"type: export {variable}=YOUR-KEY"
        )


def key_of(variable: str, base_url: str, host: str, *, required: bool = False) -> str:
    """The key in the environment; '' for a server elsewhere than at the provider's own host
    without one."""
    key = from_environment(variable)
    if not key and (required or at_home(base_url, host)):
        raise SettingsError(
            f"No key for {urlsplit(base_url).hostname}. Type: export {variable}=YOUR-KEY"
        )
    return "" if key == NO_KEY else key


def from_environment(variable: str) -> str:
    """A key, or what else goes into a header; '' for none. Raises SettingsError for what no
    header holds."""
    value = os.environ.get(variable, "").strip()
    if not value.isascii() or not value.isprintable():
        raise SettingsError(f"The key in {variable} holds a character no key has. Copy it again.")
    return value


def bearer(variable: str) -> dict[str, str]:
    """The header with a key, where the environment has one."""
    key = from_environment(variable)
    return {"authorization": f"Bearer {key}"} if key and key != NO_KEY else {}


def _key_words(variable: str) -> str:
    """What to type after a server refused a key, or that there was none."""
    if variable.startswith(LENT):
        return "It refuses the key that it was given"
    had = from_environment(variable) not in ("", NO_KEY)
    why = f"It refuses the key in {variable}" if had else f"No key is in {variable}"
    return f"{why}. Type: export {variable}=YOUR-KEY"


def custom_headers(variable: str) -> dict[str, str]:
    """Headers that the environment names, one a line, as the providers' own clients read them.

    Raises SettingsError.
    """
    found = {}
    for line in filter(str.strip, os.environ.get(variable, "").splitlines()):
        name, colon, value = (part.strip() for part in line.partition(":"))
        if (
            not colon
            or not _HEADER.fullmatch(name)
            or not value.isascii()
            or not value.isprintable()
        ):
            raise SettingsError(
                f"{variable} holds a line that is no header. Write 'Name: value', one a line."
            )
        found[name.lower()] = value
    return found


@dataclass(frozen=True, slots=True)
class Sent:
    """The secrets that a server gets when it is asked what it serves: the environment's
    variables of a key and of further headers. They are those of the model that is asked there,
    never another provider's."""

    key_env: str = KEY
    headers_env: str = HEADERS

    def headers(self) -> dict[str, str]:
        """The headers. Raises SettingsError for what no header holds."""
        return bearer(self.key_env) | custom_headers(self.headers_env)


def at_home(base_url: str, host: str) -> bool:
    """Whether a base URL leads to the provider itself, or to one of its regions."""
    where = urlsplit(base_url).hostname or ""
    return where == host or where.endswith(f".{host}")


_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")  # variables that name them
_THIS_MACHINE = ("all://127.0.0.1", "all://localhost", "all://[::1]")  # no proxy stands before it


@dataclass(frozen=True, slots=True)
class HttpReply:
    """What a server said, as it is. text: of a refusal, no more than its beginning. listened_s:
    how long its connection was listened to behind it. streamed: its events; text is empty then."""

    status: int
    headers: Mapping[str, str]
    text: str
    listened_s: float = 0.0
    streamed: StreamedReply | None = None


@cache
def _certificates(*_named: str | None) -> ssl.SSLContext:
    """What a server's certificate is checked against. It is read once, as that takes longer than
    many a request."""
    import httpx

    return httpx.create_ssl_context()


class _JsonClient:
    """The common part of both clients: the headers of each request, and the reading of a
    reply.

    headers: beside our own; plain: names of those that hold no secret. key_env: the variable
    that the key among them came from. Raises SettingsError when no connection can be made at
    all, as with an unusable proxy.
    """

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        key_env: str = "",
        plain: Sequence[str] = (),
    ) -> None:
        self.base_url, self._key_env = base_url, key_env
        known = {*_PLAIN, *plain}
        self._secrets = Secrets(value for name, value in headers.items() if name not in known)
        self._headers = {
            "content-type": "application/json",
            "accept": "application/json",
            "accept-encoding": "gzip, deflate",
            "user-agent": f"needlemap/{__version__}",
            **headers,
        }

    def _opened(self, client: type[_Client], **options: Any) -> _Client:
        options |= {"mounts": dict.fromkeys(_THIS_MACHINE), "follow_redirects": False}
        try:
            from needlemap.http.framing import watch

            verify = _certificates(*map(os.environ.get, _CERTIFICATES))
            made = client(headers=self._headers, verify=verify, **options)  # type: ignore[call-arg]
            watch(made)  # type: ignore[arg-type]
            return made
        except Exception as error:  # the environment's proxies and certificates
            said = scrub(f"{type(error).__name__}: {error}")
            raise SettingsError(
                f"No connections can be made: {said}. Check HTTPS_PROXY, ALL_PROXY and "
                f"SSL_CERT_FILE."
            ) from None

    def hide(self, failure: Unmeasured) -> None:
        """Take what was sent in secret out of a failure's words."""
        failure.args = (self._secrets.hide(str(failure)),)

    def hide_in(self, value: Any) -> Any:
        """A JSON value without what was sent in secret."""
        return self._secrets.hide_in(value)

    def check(self, reply: HttpReply, server: str) -> None:
        """Raises Unmeasured for a refusal."""
        if not 200 <= reply.status < 300:
            said = self._secrets.hide(reply.text)
            refused = faults.from_status(reply.status, said, reply.headers, server=server)
            if reply.status == 401 and self._key_env:
                refused.args = (f"{str(refused).rstrip('.')}. {_key_words(self._key_env)}",)
            raise refused

    def object_in(self, reply: HttpReply, server: str) -> dict[str, Any]:
        """A reply's JSON object without secrets. Raises Unmeasured, also for a refusal."""
        self.check(reply, server)
        text, streamed = reply.text, reply.streamed
        try:
            body = self._secrets.hide_in(streamed.whole() if streamed else read_json(text))
        except OutOfBounds as error:
            raise faults.unreadable("The reply cannot be read", str(error)) from None
        except ValueError:
            if page := faults.page_instead(self._secrets.hide(text), server):
                raise page from None
            said = self._secrets.hide(message_of(text))
            raise faults.unreadable("The reply is no JSON", said, transient=True) from None
        if isinstance(body, list) and len(body) == 1 and isinstance(body[0], dict):
            failed = faults.from_reply(body[0], server)  # Gemini lists its errors
            if failed is not None:
                raise failed
        if not isinstance(body, dict):
            raise faults.unreadable("The reply is no JSON object", self._secrets.hide(text))
        if failed := faults.from_reply(body, server):
            raise failed
        return body


class JsonClient(_JsonClient):
    """Asks without waiting, many requests at a time, a server that takes JSON and answers in
    JSON.

    version: what base_url may lack ('/v1'), tried once where a server knows no such address.
    limits: the headers by which it says what it still takes.
    """

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        version: str = "",
        key_env: str = "",
        plain: Sequence[str] = (),
        limits: Sequence[str] = LIMIT_HEADERS,
    ) -> None:
        import httpx  # 0.1 s: only for those who ask

        super().__init__(base_url, headers, key_env, plain)
        self._version, self._reached, self._limit_headers = version, False, limits
        self.has_streamed = False  # whether any answer came as a stream, asked for or not
        pool = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        self._client = self._opened(httpx.AsyncClient, limits=pool)

    async def ask(self, path: str, body: bytes, timeout_s: float, read: Reader) -> Answer:
        """One answer. read: makes it of a reply's JSON object and its seconds. Raises
        Unmeasured."""
        base_url = self.base_url
        try:
            return await self._once(base_url, path, body, timeout_s, read)
        except Unmeasured as refused:
            whole = VERSIONED.search(base_url) or is_deployment(base_url)
            if not refused.misplaced or not self._version or whole:
                raise
        other = joined(base_url, self._version)
        answer = await self._once(other, path, body, timeout_s, read)
        if self.base_url == other:  # another lane found it too
            return answer
        self.base_url = other
        return replace(
            answer, note=f"{base_url} knows no {path}: asked at {other}, as --base-url may say"
        )

    async def look_up(self, path: str, body: bytes | None, timeout_s: float) -> dict[str, Any]:
        """A reply's JSON object, of an address beside the API's own. body: None to send none.
        Raises Unmeasured."""
        root = self.base_url.removesuffix("/v1")
        try:
            url = joined(root, path)
            return self.object_in(await self._send(url, body, timeout_s, root), root)
        except Unmeasured as failure:
            self.hide(failure)
            raise

    async def _once(
        self, base_url: str, path: str, body: bytes, timeout_s: float, read: Reader
    ) -> Answer:
        start, sent_s = (
            perf_counter(),
            time(),
        )  # what a server says of its limits, it saw when asked
        first_token_s = None
        try:
            reply = await self._send(joined(base_url, path), body, timeout_s, base_url)
            took_s = perf_counter() - start - reply.listened_s
            if streamed := reply.streamed:
                self.has_streamed = True
                took_s = (streamed.ended_at or start + took_s) - start
                first_token_s = streamed.first_token_at and streamed.first_token_at - start
            answer = read(self.object_in(reply, base_url), took_s)
        except Unmeasured as failure:
            self.hide(failure)
            if first_token_s is not None and failure.spent is None:
                failure.spent = Spent()  # what broke off in mid-stream may be billed
            if failure.status is not None:
                failure.allowance = read_allowance(reply.headers, sent_s, self._limit_headers)
            raise
        allowance = read_allowance(reply.headers, sent_s, self._limit_headers)
        return replace(answer, allowance=allowance, first_token_s=first_token_s)

    async def _send(self, url: str, body: bytes | None, timeout_s: float, server: str) -> HttpReply:
        """A reply. Raises Unmeasured, which says whether any connection was ever made."""
        try:
            reply = await self._reply(url, body, timeout_s, server)
        except Unmeasured as failure:
            failure.unreached &= not self._reached
            self._reached |= not failure.unreached
            raise
        self._reached = True
        return reply

    async def _reply(
        self, url: str, body: bytes | None, timeout_s: float, server: str
    ) -> HttpReply:
        """The reply to a POST with a body, else to a GET. Raises Unmeasured, which says
        whether the request may be billed."""
        import asyncio  # 0.04 s: not for those who only build prompts

        import httpx

        method, clock = "GET" if body is None else "POST", asyncio.get_running_loop().time
        read: _Body | None = None
        with _limits(server, timeout_s) as limits:
            try:
                async with (
                    asyncio.timeout(timeout_s) as attempt,
                    self._client.stream(method, url, content=body, timeout=limits) as response,
                ):
                    read = _Body(response, LARGEST_BYTES)
                    if not response.is_redirect:  # what it holds is not read
                        async for piece in response.aiter_bytes():
                            was_whole = read.is_whole
                            if not read.add(piece):
                                break
                            if read.is_whole and not was_whole:
                                attempt.reschedule(clock() + _LINGER_S)
            except (TimeoutError, httpx.HTTPError):
                if read is None or not read.is_whole:
                    raise
            return read.reply()

    async def close(self) -> None:
        """Release connections."""
        await self._client.aclose()


class SyncJsonClient(_JsonClient):
    """Asks one after the other, and waits: for code that counts tokens between two lines."""

    _client: Client | None = None

    def ask(
        self, method: str, path: str, body: bytes, timeout_s: float, most: int, do: str = ""
    ) -> HttpReply:
        """A reply of at most so many bytes; no longer than timeout_s is waited, however it
        comes in. Raises Unmeasured, and TimeUp where the command's time ends before; do: what
        else a user may do then."""
        import httpx  # 0.1 s: only for those who ask

        self._client = client = self._client or self._opened(httpx.Client)
        url = joined(self.base_url, path)

        def stream_reply() -> HttpReply:
            """In a thread of its own: a client that waits does not look at a clock while a
            head drips."""
            with client.stream(method, url, content=body, timeout=limits) as response:
                read = _Body(response, most)
                if not response.is_redirect:
                    for piece in response.iter_bytes():
                        if not read.add(piece) or read.is_whole:
                            break
                return read.reply()

        with _limits(self.base_url, timeout_s, f" from {hidden(url)}") as limits:
            try:
                what = f"before {hidden(url)} answered"
                return call_within(timeout_s, stream_reply, what, do)
            except (TimeoutError, TimeUp):
                self.close()
                raise

    def close(self) -> None:
        """Release the connection; the next request opens another."""
        if self._client is not None:
            self._client.close()
            self._client = None


class _Body:
    """A body, read in pieces. Raises Unmeasured if it is over the limit."""

    def __init__(self, response: Response, most: int) -> None:
        self._response, self._data = response, bytearray()
        self._most, self._size = most, 0
        self._media_type = response.headers.get("content-type", "")
        self._is_stream: bool | None = None if response.is_success else False
        self._streamed: StreamedReply | None = None
        packed = response.headers.get("content-encoding", "").strip().lower()
        if packed not in _PACKED:
            raise faults.unreadable("The reply is packed in a way that was not asked for", packed)

    @property
    def is_whole(self) -> bool:
        """Whether the server said that nothing follows."""
        return self._streamed is not None and self._streamed.is_ended

    def add(self, piece: bytes) -> bool:
        """Whether more is to be read."""
        self._size += len(piece)
        if not self._response.is_success and self._size > _REFUSAL_BYTES:
            return False
        if self._size > self._most:
            raise faults.unreadable("The reply is too large", f"more than {self._most // 2**20} MB")
        if self._streamed is None:
            self._data += piece
            piece = self._start_stream()
        if self._streamed is not None:
            self._streamed.feed(piece, perf_counter())
        return True

    def _start_stream(self) -> bytes:
        """All that came so far, once it turns out to be a stream. Blanks come before many an
        answer, to keep its connection alive."""
        if self._is_stream is None:
            self._data = self._data.lstrip()
            self._is_stream = is_stream(bytes(self._data[:_START_BYTES]), self._media_type)
        if not self._is_stream:
            return b""
        data, self._data = bytes(self._data), bytearray()
        self._streamed = StreamedReply()
        return data

    def reply(self) -> HttpReply:
        """All of it as text: JSON is UTF-8, whatever a header says. Raises Unmeasured where it
        may not be the answer to what was asked."""
        from needlemap.http.framing import framing_of

        framing, response = framing_of(self._response), self._response
        text = words_of(self._data.decode("utf-8-sig", "replace"))
        if framing.doubt:
            doubt = f"The connection is closed: of its reply, {framing.doubt}"
            raise faults.unreadable(doubt, message_of(text), transient=True)
        status, headers = response.status_code, response.headers
        return HttpReply(status, headers, text, framing.listened_s, self._streamed)


@contextmanager
def _limits(server: str, timeout_s: float, by: str = " (setting: timeout_s)") -> Iterator[Any]:
    """An attempt's limits in time, by whom; whatever a connection fails by, as Unmeasured."""
    import httpx

    connect_s = min(
        0.9 * timeout_s, CONNECT_S
    )  # less than the attempt, so that the two can be told apart
    try:
        yield httpx.Timeout(timeout_s, connect=connect_s)
    except (httpx.ConnectTimeout, httpx.PoolTimeout):
        raise faults.unanswered(server, connect_s) from None
    except (TimeoutError, httpx.TimeoutException):
        raise faults.timed_out(timeout_s, by) from None
    except (
        httpx.ConnectError,
        httpx.ProxyError,
        httpx.UnsupportedProtocol,
        httpx.InvalidURL,
    ) as error:
        raise faults.lost(error, server, sent=False) from None
    except httpx.DecodingError as error:
        raise faults.unreadable(
            "The reply cannot be unpacked", str(error), transient=True
        ) from None
    except (httpx.HTTPError, OSError) as error:
        raise faults.lost(error, server) from None
