"""The order of a run: a depth-first walk of its prompts' prefix tree, where its mode shares prefixes.

Where a limit may cut a run short, it is walked length by length, so that what was asked is a map.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from needlemap.plan.lanes import Lanes, make_lanes
from needlemap.plan.places import SHARING
from needlemap.plan.tree import reused, walk_order
from needlemap.trials import Trial


def ordered(trials: Iterable[Trial], mode: str) -> list[Trial]:
    """Trials in the order they are asked. Modes 'single' and 'cold' keep the order of the grid."""
    listed = list(trials)
    if mode not in SHARING:
        return listed
    return [listed[place] for place in walk_order([trial.prompt for trial in listed])]


def by_length(walk: Iterable[Trial]) -> list[list[Trial]]:
    """Ordered trials length by length, the shortest first, each at all its depths, repeat after repeat."""
    found: dict[int, list[Trial]] = {}
    for trial in sorted(walk, key=lambda trial: (trial.cell.length_tokens, trial.repeat)):
        found.setdefault(trial.cell.length_tokens, []).append(trial)
    return list(found.values())


def shared(walk: Sequence[Trial], mode: str) -> list[int]:
    """For each of the ordered trials the tokens its prompt shares with the one before; 0 where none are.

    Never more than it has: spans apart may count a token more than joined.
    """
    if mode not in SHARING:
        return [0] * len(walk)
    prompts = [trial.prompt for trial in walk]
    return [min(common, prompt.asked_tokens) for common, prompt in zip(reused(prompts), prompts, strict=True)]


def cut(walk: Sequence[Trial], mode: str, count: int) -> Lanes:
    """Ordered trials as `count` lanes at most; where nothing is shared, of about equally many tokens."""
    return make_lanes([trial.prompt.asked_tokens for trial in walk], shared(walk, mode), count)


def promised(walk: Sequence[Trial], mode: str, lanes: Lanes) -> list[Trial]:
    """Ordered trials that know what they share with the one asked before them in their lane."""
    if mode not in SHARING:
        return list(walk)
    starts = {start for start, _ in lanes.bounds}
    common = [0 if place in starts else tokens for place, tokens in enumerate(shared(walk, mode))]
    return [replace(trial, shared_tokens=tokens) for trial, tokens in zip(walk, common, strict=True)]
