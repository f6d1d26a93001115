"""Define tokenised text and its cuts: a text is tokenised once, and prompts are cut out of it.

`TokenText` holds a text's bytes, its token ids and where each token starts. `Span` is a run of its
tokens: three references, so nothing is copied. A cut is a token index i: the text is divided into
the tokens before i and the tokens from i on. Cuts lie between characters, at sentence ends, and
where token counts add up. `prompts/seams.py` counts the tokens of joined spans, and `tokenizers/`
has the vocabularies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Mask = NDArray[np.bool_]
Index = NDArray[np.int32]

_SPACES = np.zeros(256, bool)
_SPACES[[9, 10, 11, 12, 13, 32]] = True
_STOPS = np.zeros(256, bool)
_STOPS[list(b".!?")] = True
_CLOSERS = np.zeros(256, bool)
_CLOSERS[list(b"\"')]")] = True
_WORD = np.zeros(256, bool)
_WORD[list(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")] = True
# Lead bytes of U+4000..U+9FFF.
_HAN = np.zeros(256, bool)
_HAN[0xE4:0xEA] = True
_WIDE_STOPS = ("。", "！", "？", "…")
_WIDE_CLOSERS = ("”", "’", "」", "』", "）")
# Bytes that are looked at on either side of a cut.
_PAD = 6
# A sentence end may be so many tokens away, or this part of a text.
_NEAR_TOKENS = 50
_NEAR_PART = 20
# A stretch of more than so many times that, without sentence end, is not a sentence.
_LONGEST_SENTENCE = 8
_PAUSES = ("，", "。", "；", "：")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class TokenText:
    """A text tokenised once.

    Attributes:
        data: Its UTF-8 bytes.
        ids: (n,) int32 token ids, without any special token.
        offsets: (n + 1,) int64, the byte where token i starts. offsets[0] is 0 and offsets[n] is
            len(data), so tokens tile the bytes.
    """

    data: bytes
    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def opaque(cls, data: bytes) -> TokenText:
        """Return a text as one unknown token, with id -1, if its tokens are not needed.

        For example, a judge's question is such a text.
        """
        return cls(data, np.array([-1], np.int32), np.array([0, len(data)], np.int64))

    def __len__(self) -> int:
        return len(self.ids)

    def span(self, start: int = 0, stop: int | None = None) -> Span:
        """Return tokens start..stop (exclusive), or to the end if stop is None."""
        return Span(self, start, len(self.ids) if stop is None else stop)


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Tokens start..stop (exclusive) of a text."""

    text: TokenText
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def data(self) -> memoryview:
        """Return its bytes, not copied."""
        offsets = self.text.offsets
        return memoryview(self.text.data)[offsets[self.start] : offsets[self.stop]]

    @property
    def ids(self) -> NDArray[np.int32]:
        """Return its token ids, not copied."""
        return self.text.ids[self.start : self.stop]


def join(texts: Sequence[TokenText]) -> TokenText:
    """Join texts into one. Tokens stay as they are: nothing merges across the joints.

    That is equal to tokenising the joined bytes only if each joint is additive (see `safe_cuts`).
    """
    if len(texts) == 1:
        return texts[0]
    starts = np.cumsum([0, *(len(text.data) for text in texts)])
    parts = [text.offsets[:-1] + start for text, start in zip(texts, starts, strict=False)]
    return TokenText(
        b"".join(text.data for text in texts),
        np.concatenate([text.ids for text in texts]) if texts else np.empty(0, np.int32),
        np.concatenate([*parts, starts[-1:]]).astype(np.int64),
    )


def tiled(ends: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return offsets, (n + 1,), for libraries whose tokens are spans of characters.

    Several tokens of one character arrive as empty ones and a last one that has all its bytes. Each
    empty one is moved a byte into the character, so that no cut between them looks like a cut
    between characters.

    ends: (n,) the byte where each token ends. size: bytes of the text.

    >>> tiled(np.array([2, 2, 2, 6]), 6).tolist()
    [0, 2, 3, 4, 6]
    """
    offsets = np.concatenate([[0], np.maximum.accumulate(ends)]).astype(np.int64)
    offsets[-1] = size
    # How many equal offsets stand before.
    rank = np.arange(len(offsets)) - np.searchsorted(offsets, offsets)
    following = np.minimum(np.searchsorted(offsets, offsets, side="right"), len(offsets) - 1)
    room = np.maximum(offsets[following] - offsets - 1, 0)
    return np.asarray(offsets + np.minimum(rank, room), np.int64)


class Tokenizer:
    """What a tokenizer plug-in gives. Texts are UTF-8 bytes; special-token text in them is
    plain text.

    Override `index`, and `count` if there is a quicker way.

    Attributes:
        name: The name that the user typed.
        fingerprint: Hash of the vocabulary and rules, which is a part of every key.
        additive: Whether a text's token count is the sum of its parts' if it is cut at `safe_cuts`.
    """

    name: str
    fingerprint: str
    additive: bool = True

    def index(self, data: bytes) -> TokenText:
        """Tokenise a whole text.

        The result's bytes may differ from `data` if the tokenizer normalises.
        """
        raise NotImplementedError

    def count(self, data: bytes) -> int:
        """Return the number of tokens of a whole text."""
        return len(self.index(data))

    def count_inside(self, data: bytes) -> int:
        """Return the number of tokens of a piece that starts at a safe cut inside a longer text.

        If the tokenizer treats a text's beginning differently, the piece is counted after a text
        that may stand before such a cut, and the tokens of that text are subtracted.
        """
        if self.additive:
            return self.count(data)
        before = before_piece(data)
        return self.count(before + data) - self.count(before)

    def index_inside(self, data: bytes) -> TokenText | None:
        """Return the tokens of a piece that starts at a safe cut inside a longer text.

        If the tokenizer treats a text's beginning differently, the piece is tokenised after a text
        that may stand before such a cut. Return None if a token reaches into that text.
        """
        if self.additive:
            return self.index(data)
        before = before_piece(data)
        whole = self.index(before + data)
        cut = int(np.searchsorted(whole.offsets, len(before)))
        if not whole.data.startswith(before) or whole.offsets[cut] != len(before):
            return None
        return TokenText(
            whole.data[len(before) :], whole.ids[cut:], whole.offsets[cut:] - len(before)
        )


def before_piece(data: bytes) -> bytes:
    """Return a text that may stand before a piece that starts at a safe cut."""
    if data.startswith(b" "):
        before = "a"
    elif data.decode().startswith(_PAUSES):
        before = "中"
    else:
        before = "a\n"
    return before.encode()


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """The nearest cuts of each kind, for each token index i in 0..n.

    Attributes:
        character: (n + 1,) the last cut between characters at or before i. 0 always is one.
        sentence: (n + 1,) the last sentence end at or before i. In a text of units (lines,
            paragraphs) these are the ends of its units.
        safe_before: (n + 1,) the last safe cut at or before i. The text's two ends always are safe.
        safe_after: (n + 1,) the first safe cut at or after i.
    """

    character: Index
    sentence: Index
    safe_before: Index
    safe_after: Index

    @classmethod
    def of(cls, text: TokenText, unit: str = "sentence") -> Cuts:
        """Find the cuts of a text in one pass of vector operations. unit: a name in UNITS."""
        view = _View(text)
        character = character_cuts(view)
        sentence = UNITS[unit](view) & character
        safe = safe_cuts(view) & character
        return cls(
            character=_last_true(character),
            sentence=_last_true(sentence),
            safe_before=_last_true(safe),
            safe_after=_next_true(safe),
        )

    def insertion_point(self, position: int, size: int) -> int:
        """Return where a needle that is meant for a position is inserted.

        That is the last sentence end before it, if it is near: within 50 tokens or a twentieth of
        the text. If not, it is the nearer end of its sentence, which may lie after the used tokens.
        If hardly any sentence ends, it is a cut between two words, or else between two characters.

        size: tokens of the text that are used.
        """
        near_tokens = _near_tokens(size)
        start = int(self.sentence[position])
        if position - start <= near_tokens:
            return start

        end = int(self.sentence_after(position))
        if end - start <= longest_sentence(size):
            return start if 2 * position <= start + min(end, size) else end

        word_cut = int(self.safe_before[position])
        if position - word_cut <= near_tokens:
            return word_cut
        return int(self.character[position])

    def sentence_after(self, positions: ArrayLike) -> NDArray[np.int64]:
        """Return the first sentence end after each position, or the text's end if there is none."""
        positions = np.asarray(positions, self.sentence.dtype)
        ends = np.searchsorted(self.sentence, positions, side="right")
        return np.minimum(ends, len(self.sentence) - 1)

    def ends(self) -> NDArray[np.int64]:
        """Return where sentences or units end, ascending; the text's end alone if none does."""
        ends = np.flatnonzero(self.sentence == np.arange(len(self.sentence)))[1:]
        return ends if len(ends) else np.array([len(self.sentence) - 1])


class _View:
    """A text's bytes, padded so that the bytes around all cuts are read in one operation.

    Attributes:
        raw: The padded bytes.
        at: (n + 1,) the place of each cut in them.
    """

    def __init__(self, text: TokenText) -> None:
        raw = np.frombuffer(text.data, np.uint8)
        self.raw = np.concatenate([np.full(_PAD, 32, np.uint8), raw, np.full(_PAD, 32, np.uint8)])
        self.at = text.offsets + _PAD

    def byte(self, shift: int) -> NDArray[np.uint8]:
        """Return the byte `shift` places after each cut: 0 is the next one, -1 the one before."""
        return self.raw[self.at + shift]

    def holds(self, character: str, shift: int) -> Mask:
        """Return True for each cut with a character's bytes `shift` places after it."""
        codes = character.encode()
        mask: Mask = self.byte(shift) == codes[0]
        for place, code in enumerate(codes[1:], start=1):
            mask &= self.byte(shift + place) == code
        return mask

    def holds_any(self, characters: tuple[str, ...], shift: int) -> Mask:
        """Return True for each cut with one of several characters `shift` places after it."""
        masks = [self.holds(character, shift) for character in characters]
        return np.asarray(np.any(masks, axis=0))


def longest_sentence(size: int) -> int:
    """Return the tokens of the longest stretch that still is a sentence, in a text of so many."""
    return _LONGEST_SENTENCE * _near_tokens(size)


def _near_tokens(size: int) -> int:
    """Return how many tokens a sentence end may be before a position, in a text of so many."""
    return max(_NEAR_TOKENS, size // _NEAR_PART)


def character_cuts(view: _View) -> Mask:
    """Return the cuts between characters: the next byte is not a UTF-8 continuation byte."""
    return np.asarray((view.byte(0) & 0xC0) != 0x80)


def sentence_cuts(view: _View) -> Mask:
    """Return the cuts at sentence ends.

    These are after `. ! ?` before white space, after `。 ！ ？ …`, and after a line break. Closing
    quotation marks and brackets belong to the sentence that they close.
    """
    before = view.byte(-1)
    after = view.byte(0)
    closer = view.holds_any(_WIDE_CLOSERS, -3)
    narrow = (
        _STOPS[before]
        | (_CLOSERS[before] & _STOPS[view.byte(-2)])
        | (closer & _STOPS[view.byte(-4)])
    )
    wide = view.holds_any(_WIDE_STOPS, -3) | (closer & view.holds_any(_WIDE_STOPS, -6))
    continues = view.holds_any(_WIDE_STOPS + _WIDE_CLOSERS, 0)
    line = (before == 10) & ~_SPACES[after]
    ends: Mask = (narrow & _SPACES[after]) | (wide & ~continues) | line
    return ends


def line_cuts(view: _View) -> Mask:
    """Return the cuts after line breaks. Blank lines belong to the line before them."""
    return np.asarray((view.byte(-1) == 10) & (view.byte(0) != 10))


def paragraph_cuts(view: _View) -> Mask:
    """Return the cuts after blank lines."""
    return np.asarray(line_cuts(view) & (view.byte(-2) == 10))


UNITS: dict[str, Callable[[_View], Mask]] = {
    "sentence": sentence_cuts,
    "line": line_cuts,
    "paragraph": paragraph_cuts,
}


def safe_cuts(view: _View) -> Mask:
    """Return the cuts at which token counts add up in byte-level BPE with the usual split rules.

    These are before a single space that precedes a Latin letter, after a single line break before a
    letter or a quotation mark, and between a Han character and a pause mark. Measured: no miss in
    thousands of cuts on seven vocabularies.
    """
    before = view.byte(-1)
    second_before = view.byte(-2)
    after = view.byte(0)
    second_after = view.byte(1)
    solid = ~_SPACES[before] & (before < 0x80)
    word = solid & (after == 32) & _WORD[second_after]
    line = (
        (before == 10)
        & ~_SPACES[second_before]
        & (second_before < 0x80)
        & (_WORD[after] | _HAN[after] | (after == 34))
    )
    safe: Mask = word | line | (view.holds_any(_PAUSES, 0) & _HAN[view.byte(-3)])
    return safe


def _last_true(mask: Mask) -> Index:
    """Return the last True at or before each index. Index 0 counts as True."""
    index = np.where(mask, np.arange(len(mask), dtype=np.int32), np.int32(0))
    return np.maximum.accumulate(index)


def _next_true(mask: Mask) -> Index:
    """Return the first True at or after each index. The last index counts as True."""
    end = np.int32(len(mask) - 1)
    index = np.where(mask, np.arange(len(mask), dtype=np.int32), end)
    return np.minimum.accumulate(index[::-1])[::-1]
