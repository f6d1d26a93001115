"""Count the tokens of joined spans: what meets at a seam is counted again, within a window."""

from __future__ import annotations

from collections.abc import Sequence

from needlemap.text.tokens import Cuts, Span, Tokenizer, TokenText

# Safe cuts at which counts are tried, at most; and tokens from one to the next.
MOST_PROBES = 32
APART = 256
# Tokens on either side of a safe cut that are counted with it.
NEAR = 64
# Tokens on either side of a seam that are always counted again.
MARGIN = 16
# Tokens of the longest window that is counted: a longer one would cost as much as the text.
_LONGEST_WINDOW = 4096
# A span as a plain tuple, which costs less to make and to look up.
_Piece = tuple[TokenText, int, int]


class SeamCounter:
    """Counts joined spans of one haystack with one tokenizer, and remembers counted windows.

    The haystack is the only long text: all other spans are counted as a whole, within a window.
    """

    def __init__(self, tokenizer: Tokenizer, haystack: TokenText, cuts: Cuts) -> None:
        self._tokenizer = tokenizer
        self._haystack = haystack
        self._cuts = cuts
        self._known: dict[tuple[bool, tuple[_Piece, ...]], int] = {}
        self.windowed = adds_up(tokenizer, haystack, cuts)

    def count(self, spans: Sequence[Span]) -> int:
        """Return the number of tokens of the joined text."""
        if not self.windowed:
            return self._tokenizer.count(_whole_characters(b"".join([span.data for span in spans])))
        total = 0
        # Whether the window starts inside the text, not at its beginning.
        inside = False
        window: list[_Piece] = []
        for span in spans:
            inner = self._untouched_part(span)
            if inner is None:
                window.append((span.text, span.start, span.stop))
                continue
            start, stop = inner
            window.append((span.text, span.start, start))
            total += self._window(inside, window) + stop - start
            window, inside = [(span.text, stop, span.stop)], True
        return total + self._window(inside, window)

    def _untouched_part(self, span: Span) -> tuple[int, int] | None:
        """Return the part of a haystack span, between safe cuts, that no seam can touch.

        If the span is of another text or too short, the result is None.
        """
        if span.text is not self._haystack or span.stop - span.start <= 2 * MARGIN:
            return None
        start = int(self._cuts.safe_after[span.start + MARGIN])
        stop = int(self._cuts.safe_before[span.stop - MARGIN])
        return (start, stop) if start < stop else None

    def _window(self, inside: bool, pieces: list[_Piece]) -> int:
        """Return the tokens of a window, counted once."""
        key = inside, tuple(pieces)
        known = self._known.get(key)
        if known is None:
            count = self._tokenizer.count_inside if inside else self._tokenizer.count
            data = b"".join([Span(*piece).data for piece in pieces])
            known = self._known[key] = count(_whole_characters(data)) if data else 0
        return known


class SpanCounter:
    """Counts spans that are sent as token ids: there are no seams, so lengths add up."""

    def count(self, spans: Sequence[Span]) -> int:
        """Return the number of tokens."""
        return sum(map(len, spans))


def _whole_characters(data: bytes) -> bytes:
    """Return the text as it is sent: parts of split characters become U+FFFD.

    Only the older tools' presets split characters.
    """
    return data.decode("utf-8", "replace").encode()


def adds_up(tokenizer: Tokenizer, text: TokenText, cuts: Cuts) -> bool:
    """Return True if counts add up at this text's safe cuts.

    It is tried at cuts spread over the text, one in APART tokens, MOST_PROBES at most, because the
    split rules of a vocabulary may not be known.
    """
    probes = min(MOST_PROBES, 2 + len(text) // APART)
    places = {int(cuts.safe_after[len(text) * probe // probes]) for probe in range(probes)}
    for place in places:
        start = int(cuts.safe_before[max(0, place - NEAR)])
        stop = int(cuts.safe_after[min(len(text), place + NEAR)])
        if stop - start > _LONGEST_WINDOW:
            # There is hardly any safe cut, so windows would be as long as the text.
            return False
        count = tokenizer.count_inside if start else tokenizer.count
        if count(bytes(Span(text, start, stop).data)) != stop - start:
            return False
        if start < place < stop and count(bytes(Span(text, start, place).data)) != place - start:
            return False
    return True
