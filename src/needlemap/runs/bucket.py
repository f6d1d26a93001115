"""One limit as a bucket: it holds so much, refills steadily, and each request takes its share.

A server that counts by windows, not by buckets, is followed too: it says when it will be full again.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from needlemap.models.allowance import Quota

_MINUTE_S = 60.0
_TELLING = 3.0  # requests used, below which a share of the limit tells nothing of the rate
_TELLING_SHARE = 0.02
_KEPT_S = 2.0  # of the rate: how much given back may be kept beyond what it holds
_WEIGHT = 0.5  # of a newly seen rate


@dataclass(slots=True)
class Bucket:
    """rate: what comes in per second. level: what is in it at `at_s`, below 0 when a large request went out.

    full_at_s: when the server says that it is full again. heard: whether a server said what comes in.
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
        """Until a request of that cost may go out; one larger than all it holds waits until it is full."""
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
        """What a reply says. later: what went out since its request did, at sent_s, and is not in its count.

        The server counted somewhen between then and now, so its word bounds the level from both sides.
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
        self.level = max(self.level, min(self.capacity, self.level + self.rate * (now_s - self.at_s)))
        self.at_s = now_s
