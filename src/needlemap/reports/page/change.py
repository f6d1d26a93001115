"""What changed from one run to another, cell by cell, and the comparison in words."""

from __future__ import annotations

from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.maps.comparison import Comparison
from needlemap.maps.map import Map
from needlemap.models.faults import hidden
from needlemap.reports.comparison import Names, comparison_json, comparison_text
from needlemap.reports.layout import Layout
from needlemap.reports.page.numbers import share
from needlemap.reports.paired import compare_loaded
from needlemap.runs.loaded import Loaded


def difference(first: Loaded, second: Loaded, layout: Layout) -> dict[str, Any]:
    """The paired comparison, or the words that refuse it. layout: of the first run's map."""
    try:
        comparison, names = compare_loaded(first, second)
    except NeedlemapError as error:
        return {"refused": hidden(str(error))}
    shown = Names(hidden(names.first), hidden(names.second), hidden(names.differ))
    return {
        "refused": None,
        "text": comparison_text(comparison, shown).splitlines(),
        "json": comparison_json(comparison, shown),
        "cells": _changes(comparison, first.map, layout),
    }


def _changes(comparison: Comparison, map: Map, layout: Layout) -> dict[str, list[Any]]:
    """Cells of the first run's map in which both runs have a pair."""
    rank = {length: at for at, length in enumerate(map.lengths)}
    places = [(cell.length_tokens, cell.depth) for cell in map.cells]
    bands = {at: (row["top"], row["bottom"]) for at, row in zip(places, layout.cells, strict=True)}
    cells = comparison.cells
    found = [bands[cell.length_tokens, cell.depth] for cell in cells]
    return {
        "length": [rank[cell.length_tokens] for cell in cells],
        "depth": [share(cell.depth) for cell in cells],
        "top": [share(top) for top, _ in found],
        "bottom": [share(bottom) for _, bottom in found],
        "difference": [share(cell.change) for cell in cells],
        "n": [cell.n for cell in cells],
        "lost": [cell.lost for cell in cells],
        "gained": [cell.gained for cell in cells],
        "p": [share(cell.p) if comparison.counted else None for cell in cells],
    }
