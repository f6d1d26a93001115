"""How much a run may spend, and what it has spent. A limit is passed by the requests in flight at most."""

from __future__ import annotations

from dataclasses import dataclass

from needlemap.runs.record import Record


@dataclass(slots=True)
class Budget:
    """Limits and totals of one run. None: no limit. usd is None once a call's price was unknown."""

    limit_usd: float | None = None
    limit_tokens: int | None = None
    usd: float | None = 0.0
    tokens: int = 0

    def add(self, record: Record) -> None:
        """Count what a trial cost."""
        self.tokens += (record.prompt_tokens or 0) + (record.completion_tokens or 0)
        if record.usd is not None and self.usd is not None:
            self.usd += record.usd
        elif record.answer is not None:
            self.usd = None

    @property
    def spent(self) -> str | None:
        """Which limit is reached, in words; None while there is room."""
        if self.limit_usd is not None and (self.usd or 0.0) >= self.limit_usd:
            return f"spent {self.usd:.4f} of {self.limit_usd:g} US dollars"
        if self.limit_tokens is not None and self.tokens >= self.limit_tokens:
            return f"used {self.tokens:,} of {self.limit_tokens:,} tokens"
        return None
