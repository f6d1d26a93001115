"""Whether an answer names something: the one rule of `recall`, `f1` and `first`.

Text is compared after Unicode's NFKC and case folding, with one kind of hyphen; and a word is only found
whole: '12' is not in '3124', nor 'red-fox' in 'red-foxes'. Scripts without spaces have no such ends.
"""

from __future__ import annotations

import re
from unicodedata import normalize

_HYPHENS = re.compile("[\u2010-\u2015\u2212]")
_UNSPACED = 0x2E80  # from here on: Han, kana, Hangul


def plain(text: str) -> str:
    """A text as it is compared.

    >>> plain("Red\u2011Fox \uff11\uff12")
    'red-fox 12'
    """
    return _HYPHENS.sub("-", normalize("NFKC", text)).casefold()


def named(said: str, wanted: str) -> bool:
    """Whether a plain text names another, whole.

    >>> named("it is 12, not 3124", "12"), named("it is 3124", "12"), named("密码是12号", "12")
    (True, False, True)
    """
    start = said.find(wanted) if wanted else -1
    while start >= 0:
        end = start + len(wanted)
        if not _one_word(said[start - 1 : start], wanted[0]) and not _one_word(
            wanted[-1], said[end : end + 1]
        ):
            return True
        start = said.find(wanted, start + 1)
    return False


def _one_word(left: str, right: str) -> bool:
    """Whether two neighbours belong to one word."""
    both = left + right
    return len(both) == 2 and both.isalnum() and all(ord(character) < _UNSPACED for character in both)
