"""An imported run: rows as records like our own, and what run.json says of where they come from.

Prompts, settings and hashes that the other tool did not write stay unknown; such a run reports and compares,
and cannot be resumed or replayed. It is written records first, then run.json, so it is whole or not there.
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
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.files import open_inside
from needlemap.interop.imports.row import SCORERS, Row, Scale, native_mean, scale_of, share
from needlemap.interop.imports.sources import Source
from needlemap.records.families import signed
from needlemap.records.folder import RunFolder, Writer
from needlemap.records.record import NeedleRecord, Record, ScorerRecord
from needlemap.version import SCHEMA, __version__

MODE = "imported"
UNKNOWN = "unknown"
NO_RESULT = "no result"  # what a record's `failure` says of a row without a score
NO_BYTE = -1  # a needle's offset, where only its depth is known


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
        **({"title": title(shared.model, said.dataset_length)} if said.dataset_length else {}),
        "settings": {name: value for name, value in settings.items() if value},
        "tokenizer": {
            "name": said.tokenizer or _one((row.tokenizer for row in rows), UNKNOWN),
            "fingerprint": "",
        },
        "scorer": {"name": shared.scorer, "options": {}},
        "haystacks": [],
        "cells": [[length, depth, sorted(repeats)] for (length, depth), repeats in sorted(cells.items())],
    }


def title(model: str, dataset_length: str) -> str:
    """The title that OpenCompass's plotting script gives, whose --dataset_length changes nothing else."""
    return (
        f"{model} {dataset_length} Context Performance\n"
        'Fact Retrieval Across Context Lengths ("Needle In A Haystack")'
    )


def _one(values: Iterable[str], otherwise: str) -> str:
    """The one value that all rows have; `otherwise` where there is none, or several."""
    found = set(values)
    return (found.pop() or otherwise) if len(found) == 1 else otherwise


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=True).encode()).hexdigest()[:32]


RECORDS = "records-imported.jsonl"


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
