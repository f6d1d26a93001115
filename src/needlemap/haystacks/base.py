"""What a source of background text is: named documents in a fixed order. Reads no file itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Document:
    """One background text. name: unique within its source; text: paragraphs separated by a blank line."""

    name: str
    text: str


class Source(Protocol):
    """Gives documents in a fixed order."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    @property
    def endless(self) -> bool:
        """Whether `documents` never stops."""
        ...

    def documents(self, first: int = 0) -> Iterator[Document]:
        """The documents in listed order, from number `first` on, afresh each time it is called."""
        ...
