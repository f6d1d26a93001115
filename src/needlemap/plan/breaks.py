"""Cache breakpoints: where a prompt parts from its neighbours in the walk, for providers that must be told.

A prompt marks the end of what it shares with the one before (to be read) and with the one behind (to be
written for it). Providers keep nothing shorter than a least length.
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
