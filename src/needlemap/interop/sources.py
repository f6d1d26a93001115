"""Find the files that hold results of other tools, recognise each one's tool, and read its rows.

The ending and the first bytes of a file show its kind. A file that was named must hold results. A
file that merely lies in a folder with others is left out with a reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
    sha256_of,
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
# Other tools than NeMo Skills use this name too.
_OUTPUT = r"(.*/)?output(-rs\d+)?\.jsonl"
# Where tools write results, below the folder that people name: lm-evaluation-harness a folder a
# model, EvalScope reviews of each sample and reports of their means, RULER
# MODEL/synthetic/LENGTH/pred, NeMo Skills eval-results/BENCHMARK. The first one with files is read.
_PLACES = (
    r"samples_[^/]*\.jsonl",
    r"[^/]+/samples_[^/]*\.jsonl",
    r"((.*/)?reviews/)?([^/]+/)?needle_haystack_[^/]*\.jsonl",
    r"((.*/)?reports/)?([^/]+/)?needle_haystack\.json",
    r"(.*/)?pred/[^/]+\.jsonl",
    r"(.*/)?pred/summary(-[^/]+)?\.csv",
    _OUTPUT,
)
# Folders below the one that was named.
_DEEPEST = 5
# Files and folders below the one that was named.
_MOST_ENTRIES = 50_000
# How to recognise a file of JSON lines by its first one, and how to read it.
_LINES: tuple[tuple[Callable[[Mapping[str, Any]], bool], Callable[[Path], Log]], ...] = (
    (is_harness, read_harness),
    (is_predictions, read_predictions),
    (is_nemo, read_nemo),
    (is_review, read_reviews),
)
_LOGS = (INSPECT, HARNESS)
# Bytes of a file that is read whole.
_MOST = MOST_BYTES * 4
# Bytes by which a file is recognised.
_START = 1 << 16
_ZIP = b"PK\x03\x04"
_EXPECTED = (
    "Import reads needlehaystack results (.json, .jsonl), tables of these (.csv), OpenCompass's "
    "summary (.csv, .txt), logs of Inspect (.eval, .json), samples of lm-evaluation-harness "
    "(.jsonl), RULER's predictions (.jsonl) and summary (.csv), output.jsonl of NeMo Skills, and "
    "reviews (.jsonl) and reports (.json) of EvalScope"
)


@dataclass(frozen=True, slots=True)
class ResultsFile:
    """One file of another tool.

    Attributes:
        name: Its name, without its folder.
        sha256: Hash of its bytes.
        tool: The tool that wrote it.
        rows: Its results.
        notes: What a reader should know about it.
    """

    name: str
    sha256: str
    tool: str
    rows: tuple[ResultRow, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundResults:
    """The files that were read.

    Attributes:
        sources: One for each file, in the order of reading.
        left_out: Files of a folder that are not read, each with the reason.
    """

    sources: tuple[ResultsFile, ...]
    left_out: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        """Return the notes on all files, those that were left out first."""
        left_out = [f"left out: {reason}" for reason in self.left_out]
        return [*left_out, *(note for source in self.sources for note in source.notes)]


def read(paths: Sequence[Path], metric: str = "") -> FoundResults:
    """Read all results in files and folders.

    A file of a folder that cannot be read is left out with the reason. metric: which score of a
    log to read; the first if not given. Raises NeedlemapError if a file of `paths` holds no
    results, or a folder none at all.
    """
    sources: list[ResultsFile] = []
    left_out: list[str] = []
    for path in paths:
        if not path.is_dir():
            sources.append(_source(path, metric))
            continue
        results = _folder(path, metric)
        sources += results.sources
        left_out += results.left_out
    return FoundResults(tuple(sources), tuple(left_out))


def is_other_tools(path: Path) -> bool:
    """Return True if a path is a file, or a folder with results of another tool and no run."""
    if not path.is_dir():
        return path.is_file()
    if is_run_folder(path) or any(path.glob("records-*.jsonl")):
        return False
    return bool(_result_files(path))


def _folder(path: Path, metric: str) -> FoundResults:
    """Read the results in a folder, or in its folder `results`, in the order of names.

    If several logs are of one task, only the latest is read. Raises NeedlemapError if there are no
    results.
    """
    sources: list[ResultsFile] = []
    left_out: list[str] = []
    for file in _result_files(path):
        try:
            sources.append(_source(file, metric))
        except NeedlemapError as error:
            left_out.append(str(error))
    if not sources:
        reason = f" ({left_out[0]})" if left_out else ""
        raise NeedlemapError(
            f"No results in folder '{path}'{reason}. {_EXPECTED}; name a .csv or .txt itself."
        )

    latest_names = {
        (source.tool, source.rows[0].model, source.rows[0].task): source.name for source in sources
    }
    older_names = [
        source.name
        for source in sources
        if source.tool in _LOGS and source.name not in latest_names.values()
    ]
    left_out += [
        f"{name}: a later log is of the same task; name this file to read it"
        for name in older_names
    ]
    return FoundResults(
        sources=tuple(source for source in sources if source.name not in older_names),
        left_out=tuple(left_out),
    )


def _result_files(path: Path) -> list[Path]:
    """Return the files of a folder that may be results of one tool, in the order of names."""
    files_by_name = {file.relative_to(path).as_posix(): file for file in _files_below(path)}
    for place in _PLACES:
        names = sorted(name for name in files_by_name if re.fullmatch(place, name, re.DOTALL))
        if not names:
            continue
        if place == _OUTPUT and not is_nemo(_first_line(files_by_name[names[0]])):
            continue
        return [files_by_name[name] for name in names]
    return _files_in(path) or _files_in(path / "results")


def _files_below(path: Path) -> Iterator[Path]:
    """Yield the regular files of a folder and of those below it, up to fixed limits.

    Links to folders are not followed.
    """
    entry_count = 0
    folders = [(path, 0)]
    while folders:
        folder, depth = folders.pop()
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                entry_count += 1
                if entry_count > _MOST_ENTRIES:
                    return
                if entry.is_file():
                    yield Path(entry.path)
                elif depth < _DEEPEST and entry.is_dir(follow_symlinks=False):
                    folders.append((Path(entry.path), depth + 1))


def _files_in(path: Path) -> list[Path]:
    """Return the files right in a folder whose endings are those of results."""
    if not path.is_dir():
        return []
    return sorted(
        file for file in path.iterdir() if file.suffix.lower() in _IN_FOLDERS and file.is_file()
    )


def _source(file: Path, metric: str) -> ResultsFile:
    """Read a file. Raises NeedlemapError if it holds no results."""
    if not file.is_file():
        raise NeedlemapError(f"No file or folder at '{file}'.")
    name = clean_text(file.name)
    sha256 = sha256_of(file)
    log = _log(file)
    if log is not None:
        tool = log.tool
        rows, notes = log.rows(metric)
    else:
        data = read_regular(file, _MOST)
        tool, rows = _rows(data, file, name=name)
        notes = []
        if file.suffix.lower() == ".csv" and any(row.suite for row in rows):
            notes = summary.summary_notes(_text(data, name), name)
    if not rows:
        raise NeedlemapError(f"{name}: no results in it.")
    return ResultsFile(
        name=name,
        sha256=sha256,
        tool=tool,
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _log(file: Path) -> Log | None:
    """Read a file with one sample for each prompt, or return None if it is another file.

    Raise NeedlemapError if it is such a file and cannot be read.
    """
    first_sample: Mapping[str, Any] = {}
    with open_regular(file) as opened:
        start = opened.read(len(_ZIP))
        opened.seek(0)
        if start == _ZIP:
            return read_inspect(opened, file)
        if file.suffix.lower() == ".jsonl":
            first_sample = _first_object(opened, file.name)
        opened.seek(0)
        start = opened.read(_START)
    for is_of_tool, read_log in _LINES:
        if is_of_tool(first_sample):
            return read_log(file)
    if is_inspect(start):
        return read_inspect_json(read_regular(file, _MOST), file)
    return None


def _first_line(file: Path) -> Mapping[str, Any]:
    """Return the first object of a file, or {} if the file cannot be read or holds no JSON."""
    with suppress(NeedlemapError, OSError), open_regular(file) as opened:
        return _first_object(opened, file.name)
    return {}


def _first_object(opened: BufferedReader, name: str) -> Mapping[str, Any]:
    """Return the first line of JSON lines that is not blank, or {} if there is no object in it.

    Raise NeedlemapError if the line is not JSON.
    """
    for number, line in enumerate(lines_of(opened), 1):
        if line.strip():
            value = parse_json(line, f"{name}, line {number}")
            return value if isinstance(value, dict) else {}
    return {}


def _rows(data: bytes, file: Path, name: str) -> tuple[str, list[ResultRow]]:
    """Return the tool and the rows of a file that is not a log.

    Raise NeedlemapError if no tool is known that writes such files.
    """
    suffix = file.suffix.lower()
    # needlehaystack's .json and .jsonl have no mark of their own: they are taken for it if `_log`
    # and `is_report` recognised no other tool.
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
    # Only .csv is left. RULER's summary is known by one of its first lines, which are not a header.
    # So it comes before the tables that are known by the columns of their header.
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
