"""Which files hold results, and what kind each is: told by its ending and its first bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from needlemap.errors import NeedlemapError
from needlemap.files import MOST_BYTES, read_regular
from needlemap.interop.imports import formats
from needlemap.interop.imports.row import Row

SUFFIXES = (".json", ".jsonl", ".csv", ".txt")
_EXPECTED = (
    "Import reads needlehaystack results (.json, .jsonl), tables of these (.csv) and OpenCompass's summary "
    "(.csv, .txt)"
)


@dataclass(frozen=True, slots=True)
class Source:
    """One file: its name, hash, tool and rows."""

    name: str
    sha256: str
    tool: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """All that was read. left_out: files of a folder that hold no result, each with a reason."""

    sources: tuple[Source, ...]
    left_out: tuple[str, ...] = ()


def read(paths: Sequence[Path]) -> Found:
    """Everything in these files and folders. Raises NeedlemapError: a file that was named must hold results;
    one that merely lies in a folder is left out with a reason.
    """
    sources: list[Source] = []
    left_out: list[str] = []
    for path in paths:
        if not path.is_dir():
            sources.append(_source(path))
            continue
        found = _folder(path)
        sources += found.sources
        left_out += found.left_out
    return Found(tuple(sources), tuple(left_out))


def holds_results(folder: Path) -> bool:
    """Whether a folder, or its folder `results`, holds files that may be results."""
    return bool(_listed(folder) or _listed(folder / "results"))


def _folder(path: Path) -> Found:
    """Results in a folder, or in its folder `results`, by name."""
    files = _listed(path) or _listed(path / "results")
    sources, left_out = [], []
    for file in files:
        try:
            sources.append(_source(file))
        except NeedlemapError as error:
            left_out.append(str(error))
    if not sources:
        why = f" ({left_out[0]})" if left_out else ""
        raise NeedlemapError(f"No results in folder '{path}'{why}. {_EXPECTED}; name a .csv or .txt itself.")
    return Found(tuple(sources), tuple(left_out))


def _listed(path: Path) -> list[Path]:
    files: Iterable[Path] = path.iterdir() if path.is_dir() else ()
    return sorted(file for file in files if file.suffix.lower() in SUFFIXES[:2] and file.is_file())


def _source(file: Path) -> Source:
    if not file.is_file():
        raise NeedlemapError(f"No file or folder at '{file}'.")
    data, name = read_regular(file, MOST_BYTES * 4), file.name.encode("utf-8", "replace").decode("utf-8")
    tool, rows = _rows(data, name, file.suffix.lower())
    if not rows:
        raise NeedlemapError(f"{name}: no results in it.")
    return Source(name, sha256(data).hexdigest(), tool, tuple(rows))


def _rows(data: bytes, name: str, suffix: str) -> tuple[str, list[Row]]:
    if suffix == ".jsonl":
        return formats.TOOL_2, formats.from_jsonl(data, name)
    if suffix == ".json":
        return formats.TOOL_1, formats.from_json(data, name)
    if suffix not in SUFFIXES:
        raise NeedlemapError(f"{name}: unknown kind of file. {_EXPECTED}.")
    text = _text(data, name)
    if suffix == ".txt":
        return formats.OPENCOMPASS, formats.summary_from_txt(text, name)
    columns = [column.strip('" ') for column in text.partition("\n")[0].strip().split(",")]
    if "depth_percent" in columns:
        return formats.TOOL_1, formats.from_csv(text, name)
    if columns[0] == "dataset":
        return formats.OPENCOMPASS, formats.summary_from_csv(text, name)
    raise NeedlemapError(
        f"{name}: unknown columns {','.join(columns):.80}. Expected: context_length,depth_percent,score or "
        f"OpenCompass's {','.join(formats.HEADER)},MODEL..."
    )


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NeedlemapError(
            f"{name}: not readable as UTF-8 ({error.reason} at byte {error.start})."
        ) from None
