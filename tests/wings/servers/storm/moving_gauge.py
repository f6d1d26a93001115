"""A server of the gauge in this process, whose margins move behind a cached prefix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from needlemap.models import Answer, Decoding
from needlemap.models.walk import Engine, Ids, shared_prefix
from needlemap.prompts import Prompt
from needlemap.servers.gauge.model import NAME, GaugeModel, chat

HIT = 40  # tokens that a prompt shares with an earlier one, from which on that is a hit


class Templated(GaugeModel):
    """A gauge that makes ids of messages itself, as servers do."""

    def prompt_ids(self, prompt: Prompt) -> Ids:
        return chat().row_ids([(each.role, each.content) for each in prompt.messages])


class Served(Templated):
    """Answers as the gauge does. warm: of prompts that are hits; None: the same engine. moved: by
    how many nats the margins of hits are off, which it is asked for each."""

    def __init__(
        self,
        engine: Engine | None = None,
        warm: Engine | None = None,
        moved: Callable[[], float] = float,
    ) -> None:
        super().__init__(NAME, engine)
        self.warm = Templated(NAME, warm) if warm else None
        self.moved, self.hits = moved, 0
        self.known = list[Ids]()

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        ids = self.prompt_ids(prompt)
        hit = max((shared_prefix(ids, each) for each in self.known), default=0) > HIT
        self.known.append(ids)
        self.hits += hit
        if hit and self.warm:
            return await self.warm.answer(prompt, decoding)
        answer = await super().answer(prompt, decoding)
        told = answer.logprobs
        if not hit or told is None:
            return answer
        off = self.moved()
        rest = tuple(each and each - off for each in told.other_nats)
        return replace(answer, logprobs=replace(told, other_nats=rest))
