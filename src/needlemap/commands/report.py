"""`needlemap report`: runs as a terminal map, a figure, a page or a table."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from needlemap.errors import SettingsError, did_you_mean
from needlemap.maps.cube import make_cube
from needlemap.maps.map import Map
from needlemap.reports.figure import write_figure
from needlemap.reports.opencompass import summary_csv
from needlemap.reports.summary import summary_lines
from needlemap.reports.table import cells_csv, trials_csv
from needlemap.reports.terminal import plain_summary, terminal_map
from needlemap.reports.usage import cache_lines
from needlemap.runs.session import load_map, stored_title
from needlemap.runs.store import RunFolder

FORMATS = ("cells", "trials", "opencompass")


def report_command(runs: list[Path], out: Path | None, format: str, title: str | None, palette: str) -> None:
    """Draw each run on the terminal, or write one file."""
    maps = {path: load_map(path) for path in runs}
    if out is None:
        for path, map in maps.items():
            _show(map, palette)
            _summary(path)
            for line in cache_lines(RunFolder(path).records()):
                print(line, file=sys.stderr)
        return
    if out.suffix.lower() == ".csv":
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(_table(maps, format), encoding="utf-8", newline="")
    elif len(runs) > 1:
        raise SettingsError(
            f"A {out.suffix or 'figure'} holds one run. Give one run, or a .csv with --format opencompass."
        )
    else:
        write_figure(maps[runs[0]], out, title=title or stored_title(runs[0]), palette=palette)
    print(out, file=sys.stderr)


def _show(map: Map, palette: str) -> None:
    if sys.stdout.isatty():
        Console().print(terminal_map(map, palette=palette))
    else:
        sys.stdout.write(plain_summary(map))


def _summary(path: Path) -> None:
    """What the run comes to, under its map."""
    folder = RunFolder(path)
    for line in summary_lines(make_cube(folder.records(), folder.about()["cells"])):
        print(line)


def _table(maps: dict[Path, Map], format: str) -> str:
    if format not in FORMATS:
        raise SettingsError(f"Unknown format '{format}'. {did_you_mean(format, FORMATS)}")
    if format == "opencompass":
        return summary_csv(_columns(maps))
    if len(maps) > 1:
        raise SettingsError("This table holds one run. Give one run, or --format opencompass.")
    path, map = next(iter(maps.items()))
    return cells_csv(map) if format == "cells" else trials_csv(RunFolder(path).records())


def _columns(maps: dict[Path, Map]) -> dict[str, Map]:
    """Maps by model; runs of one model are told apart by their folders."""
    models = [map.model for map in maps.values()]
    return {
        map.model if models.count(map.model) == 1 else f"{map.model}@{path.name}": map
        for path, map in maps.items()
    }
