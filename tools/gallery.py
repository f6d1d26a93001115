"""docs/gallery.md: what a check sees of each public fault, from checks that were kept.

python benchmarks/check.py --clean 0 --keep CHECKS
python benchmarks/check.py --faults FAULTS
python tools/gallery.py CHECKS FAULTS
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GAUGE_SIZES = 500, 2000, 8000

sys.path.insert(0, str(ROOT / "tests" / "wings" / "servers" / "gallery"))
sys.path.insert(0, str(ROOT / "benchmarks"))
from mutants import MUTANTS, SIZES, Mutant, begins_at  # noqa: E402
from threads import THREADS, Thread  # noqa: E402

from gauge_faults import Begun, read_begun  # noqa: E402
from needlemap.servers.check import Finding  # noqa: E402
from needlemap.servers.check.finding import CHECK  # noqa: E402


def found_at(check: Path, probe: str) -> tuple[Finding, int | None]:
    """Return the finding of a probe, and from which size on it fails."""
    (finding,) = [finding for finding in CHECK.read(check).findings if finding.probe == probe]
    return finding, begins_at(finding)


def box_cells(mutant: Mutant, checks: Path) -> list[str]:
    """Return what became of a fault that begins at each size of the model in the box."""
    cells = list[str]()
    for index, size in enumerate(SIZES):
        finding, begins = found_at(checks / f"{mutant.name}-{size}", mutant.probe)
        if begins == finding.sizes[index].size:
            cells.append("found")
        else:
            cells.append(finding.state if begins is None else f"from {begins} on")
    return cells


def gauge_cells(name: str, in_gauge: Sequence[Begun]) -> list[str]:
    """Return what became of a fault at each size of the gauge; '' if it was not put into it."""
    states = {(row.fault, row.size): row.state for row in in_gauge}
    return [states.get((name, size), "") for size in GAUGE_SIZES]


def fault_row(mutant: Mutant, cells: Sequence[str]) -> str:
    """Return a fault's row of the table."""
    owner, repository, _, number = mutant.like.rsplit("/", 4)[1:]
    report = f"[{owner}/{repository}#{number}]({mutant.like})"
    return f"| {mutant.name} | {mutant.about} {report} | `{mutant.probe}` | {' | '.join(cells)} |"


def thread_row(thread: Thread, counts: Mapping[str, int]) -> str:
    """Return a thread's row. counts: at how many sizes of the box each fault is found."""
    found = "not tried"
    if thread.fault:
        count = counts[thread.fault]
        amount = "found" if count == len(SIZES) else f"found at {count} of {len(SIZES)} sizes"
        found = f"{amount}: {thread.fault}"
    elif thread.storm:
        found = f"{'not found' if thread.missed else 'found'}: {thread.storm}"
    probe = "[storm](storm.md)" if thread.storm else f"`{thread.probe}`"
    return f"| {thread.where} | {thread.what} | {probe} | {found} |"


def page(cells: Mapping[str, Sequence[str]]) -> str:
    """Return the page. cells: of each fault, three of the model in the box, three of the gauge."""
    counts = {name: row[: len(SIZES)].count("found") for name, row in cells.items()}
    in_gauge = [cell for row in cells.values() for cell in row[len(SIZES) :] if cell]
    covered = sum(counts.get(thread.fault) == len(SIZES) for thread in THREADS)
    stormed = sum(bool(thread.storm) and not thread.missed for thread in THREADS)
    missed = sum(thread.missed for thread in THREADS)
    heads = (
        "probe",
        *(f"from {size}" for size in SIZES),
        "gauge, from 500",
        "from 2,000",
        "from 8,000",
    )
    faults = "\n".join(fault_row(mutant, cells[mutant.name]) for mutant in MUTANTS)
    threads = "\n".join(thread_row(thread, counts) for thread in THREADS)
    return f"""# The gallery of faults

For readers who ask what [check](check.md) can see, and what it misses. What it found in released \
engines is in [results](results.md#see-faults-that-were-released). Here, {len(MUTANTS)} public \
faults are put into small models, in [a few lines](../tests/wings/servers/gallery/faults.py) each: \
our own lines, not the engines' code.

Each fault starts at each of the three sizes of a check to 256 tokens of the model in the box; \
shorter prompts are answered right. A fault is found if its probe fails at that size and at no \
shorter one: {sum(counts.values())} of {len(MUTANTS) * len(SIZES)} are. SUSPECT is exit code 5; \
PASS is a miss. The last three columns have the same faults in [the gauge](gauge.md), in a check \
to 8,000 tokens: {in_gauge.count("found")} of {len(in_gauge)} are found. The gauge answers one \
prompt at a time there, so `wrong-under-load` was not put into it. `off-by-one-after-a-hit` is \
found there by `cache`. No head of the gauge needs a window, so a window that is never left is \
missed.

| fault | what goes wrong, and a public report | {" | ".join(heads)} |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{faults}

To check one yourself, in a checkout, in about half a minute: \
`python tests/wings/servers/gallery/mutants.py last-tokens-only`. A size behind the name says \
where the fault starts. `tools/gallery.py` writes this page.

## Thirty threads of 2026

Public threads on long contexts that went wrong in silence. For each a fault is tried. {covered} \
of {len(THREADS)} are found by `check` at each size, \
{len(THREADS) - covered - stormed - missed} at some sizes. {stormed} more are found by `storm` in \
its engine in a box; {missed} it missed.

| thread | what | probe | found |
| --- | --- | --- | --- |
{threads}

<!-- part: servers -->
"""


def main(checks: Path, in_gauge: Sequence[Begun]) -> None:
    """Write the page from checks that were kept."""
    cells = {
        mutant.name: [*box_cells(mutant, checks), *gauge_cells(mutant.name, in_gauge)]
        for mutant in MUTANTS
    }
    (ROOT / "docs" / "gallery.md").write_text(page(cells))


if __name__ == "__main__":
    main(Path(sys.argv[1]), read_begun(Path(sys.argv[2])))
