"""`needlemap compare`: two runs on the same trials, paired: difference, interval, verdict."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from needlemap.errors import SettingsError
from needlemap.records.families import families_of
from needlemap.reports.comparison import comparison_json, comparison_text
from needlemap.reports.paired import MARGIN, compare_runs, load_both
from needlemap.text.printable import printable, show, show_data


def compare_command(
    first: Path, second: Path, margin: float | None, fail_if_worse: float | None, as_json: bool
) -> int:
    """Compare and print; 1 when B is worse and that was to fail, else 0."""
    points = _margin(margin, fail_if_worse)
    both = families_of(first), families_of(second)
    read = load_both(*both)
    for run in (run for two in read.values() for run in two):
        for note in run.notes:
            show(f"note: {printable(run.path)}: {printable(note)}", file=sys.stderr)
    comparison, names = compare_runs(*both, read, points)
    text, plain = comparison_text(comparison, names), comparison_json(comparison, names)
    show_data(f"{json.dumps(plain, indent=1, ensure_ascii=False)}\n" if as_json else text)
    return int(fail_if_worse is not None and comparison.verdict.word == "worse")


def _margin(margin: float | None, fail_if_worse: float | None) -> float:
    """The margin in points, from either flag. Raises SettingsError when they say different ones."""
    if margin is not None and fail_if_worse is not None and margin != fail_if_worse:
        raise SettingsError("--fail-if-worse sets the margin. Give the same --margin, or leave it out.")
    return next((value for value in (margin, fail_if_worse) if value is not None), MARGIN)
