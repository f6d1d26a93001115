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
from needlemap.http.compatible import HEADERS, KEY, is_deployment, join_address
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

# Starts the name of a variable that holds a key given as an argument, for a moment.
LENT = "NEEDLEMAP_KEY_"
# The key of a server that needs none: nothing is sent.
NO_KEY = "none"
_HEADER = re.compile(r"[!#$%&'*+.^_`|~\w-]+", re.ASCII)
# For a connection: an address at which nobody answers is not worth the time of an attempt.
CONNECT_S = 20.0
# Of a reply's body, unpacked.
LARGEST_BYTES = 64 * 2**20
# A stream's last event is often not the end of its body, which some servers never send. What comes
# so soon lets the connection serve the next request.
_LINGER_S = 0.25
# Of a refusal's body. The rest is not read.
_REFUSAL_BYTES = 2**20
# Of a body: enough to tell a stream of events from JSON.
_START_BYTES = 64
# Encodings that unpack to at most 1,032 times their size. Only one layer is accepted.
_PACKED = ("", "identity", "gzip", "deflate")
# Headers without secrets.
_PLAIN = ("user-agent", "accept", "content-type")
VERSIONED = re.compile(r"/v\d")
_HOST = re.compile(r"[\w.-]+:\d{1,5}(/.*)?")
_REQUEST = re.compile(r"/(chat/completions|completions|messages|models|responses)/*(?=\?|$)")
_Client = TypeVar("_Client")


def base_url_of(given: str | None, variable: str, home: str) -> str:
    """Return the given address, else the environment's, else the provider's own.

    Raises SettingsError for an invalid address, and for one that holds a key.
    """
    url = given or os.environ.get(variable) or home
    check_address(url, variable.replace("BASE_URL", "API_KEY"))
    return url.rstrip("/")


def check_address(url: str, variable: str = KEY) -> None:
    """Raise SettingsError for an invalid address, and for one that holds a key.

    run.json and error messages would keep the key.
    """
    shown = hidden(url)
    if not _is_address(url):
        example = "http://127.0.0.1:8000/v1"
        if _HOST.fullmatch(shown):
            example = f"http://{shown.rstrip('/')}"
        raise SettingsError(f"'{shown}' is no base URL. Type one such as {example}.")
    request = _REQUEST.search(shown)
    if request:
        base_url = shown[: request.start()] + shown[request.end() :]
        raise SettingsError(
            f"'{shown}' is the address of one request. Type: --base-url {quote(base_url)}"
        )
    if shown != url:
        raise SettingsError(
            f"The base URL {shown} holds a key, which run.json would keep. Take it out, and "
            f"type: export {variable}=YOUR-KEY"
        )


def _is_address(url: str) -> bool:
    """Return True for an address of HTTP whose host and port are valid."""
    try:
        # Raises for bytes from a terminal that are not text.
        parts = urlsplit(url.encode().decode())
        host = parts.hostname or ""
        host.encode("idna")
        if host.rpartition(".")[2].isdigit():
            ip_address(host)
        return parts.scheme in ("http", "https") and bool(host) and parts.port != 0
    except ValueError:
        return False


def key_of(variable: str, base_url: str, host: str, *, required: bool = False) -> str:
    """Return the key in the environment, or '' if there is none and the server does not need one.

    Raises SettingsError if the provider's own host needs a key and there is none.
    """
    key = from_environment(variable)
    if not key and (required or at_home(base_url, host)):
        raise SettingsError(
            f"No key for {urlsplit(base_url).hostname}. Type: export {variable}=YOUR-KEY"
        )
    return "" if key == NO_KEY else key


def from_environment(variable: str) -> str:
    """Return a key or another header's value from the environment, or '' for none.

    Raises SettingsError for characters that no header holds.
    """
    value = os.environ.get(variable, "").strip()
    if not value.isascii() or not value.isprintable():
        raise SettingsError(f"The key in {variable} holds a character no key has. Copy it again.")
    return value


def bearer(variable: str) -> dict[str, str]:
    """Return the header with a key, {} if the environment has none."""
    key = from_environment(variable)
    return {"authorization": f"Bearer {key}"} if key and key != NO_KEY else {}


def _key_words(variable: str) -> str:
    """Return what to type after a server refused the key, or a request without one."""
    if variable.startswith(LENT):
        return "It refuses the key that it was given"
    has_key = from_environment(variable) not in ("", NO_KEY)
    why = f"It refuses the key in {variable}" if has_key else f"No key is in {variable}"
    return f"{why}. Type: export {variable}=YOUR-KEY"


def custom_headers(variable: str) -> dict[str, str]:
    """Return the headers in a variable, one a line, as the providers' own clients read them.

    Raises SettingsError for a line that is not a header.
    """
    headers: dict[str, str] = {}
    for line in os.environ.get(variable, "").splitlines():
        if not line.strip():
            continue
        name, colon, value = (part.strip() for part in line.partition(":"))
        is_header = bool(colon) and _HEADER.fullmatch(name) is not None
        if not is_header or not value.isascii() or not value.isprintable():
            raise SettingsError(
                f"{variable} holds a line that is no header. Write 'Name: value', one a line."
            )
        headers[name.lower()] = value
    return headers


@dataclass(frozen=True, slots=True)
class Sent:
    """The secrets that a server is sent with a request for its models.

    They are those of the model that is tested there, never another provider's.

    Attributes:
        key_env: The variable of the key.
        headers_env: The variable of further headers.
    """

    key_env: str = KEY
    headers_env: str = HEADERS

    def headers(self) -> dict[str, str]:
        """Return the headers. Raise SettingsError for values that no header holds."""
        return bearer(self.key_env) | custom_headers(self.headers_env)


def at_home(base_url: str, host: str) -> bool:
    """Return True if a base URL leads to the provider itself or to one of its regions."""
    hostname = urlsplit(base_url).hostname or ""
    return hostname == host or hostname.endswith(f".{host}")


# Variables that name certificates.
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
# Requests to this machine go past a proxy.
_THIS_MACHINE = ("all://127.0.0.1", "all://localhost", "all://[::1]")


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A server's reply as it came.

    Attributes:
        status: Its status.
        headers: Its headers.
        text: Its body; of a refusal only the start, of a stream ''.
        listened_s: How long the connection was read after the reply had ended.
        streamed: The events of a stream; None for any other reply.
    """

    status: int
    headers: Mapping[str, str]
    text: str
    listened_s: float = 0.0
    streamed: StreamedReply | None = None


@cache
def _certificates(*_named: str | None) -> ssl.SSLContext:
    """Return the certificates that a server's is checked against.

    Reading them takes longer than many requests, so that it is done once.
    """
    import httpx

    return httpx.create_ssl_context()


class _JsonClient:
    """The common part of both clients: the headers of each request, and the reading of a reply.

    headers: in addition to our own. plain: names of those that hold no secret. key_env: the
    variable that the key among them came from. Raises SettingsError if no connection can be made at
    all, e.g. with an unusable proxy.
    """

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        key_env: str = "",
        plain: Sequence[str] = (),
    ) -> None:
        self.base_url, self._key_env = base_url, key_env
        public = {*_PLAIN, *plain}
        self._secrets = Secrets(value for name, value in headers.items() if name not in public)
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
            connection = client(headers=self._headers, verify=verify, **options)  # type: ignore[call-arg]
            watch(connection)  # type: ignore[arg-type]
            return connection
        # The environment's proxies and certificates raise errors of many kinds.
        except Exception as error:
            reason = scrub(f"{type(error).__name__}: {error}")
            raise SettingsError(
                f"No connections can be made: {reason}. Check HTTPS_PROXY, ALL_PROXY and "
                f"SSL_CERT_FILE."
            ) from None

    def hide(self, failure: Unmeasured) -> None:
        """Hide the secrets that were sent in a failure's words."""
        failure.args = (self._secrets.hide(str(failure)),)

    def hide_in(self, value: Any) -> Any:
        """Return a JSON value with the secrets that were sent hidden."""
        return self._secrets.hide_in(value)

    def check(self, reply: HttpReply, server: str) -> None:
        """Raise Unmeasured for a refusal."""
        if 200 <= reply.status < 300:
            return
        text = self._secrets.hide(reply.text)
        failure = faults.from_status(reply.status, text, reply.headers, server=server)
        if reply.status == 401 and self._key_env:
            failure.args = (f"{str(failure).rstrip('.')}. {_key_words(self._key_env)}",)
        raise failure

    def object_in(self, reply: HttpReply, server: str) -> dict[str, Any]:
        """Return a reply's JSON object with secrets hidden.

        Raises Unmeasured if it has none, and for a refusal.
        """
        self.check(reply, server)
        text, streamed = reply.text, reply.streamed
        try:
            body = self._secrets.hide_in(streamed.joined_body() if streamed else read_json(text))
        except OutOfBounds as error:
            raise faults.unreadable("The reply cannot be read", str(error)) from None
        except ValueError:
            page = faults.page_failure(self._secrets.hide(text), server)
            if page is not None:
                raise page from None
            message = self._secrets.hide(message_of(text))
            raise faults.unreadable("The reply is no JSON", message, transient=True) from None

        # Gemini puts an error into a list.
        if isinstance(body, list) and len(body) == 1 and isinstance(body[0], dict):
            failure = faults.failure_in_reply(body[0], server)
            if failure is not None:
                raise failure
        if not isinstance(body, dict):
            raise faults.unreadable("The reply is no JSON object", self._secrets.hide(text))
        failure = faults.failure_in_reply(body, server)
        if failure is not None:
            raise failure
        return body


class JsonClient(_JsonClient):
    """Sends many requests at a time to a server that takes and returns JSON.

    version: the part that base_url may lack, e.g. '/v1'. It is tried if a server does not know an
    address. limits: the headers in which the server reports its rate limits.

    Attributes:
        base_url: The address, once found with its version.
        has_streamed: Whether any reply came as a stream, requested or not.
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
        # Takes 0.1 s, which only those who send requests should pay.
        import httpx

        super().__init__(base_url, headers, key_env, plain)
        self._version, self._limit_headers = version, limits
        self._reached = False
        self.has_streamed = False
        pool = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        self._client = self._opened(httpx.AsyncClient, limits=pool)

    async def ask(self, path: str, body: bytes, timeout_s: float, read: Reader) -> Answer:
        """Return one answer.

        Raises Unmeasured if the server returns no answer.

        read: makes it of a reply's JSON object and its seconds.
        """
        base_url = self.base_url
        try:
            return await self._once(base_url, path, body, timeout_s, read)
        except Unmeasured as failure:
            has_version = VERSIONED.search(base_url) or is_deployment(base_url)
            if not failure.misplaced or not self._version or has_version:
                raise

        versioned_url = join_address(base_url, self._version)
        answer = await self._once(versioned_url, path, body, timeout_s, read)
        # Another lane may have found it meanwhile. One note is enough.
        if self.base_url == versioned_url:
            return answer
        self.base_url = versioned_url
        note = f"{base_url} knows no {path}: asked at {versioned_url}, as --base-url may say"
        return replace(answer, note=note)

    async def look_up(self, path: str, body: bytes | None, timeout_s: float) -> dict[str, Any]:
        """Return a reply's JSON object from an address outside /v1.

        Raises Unmeasured if the server returns no such object.

        body: None for a GET.
        """
        root = self.base_url.removesuffix("/v1")
        try:
            url = join_address(root, path)
            return self.object_in(await self._send(url, body, timeout_s, root), root)
        except Unmeasured as failure:
            self.hide(failure)
            raise

    async def _once(
        self, base_url: str, path: str, body: bytes, timeout_s: float, read: Reader
    ) -> Answer:
        """Return one answer from one address.

        Raises Unmeasured if the server returns no answer.
        """
        start = perf_counter()
        # The limits in a reply are those of the moment at which the request was sent.
        sent_s = time()
        first_token_s: float | None = None
        try:
            reply = await self._send(join_address(base_url, path), body, timeout_s, base_url)
            latency_s = perf_counter() - start - reply.listened_s
            streamed = reply.streamed
            if streamed is not None:
                self.has_streamed = True
                if streamed.ended_at:
                    latency_s = streamed.ended_at - start
                if streamed.first_token_at:
                    first_token_s = streamed.first_token_at - start
            answer = read(self.object_in(reply, base_url), latency_s)
        except Unmeasured as failure:
            self.hide(failure)
            # A stream that broke off may be billed.
            if first_token_s is not None and failure.spent is None:
                failure.spent = Spent()
            # Only a failure of a reply has a status.
            if failure.status is not None:
                failure.allowance = read_allowance(reply.headers, sent_s, self._limit_headers)
            raise
        allowance = read_allowance(reply.headers, sent_s, self._limit_headers)
        return replace(answer, allowance=allowance, first_token_s=first_token_s)

    async def _send(self, url: str, body: bytes | None, timeout_s: float, server: str) -> HttpReply:
        """Return a reply. Raise Unmeasured, which knows whether any connection was ever made."""
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
        """Return the reply to a POST with a body, or to a GET without one.

        Raises Unmeasured, which knows whether the request may be billed.
        """
        # Takes 0.04 s, which those who only build prompts should not pay.
        import asyncio

        import httpx

        method = "GET" if body is None else "POST"
        clock = asyncio.get_running_loop().time
        reading: _Body | None = None
        with _limits(server, timeout_s) as limits:
            try:
                async with (
                    asyncio.timeout(timeout_s) as attempt,
                    self._client.stream(method, url, content=body, timeout=limits) as response,
                ):
                    reading = _Body(response, LARGEST_BYTES)
                    # A redirect is not followed, and its body is not read.
                    if not response.is_redirect:
                        async for piece in response.aiter_bytes():
                            was_whole = reading.is_whole
                            if not reading.add(piece):
                                break
                            if reading.is_whole and not was_whole:
                                attempt.reschedule(clock() + _LINGER_S)
            except (TimeoutError, httpx.HTTPError):
                # Behind the last event of a stream nothing is missing.
                if reading is None or not reading.is_whole:
                    raise
            return reading.reply()

    async def close(self) -> None:
        """Release connections."""
        await self._client.aclose()


class SyncJsonClient(_JsonClient):
    """Sends one request after the other and waits, for code that counts tokens in passing."""

    _client: Client | None = None

    def ask(
        self, method: str, path: str, body: bytes, timeout_s: float, most: int, do: str = ""
    ) -> HttpReply:
        """Return a reply of at most `most` bytes, within timeout_s however slowly it comes.

        do: what else a user may do if the time is up. Raises Unmeasured, and TimeUp if the
        command's own time ends before.
        """
        # Takes 0.1 s, which only those who send requests should pay.
        import httpx

        client = self._client or self._opened(httpx.Client)
        self._client = client
        url = join_address(self.base_url, path)

        def stream_reply() -> HttpReply:
            """Run in a thread.

            A blocking client looks at no clock while a header comes in byte by byte.
            """
            with client.stream(method, url, content=body, timeout=limits) as response:
                reading = _Body(response, most)
                if not response.is_redirect:
                    for piece in response.iter_bytes():
                        if not reading.add(piece) or reading.is_whole:
                            break
                return reading.reply()

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
    """A body that is read in pieces. Raises Unmeasured for one that is over the limit."""

    def __init__(self, response: Response, most: int) -> None:
        from needlemap.http.framing import framing_of

        self._response, self._data = response, bytearray()
        self._framing = framing_of(response)
        self._most, self._size = most, 0
        self._media_type = response.headers.get("content-type", "")
        self._is_stream: bool | None = None if response.is_success else False
        self._streamed: StreamedReply | None = None
        packed = response.headers.get("content-encoding", "").strip().lower()
        if packed not in _PACKED:
            raise faults.unreadable("The reply is packed in a way that was not asked for", packed)

    @property
    def is_whole(self) -> bool:
        """Return True if the server sent the last event of a stream."""
        return self._streamed is not None and self._streamed.is_ended

    def add(self, piece: bytes) -> bool:
        """Add a piece. Return False if no more is to be read."""
        self._size += len(piece)
        if not self._response.is_success and self._size > _REFUSAL_BYTES:
            return False
        if self._size > self._most:
            raise faults.unreadable("The reply is too large", f"more than {self._most // 2**20} MB")
        if self._streamed is None:
            self._data += piece
            piece = self._start_stream()
        if self._streamed is not None:
            # The last pieces came before the connection was listened to.
            self._streamed.feed(piece, perf_counter() - self._framing.listened_s)
        return True

    def _start_stream(self) -> bytes:
        """Return all that came so far if it is the start of a stream, else b''."""
        if self._is_stream is None:
            # Servers send blanks before an answer to keep the connection alive.
            self._data = self._data.lstrip()
            self._is_stream = is_stream(bytes(self._data[:_START_BYTES]), self._media_type)
        if not self._is_stream:
            return b""
        data, self._data = bytes(self._data), bytearray()
        self._streamed = StreamedReply()
        return data

    def reply(self) -> HttpReply:
        """Return the reply. Raise Unmeasured if it may not be the answer to this request."""
        framing = self._framing
        # JSON is UTF-8, whatever a header says.
        text = words_of(self._data.decode("utf-8-sig", "replace"))
        if framing.doubt:
            doubt = f"The connection is closed: of its reply, {framing.doubt}"
            raise faults.unreadable(doubt, message_of(text), transient=True)
        return HttpReply(
            status=self._response.status_code,
            headers=self._response.headers,
            text=text,
            listened_s=framing.listened_s,
            streamed=self._streamed,
        )


@contextmanager
def _limits(server: str, timeout_s: float, by: str = " (setting: timeout_s)") -> Iterator[Any]:
    """Yield an attempt's limits in time, and raise any failure of a connection as Unmeasured.

    by: who set the limit, for the message.
    """
    import httpx

    # Less than the attempt, so that its error shows which of the two ended it.
    connect_s = min(0.9 * timeout_s, CONNECT_S)
    try:
        yield httpx.Timeout(timeout_s, connect=connect_s)
    except (httpx.ConnectTimeout, httpx.PoolTimeout):
        raise faults.no_answer_failure(server, connect_s) from None
    except (TimeoutError, httpx.TimeoutException):
        raise faults.timeout_failure(timeout_s, by) from None
    except (
        httpx.ConnectError,
        httpx.ProxyError,
        httpx.UnsupportedProtocol,
        httpx.InvalidURL,
    ) as error:
        raise faults.connection_failure(error, server, sent=False) from None
    except httpx.DecodingError as error:
        raise faults.unreadable(
            "The reply cannot be unpacked", str(error), transient=True
        ) from None
    except (httpx.HTTPError, OSError) as error:
        raise faults.connection_failure(error, server) from None
