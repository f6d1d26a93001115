"""When requests may go out: one pacer for all lanes of a run, so that a server is asked at its
own pace.

What it knows of the server's limits are the user's figures, the headers of every reply, and
refusals (429). It spreads requests over both kinds of limit, lets nobody send while a
refusal's wait lasts, and adapts how many requests are open: fewer at a refusal, slowly more
while all goes well (additive increase, multiplicative decrease: Chiu and Jain 1989, Computer
Networks 17:1). It sends nothing itself, and counts no retries.

One limit is a bucket: it holds so much, refills steadily, and each request takes its share. A
server that counts by windows is followed too: it says when it will be full again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from math import inf
from time import monotonic

from needlemap.allowance import Allowance, Quota
from needlemap.errors import Failure, Unmeasured
from needlemap.grid import duration_label

_MINUTE_S = 60.0
_TELLING = 3.0  # requests used, below which a share of the limit tells nothing of the rate
_TELLING_SHARE = 0.02
_KEPT_S = 2.0  # of the rate: how much given back may be kept beyond what it holds
_WEIGHT = 0.5  # of a newly seen rate


@dataclass(slots=True)
class Bucket:
    """rate: what comes in per second. level: what is in it at `at_s`, below 0 when a large
    request went out.

    full_at_s: when the server says that it is full again. heard: whether a server said what
    comes in.
    """

    rate: float
    capacity: float
    level: float
    at_s: float = 0.0
    full_at_s: float = inf
    heard: bool = False

    @classmethod
    def even(cls, per_minute: float | None) -> Bucket | None:
        """A user's limit: requests go out evenly, with no burst. None without one."""
        if per_minute is None:
            return None
        rate = per_minute / _MINUTE_S
        return cls(rate, min(1.0, rate), min(1.0, rate))

    @classmethod
    def learned(cls, quota: Quota, now_s: float) -> Bucket:
        """A server's limit, as first heard of: taken to be a minute's."""
        return cls(quota.limit / _MINUTE_S, quota.limit, quota.limit, now_s)

    def wait_s(self, cost: float, now_s: float) -> float:
        """Until a request of that cost may go out; one larger than all it holds waits until it
        is full."""
        self._refill(now_s)
        missing = min(cost, self.capacity) - self.level
        return min(missing / self.rate, max(0.0, self.full_at_s - now_s)) if missing > 1e-9 else 0.0

    def take(self, cost: float, now_s: float) -> None:
        """A request goes out."""
        self._refill(now_s)
        self.level -= cost
        self.full_at_s += cost / self.rate

    def give(self, cost: float, now_s: float) -> None:
        """A request took less than was taken for it."""
        self._refill(now_s)
        self.level = min(max(self.capacity, _KEPT_S * self.rate), self.level + cost)

    def hear(self, quota: Quota, later: float, sent_s: float, now_s: float) -> None:
        """What a reply says. later: what went out since its request did, at sent_s, and is not
        in its count.

        The server counted somewhen between then and now, so its word bounds the level from
        both sides.
        """
        self._refill(now_s)
        self.capacity = quota.limit
        used = quota.limit - quota.left
        if quota.full_in_s and used >= max(_TELLING, _TELLING_SHARE * quota.limit):
            weight = _WEIGHT if self.heard else 1.0  # what was taken for it until now was a guess
            self.rate += weight * (used / quota.full_in_s - self.rate)
            self.heard = True
        low = quota.left - later
        self.level = max(low, min(self.level, low + self.rate * (now_s - sent_s), quota.limit))
        if quota.full_in_s is not None:
            self.full_at_s = now_s + quota.full_in_s + later / self.rate

    def _refill(self, now_s: float) -> None:
        if now_s >= self.full_at_s:
            self.level, self.full_at_s = max(self.level, self.capacity), inf
        self.level = max(
            self.level, min(self.capacity, self.level + self.rate * (now_s - self.at_s))
        )
        self.at_s = now_s


_DECREASE = 0.7  # of the open requests at a refusal
_FIRST_PAUSE_S = 1.0  # after a refusal that does not say for how long
_LEAST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 60.0
_SHORTER, _LONGER = 0.8, 1.6  # a pause after one that was long enough, and after one that was not
_TRUSTED = 2  # refusals in a row whose word for how long to wait is taken, however short
LONGEST_WAIT_S = (
    600.0  # a server that asks for more is not waited for: the trial is left for a resume
)
OUTAGE_S = 600.0  # for which a server that is not there is waited for, once it has answered
FIRST_PATIENCE_S = 300.0  # of refusals alone since the start, before the run is left for a resume
_LOOK_S = 2.0  # between two looks for a server that was never there
PATIENCE_S = 3600.0  # the same, of a server that has answered
_QUIET_S, _SAID_EVERY_S = 5.0, 30.0  # of waiting, before it is told, and between two tellings


@dataclass(frozen=True, slots=True)
class Ticket:
    """Leave to send one request. number: of all requests; tokens: what it may take; behind:
    what was sent up to it, by kind of limit."""

    number: int
    tokens: float
    sent_s: float
    behind: tuple[float, float]


class Pacer:
    """Times in seconds, of a monotonic clock."""

    def __init__(
        self,
        width: int = 1_000_000,
        *,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        left_s: Callable[[], float] = lambda: inf,
        say: Callable[[str], None] = lambda _: None,
        wait_s: float = 0.0,
    ) -> None:
        """width: the most requests open at a time. left_s: how long the run may still go on.
        say: is called about long waits. wait_s: for a server that was never there."""
        self._most, self._width, self._open = float(width), float(width), 0
        self._left_s, self._say, self._said_s = left_s, say, -inf
        self._first_wait_s, self._missed_since_s = wait_s, inf
        self._answered_s = monotonic()  # when the last answer came, or all began
        self._gate, self._changed = asyncio.Lock(), asyncio.Event()
        self._given = [Bucket.even(rate) for rate in (requests_per_minute, tokens_per_minute)]
        self._learned: list[Bucket | None] = [None, None]  # requests, tokens
        self._sent = 0
        self._behind = (0.0, 0.0)
        self._not_before_s, self._refused_since_s, self._patience_s = 0.0, inf, FIRST_PATIENCE_S
        self._out_since_s = inf  # since when the server is not there
        self._refusals = 0  # in a row, those of requests that were sent together counted once
        self._held_s = 0.0  # for which the server's limits held requests back, since that was told
        self._reduced_at = 0  # the last request sent before the width was reduced
        self._pause_s, self._paused = _FIRST_PAUSE_S, False

    @property
    def width(self) -> int:
        """How many requests may be open now."""
        return max(1, int(self._width))

    @property
    def is_over(self) -> bool:
        """Whether the run's time is up."""
        return self._left_s() <= 0

    async def admit(self, tokens: float = 0.0) -> Ticket | None:
        """Leave to send a request of so many tokens, first come, first served; None when time
        is up.

        Raises Unmeasured when a server's limit has no room for longer than is waited for.
        """
        async with self._gate:
            while (wait_s := self._wait_s(tokens)) > 0:
                left_s = self._left_s()
                if left_s <= 0:
                    return None
                held_s = self._held(tokens)
                self._changed.clear()
                wait_s, start_s = min(wait_s, left_s), monotonic()
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if wait_s == inf else wait_s):
                        await self._changed.wait()
                self._held_s += min(held_s, monotonic() - start_s)
            return None if self.is_over else self._ticket(tokens)

    def _held(self, tokens: float) -> float:
        """Seconds for which the server's own limits hold a request back. Reports it when they
        add up. Raises Unmeasured where it is too long."""
        now = monotonic()
        held_s = max(0.0, self._servers_wait_s(tokens, now))
        if held_s > LONGEST_WAIT_S:
            words = (
                f"The server's rate limit leaves no room for {duration_label(held_s)}, by its last "
                f"reply."
            )
            raise Unmeasured(Failure.RATE_LIMITED, words, transient=True, retry_after_s=held_s)
        if held_s and self._tell(
            "the server's rate limit slows this down; ", self._held_s, held_s, now
        ):
            self._held_s = 0.0
        return held_s

    async def rest(self, wait_s: float) -> bool:
        """Wait before asking again; False when the run's time is up first."""
        left_s = self._left_s()
        await asyncio.sleep(min(wait_s, max(0.0, left_s)))
        return wait_s < left_s

    def answered(
        self, ticket: Ticket, allowance: Allowance | None = None, tokens: float | None = None
    ) -> None:
        """A request was answered. tokens: what it took in the end."""
        now = monotonic()
        self._width = min(self._most, self._width + 1 / self._width)
        self._refused_since_s, self._patience_s, self._answered_s = inf, PATIENCE_S, now
        self._out_since_s, self._refusals = inf, 0
        if self._paused:
            self._pause_s, self._paused = max(_LEAST_PAUSE_S, _SHORTER * self._pause_s), False
        given = self._given[1]
        if given is not None and tokens is not None:
            given.give(ticket.tokens - tokens, now)
        self._hear(ticket, allowance, now)
        self.ended()

    def refused(self, ticket: Ticket, failure: Unmeasured) -> bool:
        """A request met a rate limit (429). Whether to ask again: `admit` then waits as long
        as it takes."""
        now = monotonic()
        for bucket, cost in _costs((*self._given, *self._learned), ticket.tokens):
            bucket.give(cost, now)
        self._hear(ticket, failure.allowance, now)
        fresh = ticket.number > self._reduced_at
        if fresh:
            self._width = max(1.0, min(self._width, self._open) * _DECREASE)
            self._reduced_at = self._sent
            self._refusals += 1
        self._not_before_s = max(self._not_before_s, now + self._wait_after(failure, fresh))
        self._refused_since_s = min(self._refused_since_s, now)
        self.ended()
        since_s = now - self._refused_since_s
        wait_s, lasted = self._not_before_s - now, _lasted(since_s)
        self._tell(f"rate limited: {lasted}", since_s, wait_s, now, f" ({failure})")
        return since_s < self._patience_s

    def waits_out(self, failure: Unmeasured, failed_s: float) -> bool:
        """Whether to keep asking an absent server although retries are used up: for a limited
        time, while no request is answered. failed_s: when the request before this one failed."""
        now = monotonic()
        if not failure.outage or self._answered_s > failed_s:
            return False
        return now - min(self._out_since_s, now) < min(self._patience_s, OUTAGE_S)

    async def awaits(self, failure: Unmeasured) -> bool:
        """Rest a moment where no server was ever there; False when it is not waited for (any
        longer)."""
        now = monotonic()
        self._missed_since_s = min(self._missed_since_s, now)
        left_s = self._missed_since_s + self._first_wait_s - now
        if left_s <= 0:
            return False
        up_to = duration_label(self._first_wait_s)
        self._tell(f"{str(failure).rstrip('.')}; waiting up to {up_to}, ", inf, _LOOK_S, now)
        return await self.rest(min(_LOOK_S, left_s))

    def failed(self, failure: Unmeasured, wait_s: float) -> None:
        """A request failed in passing, and is sent again after so long."""
        now = monotonic()
        if failure.outage:
            self._out_since_s = min(self._out_since_s, now)
        since_s = now - self._answered_s
        self._tell(f"{str(failure).rstrip('.')}; {_lasted(since_s)}", since_s, wait_s, now)

    def _tell(self, what: str, since_s: float, wait_s: float, now: float, why: str = "") -> bool:
        """Say that nothing comes, where that takes long, and not all the time; whether it was
        said."""
        if since_s + wait_s < _QUIET_S or now - self._said_s < _SAID_EVERY_S:
            return False
        self._said_s = now
        self._say(f"{what}asking again in {duration_label(wait_s)}{why}")
        return True

    def ended(self) -> None:
        """A request is no longer open."""
        self._open -= 1
        self._changed.set()

    def _wait_s(self, tokens: float) -> float:
        if self._open >= self.width:
            return inf
        now = monotonic()
        return max(self._servers_wait_s(tokens, now), _room_s(self._given, tokens, now))

    def _servers_wait_s(self, tokens: float, now: float) -> float:
        return max(self._not_before_s - now, _room_s(self._learned, tokens, now))

    def _ticket(self, tokens: float) -> Ticket:
        now = monotonic()
        for bucket, cost in _costs((*self._given, *self._learned), tokens):
            bucket.take(cost, now)
        self._open += 1
        self._sent += 1
        self._behind = (self._behind[0] + 1, self._behind[1] + tokens)
        return Ticket(self._sent, tokens, now, self._behind)

    def _hear(self, ticket: Ticket, allowance: Allowance | None, now: float) -> None:
        """Take up what a reply's headers say."""
        if allowance is None:
            return
        for kind, quota in enumerate((allowance.requests, allowance.tokens)):
            if quota is not None:
                later = self._behind[kind] - ticket.behind[kind]
                bucket = self._learned[kind] or Bucket.learned(quota, now)
                bucket.hear(quota, later, ticket.sent_s, now)
                self._learned[kind] = bucket

    def _wait_after(self, failure: Unmeasured, fresh: bool) -> float:
        """Seconds without any request: the server's own figure, else the wait that was enough
        lately. If a server repeats a figure that is too short, the waits grow."""
        doubts = self._refusals - _TRUSTED
        least_s = min(_LONGEST_PAUSE_S, _LEAST_PAUSE_S * _LONGER**doubts) if doubts > 0 else 0.0
        if failure.retry_after_s:
            return max(least_s, failure.retry_after_s)
        if failure.allowance is not None and self._wait_s(0.0) > 0:
            return least_s  # the headers say when there is room
        if fresh and self._paused:
            self._pause_s = min(_LONGEST_PAUSE_S, _LONGER * self._pause_s)
        self._paused = True
        return self._pause_s


def _costs(buckets: Sequence[Bucket | None], tokens: float) -> list[tuple[Bucket, float]]:
    """Limits of requests and of tokens, by turns, as far as they are known, and what is taken
    of each."""
    costs = zip(buckets, cycle((1.0, tokens)), strict=False)
    return [(bucket, cost) for bucket, cost in costs if bucket is not None]


def _room_s(buckets: Sequence[Bucket | None], tokens: float, now: float) -> float:
    """Until there is room for a request and its tokens."""
    return max((bucket.wait_s(cost, now) for bucket, cost in _costs(buckets, tokens)), default=0.0)


def _lasted(seconds: float) -> str:
    return f"no answer for {duration_label(seconds)}; " if seconds >= 1 else ""
