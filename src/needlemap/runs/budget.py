"""How much a run may spend, and what it has spent. A limit is passed by the requests in flight at most."""

from __future__ import annotations

from dataclasses import dataclass

from needlemap.money import Prices
from needlemap.runs.record import Record


@dataclass(slots=True)
class Budget:
    """Limits and totals of one run, over all its starts. None: no limit.

    Only the tested model counts: what a judge costs is in the records' `scorer.why`.
    """

    prices: Prices
    limit_usd: float | None = None
    limit_tokens: int | None = None
    usd: float = 0.0
    tokens: int = 0

    def add(self, record: Record) -> None:
        """Count a record of an earlier start. One without a price is counted at today's."""
        if record.answer is None:
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

    @property
    def spent(self) -> str | None:
        """Which limit is reached, in words; None while there is room."""
        if self.limit_usd is not None and self.usd >= self.limit_usd:
            return f"spent {self.usd:.4f} of {self.limit_usd:g} US dollars"
        if self.limit_tokens is not None and self.tokens >= self.limit_tokens:
            return f"used {self.tokens:,} of {self.limit_tokens:,} tokens"
        return None
