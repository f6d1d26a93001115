"""The files that hold results of other tools: which of a folder's, of which tool each is, and
their rows.

The ending and the first bytes of a file show its kind. A file that was named must hold
results; what merely lies in a folder beside them is left out with a reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import file_digest
from io import BufferedReader
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.files import (
    MOST_BYTES,
    is_run_folder,
    lines_of,
    open_regular,
    read_regular,
)
from needlemap.interop import needlehaystack_results
from needlemap.interop.evalscope_results import (
    EVALSCOPE,
    is_report,
    is_review,
    read_reviews,
    report_rows,
)
from needlemap.interop.logs import (
    HARNESS,
    INSPECT,
    Log,
    is_harness,
    is_inspect,
    read_harness,
    read_inspect,
    read_inspect_json,
)
from needlemap.interop.opencompass import summary
from needlemap.interop.result_row import ResultRow, parse_json
from needlemap.interop.ruler_results import (
    RULER,
    is_nemo,
    is_predictions,
    is_summary,
    read_nemo,
    read_predictions,
    summary_rows,
)
from needlemap.untrusted import clean_text

SUFFIXES = (".json", ".jsonl", ".eval", ".csv", ".txt")
_IN_FOLDERS = SUFFIXES[:3]
_OUTPUT = r"(.*/)?output(-rs\d+)?\.jsonl"  # a name that other tools give their files too
# Where tools keep what they found, below the folder that people name: lm-evaluation-harness a
# folder a model, EvalScope reviews of each sample and reports of their means, RULER
# MODEL/synthetic/LENGTH/pred, NeMo Skills eval-results/BENCHMARK. The first that is there is read.
_PLACES = (
    r"samples_[^/]*\.jsonl",
    r"[^/]+/samples_[^/]*\.jsonl",
    r"((.*/)?reviews/)?([^/]+/)?needle_haystack_[^/]*\.jsonl",
    r"((.*/)?reports/)?([^/]+/)?needle_haystack\.json",
    r"(.*/)?pred/[^/]+\.jsonl",
    r"(.*/)?pred/summary(-[^/]+)?\.csv",
    _OUTPUT,
)
_DEEPEST = 5  # folders below the one that was named
_MOST_ENTRIES = 50_000  # that are looked at
# Lines of JSON by what their first one holds.
_LINES: tuple[tuple[Callable[[Mapping[str, Any]], bool], Callable[[Path], Log]], ...] = (
    (is_harness, read_harness),
    (is_predictions, read_predictions),
    (is_nemo, read_nemo),
    (is_review, read_reviews),
)
_LOGS = (INSPECT, HARNESS)
_MOST = MOST_BYTES * 4  # of a file that is read whole
_START = 1 << 16  # bytes that tell what a file is
_ZIP = b"PK\x03\x04"
_EXPECTED = (
    "Import reads needlehaystack results (.json, .jsonl), tables of these (.csv), OpenCompass's "
    "summary (.csv, .txt), logs of Inspect (.eval, .json), samples of lm-evaluation-harness "
    "(.jsonl), RULER's predictions (.jsonl) and summary (.csv), output.jsonl of NeMo Skills, and "
    "reviews (.jsonl) and reports (.json) of EvalScope"
)


@dataclass(frozen=True, slots=True)
class ResultsFile:
    """One file: its name, hash, tool and rows. notes: what a reader should know of it."""

    name: str
    sha256: str
    tool: str
    rows: tuple[ResultRow, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundResults:
    """All that was read. left_out: files of a folder that hold no result, each with a
    reason."""

    sources: tuple[ResultsFile, ...]
    left_out: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        """What a reader should know of them, files that were left out first."""
        told = [note for source in self.sources for note in source.notes]
        return [*(f"left out: {each}" for each in self.left_out), *told]


def read(paths: Sequence[Path], metric: str = "") -> FoundResults:
    """Everything in these files and folders. metric: of logs with several; their first if not
    given. Raises NeedlemapError: a file that was named must hold results; one that merely lies
    in a folder is left out with a reason.
    """
    sources: list[ResultsFile] = []
    left_out: list[str] = []
    for path in paths:
        if not path.is_dir():
            sources.append(_source(path, metric))
            continue
        found = _folder(path, metric)
        sources += found.sources
        left_out += found.left_out
    return FoundResults(tuple(sources), tuple(left_out))


def is_other_tools(path: Path) -> bool:
    """Whether a path is a file, or a folder that holds results of another tool and no run of
    ours."""
    if path.is_dir():
        return (
            not is_run_folder(path)
            and not any(path.glob("records-*.jsonl"))
            and bool(_within(path))
        )
    return path.is_file()


def _folder(path: Path, metric: str) -> FoundResults:
    """Results in a folder, or in its folder `results`, by name; of several logs of one task
    the latest."""
    sources, left_out = list[ResultsFile](), list[str]()
    for file in _within(path):
        try:
            sources.append(_source(file, metric))
        except NeedlemapError as error:
            left_out.append(str(error))
    if not sources:
        why = f" ({left_out[0]})" if left_out else ""
        raise NeedlemapError(
            f"No results in folder '{path}'{why}. {_EXPECTED}; name a .csv or .txt itself."
        )
    latest = {(each.tool, each.rows[0].model, each.rows[0].task): each.name for each in sources}
    older = [
        each.name for each in sources if each.tool in _LOGS and each.name not in latest.values()
    ]
    left_out += [
        f"{name}: a later log is of the same task; name this file to read it" for name in older
    ]
    return FoundResults(tuple(each for each in sources if each.name not in older), tuple(left_out))


def _within(path: Path) -> list[Path]:
    """The files of a folder that may be results, by name, of one tool."""
    below = {file.relative_to(path).as_posix(): file for file in _files_below(path)}
    for place in _PLACES:
        found = sorted(name for name in below if re.fullmatch(place, name, re.DOTALL))
        if found and (place != _OUTPUT or is_nemo(_first_line(below[found[0]]))):
            return [below[name] for name in found]
    return _listed(path) or _listed(path / "results")


def _files_below(path: Path) -> Iterator[Path]:
    """The regular files of a folder and of those below it, links not followed: no more than so
    many."""
    entries, folders = 0, [(path, 0)]
    while folders:
        folder, depth = folders.pop()
        with suppress(OSError), os.scandir(folder) as found:
            for entry in found:
                entries += 1
                if entries > _MOST_ENTRIES:
                    return
                if entry.is_file():
                    yield Path(entry.path)
                elif depth < _DEEPEST and entry.is_dir(follow_symlinks=False):
                    folders.append((Path(entry.path), depth + 1))


def _listed(path: Path) -> list[Path]:
    files: Iterable[Path] = path.iterdir() if path.is_dir() else ()
    return sorted(file for file in files if file.suffix.lower() in _IN_FOLDERS and file.is_file())


def _source(file: Path, metric: str) -> ResultsFile:
    if not file.is_file():
        raise NeedlemapError(f"No file or folder at '{file}'.")
    name = clean_text(file.name)
    with open_regular(file) as opened:
        sha256 = file_digest(opened, "sha256").hexdigest()
    if log := _log(file):
        tool, (rows, notes) = log.tool, log.rows(metric)
    else:
        data = read_regular(file, _MOST)
        tool, rows = _rows(data, file, name)
        total = file.suffix.lower() == ".csv" and any(row.suite for row in rows)
        notes = summary.summary_notes(_text(data, name), name) if total else []
    if not rows:
        raise NeedlemapError(f"{name}: no results in it.")
    return ResultsFile(name, sha256, tool, tuple(rows), tuple(notes))


def _log(file: Path) -> Log | None:
    """A file with a sample for each thing that was asked; None for any other. Raises
    NeedlemapError."""
    with open_regular(file) as opened:
        start = opened.read(len(_ZIP))
        opened.seek(0)
        if start == _ZIP:
            return read_inspect(opened, file)
        first = _first(opened, file.name) if file.suffix.lower() == ".jsonl" else {}
        opened.seek(0)
        start = opened.read(_START)
    read = next((read for holds, read in _LINES if holds(first)), None)
    if read is not None:
        return read(file)
    return read_inspect_json(read_regular(file, _MOST), file) if is_inspect(start) else None


def _first_line(file: Path) -> Mapping[str, Any]:
    """The same of a file that may hold anything; nothing where it cannot be read."""
    with suppress(NeedlemapError, OSError), open_regular(file) as opened:
        return _first(opened, file.name)
    return {}


def _first(opened: BufferedReader, name: str) -> Mapping[str, Any]:
    """The first line of a file of JSON lines that is not blank; nothing where it is no object.
    Raises NeedlemapError."""
    for number, line in enumerate(lines_of(opened), 1):
        if line.strip():
            value = parse_json(line, f"{name}, line {number}")
            return value if isinstance(value, dict) else {}
    return {}


def _rows(data: bytes, file: Path, name: str) -> tuple[str, list[ResultRow]]:
    suffix = file.suffix.lower()
    if suffix == ".jsonl":
        return needlehaystack_results.TOOL_2, needlehaystack_results.from_jsonl(data, name)
    if suffix == ".json" and is_report(data):
        return EVALSCOPE, report_rows(data, name)
    if suffix == ".json":
        return needlehaystack_results.TOOL_1, needlehaystack_results.from_json(data, name)
    if suffix not in SUFFIXES or suffix == ".eval":
        raise NeedlemapError(f"{name}: unknown kind of file. {_EXPECTED}.")
    text = _text(data, name)
    if suffix == ".txt":
        return summary.OPENCOMPASS, summary.from_txt(text, name)
    if is_summary(text):
        return RULER, summary_rows(text, file)
    columns = [column.strip('" ') for column in text.partition("\n")[0].strip().split(",")]
    if "depth_percent" in columns:
        return needlehaystack_results.TOOL_1, needlehaystack_results.from_csv(text, name)
    if columns[0] == "dataset":
        return summary.OPENCOMPASS, summary.from_csv(text, name)
    raise NeedlemapError(
        f"{name}: unknown columns {','.join(columns):.80}. Expected: "
        f"context_length,depth_percent,score or "
        f"OpenCompass's {','.join(summary.HEADER)},MODEL..."
    )


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NeedlemapError(
            f"{name}: not readable as UTF-8 ({error.reason} at byte {error.start})."
        ) from None
