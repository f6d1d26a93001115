"""Where secrets stand in a text, in any usual spelling: as they are, in other cases, in the
escapes of JSON, of addresses and of HTML, escaped twice, in base64 (also of UTF-16, also in
short lines), in hexadecimal digits, or backwards.

The text is made plain once (escapes become what they stand for), and every 12 characters in a
row are looked up in a table of all that the secrets come to. That takes 15 to 50 ms a
megabyte, whatever the text is, and no more memory for a long one: it is read in pieces.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Places = NDArray[np.int64]

RUN = 12  # characters in a row that give a longer secret away
_PIECE = 1 << 20  # characters that are looked through at a time
_OVERLAP = 1 << 14  # of two pieces: the longest spelling of a secret fits, lines and escapes too
_ROUNDS = 4  # escapes of escapes that are undone
_SLOTS = 18  # bits
_MIX, _ALSO = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F  # odd numbers, as Fibonacci hashing wants
# Escapes of one character: what stands before its digits, how many they are, their base, and what
# stands behind.
_ESCAPES = (
    (b"%u", 4, 16, b""),
    (b"%", 2, 16, b""),
    (b"\\u{", 2, 16, b"}"),
    (b"\\u0000", 4, 16, b""),
    (b"\\u", 4, 16, b""),
    (b"\\x", 2, 16, b""),
    *((b"&#x", digits, 16, b";") for digits in range(2, 7)),
    *((b"&#", digits, 10, b";") for digits in range(2, 8)),
)
_BEGIN = sorted({escape[0][:1] for escape in _ESCAPES})
_BACKSLASH = 0x5C
_LINE = b"nrtbf"  # behind a backslash: an escape of what parts lines and words
# Both alphabets of base64 are read as one, and capitals as small letters.
_BLANK = 32
_BLANKS = bytes(range(_BLANK + 1))
_ASCII, _NONE = 0x7F, 0xFFFF
_FOLDED = bytes(range(256)).lower().translate(bytes.maketrans(b"-_", b"+/"))


class Spellings:
    """All spellings of some secrets.

    long: found by any RUN characters in a row. whole: found only as a whole, as they are or
    escaped.
    """

    def __init__(self, long: Iterable[str], whole: Iterable[str]) -> None:
        grams = {
            folded[start : start + RUN]
            for secret in long
            for spelt in _spelt(secret)
            for folded in (_folded(_plain(spelt)),)
            for start in range(len(folded) - RUN + 1)
        }
        self._whole = sorted({_plain(each).tobytes() for each in whole})
        self._grams = _Grams(grams) if grams else None

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where secrets stand in a text: [start, stop) of each stretch, in order, none in
        another."""
        import numpy as np

        found = [
            stretch + start
            for start in range(0, max(1, len(text) - _OVERLAP), _PIECE - _OVERLAP)
            for stretch in self._in_piece(text[start : start + _PIECE])
        ]
        if not found:
            return []
        firsts, stops = np.concatenate(found, axis=1)
        order = np.argsort(firsts, kind="stable")
        firsts, stops = firsts[order], np.maximum.accumulate(stops[order])
        parted = np.flatnonzero(firsts[1:] >= stops[:-1]) + 1  # the others overlap one before
        firsts, stops = firsts[np.append(0, parted)], stops[np.append(parted - 1, -1)]
        return list(zip(firsts.tolist(), stops.tolist(), strict=True))

    def _in_piece(self, text: str) -> Iterator[Places]:
        """Starts and stops of some stretches, (2, n)."""
        shown = _Shown(_bytes_of(text)).plain()
        for firsts, lasts in (*self._stretches(shown.data), *self._wholes(shown.data)):
            yield shown.spans(firsts, lasts)

    def _stretches(self, data: Bytes) -> Iterator[tuple[Places, Places]]:
        """First and last bytes of what RUN bytes at each place where they are found cover,
        joined where they overlap."""
        import numpy as np

        places = self._grams.found(_folded(data)) if self._grams else np.zeros(0, np.int64)
        if len(places):
            kept = np.flatnonzero(data > _BLANK)
            cuts = np.flatnonzero(np.diff(places) >= RUN) + 1
            firsts = places[np.concatenate([[0], cuts])]
            lasts = places[np.concatenate([cuts - 1, [len(places) - 1]])] + RUN - 1
            yield kept[firsts], kept[lasts]

    def _wholes(self, data: Bytes) -> Iterator[tuple[Places, Places]]:
        """First and last bytes of each pattern that is found as a whole only."""
        import numpy as np

        sought = data.tobytes() if self._whole else b""
        for pattern in self._whole:
            firsts, at = list[int](), sought.find(pattern)
            while at >= 0:
                firsts.append(at)
                at = sought.find(pattern, at + len(pattern))
            if firsts:
                starts = np.array(firsts)
                yield starts, starts + len(pattern) - 1


class _Grams:
    """A table of RUN bytes each, in which those of a text are looked up all at once."""

    def __init__(self, grams: set[bytes]) -> None:
        import numpy as np

        mixed = np.unique(_mixed(b"".join(sorted(grams)))[::RUN])  # (n,), by slots too
        slots = (mixed >> np.uint64(64 - _SLOTS)).astype(np.int64)
        self._any = np.zeros(1 << _SLOTS, bool)
        self._any[slots] = True
        self._first = np.searchsorted(slots, np.arange(1 << _SLOTS)).astype(np.int32)
        self._most = int(np.bincount(slots).max())
        self._mixed = np.append(mixed, np.repeat(~mixed[-1:], self._most))

    def found(self, text: bytes) -> Places:
        """Where RUN bytes of the table begin, (n,)."""
        import numpy as np

        if len(text) < RUN:
            return np.zeros(0, np.int64)
        mixed = _mixed(text)
        slots = mixed >> np.uint64(64 - _SLOTS)
        places = np.flatnonzero(self._any[slots])
        mixed, first = mixed[places], self._first[slots[places]]
        right = self._mixed[first] == mixed
        left = np.flatnonzero(~right)
        for further in range(1, self._most):
            right[left] |= self._mixed[first[left] + further] == mixed[left]
        found: Places = places[right]
        return found


def _mixed(text: bytes) -> NDArray[np.uint64]:
    """A number for every RUN bytes in a row, (n - RUN + 1,)."""
    import numpy as np

    many = len(text) - RUN + 1
    eight: NDArray[np.uint64] = np.ndarray((many,), "<u8", text, 0, (1,))
    four: NDArray[np.uint32] = np.ndarray((many,), "<u4", text, 8, (1,))
    mixed = eight * np.uint64(_MIX)
    mixed ^= mixed >> np.uint64(29)
    mixed += four * np.uint64(_ALSO)
    return np.asarray(mixed * np.uint64(_MIX))


def _bytes_of(text: str) -> Bytes:
    """A text with one byte a character: ASCII as it is, all else above it."""
    import numpy as np

    if text.isascii():
        return np.frombuffer(text.encode("ascii"), np.uint8)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    above = ((codes ^ (codes >> 7) ^ (codes >> 14)) & 0x7F) | 0x80
    return np.where(codes < 0x80, codes, above).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class _Shown:
    """A text by its bytes, and how it came of a longer one, from the first step to the last.

    steps: which bytes each step kept, and whether those that it dropped belong to the one
    before (digits of an escape) or to none.
    """

    data: Bytes
    steps: tuple[tuple[NDArray[np.bool_], bool], ...] = ()

    def spans(self, firsts: Places, lasts: Places) -> Places:
        """Where stretches stood before all steps: their starts and stops, (2, n). lasts: their
        last bytes."""
        import numpy as np

        for kept, owned in reversed(self.steps):
            places = np.append(np.flatnonzero(kept), len(kept))
            firsts, lasts = places[firsts], places[lasts + 1] - 1 if owned else places[lasts]
        return np.stack([firsts, lasts + 1])

    def plain(self) -> _Shown:
        """The same without escapes."""
        import numpy as np

        shown, raw = self, self.data.tobytes()
        if not any(letter in raw for letter in _BEGIN):
            return self
        for _ in range(_ROUNDS):
            before = len(shown.data)
            if b"\\\\" in shown.data.tobytes():  # of several in a row the last escapes something
                slashes = shown.data == _BACKSLASH
                shown = shown._only(~(slashes & np.append(slashes[1:], False)))
            known, small = shown, shown.data.tobytes().lower()
            for escape in _ESCAPES:
                if shown is not known:
                    known, small = shown, shown.data.tobytes().lower()
                if escape[0] in small:
                    shown = shown._undone(*escape)
            if len(shown.data) == before:
                break
        slashes = shown.data == _BACKSLASH
        if not slashes.any():
            return shown
        behind = np.concatenate([[False], slashes[:-1]]) & np.isin(shown.data, [*_LINE])
        data = np.where(behind, np.uint8(_BLANK), shown.data)
        return replace(shown, data=data)._only(~slashes)

    def _undone(self, before: bytes, digits: int, base: int, behind: bytes) -> _Shown:
        """The same with one kind of escape undone; those of no ASCII character stay."""
        import numpy as np

        data, size = self.data, len(before) + digits + len(behind)
        found = np.flatnonzero(data[: max(0, len(data) - size + 1)] == before[0])
        for place, letter in enumerate(before):
            found = found[data[found + place] | (32 * (letter > 96)) == letter]
        found = found[_digits()[data[found + len(before)]] < base]
        for place, letter in enumerate(behind, len(before) + digits):
            found = found[data[found + place] == letter]
        if not len(found):
            return self
        value = np.zeros(len(found), np.int64)
        for place in range(len(before), len(before) + digits):
            digit = _digits()[data[found + place]]
            value = np.where((digit < base) & (value <= _ASCII), value * base + digit, _NONE)
        right = (value > 0) & (value <= _ASCII)
        found, value = found[right], value[right]
        data = data.copy()
        data[found] = value
        kept = np.ones(len(data), bool)
        for place in range(1, size):
            kept[found + place] = False
        return replace(self, data=data)._only(kept, owned=True)

    def _only(self, kept: NDArray[np.bool_], owned: bool = False) -> _Shown:
        """Only some bytes."""
        if kept.all():
            return self
        return _Shown(self.data[kept], (*self.steps, (kept, owned)))


@cache
def _digits() -> NDArray[np.int64]:
    """What each byte counts as a digit, (256,); 99 for none."""
    import numpy as np

    worth = np.full(256, 99)
    worth[48:58] = np.arange(10)
    worth[65:71] = worth[97:103] = np.arange(10, 16)
    return worth


def _folded(data: Bytes) -> bytes:
    """Bytes as they are compared, without lines and blanks, which part no secret."""
    return data.tobytes().translate(_FOLDED, _BLANKS)


def _plain(text: str) -> Bytes:
    return _Shown(_bytes_of(text)).plain().data


def _spelt(secret: str) -> Iterator[str]:
    """A secret as it is, backwards, in hexadecimal digits and in base64 (three ways, by what
    stands before it), also of UTF-16."""
    yield from (secret, secret[::-1])
    for data in (secret.encode("utf-8", "replace"), secret.encode("utf-16-le", "replace")):
        yield data.hex()
        yield from base64_of(data)


def base64_of(data: bytes) -> Iterator[str]:
    """What some bytes are in base64 wherever they stand, without what hangs on their
    neighbours."""
    for before in range(3):
        spelt = b64encode(b"\0" * before + data).decode().rstrip("=")
        yield spelt[(0, 2, 3)[before] : len(spelt) - bool((len(data) + before) % 3)]
