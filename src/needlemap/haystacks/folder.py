"""A folder of text files: every *.txt, in the order of their names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from needlemap.errors import HaystackError
from needlemap.haystacks.base import Document

LINES = (".jsonl", ".ndjson")


class Folder:
    """Text files of one folder, UTF-8, sorted by name; empty and hidden ('.x.txt') files are skipped.

    Raises HaystackError for a missing or empty folder, and for bad bytes with file and offset.
    """

    endless = False

    def __init__(self, path: str, *, pattern: str = "*.txt") -> None:
        self.path = Path(path).expanduser()
        self.name = f"folder/{self.path.name}"
        if not self.path.is_dir():
            raise HaystackError(
                f"No folder at '{path}'. Give a folder of {pattern} files with --haystack-path."
            )
        self._files = files_like(self.path, pattern)
        if not self._files:
            raise HaystackError(f"Folder '{path}' holds no {pattern} file. Put UTF-8 text files there.")

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Each file's text."""
        for file in self._files[first:]:
            text = read_text(file)
            if text:
                yield Document(file.name, text)


def files_like(folder: Path, pattern: str) -> list[Path]:
    """A folder's files by name, without hidden ones (some systems leave '._x.txt' beside x.txt)."""
    found = (file for file in folder.glob(pattern) if file.is_file() and not file.name.startswith("."))
    return sorted(found, key=lambda file: file.name)


def read_text(file: Path) -> str:
    """A UTF-8 file's text, as text mode reads it. Raises HaystackError with the offset of a bad byte."""
    raw = file.read_bytes()
    try:
        return raw.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise HaystackError(
            f"'{file}' is not UTF-8: bad byte 0x{raw[error.start]:02x} at offset {error.start}. "
            f"Convert it, for instance: iconv -f latin1 -t utf-8"
        ) from error


def source_of(path: str, before: str | None = None) -> str:
    """The source that a path means where none is named. before: the one that was, which may stay.

    A folder of JSON Lines and nothing else that is read means 'jsonl'. Raises HaystackError.
    """
    found = Path(path).expanduser()
    if before == "hub":  # a data set's name, or a copy of one
        return "jsonl" if found.exists() else "hub"
    if before not in (None, "generated", "folder"):
        return before
    return "jsonl" if found.suffix.lower() in LINES else "folder"
