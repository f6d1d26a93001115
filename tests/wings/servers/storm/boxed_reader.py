"""A model without weights that reads prompts: it finds every fact that the package's texts hide.

`faulty` makes it a server with a fault of state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from time import monotonic
from typing import Any

from needlemap.models import Answer, Decoding, Logprobs, Model, Traits
from needlemap.prompts import Prompt

FACT = re.compile(r"locker code for ([A-Z]\w+) is (\d{12})")
ASKED = re.compile(r"locker code for ([A-Z]\w+)\?")
Messages = Sequence[tuple[str, str]]


def read(messages: Messages) -> str:
    """What a right answer says."""
    codes = dict(FACT.findall("\n".join(text for _, text in messages)))
    asked = ASKED.findall(messages[-1][1])
    return " ".join(f"{codes.get(key, 'I do not know')}." for key in asked)


class Reader(Model):
    """Answers in this process. fault: makes of a right answer, and of all prompts and answers of
    before, what is said."""

    def __init__(
        self, fault: Callable[[str, list[tuple[Messages, str]]], Any] | None = None
    ) -> None:
        super().__init__("reader")
        self.fault, self.log = fault, list[tuple[Messages, str]]()

    @classmethod
    def traits(cls, name: str, options: Any) -> Traits:
        return Traits(tokenizer="cl100k_base")

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        messages = [(each.role, each.content) for each in prompt.messages]
        said: Any = read(messages)
        if self.fault is not None:
            said = self.fault(said, [*self.log, (messages, said)])
        self.log.append((messages, read(messages)))
        return said if isinstance(said, Answer) else Answer(said, "stop")


def noisy(share: float, seed: int = 1) -> Callable[[str, Any], str]:
    """A sound model that is wrong now and then, whatever stood before."""
    random = Random(seed)
    return lambda said, _: "I do not know." if random.random() < share else said


def now_and_then(every: int, made: Callable[[str, Any], Any], seed: int = 1) -> Callable[..., Any]:
    """A fault in one answer of so many."""
    random = Random(seed)
    return lambda said, log: made(said, log) if random.random() < 1 / every else said


def of_another(said: str, log: list[tuple[Messages, str]]) -> str:
    """The answer to the request before."""
    return log[-2][1] if len(log) > 1 else said


def behind_answers(said: str, log: list[tuple[Messages, str]]) -> str:
    """Conversations that go on are lost, if their beginning was asked before."""
    messages = log[-1][0]
    known = any(list(each) == list(messages[:-2]) for each, _ in log[:-1])
    return "I do not know." if len(messages) > 2 and known else said


class Boxed(Model):
    """The engine in the box, in this process."""

    def __init__(self, engine: Any) -> None:
        super().__init__("box")
        self.engine = engine

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        messages = [(each.role, each.content) for each in prompt.messages]
        began = monotonic()
        said = await self.engine.answer(messages, decoding.most_tokens)
        text, finish, tokens, hit = said
        seconds = monotonic() - began
        return Answer(text, finish, tokens, hit, latency_s=seconds)


def beginning(prompt: Prompt) -> str:
    """Of its first text, where the line of its own stands."""
    return next(each.content for each in prompt.messages if each.role == "user")[:400]


class Sure(Reader):
    """A reader that says how sure it is of each letter. moved: by how many nats a margin is off,
    which it is asked for each letter of an answer whose prompt begins as an earlier one did."""

    def __init__(self, moved: Callable[[], float] = float) -> None:
        super().__init__()
        self.moved, self.hits, self.asked = moved, 0, 0
        self.known = set[str]()

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        begins = beginning(prompt)
        hit = begins in self.known
        self.known.add(begins)
        self.hits, self.asked = self.hits + hit, self.asked + 1
        said = await super().answer(prompt, decoding)
        if not decoding.logprobs:
            return said
        off = self.moved() if hit else 0.0
        rows = [(letter, -1e-6, "?", -12.0 - ord(letter) / 100 - off) for letter in said.text]
        return replace(said, logprobs=Logprobs.of(rows, "generated"))


class Unable(Model):
    """Finds nothing: what it says, and how sure it is of it, follows from its prompt alone.

    moved: nats by which it is off where a cache held the prompt's beginning, which it is asked for
    each such prompt; of texts alone, whether another one is said. heeds: whether a request may say
    that no cache is to be used; tells: whether hits are reported. says: each of its texts. starts:
    tokens that all prompts start with, which the cache holds of each.
    """

    def __init__(
        self,
        moved: Callable[[], float] = float,
        *,
        heeds: bool = True,
        tells: bool = True,
        logprobs: bool = True,
        says: str = "",
        starts: int = 0,
    ) -> None:
        super().__init__("unable")
        self.moved, self.heeds, self.tells, self.logprobs = moved, heeds, tells, logprobs
        self.says, self.asked, self.fields = says, 0, dict[str, Any]()
        self.known, self.starts = set[str](), starts

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        self.asked += 1
        self.fields = dict(decoding.request)
        text = "\n".join(each.content for each in prompt.messages)
        is_hit = beginning(prompt) in self.known
        if self.heeds and decoding.request.get("cache_prompt") is False:
            is_hit = False
        self.known.add(beginning(prompt))
        random = Random(text)
        off = self.moved() if is_hit else 0.0
        letters = self.says or "".join(random.choices("bcdfgh", k=9))
        if off and not self.logprobs:
            letters = letters[::-1]
        rows = [(each, -random.uniform(0.1, 1.0) - off, "z", -4.0) for each in letters]
        told = Logprobs.of(rows, "generated") if decoding.logprobs and self.logprobs else None
        tokens = len(text) // 4
        held = (tokens - 1 if is_hit else self.starts) if self.tells else None
        return Answer(letters, "length", tokens, held, len(letters), logprobs=told)
