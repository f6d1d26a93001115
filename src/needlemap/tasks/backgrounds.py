"""Haystacks that tasks bring along: the same few sentences over and over, or lines with keys and values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from random import Random

from needlemap.haystacks.base import Document
from needlemap.tasks.base import holds_nothing
from needlemap.tasks.values import Values

_LINES = 32  # of a document


@dataclass(frozen=True, slots=True)
class Noise:
    """A text again and again, one line each time."""

    text: str
    name: str = "repeat"
    endless: bool = True

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Documents of equal lines."""
        text = f"{self.text}\n" * _LINES
        return (Document(f"{self.name}:{number}", text) for number in count(first))


@dataclass(frozen=True, slots=True)
class Pairs:
    """Lines, each with a key and a value that no other line has.

    line: its text with {key} and {value}, without the line break. source: what fixes them, one a repeat.
    """

    line: str
    keys: Values
    values: Values
    source: str
    name: str = "pairs"
    endless: bool = True

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Documents of some lines each."""
        lines, number = self._lines(), 0
        while True:
            text = "".join(islice(lines, _LINES))
            if number >= first:
                yield Document(f"{self.name}:{number}", text)
            number += 1

    def _lines(self) -> Iterator[str]:
        random, keys, values = Random(f"pairs:{self.source}"), set[str](), set[str]()
        while True:
            key = self.keys.fresh(random, keys, holds_nothing)
            value = self.values.fresh(random, values, holds_nothing)
            yield self.line.format(key=key, value=value) + "\n"
