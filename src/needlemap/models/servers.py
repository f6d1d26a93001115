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

# Sending something else is another setting.
RESERVED = (
    "model",
    "messages",
    "prompt",
    "input",
    "instructions",
    "system",
    "stream",
    "n",
)


class ServedModel(Model):
    """A model behind a provider's API, or behind a server with the same API.

    Attributes:
        usage_field: The field of a request after which a stream ends with a report of tokens.
        plain_headers: Headers that hold no secret.
        limit_headers: Headers in which the server reports its rate limits.
    """

    streams = True
    usage_field: Mapping[str, Any] = {}
    plain_headers: tuple[str, ...] = ()
    limit_headers: tuple[str, ...] = LIMIT_HEADERS

    def __init__(self, name: str, base_url: str, key_env: str, version: str = "") -> None:
        self.name = name
        key = key_of(key_env, base_url, self.host, required=key_env != self.key_variable)
        headers = {header: value for header, value in self.headers(key).items() if value}
        headers |= custom_headers(self.headers_variable)
        self._server = JsonClient(
            base_url,
            headers,
            version=version,
            key_env=key_env,
            plain=self.plain_headers,
            limits=self.limit_headers,
        )
        self._streaming = Streaming(self.usage_field)

    @property
    def base_url(self) -> str:
        """Return its address, with the version that it lacked once that is found."""
        return self._server.base_url

    def headers(self, key: str) -> dict[str, str]:
        """Return the headers of each request, as the provider's own client sends them.

        Raises SettingsError for a key that no header holds.
        """
        raise NotImplementedError

    async def answer_in(self, path: str, body: bytes, timeout_s: float, read: Reader) -> Answer:
        """Return a server's answer to one request.

        If a content filter withheld the answer, it is '', however the server reports that. Raise
        Unmeasured if no answer comes.
        """
        start = perf_counter()
        try:
            return await self._server.ask(path, body, timeout_s, read)
        except Unmeasured as failure:
            if not failure.filtered:
                raise
            return Answer(
                "",
                CONTENT_FILTER,
                latency_s=perf_counter() - start,
                allowance=failure.allowance,
            )

    async def stream_as_wanted(
        self, decoding: Decoding, ask: Callable[[Mapping[str, Any]], Awaitable[Answer]]
    ) -> Answer:
        """Return an answer, streamed or not as the server requires.

        Raises Unmeasured if the server returns no answer.

        ask: sends a request with these fields in addition to its own.
        """
        streaming = self._streaming
        while True:
            fields = streaming.fields(decoding)
            try:
                answer = await ask(fields)
            except Unmeasured as failure:
                if not streaming.learn(fields, failure):
                    raise
                continue
            if fields or not self._server.has_streamed or streaming.is_wanted:
                return answer
            streaming.is_wanted = True
            note = f"{self.base_url} streams its answers: asked as with --stream from now on"
            if answer.note:
                note = f"{answer.note}; {note}"
            return replace(answer, note=note)

    async def close(self) -> None:
        """Release connections."""
        await self._server.close()


def spent(body: Mapping[str, Any]) -> Spent:
    """Return the tokens that a reply reports, by OpenAI's names or by those of Responses."""
    usage = body.get("usage")
    if not isinstance(usage, dict):
        return Spent(None, 0)
    # Some servers report 0 under one name and the tokens under the other.
    prompt_tokens = count(usage, "prompt_tokens")
    if not prompt_tokens:
        prompt_tokens = count(usage, "input_tokens") or prompt_tokens
    answer_tokens = count(usage, "completion_tokens") or count(usage, "output_tokens") or 0
    return Spent(prompt_tokens, answer_tokens)


def understood(
    read: Reader,
    body: dict[str, Any],
    took_s: float,
    spent: Callable[[Mapping[str, Any]], Spent] = spent,
) -> Answer:
    """Return the answer in a reply by `read`.

    spent: reads what a reply reports as used. Raises Unmeasured with that.
    """
    try:
        return read(body, took_s)
    except Unmeasured as failure:
        if failure.spent is not None or failure.failure is Failure.UNREADABLE:
            failure.spent = spent(body)
        raise
    # Whatever a reply makes of our reading is the reply's fault.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        unread = faults.unreadable("The reply cannot be read", reason)
        unread.spent = spent(body)
        raise unread from None


def choice_of(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the choice with index 0 of a reply's list, wherever it stands there.

    If no choice has that index, return the first one without an index. If there is none either, or
    if two choices differ, return None.

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
    """Return a token count at a path of a usage report, or None if the provider gives none."""
    value: Any = usage
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return clean_count(value)


def texts_of(parts: Any, field: str = "text") -> list[str]:
    """Return the texts of an answer's parts; parts without one have none."""
    return [
        part[field] for part in parts if isinstance(part, dict) and isinstance(part.get(field), str)
    ]


def check_request(request: Mapping[str, Any]) -> None:
    """Raise SettingsError for request fields that would change the prompt without a record."""
    if "stream" in request:
        raise SettingsError("Request field 'stream' cannot be set. Type --stream instead.")
    for field in RESERVED:
        if field in request:
            raise SettingsError(
                f"Request field '{field}' cannot be set: needlemap sets it. Remove it from "
                f"'request'."
            )


def is_up(url: str) -> bool:
    """Return True if a server lists its models, and is healthy if it reports that.

    url: may lack its /v1.
    """
    sent = Sent()
    try:
        _, status, _ = models_at(url, sent)
        if status != 200:
            return False
        health, _ = get(url.removesuffix("/v1"), "/health", sent)
        return health in (200, 404)
    except Unmeasured:
        return False
