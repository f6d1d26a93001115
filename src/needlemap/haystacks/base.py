"""What a source of background text is: named documents in a fixed order. Reads no file itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


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


@runtime_checkable
class Parted(Protocol):
    """A source of files, each of which is read when it is wanted: only those that a prompt needs."""

    @property
    def parts(self) -> int:
        """How many there are."""
        ...

    def part(self, number: int) -> list[Document]:
        """The documents of one."""
        ...

    def told(self) -> list[str]:
        """What was read so far and what was not, with the reasons, in a line each."""
        ...
