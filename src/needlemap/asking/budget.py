"""How much a run may spend, and what it has spent.

What a request may cost at most is set aside when it is sent, and given back when the answer
says what it did cost. So a limit holds, except for tokens that a server counts beyond our own
count and for verdicts of a judge that are in flight. A request that does not fit is left out,
and a smaller one may still fit. A request that timed out may be billed: its prompt counts as
spent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import chain
from math import inf

from needlemap.deadline import Clock, clock
from needlemap.grid import duration_label
from needlemap.records.folder import RunFolder
from needlemap.records.loaded import closed_book_records
from needlemap.records.record import Record, UnreadRecord
from needlemap.settings import Settings
from needlemap.settings.prices import Prices, summed


@dataclass(frozen=True, slots=True)
class Reserved:
    """What requests may take at most. usd: 0 where no price is known."""

    tokens: int
    usd: float

    def __add__(self, other: Reserved) -> Reserved:
        """Both together."""
        return Reserved(self.tokens + other.tokens, self.usd + other.usd)


@dataclass(slots=True)
class Budget:
    """Limits and totals of one run, over all its starts; of the time, since this start. None: no
    limit.

    usd: of the tested model and of a judge; tokens: of the tested model.
    """

    prices: Prices
    limit_usd: float | None = None
    limit_tokens: int | None = None
    limit_time_s: float | None = None
    usd: float = 0.0
    tokens: int = 0
    over: bool = False  # the time is up: nothing more is sent
    _clock: Clock = field(default_factory=clock)
    _open: list[Reserved] = field(default_factory=list)
    _unfit: Reserved | None = None  # the least request that did not fit
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def of(cls, settings: Settings) -> Budget:
        """The limits that settings name, with nothing spent."""
        limits = settings.limit_usd, settings.limit_tokens, settings.limit_time
        return cls(Prices.of(settings), *limits)

    def part(self, of: int) -> Budget:
        """Limits of all that is already spent and one of `of` equal parts of the rest."""
        usd, tokens, time_s = self.limit_usd, self.limit_tokens, self.limit_time_s
        ran_s = self._clock.ran_s
        return replace(
            self,
            limit_usd=None if usd is None else self.usd + (usd - self.usd) / of,
            limit_tokens=None if tokens is None else self.tokens + (tokens - self.tokens) // of,
            limit_time_s=None if time_s is None else ran_s + (time_s - ran_s) / of,
        )

    def waiting(self) -> AbstractContextManager[None]:
        """Within it nothing can be asked yet: that time does not count."""
        return self._clock.stopped()

    def read(self, folder: RunFolder) -> None:
        """Count all that earlier starts of a run spent."""
        for record in chain(
            folder.every_record(texts=False), closed_book_records(folder, texts=False)
        ):
            self.add(record)

    def add(self, record: Record) -> None:
        """Count a record of an earlier start. One without a price is counted at today's."""
        self.judged(record.judge_usd)
        if record.unread.attempts and not record.rescored:
            self.lost(record.unread, record.own_tokens)
        if record.latency_s is None and record.answer is None:
            return
        if record.rescored:  # its answer was paid for when it was asked
            return
        prompt = record.prompt_tokens
        if prompt is None:  # a model that reports no usage: our own count
            prompt = record.own_tokens
        self.spend(prompt, record.cached_tokens or 0, record.completion_tokens or 0, record.usd)
        for each in record.beside:  # whose price is in the record's
            self.spend(each.tokens or 0, each.cached_tokens or 0, 0, 0.0)

    def spend(
        self, prompt_tokens: int, cached_tokens: int, answer_tokens: int, usd: float | None = None
    ) -> None:
        """Count one answer. usd: what it cost, None to look the price up."""
        self.tokens += prompt_tokens + answer_tokens
        if usd is None:
            usd = self.prices.usd(prompt_tokens, cached_tokens, answer_tokens)
        self.usd += usd or 0.0

    def judged(self, usd: float | None) -> None:
        """Count the cost of a judge. None for an unknown price, which is refused with a limit
        in dollars."""
        self.usd += usd or 0.0

    def lost(self, unread: UnreadRecord, each: int = 0) -> bool:
        """Count requests whose answers could not be read. Returns whether one may be sent
        again. each: tokens of a prompt, for requests that no server counted."""
        sent = unread.attempts * each if unread.prompt_tokens is None else unread.prompt_tokens
        self.spend(sent, 0, unread.answer_tokens, unread.usd)
        return self._room(Reserved(0, 0.0))

    @property
    def stopped(self) -> str | None:
        """The limit that left requests out, with all that is spent by now; None if none did."""
        if self.over:
            limit = duration_label(self.limit_time_s or 0)
            return f"ran for {limit}, as long as {self._clock.flag} allows"
        return self._reached(self._unfit) if self._unfit else None

    def most(self, prompts: Iterable[int], answer_tokens: int) -> Reserved:
        """What prompts of so many tokens may take together, every answer using its whole budget."""
        sizes = list(prompts)
        usd = summed((self.prices.usd(size, 0, answer_tokens) for size in sizes), of_known=True)
        return Reserved(sum(sizes) + answer_tokens * len(sizes), usd or 0.0)

    def cuts(self, wanted: Reserved) -> bool:
        """Whether a limit in dollars or tokens may leave some of these requests out."""
        return self._reached(wanted) is not None

    async def reserve(self, prompt_tokens: int, answer_tokens: int) -> Reserved | None:
        """Set aside what a request may take, once there is room; None if there will be none."""
        wanted = self.most([prompt_tokens], answer_tokens)
        while not self.over and not self._larger(wanted):
            self.look_at_the_clock()
            if self.over:
                break
            if self._reached(wanted):
                self._unfit = wanted
            elif self._room(wanted):
                self._open.append(wanted)
                return wanted
            else:
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
        self.over = self.over or self.left_s() <= 0

    def left_s(self) -> float:
        """Seconds until the time is up."""
        return inf if self.limit_time_s is None else self.limit_time_s - self._clock.ran_s

    def waits_s(self, least_s: float = 0.0) -> float | None:
        """Seconds after which whatever is waited for is given up; None where time has no limit."""
        return None if self.limit_time_s is None else max(least_s, self.left_s())

    def spent_text(self) -> str:
        """All that is spent, for people."""
        known = self.usd or self.prices.usd(1, 0, 1) is not None
        return f"spent over all starts: {self.tokens:,} tokens" + f", ${self.usd:.4f}" * bool(known)

    def state(self) -> str:
        """The used part of each limit, in words; '' without limits."""
        parts = []
        if self.limit_usd is not None:
            parts.append(f"${self.usd:.4f} of ${self.limit_usd:g}")
        if self.limit_tokens is not None:
            parts.append(f"{self.tokens:,} of {self.limit_tokens:,} tokens")
        if self.limit_time_s is not None:
            ran = duration_label(self._clock.ran_s)
            parts.append(f"{ran} of {duration_label(self.limit_time_s)}")
        return " · ".join(parts)

    def _larger(self, wanted: Reserved) -> bool:
        """Whether a request needs at least as much as one that did not fit. Such a request
        cannot fit either."""
        least = self._unfit
        return least is not None and wanted.tokens >= least.tokens and wanted.usd >= least.usd

    def _room(self, wanted: Reserved) -> bool:
        """Whether a request fits beside those that are open."""
        most = sum(self._open, Reserved(self.tokens, self.usd) + wanted)
        return most.tokens <= (self.limit_tokens or inf) and most.usd <= (self.limit_usd or inf)

    def _reached(self, wanted: Reserved) -> str | None:
        """Why requests cannot be sent even when all that is open has ended; None if they may."""
        if self.limit_usd is not None and self.usd + wanted.usd > self.limit_usd:
            most = f"the next request may cost {wanted.usd:.4f}"
            return f"spent {self.usd:.4f} of {self.limit_usd:g} US dollars, and {most}"
        if self.limit_tokens is not None and self.tokens + wanted.tokens > self.limit_tokens:
            most = f"the next request may take {wanted.tokens:,}"
            return f"used {self.tokens:,} of {self.limit_tokens:,} tokens, and {most}"
        return None
