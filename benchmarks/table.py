"""What a benchmark prints: a title, the machine, a table, notes, and one JSON object as the last
line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence


def show(
    title: str,
    machine: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str],
    result: Mapping[str, object],
) -> None:
    """Print all of it. The first column is left-aligned, the others right-aligned."""
    print(f"{title}\n{machine}\n")
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    for row in (header, ["-" * width for width in widths], *rows):
        padded = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        print("  ".join([row[0].ljust(widths[0]), *padded[1:]]))
    print("".join(f"\n{note}" for note in notes))
    print(json.dumps(result), flush=True)


def rounded(value: float, digits: int = 3) -> float:
    """A figure to so many significant digits, as a JSON result holds it."""
    return float(f"{value:.{digits}g}")
