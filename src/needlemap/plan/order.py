"""The order of a run: a depth-first walk of its prompts' prefix tree, where its mode shares prefixes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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


def cut(walk: Sequence[Trial], mode: str, count: int) -> Lanes:
    """Ordered trials as `count` lanes at most; where nothing is shared, of about equally many tokens."""
    prompts = [trial.prompt for trial in walk]
    shared = reused(prompts) if mode in SHARING else [0] * len(prompts)
    return make_lanes([prompt.tokens for prompt in prompts], shared, count)
