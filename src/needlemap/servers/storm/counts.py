"""Prompt tokens that a server counts: never more than were sent to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

TEMPLATE = 32  # tokens of a message that a server's template may add
SPARE = 1.25  # times what first prompts count, of another vocabulary, that others may


@dataclass(frozen=True, slots=True)
class Over:
    """A request of which more tokens were counted than were sent. key: its record's number."""

    key: int
    counted: int
    most: int


@dataclass
class Counts:
    """What a server counts. first: of first prompts, our count and the server's. over: requests of
    which it counts too many."""

    first: list[tuple[int, int]] = field(default_factory=list)
    over: list[Over] = field(default_factory=list)

    def most(self, own: int, messages: int) -> int | None:
        """Return how many tokens a prompt may have by the server's count, or None if that is not
        known. own: by ours.

        >>> Counts([(200, 220), (900, 920)]).most(1_000, 1)
        1052
        >>> Counts([(200, 300), (900, 1_200)]).most(1_000, 3)
        1971
        """
        if len(self.first) < 2:
            return None
        framing = {counted - own for own, counted in self.first}
        if len(framing) == 1:
            return own + max(0, framing.pop()) * messages + TEMPLATE * messages
        times = max(counted / max(1, own) for own, counted in self.first)
        return round(SPARE * times * own) + TEMPLATE * messages

    def look_at(self, key: int, own: int, counted: int | None, messages: int) -> None:
        """Keep a request of which too many tokens are counted."""
        most = self.most(own, messages)
        if counted is not None and own and most is not None and counted > most:
            self.over.append(Over(key, counted, most))


def counts_line(over: Sequence[Over]) -> list[str]:
    """Return what to say of requests of which too many tokens are counted."""
    if not over:
        return []
    first = over[0]
    return [
        f"prompt tokens exceed what was sent in {len(over):,} requests; the first is request "
        f"{first.key}: {first.counted:,} are counted of at most {first.most:,}"
    ]
