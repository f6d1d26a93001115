"""A user's own function as a model: `python/module:function`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any

from needlemap.errors import Failure, Unmeasured
from needlemap.http import faults
from needlemap.models import Answer, Decoding, Model, Traits
from needlemap.prompts import Prompt
from needlemap.scorers import call_beside, load_function, source_hash
from needlemap.secrets import raised_by


class PythonModel(Model):
    """Calls `function(messages)` with [{"role": ..., "content": ...}, ...], or with a plain prompt's text.

    It returns a str or an Answer, and may be async. The current directory can be imported from. A plain
    function that runs out of time is left running in its thread, since Python cannot stop one; the program's
    end does not wait for it.
    """

    unread = ("temperature", "thinking_tokens", "request", "logprobs")

    def __init__(self, name: str) -> None:
        self.name = name
        self._function = load_function(name)

    @classmethod
    def traits(cls, name: str, options: Mapping[str, Any]) -> Traits:
        """Chat messages; lengths count cl100k_base tokens unless told otherwise."""
        return Traits(tokenizer="cl100k_base", weights=source_hash(name))

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        """Call once. Raises Unmeasured if the function raises, runs out of time or returns something else."""
        start = perf_counter()
        try:
            async with asyncio.timeout(decoding.timeout_s) as clock:
                said = await self._call(question(prompt))
        except Unmeasured:
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and clock.expired():
                raise faults.timed_out(decoding.timeout_s) from None
            failure = Failure.MEMORY if isinstance(error, MemoryError) else Failure.MODEL
            raise Unmeasured(failure, f"{self.name}: {raised_by(error)}") from error
        return self._answer(said, perf_counter() - start)

    async def _call(self, asked: object) -> object:
        return await call_beside(self._function, asked)

    def _answer(self, said: object, latency_s: float) -> Answer:
        if isinstance(said, str):
            said = Answer(said)
        if isinstance(said, Answer):
            return replace(said, latency_s=said.latency_s or latency_s)
        problem = f"{self.name} must return a str or a needlemap Answer, it returned {type(said).__name__}"
        raise faults.unreadable(problem, repr(said))


def question(prompt: Prompt) -> list[dict[str, str]] | str:
    """What the function is called with."""
    if not prompt.chat:
        return prompt.messages[0].content
    return [{"role": message.role, "content": message.content} for message in prompt.messages]
