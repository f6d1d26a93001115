"""Answers that a haystack already holds: taken from there, they would prove nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from itertools import groupby, takewhile

from needlemap.errors import HaystackError
from needlemap.tasks.base import Item
from needlemap.tokens import TokenText

_RUNS = bytes(  # ASCII but letters, digits, - and _ becomes a space
    code if code >= 128 or chr(code).isalnum() or chr(code) in "-_" else 32 for code in range(256)
)
_MANY = 8  # words, for which searching the text each time takes longer than looking at its runs once


class Held:
    """What a haystack holds, in any case: asked a thousand times for the price of one pass over its text.

    Texts are cut into runs at ASCII's marks and spaces. What has a run that is in none of the haystack's cannot
    stand there; most texts that are asked for have one, and need no search.
    """

    def __init__(self, text: TokenText) -> None:
        self.text = text

    @cached_property
    def _text(self) -> bytes:
        return self.text.data.decode("utf-8", "replace").lower().encode()

    @cached_property
    def _runs(self) -> frozenset[bytes]:
        return frozenset(self._text.translate(_RUNS).split())

    @cached_property
    def _joined(self) -> list[tuple[int, bytes]]:
        """The runs by length, joined: the longest first."""
        runs = sorted(self._runs, key=len, reverse=True)
        return [(size, b" ".join(group)) for size, group in groupby(runs, key=len)]

    def holds(self, text: str) -> bool:
        """Whether a text occurs, also inside words."""
        wanted = text.lower().encode("utf-8", "replace")
        runs = wanted.translate(_RUNS).split()
        if not all(map(self._in_a_run, runs)):
            return False
        return runs == [wanted] or wanted in self._text

    def _in_a_run(self, run: bytes) -> bool:
        if run in self._runs:
            return True
        longer = takewhile(lambda group: group[0] > len(run), self._joined)
        return any(run in group for _, group in longer)


def hidden_words(item: Item, scored: Iterable[str] = ()) -> tuple[str, ...]:
    """What must not stand in the haystack: needles, keywords, answer, and what a scorer looks for.

    Or what the item says instead, where answers are of few kinds that the haystack is full of.
    """
    if item.unique is not None:
        return item.unique
    texts = [needle.text.strip() for needle in item.needles]
    return tuple(dict.fromkeys([*texts, *item.reference.keywords, *scored, item.reference.answer.strip()]))


def collisions(held: Held, name: str, stop: int, words: Iterable[str], *, allowed: bool) -> dict[str, int]:
    """The byte where each word first occurs in the first `stop` tokens of a haystack, in any case.

    Raises HaystackError for the first one found, unless they are allowed.
    """
    suspects = [word for word in dict.fromkeys(words) if word]
    if len(suspects) > _MANY:
        suspects = list(filter(held.holds, suspects))
    if not suspects:
        return {}
    found: dict[str, int] = {}
    text = bytes(held.text.span(0, stop).data).decode("utf-8", "replace")
    lowered = text.lower()
    for word in suspects:
        if word.lower() in lowered:
            match = re.search(re.escape(word), text, re.IGNORECASE)
            found[word] = len(text[: match.start()].encode()) if match else 0
    if found and not allowed:
        word, place = next(iter(found.items()))
        raise HaystackError(
            f"The haystack '{name}' already holds '{word}' (byte {place}), so an answer could come "
            f"from there. Change the needle or the haystack, or allow it with --collisions warn."
        )
    return found
