"""`needlemap import`: other tools' results as runs, on disk or for one report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from needlemap.interop.imports.imported import Imported, Said, imported, refuse_taken, write
from needlemap.interop.imports.sources import Found, holds_results, read
from needlemap.records.folder import RunFolder
from needlemap.records.loaded import Loaded, load_map
from needlemap.reports.labels import score_label
from needlemap.text.printable import show

_SHOWN = 3  # reasons for files left out


def import_command(paths: Sequence[Path], out: Path, said: Said) -> int:
    """Write a run, or a folder of runs where there are several; say what was read. Returns the exit code."""
    found = read(paths)
    runs = imported(found.sources, said)
    places = {run.name: out if len(runs) == 1 else out / run.name for run in runs}
    for place in places.values():
        refuse_taken(place)
    _left_out(found)
    for run in runs:
        write(run, places[run.name])
        show(_summary(run, places[run.name]), file=sys.stderr)
    return 0


def runs_of(path: Path, dataset_length: str = "") -> list[Loaded]:
    """The runs in another tool's file or folder, as reports take them; nothing is written."""
    found = read([path])
    _left_out(found)
    runs = imported(found.sources, Said(dataset_length=dataset_length))
    places = [str(path) if len(runs) == 1 else str(path / run.name) for run in runs]
    return [Loaded(place, run.about, run.records) for place, run in zip(places, runs, strict=True)]


def is_other_tools(path: Path) -> bool:
    """Whether a path is a file, or a folder that holds results of another tool and no run of ours."""
    if path.is_dir():
        return not RunFolder(path).exists and not any(path.glob("records-*.jsonl")) and holds_results(path)
    return path.is_file()


def _left_out(found: Found) -> None:
    """What lay in a folder and was no result, or could not be read: never passed over in silence."""
    for reason in found.left_out[:_SHOWN]:
        show(f"left out: {reason}", file=sys.stderr)
    if len(found.left_out) > _SHOWN:
        show(f"left out: {len(found.left_out) - _SHOWN} more files", file=sys.stderr)


def _summary(run: Imported, path: Path) -> str:
    """Where a run is, how many results it holds, and its mean, also as the other tool would write it."""
    map, settings = load_map(path), run.about["settings"]
    low, high = run.scale
    mean = "-"
    if map.mean_of_means is not None:
        mean = f"{score_label(map.mean_of_means)} ({run.native(map.mean_of_means):.4f} on {low:g}..{high:g})"
    results = sum(cell.n for cell in map.cells)
    missing = sum(cell.missing for cell in map.cells)
    lines = [
        f"{path}: {settings['model']} · {settings['task']} · {results} results in {len(map.cells)} cells, "
        f"{missing} missing · overall {mean}"
    ]
    if run.moved:
        lines.append(f"  {run.moved} results came again for the same cell and version: counted as repeats")
    if settings["model"] == "unknown":
        lines.append("  the file names no model: --model NAME")
    return "\n".join(lines)
