"""Secrets that were sent, found again in what a server says, in any usual spelling, and hidden.

What merely looks like a key in words of any origin: `hidden` in `models/faults.py`.
"""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

HIDDEN = "[hidden]"
SHORTEST = 6  # characters of a secret; shorter ones would be found in plain words
RUN = 12  # characters in a row that give a longer secret away
DEEPEST = 100  # levels of a JSON value that is looked through; nothing below is taken over
_ESCAPE = re.compile("%[0-9A-F]{2}")


class Secrets:
    """Some secrets. Those with spaces in them are looked for whole, and word by word."""

    def __init__(self, said: Iterable[str] = ()) -> None:
        self._spellings: dict[str, int] = {}  # to the characters in a row that are hidden
        for secret in said:
            for word in {secret, *secret.split()}:
                if len(word) >= (SHORTEST if word == secret else RUN):
                    self._add(word)

    def _add(self, secret: str) -> None:
        whole = " " in secret
        for spelling, width in _spellings(secret):
            least = len(spelling) if whole else min(len(spelling), RUN * width)
            self._spellings[spelling] = min(least, self._spellings.get(spelling, least))

    def hide(self, text: str) -> str:
        """A text without the secrets, and without RUN characters in a row of one."""
        for spelling in sorted(self._spellings, key=len, reverse=True):
            text = text.replace(spelling, HIDDEN)
        found = sorted(
            cut for spelling, least in self._spellings.items() for cut in _cuts(text, spelling, least)
        )
        parts, at = [], 0
        for start, stop in found:
            if start >= at:
                parts += [text[at:start], HIDDEN]
            at = max(at, stop)
        return "".join([*parts, text[at:]]) if found else text

    def hide_in(self, value: Any, levels: int = DEEPEST) -> Any:
        """A JSON value without the secrets in its texts and names; None below so many levels."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, dict):
            parts = value.items() if levels else ()
            return {self.hide(name): self.hide_in(part, levels - 1) for name, part in parts}
        if isinstance(value, list):
            return [self.hide_in(part, levels - 1) for part in value] if levels else None
        return value


def _spellings(secret: str) -> Iterator[tuple[str, int]]:
    """A secret as servers spell it, and how many characters stand for one: as it is, in addresses, in JSON,
    in base64 (three ways, by what stands before it)."""
    yield from ((secret, 1), (secret.replace("/", "\\/"), 1))
    for quoted in (quote(secret, safe=""), quote(secret)):
        yield from ((quoted, 1), (_ESCAPE.sub(lambda found: found[0].lower(), quoted), 1))
    for form in ("\\u{:04x}", "\\u{:04X}"):
        yield "".join(form.format(ord(letter)) for letter in secret), 6
    data = secret.encode("utf-8", "replace")
    for encode in (b64encode, urlsafe_b64encode):
        for before in range(3):
            spelt = encode(b"\0" * before + data).decode().rstrip("=")
            yield spelt[(0, 2, 3)[before] : len(spelt) - bool((len(data) + before) % 3)], 1


def _cuts(text: str, spelling: str, least: int) -> Iterator[tuple[int, int]]:
    """Where a text has at least so many characters in a row of a spelling.

    So many in a row hold a whole block of half as many, counted from the spelling's start: only blocks are
    looked for, and what is found is lengthened.
    """
    block = len(spelling) if least == len(spelling) else least // 2
    for place in range(0, len(spelling) - block + 1, block):
        at = text.find(spelling[place : place + block])
        while at >= 0:
            start, stop = _lengthened(text, at, spelling, place, block)
            if stop - start >= least:
                yield start, stop
            at = text.find(spelling[place : place + block], max(stop - block, at) + 1)


def _lengthened(text: str, at: int, spelling: str, place: int, size: int) -> tuple[int, int]:
    """The longest stretch of a text around a block that goes as the spelling goes."""
    start, first, stop, last = at, place, at + size, place + size
    while start and first and text[start - 1] == spelling[first - 1]:
        start, first = start - 1, first - 1
    while stop < len(text) and last < len(spelling) and text[stop] == spelling[last]:
        stop, last = stop + 1, last + 1
    return start, stop
