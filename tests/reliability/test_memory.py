"""Memory and time of what a stranger's files can make long: a haystack of odd documents, a run of
many records.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from needlemap.records.folder import Kept, RunFolder, records_files
from needlemap.records.loaded import load_run
from needlemap.reports.renderers.json import to_json
from needlemap.reports.run_notes import ended_lines
from needlemap.reports.run_report import run_report

BM25 = ("--model", "baseline/bm25", "--lengths", "600,900", "--depths", "0,50,100", "-o", "r")
PEAK = """
import sys
from pathlib import Path
from needlemap.cli import main
sys.argv = ["needlemap", *sys.argv[1:]]
try:
    main()
finally:
    # Not ru_maxrss, which counts what the parent had when it forked.
    print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""
MB = 1 << 20


def peak_mb(folder: Path, *arguments: str, within_s: float = 60) -> float:
    """What a command takes in a process of its own, imports included."""
    ended = subprocess.run(
        [sys.executable, "-c", PEAK, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=within_s,
    )
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout.splitlines()[-1]) / 1024


KINDS = {
    "letters.txt": b"x" * (40 * MB),
    "digits.txt": b"1" * (40 * MB),
    "mixed.txt": b"The fox runs. " * 1000 + b"\1" * (40 * MB),
    "line.jsonl": json.dumps({"text": "x" * (40 * MB)}).encode(),
    "wide.txt": ("\N{BYTE ORDER MARK}" + "x" * (20 * MB)).encode("utf-16-le"),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_plan_over_an_odd_document_takes_a_small_multiple_of_it(tmp_path, name):
    """12 times as large, they took 3 to 5 GB and did not end."""
    (tmp_path / name).write_bytes(KINDS[name])
    plan = ("plan", "--model", "openai/gpt-4", "--lengths", "1k", "--depths", "50")
    size_mb = len(KINDS[name]) / MB
    assert peak_mb(tmp_path, *plan, "--haystack-path", name) < 150 + 6 * size_mb


# Runs of many records


def grow(folder: Path, count: int) -> RunFolder:
    """A run with so many records, all but its own of other places."""
    (file,) = records_files(folder)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    with file.open("a") as out:
        for number in range(len(rows), count):
            row, digest = rows[number % len(rows)], sha256(str(number).encode()).hexdigest()
            named = {"key": digest[:32], "asked": digest[32:], "repeat": 10 + number // 101}
            depth = number % 101 / 100
            prompt = {**row["prompt"], "sha256": digest}
            out.write(json.dumps({**row, **named, "depth": depth, "prompt": prompt}) + "\n")
    return RunFolder(folder)


def traced(call: Callable[[], object]) -> tuple[int, int]:
    """Bytes that are held after a call while its result is, and at most meanwhile."""
    tracemalloc.start()
    try:
        result = call()
        now, peak = tracemalloc.get_traced_memory()
        del result
        return now, peak
    finally:
        tracemalloc.stop()


def test_records_are_read_one_by_one_and_kept_as_outlines(typed):
    """A run that resumed held 11 kB a record."""
    typed("run", *BM25)
    folder, count = grow(typed.folder / "r", 4_000).path, 4_000
    (file,) = records_files(folder)
    _, peak = traced(lambda: sum(1 for _ in RunFolder(folder).records_in(file, None)))
    assert peak < MB
    held, _ = traced(lambda: [*RunFolder(folder, Kept.OUTLINES).records(texts=False)])
    assert held < 2_000 * count
    held, _ = traced(lambda: [*RunFolder(folder).records()])
    assert held < 5_000 * count


def test_a_run_that_resumes_takes_little_for_each_record(typed):
    typed("run", *BM25)
    before = peak_mb(typed.folder, "run", *BM25)
    grow(typed.folder / "r", 20_000)
    assert peak_mb(typed.folder, "run", *BM25, "--quiet") - before < 20_000 * 3_000 / MB


@pytest.mark.long
def test_a_run_of_100_000_records_resumes_in_300_mb(typed):
    typed("run", *BM25)
    (file,) = records_files(typed.folder / "r")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join((lines * (100_000 // len(lines) + 1))[:100_000]))
    assert peak_mb(typed.folder, "run", *BM25, within_s=250) < 300


PRESETS = ("facts-2", "absent", "ordinal-2", "ruler-niah-multikey-1", "kv-json", "graphwalks")


@pytest.mark.parametrize("preset", PRESETS)
def test_a_map_is_the_same_of_outlines(typed, preset):
    typed("run", preset, *BM25, "--lengths", "4k,5k", "--repeats", "2")
    whole, brief = (
        load_run(typed.folder / "r"),
        load_run(RunFolder(typed.folder / "r", Kept.OUTLINES), texts=False),
    )
    assert to_json(run_report(brief)) == to_json(run_report(whole))
    assert ended_lines(brief) == ended_lines(whole)
    assert [row.outcome for row in brief.records] == [row.outcome for row in whole.records]
