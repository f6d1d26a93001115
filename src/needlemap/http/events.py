"""Streamed replies: server-sent events, and the one reply that they add up to.

https://html.spec.whatwg.org/multipage/server-sent-events.html

OpenAI's kinds (chunks of chat and of completions, events of responses) and Anthropic's become the
JSON object that the server sends when nothing is streamed, so that one function reads both. httpx
reads no events. A package that does (httpx-sse) would be one more dependency for these lines.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from needlemap.http import faults
from needlemap.untrusted import OutOfBounds, check_parts, parts_in, read_json

MEDIA_TYPE = "text/event-stream"
_DONE = "[DONE]"
# Events, or their data, that keep a connection open and say nothing.
_IDLE = ("ping", "pong", "heartbeat", "keepalive", "keep-alive", "keep_alive")
_FIELD = re.compile(r":|(data|event|id|retry|error):")
_LONGEST_FIELD = len("retry:")
_BOM = "\ufeff"
# Characters of an event, or of a broken answer, that a message shows.
_SHOWN = 200

# Errors of a stream come behind status 200. Those of Anthropic, and some of OpenAI's, say by a word
# which status they would have had.
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
# Codes of events that report no error.
_NO_ERROR = ("0", "200", "none", "", "ok", "success")
_RESPONSE_ENDS = ("response.completed", "response.incomplete", "response.failed")
# Texts that chunks repeat, or that come in one piece. All others grow.
_REPEATED = ("role", "id", "type", "name", "signature")


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its name ('' if it has none) and the lines of its data."""

    name: str
    data: tuple[str, ...]


class EventReader:
    """Makes events of a stream's bytes, however they are cut into pieces.

    >>> reader = EventReader()
    >>> pieces = [b": hi\\r\\n\\r\\ndata: {\\r", b"\\ndata: }\\n"]
    >>> [event for piece in pieces for event in reader.feed(piece)], list(reader.close())
    ([], [Event(name='', data=('{', '}'))])
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        # The pieces of the line that has not ended.
        self._line: list[str] = []
        self._name = ""
        self._data: list[str] = []
        self._is_start = True
        self._is_after_return = False

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Yield the events that end with these bytes."""
        text = self._decode(piece)
        if not text:
            return
        if self._is_start:
            self._is_start = False
            text = text.removeprefix(_BOM)
        if self._is_after_return:
            text = text.removeprefix("\n")
        self._is_after_return = text.endswith("\r")
        *ended, rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for line in ended:
            yield from self._end_line("".join([*self._line, line]))
            self._line = []
        if rest:
            self._line.append(rest)

    def close(self) -> Iterator[Event]:
        """Yield the event that the stream ends in: many servers send no empty line behind it."""
        yield from self._end_line("".join([*self._line, self._decode(b"", True)]))
        yield from self._end_line("")

    def _end_line(self, line: str) -> Iterator[Event]:
        """Yield the event that ends with a line, if one does."""
        name, _, value = line.partition(":")
        name = name.strip()
        if not line.strip():
            if self._data:
                yield Event(self._name, tuple(self._data))
            self._name, self._data = "", []
        elif name == "event":
            self._name = value.strip()
        elif name == "data":
            self._data.append(value.removeprefix(" "))
        elif name == "error":
            # llama.cpp's word for an answer that broke off.
            self._name = name
            self._data.append(value)


def is_stream(start: bytes, media_type: str) -> bool | None:
    """Return True if a body with this start is a stream of events, or None if more must be seen.

    The first letters decide: some servers stream under the name of JSON, and some send JSON under
    that of a stream.

    >>> is_stream(b" data: {", "application/json"), is_stream(b'{"a"', MEDIA_TYPE)
    (True, False)
    >>> is_stream(b"da", MEDIA_TYPE)
    """
    text = start.decode("utf-8-sig", "replace").lstrip()
    if text[:1] in ("{", "["):
        return False
    if _FIELD.match(text):
        return True
    if len(text) < _LONGEST_FIELD:
        return None
    return media_type.partition(";")[0].strip().lower() == MEDIA_TYPE


def words_of(body: str) -> str:
    """Return the words of a refusal that comes as an event; any other body as it is.

    >>> words_of('event: error\\ndata: {"message": "no"}\\n\\n'), words_of("no")
    ('{"message": "no"}', 'no')
    """
    if not is_stream(body[:1_000].encode("utf-8", "replace"), ""):
        return body
    reader = EventReader()
    events = [*reader.feed(body.encode("utf-8", "replace")), *reader.close()]
    return "\n".join(events[0].data) if events else body


class _Pieces:
    """A text that arrives in pieces.

    They are joined once: to add each to the text before it takes the square of its length.
    """

    __slots__ = ("texts",)

    def __init__(self, text: str) -> None:
        self.texts = [text]

    def __str__(self) -> str:
        return "".join(self.texts)


@dataclass(slots=True)
class StreamedReply:
    """The reply that a stream adds up to.

    Attributes:
        first_token_at: When the first piece of an answer, or of its thinking, was read.
        ended_at: When the server said that nothing follows.
        is_ended: Whether it said so.

    Both moments are by the caller's clock, None before and if unknown.
    """

    first_token_at: float | None = None
    ended_at: float | None = None
    is_ended: bool = False
    _reader: EventReader = field(default_factory=EventReader)
    _body: dict[str, Any] = field(default_factory=dict)
    _choices: dict[int, dict[str, Any]] = field(default_factory=dict)
    _blocks: dict[int, dict[str, Any]] = field(default_factory=dict)
    _is_message: bool = False
    _error: Any = None
    _parts: int = 0
    _size: int = 0

    def feed(self, piece: bytes, at: float) -> None:
        """Add what was read at a moment. Raises Unmeasured for what cannot be read."""
        self._add(self._reader.feed(piece), at)

    def joined_body(self) -> dict[str, Any]:
        """Return the reply as it comes if nothing is streamed, or the error in its place.

        Raise Unmeasured if the stream was cut before the answer ended.
        """
        self._add(self._reader.close(), None)
        if self._error is not None:
            return {"error": self._error}
        body = dict(self._body)
        if self._is_message:
            body["content"] = [_joined(block) for _, block in sorted(self._blocks.items())]
            is_ended = self.is_ended
        else:
            choices = [_choice(choice) for _, choice in sorted(self._choices.items())]
            body |= {"choices": choices} if choices else {}
            is_ended = self.is_ended or any(row.get("finish_reason") for row in choices)
        if not is_ended:
            answer = json.dumps(body.get("content") or body.get("choices"), ensure_ascii=False)
            raise faults.unreadable(
                "The stream was cut before the answer ended", answer[-_SHOWN:], transient=True
            )
        return body

    def _add(self, events: Iterator[Event], at: float | None) -> None:
        try:
            for event in events:
                if self.is_ended:
                    continue
                for value in self._values(event):
                    self._take(event.name, value, at)
        except OutOfBounds as error:
            raise faults.unreadable("The reply cannot be read", str(error)) from None

    def _values(self, event: Event) -> Iterator[Any]:
        """Yield the JSON values in an event's data.

        There is one value. If a server sends no empty line between two events, there is one a line.
        """
        text = "\n".join(event.data).strip()
        self._parts += parts_in(text)
        self._size += len(text)
        check_parts(self._parts, self._size)
        if not text:
            return
        if event.name in _IDLE or text.casefold() in _IDLE:
            return
        try:
            yield _DONE if text.upper() == _DONE else read_json(text)
        except OutOfBounds:
            raise
        except ValueError:
            lines = [line for line in event.data if line.strip()]
            if len(lines) > 1:
                for line in lines:
                    yield from self._values(Event(event.name, (line,)))
            elif event.name == "error":
                yield {"message": text}
            else:
                raise faults.unreadable(
                    "An event of the stream is no JSON", text[:_SHOWN], transient=True
                ) from None

    def _end(self, at: float | None) -> None:
        self.is_ended, self.ended_at = True, at

    def _speak(self, at: float | None, *pieces: object) -> None:
        """Note the moment at which the first piece that is not empty came."""
        if self.first_token_at is None and any(pieces):
            self.first_token_at = at

    def _take(self, name: str, value: Any, at: float | None) -> None:
        if value == _DONE:
            self._end(at)
            return
        if not isinstance(value, dict):
            raise faults.unreadable("An event is no JSON object", str(value)[:_SHOWN])
        kind = value.get("type")
        kind = kind if isinstance(kind, str) else name
        error = _error_in(name, value)
        if error is not None:
            self._error = error
            self._end(at)
        elif kind.startswith("response."):
            self._take_response(kind, value, at)
        elif kind.startswith(("message_", "content_block_")):
            self._is_message = True
            self._take_message(kind, value, at)
        elif kind not in _IDLE:
            self._take_chunk(value, at)

    def _take_response(self, kind: str, value: dict[str, Any], at: float | None) -> None:
        """Take an event of OpenAI's responses, the last of which holds all."""
        self._speak(at, kind.endswith(".delta"))
        if kind in _RESPONSE_ENDS and isinstance(value.get("response"), dict):
            self._body = value["response"]
            self._end(at)

    def _take_message(self, kind: str, value: dict[str, Any], at: float | None) -> None:
        delta = _dict_in(value, "delta")
        if kind == "message_start":
            self._body |= _dict_in(value, "message")
        elif kind == "content_block_start":
            block = _dict_in(value, "content_block")
            _merge(self._blocks.setdefault(_index(value), {}), block)
            self._speak(at, *(part for name, part in block.items() if name != "type"))
        elif kind == "content_block_delta":
            pieces = {name: part for name, part in delta.items() if name != "type"}
            _merge(self._blocks.setdefault(_index(value), {"type": "text"}), pieces)
            self._speak(at, *pieces.values())
        elif kind == "message_delta":
            earlier_counts = _dict_in(self._body, "usage")
            counts = _dict_in(value, "usage")
            new_counts = {name: count for name, count in counts.items() if count is not None}
            self._body |= {**delta, "usage": earlier_counts | new_counts}
        elif kind == "message_stop":
            self._end(at)

    def _take_chunk(self, value: dict[str, Any], at: float | None) -> None:
        """Take a chunk of OpenAI's chat or completions."""
        for name, part in value.items():
            if name == "object" and isinstance(part, str):
                self._body[name] = part.removesuffix(".chunk")
            elif name != "choices" and (part is not None or name not in self._body):
                self._body[name] = part
        choices = value.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if isinstance(choice, dict):
                self._take_choice(choice, at)

    def _take_choice(self, choice: dict[str, Any], at: float | None) -> None:
        merged = self._choices.setdefault(_index(choice), {})
        for name, part in choice.items():
            if name == "delta":
                delta = part if isinstance(part, dict) else {}
                _merge(merged.setdefault(name, {}), delta)
                self._speak(at, *(piece for field, piece in delta.items() if field != "role"))
            elif name == "text":
                _merge(merged, {name: part})
                self._speak(at, part)
            elif name == "logprobs" and isinstance(part, dict):
                _merge(merged, {name: part})
            elif name == "message" and "delta" in choice:
                # The answer so far, again.
                continue
            elif name == "usage" and isinstance(part, dict):
                # Moonshot's place for it.
                self._body[name] = part
            elif part or name not in merged:
                merged[name] = part
                self._speak(at, name == "message" and part)


def _error_in(name: str, value: dict[str, Any]) -> Any:
    """Return the error that an event reports, with its status if that is known.

    If the event reports no error, the result is None.
    """
    # A chunk with choices is read as a reply that was not streamed, with its own error.
    if value.get("choices"):
        return None
    error = value.get("error")
    message = value.get("message")
    has_code = isinstance(message, str) and str(value.get("code", "0")).lower() not in _NO_ERROR
    is_error_itself = value.get("object") == "error" or has_code
    if not error and name != "error" and value.get("type") != "error" and not is_error_itself:
        return None
    error = error or value
    if not isinstance(error, dict) or str(error.get("code", "")).isdigit():
        return error
    status = next((error[key] for key in ("status", "status_code") if key in error), None)
    for key in ("type", "code"):
        word = error.get(key)
        if isinstance(word, str):
            status = _STATUS.get(word, status)
    if not isinstance(status, int):
        return error
    return {**error, "code": status, "reason": error.get("code")}


def _dict_in(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the object under a name, {} if there is none."""
    part = value.get(name)
    return part if isinstance(part, dict) else {}


def _index(part: Mapping[str, Any]) -> int:
    index = part.get("index")
    return index if isinstance(index, int) else 0


def _merge(merged: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add a chunk's fields to those of the chunks before it.

    Texts and lists grow, any other value takes the place of the last.
    """
    for name, part in more.items():
        before = merged.get(name)
        if part is None:
            merged.setdefault(name, None)
        elif isinstance(part, str) and name not in _REPEATED:
            merged[name] = _longer_text(before, part)
        elif isinstance(part, list):
            merged[name] = _longer_list(before, part)
        elif isinstance(part, dict):
            merged[name] = before if isinstance(before, dict) else {}
            _merge(merged[name], part)
        elif part != "" or before is None:
            merged[name] = part


def _longer_text(before: Any, part: str) -> Any:
    """Return a text with one more piece.

    Mistral's thinking models send lists of parts first, and texts behind them.
    """
    if isinstance(before, list):
        if part:
            before.append({"type": "text", "text": part})
        return before
    if isinstance(before, _Pieces):
        before.texts.append(part)
        return before
    return _Pieces(part)


def _longer_list(before: Any, parts: list[Any]) -> list[Any]:
    """Return a list with more parts, whatever stood there before."""
    if isinstance(before, list):
        before += parts
        return before
    text = str(before) if isinstance(before, _Pieces) else ""
    return [{"type": "text", "text": text}, *parts] if text else list(parts)


def _joined(value: Any) -> Any:
    """Return a merged value with its texts whole."""
    if isinstance(value, _Pieces):
        return str(value)
    if isinstance(value, dict):
        return {name: _joined(part) for name, part in value.items()}
    return value


def _choice(choice: dict[str, Any]) -> dict[str, Any]:
    """Return a choice as it comes when nothing is streamed.

    One that ended without a word has an empty text.
    """
    whole: dict[str, Any] = _joined(choice)
    message = whole.pop("delta", None)
    if message is not None:
        whole["message"] = message
        if message.get("content") is None and not (message.keys() & {"tool_calls", "refusal"}):
            message["content"] = ""
    return whole
