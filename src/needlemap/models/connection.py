"""What the two official SDKs share: a key from the environment, and one request whose reply is plain JSON.

Both SDKs come from one generator: their exceptions and raw responses have the same attributes. Replies are
read as JSON, not as the SDK's objects, so that every provider's own usage fields survive.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Awaitable, Mapping
from time import time
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from needlemap.errors import SettingsError, Unmeasured
from needlemap.models import faults
from needlemap.models.allowance import Allowance, allowance

NO_KEY = "none"  # local servers want none, the SDKs insist on some text
CONNECT_S = 20.0  # for a connection, at most: an address that nobody answers at is not waited for
SHORTEST_SECRET = 6  # characters; shorter ones would be found in plain words
_PLAIN = re.compile(
    r"(accept(-encoding)?|anthropic-(version|beta)|connection|content-|host|user-agent|x-stainless)"
)
RESERVED = (
    "model",
    "messages",
    "prompt",
    "system",
    "stream",
    "n",
)  # asking differently is a setting of its own


def base_url_of(given: str | None, variable: str, home: str) -> str:
    """Where to ask: what was given, else the environment's, else the provider's own address.

    Raises SettingsError for what is no address, and for one that holds a key.
    """
    url = given or os.environ.get(variable) or home
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise SettingsError(
            f"'{faults.hidden(url)}' is no base URL. Type one such as http://127.0.0.1:8000/v1."
        )
    check_no_key(url, variable.replace("BASE_URL", "API_KEY"))
    return url.rstrip("/")


def check_no_key(url: str, variable: str = "OPENAI_API_KEY") -> None:
    """Raises SettingsError for an address that holds a key: run.json and error messages would keep it."""
    if faults.hidden(url) != url:
        raise SettingsError(
            f"The base URL {faults.hidden(url)} holds a key, which run.json would keep. Take it out, and "
            f"type: export {variable}=YOUR-KEY"
        )


def key_of(variable: str, base_url: str, host: str, *, required: bool = False) -> str:
    """The key in the environment; a placeholder for a server elsewhere than at the provider's own host."""
    key = os.environ.get(variable, "").strip()
    if not key.isascii() or not key.isprintable():
        raise SettingsError(f"The key in {variable} holds a character no key has. Copy it again.")
    if key:
        return key
    if required or at_home(base_url, host):
        raise SettingsError(f"No key for {urlsplit(base_url).hostname}. Type: export {variable}=YOUR-KEY")
    return NO_KEY


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


async def reply(
    sdk: ModuleType, raw_response: Awaitable[Any], *, timeout_s: float, server: str, secret: str
) -> tuple[dict[str, Any], Allowance | None]:
    """One reply's JSON object, and what its headers say of the server's limits. Raises Unmeasured.

    raw_response: the SDK's request for it, not yet awaited.
    """
    import asyncio  # 0.04 s: not for those who only build prompts

    sent_s = time()  # what a server says of its limits, it saw when the request came
    try:
        async with asyncio.timeout(timeout_s):
            response = (await raw_response).http_response
            text: str = response.text
    except (TimeoutError, sdk.APITimeoutError) as error:
        if _unconnected(error):
            raise faults.unanswered(server, connect_s(timeout_s), secret) from None
        raise faults.timed_out(timeout_s) from None
    except sdk.APIStatusError as error:
        raise _refused(error, server, secret, sent_s) from None
    except sdk.APIConnectionError as error:
        raise faults.lost(error, server, secret) from None
    return _object(unsaid(text, response, secret), server, secret), allowance(response.headers, sent_s)


def connect_s(timeout_s: float) -> float:
    """How long a connection may take: less than the attempt, so that the two can be told apart."""
    return min(0.9 * timeout_s, CONNECT_S)


def limits_of(sdk: ModuleType, timeout_s: float) -> Any:
    """An SDK's time-outs for one attempt in seconds: less for the connection than for the answer."""
    return sdk.Timeout(timeout_s, connect=connect_s(timeout_s))


def _unconnected(error: BaseException) -> bool:
    """Whether a time-out was that of the connection, so that nothing was sent."""
    return type(error.__cause__).__name__ == "ConnectTimeout"


def unsaid(text: str, response: Any, secret: str) -> str:
    """A reply without what it says back of the secrets that were sent: the key, and all headers that come
    from the user's environment (ANTHROPIC_CUSTOM_HEADERS, organisations)."""
    sent = {name: value for name, value in response.request.headers.items() if not _PLAIN.match(name)}
    said = {secret, *sent.values(), *(value.removeprefix("Bearer ") for value in sent.values())}
    for each in sorted(said, key=len, reverse=True):
        if len(each) >= SHORTEST_SECRET:
            text = text.replace(each, "[hidden]")
    return text


def _refused(error: Any, server: str, secret: str, sent_s: float) -> Unmeasured:
    response = error.response
    said = unsaid(response.text, response, secret)
    refused = faults.from_status(response.status_code, said, response.headers, server=server, secret=secret)
    refused.allowance = allowance(response.headers, sent_s)
    return refused


def _object(text: str, server: str, secret: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError:
        raise faults.unreadable("The reply is no JSON", text, transient=True, secret=secret) from None
    if "\\ud" in text:  # half a character (a lone surrogate), which no file can hold
        body = json.loads(json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"))
    if not isinstance(body, dict):
        raise faults.unreadable("The reply is no JSON object", text, secret=secret)
    error = body.get("error")
    if error:  # gateways report an error of the server behind them with status 200
        status = error.get("code") if isinstance(error, dict) else None
        if isinstance(status, int) and status >= 400:
            raise faults.from_status(status, text, {}, server=server, secret=secret)
        raise faults.unreadable("The reply is an error", faults.message_of(text), secret=secret)
    return body


def count(usage: Mapping[str, Any], *path: str) -> int | None:
    """A token count at a path of a usage report, or None where the provider gives none."""
    from needlemap.models.base import tokens  # late: its import of arrays would slow --help down

    value: Any = usage
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return tokens(value)
