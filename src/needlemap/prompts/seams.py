"""How many tokens joined spans have: what meets at a seam is counted again, within a
window."""

from __future__ import annotations

from collections.abc import Sequence

from needlemap.text.tokens import Cuts, Span, Tokenizer, TokenText

MOST_PROBES, APART = 32, 256  # safe cuts at which counts are tried; tokens from one to the next
NEAR = 64  # tokens on either side of one, that are counted with it
MARGIN = 16  # tokens on either side of a seam that are always counted again
_Piece = tuple[
    TokenText, int, int
]  # a span as a plain tuple, which costs less to make and to look up


class SeamCounter:
    """Counts joined spans of one haystack with one tokenizer; remembers windows it has
    counted.

    The haystack is the only long text: all other spans are counted as a whole, within a
    window.
    """

    def __init__(self, tokenizer: Tokenizer, haystack: TokenText, cuts: Cuts) -> None:
        self._tokenizer = tokenizer
        self._haystack = haystack
        self._cuts = cuts
        self._known: dict[tuple[bool, tuple[_Piece, ...]], int] = {}
        self.windowed = adds_up(tokenizer, haystack, cuts)

    def count(self, spans: Sequence[Span]) -> int:
        """Number of tokens of the joined text."""
        if not self.windowed:
            return self._tokenizer.count(_whole_characters(b"".join([span.data for span in spans])))
        total, inside = 0, False
        window: list[_Piece] = []
        for span in spans:
            inner = self._inner(span)
            if inner is None:
                window.append((span.text, span.start, span.stop))
                continue
            start, stop = inner
            window.append((span.text, span.start, start))
            total += self._window(inside, window) + stop - start
            window, inside = [(span.text, stop, span.stop)], True
        return total + self._window(inside, window)

    def _inner(self, span: Span) -> tuple[int, int] | None:
        """The part of a haystack span, between safe cuts, that no seam can touch."""
        if span.text is not self._haystack or span.stop - span.start <= 2 * MARGIN:
            return None
        start = int(self._cuts.safe_after[span.start + MARGIN])
        stop = int(self._cuts.safe_before[span.stop - MARGIN])
        return (start, stop) if start < stop else None

    def _window(self, inside: bool, pieces: list[_Piece]) -> int:
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
        """Number of tokens."""
        return sum(map(len, spans))


def _whole_characters(data: bytes) -> bytes:
    """The text as it will be sent: pieces of split characters (older tools' habit) become
    U+FFFD."""
    return data.decode("utf-8", "replace").encode()


def adds_up(tokenizer: Tokenizer, text: TokenText, cuts: Cuts) -> bool:
    """Whether counts add up at this text's safe cuts: tried at cuts spread over the text, one in
    APART tokens, MOST_PROBES at most.

    Vocabularies whose split rules we do not know are thus measured, not trusted.
    """
    probes = min(MOST_PROBES, 2 + len(text) // APART)
    places = {int(cuts.safe_after[len(text) * probe // probes]) for probe in range(probes)}
    for place in places:
        start, stop = int(cuts.safe_before[max(0, place - NEAR)]), min(len(text), place + NEAR)
        stop = int(cuts.safe_after[stop])
        if stop - start > 4096:
            return False  # hardly any safe cut: windows would be as long as the text
        count = tokenizer.count_inside if start else tokenizer.count
        if count(bytes(Span(text, start, stop).data)) != stop - start:
            return False
        if start < place < stop and count(bytes(Span(text, start, place).data)) != place - start:
            return False
    return True
