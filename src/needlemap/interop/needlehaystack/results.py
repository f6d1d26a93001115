"""The files of the needlehaystack family: results/*.json, one object a cell, and contexts/*.txt.

Names and keys are the originals'. A version above 1 ends in `_results_2.json`, as in their published results,
where their code would overwrite version 1. Each file is written beside its place and then moved there.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

RESULTS, CONTEXTS = Path("results"), Path("contexts")
Row = dict[str, Any]
Cell = tuple[int, float]  # length in tokens, depth in percent
_KEYS = ("model", "context_length", "depth_percent", "needle", "score")
_UNSAFE = re.compile(r"[./\\:]")


def stem(model: str, length: int, depth: float) -> str:
    """A cell's file name without its ending; depth in percent, kept to its second decimal.

    >>> stem("org/gpt-3.5", 1000, 12.5)
    'org_gpt-3_5_len_1000_depth_1250'
    """
    return f"{_UNSAFE.sub('_', model)}_len_{length}_depth_{int(depth * 100)}"


def result_file(name: str, version: int) -> Path:
    """Where a cell's result goes."""
    return RESULTS / f"{name}_results{'' if version == 1 else f'_{version}'}.json"


def context_file(name: str) -> Path:
    """Where a cell's context goes."""
    return CONTEXTS / f"{name}_context.txt"


def earlier(model: str, version: int) -> dict[Cell, Row]:
    """A model's results of a version by (length, depth): the folder is read once.

    Files that cannot be read are left out with a warning; those that are no results are passed over.
    """
    rows = [row for file in sorted(RESULTS.glob("*.json")) if (row := _row(file))]
    return {
        (row["context_length"], row["depth_percent"]): row
        for row in rows
        if (row["model"], row.get("version", 1)) == (model, version)
    }


def shared_names(model: str, cells: Iterable[Cell]) -> list[str]:
    """File names that more than one cell would have, which would leave only the last one's answer."""
    counted = Counter(stem(model, *cell) for cell in cells)
    return [name for name, count in counted.items() if count > 1]


def write(file: Path, text: str) -> None:
    """The whole file or none of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8", errors="replace", newline="")
    beside.replace(file)


def _row(file: Path) -> Row | None:
    try:
        row = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        warnings.warn(f"{file} cannot be read and is left out: {error}", stacklevel=5)
        return None
    return row if isinstance(row, dict) and all(key in row for key in _KEYS) else None
