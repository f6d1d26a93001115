"""`needlemap compare`: two runs, or two suites, on the same trials, paired: difference, interval, verdict."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.maps.verdict import Verdict
from needlemap.reports.comparison import comparison_json, comparison_text
from needlemap.reports.paired import MARGIN, compare_loaded
from needlemap.reports.paired_suites import compare_suites
from needlemap.reports.suite_comparison import suite_comparison_json, suite_comparison_text
from needlemap.runs.loaded import load_run
from needlemap.runs.suite_folder import is_suite, open_suite
from needlemap.text.printable import printable, show, show_data


def compare_command(
    first: Path, second: Path, margin: float | None, fail_if_worse: float | None, as_json: bool
) -> int:
    """Compare and print; 1 when B is worse and that was to fail, else 0."""
    points = _margin(margin, fail_if_worse)
    compared = _suites if _both_suites(first, second) else _runs
    text, plain, verdict = compared(first, second, points)
    show_data(f"{json.dumps(plain, indent=1, ensure_ascii=False)}\n" if as_json else printable(text))
    return int(fail_if_worse is not None and verdict.word == "worse")


def _runs(first: Path, second: Path, points: float) -> tuple[str, dict[str, Any], Verdict]:
    runs = load_run(first), load_run(second)
    for path, note in ((run.path, note) for run in runs for note in run.notes):
        show(f"note: {printable(path)}: {printable(note)}", file=sys.stderr)
    comparison, names = compare_loaded(*runs, points)
    text, plain = comparison_text(comparison, names), comparison_json(comparison, names)
    return text, plain, comparison.verdict


def _suites(first: Path, second: Path, points: float) -> tuple[str, dict[str, Any], Verdict]:
    """The verdict is that on the mean over families."""
    comparison, names = compare_suites(open_suite(first), open_suite(second), points)
    text, plain = suite_comparison_text(comparison, names), suite_comparison_json(comparison, names)
    return text, plain, comparison.verdict


def _both_suites(first: Path, second: Path) -> bool:
    """Whether the two are suites. Raises NeedlemapError when one is and the other is not."""
    if is_suite(first) == is_suite(second):
        return is_suite(first)
    suite, run = (first, second) if is_suite(first) else (second, first)
    raise NeedlemapError(
        f"'{suite}' is a suite and '{run}' is not. Compare two suites, or one of its families with a run: "
        f"{', '.join(map(str, open_suite(suite).runs)) or 'none of them is begun'}."
    )


def _margin(margin: float | None, fail_if_worse: float | None) -> float:
    """The margin in points, from either flag. Raises SettingsError when they say different ones."""
    if margin is not None and fail_if_worse is not None and margin != fail_if_worse:
        raise SettingsError("--fail-if-worse sets the margin. Give the same --margin, or leave it out.")
    return next((value for value in (margin, fail_if_worse) if value is not None), MARGIN)
