"""Define sources of documents: in a fixed order, and without an end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice


@dataclass(frozen=True, slots=True)
class Document:
    """One background text.

    Attributes:
        name: Unique within its source.
        text: Paragraphs separated by a blank line.
    """

    name: str
    text: str


class Source:
    """Gives documents in a fixed order.

    A source of many files has `parts`, of which only those are read that a prompt needs.

    Attributes:
        name: The name in reports.
        endless: Whether `documents` never stops.
    """

    name: str
    endless: bool = False

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Return the documents in listed order, from number `first` on.

        Each call starts again.
        """
        raise NotImplementedError

    @property
    def parts(self) -> int | None:
        """Return how many parts there are, each of which is read when it is needed.

        None for a source that can only be read in its order.
        """
        return None

    def part(self, number: int) -> list[Document]:
        """Return the documents of a part."""
        raise NotImplementedError

    def notes(self) -> list[str]:
        """Return a line on what was read so far, and a line on what was not, with the reasons."""
        return []


class Stream(Source):
    """Documents without end. Override `pieces`.

    Attributes:
        PIECES: How many pieces a document has.
    """

    endless = True
    PIECES = 32

    def pieces(self) -> Iterator[str]:
        """Yield texts without end, the same ones on each call."""
        raise NotImplementedError

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Return documents of `PIECES` pieces each."""
        pieces = self.pieces()
        texts = ("".join(islice(pieces, self.PIECES)) for _ in count())
        numbered = (Document(f"{self.name}:{number}", text) for number, text in enumerate(texts))
        return islice(numbered, first, None)
