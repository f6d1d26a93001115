"""The order of a run: a depth-first walk of its prompts' prefix tree, where its mode shares prefixes.

Where a limit may cut a run short, it is walked length by length, so that what was asked is a map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from needlemap.plan.lanes import Lanes, make_lanes
from needlemap.plan.places import ALONE, WALKED
from needlemap.plan.tree import reused, walk_order
from needlemap.trials.repeat import Trial

Side = Callable[[int], int | None] | None


def ordered(trials: Iterable[Trial], mode: str, side: Side = None) -> list[Trial]:
    """Trials in the order they are asked. Modes 'single' and 'cold' keep the order of the grid. Those that
    serve each other (see `Traits.side`) are walked together."""
    listed = list(trials)
    if mode not in WALKED:
        return listed
    walk = [listed[place] for place in walk_order([trial.prompt for trial in listed])]
    return walk if side is None else sorted(walk, key=lambda trial: side(trial.prompt.asked_tokens) or 0)


def by_length(walk: Iterable[Trial]) -> list[list[Trial]]:
    """Ordered trials length by length, the shortest first, each at all its depths, repeat after repeat."""
    found: dict[int, list[Trial]] = {}
    for trial in sorted(walk, key=lambda trial: (trial.cell.length_tokens, trial.repeat)):
        found.setdefault(trial.cell.length_tokens, []).append(trial)
    return list(found.values())


def shared(walk: Sequence[Trial], mode: str, side: Side = None) -> list[int]:
    """For each of the ordered trials the tokens its prompt shares with the one before; 0 where none are, or
    where the model's cache does not serve it (see `Traits.side`)."""
    if mode == ALONE:
        return [0] * len(walk)
    common = in_common(walk)
    if side is None:
        return common
    sides = [side(trial.prompt.asked_tokens) for trial in walk]
    serves = [False, *(left == right is not None for left, right in pairwise(sides))]
    return [tokens * served for tokens, served in zip(common, serves, strict=False)]


def in_common(walk: Sequence[Trial]) -> list[int]:
    """For each of the ordered trials the tokens its prompt begins with in common with the one before.

    Never more than it has: spans apart may count a token more than joined.
    """
    prompts = [trial.prompt for trial in walk]
    return [min(tokens, prompt.asked_tokens) for tokens, prompt in zip(reused(prompts), prompts, strict=True)]


def cut(walk: Sequence[Trial], mode: str, count: int, side: Side = None) -> Lanes:
    """Ordered trials as `count` lanes at most; where nothing is shared, of about equally many tokens."""
    return make_lanes([trial.prompt.asked_tokens for trial in walk], shared(walk, mode, side), count)


def promised(walk: Sequence[Trial], mode: str, lanes: Lanes, side: Side = None) -> list[Trial]:
    """Ordered trials that know what they share with the one asked before them in their lane."""
    if mode == ALONE:
        return list(walk)
    starts = {start for start, _ in lanes.bounds}
    common = [0 if place in starts else tokens for place, tokens in enumerate(shared(walk, mode, side))]
    return [replace(trial, shared_tokens=tokens) for trial, tokens in zip(walk, common, strict=True)]
