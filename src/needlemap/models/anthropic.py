"""Anthropic's Messages API, for its prompt cache: its OpenAI-compatible endpoint has none."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any

from pydantic_core import to_json

from needlemap.allowance import LIMIT_HEADERS
from needlemap.errors import Failure, Spent, Unmeasured
from needlemap.finishes import check_finish, finish_of
from needlemap.http import base_url_of, faults, from_environment
from needlemap.models import Answer, Decoding, Traits
from needlemap.models.servers import ServedModel, check_request, count, texts_of, understood
from needlemap.prompts import TEXT, Message, Prompt

HOST = "api.anthropic.com"
KEY = "ANTHROPIC_API_KEY"
# Of the API.
VERSION = "2023-06-01"
# The API's limit for one request.
MOST_BREAKPOINTS = 4
# Tokens, by the API.
LEAST_THINKING = 1024
FINISH = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length"}


class AnthropicModel(ServedModel):
    """The back end of `anthropic/NAME`.

    Attributes:
        cache: Whether to request prompt caching where the prompt marks the end of a shared prefix.
        base_url: Default $ANTHROPIC_BASE_URL, else Anthropic itself.
        key_env: The variable that holds the key.
    """

    unread = ("logprobs",)
    host, base_url_variable, key_variable = HOST, "ANTHROPIC_BASE_URL", KEY
    headers_variable = "ANTHROPIC_CUSTOM_HEADERS"
    plain_headers = ("anthropic-version", "anthropic-beta")
    limit_headers = (
        *LIMIT_HEADERS,
        "anthropic-ratelimit-{kind}-{part}",
        "anthropic-ratelimit-input-{kind}-{part}",
    )
    vocabulary = "No vocabulary of a current Claude is public."

    def __init__(
        self, name: str, *, base_url: str | None = None, cache: bool = True, key_env: str = KEY
    ) -> None:
        home = f"https://{HOST}"
        url = base_url_of(base_url, self.base_url_variable, home).removesuffix("/v1")
        super().__init__(name, url, key_env)
        self.cache = cache

    @classmethod
    def traits(cls, name: str, options: Mapping[str, Any]) -> Traits:
        """Return its traits: chat, since no vocabulary of a current Claude is public."""
        return Traits(breakpoints=bool(options.get("cache", True)), remote=True)

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        """Send one request, and return its answer.

        Raises Unmeasured if the server returns no answer.
        """
        check_request(decoding.request)
        fields = self._fields(prompt, decoding)
        reader = partial(understood, read, spent=spent)

        async def ask(stream: Mapping[str, Any]) -> Answer:
            body = to_json({**fields, **stream})
            return await self.answer_in("/v1/messages", body, decoding.timeout_s, reader)

        return await self.stream_as_wanted(decoding, ask)

    def headers(self, key: str) -> dict[str, str]:
        """Return a key or a token, and the API's version. Raises SettingsError."""
        token = from_environment("ANTHROPIC_AUTH_TOKEN")
        authorization = f"Bearer {token}" if token else ""
        return {"anthropic-version": VERSION, "x-api-key": key, "authorization": authorization}

    def _fields(self, prompt: Prompt, decoding: Decoding) -> dict[str, Any]:
        system, messages_sent = messages(prompt, self.cache)
        fields: dict[str, Any] = {
            "model": self.name,
            "messages": messages_sent,
            "max_tokens": decoding.most_tokens,
        }
        if system:
            fields["system"] = system
        if decoding.temperature is not None:
            fields["temperature"] = decoding.temperature
        if prompt.stops:
            fields["stop_sequences"] = list(prompt.stops)
        return fields | thinking(decoding) | dict(decoding.request)


def thinking(decoding: Decoding) -> dict[str, Any]:
    """Return the field that requests thinking.

    Raises Unmeasured if the API would refuse it, in clearer words.
    """
    if not decoding.thinking_tokens or "thinking" in decoding.request:
        return {}
    if decoding.temperature not in (None, 1):
        raise Unmeasured(
            Failure.REJECTED,
            "Anthropic takes no temperature with thinking: add --temperature none.",
        )
    if decoding.thinking_tokens < LEAST_THINKING:
        raise Unmeasured(
            Failure.REJECTED,
            f"Anthropic's thinking budget is at least {LEAST_THINKING} tokens, got "
            f"{decoding.thinking_tokens}: raise --thinking-tokens.",
        )
    return {"thinking": {"type": "enabled", "budget_tokens": decoding.thinking_tokens}}


Blocks = list[dict[str, Any]]


def messages(prompt: Prompt, cache: bool) -> tuple[Blocks, list[dict[str, Any]]]:
    """Return the prompt as (system blocks, messages).

    The context's message is split where a shared prefix ends.
    """
    system: Blocks = []
    turns: list[dict[str, Any]] = []
    for index, message in enumerate(prompt.messages):
        breakpoints = prompt.breakpoints if cache and index == prompt.context[0] else ()
        content = blocks(message, breakpoints)
        if message.role == "system":
            system += content
        else:
            role = "user" if message.role == TEXT else message.role
            turns.append({"role": role, "content": content})
    return system, turns


def blocks(message: Message, breakpoints: tuple[int, ...]) -> Blocks:
    """Return a message as text blocks that join to its text.

    All but the last end at a breakpoint and are cached.
    """
    data = message.data
    ends = _ends(message, data, breakpoints)
    cuts = [0, *ends, len(data)]
    texts = [data[start:stop].decode("utf-8", errors="replace") for start, stop in pairwise(cuts)]
    text_blocks: Blocks = [{"type": "text", "text": text} for text in texts]
    for block in text_blocks[:-1]:
        block["cache_control"] = {"type": "ephemeral"}
    return text_blocks


def _ends(message: Message, data: bytes, breakpoints: tuple[int, ...]) -> list[int]:
    """Return the byte offsets to split at: the last four breakpoints that leave no block blank.

    The API refuses blank blocks.
    """
    sizes = [len(span.data) for span in message.spans]
    ends: list[int] = []
    for index in sorted(set(breakpoints)):
        end = _character_start(data, sum(sizes[: index + 1]))
        if data[ends[-1] if ends else 0 : end].strip() and data[end:].strip():
            ends.append(end)
    return ends[-MOST_BREAKPOINTS:]


def _character_start(data: bytes, byte: int) -> int:
    while 0 < byte < len(data) and data[byte] & 0xC0 == 0x80:
        byte -= 1
    return byte


def read(body: Mapping[str, Any], latency_s: float = 0.0) -> Answer:
    """Return the answer in a reply. Its prompt_tokens add up what the API reports apart.

    Raise Unmeasured if the reply holds no answer.
    """
    content, usage = body.get("content"), body.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    finish = finish_of(body["stop_reason"]) if "stop_reason" in body else None
    blocks = [block for block in content if isinstance(block, dict)] if content else []
    texts = texts_of([block for block in blocks if block.get("type") == "text"])
    check_finish(finish, "".join(texts))
    if not isinstance(content, list) or len(blocks) < len(content):
        raise faults.unreadable("The reply holds no text", str(body))
    thoughts = _thoughts(content)
    if content and not texts and not thoughts:
        raise faults.unreadable("The reply holds no text", str(body))
    return Answer(
        text="".join(texts),
        finish=FINISH.get(str(finish), finish),
        prompt_tokens=sent_tokens(usage),
        cached_tokens=count(usage, "cache_read_input_tokens"),
        completion_tokens=count(usage, "output_tokens"),
        usage=usage,
        model=body.get("model"),
        latency_s=latency_s,
        thinking="".join(thoughts) or None,
        thinking_tokens=count(usage, "output_tokens_details", "thinking_tokens"),
    )


def sent_tokens(usage: Mapping[str, Any]) -> int | None:
    """Return the prompt's tokens: the API reports those of its cache apart."""
    uncached = count(usage, "input_tokens")
    if uncached is None:
        return None
    cache_read = count(usage, "cache_read_input_tokens") or 0
    cache_written = count(usage, "cache_creation_input_tokens") or 0
    return uncached + cache_read + cache_written


def spent(body: Mapping[str, Any]) -> Spent:
    """Return what a reply reports as used."""
    usage = body.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    return Spent(sent_tokens(usage), count(usage, "output_tokens") or 0)


def _thoughts(content: Blocks) -> list[str]:
    """Return thinking blocks; of those that the API hides only that they were there."""
    thoughts: list[str] = []
    for block in content:
        if block.get("type") == "redacted_thinking":
            thoughts.append("[redacted]")
        elif block.get("type") == "thinking":
            thoughts += texts_of([block], "thinking")
    return thoughts
