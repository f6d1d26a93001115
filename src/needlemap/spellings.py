"""Find where secrets stand in a text: as they are, URL-encoded, with JSON's escapes, or in base64.

The text is unescaped once, and compared with every 12 characters in a row of a secret, because a
server may repeat a part of one. The time is in proportion to the text.
"""

from __future__ import annotations

import re
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Iterable, Iterator

# So many characters in a row give a longer secret away.
RUN = 12
_HALF = RUN // 2
_ESCAPE = re.compile(r'(?i)%([0-7][0-9a-f])|\\u([0-9a-f]{4})|\\(["\\/])')


class Spellings:
    """All spellings of some secrets.

    Args:
        long: Secrets that are found by any RUN characters in a row.
        whole: Secrets that are only found whole, as they are or escaped.
    """

    def __init__(self, long: Iterable[str], whole: Iterable[str]) -> None:
        spellings = [
            _Plain(spelling).text for secret in long for spelling in (secret, *_in_base64(secret))
        ]
        # Every stretch of RUN characters of a long secret gives it away.
        self._runs = {
            spelling[start : start + RUN]
            for spelling in spellings
            for start in range(len(spelling) - RUN + 1)
        }
        # A text is searched for these first, as `_stretches` explains.
        self._halves = {
            run[start : start + _HALF] for run in self._runs for start in range(_HALF + 1)
        }
        self._whole = {
            _Plain(spelling).text for word in whole for spelling in (word, *_in_base64(word))
        }

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return [start, stop) of each stretch of a secret, in order. They do not overlap."""
        plain = _Plain(text)
        spans = list[tuple[int, int]]()
        for start, stop in sorted((*self._stretches(plain.text), *self._wholes(plain.text))):
            if spans and start < spans[-1][1]:
                spans[-1] = spans[-1][0], max(stop, spans[-1][1])
            elif start < stop:
                spans.append((start, stop))
        return [(plain.find_place(start), plain.find_place(stop)) for start, stop in spans]

    def _stretches(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the stretches of runs, and empty ones."""
        first = 0
        stop = 0
        # Wherever a run stands, it holds a half that starts at a multiple of _HALF.
        for at in range(0, len(text) - _HALF + 1, _HALF):
            if text[at : at + _HALF] not in self._halves:
                continue
            for start in range(max(0, at - _HALF + 1), at + 1):
                if text[start : start + RUN] in self._runs:
                    if start >= stop:
                        yield first, stop
                        first = start
                    stop = start + RUN
        yield first, stop

    def _wholes(self, text: str) -> Iterator[tuple[int, int]]:
        for word in self._whole:
            at = text.find(word)
            while at >= 0:
                yield at, at + len(word)
                at = text.find(word, at + len(word))


class _Plain:
    """A text without escapes, and where each of its characters stood."""

    def __init__(self, text: str) -> None:
        # From a place in the unescaped text up to the next one, no character is escaped.
        self._places = [0]
        # Where these places stood before.
        self._before = [0]
        parts = list[str]()
        size = 0
        stop = 0
        for escape in _ESCAPE.finditer(text):
            letter = escape[3] or chr(int(escape[1] or escape[2], 16))
            parts += [text[stop : escape.start()], letter]
            size += escape.start() - stop
            stop = escape.end()
            self._places += [size, size + 1]
            self._before += [escape.start(), stop]
            size += 1
        self.text = "".join((*parts, text[stop:]))

    def find_place(self, at: int) -> int:
        """Return where a character stood before escapes were undone."""
        nearest = bisect_right(self._places, at) - 1
        return self._before[nearest] + at - self._places[nearest]


def _in_base64(secret: str) -> Iterator[str]:
    """Yield a secret in base64, in both alphabets, for each place in the encoded bytes.

    Letters that depend on the bytes next to it are left out.
    """
    data = secret.encode("utf-8", "replace")
    for before in range(3):
        encoded = b64encode(b"\0" * before + data).decode().rstrip("=")
        first = (0, 2, 3)[before]
        last = len(encoded)
        if (len(data) + before) % 3:
            last -= 1
        spelling = encoded[first:last]
        yield spelling
        yield spelling.translate(str.maketrans("+/", "-_"))
