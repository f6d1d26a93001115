"""`needlemap report`: runs as a terminal map, a figure, a page or a table, or in a tracker."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from needlemap.commands.import_ import is_other_tools, runs_of
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.interop.imports.imported import title as their_title
from needlemap.maps.effective import RULES, parse_rules
from needlemap.maps.map import Map
from needlemap.records.families import Families, families_of
from needlemap.records.loaded import Loaded, load_run
from needlemap.reports.closing import ended_lines
from needlemap.reports.families import RULES as FAMILY_RULES
from needlemap.reports.families import family_lines, read_families
from needlemap.reports.figure import FIGURES, figure_of, write_figure
from needlemap.reports.page.document import write_page
from needlemap.reports.style import parse_width
from needlemap.reports.summary import summary_lines
from needlemap.reports.table import is_table, write_table
from needlemap.reports.terminal import plain_summary, terminal_map
from needlemap.reports.trackers import log_runs, parse_tracker
from needlemap.reports.usage import cache_lines
from needlemap.text.printable import printable, show


@dataclass(frozen=True, slots=True)
class Look:
    """How it is to look. width: of a figure in points, None for a screen's. rules: of effective length."""

    title: str | None
    palette: str
    width: float | None
    rules: tuple[str, ...]


def report_command(
    runs: list[Path],
    out: Path | None,
    format: str,
    title: str | None,
    palette: str,
    log: Sequence[str] = (),
    step: int = 0,
    width: str | None = None,
    rules: str | None = None,
    dataset_length: str = "",
) -> None:
    """Draw each run on the terminal, or write one file, or log to trackers, or both of these.

    runs: folders of runs and suites, and other tools' results as `import` reads them. dataset_length: for the
    title that OpenCompass's plots have.
    """
    trackers = [parse_tracker(text) for text in log]
    look = Look(title, palette, _width(width), RULES if rules is None else parse_rules(rules))
    if out is None and not trackers:
        several = [families for families in map(families_of, runs) if not families.is_plain]
        for families in several:
            show_families(families, FAMILY_RULES if rules is None else look.rules)
        alone = [path for path in runs if path not in [families.path for families in several]]
        _draw(_opened(alone, dataset_length), look)
        return
    paths = _folders(runs)
    page = out is not None and out.suffix.lower() == ".html"  # says it where a run is given twice
    loaded = _opened(paths if page else list(dict.fromkeys(paths)), dataset_length)
    if out is not None:
        new = "" if out.parent.is_dir() else f" (in a new folder, {out.parent})"
        show(f"{_written(loaded, out, format, look)}{new}", file=sys.stderr)
    for tracker in trackers:
        for place in log_runs(loaded, tracker, step, title=title, palette=palette, rules=look.rules):
            show(place, file=sys.stderr)


def show_families(families: Families, rules: tuple[str, ...] = FAMILY_RULES) -> None:
    """Print the table of a run with several families."""
    show("\n".join(family_lines(families.suite, read_families(families), rules)))


def _folders(paths: Sequence[Path]) -> list[Path]:
    """The folders of all families of some runs. Raises NeedlemapError where there is none."""
    found = [folder for path in paths for folder in families_of(path).folders]
    if paths and not found:
        raise NeedlemapError(
            f"Suite '{paths[0]}' has no run yet. Type: needlemap run suite:NAME -o {paths[0]}"
        )
    return found


def _width(text: str | None) -> float | None:
    return None if text is None else parse_width(text)


def _opened(paths: Sequence[Path], dataset_length: str) -> list[Loaded]:
    """Runs in the order given; of another tool's file each that it holds."""
    found: list[Loaded] = []
    for path in paths:
        found += runs_of(path) if is_other_tools(path) else [load_run(path)]
    if not dataset_length:
        return found
    titles = [their_title(run.map.model, dataset_length) for run in found]
    return [
        replace(run, about={**run.about, "title": title}) for run, title in zip(found, titles, strict=True)
    ]


def _draw(runs: Sequence[Loaded], look: Look) -> None:
    if look.width is not None:
        raise SettingsError("--width is a figure's. Say where to: -o map.pdf, or .png, .svg.")
    for run in runs:
        _show(run.map, look.palette)
        for line in summary_lines(run.cube, look.rules):
            show(line)
        for line in ended_lines(run.folder) if run.folder else ():
            show(printable(line))
        for line in cache_lines(run.records):
            show(line, file=sys.stderr)


def _written(runs: Sequence[Loaded], out: Path, format: str, look: Look) -> Path:
    """One file, in the format that its suffix names."""
    if look.width is not None and out.suffix.lower() not in FIGURES:
        raise SettingsError(f"--width is a figure's, and {out.name} is none. Give {', '.join(FIGURES)}.")
    if format != "cells" and not is_table(out):
        raise SettingsError(f"--format is a table's, and {out.name} is none. Give .csv or .parquet.")
    if out.suffix.lower() == ".html":
        return write_page(runs, out, title=look.title, palette=look.palette, rules=look.rules)
    for note in (note for run in runs for note in run.notes):
        show(f"note: {printable(note)}", file=sys.stderr)
    if is_table(out):
        return write_table(runs, out, format)
    figure, why_not = figure_of(runs, title=look.title, palette=look.palette)
    if why_not:
        show(f"no map of the difference: {why_not}", file=sys.stderr)
    return write_figure(figure, out, width=look.width)


def _show(map: Map, palette: str) -> None:
    if sys.stdout.isatty():
        Console().print(terminal_map(map, palette=palette))
    else:
        show(plain_summary(map), end="")
