"""Where OpenCompass puts needles: at token positions, inside a character if one stands there."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from needlemap.errors import SettingsError
from needlemap.tokens import Span, TokenText


def chain(tokens: int, depth: float, diff: float, needle_tokens: Sequence[int]) -> tuple[int, ...]:
    """Haystack tokens before each needle; depth of the first and gaps between them in percent of `tokens`.

    The original counts each needle's own tokens into the next gap as well, and puts what falls behind the end
    at the end. Divide first, then multiply, then cut to a whole number: `int(100 * (29 / 100))` is 28.

    >>> chain(100, 29, 0, [5]), chain(667, 0, 10, [53, 32, 48])
    ((28,), (0, 119, 217))
    """
    point = int(tokens * (depth / 100))
    points = [point]
    for length in needle_tokens[:-1]:
        point = int(point + length + tokens * (diff / 100))
        points.append(point)
    return tuple(min(point, tokens) for point in points)


def context(background: Span, points: Sequence[int], needles: Sequence[TokenText]) -> str:
    """The background with the needles at ascending points. Bytes of a split character become U+FFFD."""
    text, start = background.text, background.start
    cuts = [start, *(start + point for point in points), background.stop]
    pieces = [Span(text, begin, end) for begin, end in pairwise(cuts)]
    spans = [pieces[0]]
    for needle, piece in zip(needles, pieces[1:], strict=True):
        spans += [needle.span(), piece]
    return b"".join([span.data for span in spans]).decode("utf-8", errors="replace")


def check_depth(depth: float, name: str = "depth") -> None:
    """Raises SettingsError for a depth outside 0..100, which the original takes for a place from the end."""
    if not 0 <= depth <= 100:
        raise SettingsError(f"{name} must lie in 0..100 (percent), got {depth}.")
