"""Replies of OpenAI's Responses API in the form of chat completions: one reader reads both.

https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FINISHES = {"completed": "stop", "max_output_tokens": "length"}
_COUNTS = (
    ("prompt_tokens", "input_tokens"),
    ("prompt_tokens_details", "input_tokens_details"),
    ("completion_tokens", "output_tokens"),
    ("completion_tokens_details", "output_tokens_details"),
)


def as_chat(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reply as a chat completion with one choice.

    A list of items that cannot be read has none.
    """
    items = body.get("output")
    if not isinstance(items, list):
        return {"choices": []}
    parts = [part for item in items for part in _parts_of(item, "message", "content")]
    thoughts = [part for item in items for part in _parts_of(item, "reasoning", "content")]
    if not thoughts:
        thoughts = [part for item in items for part in _parts_of(item, "reasoning", "summary")]
    has_calls = any(isinstance(item, dict) and "call" in str(item.get("type")) for item in items)
    empty = "" if parts or thoughts or has_calls else None
    message = {
        "content": _joined(parts, "text") or empty,
        "refusal": _joined(parts, "refusal") or None,
        "reasoning": _joined(thoughts, "text") or None,
    }
    finish = _finish_of(body)
    if finish == "stop" and has_calls and not parts:
        finish = "tool_calls"
    rows = [row for part in parts for row in _list(part.get("logprobs"))]
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": finish,
        "logprobs": {"content": rows} if rows else None,
    }
    usage = body.get("usage")
    usage = dict(usage) if isinstance(usage, dict) else {}
    usage |= {ours: usage[theirs] for ours, theirs in _COUNTS if theirs in usage}
    return {"choices": [choice], "usage": usage, "model": body.get("model")}


def _finish_of(body: Mapping[str, Any]) -> Any:
    """Return why it ended: its status, or what made it incomplete."""
    status, details = body.get("status"), body.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    word = reason if status == "incomplete" and reason else status
    return _FINISHES.get(word, word) if isinstance(word, str) else word


def _parts_of(item: Any, kind: str, field: str) -> list[dict[str, Any]]:
    """Return the parts of an item of that kind."""
    if not isinstance(item, dict) or item.get("type") != kind:
        return []
    return [part for part in _list(item.get(field)) if isinstance(part, dict)]


def _joined(parts: list[dict[str, Any]], field: str) -> str:
    return "".join(part[field] for part in parts if isinstance(part.get(field), str))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
