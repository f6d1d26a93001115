"""The readers of files under a coverage-guided fuzzer, one after the other.

    pip install atheris
    python benchmarks/fuzz.py --seconds 75

A finding is any exception but needlemap's own; the input is kept in --corpus, and the exit code is
1.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from machine import machine
from table import show

READER = Path(__file__).parent / "sides" / "fuzz_reader.py"
READERS = ("settings", "template", "records", "run", "json", "jsonl", "csv", "txt")
_EXECUTED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_STATE = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)")
_FINDING = re.compile(r"=== Uncaught Python exception: ===\s*\n(.*)")


@dataclass(frozen=True)
class Fuzzed:
    """One reader: inputs tried, edges of the code that they reached at first and at last, inputs
    kept."""

    executions: int
    first: int
    covered: int
    kept: int
    finding: str


def main() -> None:
    """Fuzz and report."""
    options = _options()
    with tempfile.TemporaryDirectory() as scratch:
        corpus = options.corpus or Path(scratch)
        found = {name: fuzz(name, corpus / name, options.seconds) for name in options.readers}
    findings = [f"{name}: {each.finding}" for name, each in found.items() if each.finding]
    show(
        f"{options.seconds} s for each reader of files",
        machine("needlemap", "atheris", "PyYAML", "pydantic"),
        ("reader", "executions", "edges at first", "edges reached", "inputs kept", "findings"),
        [
            (
                name,
                f"{each.executions:,}",
                f"{each.first:,}",
                f"{each.covered:,}",
                f"{each.kept:,}",
                str(int(bool(each.finding))),
            )
            for name, each in found.items()
        ],
        findings,
        {
            "benchmark": "fuzz",
            "executions": sum(each.executions for each in found.values()),
            "findings": len(findings),
        },
    )
    sys.exit(1 if findings else 0)


def fuzz(name: str, corpus: Path, seconds: int) -> Fuzzed:
    """One reader for so long, or until its first finding."""
    corpus.mkdir(parents=True, exist_ok=True)
    flags = (
        f"-max_total_time={seconds}",
        "-print_final_stats=1",
        "-timeout=20",
        "-rss_limit_mb=4096",
    )
    command = [
        sys.executable,
        str(READER),
        name,
        str(corpus),
        *flags,
        f"-artifact_prefix={corpus}/finding-",
    ]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    said = done.stdout
    executed, states = _EXECUTED.search(said), _STATE.findall(said)
    if not executed or not states:
        raise RuntimeError(f"the fuzzer did not run:\n{said[-2000:]}")
    finding = _FINDING.search(said)
    other = "" if "Done " in said or finding else said[-300:]
    first, last = states[0], states[-1]
    return Fuzzed(
        int(executed[1]),
        int(first[0]),
        int(last[0]),
        int(last[2]),
        finding[1] if finding else other,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="The readers of files under a coverage-guided fuzzer."
    )
    parser.add_argument("--seconds", type=int, default=75, help="for each reader")
    parser.add_argument("--corpus", type=Path, help="a folder that keeps inputs for the next time")
    parser.add_argument("--readers", nargs="+", choices=READERS, default=READERS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
