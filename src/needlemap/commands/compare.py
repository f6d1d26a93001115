"""`needlemap compare`: two runs on the same trials, paired: difference, interval, verdict."""

from __future__ import annotations

import json
from pathlib import Path

from needlemap.errors import SettingsError
from needlemap.reports.comparison import comparison_json, comparison_text
from needlemap.reports.paired import MARGIN, compare_loaded
from needlemap.runs.loaded import load_run


def compare_command(
    first: Path, second: Path, margin: float | None, fail_if_worse: float | None, as_json: bool
) -> int:
    """Compare and print; 1 when B is worse and that was to fail, else 0."""
    points = _margin(margin, fail_if_worse)
    comparison, names = compare_loaded(load_run(first), load_run(second), points)
    if as_json:
        print(json.dumps(comparison_json(comparison, names), indent=1, ensure_ascii=False))
    else:
        print(comparison_text(comparison, names), end="")
    return int(fail_if_worse is not None and comparison.verdict.word == "worse")


def _margin(margin: float | None, fail_if_worse: float | None) -> float:
    """The margin in points, from either flag. Raises SettingsError when they say different ones."""
    if margin is not None and fail_if_worse is not None and margin != fail_if_worse:
        raise SettingsError("--fail-if-worse sets the margin. Give the same --margin, or leave it out.")
    return next((value for value in (margin, fail_if_worse) if value is not None), MARGIN)
