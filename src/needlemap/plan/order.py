"""The order of a run: a depth-first walk of its prompts' prefix tree.

Prompts of one haystack share it up to the first needle, and, with that needle in one place, up to where the
shorter of the two ends. Sorted by positions and length, neighbours share the longest prefix there is.
"""

from __future__ import annotations

from collections.abc import Iterable

from needlemap.trials import Trial


def ordered(trials: Iterable[Trial], mode: str) -> list[Trial]:
    """Trials in the order they are asked. Modes 'single' and 'cold' keep the order of the grid."""
    return sorted(trials, key=_walk) if mode == "exact" else list(trials)


def _walk(trial: Trial) -> tuple[int, tuple[tuple[int, str], ...], str, int]:
    places = tuple(zip(trial.prompt.positions, (needle.text for needle in trial.item.needles), strict=True))
    return trial.repeat, places, trial.item.question, trial.prompt.haystack_tokens
