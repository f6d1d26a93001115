"""Find the files of a folder and its subfolders that may be read, and why the others may not.

Hidden files, folders of dependencies, names of key files, links that leave the folder, pipes and
devices are left out. No file is opened.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG
from unicodedata import normalize

from needlemap.errors import HaystackError
from needlemap.text import printable

LINES = (".jsonl", ".ndjson")
_PROSE = (".txt", ".text", ".md", ".markdown", ".rst", ".org", ".adoc", ".tex")
_CODE = (
    ".py .pyi .ipy .c .h .cc .cpp .cxx .hh .hpp .cu .rs .go .java .kt .scala .js .mjs .jsx .ts "
    ".tsx .vue .rb "
    ".php .pl .swift .m .mm .cs .fs .hs .ml .clj .ex .exs .erl .lua .r .jl .dart .zig .f90 .sql "
    ".sh .bash "
    ".ps1 .css .scss .proto .cmake .el .lisp .v .sv .vhd"
)
SUFFIXES = {
    **dict.fromkeys((*_PROSE, *_CODE.split()), "text"),
    **dict.fromkeys(LINES, "lines"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    ".pdf": "pdf",
}
_DEPENDENCIES = (
    "node_modules bower_components site-packages dist-packages __pycache__ __pypackages__ venv "
    "virtualenv "
    "target dist build vendor"
)
DEPENDENCIES = frozenset(_DEPENDENCIES.split())
_KEYS = re.compile(
    r"credential|private[-_]?key|api[-_]?keys?\b|^id_(rsa|dsa|ecdsa|ed25519)|service[-_]account"
    r"|^(secrets?|passwords?|passwd|htpasswd)(\.|$)"
    r"|\.(env|pem|key|p12|pfx|jks|keystore|kdbx|ppk|gpg)(\.|$)",
    re.IGNORECASE,
)
# A folder with more files is a typing error, not a haystack.
_MOST_FILES = 200_000
# Names in a list. The others are counted.
_MOST_NAMES = 8


@dataclass(frozen=True, slots=True)
class File:
    """A file that may be read.

    Attributes:
        name: Its path in the folder, with '/' on any machine, without control characters.
        path: Its path on this machine.
        kind: 'text', 'lines', 'html' or 'pdf'.
        size: Its bytes.
    """

    name: str
    path: Path
    kind: str
    size: int


@dataclass(slots=True)
class FoundFiles:
    """What a folder holds.

    Attributes:
        files: The files that may be read.
        left_out: Why a file or folder is left out, by its name.
        hidden: How many hidden files there are.
        empty: How many empty files.
        others: How many files no reader knows, by their suffix.
    """

    files: list[File] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    hidden: int = 0
    empty: int = 0
    others: Counter[str] = field(default_factory=Counter)

    @property
    def not_read(self) -> list[str]:
        """Return the files left out and why: some by name, the others counted."""
        lines = [f"{name} ({reason})" for name, reason in sorted(self.left_out.items())]
        if self.hidden:
            lines.append(f"{self.hidden:,} hidden")
        if self.empty:
            lines.append(f"{self.empty:,} empty")
        if self.others:
            lines.append(f"{self.others.total():,} of other kinds ({counts_of(self.others)})")
        return lines


def find_files(path: Path) -> FoundFiles:
    """Find what may be read at a path.

    Raises HaystackError if there is nothing, or if it is forbidden.
    """
    found = FoundFiles()
    try:
        stat = path.stat()
    except PermissionError:
        raise _forbidden(path) from None
    except (OSError, ValueError):
        raise HaystackError(_nowhere(path)) from None
    if not path.is_dir():
        kind = SUFFIXES.get(path.suffix.lower())
        if kind is None or not S_ISREG(stat.st_mode):
            raise HaystackError(
                f"'{path}' is no document that can be read. Readable: {_readable()}."
            )
        found.files.append(File(path.name, path, kind, stat.st_size))
        return found
    _walk(path, found)
    found.files.sort(key=lambda file: normalize("NFC", file.path.relative_to(path).as_posix()))
    return found


def _walk(root: Path, found: FoundFiles) -> None:
    """Add the files of a folder and its subfolders. Raises HaystackError if there are too many."""
    resolved_root = root.resolve()
    # Folders that are not read yet, each with what stands before its files' names.
    waiting = [(root, "")]
    seen = 0
    while waiting:
        folder, prefix = waiting.pop()
        try:
            entries = entries_of(folder)
        except HaystackError:
            if not prefix:
                raise
            found.left_out[prefix] = "no permission"
            continue
        seen += len(entries)
        if seen > _MOST_FILES:
            raise HaystackError(
                f"'{root}' holds more than {_MOST_FILES:,} files. Give a folder of documents."
            )
        for entry in entries:
            name = printable(prefix + entry.name, line=True)
            if entry.name.startswith("."):
                found.hidden += 1
            elif entry.is_dir(follow_symlinks=False):
                if _is_dependency(entry):
                    found.left_out[f"{name}/"] = "dependencies, or made by a build"
                else:
                    waiting.append((Path(entry.path), f"{prefix}{entry.name}/"))
            else:
                _add(entry, name, root=resolved_root, found=found)


def entries_of(folder: Path) -> list[os.DirEntry[str]]:
    """Return what a folder holds. Raises HaystackError for one that may not be read."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except PermissionError:
        raise _forbidden(folder) from None
    except OSError as error:
        raise HaystackError(f"'{folder}' cannot be read: {error.strerror}.") from None


def _is_dependency(entry: os.DirEntry[str]) -> bool:
    return (
        entry.name in DEPENDENCIES
        or entry.name.endswith(".egg-info")
        or os.path.exists(os.path.join(entry.path, "pyvenv.cfg"))
    )


def _add(entry: os.DirEntry[str], name: str, root: Path, found: FoundFiles) -> None:
    """Add a file to those to read, or to those that are left out.

    name: as in `File`. root: the folder that a link must not leave.
    """
    path = Path(entry.path)
    suffix = Path(entry.name).suffix.lower()
    kind = SUFFIXES.get(suffix)
    if _KEYS.search(entry.name):
        found.left_out[name] = "its name says that it holds a key"
        return
    if entry.is_symlink() and path.is_dir():
        found.left_out[f"{name}/"] = "a link to a folder"
        return
    if kind is None:
        found.others[suffix or "no suffix"] += 1
        return
    reason = _why_not(entry, path, root)
    if reason:
        found.left_out[name] = reason
        return
    size = entry.stat().st_size
    if size:
        found.files.append(File(name, path, kind=kind, size=size))
    else:
        found.empty += 1


def _why_not(entry: os.DirEntry[str], path: Path, root: Path) -> str:
    """Return why a file must not be read, as far as that is known before, or ''."""
    try:
        if entry.is_symlink():
            target = path.resolve(strict=True)
            if not target.is_relative_to(root):
                return "a link that leaves the folder"
            if _KEYS.search(target.name):
                return "a link to a file whose name says that it holds a key"
        if not S_ISREG(entry.stat().st_mode):
            return "no plain file"
    except PermissionError:
        return "no permission"
    except (OSError, RuntimeError):
        return "a link to nothing"
    return ""


def _forbidden(path: Path) -> HaystackError:
    return HaystackError(f"No permission to read '{path}'. Type: ls -ld '{path}', and see who may.")


def _nowhere(path: Path) -> str:
    message = f"No file or folder at '{path}'. Give one with --haystack-path."
    if len(path.parts) == 2 and not path.is_absolute():
        return (
            f"{message} A data set on the Hugging Face hub: --haystack hub --haystack-path {path}"
        )
    return message


def empty(path: str, found: FoundFiles) -> HaystackError:
    """Return the error for a folder without a document that may be read."""
    holds = ""
    if found.not_read:
        holds = f" It holds {some(found.not_read)}."
    return HaystackError(
        f"Folder '{path}' holds no document that can be read.{holds} Readable: {_readable()}."
    )


def _readable() -> str:
    return f"{' '.join((*_PROSE, *LINES))} .html .pdf, and source code"


def counts_of(kinds: Counter[str]) -> str:
    """Return how many there are of each kind, the most frequent ones first."""
    rows = sorted(kinds.items(), key=lambda row: (-row[1], row))
    return some([f"{count:,} {kind}" for kind, count in rows])


def some(names: Iterable[str]) -> str:
    """Return names, or the first of many and how many more there are."""
    names = list(names)
    listed = ", ".join(names[:_MOST_NAMES])
    more = len(names) - _MOST_NAMES
    return f"{listed} and {more:,} more" if more > 0 else listed
