"""How much a run may spend, and what it has spent.

What a request may cost at most is set aside when it is sent, and given back when the answer says what it did
cost. So a limit holds but for what a server counts beyond our own count, and for verdicts of a judge that are
in flight. A request that timed out may be billed: its prompt counts as spent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from time import monotonic

from needlemap.durations import duration_label
from needlemap.money import Prices
from needlemap.runs.record import Record
from needlemap.settings import Settings


@dataclass(frozen=True, slots=True)
class Reserved:
    """What one request may take at most."""

    tokens: int
    usd: float


@dataclass(slots=True)
class Budget:
    """Limits and totals of one run, over all its starts; of the time, since this start. None: no limit.

    usd: of the tested model and of a judge; tokens: of the tested model.
    """

    prices: Prices
    limit_usd: float | None = None
    limit_tokens: int | None = None
    limit_time_s: float | None = None
    usd: float = 0.0
    tokens: int = 0
    stopped: str | None = None
    look: Callable[[], None] | None = None  # counts what others have spent of the same limits
    _started_s: float = field(default_factory=monotonic)
    _open: list[Reserved] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def of(cls, settings: Settings, started_s: float | None = None) -> Budget:
        """The limits that settings name, with nothing spent. started_s: since when time counts, by the
        monotonic clock; now, if not given."""
        limits = settings.limit_usd, settings.limit_tokens, settings.limit_time
        return cls(Prices.of(settings), *limits, _started_s=monotonic() if started_s is None else started_s)

    def add(self, record: Record) -> None:
        """Count a record of an earlier start. One without a price is counted at today's."""
        self.judged(record.judge_usd)
        if not record.rescored:
            self.lost(record.timed_out * (record.prompt.tokens if record.prompt else 0))
        if record.latency_s is None and record.answer is None:
            return
        if record.rescored:  # its answer was paid for when it was asked
            return
        prompt = record.prompt_tokens
        if prompt is None:  # a model that reports no usage: our own count
            prompt = record.prompt.tokens if record.prompt else 0
        self.spend(prompt, record.cached_tokens or 0, record.completion_tokens or 0, record.usd)

    def spend(
        self, prompt_tokens: int, cached_tokens: int, answer_tokens: int, usd: float | None = None
    ) -> None:
        """Count one answer. usd: what it cost, None to look the price up."""
        self.tokens += prompt_tokens + answer_tokens
        if usd is None:
            usd = self.prices.usd(prompt_tokens, cached_tokens, answer_tokens)
        self.usd += usd or 0.0

    def judged(self, usd: float | None) -> None:
        """Count what a judge cost; None for an unknown price, which no limit in dollars goes with."""
        self.usd += usd or 0.0

    def lost(self, prompt_tokens: int) -> bool:
        """Count a request that timed out; whether it may be sent again."""
        self.spend(prompt_tokens, 0, 0)
        return self._room(Reserved(0, 0.0))

    async def reserve(self, prompt_tokens: int, answer_tokens: int) -> Reserved | None:
        """Set aside what a request may take, once there is room; None, and `stopped`, if there is none."""
        wanted = Reserved(
            prompt_tokens + answer_tokens, self.prices.usd(prompt_tokens, 0, answer_tokens) or 0.0
        )
        while not self.stopped:
            if self.look is not None and (self.limit_usd is not None or self.limit_tokens is not None):
                self.look()
            self.stopped = self._reached(wanted)
            if not self.stopped and self._room(wanted):
                self._open.append(wanted)
                return wanted
            if not self.stopped:
                self._changed.clear()
                await self._changed.wait()
        self._changed.set()
        return None

    def settle(self, reserved: Reserved) -> None:
        """A request has ended; what it cost was counted by `spend`."""
        self._open.remove(reserved)
        self._changed.set()

    def look_at_the_clock(self) -> None:
        """Stop if the time is up."""
        self.stopped = self.stopped or self._late()

    def left_s(self) -> float:
        """Seconds until the time is up."""
        return inf if self.limit_time_s is None else self.limit_time_s - self._ran_s

    def state(self) -> str:
        """What is used of each limit, for people; '' without limits."""
        parts = []
        if self.limit_usd is not None:
            parts.append(f"${self.usd:.4f} of ${self.limit_usd:g}")
        if self.limit_tokens is not None:
            parts.append(f"{self.tokens:,} of {self.limit_tokens:,} tokens")
        if self.limit_time_s is not None:
            parts.append(f"{duration_label(self._ran_s)} of {duration_label(self.limit_time_s)}")
        return " · ".join(parts)

    @property
    def _ran_s(self) -> float:
        return monotonic() - self._started_s

    def _late(self) -> str | None:
        if self.left_s() > 0:
            return None
        return f"ran for {duration_label(self.limit_time_s or 0)}, as long as --limit-time allows"

    def _room(self, wanted: Reserved) -> bool:
        """Whether a request fits beside those that are open."""
        tokens = self.tokens + wanted.tokens + sum(each.tokens for each in self._open)
        usd = self.usd + wanted.usd + sum(each.usd for each in self._open)
        return tokens <= (self.limit_tokens or inf) and usd <= (self.limit_usd or inf)

    def _reached(self, wanted: Reserved) -> str | None:
        """Why a request cannot be sent even when all that is open has ended; None if it may."""
        if late := self._late():
            return late
        if self.limit_usd is not None and self.usd + wanted.usd > self.limit_usd:
            most = f"the next request may cost {wanted.usd:.4f}"
            return f"spent {self.usd:.4f} of {self.limit_usd:g} US dollars, and {most}"
        if self.limit_tokens is not None and self.tokens + wanted.tokens > self.limit_tokens:
            most = f"the next request may take {wanted.tokens:,}"
            return f"used {self.tokens:,} of {self.limit_tokens:,} tokens, and {most}"
        return None
