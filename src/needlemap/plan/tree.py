"""The prefix tree of prompts: where two part, and the walk that computes each token once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cmp_to_key
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from needlemap.plan.cover import ALONE, WALKED
from needlemap.prompts import Message, Prompt
from needlemap.text.tokens import Span

if TYPE_CHECKING:
    from needlemap.trials import Trial


LEAST_TOKENS = 1024
Side = Callable[[int], int | None] | None


def parting(left: Prompt, right: Prompt) -> tuple[int, int]:
    """Tokens two prompts begin with in common, and -1, 0 or 1 as left sorts before, as or
    behind right."""
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
    """The places of prompts in a depth-first walk of their tree; equal prompts keep their
    order."""
    return [place for place, _ in sorted(enumerate(prompts), key=cmp_to_key(_compared))]


def reused(prompts: Iterable[Prompt]) -> list[int]:
    """For each prompt, asked in this order, the tokens it shares with the one before; 0 for
    the first."""
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
        """The rest of the present span; None at the end."""
        if self._place == len(self._spans):
            return None
        span = self._spans[self._place]
        return Span(span.text, span.start + self._offset, span.stop) if self._offset else span

    def skip(self, size: int) -> None:
        """Go on by `size` tokens of the present span."""
        self._offset += size
        if self._offset == len(self._spans[self._place]):
            self._place, self._offset = self._place + 1, 0


def with_breakpoints(walk: Sequence[Prompt], least_tokens: int = LEAST_TOKENS) -> list[Prompt]:
    """The prompts of a walk, with the breakpoints that let each read what its neighbours
    wrote."""
    shared = [*reused(walk), 0]
    return [
        broken(
            prompt,
            sorted(
                {point for point in (shared[place], shared[place + 1]) if point >= least_tokens}
            ),
        )
        for place, prompt in enumerate(walk)
    ]


def with_partings(walk: Sequence[Prompt]) -> list[Prompt]:
    """The prompts of a walk, with the lengths at which those asked later part from them."""
    places = partings(reused(walk))
    return [replace(prompt, partings=found) for prompt, found in zip(walk, places, strict=True)]


def partings(shared: Sequence[int]) -> list[tuple[int, ...]]:
    """For prompts that share so many tokens with the one before: the lengths, ascending, at
    which later ones part from each. What any later one shares is the least that was shared on
    the way to it.

    >>> partings([0, 5, 3, 4, 0])
    [(3, 5), (3,), (4,), (), ()]
    """
    found: list[tuple[int, ...]] = [()]
    for tokens in reversed(shared[1:]):
        nearer = tuple(place for place in found[-1] if place < tokens)
        found.append((*nearer, tokens) if tokens else ())
    return found[::-1][: len(shared)]


def broken(prompt: Prompt, points: Sequence[int]) -> Prompt:
    """A prompt whose context message is split at these token counts from the prompt's start.

    Points outside that message fall away. The text stays as it is.
    """
    number, first, last = prompt.context
    start = sum(len(span) for message in prompt.messages[:number] for span in message.spans)
    spans: list[Span] = []
    breaks: list[int] = []
    edges: list[int] = []  # how many pieces stand before each of the message's own spans
    for span in prompt.messages[number].spans:
        edges.append(len(spans))
        for piece in _split(
            span, [point - start for point in points if start < point < start + len(span)]
        ):
            start += len(piece)
            if start in points:
                breaks.append(len(spans))
            spans.append(piece)
    edges.append(len(spans))
    message = Message(prompt.messages[number].role, tuple(spans))
    return replace(
        prompt,
        messages=(*prompt.messages[:number], message, *prompt.messages[number + 1 :]),
        context=(number, edges[first], edges[last]),
        breakpoints=tuple(breaks),
    )


def _split(span: Span, points: Sequence[int]) -> list[Span]:
    """A span in pieces that end at these of its tokens, and at its end."""
    stops = sorted({*points, len(span)})
    starts = [0, *stops[:-1]]
    return [
        Span(span.text, span.start + start, span.start + stop)
        for start, stop in zip(starts, stops, strict=True)
    ]


def ordered(trials: Iterable[Trial], mode: str, side: Side = None) -> list[Trial]:
    """Trials in the order they are asked. Modes 'single' and 'cold' keep the order of the
    grid. Those that serve each other (see `Traits.side`) are walked together."""
    listed = list(trials)
    if mode not in WALKED:
        return listed
    walk = [listed[place] for place in walk_order([trial.prompt for trial in listed])]
    return (
        walk
        if side is None
        else sorted(walk, key=lambda trial: side(trial.prompt.asked_tokens) or 0)
    )


def by_length(walk: Iterable[Trial]) -> list[list[Trial]]:
    """Ordered trials length by length, the shortest first, each at all its depths, repeat
    after repeat."""
    found: dict[int, list[Trial]] = {}
    for trial in sorted(walk, key=lambda trial: (trial.cell.length_tokens, trial.repeat)):
        found.setdefault(trial.cell.length_tokens, []).append(trial)
    return list(found.values())


def shared(walk: Sequence[Trial], mode: str, side: Side = None) -> list[int]:
    """For each of the ordered trials the tokens its prompt shares with the one before; 0 where
    none are, or where the model's cache does not serve it (see `Traits.side`)."""
    if mode == ALONE:
        return [0] * len(walk)
    common = in_common(walk)
    if side is None:
        return common
    sides = [side(trial.prompt.asked_tokens) for trial in walk]
    serves = [False, *(left == right is not None for left, right in pairwise(sides))]
    return [tokens * served for tokens, served in zip(common, serves, strict=False)]


def in_common(walk: Sequence[Trial]) -> list[int]:
    """For each of the ordered trials the tokens its prompt begins with in common with the one
    before.

    Never more than it has: spans apart may count a token more than joined.
    """
    prompts = [trial.prompt for trial in walk]
    return [
        min(tokens, prompt.asked_tokens)
        for tokens, prompt in zip(reused(prompts), prompts, strict=True)
    ]
