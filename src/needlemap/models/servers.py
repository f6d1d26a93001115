"""Models behind HTTP: an answer made of a reply's JSON object, and the server's counts in either format.

Nothing is asked again here, but for an address that lacks its /v1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import perf_counter, time
from typing import Any

from needlemap.errors import Failure, SettingsError, Spent, Unmeasured
from needlemap.http import faults
from needlemap.http.faults import allowance
from needlemap.http.server import Door, Reply, WaitingDoor, from_environment
from needlemap.models.base import Answer, tokens

_VERSIONED = re.compile(r"/v\d")
RESERVED = (
    "model",
    "messages",
    "prompt",
    "system",
    "stream",
    "n",
)  # asking differently is a setting of its own
_KEY = "OPENAI_API_KEY"
_TOLD_S, _TOLD_BYTES = 10.0, 4_000_000  # for what a server tells of itself
Reader = Callable[[dict[str, Any], float], Answer]


class Server(Door):
    """A server that takes JSON and answers in JSON. headers: what goes with each request beside our own, in
    secret.

    version: what base_url may lack ('/v1'), tried once where a server knows no such address.
    Raises SettingsError when no connection can be made at all, as with an unusable proxy.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str], version: str = "") -> None:
        super().__init__(headers)
        self.base_url, self._version = base_url, version

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
            reply = await self.post(root, path, body, timeout_s)
            self.check(reply, root)
            return self.object_in(reply, root)
        except Unmeasured as failure:
            self.hide(failure)
            raise

    async def _once(self, base_url: str, path: str, body: bytes, timeout_s: float, read: Reader) -> Answer:
        start, sent_s = perf_counter(), time()  # what a server says of its limits, it saw when asked
        try:
            reply = await self.post(base_url, path, body, timeout_s)
            took_s = perf_counter() - start
            self.check(reply, base_url)
            answer = self._understood(reply, base_url, took_s, read)
        except Unmeasured as failure:
            self.hide(failure)
            if failure.status is not None:
                failure.allowance = allowance(reply.headers, sent_s)
            raise
        return replace(answer, allowance=allowance(reply.headers, sent_s))

    def _understood(self, reply: Reply, base_url: str, took_s: float, read: Reader) -> Answer:
        """The answer in a reply. Raises Unmeasured, with what the server says that it took."""
        body: dict[str, Any] = {}
        try:
            body = self.object_in(reply, base_url)
            return read(body, took_s)
        except Unmeasured as failure:
            if failure.failure is Failure.UNREADABLE:
                failure.spent = spent(body)
            raise
        except Exception as error:  # whatever a reply makes of our reading is the reply's fault
            odd = faults.unreadable("The reply cannot be read", f"{type(error).__name__}: {error}")
            odd.spent = spent(body)
            raise odd from None


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


def check_request(request: Mapping[str, Any]) -> None:
    """Raises SettingsError for request fields that would change what is asked behind the record's back."""
    for field in RESERVED:
        if field in request:
            raise SettingsError(
                f"Request field '{field}' cannot be set: needlemap sets it. Remove it from 'request'."
            )


def context_told(base_url: str, model: str) -> int | None:
    """Tokens of prompt and answer that a server says a model takes: in its list of models (vLLM, SGLang), or
    of itself (llama.cpp); None where it says nothing."""
    key = from_environment(_KEY)
    door = WaitingDoor({"authorization": f"Bearer {key}"} if key else {})
    where = base_url.rstrip("/")
    try:
        listed = _told(door, where, "/models").get("data")
        rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
        for row in rows:
            if row.get("id") == model and (found := tokens(row.get("max_model_len"))):
                return found
        itself = _told(door, _VERSIONED.sub("", where), "/props").get("default_generation_settings")
        return tokens(itself.get("n_ctx")) or None if isinstance(itself, dict) else None
    finally:
        door.close()


def _told(door: WaitingDoor, server: str, path: str) -> dict[str, Any]:
    """A server's word; nothing where it has none."""
    try:
        reply = door.get(server, path, _TOLD_S, _TOLD_BYTES)
        door.check(reply, server)
        return door.object_in(reply, server)
    except Unmeasured:
        return {}
