"""Run `needlemap import`: write results of other tools as runs."""

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


def import_command(paths: Sequence[Path], out: Path, options: ImportOptions) -> int:
    """Write one run, or a folder of several, print what was read, and return the exit code."""
    results = read(paths, options.metric)
    runs = imported(results.sources, options)
    places = places_of(runs, out)
    for place in places.values():
        refuse_taken(place)
    begin_suites(runs, places)
    tell_notes(results.notes)
    for run in runs:
        write(run, places[run.name])
        tell(_summary(run, places[run.name]))
    return 0


def _summary(run: Imported, path: Path) -> str:
    """Return lines with a run's folder, its number of results, and its mean on both scales."""
    map = load_run(path).map
    named = run.about.named
    mean = "-"
    if map.overall is not None:
        low, high = run.scale
        native_mean = run.native(map.overall)
        mean = f"{score_label(map.overall)} ({native_mean:.4f} on {low:g}..{high:g})"
    results = sum(cell.n for cell in map.cells)
    lines = [
        f"{path}: {named.model} · {named.task} · {results} results in {len(map.cells)} cells, "
        f"{map.missing} missing · overall {mean}"
    ]
    if run.moved:
        lines.append(
            f"  {run.moved} results came again for the same cell and version: counted as repeats"
        )
    if named.model == "unknown":
        lines.append("  the file names no model: --model NAME")
    return "\n".join(lines)
