"""A whole reply as the server-sent events of its dialect, a word an event."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from wire_dialects import CHAT, MESSAGES

TYPE = {"content-type": "text/event-stream; charset=utf-8"}
ONLY = (
    "This model only support stream mode, please enable the stream parameter to access the model."
)


def events(path: str, whole: dict[str, Any], asked: dict[str, Any]) -> bytes:
    """The events that a reply is sent as; a usage report in OpenAI's kinds only if asked for."""
    made = _messages(whole) if path == MESSAGES else _chunks(path, whole, asked)
    return b": welcome\n\n" + "".join(made).encode()


def _event(value: Any, name: str = "") -> str:
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(value)}\n\n"


def _pieces(text: str) -> list[str]:
    return [text[at : at + 5] for at in range(0, len(text), 5)]


def _chunks(path: str, whole: dict[str, Any], asked: dict[str, Any]) -> Iterator[str]:
    frame = {name: part for name, part in whole.items() if name not in ("choices", "usage")}
    for choice in whole["choices"]:
        finish, frame_choice = choice["finish_reason"], {"index": choice["index"]}
        if path == CHAT:
            deltas: list[dict[str, Any]] = [
                {"delta": {name: piece}}
                for name, text in choice["message"].items()
                for piece in (_pieces(text) if isinstance(text, str) and name != "role" else [text])
            ]
        else:
            deltas = [{"text": piece} for piece in _pieces(choice["text"])]
        for delta in deltas:
            row = {**frame_choice, **delta, "finish_reason": None}
            yield _event({**frame, "choices": [row], "usage": None})
        last = {"delta": {}} if path == CHAT else {"text": ""}
        yield _event({**frame, "choices": [{**frame_choice, **last, "finish_reason": finish}]})
    if (asked.get("stream_options") or {}).get("include_usage") and "usage" in whole:
        yield _event({**frame, "choices": [], "usage": whole["usage"]})
    yield "data: [DONE]\n\n"


def _messages(whole: dict[str, Any]) -> Iterator[str]:
    usage = whole.get("usage", {})
    start = {**whole, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield _event({"type": "message_start", "message": start}, "message_start")
    for index, block in enumerate(whole["content"]):
        kind, at = block["type"], {"index": index}
        empty = {name: "" if name == kind else part for name, part in block.items()}
        started = {"type": "content_block_start", **at, "content_block": empty}
        yield _event(started, "content_block_start")
        yield _event({"type": "ping"}, "ping")
        for piece in _pieces(block.get(kind, "")):
            delta = {"type": f"{kind}_delta", kind: piece}
            row = {"type": "content_block_delta", **at, "delta": delta}
            yield _event(row, "content_block_delta")
        yield _event({"type": "content_block_stop", **at}, "content_block_stop")
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    told = {"output_tokens": usage.get("output_tokens", 0)}
    yield _event({"type": "message_delta", "delta": delta, "usage": told}, "message_delta")
    yield _event({"type": "message_stop"}, "message_stop")
