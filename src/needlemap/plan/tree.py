"""The prefix tree of a run's prompts: what two prompts share, and the order that computes each token once.

Prompts are compared by their spans, so that two prompts of 100,000 tokens cost a few microseconds, and by
token ids where the spans part. Sorted by token ids, prompts are a depth-first walk of their tree: a single
cache, cropped and extended, then computes as many tokens as the tree has nodes, the least there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cmp_to_key
from itertools import pairwise

import numpy as np

from needlemap.prompts import Prompt
from needlemap.tokens import Span


def parting(left: Prompt, right: Prompt) -> tuple[int, int]:
    """Tokens two prompts begin with in common, and -1, 0 or 1 as left sorts before, as or behind right."""
    ours, theirs = _Reader(left), _Reader(right)
    shared = 0
    while True:
        one, other = ours.rest(), theirs.rest()
        if one is None or other is None:
            return shared, (one is not None) - (other is not None)
        size = min(len(one), len(other))
        if not (one.text is other.text and one.start == other.start):
            differing = np.flatnonzero(one.ids[:size] != other.ids[:size])
            if len(differing):
                place = int(differing[0])
                return shared + place, 1 if one.ids[place] > other.ids[place] else -1
        shared += size
        ours.skip(size)
        theirs.skip(size)


def shared_tokens(left: Prompt, right: Prompt) -> int:
    """Tokens that two prompts begin with in common."""
    return parting(left, right)[0]


def walk_order(prompts: Sequence[Prompt]) -> list[int]:
    """The places of prompts in a depth-first walk of their tree; equal prompts keep their order."""
    return [place for place, _ in sorted(enumerate(prompts), key=cmp_to_key(_compared))]


def reused(prompts: Iterable[Prompt]) -> list[int]:
    """For each prompt, asked in this order, the tokens it shares with the one before; 0 for the first."""
    listed = list(prompts)
    return [0, *(shared_tokens(left, right) for left, right in pairwise(listed))][: len(listed)]


def _compared(left: tuple[int, Prompt], right: tuple[int, Prompt]) -> int:
    return parting(left[1], right[1])[1]


class _Reader:
    """Reads a prompt's spans in order, a piece at a time."""

    def __init__(self, prompt: Prompt) -> None:
        self._spans = [span for span in prompt.spans if len(span)]
        self._place = self._offset = 0

    def rest(self) -> Span | None:
        """What is left of the present span; None at the end."""
        if self._place == len(self._spans):
            return None
        span = self._spans[self._place]
        return Span(span.text, span.start + self._offset, span.stop) if self._offset else span

    def skip(self, size: int) -> None:
        """Go on by `size` tokens of the present span."""
        self._offset += size
        if self._offset == len(self._spans[self._place]):
            self._place, self._offset = self._place + 1, 0
