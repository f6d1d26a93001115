"""Import runs: turn rows of other tools' results into records like our own.

Prompts, settings and hashes that the other tool did not write stay unknown. Such a run can be
reported and compared, but not resumed or replayed. No request is sent and nothing is scored again:
a row keeps the score that was published, on its own scale. Of a run first the records are written
and then run.json, so a run is whole or does not exist.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.files import folder_names, open_inside
from needlemap.interop.logs import number_of
from needlemap.interop.result_row import SCORERS, ResultRow, context_title, native_mean, scale_of
from needlemap.interop.sources import ResultsFile, is_other_tools, read
from needlemap.records.families import begin_families
from needlemap.records.folder import RunFolder, Writer
from needlemap.records.loaded import Loaded
from needlemap.records.origin import sign
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
# A record's `failure` if a row has no score.
NO_RESULT = "no result"
# A needle's offset if only its depth is known.
NO_BYTE = -1
RECORDS = "records-imported.jsonl"
# The model, task and series that all rows of a run share.
RunKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What the user typed because files may not hold it.

    Attributes:
        model: The name of the model.
        scale: Lowest and highest score.
        tokenizer: The tokenizer that lengths were counted with.
        dataset_length: The length in a figure's title.
        metric: Which score of a log to read.
    """

    model: str = ""
    scale: Scale | None = None
    tokenizer: str = ""
    dataset_length: str = ""
    metric: str = ""


@dataclass(frozen=True, slots=True)
class Imported:
    """One run.

    Attributes:
        name: Its folder's name.
        about: Its run.json.
        records: A record for each row.
        scale: Lowest and highest score that was published.
        moved: Rows whose repeat was changed, because an earlier row has the same cell and version.
        suite: The suite of which it is a family, or ''.
        family: Its name in that suite, or ''.
    """

    name: str
    about: RunFile
    records: tuple[Record, ...]
    scale: Scale
    moved: int
    suite: str = ""
    family: str = ""

    def native(self, mean_share: float) -> float:
        """Return a mean on the scale that was published."""
        return native_mean(mean_share, self.scale)


def imported(sources: Sequence[ResultsFile], options: ImportOptions) -> list[Imported]:
    """Return a run for each model, or for each test of a model.

    Raises NeedlemapError if `--model` names one model and the files hold several.
    """
    rows = [(source, row) for source in sources for row in source.rows]
    models = {row.model for _, row in rows if row.model}
    if options.model and len(models) > 1:
        raise NeedlemapError(
            f"--model names one model, and the files hold {', '.join(sorted(models))}."
        )

    rows_by_key: dict[RunKey, list[tuple[ResultsFile, ResultRow]]] = defaultdict(list)
    for source, row in rows:
        key = (options.model or row.model or UNKNOWN, row.task, row.series)
        rows_by_key[key].append((source, row))
    names = _names(list(rows_by_key))
    runs = [
        _run(names[key], model=key[0], part=part, options=options)
        for key, part in rows_by_key.items()
    ]
    return _in_order(runs)


def _in_order(runs: Sequence[Imported]) -> list[Imported]:
    """Return the runs with each model's families of a suite in the order of the suite.

    They are where the first of them was. Families that the suite does not have come last.
    """
    suites = {run.suite for run in runs} - {""}
    suite_families = {suite: list(load_suite(suite).families) for suite in suites}
    first_indexes: dict[tuple[object, str], int] = {}

    def rank_of(indexed_run: tuple[int, Imported]) -> tuple[int, int]:
        index, run = indexed_run
        if not run.suite:
            return index, 0
        first_index = first_indexes.setdefault((run.about.named.model, run.suite), index)
        families = suite_families[run.suite]
        if run.family not in families:
            return first_index, len(families)
        return first_index, families.index(run.family)

    return [run for _, run in sorted(enumerate(runs), key=rank_of)]


def _names(keys: Sequence[RunKey]) -> dict[RunKey, str]:
    """Return folder names, no two the same: the model, and the test if a model has several."""
    runs_by_model = Counter(model for model, _, _ in keys)
    texts = []
    for key in keys:
        text = key[0]
        if runs_by_model[text] > 1:
            # Each word once, for example of a task that is also in the series.
            words = dict.fromkeys(word for part in key for word in part.split())
            text = " ".join(words)
        texts.append(text.strip(" .-") or UNKNOWN)
    return dict(zip(keys, folder_names(texts), strict=True))


def _run(
    name: str,
    *,
    model: str,
    part: list[tuple[ResultsFile, ResultRow]],
    options: ImportOptions,
) -> Imported:
    """Return the run of some rows. part: each row with its file."""
    rows = [row for _, row in part]
    scale = scale_of(rows, options.scale)
    numbered_rows, moved = _numbered(rows)
    sources = dict.fromkeys((source.tool, source.name, source.sha256) for source, _ in part)
    shared = _Shared(
        model=model,
        scale=scale,
        scorer=_single((row.scorer for row in rows), SCORERS.get(scale, MODE)),
        files=tuple(sha256 for _, _, sha256 in sources),
    )
    records = tuple(shared.record(row, repeat) for row, repeat in numbered_rows)
    suite = rows[0].suite
    return Imported(
        name=name,
        about=_about(shared, rows, records=records, sources=list(sources), options=options),
        records=records,
        scale=scale,
        moved=moved,
        suite=suite,
        family=rows[0].task if suite else "",
    )


def _numbered(rows: Iterable[ResultRow]) -> tuple[list[tuple[ResultRow, int]], int]:
    """Return each row with its repeat from 0, and how many rows were moved to another repeat.

    The repeat of a log's sample is the sample's, or a number from the prompt's hash if several
    prompts of a cell have that repeat. The repeat of any other row is its version, or the next one
    that is free in its cell.
    """
    rows = list(rows)
    prompts_by_place: dict[tuple[int, float, int | None], set[str]] = defaultdict(set)
    for row in rows:
        prompts_by_place[row.length, row.depth_percent, row.repeat].add(row.asked)
    repeats_by_cell: dict[tuple[int, float], set[int]] = defaultdict(set)
    numbered_rows: list[tuple[ResultRow, int]] = []
    moved = 0
    for row in rows:
        # Versions of a log's sample are the same prompt sent again, so they share a repeat.
        if row.repeat is not None:
            repeat = row.repeat
            # A place holds the score of one prompt. The hash does not depend on the order of the
            # rows, so two runs of the same prompts still meet.
            if len(prompts_by_place[row.length, row.depth_percent, repeat]) > 1:
                repeat = number_of(row.asked, row.place)
            numbered_rows.append((row, repeat))
            continue
        cell_repeats = repeats_by_cell[row.length, row.depth_percent]
        repeat = row.version - 1
        if repeat in cell_repeats:
            moved += 1
        while repeat in cell_repeats:
            repeat += 1
        cell_repeats.add(repeat)
        numbered_rows.append((row, repeat))
    return numbered_rows, moved


@dataclass(frozen=True, slots=True)
class _Shared:
    """What all records of a run share.

    Attributes:
        model: The model's name.
        scale: Lowest and highest score.
        scorer: The scorer's name.
        files: Hashes of the files that the run was read from.
    """

    model: str
    scale: Scale
    scorer: str
    files: tuple[str, ...]

    def record(self, row: ResultRow, repeat: int) -> Record:
        """Return the record of a row."""
        identity = [MODE, self.model, row.task, row.series, row.length, row.depth_percent, repeat]
        # Two logs of one model can be of different experiments.
        if row.asked:
            identity += [row.version, row.asked, *self.files]

        depth = row.depth_percent / 100
        needles: tuple[NeedleRecord, ...] = ()
        if row.realised is not None:
            needle = NeedleRecord(meant=depth, realised=row.realised / 100, byte=NO_BYTE)
            needles = (needle,)
        prompt = PromptRecord(sha256=row.asked, tokens=row.prompt_tokens or 0, haystack_tokens=0)

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
    *,
    records: Sequence[Record],
    sources: Sequence[tuple[str, str, str]],
    options: ImportOptions,
) -> RunFile:
    """Return run.json. Its settings are only those that the other tool wrote.

    sources: tool, name and hash of each file.
    """
    cells: dict[tuple[int, float], set[int]] = defaultdict(set)
    for record in records:
        cells[record.length_tokens, record.depth].add(record.repeat)
    settings = {
        "model": shared.model,
        "task": rows[0].task,
        "mode": MODE,
        "scorer": shared.scorer,
        "needle": _single((row.needle for row in rows), ""),
        "question": _single((row.question for row in rows), ""),
    }
    files = [ImportedFile(tool=tool, name=name, sha256=sha256) for tool, name, sha256 in sources]
    about = RunFile(
        schema=SCHEMA,
        kind="suite" if rows[0].suite else "run",
        depthless=bool(rows[0].suite),
        needlemap=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        imported=ImportedFrom(files=files, scale=list(shared.scale), series=rows[0].series),
        settings={name: value for name, value in settings.items() if value},
        tokenizer=RunTokenizer(
            name=options.tokenizer or _single((row.tokenizer for row in rows), UNKNOWN),
            fingerprint="",
        ),
        scorer=RuledScorer(name=shared.scorer, options={}),
        haystacks=[],
        cells=[
            (length, depth, sorted(repeats)) for (length, depth), repeats in sorted(cells.items())
        ],
    )
    if not options.dataset_length:
        return about
    title = context_title(shared.model, options.dataset_length)
    return about.model_copy(update={"title": title})


def _single(values: Iterable[str], default: str) -> str:
    """Return the value that all rows have, or `default` if it is empty or they have several."""
    distinct = set(values)
    if len(distinct) != 1:
        return default
    return distinct.pop() or default


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=True).encode()).hexdigest()[:32]


class OtherTools(ResultsReader):
    """Results of needlehaystack, OpenCompass, Inspect and lm-evaluation-harness."""

    def reads(self, path: Path) -> bool:
        """Return whether a path is a file, or a folder that holds results and no run of ours."""
        return is_other_tools(path)

    def load(self, path: Path, metric: str = "") -> list[Loaded]:
        """Return the runs there. Notes on the files are with the first run."""
        results = read([path], metric)
        runs = imported(results.sources, ImportOptions(metric=metric))
        notes = tuple(results.notes)
        return [
            Loaded(
                str(path) if len(runs) == 1 else str(path / run.name),
                run.about,
                records=run.records,
                notes=notes if index == 0 else (),
                suite=run.suite,
            )
            for index, run in enumerate(runs)
        ]


def refuse_taken(path: Path) -> None:
    """Raise NeedlemapError if a folder holds a run, because an import never adds to one."""
    if RunFolder(path).exists or any(path.glob("records-*.jsonl")):
        raise NeedlemapError(f"'{path}' holds a run already. Give another folder with -o.")


def places_of(runs: Sequence[Imported], out: Path) -> dict[str, Path]:
    """Return each run's folder, by the run's name.

    A single run goes into `out`, and each of several runs into a folder of its own in it. A family
    of a suite goes into a folder in that of its model, which is `out` if there is one model.
    """
    models = list(dict.fromkeys(str(run.about.named.model) for run in runs))
    model_folders = dict(zip(models, folder_names(models), strict=True))
    places = {}
    for run in runs:
        if run.suite and len(models) > 1:
            places[run.name] = out / model_folders[str(run.about.named.model)] / run.family
        elif run.suite:
            places[run.name] = out / run.family
        elif len(runs) > 1:
            places[run.name] = out / run.name
        else:
            places[run.name] = out
    return places


def begin_suites(runs: Sequence[Imported], places: Mapping[str, Path]) -> None:
    """Write suite.json for the families that were imported.

    It has those of the suite's scores whose families are all there. Raises NeedlemapError if a
    folder holds other families.
    """
    families_by_suite: dict[tuple[Path, str], list[str]] = defaultdict(list)
    for run in runs:
        if run.suite:
            families_by_suite[places[run.name].parent, run.suite].append(run.family)
    for (path, suite), families in families_by_suite.items():
        begin_families(path, suite, tuple(families), scores_among(suite, families))


def write(run: Imported, path: Path) -> None:
    """Write a run's folder.

    Raises NeedlemapError if it holds a run, and OSError if it cannot be written.
    """
    refuse_taken(path)
    with closing(Writer(RunFolder(path))) as writer:
        with open_inside(path / RECORDS, "xb") as file:
            file.writelines(record.line() for record in run.records)
            file.flush()
            os.fsync(file.fileno())
        writer.describe(sign(run.about))
