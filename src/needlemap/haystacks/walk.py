"""Which files of a folder and its subfolders may be read, and why the others are not.

It leaves out hidden files, folders of dependencies, names of key files, links that leave the
folder, and pipes, devices and the like. It opens no file.
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
_MOST_FILES = 200_000  # more is a slip of the finger, not a haystack
_MOST_NAMES = 8  # that are told of one kind


@dataclass(frozen=True, slots=True)
class File:
    """A file that may be read. name: its path in the folder, with '/' on any machine, as it may be
    shown."""

    name: str
    path: Path
    kind: str
    size: int


@dataclass(slots=True)
class FoundFiles:
    """What a folder holds. left_out: why, by name; hidden, empty: how many; others: how many, by
    suffix."""

    files: list[File] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    hidden: int = 0
    empty: int = 0
    others: Counter[str] = field(default_factory=Counter)

    @property
    def not_read(self) -> list[str]:
        """The files left out and why: some by name, the others counted."""
        told = [f"{name} ({why})" for name, why in sorted(self.left_out.items())]
        told += [f"{self.hidden:,} hidden"] if self.hidden else []
        told += [f"{self.empty:,} empty"] if self.empty else []
        others = f"{self.others.total():,} of other kinds ({counts_of(self.others)})"
        return [*told, *([others] if self.others else [])]


def find_files(path: Path) -> FoundFiles:
    """What may be read at a path. Raises HaystackError where nothing is, or it may not be
    looked at."""
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
    """All files of a folder and its subfolders. Raises HaystackError when there are too many
    of them."""
    real, waiting, seen = root.resolve(), [(root, "")], 0
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
                _add(entry, name, real, found)


def entries_of(folder: Path) -> list[os.DirEntry[str]]:
    """What a folder holds. Raises HaystackError for one that may not be read."""
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
    """A file among those to read, or among those that are left out."""
    kind, path = SUFFIXES.get(Path(entry.name).suffix.lower()), Path(entry.path)
    if _KEYS.search(entry.name):
        found.left_out[name] = "its name says that it holds a key"
        return
    if entry.is_symlink() and path.is_dir():
        found.left_out[f"{name}/"] = "a link to a folder"
        return
    if kind is None:
        found.others[Path(entry.name).suffix.lower() or "no suffix"] += 1
        return
    why = _why_not(entry, path, root)
    if why:
        found.left_out[name] = why
    elif size := entry.stat().st_size:
        found.files.append(File(name, path, kind, size))
    else:
        found.empty += 1


def _why_not(entry: os.DirEntry[str], path: Path, root: Path) -> str:
    """Why a file is not to be read, as far as that is known before."""
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
    text, hub = f"No file or folder at '{path}'. Give one with --haystack-path.", ""
    if len(path.parts) == 2 and not path.is_absolute():
        hub = f" A data set on the Hugging Face hub: --haystack hub --haystack-path {path}"
    return text + hub


def empty(path: str, found: FoundFiles) -> HaystackError:
    """The error for a folder without a document that may be read."""
    held = f" It holds {some(found.not_read)}." if found.not_read else ""
    return HaystackError(
        f"Folder '{path}' holds no document that can be read.{held} Readable: {_readable()}."
    )


def _readable() -> str:
    return f"{' '.join((*_PROSE, *LINES))} .html .pdf, and source code"


def counts_of(kinds: Counter[str]) -> str:
    return some(
        [
            f"{count:,} {kind}"
            for kind, count in sorted(kinds.items(), key=lambda row: (-row[1], row))
        ]
    )


def some(names: Iterable[str]) -> str:
    """Names, or the first of many."""
    listed = list(names)
    more = len(listed) - _MOST_NAMES
    return ", ".join(listed[:_MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")
