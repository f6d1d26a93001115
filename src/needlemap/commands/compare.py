"""`needlemap compare`: two runs on the same trials, paired: difference, interval, verdict."""

from __future__ import annotations

import json
from pathlib import Path

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.grid import percent
from needlemap.maps.comparison import Comparison, compare_pairs
from needlemap.maps.pairs import Pairs, pair_up
from needlemap.reports.comparison import Names, comparison_json, comparison_text
from needlemap.runs.contrast import contrast, phrase, prompt_contrast
from needlemap.runs.store import RunFolder

MARGIN = 2.0  # points


def compare_command(
    first: Path, second: Path, margin: float | None, fail_if_worse: float | None, as_json: bool
) -> int:
    """Compare and print; 1 when B is worse and that was to fail, else 0."""
    points = _margin(margin, fail_if_worse)
    comparison, names = compare_runs(first, second, points)
    if as_json:
        print(json.dumps(comparison_json(comparison, names), indent=1, ensure_ascii=False))
    else:
        print(comparison_text(comparison, names), end="")
    return int(fail_if_worse is not None and comparison.verdict.word == "worse")


def compare_runs(first: str | Path, second: str | Path, margin: float = MARGIN) -> tuple[Comparison, Names]:
    """The comparison of two run folders. margin: in points.

    Raises NeedlemapError when their trials or scorers are not the same, and says in what they differ.
    """
    folders = RunFolder(first), RunFolder(second)
    abouts = folders[0].about(), folders[1].about()
    found = contrast(*abouts)
    if "scorer" in found:
        raise NeedlemapError(
            f"'{first}' and '{second}' are scored differently: {phrase({'scorer': found['scorer']})}. "
            f"Score both alike: needlemap run with the same --scorer."
        )
    cells = abouts[0]["cells"], abouts[1]["cells"]
    pairs = pair_up(folders[0].records(), folders[1].records(), cells)
    _refuse(pairs, phrase(prompt_contrast(found)), f"'{first}' and '{second}'")
    comparison = compare_pairs(pairs, margin / 100)
    if comparison is None:
        raise NeedlemapError(f"'{first}' and '{second}' have no trial that both scored: finish them first.")
    said = {name: values for name, values in found.items() if name != "haystacks"}
    called = [
        f"{about['settings']['model']} ({path})" for about, path in zip(abouts, (first, second), strict=True)
    ]
    return comparison, Names(called[0], called[1], phrase(said))


def _refuse(pairs: Pairs, differ: str, runs: str) -> None:
    """Raises NeedlemapError when two runs did not ask the same."""
    why = (
        differ or "the settings are the same: texts of haystack or template, or needlemap, changed meanwhile"
    )
    if pairs.unlike:
        repeat, length, depth = pairs.unlike[0]
        raise NeedlemapError(
            f"{runs} ask different prompts in {len(pairs.unlike)} trials (first: length {length}, depth "
            f"{percent(depth):g}, repeat {repeat}), so they cannot be paired. They differ in: {why}. "
            f"Run both with the same settings but the model."
        )
    if not pairs.first.asked.any():
        raise NeedlemapError(
            f"{runs} have no trial (length, depth, repeat) in common. They differ in: {why}. "
            f"Run both with the same --lengths, --depths and --repeats."
        )


def _margin(margin: float | None, fail_if_worse: float | None) -> float:
    """The margin in points, from either flag. Raises SettingsError."""
    if margin is not None and fail_if_worse is not None and margin != fail_if_worse:
        raise SettingsError("--fail-if-worse sets the margin. Give the same --margin, or leave it out.")
    points = next((value for value in (margin, fail_if_worse) if value is not None), MARGIN)
    if not 0 < points <= 100:
        raise SettingsError(f"A margin is in points above 0 and up to 100, got {points:g}.")
    return points
