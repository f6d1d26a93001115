"""Prompt tokens that a server counts: never more than were sent to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

# Tokens of a message that a server's template may add, at most.
TEMPLATE = 32
# If the server has another vocabulary: how many times the ratio of the first prompts a later one
# may have.
SPARE = 1.25


@dataclass(frozen=True, slots=True)
class Over:
    """A request of which more tokens were counted than were sent.

    Attributes:
        key: The number of its record.
        counted: Tokens that the server counted.
        most: The most that it may count.
    """

    key: int
    counted: int
    most: int


@dataclass
class Counts:
    """The prompt tokens that a server counts.

    Attributes:
        first_prompts: Our count and the server's, of each of the first prompts.
        over: Requests of which it counts too many.
    """

    first_prompts: list[tuple[int, int]] = field(default_factory=list)
    over: list[Over] = field(default_factory=list)

    def most_tokens(self, own_count: int, messages: int) -> int | None:
        """Return the most tokens that the server may count in a prompt.

        If fewer than two first prompts were counted, return None. own_count: its tokens by our
        count. messages: of how many messages it is.

        >>> Counts([(200, 220), (900, 920)]).most_tokens(1_000, 1)
        1052
        >>> Counts([(200, 300), (900, 1_200)]).most_tokens(1_000, 3)
        1971
        """
        if len(self.first_prompts) < 2:
            return None

        template_tokens = TEMPLATE * messages
        framings = {counted - own for own, counted in self.first_prompts}
        # The same difference for all lengths: the vocabulary is ours, and a template adds the rest.
        if len(framings) == 1:
            return own_count + max(0, framings.pop()) * messages + template_tokens
        ratio = max(counted / max(1, own) for own, counted in self.first_prompts)
        return round(SPARE * ratio * own_count) + template_tokens

    def check(self, key: int, own_count: int, counted: int | None, messages: int) -> None:
        """Keep a request if the server counted more tokens than it may."""
        most = self.most_tokens(own_count, messages)
        if counted is not None and own_count and most is not None and counted > most:
            self.over.append(Over(key, counted, most))


def counts_line(over: Sequence[Over]) -> list[str]:
    """Return a line on requests of which too many tokens were counted, or none without any."""
    if not over:
        return []
    first = over[0]
    return [
        f"prompt tokens exceed what was sent in {len(over):,} requests; the first is request "
        f"{first.key}: {first.counted:,} are counted of at most {first.most:,}"
    ]
