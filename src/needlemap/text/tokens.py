"""Tokenised text: a text is tokenised once, and prompts are cut out of it.

`TokenText` holds a text's bytes, its token ids and where each token starts; `Span` is a run of its tokens.
A span is three references and copies nothing. Where a text may be cut, and how many tokens a joined text has,
is in `text/cuts.py`; vocabularies are in `tokenizers/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class TokenText:
    """A text tokenised once.

    data: its UTF-8 bytes. ids: (n,) int32, token ids without any special token. offsets: (n + 1,) int64,
    the byte where token i starts; offsets[0] is 0 and offsets[n] is len(data), so tokens tile the bytes.
    """

    data: bytes
    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def opaque(cls, data: bytes) -> TokenText:
        """A text whose tokens nobody needs (a judge's question, say): one unknown token, id -1."""
        return cls(data, np.array([-1], np.int32), np.array([0, len(data)], np.int64))

    def __len__(self) -> int:
        return len(self.ids)

    def span(self, start: int = 0, stop: int | None = None) -> Span:
        """Tokens start to stop (exclusive; to the end when None)."""
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
        """Its bytes, not copied."""
        offsets = self.text.offsets
        return memoryview(self.text.data)[offsets[self.start] : offsets[self.stop]]

    @property
    def ids(self) -> NDArray[np.int32]:
        """Its token ids, not copied."""
        return self.text.ids[self.start : self.stop]


def join(texts: Sequence[TokenText]) -> TokenText:
    """One text from several, tokens kept as they are: nothing merges across the joints.

    Equal to tokenising the joined bytes only where each joint is additive (see `cuts.safe_cuts`).
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
    """Offsets, (n + 1,), from the bytes where tokens end, for libraries that give spans of characters.

    Several tokens of one character arrive as empty ones and a last one that holds all its bytes: each empty
    one is moved a byte into the character, so that no cut between them looks like one between characters.

    >>> tiled(np.array([2, 2, 2, 6]), 6).tolist()
    [0, 2, 3, 4, 6]
    """
    offsets = np.concatenate([[0], np.maximum.accumulate(ends)]).astype(np.int64)
    offsets[-1] = size
    rank = np.arange(len(offsets)) - np.searchsorted(offsets, offsets)  # how many equal ones stand before
    following = np.minimum(np.searchsorted(offsets, offsets, side="right"), len(offsets) - 1)
    room = np.maximum(offsets[following] - offsets - 1, 0)
    return np.asarray(offsets + np.minimum(rank, room), np.int64)


PAUSES = ("，", "。", "；", "：")


class Tokenizer:
    """What a tokenizer plug-in gives. Texts are UTF-8 bytes; special-token text in them is plain text.

    name: as the user named it. fingerprint: hash of the vocabulary and rules, part of every key.
    additive: whether a text's token count is the sum of its parts' when cut at `cuts.safe_cuts`.
    Override `index`, and `count` where that is quicker.
    """

    name: str
    fingerprint: str
    additive: bool = True

    def index(self, data: bytes) -> TokenText:
        """Tokenise a whole text. The result's bytes may differ from `data` if the tokenizer normalises."""
        raise NotImplementedError

    def count(self, data: bytes) -> int:
        """Number of tokens of a whole text."""
        return len(self.index(data))

    def count_inside(self, data: bytes) -> int:
        """Number of tokens of a piece that starts at a safe cut inside a longer text.

        Where a text's beginning is treated apart, the piece is counted behind what may stand before such a
        cut, and that is taken off again.
        """
        if self.additive:
            return self.count(data)
        before = before_piece(data)
        return self.count(before + data) - self.count(before)


def before_piece(data: bytes) -> bytes:
    """What may stand before a piece that starts at a safe cut."""
    before = "a" if data.startswith(b" ") else "中" if data.decode().startswith(PAUSES) else "a\n"
    return before.encode()
