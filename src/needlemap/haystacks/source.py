"""A source of documents in a fixed order, and one without an end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice


@dataclass(frozen=True, slots=True)
class Document:
    """One background text. name: unique within its source; text: paragraphs separated by a blank
    line."""

    name: str
    text: str


class Source:
    """Gives documents in a fixed order. name: what reports call it. endless: whether `documents`
    never stops.

    One of many files has `parts`, of which only those are read that a prompt needs.
    """

    name: str
    endless: bool = False

    def documents(self, first: int = 0) -> Iterator[Document]:
        """The documents in listed order, from number `first` on, afresh each time it is
        called."""
        raise NotImplementedError

    @property
    def parts(self) -> int | None:
        """How many parts there are, each read when it is wanted; None: it is read in its order
        alone."""
        return None

    def part(self, number: int) -> list[Document]:
        """The documents of a part."""
        raise NotImplementedError

    def notes(self) -> list[str]:
        """What was read so far and what was not, with the reasons, in a line each."""
        return []


class Stream(Source):
    """Documents without end, of so many pieces each. PIECES: of a document. Override `pieces`."""

    endless = True
    PIECES = 32

    def pieces(self) -> Iterator[str]:
        """Texts without end, the same ones each time it is called."""
        raise NotImplementedError

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Documents of some pieces each."""
        pieces = self.pieces()
        texts = ("".join(islice(pieces, self.PIECES)) for _ in count())
        numbered = (Document(f"{self.name}:{number}", text) for number, text in enumerate(texts))
        return islice(numbered, first, None)
