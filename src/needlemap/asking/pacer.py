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
# Requests used, below which a share of the limit tells nothing of the rate.
_TELLING = 3.0
_TELLING_SHARE = 0.02
# Seconds of the rate: how much given back may be kept beyond what a bucket holds.
_KEPT_S = 2.0
# Of a newly seen rate, against the one so far.
_WEIGHT = 0.5


@dataclass(slots=True)
class Bucket:
    """The state of one limit: `level` at the time `at_s`, below 0 after a large request.

    rate: what comes in per second. full_at_s: when the server says that it is full again. heard:
    whether a server said what comes in.
    """

    rate: float
    capacity: float
    level: float
    at_s: float = 0.0
    full_at_s: float = inf
    heard: bool = False

    @classmethod
    def even(cls, per_minute: float | None) -> Bucket | None:
        """Return a user's limit, or None without one. Requests go out evenly, with no burst."""
        if per_minute is None:
            return None
        rate = per_minute / _MINUTE_S
        return cls(rate, min(1.0, rate), min(1.0, rate))

    @classmethod
    def learned(cls, quota: Quota, now_s: float) -> Bucket:
        """Return a server's limit when it is first known: taken to be a minute's."""
        return cls(quota.limit / _MINUTE_S, quota.limit, quota.limit, now_s)

    def wait_s(self, cost: float, now_s: float) -> float:
        """Return the seconds until a request of that cost may go out.

        One larger than all the bucket holds waits until it is full.
        """
        self._refill(now_s)
        missing = min(cost, self.capacity) - self.level
        if missing <= 1e-9:
            return 0.0
        return min(missing / self.rate, max(0.0, self.full_at_s - now_s))

    def take(self, cost: float, now_s: float) -> None:
        """Take the cost of a request that goes out."""
        self._refill(now_s)
        self.level -= cost
        self.full_at_s += cost / self.rate

    def give(self, cost: float, now_s: float) -> None:
        """Give back what a request did not need."""
        self._refill(now_s)
        self.level = min(max(self.capacity, _KEPT_S * self.rate), self.level + cost)

    def hear(self, quota: Quota, later: float, sent_s: float, now_s: float) -> None:
        """Take what a reply reports.

        later: what went out since its request did, at sent_s, and is not in its count. The server
        counted at some moment between then and now, so its figure bounds the level from both sides.
        """
        self._refill(now_s)
        self.capacity = quota.limit
        used = quota.limit - quota.left
        if quota.full_in_s and used >= max(_TELLING, _TELLING_SHARE * quota.limit):
            # Until a server reports a rate, the one in use is a guess.
            weight = _WEIGHT if self.heard else 1.0
            self.rate += weight * (used / quota.full_in_s - self.rate)
            self.heard = True
        low = quota.left - later
        self.level = max(low, min(self.level, low + self.rate * (now_s - sent_s), quota.limit))
        if quota.full_in_s is not None:
            self.full_at_s = now_s + quota.full_in_s + later / self.rate

    def _refill(self, now_s: float) -> None:
        if now_s >= self.full_at_s:
            self.level = max(self.level, self.capacity)
            self.full_at_s = inf
        refilled = self.level + self.rate * (now_s - self.at_s)
        self.level = max(self.level, min(self.capacity, refilled))
        self.at_s = now_s


# The share of the open requests that stays after a refusal.
_DECREASE = 0.7
# The pause after a refusal that does not say for how long.
_FIRST_PAUSE_S = 1.0
_LEAST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 60.0
# How a pause changes after one that was long enough, and after one that was not.
_SHORTER, _LONGER = 0.8, 1.6
# Refusals in a row whose figure for how long to wait is taken, however short.
_TRUSTED = 2
# A server that asks for a longer wait is not waited for: the trial is left for a resume.
LONGEST_WAIT_S = 600.0
# For how long a server that is not there is waited for, once it has answered.
OUTAGE_S = 600.0
# Of refusals alone since the start, before the run is left for a resume.
FIRST_PATIENCE_S = 300.0
# The same, of a server that has answered.
PATIENCE_S = 3600.0
# Between two looks for a server that was never there.
_LOOK_S = 2.0
# Of waiting before it is reported, and between two reports.
_QUIET_S, _SAID_EVERY_S = 5.0, 30.0


@dataclass(frozen=True, slots=True)
class Ticket:
    """Permission to send one request.

    Attributes:
        number: The request's number among all requests.
        tokens: The most tokens that it may take.
        sent_s: When it was sent.
        behind: What was sent up to it: requests, and tokens.
    """

    number: int
    tokens: float
    sent_s: float
    behind: tuple[float, float]


class Pacer:
    """Decides when requests to one server go out. Times are seconds of a monotonic clock."""

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
        """Start at the full width.

        Args:
            width: the most requests open at a time.
            requests_per_minute, tokens_per_minute: limits that were set; None for none.
            left_s: returns how long the run may still go on.
            say: is called about long waits.
            wait_s: how long to wait for a server that was never there.
        """
        self._most = float(width)
        self._width = float(width)
        self._open = 0
        self._left_s = left_s
        self._say = say
        self._said_s = -inf
        self._first_wait_s = wait_s
        self._missed_since_s = inf
        # When the last answer came, or the run started.
        self._answered_s = monotonic()
        self._gate = asyncio.Lock()
        self._changed = asyncio.Event()
        # Limits of requests and of tokens: the user's, and the server's.
        self._given = [Bucket.even(rate) for rate in (requests_per_minute, tokens_per_minute)]
        self._learned: list[Bucket | None] = [None, None]
        self._sent = 0
        self._behind = (0.0, 0.0)
        self._not_before_s = 0.0
        self._refused_since_s = inf
        self._patience_s = FIRST_PATIENCE_S
        # Since when the server is not there.
        self._out_since_s = inf
        # Refusals in a row. Those of requests that were sent together count once.
        self._refusals = 0
        # For how long the server's limits held requests back, since that was last reported.
        self._held_s = 0.0
        # The last request sent before the width was reduced.
        self._reduced_at = 0
        self._pause_s = _FIRST_PAUSE_S
        self._paused = False

    @property
    def width(self) -> int:
        """Return how many requests may be open now."""
        return max(1, int(self._width))

    @property
    def is_over(self) -> bool:
        """Return True if the run's time is up."""
        return self._left_s() <= 0

    async def admit(self, tokens: float = 0.0) -> Ticket | None:
        """Wait until a request may be sent, and return its ticket.

        Callers are served in the order in which they call. If the run's time is up first, the
        result is None. If the server's limit would hold the request back for longer than
        LONGEST_WAIT_S, Unmeasured is raised.

        tokens: the most that the request may take.
        """
        async with self._gate:
            while (wait_s := self._wait_s(tokens)) > 0:
                left_s = self._left_s()
                if left_s <= 0:
                    return None

                held_s = self._limit_wait_s(tokens)
                self._changed.clear()
                wait_s = min(wait_s, left_s)
                start_s = monotonic()
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if wait_s == inf else wait_s):
                        await self._changed.wait()
                self._held_s += min(held_s, monotonic() - start_s)
            return None if self.is_over else self._ticket(tokens)

    def _limit_wait_s(self, tokens: float) -> float:
        """Return the seconds for which the server's own limits hold a request back.

        If they add up to a long time, they are reported. If they are more than LONGEST_WAIT_S,
        Unmeasured is raised.
        """
        now = monotonic()
        held_s = max(0.0, self._servers_wait_s(tokens, now))
        if held_s > LONGEST_WAIT_S:
            words = (
                f"The server's rate limit leaves no room for {duration_label(held_s)}, by its last "
                f"reply."
            )
            raise Unmeasured(Failure.RATE_LIMITED, words, transient=True, retry_after_s=held_s)
        event = "the server's rate limit slows this down; "
        if held_s and self._tell(event, since_s=self._held_s, wait_s=held_s, now=now):
            self._held_s = 0.0
        return held_s

    async def rest(self, wait_s: float) -> bool:
        """Wait before a retry, and return True if the run's time is not up then."""
        left_s = self._left_s()
        await asyncio.sleep(min(wait_s, max(0.0, left_s)))
        return wait_s < left_s

    def answered(
        self, ticket: Ticket, allowance: Allowance | None = None, tokens: float | None = None
    ) -> None:
        """Take note of an answered request.

        allowance: what the server's reply reports about its limits. tokens: the tokens that the
        request took in the end.
        """
        now = monotonic()
        self._width = min(self._most, self._width + 1 / self._width)
        self._answered_s = now
        self._refused_since_s = inf
        self._patience_s = PATIENCE_S
        self._out_since_s = inf
        self._refusals = 0
        if self._paused:
            self._pause_s = max(_LEAST_PAUSE_S, _SHORTER * self._pause_s)
            self._paused = False
        own_tokens_limit = self._given[1]
        if own_tokens_limit is not None and tokens is not None:
            own_tokens_limit.give(ticket.tokens - tokens, now)
        self._hear(ticket, allowance, now)
        self.ended()

    def refused(self, ticket: Ticket, failure: Unmeasured) -> bool:
        """Take note of a request that met a rate limit (429), and return True to send it again.

        `admit` then waits until the server takes requests again.
        """
        now = monotonic()
        for bucket, cost in _costs((*self._given, *self._learned), ticket.tokens):
            bucket.give(cost, now)
        self._hear(ticket, failure.allowance, now)
        is_new = ticket.number > self._reduced_at
        if is_new:
            self._width = max(1.0, min(self._width, self._open) * _DECREASE)
            self._reduced_at = self._sent
            self._refusals += 1
        self._not_before_s = max(self._not_before_s, now + self._wait_after(failure, is_new))
        self._refused_since_s = min(self._refused_since_s, now)
        self.ended()

        since_s = now - self._refused_since_s
        self._tell(
            f"rate limited: {_lasted(since_s)}",
            since_s=since_s,
            wait_s=self._not_before_s - now,
            now=now,
            reason=f" ({failure})",
        )
        return since_s < self._patience_s

    def waits_out(self, failure: Unmeasured, failed_s: float) -> bool:
        """Return True to keep trying an absent server although retries are used up.

        It is tried for a limited time, while no request is answered. failed_s: when the request
        before this one failed.
        """
        now = monotonic()
        if not failure.outage or self._answered_s > failed_s:
            return False
        return now - min(self._out_since_s, now) < min(self._patience_s, OUTAGE_S)

    async def awaits(self, failure: Unmeasured) -> bool:
        """Wait a moment for a server that was never there, and return True to try again.

        Once it was waited for as long as the user wants, the result is False.
        """
        now = monotonic()
        self._missed_since_s = min(self._missed_since_s, now)
        left_s = self._missed_since_s + self._first_wait_s - now
        if left_s <= 0:
            return False
        longest = duration_label(self._first_wait_s)
        event = f"{str(failure).rstrip('.')}; waiting up to {longest}, "
        self._tell(event, since_s=inf, wait_s=_LOOK_S, now=now)
        return await self.rest(min(_LOOK_S, left_s))

    def failed(self, failure: Unmeasured, wait_s: float) -> None:
        """Take note of a request that failed and is sent again after `wait_s`."""
        now = monotonic()
        if failure.outage:
            self._out_since_s = min(self._out_since_s, now)
        since_s = now - self._answered_s
        event = f"{str(failure).rstrip('.')}; {_lasted(since_s)}"
        self._tell(event, since_s=since_s, wait_s=wait_s, now=now)

    def _tell(
        self, event: str, since_s: float, wait_s: float, now: float, reason: str = ""
    ) -> bool:
        """Report that nothing comes, if that takes long and not too often; whether it did."""
        if since_s + wait_s < _QUIET_S or now - self._said_s < _SAID_EVERY_S:
            return False
        self._said_s = now
        self._say(f"{event}asking again in {duration_label(wait_s)}{reason}")
        return True

    def ended(self) -> None:
        """Close a request."""
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
        """Take what a reply's headers report."""
        if allowance is None:
            return
        for kind, quota in enumerate((allowance.requests, allowance.tokens)):
            if quota is not None:
                later = self._behind[kind] - ticket.behind[kind]
                bucket = self._learned[kind] or Bucket.learned(quota, now)
                bucket.hear(quota, later, ticket.sent_s, now)
                self._learned[kind] = bucket

    def _wait_after(self, failure: Unmeasured, is_new: bool) -> float:
        """Return the seconds without any request: the server's figure, or a wait that sufficed.

        If a server repeats a figure that is too short, the waits grow.
        """
        doubts = self._refusals - _TRUSTED
        least_s = min(_LONGEST_PAUSE_S, _LEAST_PAUSE_S * _LONGER**doubts) if doubts > 0 else 0.0
        if failure.retry_after_s:
            return max(least_s, failure.retry_after_s)
        # The headers say when there is room.
        if failure.allowance is not None and self._wait_s(0.0) > 0:
            return least_s
        if is_new and self._paused:
            self._pause_s = min(_LONGEST_PAUSE_S, _LONGER * self._pause_s)
        self._paused = True
        return self._pause_s


def _costs(buckets: Sequence[Bucket | None], tokens: float) -> list[tuple[Bucket, float]]:
    """Return the known limits of requests and of tokens, in turn, and what is taken of each."""
    costs = zip(buckets, cycle((1.0, tokens)), strict=False)
    return [(bucket, cost) for bucket, cost in costs if bucket is not None]


def _room_s(buckets: Sequence[Bucket | None], tokens: float, now: float) -> float:
    """Return the seconds until there is room for a request and its tokens."""
    return max((bucket.wait_s(cost, now) for bucket, cost in _costs(buckets, tokens)), default=0.0)


def _lasted(seconds: float) -> str:
    return f"no answer for {duration_label(seconds)}; " if seconds >= 1 else ""
