"""Rate limits of the test server, as providers keep them: buckets that refill, or windows that end.

--limit takes JSON: requests_per_minute, tokens_per_minute (prompt words and the answer's budget),
burst (a full allowance as a share of a minute's; 1 by default), window_s (a fixed window instead of
a bucket), headers ("openai", "anthropic" or "none"), retry_after (true, false, or "seconds" for
whole ones).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic, time
from typing import Any

KINDS = ("requests", "tokens")


@dataclass
class Kept:
    """One allowance of one kind. window_s: 0 for a bucket that refills all the time."""

    per_minute: float
    capacity: float
    window_s: float = 0.0
    left: float = field(init=False)
    at: float = field(init=False)

    def __post_init__(self) -> None:
        self.left, self.at = self.capacity, monotonic()

    def refill(self, now: float) -> None:
        """Up to now."""
        if self.window_s:
            passed = int((now - self.at) / self.window_s)
            if passed:
                self.left, self.at = self.capacity, self.at + passed * self.window_s
            return
        self.left = min(self.capacity, self.left + (now - self.at) * self.per_minute / 60)
        self.at = now

    def wait_s(self, cost: float) -> float:
        """Until so much is there, as of the last refill."""
        if self.left >= min(cost, self.capacity):
            return 0.0
        if self.window_s:
            return self.window_s - (monotonic() - self.at)
        return (min(cost, self.capacity) - self.left) * 60 / self.per_minute

    @property
    def full_in_s(self) -> float:
        """Until it is full again."""
        if self.window_s:
            return self.window_s - (monotonic() - self.at)
        return (self.capacity - self.left) * 60 / self.per_minute


class Limits:
    """What the server still takes. refused: how often it said 429."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.headers, self.retry_after = (
            said.get("headers", "openai"),
            said.get("retry_after", True),
        )
        self.refused = 0
        window_s = said.get("window_s", 0.0)
        self.kept = {}
        for kind in KINDS:
            rate = said.get(f"{kind}_per_minute")
            if rate:
                share = window_s / 60 if window_s else said.get("burst", 1)
                self.kept[kind] = Kept(rate, max(1.0, rate * share), window_s)

    def take(self, tokens: int) -> tuple[bool, dict[str, str]]:
        """Whether a request of so many tokens is taken, and the headers to answer it with."""
        costs = {"requests": 1.0, "tokens": float(tokens)}
        for kept in self.kept.values():
            kept.refill(monotonic())
        wait_s = max((kept.wait_s(costs[kind]) for kind, kept in self.kept.items()), default=0.0)
        if wait_s <= 0:
            for kind, kept in self.kept.items():
                kept.left -= costs[kind]
            return True, self._limit_headers()
        self.refused += 1
        return False, self._limit_headers() | self._after(wait_s)

    def _after(self, wait_s: float) -> dict[str, str]:
        if self.retry_after == "seconds":
            return {"retry-after": str(math.ceil(wait_s))}
        return {"retry-after-ms": str(math.ceil(wait_s * 1000))} if self.retry_after else {}

    def _limit_headers(self) -> dict[str, str]:
        said: dict[str, str] = {}
        for kind, kept in self.kept.items():
            limit, left, full = str(round(kept.capacity)), str(int(kept.left)), kept.full_in_s
            if self.headers == "openai":
                said[f"x-ratelimit-limit-{kind}"] = limit
                said[f"x-ratelimit-remaining-{kind}"] = left
                said[f"x-ratelimit-reset-{kind}"] = f"{math.ceil(full * 1000)}ms"
            elif self.headers == "anthropic":
                until = datetime.fromtimestamp(time() + full, UTC).isoformat()
                said[f"anthropic-ratelimit-{kind}-limit"] = limit
                said[f"anthropic-ratelimit-{kind}-remaining"] = left
                said[f"anthropic-ratelimit-{kind}-reset"] = until.replace("+00:00", "Z")
        return said
