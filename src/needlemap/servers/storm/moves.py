"""Margins of a server of the gauge beside the reference's: what it moves, and what is too far.

Every server rounds in its own way, and moves all margins a little. Fresh prompts that are asked
alone tell how far. Margins that move farther behind what stood before, under an answer whose text
is right, are in doubt.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from needlemap.prompts import Prompt
from needlemap.records.record import Record
from needlemap.servers.check.coarse import PROMPTS, Cache, Moved, cache_of, moved_prompt
from needlemap.servers.check.gauge import MOVES
from needlemap.servers.check.margins import (
    LEAST_NATS,
    TIMES_USUAL,
    Margins,
    finest_type,
    margins_of,
    nats_apart,
)


@dataclass
class Moves:
    """What is known of a server's margins. alone: by how many nats a token those of fresh prompts
    moved that were asked alone. cache: the one that moves margins as the suspects' moved; None
    before that was looked at."""

    alone: list[float] = field(default_factory=list)
    cache: Cache | None = None
    _suspects: list[Moved] = field(default_factory=list)

    @property
    def limit(self) -> float | None:
        """Nats a token beyond which an answer is in doubt: those of the finest data type that
        explains the fresh prompts' moves, or twice these; None where these are not known."""
        if not self.alone:
            return None
        most = max(self.alone)
        kind = finest_type(MOVES, most)
        return max(LEAST_NATS, TIMES_USUAL * most, kind[1] if kind else 0.0)

    @property
    def is_choice(self) -> bool:
        """Whether a cache coarser than the weights moves margins as the suspects' moved."""
        return self.cache == "coarser"

    @property
    def words(self) -> str:
        """What fresh prompts moved, in words."""
        most = max(self.alone, default=0.0)
        kind = finest_type(MOVES, most)
        return f"fresh prompts alone by up to {most:.2g}" + (f", as {kind[0]} may" if kind else "")

    def suspect(
        self, prompt: Prompt, answer: str, there: Margins | None, here: Margins | None
    ) -> None:
        """Keep an answer whose margins moved too far, with its prompt as the reference is fed
        it."""
        if len(self._suspects) < PROMPTS:
            self._suspects += moved_prompt(prompt, answer, there, here)

    def look_at_cache(self) -> None:
        """Find the cache that moves margins as the suspects' moved."""
        if self.cache is None:
            self.cache = cache_of(self._suspects)


def moved_by(there: Record | None, here: Record) -> float | None:
    """By how many nats a token the margins of an answer moved; None where that is not known."""
    return None if there is None else nats_apart(margins_of(there), margins_of(here))
