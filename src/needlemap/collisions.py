"""Answers that a haystack already holds: taken from there, they would prove nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable

from needlemap.errors import HaystackError
from needlemap.haystacks.assembly import Haystack
from needlemap.tasks.base import Item


def hidden_words(item: Item, scored: Iterable[str] = ()) -> tuple[str, ...]:
    """What must not stand in the haystack: needles, keywords, answer, and what a scorer looks for."""
    texts = [needle.text.strip() for needle in item.needles]
    return tuple(dict.fromkeys([*texts, *item.reference.keywords, *scored, item.reference.answer.strip()]))


def collisions(haystack: Haystack, stop: int, words: Iterable[str], *, allowed: bool) -> dict[str, int]:
    """The byte where each word first occurs in the haystack's first `stop` tokens, in any case.

    Raises HaystackError for the first one found, unless they are allowed.
    """
    text = bytes(haystack.text.span(0, stop).data).decode("utf-8", "replace")
    lowered, found = text.lower(), {}
    for word in dict.fromkeys(words):
        if word and word.lower() in lowered:
            match = re.search(re.escape(word), text, re.IGNORECASE)
            found[word] = len(text[: match.start()].encode()) if match else 0
    if found and not allowed:
        word, place = next(iter(found.items()))
        raise HaystackError(
            f"The haystack '{haystack.name}' already holds '{word}' (byte {place}), so an answer could come "
            f"from there. Change the needle or the haystack, or allow it with --collisions warn."
        )
    return found
