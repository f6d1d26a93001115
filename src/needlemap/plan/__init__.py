"""The plan of a run: the prefix tree of its prompts, the walk that computes each token once,
and its lanes.

Prompts are compared by their spans, so that two prompts of 100,000 tokens cost a few
microseconds, and by token ids where the spans part. Sorted by token ids, prompts are a
depth-first walk of their tree: a single cache, cropped and extended, then computes as many
tokens as the tree has nodes, the least there is.

Some caches must be told where prompts part. Recurrent models keep a copy of their state there
(`with_partings`). Providers want breakpoints: a prompt marks the end of what it shares with
the one before (to be read) and with the one behind (to be written for it). They keep nothing
shorter than a least length.

A run is in that order where its mode shares prefixes. Where a limit may cut it short, it is
walked length by length, so that what was asked is a map. A walk is cut into lanes, contiguous
pieces, one per concurrent request or replica, so that sharing survives: the first prompt of a
lane is computed whole.
"""

from needlemap.plan.lanes import (
    Costs,
    Halves,
    LaneQueue,
    Lanes,
    T,
    laned,
    make_lanes,
    speed_up,
    useful,
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
    "useful",
    "walk_order",
    "with_breakpoints",
    "with_partings",
]
