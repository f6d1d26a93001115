"""From runs that were read to their figure: what each is called, and what changed between two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from needlemap.errors import NeedlemapError
from needlemap.maps.comparison import Comparison
from needlemap.reports.figure import Figure, Shown
from needlemap.reports.labels import told_apart
from needlemap.reports.paired import compare_loaded
from needlemap.runs.loaded import Loaded


def figure_of(
    runs: Sequence[Loaded], *, title: str | None = None, palette: str = "amber"
) -> tuple[Figure, str]:
    """Runs as a figure; of two that can be paired also what changed. Second: why not, empty otherwise."""
    if len(runs) == 1:
        (run,) = runs
        return Figure((Shown(run.map, title or run.about.get("title")),), palette=palette), ""
    names = told_apart([run.map.model for run in runs], [Path(run.path) for run in runs])
    shown = tuple(
        Shown(replace(run.map, model=name), run.about.get("title"))
        for run, name in zip(runs, names, strict=True)
    )
    comparison, why_not = _compared(runs)
    return Figure(shown, comparison, title, palette), why_not


def _compared(runs: Sequence[Loaded]) -> tuple[Comparison | None, str]:
    if len(runs) != 2:
        return None, ""
    try:
        return compare_loaded(runs[0], runs[1])[0], ""
    except NeedlemapError as error:
        return None, str(error)
