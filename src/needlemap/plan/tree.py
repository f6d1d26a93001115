"""Build the prefix tree of prompts: where two part, and the walk that computes each token once."""

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


# Providers cache no prefix that is shorter.
LEAST_TOKENS = 1024
Side = Callable[[int], int | None] | None


def parting(left: Prompt, right: Prompt) -> tuple[int, int]:
    """Return how many first tokens two prompts have in common, and how they sort.

    The second number is -1, 0 or 1 if left sorts before, equal to or after right.
    """
    left_reader = _Reader(left)
    right_reader = _Reader(right)
    shared = 0
    while True:
        left_span = left_reader.remaining_span()
        right_span = right_reader.remaining_span()
        if left_span is None or right_span is None:
            # The shorter prompt sorts first.
            return shared, int(left_span is not None) - int(right_span is not None)

        size = min(len(left_span), len(right_span))
        is_same_text = left_span.text is right_span.text and left_span.start == right_span.start
        if not is_same_text:
            differing = np.flatnonzero(left_span.ids[:size] != right_span.ids[:size])
            if len(differing):
                place = int(differing[0])
                order = 1 if left_span.ids[place] > right_span.ids[place] else -1
                return shared + place, order
        shared += size
        left_reader.skip(size)
        right_reader.skip(size)


def shared_tokens(left: Prompt, right: Prompt) -> int:
    """Return how many first tokens two prompts have in common."""
    return parting(left, right)[0]


def walk_order(prompts: Sequence[Prompt]) -> list[int]:
    """Return the places of prompts in a depth-first walk of their tree.

    Equal prompts keep their order.
    """
    return [place for place, _ in sorted(enumerate(prompts), key=cmp_to_key(_compare))]


def reused(prompts: Iterable[Prompt]) -> list[int]:
    """Return how many first tokens each prompt shares with the one before, or 0 for the first."""
    prompts = list(prompts)
    if not prompts:
        return []
    return [0, *(shared_tokens(left, right) for left, right in pairwise(prompts))]


def _compare(left: tuple[int, Prompt], right: tuple[int, Prompt]) -> int:
    return parting(left[1], right[1])[1]


class _Reader:
    """Reads a prompt's spans in order, a piece at a time."""

    def __init__(self, prompt: Prompt) -> None:
        self._spans = [span for span in prompt.spans if len(span)]
        self._place = 0
        self._offset = 0

    def remaining_span(self) -> Span | None:
        """Return the rest of the present span, or None at the end."""
        if self._place == len(self._spans):
            return None
        span = self._spans[self._place]
        if not self._offset:
            return span
        return Span(span.text, span.start + self._offset, span.stop)

    def skip(self, size: int) -> None:
        """Advance by `size` tokens of the present span."""
        self._offset += size
        if self._offset == len(self._spans[self._place]):
            self._place += 1
            self._offset = 0


def with_breakpoints(walk: Sequence[Prompt], least_tokens: int = LEAST_TOKENS) -> list[Prompt]:
    """Return the prompts of a walk with breakpoints, so that each reads what others wrote.

    A prompt gets one at the end of what it shares with the one before, and with the one after.
    """
    shared = [*reused(walk), 0]
    prompts = []
    for place, prompt in enumerate(walk):
        points = {point for point in shared[place : place + 2] if point >= least_tokens}
        prompts.append(broken(prompt, sorted(points)))
    return prompts


def with_partings(walk: Sequence[Prompt]) -> list[Prompt]:
    """Return the prompts of a walk with the lengths at which later ones part from them."""
    lengths = partings(reused(walk))
    return [
        replace(prompt, partings=prompt_lengths)
        for prompt, prompt_lengths in zip(walk, lengths, strict=True)
    ]


def partings(shared: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the lengths, ascending, at which later prompts part from each prompt.

    shared: tokens that each prompt shares with the one before. A prompt shares with a later one
    the least that was shared on the way to it.

    >>> partings([0, 5, 3, 4, 0])
    [(3, 5), (3,), (4,), (), ()]
    """
    if not shared:
        return []

    # From the last prompt, which no other one follows, to the first.
    lengths: list[tuple[int, ...]] = [()]
    for tokens in reversed(shared[1:]):
        if not tokens:
            lengths.append(())
            continue
        shorter = [length for length in lengths[-1] if length < tokens]
        lengths.append((*shorter, tokens))
    return lengths[::-1]


def broken(prompt: Prompt, points: Sequence[int]) -> Prompt:
    """Return a prompt whose context message is split at token counts from the prompt's start.

    Points outside that message are dropped. The text stays as it is.
    """
    number, first, last = prompt.context
    start = sum(len(span) for message in prompt.messages[:number] for span in message.spans)
    spans: list[Span] = []
    breaks: list[int] = []
    # How many pieces stand before each of the message's own spans.
    edges: list[int] = []
    for span in prompt.messages[number].spans:
        edges.append(len(spans))
        inside = [point - start for point in points if start < point < start + len(span)]
        for piece in _split(span, inside):
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
    """Return a span in pieces that end at some of its tokens, and at its end."""
    stops = sorted({*points, len(span)})
    starts = [0, *stops[:-1]]
    return [
        Span(span.text, span.start + start, span.start + stop)
        for start, stop in zip(starts, stops, strict=True)
    ]


def ordered(trials: Iterable[Trial], mode: str, side: Side = None) -> list[Trial]:
    """Return trials in the order they are asked.

    Modes 'single' and 'cold' keep the order of the grid. In the other modes, trials that serve each
    other (see `Traits.side`) are walked together.
    """
    trials = list(trials)
    if mode not in WALKED:
        return trials
    walk = [trials[place] for place in walk_order([trial.prompt for trial in trials])]
    if side is None:
        return walk
    return sorted(walk, key=lambda trial: side(trial.prompt.asked_tokens) or 0)


def by_length(walk: Iterable[Trial]) -> list[list[Trial]]:
    """Return ordered trials length by length, the shortest first.

    Each length has all its depths, repeat after repeat.
    """
    lengths: dict[int, list[Trial]] = {}
    for trial in sorted(walk, key=lambda trial: (trial.cell.length_tokens, trial.repeat)):
        lengths.setdefault(trial.cell.length_tokens, []).append(trial)
    return list(lengths.values())


def shared(walk: Sequence[Trial], mode: str, side: Side = None) -> list[int]:
    """Return how many tokens the prompt of each ordered trial reuses from the one before.

    If the model's cache does not serve a prompt (see `Traits.side`), the prompt reuses 0 tokens.
    """
    if mode == ALONE:
        return [0] * len(walk)
    common = in_common(walk)
    if side is None:
        return common
    sides = [side(trial.prompt.asked_tokens) for trial in walk]
    for place, (left, right) in enumerate(pairwise(sides), start=1):
        if left is None or left != right:
            common[place] = 0
    return common


def in_common(walk: Sequence[Trial]) -> list[int]:
    """Return how many first tokens the prompt of each ordered trial shares with the one before."""
    prompts = [trial.prompt for trial in walk]
    # Separate spans may count a token more than joined ones, so a prompt's own count is the limit.
    return [
        min(tokens, prompt.asked_tokens)
        for tokens, prompt in zip(reused(prompts), prompts, strict=True)
    ]
