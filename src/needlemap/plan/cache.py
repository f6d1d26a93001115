"""A server's prefix cache, simulated: would it keep the tree of this run?

A prompt reuses the leading blocks that are still there. The least recently used block goes first, and of one
prompt the last, since without those before it it is of no use. That is how vLLM, SGLang, LMDeploy and the
providers' prompt caches work, up to their details.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, takewhile

from needlemap.plan.lanes import Lanes


def block_keys(sizes: Sequence[int], shared: Sequence[int], block_tokens: int) -> list[list[int]]:
    """For prompts in walk order, the keys of their full blocks: equal keys are equal prefixes.

    shared: tokens each prompt has in common with the one before, in walk order.
    """
    fresh, keys, before = count(), [], list[int]()
    for size, common in zip(sizes, shared, strict=True):
        kept = before[: common // block_tokens]
        before = [*kept, *(next(fresh) for _ in range(size // block_tokens - len(kept)))]
        keys.append(before)
    return keys


def interleaved(lanes: Lanes) -> Iterator[int]:
    """The order in which lanes of equal speed send their prompts: one of each in turn."""
    for step in range(max((stop - start for start, stop in lanes.bounds), default=0)):
        for start, stop in lanes.bounds:
            if start + step < stop:
                yield start + step


def cached_tokens(
    keys: Mapping[int, Sequence[int]] | Sequence[Sequence[int]],
    order: Iterable[int],
    capacity_tokens: int,
    block_tokens: int,
) -> int:
    """Prompt tokens that a cache of that capacity would serve, asked in that order."""
    capacity, held, hits = capacity_tokens // block_tokens, OrderedDict[int, None](), 0
    for place in order:
        hits += sum(1 for _ in takewhile(held.__contains__, keys[place]))
        for key in reversed(keys[place]):
            held[key] = None
            held.move_to_end(key)
        while len(held) > capacity:
            held.popitem(last=False)
    return hits * block_tokens
