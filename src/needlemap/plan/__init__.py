"""Plan a run: the prefix tree of its prompts, the walk that computes each token once, its lanes.

Prompts are compared by their spans, and by token ids only where the spans differ. So two prompts
of 100,000 tokens are compared in a few microseconds. Sorted by token ids, prompts are a
depth-first walk of their tree. A single cache that is cropped and extended then computes as many
tokens as the tree has nodes, and no order needs fewer.

Some caches must be told at which lengths prompts part:

* Recurrent models keep a copy of their state there (`with_partings`).
* Providers expect breakpoints (`with_breakpoints`). A prompt marks the end of what it shares with
  the one before, to read it, and with the one after, to write it. Providers cache nothing below a
  minimum length.

A run is in that order if its mode shares prefixes. If a limit may stop it early, it is walked
length by length, so that what was asked is a map. A walk is cut into lanes: contiguous pieces, one
for each concurrent request or replica, so that prefixes stay shared. The first prompt of a lane is
computed whole.
"""

from needlemap.plan.lanes import (
    Costs,
    Halves,
    LaneQueue,
    Lanes,
    T,
    count_useful_lanes,
    laned,
    make_lanes,
    speed_up,
)
from needlemap.plan.tree import (
    LEAST_TOKENS,
    Side,
    broken,
    by_length,
    in_common,
    ordered,
    parting,
    partings,
    reused,
    shared,
    shared_tokens,
    walk_order,
    with_breakpoints,
    with_partings,
)

__all__ = [
    "LEAST_TOKENS",
    "Costs",
    "Halves",
    "LaneQueue",
    "Lanes",
    "Side",
    "T",
    "broken",
    "by_length",
    "count_useful_lanes",
    "in_common",
    "laned",
    "make_lanes",
    "ordered",
    "parting",
    "partings",
    "reused",
    "shared",
    "shared_tokens",
    "speed_up",
    "walk_order",
    "with_breakpoints",
    "with_partings",
]
