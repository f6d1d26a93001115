"""The one door to models behind HTTP: one request, its reply's JSON object, read within bounds.

Redirects are not followed, a body is read by pieces up to `LARGEST_BYTES` unpacked, and what was sent in
secret is hidden in whatever comes back before anybody sees it. Nothing is asked again here, but for an
address that lacks its /v1. Replies are read as plain JSON, so that every provider's own fields survive.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from ipaddress import ip_address
from time import perf_counter, time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from needlemap.errors import Failure, SettingsError, Spent, Unmeasured
from needlemap.models import faults
from needlemap.models.allowance import allowance
from needlemap.models.base import Answer, tokens
from needlemap.secrets import Secrets, hidden, scrub
from needlemap.version import __version__

if TYPE_CHECKING:
    from httpx import Response

NO_KEY = "none"  # local servers want none: nothing is sent
CONNECT_S = 20.0  # for a connection, at most: an address that nobody answers at is not waited for
LARGEST_BYTES = 64 * 2**20  # of a reply's body, unpacked
_REFUSAL_BYTES = 2**20  # of a refusal's body; what is behind is not read
_MOST_PARTS = 5_000_000  # of a reply's JSON: each becomes an object in memory
_PACKED = ("", "identity", "gzip", "deflate")  # one layer of what unpacks by at most 1,032 times
_VERSIONED = re.compile(r"/v\d")
_PLAIN = ("anthropic-version", "anthropic-beta", "user-agent", "accept", "content-type")  # no secrets
_HEADER = re.compile(r"[!#$%&'*+.^_`|~\w-]+", re.ASCII)
RESERVED = (
    "model",
    "messages",
    "prompt",
    "system",
    "stream",
    "n",
)  # asking differently is a setting of its own


class Server:
    """A server that takes JSON and answers in JSON. headers: what goes with each request beside our own, in
    secret.

    version: what base_url may lack ('/v1'), tried once where a server knows no such address.
    Raises SettingsError when no connection can be made at all, as with an unusable proxy.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str], version: str = "") -> None:
        import httpx  # 0.1 s: only for those who ask

        self.base_url, self._version = base_url, version
        self._secrets = Secrets(value for name, value in headers.items() if name not in _PLAIN)
        own = {
            "content-type": "application/json",
            "accept": "application/json",
            "accept-encoding": "gzip, deflate",
            "user-agent": f"needlemap/{__version__}",
        }
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        try:
            self._client = httpx.AsyncClient(
                headers={**own, **headers}, limits=limits, follow_redirects=False
            )
        except Exception as error:  # the environment's proxies and certificates
            said = scrub(f"{type(error).__name__}: {error}")
            raise SettingsError(
                f"No connections can be made: {said}. Check HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE."
            ) from None

    async def ask(self, path: str, body: bytes, timeout_s: float, read: Reader) -> Answer:
        """One answer. read: makes it of a reply's JSON object and its seconds. Raises Unmeasured."""
        base_url = self.base_url
        try:
            return await self._once(base_url, path, body, timeout_s, read)
        except Unmeasured as refused:
            if refused.status != 404 or not self._version or _VERSIONED.search(base_url):
                raise
        other = base_url + self._version
        answer = await self._once(other, path, body, timeout_s, read)
        if self.base_url == other:  # another lane found it too
            return answer
        self.base_url = other
        return replace(answer, note=f"{base_url} knows no {path}: asked at {other}, as --base-url may say")

    async def look_up(self, path: str, body: bytes, timeout_s: float) -> dict[str, Any]:
        """A reply's JSON object, of an address beside the API's own. Raises Unmeasured."""
        root = self.base_url.removesuffix("/v1")
        try:
            response, data = await self._sent(root, path, body, timeout_s)
            self._check(response, data, root)
            return self._object(text_of(data), root)
        except Unmeasured as failure:
            failure.args = (self._secrets.hide(str(failure)),)
            raise

    async def close(self) -> None:
        """Release connections."""
        await self._client.aclose()

    async def _once(self, base_url: str, path: str, body: bytes, timeout_s: float, read: Reader) -> Answer:
        start, sent_s = perf_counter(), time()  # what a server says of its limits, it saw when asked
        try:
            response, data = await self._sent(base_url, path, body, timeout_s)
            took_s = perf_counter() - start
            self._check(response, data, base_url)
            answer = self._understood(text_of(data), base_url, took_s, read)
        except Unmeasured as failure:
            failure.args = (self._secrets.hide(str(failure)),)
            if failure.status is not None:
                failure.allowance = allowance(response.headers, sent_s)
            raise
        return replace(answer, allowance=allowance(response.headers, sent_s))

    def _check(self, response: Response, data: bytes, base_url: str) -> None:
        """Raises Unmeasured for a refusal."""
        if not response.is_success:
            said = self._secrets.hide(text_of(data))
            raise faults.from_status(response.status_code, said, response.headers, server=base_url)

    async def _sent(self, base_url: str, path: str, body: bytes, timeout_s: float) -> tuple[Response, bytes]:
        """A reply with its body. Raises Unmeasured, which says whether the request may be billed."""
        import asyncio  # 0.04 s: not for those who only build prompts

        import httpx

        limits = httpx.Timeout(timeout_s, connect=connect_s(timeout_s))
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._client.stream("POST", base_url + path, content=body, timeout=limits) as response,
            ):
                return response, await _body(response)
        except (httpx.ConnectTimeout, httpx.PoolTimeout):
            raise faults.unanswered(base_url, connect_s(timeout_s)) from None
        except (TimeoutError, httpx.TimeoutException):
            raise faults.timed_out(timeout_s) from None
        except (httpx.ConnectError, httpx.ProxyError, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise faults.lost(error, base_url, sent=False) from None
        except httpx.DecodingError as error:
            raise faults.unreadable("The reply cannot be unpacked", str(error), transient=True) from None
        except (httpx.HTTPError, OSError) as error:
            raise faults.lost(error, base_url) from None

    def _understood(self, text: str, base_url: str, took_s: float, read: Reader) -> Answer:
        """The answer in a body. Raises Unmeasured, with what the server says that it took."""
        body: dict[str, Any] = {}
        try:
            body = self._object(text, base_url)
            return read(body, took_s)
        except Unmeasured as failure:
            if failure.failure is Failure.UNREADABLE:
                failure.spent = spent(body)
            raise
        except Exception as error:  # whatever a reply makes of our reading is the reply's fault
            odd = faults.unreadable("The reply cannot be read", f"{type(error).__name__}: {error}")
            odd.spent = spent(body)
            raise odd from None

    def _object(self, text: str, base_url: str) -> dict[str, Any]:
        if text.count("[") + text.count("{") + text.count(",") > _MOST_PARTS:
            raise faults.unreadable("The reply has too many parts", f"more than {_MOST_PARTS:,}")
        try:
            body = self._secrets.hide_in(json.loads(text))
        except ValueError:
            raise faults.unreadable(
                "The reply is no JSON", self._secrets.hide(faults.message_of(text)), transient=True
            ) from None
        if not isinstance(body, dict):
            raise faults.unreadable("The reply is no JSON object", self._secrets.hide(text))
        error = body.get("error")
        if error:  # gateways report an error of the server behind them with status 200
            status = error.get("code") if isinstance(error, dict) else None
            said = json.dumps(body, ensure_ascii=False)
            if isinstance(status, int) and status >= 400:
                raise faults.from_status(status, said, {}, server=base_url)
            raise faults.unreadable("The reply is an error", faults.message_of(said))
        return body


Reader = Callable[[dict[str, Any], float], Answer]


async def _body(response: Response) -> bytes:
    """A body up to what is read of one. Raises Unmeasured for one that goes on."""
    packed = response.headers.get("content-encoding", "").strip().lower()
    if packed not in _PACKED:
        raise faults.unreadable("The reply is packed in a way that was not asked for", packed)
    data = bytearray()
    async for piece in response.aiter_bytes():
        data += piece
        if not response.is_success and len(data) > _REFUSAL_BYTES:
            break
        if len(data) > LARGEST_BYTES:
            raise faults.unreadable("The reply is too large", f"more than {LARGEST_BYTES // 2**20} MB")
    return bytes(data)


def text_of(data: bytes) -> str:
    """A body's text: JSON is UTF-8, whatever a header says."""
    return data.decode("utf-8-sig", "replace")


def connect_s(timeout_s: float) -> float:
    """How long a connection may take: less than the attempt, so that the two can be told apart."""
    return min(0.9 * timeout_s, CONNECT_S)


def spent(body: Mapping[str, Any]) -> Spent:
    """What a reply says that it took, in either wire format."""
    usage = body.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    sent = count(usage, "prompt_tokens")
    return Spent(
        sent_tokens(usage) if sent is None else sent,
        next((found for name in ("completion_tokens", "output_tokens") if (found := count(usage, name))), 0),
    )


def sent_tokens(usage: Mapping[str, Any]) -> int | None:
    """The prompt's tokens in Anthropic's report, which counts those of its cache apart."""
    fresh, *cached = (count(usage, f"{name}input_tokens") for name in ("", "cache_read_", "cache_creation_"))
    return None if fresh is None else fresh + sum(part or 0 for part in cached)


def count(usage: Mapping[str, Any], *path: str) -> int | None:
    """A token count at a path of a usage report, or None where the provider gives none."""
    value: Any = usage
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return tokens(value)


def texts_of(parts: Any, field: str = "text") -> list[str]:
    """The texts of an answer's parts; parts without one have none."""
    return [part[field] for part in parts if isinstance(part, dict) and isinstance(part.get(field), str)]


def base_url_of(given: str | None, variable: str, home: str) -> str:
    """Where to ask: what was given, else the environment's, else the provider's own address.

    Raises SettingsError for what is no address, and for one that holds a key.
    """
    url = given or os.environ.get(variable) or home
    check_address(url, variable.replace("BASE_URL", "API_KEY"))
    return url.rstrip("/")


def check_address(url: str, variable: str = "OPENAI_API_KEY") -> None:
    """Raises SettingsError for what is no address, and for one that holds a key: run.json and error messages
    would keep it."""
    shown = hidden(url)
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        host = parts.hostname or ""
        host.encode("idna")
        if host.rpartition(".")[2].isdigit():
            ip_address(host)
    except ValueError:
        sound = False
    if not sound:
        raise SettingsError(f"'{shown}' is no base URL. Type one such as http://127.0.0.1:8000/v1.")
    if shown != url:
        raise SettingsError(
            f"The base URL {shown} holds a key, which run.json would keep. Take it out, and "
            f"type: export {variable}=YOUR-KEY"
        )


def key_of(variable: str, base_url: str, host: str, *, required: bool = False) -> str:
    """The key in the environment; a placeholder for a server elsewhere than at the provider's own host."""
    key = from_environment(variable)
    if key:
        return key
    if required or at_home(base_url, host):
        raise SettingsError(f"No key for {urlsplit(base_url).hostname}. Type: export {variable}=YOUR-KEY")
    return NO_KEY


def from_environment(variable: str) -> str:
    """A key, or what else goes into a header; '' for none. Raises SettingsError for what no header holds."""
    value = os.environ.get(variable, "").strip()
    if not value.isascii() or not value.isprintable():
        raise SettingsError(f"The key in {variable} holds a character no key has. Copy it again.")
    return value


def custom_headers(variable: str) -> dict[str, str]:
    """Headers that the environment names, one a line, as the providers' own clients read them.

    Raises SettingsError.
    """
    found = {}
    for line in filter(str.strip, os.environ.get(variable, "").splitlines()):
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not colon or not _HEADER.fullmatch(name) or not value.isascii() or not value.isprintable():
            raise SettingsError(
                f"{variable} holds a line that is no header. Write 'Name: value', one a line."
            )
        found[name.lower()] = value
    return found


def at_home(base_url: str, host: str) -> bool:
    """Whether a base URL leads to the provider itself, or to one of its regions."""
    where = urlsplit(base_url).hostname or ""
    return where == host or where.endswith(f".{host}")


def check_request(request: Mapping[str, Any]) -> None:
    """Raises SettingsError for request fields that would change what is asked behind the record's back."""
    for field in RESERVED:
        if field in request:
            raise SettingsError(
                f"Request field '{field}' cannot be set: needlemap sets it. Remove it from 'request'."
            )
