"""Cut a walk into lanes: contiguous pieces, what each one costs, and the queue that they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from needlemap.plan.cover import ALONE
from needlemap.plan.tree import Side, shared

if TYPE_CHECKING:
    from needlemap.trials import Trial

T = TypeVar("T")
# Prompt tokens that are computed in about the time that a short answer takes.
ANSWER_TOKENS = 500


def laned(
    walk: Sequence[Trial], mode: str, count: int, side: Side = None
) -> tuple[list[Trial], Lanes]:
    """Return ordered trials with what they share with the one before in their lane, and the lanes.

    There are at most `count` lanes. If nothing is shared, they have about equally many tokens.
    """
    common = shared(walk, mode, side)
    lanes = make_lanes([trial.prompt.asked_tokens for trial in walk], common, count=count)
    if mode == ALONE:
        return list(walk), lanes

    for start, _ in lanes.bounds:
        common[start] = 0
    pairs = zip(walk, common, strict=True)
    return [replace(trial, shared_tokens=tokens) for trial, tokens in pairs], lanes


@dataclass(frozen=True, slots=True)
class Lanes:
    """A walk cut into pieces.

    Attributes:
        bounds: (start, stop) of each lane in the walk.
        tokens: How many tokens each lane computes.
        loss: How many more tokens are computed than by a single lane.
    """

    bounds: tuple[tuple[int, int], ...]
    tokens: tuple[int, ...]
    loss: int

    @property
    def idle(self) -> float:
        """Return the share of the lanes' time that they wait for the longest one, in [0, 1]."""
        longest = max(self.tokens, default=0)
        if not longest:
            return 0.0
        return 1 - sum(self.tokens) / (longest * len(self.tokens))


def speed_up(sizes: Sequence[int], shared: Sequence[int], lanes: Lanes) -> float:
    """Return how many times faster parallel lanes are than one cache that walks all prompts."""
    longest = max(lanes.tokens, default=0)
    if not longest:
        return 1.0
    return (sum(sizes) - sum(shared)) / longest


def count_useful_lanes(
    sizes: Sequence[int], shared: Sequence[int], count: int, share: float
) -> int:
    """Return the most lanes, up to `count`, that are still worth one worker each.

    share: how many times faster than one lane each worker must make the walk, in (0, 1].
    """

    def is_worth(lanes: int) -> bool:
        return speed_up(sizes, shared, make_lanes(sizes, shared, lanes)) >= share * lanes

    low = 1
    high = max(1, count)
    if is_worth(high):
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if is_worth(middle):
            low = middle
        else:
            high = middle - 1
    return low


def make_lanes(sizes: Sequence[int], shared: Sequence[int], count: int) -> Lanes:
    """Return at most `count` lanes, so that the longest one is as short as possible.

    Bisect the longest lane's tokens, and fill lanes greedily.

    sizes: tokens of each prompt in the order of the walk. shared: tokens that each prompt has in
    common with the one before.
    """
    if not sizes:
        return Lanes(bounds=(), tokens=(), loss=0)

    low = max(sizes)
    high = max(low, sum(size - common for size, common in zip(sizes, shared, strict=True)))
    while low < high:
        middle = (low + high) // 2
        if len(_lane_starts(sizes, shared, most=middle)) <= count:
            high = middle
        else:
            low = middle + 1

    starts = _lane_starts(sizes, shared, most=low)
    bounds = tuple(zip(starts, [*starts[1:], len(sizes)], strict=True))
    tokens = tuple(
        sizes[start] + sum(sizes[place] - shared[place] for place in range(start + 1, stop))
        for start, stop in bounds
    )
    return Lanes(bounds=bounds, tokens=tokens, loss=sum(shared[start] for start in starts))


def _lane_starts(sizes: Sequence[int], shared: Sequence[int], most: int) -> list[int]:
    """Return where lanes start if each takes prompts as long as it computes at most `most`."""
    starts = [0]
    load = sizes[0]
    for place in range(1, len(sizes)):
        load += sizes[place] - shared[place]
        if load > most:
            starts.append(place)
            load = sizes[place]
    return starts


class Halves:
    """Let a lane that is done take the later half of the longest lane, if all share one cache."""

    def remaining_work(self, start: int, stop: int) -> int:
        """Return the work of the items in start..stop, in items."""
        return stop - start

    def split(self, start: int, stop: int) -> int | None:
        """Return the first of the items in start..stop that another lane takes over, or None."""
        if stop <= start:
            return None
        return (start + stop) // 2


class Costs(Halves):
    """Let a lane that is done take over items, if each lane has a cache of its own.

    It takes only items that bring the end nearer. It takes none once the tokens that are computed
    again exceed a share of what the walk saves.

    Args:
        own: Tokens that each item takes in the lane that asked the one before it.
        anew: Tokens that it takes in another lane.
    """

    SHARE = 0.01

    def __init__(self, own: Sequence[int], anew: Sequence[int]) -> None:
        self._own_tokens = own
        self._anew_tokens = anew
        # Tokens that may still be computed again.
        self._spare_tokens = self.SHARE * (sum(anew) - sum(own))

    def remaining_work(self, start: int, stop: int) -> int:
        """Return the work of the items in start..stop in their own lane, in tokens."""
        return sum(self._own_tokens[start:stop])

    def split(self, start: int, stop: int) -> int | None:
        """Return the first of the items in start..stop that another lane takes over, or None.

        Both lanes are then done as soon as possible. The result is None if no takeover brings that
        time nearer, or if each would compute too many tokens again.
        """
        best_place = None
        soonest_end = self.remaining_work(start, stop)
        kept_tokens = 0
        given_tokens = soonest_end
        for place in range(start, stop):
            given_tokens -= self._own_tokens[place]
            end = max(kept_tokens, self._anew_tokens[place] + given_tokens)
            if end < soonest_end and self._repeated_tokens(place) <= self._spare_tokens:
                best_place = place
                soonest_end = end
            kept_tokens += self._own_tokens[place]

        if best_place is not None:
            self._spare_tokens -= self._repeated_tokens(best_place)
        return best_place

    def _repeated_tokens(self, place: int) -> int:
        """Return the tokens that another lane computes again."""
        return self._anew_tokens[place] - self._own_tokens[place]


class LaneQueue(Generic[T]):
    """The items of one or more walks, each cut into lanes.

    A walk starts once all items of the one before are taken. A lane that is done takes over a part
    of the longest one that is left: both parts stay contiguous, and no worker waits. If nothing is
    worth taking (`Costs`), it starts on the next walk.

    Args:
        walks: The items of each walk, and its lanes.
        most: How many workers take items at a time, if walks have that many lanes together.
        takeover: Returns how lanes take over from each other in a walk of these items.
    """

    def __init__(
        self,
        *walks: tuple[Sequence[T], Lanes],
        most: int = 0,
        takeover: Callable[[Sequence[T]], Halves] = lambda _: Halves(),
    ) -> None:
        counts = [len(lanes.bounds) for _, lanes in walks]
        self._width = max(min(most, sum(counts)), *counts, 0)
        self._walks = [(items, self._bounds(lanes), takeover(items)) for items, lanes in walks]

    def __len__(self) -> int:
        return self._width

    def next_item(self, lane: int) -> T | None:
        """Return the next item for a lane, or None if there is nothing left for it."""
        for items, bounds, takeover in tuple(self._walks):
            place = _next_place(bounds, lane, takeover)
            if place is not None:
                return items[place]
            if all(start == stop for start, stop in bounds):
                self._walks.pop(0)
        return None

    def _bounds(self, lanes: Lanes) -> list[list[int]]:
        """Return the [start, stop] of each lane that is left to take: all of it at first.

        A short walk has fewer lanes than there are workers. The others are empty.
        """
        bounds = [list(bound) for bound in lanes.bounds]
        return bounds + [[0, 0] for _ in range(self._width - len(bounds))]


def _next_place(bounds: list[list[int]], lane: int, takeover: Halves) -> int | None:
    """Take the next place of a lane off its bounds, and return it, or None if there is none."""
    lane_bounds = bounds[lane]
    if lane_bounds[0] == lane_bounds[1]:
        longest_bounds = max(bounds, key=lambda bound: takeover.remaining_work(*bound))
        place = takeover.split(*longest_bounds)
        if place is None:
            return None
        lane_bounds[:] = [place, longest_bounds[1]]
        longest_bounds[1] = place

    place = lane_bounds[0]
    lane_bounds[0] += 1
    return place
