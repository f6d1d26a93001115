"""Imported runs: rows of other tools' results as records like our own.

Prompts, settings and hashes that the other tool did not write stay unknown; such a run reports
and compares, and cannot be resumed or replayed. Nothing is asked or scored again: a row keeps
the score that was published, on its own scale. A run is written records first, then run.json,
so it is whole or not there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.files import folder_names, open_inside
from needlemap.interop.result_row import SCORERS, ResultRow, context_title, native_mean, scale_of
from needlemap.interop.sources import ResultsFile, is_other_tools, read
from needlemap.records.families import begin_families
from needlemap.records.folder import RunFolder, Writer
from needlemap.records.loaded import Loaded
from needlemap.records.origin import signed
from needlemap.records.record import NeedleRecord, PromptRecord, Record, ScorerRecord
from needlemap.records.results import ResultsReader
from needlemap.records.run_file import (
    ImportedFile,
    ImportedFrom,
    RuledScorer,
    RunFile,
    RunTokenizer,
)
from needlemap.scorers import Scale, share_of
from needlemap.settings.suites import load_suite, scores_among
from needlemap.version import SCHEMA, __version__

MODE = "imported"
UNKNOWN = "unknown"
NO_RESULT = "no result"  # what a record's `failure` says of a row without a score
NO_BYTE = -1  # a needle's offset, where only its depth is known
RECORDS = "records-imported.jsonl"


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What the user says that files may not: a model's name, scale, tokenizer, the title's
    size, and which metric of a log counts."""

    model: str = ""
    scale: Scale | None = None
    tokenizer: str = ""
    dataset_length: str = ""
    metric: str = ""


@dataclass(frozen=True, slots=True)
class Imported:
    """One run. about: its run.json. moved: rows of one cell and version that others took
    before. suite: of which suite it is a family, under the name `family`."""

    name: str
    about: RunFile
    records: tuple[Record, ...]
    scale: Scale
    moved: int
    suite: str = ""
    family: str = ""

    def native(self, mean_share: float) -> float:
        """A mean on the scale that was published."""
        return native_mean(mean_share, self.scale)


def imported(sources: Sequence[ResultsFile], said: ImportOptions) -> list[Imported]:
    """A run for each model, and for each test where a model has several. Raises
    NeedlemapError."""
    rows = [(source, row) for source in sources for row in source.rows]
    models = {row.model for _, row in rows if row.model}
    if said.model and len(models) > 1:
        raise NeedlemapError(
            f"--model names one model, and the files hold {', '.join(sorted(models))}."
        )
    parts: dict[tuple[str, str, str], list[tuple[ResultsFile, ResultRow]]] = defaultdict(list)
    for source, row in rows:
        parts[said.model or row.model or UNKNOWN, row.task, row.series].append((source, row))
    names = _names(list(parts))
    return _in_order([_run(names[key], key, part, said) for key, part in parts.items()])


def _in_order(runs: Sequence[Imported]) -> list[Imported]:
    """Runs with each model's families of a suite in its order, and its tool's others behind."""
    known = {suite: [*load_suite(suite).families] for suite in {run.suite for run in runs} - {""}}
    first = dict[tuple[object, str], int]()

    def rank_of(numbered: tuple[int, Imported]) -> tuple[int, int]:
        number, run = numbered
        if not run.suite:
            return number, 0
        families = known[run.suite]
        behind = families.index(run.family) if run.family in families else len(families)
        return first.setdefault((run.about.named.model, run.suite), number), behind

    return [run for _, run in sorted(enumerate(runs), key=rank_of)]


def _names(keys: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], str]:
    """Folder names: the model; where it has several tests, the test too. No two are the
    same."""
    texts = []
    for key in keys:
        several = sum(other[0] == key[0] for other in keys) > 1
        words = dict.fromkeys(word for part in key for word in part.split())
        texts.append((" ".join(words) if several else key[0]).strip(" .-") or UNKNOWN)
    return dict(zip(keys, folder_names(texts), strict=True))


def _run(
    name: str,
    key: tuple[str, str, str],
    part: list[tuple[ResultsFile, ResultRow]],
    said: ImportOptions,
) -> Imported:
    rows = [row for _, row in part]
    scale = scale_of(rows, said.scale)
    numbered, moved = _numbered(rows)
    sources = dict.fromkeys((source.tool, source.name, source.sha256) for source, _ in part)
    scorer = _one((row.scorer for row in rows), SCORERS.get(scale, MODE))
    shared = _Shared(key[0], scale, scorer, tuple(sha256 for _, _, sha256 in sources))
    records = tuple(shared.record(row, repeat) for row, repeat in numbered)
    about, suite = _about(shared, rows, records, list(sources), said), rows[0].suite
    return Imported(name, about, records, scale, moved, suite, rows[0].task if suite else "")


def _numbered(rows: Iterable[ResultRow]) -> tuple[list[tuple[ResultRow, int]], int]:
    """Each row with its repeat from 0: its version, or the next free one of its cell; how many
    moved."""
    taken: dict[tuple[int, float], set[int]] = defaultdict(set)
    numbered, moved = list[tuple[ResultRow, int]](), 0
    for row in rows:
        if (
            row.repeat is not None
        ):  # a sample of a log: its versions are the same prompt asked again
            numbered.append((row, row.repeat))
            continue
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
    """What all records of a run have. files: hashes of what it was read from."""

    model: str
    scale: Scale
    scorer: str
    files: tuple[str, ...]

    def record(self, row: ResultRow, repeat: int) -> Record:
        identity = [MODE, self.model, row.task, row.series, row.length, row.depth_percent, repeat]
        if row.asked:  # a model's name does not say that two logs are of the same experiment
            identity += [row.version, row.asked, *self.files]
        depth = row.depth_percent / 100
        realised = None if row.realised is None else row.realised / 100
        prompt = PromptRecord(sha256=row.asked, tokens=row.prompt_tokens or 0, haystack_tokens=0)
        needles = (
            ()
            if realised is None
            else (NeedleRecord(meant=depth, realised=realised, byte=NO_BYTE),)
        )
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
            prompt=prompt if row.asked else None,
            answer=row.answer,
            finish=row.finish,
            score=None if row.native is None else share_of(row.native, self.scale),
            scorer=ScorerRecord(
                name=self.scorer, scale=self.scale, native=row.native, mean=row.mean
            ),
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
    rows: Sequence[ResultRow],
    records: Sequence[Record],
    sources: Sequence[tuple[str, str, str]],
    said: ImportOptions,
) -> RunFile:
    """run.json. settings: only what is known; everything else was not written down by the
    other tool."""
    cells: dict[tuple[int, float], set[int]] = defaultdict(set)
    for record in records:
        cells[record.length_tokens, record.depth].add(record.repeat)
    settings = {
        "model": shared.model,
        "task": rows[0].task,
        "mode": MODE,
        "scorer": shared.scorer,
        "needle": _one((row.needle for row in rows), ""),
        "question": _one((row.question for row in rows), ""),
    }
    files = [ImportedFile(tool=tool, name=name, sha256=sha256) for tool, name, sha256 in sources]
    made = RunFile(
        schema=SCHEMA,
        kind="suite" if rows[0].suite else "run",
        depthless=bool(rows[0].suite),
        needlemap=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        imported=ImportedFrom(files=files, scale=list(shared.scale), series=rows[0].series),
        settings={name: value for name, value in settings.items() if value},
        tokenizer=RunTokenizer(
            name=said.tokenizer or _one((row.tokenizer for row in rows), UNKNOWN), fingerprint=""
        ),
        scorer=RuledScorer(name=shared.scorer, options={}),
        haystacks=[],
        cells=[
            (length, depth, sorted(repeats)) for (length, depth), repeats in sorted(cells.items())
        ],
    )
    if not said.dataset_length:
        return made
    title = context_title(shared.model, said.dataset_length)
    return made.model_copy(update={"title": title})


def _one(values: Iterable[str], otherwise: str) -> str:
    """The one value that all rows have; `otherwise` where there is none, or several."""
    found = set(values)
    return (found.pop() or otherwise) if len(found) == 1 else otherwise


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=True).encode()).hexdigest()[:32]


class OtherTools(ResultsReader):
    """Results of needlehaystack, OpenCompass, Inspect and lm-evaluation-harness."""

    def reads(self, path: Path) -> bool:
        """Return whether a path is a file, or a folder that holds results and no run of ours."""
        return is_other_tools(path)

    def load(self, path: Path, metric: str = "") -> list[Loaded]:
        """Return the runs there. Notes on the files are with the first run."""
        found = read([path], metric)
        runs = imported(found.sources, ImportOptions(metric=metric))
        places = [str(path) if len(runs) == 1 else str(path / run.name) for run in runs]
        return [
            Loaded(
                place,
                run.about,
                run.records,
                tuple(found.notes) if run is runs[0] else (),
                suite=run.suite,
            )
            for place, run in zip(places, runs, strict=True)
        ]


def refuse_taken(path: Path) -> None:
    """Raises NeedlemapError when a run is there: an import never adds to one."""
    if RunFolder(path).exists or any(path.glob("records-*.jsonl")):
        raise NeedlemapError(f"'{path}' holds a run already. Give another folder with -o.")


def places_of(runs: Sequence[Imported], out: Path) -> dict[str, Path]:
    """Where each run goes, by its name: into the folder, or where there are several into
    folders of their own; families of a suite into their model's, or where there is one model
    into the folder."""
    models = list(dict.fromkeys(str(run.about.named.model) for run in runs))
    folders = dict(zip(models, folder_names(models), strict=True))
    found = {}
    for run in runs:
        if run.suite:
            model = folders[str(run.about.named.model)] if len(models) > 1 else ""
            found[run.name] = out / model / run.family
        else:
            found[run.name] = out if len(runs) == 1 else out / run.name
    return found


def begin_suites(runs: Sequence[Imported], places: Mapping[str, Path]) -> None:
    """Write suite.json for the families that were imported, with those of the suite's scores
    whose families are all there. Raises NeedlemapError for a folder that holds others."""
    families: dict[tuple[Path, str], list[str]] = defaultdict(list)
    for run in runs:
        if run.suite:
            families[places[run.name].parent, run.suite].append(run.family)
    for (path, suite), found in families.items():
        begin_families(path, suite, tuple(found), scores_among(suite, found))


def write(run: Imported, path: Path) -> None:
    """The run's folder. Raises NeedlemapError when it is taken, OSError when it cannot be
    written."""
    refuse_taken(path)
    with closing(Writer(RunFolder(path))) as writer:
        with open_inside(path / RECORDS, "xb") as file:
            file.writelines(record.line() for record in run.records)
            file.flush()
            os.fsync(file.fileno())
        writer.describe(signed(run.about))
