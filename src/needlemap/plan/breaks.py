"""Where a prompt parts from others of the walk, for caches that must be told.

Recurrent models keep a copy of their state there (`with_partings`). Providers want breakpoints: a prompt
marks the end of what it shares with the one before (to be read) and with the one behind (to be written for
it). They keep nothing shorter than a least length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from needlemap.plan.tree import reused
from needlemap.prompts import Message, Prompt
from needlemap.tokens import Span

LEAST_TOKENS = 1024


def with_breakpoints(walk: Sequence[Prompt], least_tokens: int = LEAST_TOKENS) -> list[Prompt]:
    """The prompts of a walk, with the breakpoints that let each read what its neighbours wrote."""
    shared = [*reused(walk), 0]
    return [
        broken(
            prompt, sorted({point for point in (shared[place], shared[place + 1]) if point >= least_tokens})
        )
        for place, prompt in enumerate(walk)
    ]


def with_partings(walk: Sequence[Prompt]) -> list[Prompt]:
    """The prompts of a walk, with the lengths at which those asked later part from them."""
    places = partings(reused(walk))
    return [replace(prompt, partings=found) for prompt, found in zip(walk, places, strict=True)]


def partings(shared: Sequence[int]) -> list[tuple[int, ...]]:
    """For prompts that share so many tokens with the one before: the lengths, ascending, at which later ones
    part from each. What any later one shares is the least that was shared on the way to it.

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
        for piece in _split(span, [point - start for point in points if start < point < start + len(span)]):
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
