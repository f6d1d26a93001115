"""The gallery's faults in the gauge, at lengths to 8k, beginning at each size of a check.

    python benchmarks/check.py --faults FILE [--max-length 8k] [--only WORDS]

`gauge_faults.jsonl` is such a FILE, begun. It gets a line of JSON after each check, and what it
holds is not asked again. A fault is found if the probe that is meant for it fails at the size at
which it begins, and at no shorter one; longer ones are not asked. All checks have the same prompts,
so that the reference computes each once.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import process_time
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/wings/servers/gallery"))

from faults import FaultyGauge
from mutants import MUTANTS, Mutant, begins_at

from needlemap.models.walk import Engine, Ids, Walk, Walked

SEED = 27
LEFT_OUT = "wrong-under-load"  # in this process the gauge answers one prompt after the other


@dataclass(frozen=True, slots=True)
class Begun:
    """A fault that begins at a size, in tokens, and what its probe said. state: 'found', or that of
    the row where it begins."""

    fault: str
    probe: str
    longest: int
    size: int
    state: str
    said: str
    cpu_s: float


class Remembered(Walk):
    """A walk that computes each prompt once."""

    kept: ClassVar[dict[tuple[type[Engine], bytes], Walked]] = {}
    begins = 0

    def ask(self, ids: Ids, max_answer_tokens: int, **more: Any) -> Walked:
        key = type(self._engine), ids.tobytes()
        if key not in self.kept:
            self.kept[key] = super().ask(ids, max_answer_tokens, **more)
        return self.kept[key]


def in_gauge() -> list[Mutant]:
    """The faults that can be put into the gauge."""
    return [mutant for mutant in MUTANTS if mutant.name != LEFT_OUT]


def sizes_of(mutant: Mutant, longest: int) -> tuple[int, int, int]:
    """The sizes of a check to a longest prompt, in tokens."""
    with tempfile.TemporaryDirectory() as folder:
        asking = mutant.asking_gauge(Path(folder) / "sizes", longest, longest)
        sizes: tuple[int, int, int] = asking.check.asker.schedule.sizes
    return sizes


def begun(mutant: Mutant, longest: int, at: int, folder: Path) -> Begun:
    """A check to a longest prompt of the gauge with the fault from its size number `at` on."""
    began = process_time()
    sizes = sizes_of(mutant, longest)
    elsewhere, probe = FaultyGauge(mutant.sound, Remembered), mutant.meant_in_gauge
    asking = mutant.asking_gauge(
        folder / "check", longest, sizes[at], (probe,), lambda _: elsewhere, SEED
    )
    schedule = asking.check.asker.schedule
    asked = [count if number <= at else 0 for number, count in enumerate(schedule.amount.haystacks)]
    schedule.amount = replace(schedule.amount, haystacks=(asked[0], asked[1], asked[2]))
    (finding,) = asyncio.run(asking.run()).findings
    row = finding.sizes[at] if finding.sizes else None
    found = row is not None and begins_at(finding) == row.size
    state = "found" if found else row.state if row else finding.state
    said = row.said if row else finding.said
    spent = round(process_time() - began, 1)
    return Begun(mutant.name, probe, longest, sizes[at], state, said, spent)


def read_begun(file: Path) -> list[Begun]:
    """What a file holds."""
    lines = file.read_text().splitlines() if file.is_file() else []
    return [Begun(**json.loads(line)) for line in lines]


def begin_each(file: Path, longest: int, only: str = "") -> list[Begun]:
    """Put in each fault at each size that the file lacks, a line of it after each; all lines. The
    shortest size comes first."""
    for at in range(3):
        for mutant in in_gauge():
            known = [each for each in read_begun(file) if each.longest == longest]
            done = {each.size for each in known if each.fault == mutant.name}
            if only not in mutant.name or sizes_of(mutant, longest)[at] in done:
                continue
            with tempfile.TemporaryDirectory() as folder:
                row = begun(mutant, longest, at, Path(folder))
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(asdict(row)) + "\n")
            print(f"{row.fault}, {row.size}: {row.state}; {row.said}", file=sys.stderr, flush=True)
    return read_begun(file)


def rows_of(found: Sequence[Begun]) -> tuple[list[str], list[tuple[str, ...]], dict[str, object]]:
    """A header, a row of each fault, and the numbers."""
    sizes = sorted({each.size for each in found})
    told = {(each.fault, each.size): each.state for each in found}
    rows = [
        (mutant.name, mutant.meant_in_gauge, *(told.get((mutant.name, size), "") for size in sizes))
        for mutant in in_gauge()
    ]
    counts = Counter(each.state for each in found)
    header = ["fault", "meant for", *(f"from {size}" for size in sizes)]
    numbers = {"gauge_faults": len(found), "gauge_faults_found": counts["found"]}
    return header, rows, {**numbers, "gauge_cpu_s_most": max((e.cpu_s for e in found), default=0)}
