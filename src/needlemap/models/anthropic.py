"""Anthropic's Messages API, for its prompt cache: its OpenAI-compatible endpoint has none.

Replies are not streamed, so the SDK may refuse more than 21,333 answer tokens, and never retried here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from time import perf_counter
from typing import Any

from needlemap.errors import Failure, SettingsError, Unmeasured
from needlemap.models import faults
from needlemap.models.base import Answer, Decoding, Traits
from needlemap.models.connection import base_url_of, check_request, count, key_of, limits_of, reply
from needlemap.models.openai import texts_of
from needlemap.options import Checked
from needlemap.prompts import TEXT, Message, Prompt

HOST = "api.anthropic.com"
KEY = "ANTHROPIC_API_KEY"
MOST_BREAKPOINTS = 4  # the API's limit for one request
LEAST_THINKING = 1024  # tokens, by the API
FINISH = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length"}


class AnthropicModel(metaclass=Checked):
    """`anthropic/NAME`. cache: ask for prompt caching where the prompt says that a shared prefix ends.

    base_url: default $ANTHROPIC_BASE_URL, else Anthropic itself. key_env: the variable that holds the key.
    """

    def __init__(
        self, name: str, *, base_url: str | None = None, cache: bool = True, key_env: str = KEY
    ) -> None:
        try:
            import anthropic
        except ImportError:
            raise SettingsError(
                "Model 'anthropic' needs its SDK. Run: pip install 'needlemap[anthropic]'"
            ) from None

        self.name, self.cache = name, cache
        self.base_url = base_url_of(base_url, "ANTHROPIC_BASE_URL", f"https://{HOST}").removesuffix("/v1")
        self._key = key_of(key_env, self.base_url, HOST, required=key_env != KEY)
        self._sdk = anthropic
        self._client = anthropic.AsyncAnthropic(api_key=self._key, base_url=self.base_url, max_retries=0)

    @classmethod
    def traits(cls, name: str, options: Mapping[str, Any]) -> Traits:
        """Chat; no vocabulary of a current Claude is public."""
        return Traits(breakpoints=bool(options.get("cache", True)), remote=True)

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        """Ask once. Raises Unmeasured."""
        check_request(decoding.request)
        fields = self._fields(prompt, decoding)
        start = perf_counter()
        body, allowance = await reply(
            self._sdk,
            self._client.messages.with_raw_response.create(**fields),
            timeout_s=decoding.timeout_s,
            server=self.base_url,
            secret=self._key,
        )
        return replace(read(body, perf_counter() - start), allowance=allowance)

    async def close(self) -> None:
        """Release connections."""
        await self._client.close()

    def _fields(self, prompt: Prompt, decoding: Decoding) -> dict[str, Any]:
        system, said = messages(prompt, self.cache)
        fields: dict[str, Any] = {
            "model": self.name,
            "messages": said,
            "max_tokens": decoding.most_tokens,
            "timeout": limits_of(self._sdk, decoding.timeout_s),
        }
        # SDKs from 1.0 on have no temperature argument: all versions take it in the body
        cool = {} if decoding.temperature is None else {"temperature": decoding.temperature}
        extra = {"extra_body": cool | thinking(decoding) | dict(decoding.request)}
        return fields | ({"system": system} if system else {}) | extra


def thinking(decoding: Decoding) -> dict[str, Any]:
    """The field that asks for thinking. Raises Unmeasured where the API would refuse it, in clearer words."""
    if not decoding.thinking_tokens or "thinking" in decoding.request:
        return {}
    if decoding.temperature not in (None, 1):
        raise Unmeasured(
            Failure.REJECTED, "Anthropic takes no temperature with thinking: add --temperature none."
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
    """The prompt as (system blocks, messages); the context's message is split where a shared prefix ends."""
    system: Blocks = []
    said: list[dict[str, Any]] = []
    for index, message in enumerate(prompt.messages):
        breakpoints = prompt.breakpoints if cache and index == prompt.context[0] else ()
        content = blocks(message, breakpoints)
        if message.role == "system":
            system += content
        else:
            said.append({"role": "user" if message.role == TEXT else message.role, "content": content})
    return system, said


def blocks(message: Message, breakpoints: tuple[int, ...]) -> Blocks:
    """A message as text blocks that join to its text; all but the last end at a breakpoint and are cached."""
    data = message.data
    ends = _ends(message, data, breakpoints)
    cuts = [0, *ends, len(data)]
    texts = [data[start:stop].decode("utf-8", errors="replace") for start, stop in pairwise(cuts)]
    found: Blocks = [{"type": "text", "text": text} for text in texts]
    return [block | {"cache_control": {"type": "ephemeral"}} for block in found[:-1]] + found[-1:]


def _ends(message: Message, data: bytes, breakpoints: tuple[int, ...]) -> list[int]:
    """Byte offsets to split at: the last four breakpoints that leave no block blank: the API refuses such."""
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
    """The answer in a reply; prompt_tokens adds up what the API reports apart. Raises Unmeasured."""
    content, usage = body.get("content"), body.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise faults.unreadable("The reply holds no text", str(body))
    finish, model = body.get("stop_reason"), body.get("model")
    parts = [
        count(usage, name)
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    ]
    texts = [block for block in content if block.get("type") == "text"]
    if texts and not texts_of(texts):
        raise faults.unreadable("The reply holds no text", str(body))
    return Answer(
        "".join(texts_of(texts)),
        FINISH.get(str(finish), finish),
        None if parts[0] is None else sum(part or 0 for part in parts),
        parts[1],
        count(usage, "output_tokens"),
        usage,
        model if isinstance(model, str) else None,
        latency_s,
        thinking="".join(_thoughts(content)) or None,
        thinking_tokens=count(usage, "output_tokens_details", "thinking_tokens"),
    )


def _thoughts(content: Blocks) -> list[str]:
    """Thinking blocks; of those that the API hides only that they were there."""
    found: list[str] = []
    for block in content:
        if block.get("type") == "redacted_thinking":
            found.append("[redacted]")
        elif block.get("type") == "thinking":
            found += texts_of([block], "thinking")
    return found
