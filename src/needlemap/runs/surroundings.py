"""A needle as it stands in its prompt: its text, and the context's letters either side of it.

A few slices of the prompt's spans: the context itself, which may be long, is never joined or decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from needlemap.prompts.prompt import Prompt
from needlemap.text.tokens import Span

LETTERS = 300  # characters kept either side
_BYTES = 4 * (LETTERS + 1)  # as many characters at least, and one that may be cut in two


@dataclass(frozen=True, slots=True)
class Surroundings:
    """One needle: text as placed, before and after it up to LETTERS characters of the context.

    before + text + after is a slice of the prompt's context; other needles in it are part of that text.
    """

    text: str
    before: str
    after: str


def surroundings(prompt: Prompt, needles: Sequence[str]) -> tuple[Surroundings, ...]:
    """Of a prompt's first needles, as many as there are texts. needles: these, as the task gave them.

    A space that was put behind a needle, to keep two words apart, belongs to what comes after it.
    """
    spans = prompt.context_spans
    return tuple(
        _around(spans, placed.byte, _end(spans, placed.byte, needle))
        for placed, needle in zip(prompt.needles, needles, strict=False)
    )


def _around(spans: Sequence[Span], start: int, end: int) -> Surroundings:
    before, after = _bytes(spans, max(0, start - _BYTES), start), _bytes(spans, end, end + _BYTES)
    return Surroundings(_text(_bytes(spans, start, end)), _text(before)[-LETTERS:], _text(after)[:LETTERS])


def _end(spans: Sequence[Span], start: int, needle: str) -> int:
    """Where the needle that starts at that byte ends: with its span, but for a space put behind it."""
    begin, span = next(row for row in _placed(spans) if row[0] <= start < row[0] + len(row[1].data))
    spaced = bytes(span.data[-1:]) == b" " and not needle.endswith(" ")
    return begin + len(span.data) - spaced


def _bytes(spans: Sequence[Span], start: int, stop: int) -> bytes:
    """The context's bytes from start to stop, as far as there are any."""
    return b"".join([span.data[max(0, start - at) : max(0, stop - at)] for at, span in _placed(spans)])


def _placed(spans: Sequence[Span]) -> Iterator[tuple[int, Span]]:
    """Each span with its first byte's offset in the context."""
    at = 0
    for span in spans:
        yield at, span
        at += len(span.data)


def _text(data: bytes) -> str:
    """As `Prompt.context_text` has it: half a character (presets that follow older tools) is U+FFFD."""
    return data.decode("utf-8", "replace")
