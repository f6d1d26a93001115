"""Imported runs: which files hold results, and their rows as records like our own.

A file's kind is told by its ending and its first bytes. Prompts, settings and hashes that the other tool
did not write stay unknown; such a run reports and compares, and cannot be resumed or replayed. Nothing is
asked or scored again: a row keeps the score that was published, on its own scale. A run is written records
first, then run.json, so it is whole or not there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.files import MOST_BYTES, open_inside, read_regular
from needlemap.interop import formats
from needlemap.interop.row import SCORERS, Row, Scale, native_mean, scale_of, share
from needlemap.records.families import signed
from needlemap.records.folder import RunFolder, Writer
from needlemap.records.record import NeedleRecord, Record, ScorerRecord
from needlemap.reports.figures.older import context_title
from needlemap.version import SCHEMA, __version__

SUFFIXES = (".json", ".jsonl", ".csv", ".txt")
_EXPECTED = (
    "Import reads needlehaystack results (.json, .jsonl), tables of these (.csv) and OpenCompass's summary "
    "(.csv, .txt)"
)
MODE = "imported"
UNKNOWN = "unknown"
NO_RESULT = "no result"  # what a record's `failure` says of a row without a score
NO_BYTE = -1  # a needle's offset, where only its depth is known
RECORDS = "records-imported.jsonl"


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


@dataclass(frozen=True, slots=True)
class Said:
    """What the user says that files may not: a model's name, scale, tokenizer, and the title's size."""

    model: str = ""
    scale: Scale | None = None
    tokenizer: str = ""
    dataset_length: str = ""


@dataclass(frozen=True, slots=True)
class Imported:
    """One run. about: its run.json. moved: rows of one cell and version that others took before."""

    name: str
    about: dict[str, Any]
    records: tuple[Record, ...]
    scale: Scale
    moved: int

    def native(self, mean_share: float) -> float:
        """A mean on the scale that was published."""
        return native_mean(mean_share, self.scale)


def imported(sources: Sequence[Source], said: Said) -> list[Imported]:
    """A run for each model, and for each test where a model has several. Raises NeedlemapError."""
    rows = [(source, row) for source in sources for row in source.rows]
    models = {row.model for _, row in rows if row.model}
    if said.model and len(models) > 1:
        raise NeedlemapError(f"--model names one model, and the files hold {', '.join(sorted(models))}.")
    parts: dict[tuple[str, str, str], list[tuple[Source, Row]]] = defaultdict(list)
    for source, row in rows:
        parts[said.model or row.model or UNKNOWN, row.task, row.series].append((source, row))
    names = _names(list(parts))
    return [_run(names[key], key, part, said) for key, part in parts.items()]


def _names(keys: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], str]:
    """Folder names: the model; where it has several tests, the test too. No two are the same."""
    names: dict[tuple[str, str, str], str] = {}
    for key in keys:
        several = sum(other[0] == key[0] for other in keys) > 1
        words = dict.fromkeys(word for part in key for word in part.split())
        name = _plain(" ".join(words) if several else key[0])
        taken = {other.casefold() for other in names.values()}
        numbered = (name, *(f"{name}-{number}" for number in range(2, len(keys) + 1)))
        names[key] = next(each for each in numbered if each.casefold() not in taken)
    return names


def _plain(name: str) -> str:
    """A name that is one folder on any system."""
    kept = "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in name)
    return kept.strip(".-")[:100] or UNKNOWN


def _run(name: str, key: tuple[str, str, str], part: list[tuple[Source, Row]], said: Said) -> Imported:
    rows = [row for _, row in part]
    scale = scale_of(rows, said.scale)
    numbered, moved = _numbered(rows)
    shared = _Shared(key[0], scale, _one((row.scorer for row in rows), SCORERS.get(scale, MODE)))
    records = tuple(shared.record(row, repeat) for row, repeat in numbered)
    sources = dict.fromkeys((source.tool, source.name, source.sha256) for source, _ in part)
    return Imported(name, _about(shared, rows, records, list(sources), said), records, scale, moved)


def _numbered(rows: Iterable[Row]) -> tuple[list[tuple[Row, int]], int]:
    """Each row with its repeat from 0: its version, or the next free one of its cell; how many moved."""
    taken: dict[tuple[int, float], set[int]] = defaultdict(set)
    numbered, moved = [], 0
    for row in rows:
        used = taken[row.length, row.depth_percent]
        repeat = row.version - 1
        moved += repeat in used
        while repeat in used:
            repeat += 1
        used.add(repeat)
        numbered.append((row, repeat))
    return numbered, moved


@dataclass(frozen=True, slots=True)
class _Shared:
    """What all records of a run have."""

    model: str
    scale: Scale
    scorer: str

    def record(self, row: Row, repeat: int) -> Record:
        identity = [MODE, self.model, row.task, row.series, row.length, row.depth_percent, repeat]
        depth = row.depth_percent / 100
        realised = None if row.realised is None else row.realised / 100
        needles = () if realised is None else (NeedleRecord(meant=depth, realised=realised, byte=NO_BYTE),)
        return Record(
            schema=SCHEMA,
            key=_hash([*identity, row.needle, row.question, self.scorer]),
            task=row.task,
            model=self.model,
            length_tokens=row.length,
            depth=depth,
            repeat=repeat,
            seed=0,
            question=row.question,
            reference=row.reference or row.needle,
            needles=needles,
            answer=row.answer,
            score=None if row.native is None else share(row.native, self.scale),
            scorer=ScorerRecord(name=self.scorer, scale=self.scale, native=row.native, mean=row.mean),
            prompt_tokens=row.prompt_tokens,
            completion_tokens=row.completion_tokens,
            usd=row.usd,
            latency_s=row.latency_s,
            attempts=1,
            failure=None if row.native is not None else NO_RESULT,
            error=row.error or None,
            answered_by=row.answered_by,
            finished_at=row.finished_at,
        )


def _about(
    shared: _Shared,
    rows: Sequence[Row],
    records: Sequence[Record],
    sources: Sequence[tuple[str, str, str]],
    said: Said,
) -> dict[str, Any]:
    """run.json. settings: only what is known; everything else was not written down by the other tool."""
    cells: dict[tuple[int, float], list[int]] = defaultdict(list)
    for record in records:
        cells[record.length_tokens, record.depth].append(record.repeat)
    settings = {
        "model": shared.model,
        "task": rows[0].task,
        "mode": MODE,
        "scorer": shared.scorer,
        "needle": _one((row.needle for row in rows), ""),
        "question": _one((row.question for row in rows), ""),
    }
    files = [{"tool": tool, "name": name, "sha256": sha256} for tool, name, sha256 in sources]
    return {
        "schema": SCHEMA,
        "needlemap": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "imported": {"files": files, "scale": list(shared.scale), "series": rows[0].series},
        **({"title": context_title(shared.model, said.dataset_length)} if said.dataset_length else {}),
        "settings": {name: value for name, value in settings.items() if value},
        "tokenizer": {
            "name": said.tokenizer or _one((row.tokenizer for row in rows), UNKNOWN),
            "fingerprint": "",
        },
        "scorer": {"name": shared.scorer, "options": {}},
        "haystacks": [],
        "cells": [[length, depth, sorted(repeats)] for (length, depth), repeats in sorted(cells.items())],
    }


def _one(values: Iterable[str], otherwise: str) -> str:
    """The one value that all rows have; `otherwise` where there is none, or several."""
    found = set(values)
    return (found.pop() or otherwise) if len(found) == 1 else otherwise


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=True).encode()).hexdigest()[:32]


def refuse_taken(path: Path) -> None:
    """Raises NeedlemapError when a run is there: an import never adds to one."""
    if RunFolder(path).exists or any(path.glob("records-*.jsonl")):
        raise NeedlemapError(f"'{path}' holds a run already. Give another folder with -o.")


def write(run: Imported, path: Path) -> None:
    """The run's folder. Raises NeedlemapError when it is taken, OSError when it cannot be written."""
    refuse_taken(path)
    with closing(Writer(RunFolder(path))) as writer:
        with open_inside(path / RECORDS, "xb") as file:
            file.writelines(record.line() for record in run.records)
            file.flush()
            os.fsync(file.fileno())
        writer.describe(signed(run.about, run.about["settings"]))
