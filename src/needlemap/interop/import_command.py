"""`needlemap import`: results of other tools become runs on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from needlemap.commands.report import tell_notes
from needlemap.interop.imported import (
    Imported,
    ImportOptions,
    begin_suites,
    imported,
    places_of,
    refuse_taken,
    write,
)
from needlemap.interop.sources import read
from needlemap.records.loaded import load_run
from needlemap.reports.labels import score_label
from needlemap.text import tell


def import_command(paths: Sequence[Path], out: Path, said: ImportOptions) -> int:
    """Write a run, or a folder of runs where there are several; say what was read. Returns the
    exit code."""
    found = read(paths, said.metric)
    runs = imported(found.sources, said)
    places = places_of(runs, out)
    for place in places.values():
        refuse_taken(place)
    begin_suites(runs, places)
    tell_notes(found.notes)
    for run in runs:
        write(run, places[run.name])
        tell(_summary(run, places[run.name]))
    return 0


def _summary(run: Imported, path: Path) -> str:
    """Where a run is, how many results it holds, and its mean, also as the other tool would
    write it."""
    map, named = load_run(path).map, run.about.named
    low, high = run.scale
    mean = "-"
    if map.mean_of_means is not None:
        mean = (
            f"{score_label(map.mean_of_means)} ({run.native(map.mean_of_means):.4f} on {low:g}.."
            f"{high:g})"
        )
    results = sum(cell.n for cell in map.cells)
    missing = sum(cell.missing for cell in map.cells)
    lines = [
        f"{path}: {named.model} · {named.task} · {results} results in {len(map.cells)} "
        f"cells, "
        f"{missing} missing · overall {mean}"
    ]
    if run.moved:
        lines.append(
            f"  {run.moved} results came again for the same cell and version: counted as repeats"
        )
    if named.model == "unknown":
        lines.append("  the file names no model: --model NAME")
    return "\n".join(lines)
