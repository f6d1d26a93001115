"""Requests and replies of the two wire formats, as plain JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from wire_answers import Cache, words

CHAT, TEXT, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
ODD = ("wrong-shape", "array", "empty-choices", "null-content", "error-200")


@dataclass
class Reply:
    """What the model says, before a dialect writes it down."""

    text: str | None
    finish: str
    model: str
    usage: dict[str, Any]
    refusal: str | None = None
    thinking: str | None = None
    thinking_field: str = "reasoning_content"


def prompt_of(path: str, request: dict[str, Any]) -> str:
    """The text that the model reads."""
    if path == TEXT:
        prompt = request["prompt"]
        return prompt if isinstance(prompt, str) else "".join(prompt)
    system = [{"content": request.get("system", "")}]
    return "\n\n".join(
        filter(None, (flat(message["content"]) for message in system + _messages(request)))
    )


def _messages(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of a chat, or of the Responses API."""
    found: list[dict[str, Any]] = request.get("input") or request["messages"]
    return found


def flat(content: Any) -> str:
    """A message's text, from a string or blocks."""
    return (
        content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
    )


def cut(answer: str, request: dict[str, Any]) -> tuple[str, str]:
    """(answer within the asked number of tokens, finish reason)."""
    most, said = budget(request) or 10**9, answer.split()
    return (" ".join(said[:most]), "length") if len(said) > most else (answer, "stop")


def budget(request: dict[str, Any]) -> int:
    """The tokens that a request allows for the answer, 0 for any number."""
    return int(request.get("max_tokens") or request.get("max_completion_tokens") or 0)


THOUGHT = "Let me see. The question asks for a code; the text holds one."
STYLES = ("reasoning", "reasoning-openrouter", "reasoning-parts", "think-inline", "think-template")


def thoughts(fault: str, reply: Reply, request: dict[str, Any]) -> None:
    """Let a reply think before it answers, in one of the `STYLES`; `STYLE-spent`: and do nothing
    else."""
    style = fault.removesuffix("-spent")
    if style not in STYLES:
        return
    spent, answer = fault.endswith("-spent"), reply.text or ""
    thought = " ".join(["Hm."] * budget(request)) if spent else THOUGHT
    reply.finish = "length" if spent else reply.finish
    written = "completion_tokens" if "completion_tokens" in reply.usage else "output_tokens"
    reply.usage[written] = words(thought) + (0 if spent else words(answer))
    if style == "think-inline":
        reply.text = f"<think>{thought}" if spent else f"<think>\n{thought}\n</think>\n\n{answer}"
    elif style == "think-template":
        reply.text = thought if spent else f"{thought}\n</think>\n\n{answer}"
    else:
        reply.text, reply.thinking = (None if spent else answer), thought
        reply.thinking_field = "reasoning" if style.endswith("openrouter") else "reasoning_content"
        if style == "reasoning-parts":
            reply.thinking_field = "parts"
        part = (
            "completion_tokens_details"
            if written == "completion_tokens"
            else "output_tokens_details"
        )
        name = "reasoning_tokens" if written == "completion_tokens" else "thinking_tokens"
        reply.usage[part] = {name: words(thought)}


def unwanted(fault: str, request: dict[str, Any]) -> str:
    """The refusal of `wants:FIELD` for a request whose budget stands in the other field, else
    ''."""
    name, _, field = fault.partition(":")
    fields = {"max_tokens", "max_completion_tokens"}
    if name == "wants" and not fields & {field} & set(request):
        return f"unwanted:{(fields - {field}).pop()}"
    return ""


def openai_usage(cache: Cache, prompt: str, answer: str) -> dict[str, Any]:
    """Usage with the words that an earlier prompt shares."""
    read, written = words(prompt), words(answer)
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    cached = cache.shared(prompt)
    cache.keep(prompt)
    return usage | {"prompt_tokens_details": {"cached_tokens": cached}}


def anthropic_usage(
    cache: Cache, request: dict[str, Any], prompt: str, answer: str
) -> dict[str, Any]:
    """Usage with the prefixes that end at a cache_control block, read or written."""
    prefixes = _marked(request)
    read = cache.longest(prefixes)
    kept = max(map(words, prefixes), default=0)
    for prefix in prefixes:
        cache.keep(prefix)
    usage = {"cache_read_input_tokens": read, "cache_creation_input_tokens": max(0, kept - read)}
    return usage | {"input_tokens": words(prompt) - max(kept, read), "output_tokens": words(answer)}


def _marked(request: dict[str, Any]) -> list[str]:
    so_far, prefixes = "", []
    parts = [request.get("system", ""), *(message["content"] for message in request["messages"])]
    for content in filter(None, parts):
        so_far += "\n\n" if so_far else ""
        for block in content if isinstance(content, list) else [{"text": content}]:
            so_far += block.get("text", "")
            if "cache_control" in block:
                prefixes.append(so_far)
    return prefixes


def body(path: str, reply: Reply) -> dict[str, Any]:
    """A whole reply."""
    if path == MESSAGES:
        stop = {"stop": "end_turn", "length": "max_tokens"}.get(reply.finish, reply.finish)
        content = None if reply.text is None else [{"type": "text", "text": reply.text}]
        if reply.thinking:
            thought = {"type": "thinking", "thinking": reply.thinking, "signature": "x"}
            content = [thought, *(content or [])]
        frame = {"id": "msg_1", "type": "message", "role": "assistant", "stop_sequence": None}
        return frame | {
            "model": reply.model,
            "content": content,
            "stop_reason": stop,
            "usage": reply.usage,
        }
    choice: dict[str, Any] = {"index": 0, "finish_reason": reply.finish, "logprobs": None}
    if path == CHAT:
        said = {"role": "assistant", "content": reply.text, "refusal": reply.refusal}
        choice["message"] = said
        if reply.thinking and reply.thinking_field != "parts":
            said[reply.thinking_field] = reply.thinking
        elif reply.thinking:
            thought = {"type": "thinking", "thinking": [{"type": "text", "text": reply.thinking}]}
            said["content"] = [
                thought,
                *([{"type": "text", "text": reply.text}] if reply.text else []),
            ]
    else:
        choice["text"] = reply.text
    kind = "chat.completion" if path == CHAT else "text_completion"
    frame = {"id": "x-1", "object": kind, "created": 1}
    return frame | {"model": reply.model, "choices": [choice], "usage": reply.usage}


def odd(fault: str, reply: dict[str, Any]) -> Any:
    """A reply that is JSON but wrong."""
    name, _, argument = fault.partition(":")
    if name == "wrong-shape":
        return {"choices": "many", "content": "many", "usage": 3}
    if name == "array":
        return [reply]
    if name == "error-200":
        return {
            "error": {"code": int(argument), "message": "The server behind this gateway failed."}
        }
    whole = json.loads(json.dumps(reply))
    if name == "empty-choices":
        whole["choices"] = []
        whole.pop("content", None)
    return whole
