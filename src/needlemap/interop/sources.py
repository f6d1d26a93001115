"""The files that hold results of other tools: which of a folder's, of which tool each is, and
their rows.

The ending and the first bytes of a file show its kind. A file that was named must hold
results; what merely lies in a folder beside them is left out with a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path

from needlemap.errors import NeedlemapError
from needlemap.files import MOST_BYTES, is_run_folder, open_regular, read_regular
from needlemap.interop import ResultRow, needlehaystack_results
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

SUFFIXES = (".json", ".jsonl", ".eval", ".csv", ".txt")
_IN_FOLDERS = SUFFIXES[:3]
_SAMPLES = "samples_*.jsonl"  # of lm-evaluation-harness, in a folder a model
_LOGS = (INSPECT, HARNESS)
_MOST = MOST_BYTES * 4  # of a file that is read whole
_START = 1 << 16  # bytes that tell what a file is
_ZIP = b"PK\x03\x04"
_EXPECTED = (
    "Import reads needlehaystack results (.json, .jsonl), tables of these (.csv), OpenCompass's "
    "summary "
    "(.csv, .txt), logs of Inspect (.eval, .json) and samples of lm-evaluation-harness (.jsonl)"
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
    """The files of a folder that may be results, by name: lm-evaluation-harness keeps some
    beside these."""
    samples = sorted(path.glob(_SAMPLES)) or sorted(path.glob(f"*/{_SAMPLES}"))
    return samples or _listed(path) or _listed(path / "results")


def _listed(path: Path) -> list[Path]:
    files: Iterable[Path] = path.iterdir() if path.is_dir() else ()
    return sorted(file for file in files if file.suffix.lower() in _IN_FOLDERS and file.is_file())


def _source(file: Path, metric: str) -> ResultsFile:
    if not file.is_file():
        raise NeedlemapError(f"No file or folder at '{file}'.")
    name = file.name.encode("utf-8", "replace").decode("utf-8")
    with open_regular(file) as opened:
        sha256 = file_digest(opened, "sha256").hexdigest()
    if log := _log(file):
        tool, (rows, notes) = log.tool, log.rows(metric)
    else:
        data = read_regular(file, _MOST)
        tool, rows = _rows(data, name, file.suffix.lower())
        total = file.suffix.lower() == ".csv" and any(row.suite for row in rows)
        notes = summary.summary_notes(_text(data, name), name) if total else []
    if not rows:
        raise NeedlemapError(f"{name}: no results in it.")
    return ResultsFile(name, sha256, tool, tuple(rows), tuple(notes))


def _log(file: Path) -> Log | None:
    """A log of Inspect or of lm-evaluation-harness; None for any other file. Raises
    NeedlemapError."""
    with open_regular(file) as opened:
        start = opened.read(_START)
        if start.startswith(_ZIP):
            return read_inspect(opened, file)
    if is_harness(start):
        return read_harness(read_regular(file, _MOST), file)
    return read_inspect_json(read_regular(file, _MOST), file) if is_inspect(start) else None


def _rows(data: bytes, name: str, suffix: str) -> tuple[str, list[ResultRow]]:
    if suffix == ".jsonl":
        return needlehaystack_results.TOOL_2, needlehaystack_results.from_jsonl(data, name)
    if suffix == ".json":
        return needlehaystack_results.TOOL_1, needlehaystack_results.from_json(data, name)
    if suffix not in SUFFIXES or suffix == ".eval":
        raise NeedlemapError(f"{name}: unknown kind of file. {_EXPECTED}.")
    text = _text(data, name)
    if suffix == ".txt":
        return summary.OPENCOMPASS, summary.from_txt(text, name)
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
