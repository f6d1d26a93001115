"""Compare the margins of a server of the gauge with the reference's, and decide what is too far.

Every server rounds in its own way and moves all margins a little. Fresh prompts that are sent alone
show how far. If the margins of an answer with a right text move farther than that, they are in
doubt.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from needlemap.prompts import Prompt
from needlemap.records.record import Record
from needlemap.servers.check.coarse import PROMPTS, Cache, MovedPrompt, find_cache, moved_prompt
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
    """What is known of a server's margins.

    Attributes:
        alone: By how many nats a token the margins of fresh prompts moved that were sent alone.
        cache: The cache that moves margins as the suspects' moved; None until it was computed.
    """

    alone: list[float] = field(default_factory=list)
    cache: Cache | None = None
    _suspects: list[MovedPrompt] = field(default_factory=list)

    @property
    def limit(self) -> float | None:
        """Return the nats a token beyond which an answer is in doubt.

        It is the limit of the finest data type that explains the fresh prompts' moves, or
        TIMES_USUAL times the largest of them if that is more. If no moves of fresh prompts are
        known, it is None.
        """
        if not self.alone:
            return None
        most_nats = max(self.alone)
        data_type = finest_type(MOVES, most_nats)
        type_limit = data_type[1] if data_type else 0.0
        return max(LEAST_NATS, TIMES_USUAL * most_nats, type_limit)

    @property
    def is_choice(self) -> bool:
        """Return True if a cache coarser than the weights moves margins as the suspects' moved."""
        return self.cache == "coarser"

    @property
    def words(self) -> str:
        """Return by how much fresh prompts moved, in words."""
        most_nats = max(self.alone, default=0.0)
        data_type = finest_type(MOVES, most_nats)
        words = f"fresh prompts alone by up to {most_nats:.2g}"
        if data_type:
            words += f", as {data_type[0]} may"
        return words

    def add_suspect(
        self,
        prompt: Prompt,
        answer: str,
        reference_margins: Margins | None,
        server_margins: Margins | None,
    ) -> None:
        """Keep an answer whose margins moved too far, until there are PROMPTS of them.

        prompt: as the reference is fed it.
        """
        if len(self._suspects) < PROMPTS:
            self._suspects += moved_prompt(prompt, answer, reference_margins, server_margins)

    def find_cache(self) -> None:
        """Find the cache that moves margins as the suspects' moved, unless it is known."""
        if self.cache is None:
            self.cache = find_cache(self._suspects)


def nats_moved(reference: Record | None, record: Record) -> float | None:
    """Return by how many nats a token the margins of an answer moved from the reference's.

    If the reference did not answer, or the two answers have nothing in common, return None.
    """
    if reference is None:
        return None
    return nats_apart(margins_of(reference), margins_of(record))
