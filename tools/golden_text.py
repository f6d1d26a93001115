"""What tools/golden.py hashes, as text: without what only a time or a machine decides."""

import csv
import gzip
import io
import json
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PASSING = (  # names in JSON whose values time or machine decide
    *("needlemap", "created", "python", "packages", "signed", "made", "version"),
    *("finished_at", "latency_s", "test_duration_seconds", "test_timestamp_utc"),
)
AT = "2026-01-01T00:00:00+00:00"
MOMENT = {"created": AT, "needlemap": "", "python": "", "packages": {}}
NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")
BLOB = re.compile(r'<script type="application/octet-stream" id="([\w-]+)">([^<]*)</script>')


def folders(path: str) -> list[Path]:
    """A run's folders: one a family."""
    return sorted(file.parent for file in Path(path).rglob("run.json"))


def freeze(path: str) -> None:
    """Rewrite a run's files as if all had been asked at once: by cell and repeat, whatever ended
    first."""
    for folder in folders(path):
        about = json.loads((folder / "run.json").read_text("utf-8"))
        (folder / "run.json").write_text(json.dumps(about | MOMENT), encoding="utf-8")
        files = sorted(folder.glob("records-*.jsonl"))
        lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
        found = [{**json.loads(line), "finished_at": AT, "latency_s": 0.5} for line in lines]
        found.sort(key=lambda row: (row["length_tokens"], row["depth"], row["repeat"]))
        for file in files[1:]:
            file.unlink()
        lines_to(files[0], found)


def records_of(folder: Path) -> str:
    (file,) = folder.glob("records-*.jsonl")
    return as_lines(map(json.loads, file.read_text("utf-8").splitlines()))


def files_below(folder: Path) -> str:
    """All files below a folder, each behind its name."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return "".join(f"{file.as_posix()}\n{plain_text(file.read_text('utf-8'))}\n" for file in files)


def as_lines(values: Any) -> str:
    return "".join(f"{json.dumps(plain(value), ensure_ascii=False)}\n" for value in values)


def plain_json(text: str) -> str:
    return json.dumps(plain(json.loads(text)), ensure_ascii=False, indent=1) + "\n"


def plain(value: Any) -> Any:
    """JSON's values without what passes, floats cut to nine digits."""
    if isinstance(value, dict):
        return {name: None if name in PASSING else plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def plain_csv(text: str) -> str:
    """A table without the columns of time, numbers cut."""
    head, *rest = csv.reader(io.StringIO(text))
    kept = [at for at, name in enumerate(head) if name not in PASSING]
    return as_lines([[cut(row[at]) for at in kept] for row in [head, *rest]])


def plain_text(text: str) -> str:
    """A text without times, its long numbers cut."""
    return re.sub(r'("test_(?:duration_seconds|timestamp_utc)": )[^,}]+', r"\1null", cut(text))


def cut(text: str) -> str:
    return NUMBER.sub(
        lambda number: f"{float(number[0]):.9g}" if len(number[0]) > 10 else number[0], text
    )


def lines_to(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    file.write_text(
        "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8"
    )


def page_blobs(page: str) -> dict[str, str]:
    """The JSON documents that a page holds, by name."""
    return {
        name: plain_json(gzip.decompress(b64decode(data)).decode())
        for name, data in BLOB.findall(page)
    }
