"""JSON Lines with a `text` field, as in OpenCompass's CDME: one document a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from needlemap.errors import HaystackError
from needlemap.haystacks.base import Document
from needlemap.haystacks.folder import files_like
from needlemap.haystacks.readers import read_text

_NAME = re.compile(r"[A-Za-z_]\w{0,40}")


class JsonLines:
    """One .jsonl file, or a folder of them; file_list chooses and orders the folder's files.

    Blank lines are skipped. Raises HaystackError for a missing file, an empty folder, and for a broken line
    with file and line number.
    """

    endless = False

    def __init__(self, path: str, *, file_list: Sequence[str] = (), field: str = "text") -> None:
        self.path = Path(path).expanduser()
        self.name = f"jsonl/{self.path.name}"
        self.field = field
        self._files = _files(self.path, file_list)

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Each line's text."""
        return islice(self._lines(), first, None)

    def _lines(self) -> Iterator[Document]:
        for file in self._files:
            for number, line in enumerate(read_text(file).split("\n"), 1):
                if not line.strip():
                    continue
                yield Document(f"{file.name}:{number}", line_text(line, file, number, self.field))


def line_text(line: str, file: Path, number: int, field: str = "text") -> str:
    """The text of one JSON line. Raises HaystackError naming file and line."""
    try:
        row = json.loads(line.strip())
    except json.JSONDecodeError as error:
        raise HaystackError(
            f"{file}, line {number}: not JSON ({error.msg} at column {error.colno})."
        ) from error
    except (ValueError, RecursionError):  # a number of thousands of digits, brackets in brackets
        raise HaystackError(f"{file}, line {number}: no JSON that can be read.") from None
    if not isinstance(row, dict) or not isinstance(row.get(field), str):
        raise HaystackError(f"{file}, line {number}: no text in field '{field}'.{_hint(row, field, file)}")
    return _whole(row[field])


def _hint(row: Any, field: str, file: Path) -> str:
    """What to type where the text is in another field, the longest one."""
    texts = (
        {name: value for name, value in row.items() if isinstance(value, str)}
        if isinstance(row, dict)
        else {}
    )
    names = [name for name in texts if _NAME.fullmatch(name)]
    if not names:
        return f' Each line is to be as {{"{field}": "a document"}}.'
    longest = max(names, key=lambda name: len(texts[name]))
    return f" Is it '{longest}'? Type: jq -c '{{{field}: .{longest}}}' '{file}' > texts.jsonl"


def _whole(text: str) -> str:
    """The text with lone surrogates, which JSON's escapes allow, as U+FFFD: UTF-8 has no bytes for them."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _files(path: Path, file_list: Sequence[str]) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise HaystackError(f"No file or folder at '{path}'. Give one with --haystack-path.")
    if not file_list:
        found = files_like(path, "*.jsonl")
        if not found:
            raise HaystackError(f"Folder '{path}' holds no .jsonl file.")
        return found
    missing = [name for name in file_list if not (path / name).is_file()]
    if missing:
        raise HaystackError(f"Folder '{path}' lacks {', '.join(missing)} (file_list). {_at_hand(path)}")
    return [path / name for name in file_list]


def _at_hand(path: Path) -> str:
    return f"It holds: {', '.join(file.name for file in files_like(path, '*.jsonl')) or 'no .jsonl file'}."
