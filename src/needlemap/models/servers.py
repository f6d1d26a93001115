"""Servers of models: an answer made of a reply's JSON object, and what a server tells of itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from needlemap.allowance import LIMIT_HEADERS
from needlemap.errors import Failure, SettingsError, Spent, Unmeasured
from needlemap.finishes import CONTENT_FILTER
from needlemap.http import JsonClient, Sent, custom_headers, faults, key_of
from needlemap.http.served import get, models_at
from needlemap.models import Answer, Decoding, Model
from needlemap.models.streaming import Streaming
from needlemap.untrusted import clean_count

if TYPE_CHECKING:
    from needlemap.http.client import Reader

RESERVED = (
    "model",
    "messages",
    "prompt",
    "input",
    "instructions",
    "system",
    "stream",
    "n",
)  # asking differently is another setting


class ServedModel(Model):
    """A model behind a provider's API, or behind a server that speaks as it does.

    plain_headers: those that hold no
    secret. limit_headers: those that say what the server still takes (`LIMIT_HEADERS`).
    usage_field: the field of a request that has a stream end with a report of tokens.
    """

    streams = True
    usage_field: Mapping[str, Any] = {}
    plain_headers: tuple[str, ...] = ()
    limit_headers: tuple[str, ...] = LIMIT_HEADERS

    def __init__(self, name: str, base_url: str, key_env: str, version: str = "") -> None:
        self.name = name
        key = key_of(key_env, base_url, self.host, required=key_env != self.key_variable)
        sent = {header: value for header, value in self.headers(key).items() if value}
        sent |= custom_headers(self.headers_variable)
        known = self.plain_headers, self.limit_headers
        self._server = JsonClient(base_url, sent, version, key_env, *known)
        self._streaming = Streaming(self.usage_field)

    @property
    def base_url(self) -> str:
        """Where it is asked; with what the address lacked as soon as the server turns out to
        want that."""
        return self._server.base_url

    def headers(self, key: str) -> dict[str, str]:
        """What goes with each request, by the names of the provider's own client. Raises
        SettingsError."""
        raise NotImplementedError

    async def answer_in(self, path: str, body: bytes, timeout_s: float, read: Reader) -> Answer:
        """The answer that a server sends to one request; one that its filter withheld is empty,
        however it says so. Raises Unmeasured."""
        start = perf_counter()
        try:
            return await self._server.ask(path, body, timeout_s, read)
        except Unmeasured as refused:
            if not refused.filtered:
                raise
            allowance, took_s = refused.allowance, perf_counter() - start
            return Answer("", CONTENT_FILTER, latency_s=took_s, allowance=allowance)

    async def stream_as_wanted(
        self, decoding: Decoding, ask: Callable[[Mapping[str, Any]], Awaitable[Answer]]
    ) -> Answer:
        """Ask, and again as the server says that it streams. ask: sends a request with these
        fields besides its own. Raises Unmeasured."""
        streaming = self._streaming
        while True:
            fields = streaming.fields(decoding)
            try:
                answer = await ask(fields)
            except Unmeasured as refused:
                if not streaming.learn(fields, refused):
                    raise
                continue
            if fields or not self._server.has_streamed or streaming.is_wanted:
                return answer
            streaming.is_wanted = True
            note = f"{self.base_url} streams its answers: asked as with --stream from now on"
            return replace(answer, note="; ".join(filter(None, (answer.note, note))))

    async def close(self) -> None:
        """Release connections."""
        await self._server.close()


def spent(body: Mapping[str, Any]) -> Spent:
    """What a reply says that it took, in OpenAI's names, and in those that others mix with
    them."""
    usage = body.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    sent, written = (
        next((found for name in names if (found := count(usage, name))), None)
        for names in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))
    )
    return Spent(count(usage, "prompt_tokens") if sent is None else sent, written or 0)


def understood(
    read: Reader,
    body: dict[str, Any],
    took_s: float,
    spent: Callable[[Mapping[str, Any]], Spent] = spent,
) -> Answer:
    """The answer in a reply by `read`. Raises Unmeasured, with what the server says that it
    took.

    spent: reads that.
    """
    try:
        return read(body, took_s)
    except Unmeasured as failure:
        if failure.spent is not None or failure.failure is Failure.UNREADABLE:
            failure.spent = spent(body)
        raise
    except Exception as error:  # whatever a reply makes of our reading is the reply's fault
        odd = faults.unreadable("The reply cannot be read", f"{type(error).__name__}: {error}")
        odd.spent = spent(body)
        raise odd from None


def choice_of(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """The choice with index 0 of a reply's list, wherever it stands there; the first without an
    index where none has that. None for a list without either, and for two that differ.

    >>> choice_of({"choices": [{"index": 1, "text": "b"}, {"index": 0, "text": "a"}]})
    {'index': 0, 'text': 'a'}
    """
    listed = body.get("choices")
    rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
    first = [row for row in rows if row.get("index") == 0 and row["index"] is not False]
    if not first:
        first = [row for row in rows if row.get("index") is None][:1]
    return first[0] if first and all(row == first[0] for row in first) else None


def count(usage: Mapping[str, Any], *path: str) -> int | None:
    """A token count at a path of a usage report, or None where the provider gives none."""
    value: Any = usage
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return clean_count(value)


def texts_of(parts: Any, field: str = "text") -> list[str]:
    """The texts of an answer's parts; parts without one have none."""
    return [
        part[field] for part in parts if isinstance(part, dict) and isinstance(part.get(field), str)
    ]


def check_request(request: Mapping[str, Any]) -> None:
    """Raises SettingsError for request fields that would change the prompt without a record of
    it."""
    if "stream" in request:
        raise SettingsError("Request field 'stream' cannot be set. Type --stream instead.")
    for field in RESERVED:
        if field in request:
            raise SettingsError(
                f"Request field '{field}' cannot be set: needlemap sets it. Remove it from "
                f"'request'."
            )


def is_up(url: str) -> bool:
    """Whether a server lists its models, and is healthy where it says anything of that. url: may
    lack its /v1."""
    root, sent = url.removesuffix("/v1"), Sent()
    try:
        return models_at(url, sent)[1] == 200 and get(root, "/health", sent)[0] in (200, 404)
    except Unmeasured:
        return False
