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
class Reservation:
    """What requests may take at most. usd: 0 where no price is known."""

    tokens: int
    usd: float

    def __add__(self, other: Reservation) -> Reservation:
        """Return the sum of both."""
        return Reservation(self.tokens + other.tokens, self.usd + other.usd)


@dataclass(slots=True)
class Budget:
    """Limits and totals of one run over all its starts; of the time, since this start.

    A limit of None is no limit.

    Attributes:
        usd: What was spent on the tested model and on a judge.
        tokens: The tokens of the tested model.
        over: Whether the time is up, so that nothing more is sent.
    """

    prices: Prices
    limit_usd: float | None = None
    limit_tokens: int | None = None
    limit_time_s: float | None = None
    usd: float = 0.0
    tokens: int = 0
    over: bool = False
    _clock: Clock = field(default_factory=clock)
    _open: list[Reservation] = field(default_factory=list)
    # The least request that did not fit.
    _unfit: Reservation | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def of(cls, settings: Settings) -> Budget:
        """Return the limits that settings name, with nothing spent."""
        return cls(
            Prices.of(settings),
            limit_usd=settings.limit_usd,
            limit_tokens=settings.limit_tokens,
            limit_time_s=settings.limit_time,
        )

    def part(self, parts: int) -> Budget:
        """Return limits of all that is already spent and one of `parts` equal parts of the rest."""
        usd, tokens, time_s = self.limit_usd, self.limit_tokens, self.limit_time_s
        ran_s = self._clock.ran_s
        return replace(
            self,
            limit_usd=None if usd is None else self.usd + (usd - self.usd) / parts,
            limit_tokens=None if tokens is None else self.tokens + (tokens - self.tokens) // parts,
            limit_time_s=None if time_s is None else ran_s + (time_s - ran_s) / parts,
        )

    def waiting(self) -> AbstractContextManager[None]:
        """Return a context in which no request can be sent yet: its time does not count."""
        return self._clock.stopped()

    def read(self, folder: RunFolder) -> None:
        """Count all that earlier starts of a run spent."""
        records = folder.every_record(texts=False)
        closed_book = closed_book_records(folder, texts=False)
        for record in chain(records, closed_book):
            self.add(record)

    def add(self, record: Record) -> None:
        """Count a record of an earlier start. One without a price is counted at today's."""
        self.add_judge_cost(record.judge_usd)
        if record.unread.attempts and not record.rescored:
            self.add_unread(record.unread, record.own_tokens)
        if record.latency_s is None and record.answer is None:
            return
        # The answer of a rescored record was paid for when its prompt was sent.
        if record.rescored:
            return

        prompt_tokens = record.prompt_tokens
        if prompt_tokens is None:
            # The model reports no usage.
            prompt_tokens = record.own_tokens
        self.spend(
            prompt_tokens,
            record.cached_tokens or 0,
            answer_tokens=record.completion_tokens or 0,
            usd=record.usd,
        )
        # The record's price includes these.
        for other in record.beside:
            self.spend(other.tokens or 0, other.cached_tokens or 0, answer_tokens=0, usd=0.0)

    def spend(
        self, prompt_tokens: int, cached_tokens: int, answer_tokens: int, usd: float | None = None
    ) -> None:
        """Count one answer. usd: what it cost, or None to look the price up."""
        self.tokens += prompt_tokens + answer_tokens
        if usd is None:
            usd = self.prices.usd(prompt_tokens, cached_tokens, answer_tokens)
        self.usd += usd or 0.0

    def add_judge_cost(self, usd: float | None) -> None:
        """Count the cost of a judge.

        usd: None for an unknown price, which a limit in dollars refuses.
        """
        self.usd += usd or 0.0

    def add_unread(self, unread: UnreadRecord, prompt_tokens: int = 0) -> bool:
        """Count requests whose answers could not be read. Return True if one may be sent again.

        prompt_tokens: of each prompt, for requests that no server counted.
        """
        sent_tokens = unread.prompt_tokens
        if sent_tokens is None:
            sent_tokens = unread.attempts * prompt_tokens
        self.spend(sent_tokens, 0, answer_tokens=unread.answer_tokens, usd=unread.usd)
        return self._fits_now(Reservation(0, 0.0))

    @property
    def stopped(self) -> str | None:
        """Return the limit that left requests out, with all that is spent by now, or None."""
        if self.over:
            limit = duration_label(self.limit_time_s or 0)
            return f"ran for {limit}, as long as {self._clock.flag} allows"
        return self._limit_reached(self._unfit) if self._unfit else None

    def most_reserved(self, prompts: Iterable[int], answer_tokens: int) -> Reservation:
        """Return what prompts of these lengths may take together, with the longest answers."""
        sizes = list(prompts)
        prices = (self.prices.usd(size, 0, answer_tokens) for size in sizes)
        usd = summed(prices, of_known=True)
        return Reservation(sum(sizes) + answer_tokens * len(sizes), usd or 0.0)

    def cuts(self, requests: Reservation) -> bool:
        """Return True if a limit in dollars or tokens may leave some of these requests out."""
        return self._limit_reached(requests) is not None

    async def reserve(self, prompt_tokens: int, answer_tokens: int) -> Reservation | None:
        """Set aside what a request may take, once there is room; None if there will be none."""
        request = self.most_reserved([prompt_tokens], answer_tokens)
        while not self.over and not self._cannot_fit(request):
            self.look_at_the_clock()
            if self.over:
                break
            if self._limit_reached(request):
                self._unfit = request
            elif self._fits_now(request):
                self._open.append(request)
                return request
            else:
                self._changed.clear()
                await self._changed.wait()
        self._changed.set()
        return None

    def settle(self, reserved: Reservation) -> None:
        """Release what was set aside for a request that ended. `spend` counted its cost."""
        self._open.remove(reserved)
        self._changed.set()

    def look_at_the_clock(self) -> None:
        """Stop if the time is up."""
        self.over = self.over or self.left_s() <= 0

    def left_s(self) -> float:
        """Return the seconds until the time is up."""
        return inf if self.limit_time_s is None else self.limit_time_s - self._clock.ran_s

    def waits_s(self, least_s: float = 0.0) -> float | None:
        """Return the seconds after which waiting is given up, or None if time has no limit."""
        return None if self.limit_time_s is None else max(least_s, self.left_s())

    def spent_text(self) -> str:
        """Return a sentence with the tokens that all starts spent, and the dollars if known."""
        text = f"spent over all starts: {self.tokens:,} tokens"
        # The size of a request does not matter here: it has a price if the model has one.
        has_price = self.prices.usd(prompt_tokens=1, cached_tokens=0, answer_tokens=1) is not None
        # A judge may have cost dollars although the tested model has no price.
        if self.usd or has_price:
            text += f", ${self.usd:.4f}"
        return text

    def state(self) -> str:
        """Return the used part of each limit, in words, or '' without limits."""
        parts = []
        if self.limit_usd is not None:
            parts.append(f"${self.usd:.4f} of ${self.limit_usd:g}")
        if self.limit_tokens is not None:
            parts.append(f"{self.tokens:,} of {self.limit_tokens:,} tokens")
        if self.limit_time_s is not None:
            ran = duration_label(self._clock.ran_s)
            parts.append(f"{ran} of {duration_label(self.limit_time_s)}")
        return " · ".join(parts)

    def _cannot_fit(self, request: Reservation) -> bool:
        """Return True if a request needs at least as much as one that did not fit."""
        unfit = self._unfit
        return unfit is not None and request.tokens >= unfit.tokens and request.usd >= unfit.usd

    def _fits_now(self, request: Reservation) -> bool:
        """Return True if a request fits next to those that are open."""
        most = sum(self._open, Reservation(self.tokens, self.usd) + request)
        return most.tokens <= (self.limit_tokens or inf) and most.usd <= (self.limit_usd or inf)

    def _limit_reached(self, requests: Reservation) -> str | None:
        """Return why requests cannot be sent even once nothing is open, or None if they can."""
        if self.limit_usd is not None and self.usd + requests.usd > self.limit_usd:
            most = f"the next request may cost {requests.usd:.4f}"
            return f"spent {self.usd:.4f} of {self.limit_usd:g} US dollars, and {most}"
        if self.limit_tokens is not None and self.tokens + requests.tokens > self.limit_tokens:
            most = f"the next request may take {requests.tokens:,}"
            return f"used {self.tokens:,} of {self.limit_tokens:,} tokens, and {most}"
        return None
