"""How often is a verdict of `compare`, `compare --sequential`, `run --until` or `ab` wrong, and how
often does it say what is true?

Pairs are drawn as two engines would answer them, and judged by the product's own
`needlemap.stats.judging.judge`, in each of its three ways: one look (compare, ab of so many pairs),
looks after each of the planned haystacks (compare --sequential, run --until), and looks without an
end (ab --until decided). `figures` returns all shares by name; `benchmarks/green.py` has the bars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from needlemap.stats import Array
from needlemap.stats.judging import PairedLoss, judge
from needlemap.stats.looks import endless_looks
from needlemap.stats.looks import planned_looks as planned
from needlemap.stats.rows import Rows
from needlemap.stats.verdicts import FAIL, PASS

MARGIN = 0.02
ASKINGS = 4  # a lost answer is asked again three times
Random = np.random.Generator
Way = Callable[[Rows, float], PairedLoss]


def one_look(rows: Rows, margin: float) -> PairedLoss:
    """As `compare`."""
    return judge(rows, margin)


def planned_looks(rows: Rows, margin: float) -> PairedLoss:
    """As `compare --sequential` and `run --until`."""
    return judge(rows, margin, looks=planned)


def without_end(rows: Rows, margin: float) -> PairedLoss:
    """As `ab --until decided`."""
    return judge(rows, margin, looks=endless_looks)


WAYS: tuple[Way, ...] = (one_look, planned_looks, without_end)


@dataclass(frozen=True)
class Design:
    """So many haystacks, lengths and prompts of each."""

    haystacks: int
    prompts: int
    lengths: int = 1

    def rows(self, losses: Array) -> Rows:
        """Pairs with losses (haystacks, prompts) in -1, 0 and 1; prompts take the lengths in
        turn."""
        lost = losses.ravel()
        right = np.where(np.isnan(lost), np.nan, 1.0)
        stack = np.repeat(np.arange(self.haystacks), self.prompts)
        length = np.tile(1_000 * (1 + np.arange(self.prompts) % self.lengths), self.haystacks)
        first, second = np.where(lost < 0, 0.0, right), np.where(lost > 0, 0.0, right)
        family = np.zeros(len(lost), dtype=np.int64)
        return Rows(("",), family, stack, length, first, second, np.ones(len(lost), dtype=bool))


DESIGNS = (Design(3, 88, 8), Design(6, 60, 6), Design(12, 60, 6), Design(40, 24, 8))
Draw = Callable[[Random, Design], Array]


def flips(share: float, loss: float = 0.0) -> Draw:
    """A share of pairs changes, up or down alike; a loss comes on top."""

    def draw(random: Random, design: Design) -> Array:
        chance = random.random((design.haystacks, design.prompts))
        down, up = share / 2 + loss, share / 2
        return (chance < down).astype(float) - (chance > 1 - up)

    return draw


def coins(part: float) -> Draw:
    """One haystack in ten moves a part of its pairs, all up or all down by a coin."""

    def draw(random: Random, design: Design) -> Array:
        size = design.haystacks, design.prompts
        moved = (random.random((size[0], 1)) < 0.1) & (random.random(size) < part)
        return moved * random.choice([-1.0, 1.0], (size[0], 1))

    return draw


def dead(share: float) -> Draw:
    """So many haystacks are all lost."""

    def draw(random: Random, design: Design) -> Array:
        lost = random.random((design.haystacks, 1)) < share
        return np.repeat(lost, design.prompts, axis=1).astype(float)

    return draw


def share_of(
    said: Callable[[PairedLoss], bool],
    way: Way,
    design: Design,
    draw: Draw,
    runs: int,
    seed: int,
    margin: float = MARGIN,
) -> float:
    """In how many of so many runs something is said."""
    random = np.random.default_rng(seed)
    return sum(said(way(design.rows(draw(random, design)), margin)) for _ in range(runs)) / runs


def is_worse(found: PairedLoss) -> bool:
    """Whether B fails."""
    return found.word == FAIL


def passes(found: PairedLoss) -> bool:
    """Whether B passes."""
    return found.word == PASS


def passes_new(found: PairedLoss) -> bool:
    """Whether B passes also on new haystacks."""
    return passes(found) and found.scope == "new"


def each_way(
    said: Callable[[PairedLoss], bool], designs: tuple[Design, ...], draws: tuple[Draw, ...]
) -> Iterator[Callable[[int, int], float]]:
    """A share for each way, design and draw, as functions of runs and seed."""
    for way in WAYS:
        for design in designs:
            for draw in draws:
                yield lambda runs, seed, w=way, d=design, r=draw: share_of(
                    said, w, d, r, runs, seed
                )  # type: ignore[misc]


def false_worse(runs: int, seed: int) -> dict[str, float]:
    """Equal engines, and engines that lose exactly the margin, called worse: the most often."""
    equal = flips(0.0), flips(0.02), flips(0.1), coins(0.1), coins(0.5)
    edge = flips(0.0, MARGIN), flips(0.02, MARGIN)
    found = [share(runs, seed) for share in each_way(is_worse, DESIGNS, equal)]
    found += [share(runs, seed) for share in each_way(is_worse, DESIGNS[1:], edge)]
    return {"false_worse_most": max(found)}


def false_no_worse_new(runs: int, seed: int) -> dict[str, float]:
    """Engines that lose the margin or more of new haystacks, called no worse there: the most."""
    designs = (Design(72, 6), Design(120, 4), Design(400, 2))
    draws = flips(0.0, MARGIN), flips(0.02, MARGIN), dead(MARGIN), dead(0.05)
    return {
        "false_no_worse_new_most": max(
            share(runs, seed) for share in each_way(passes_new, designs, draws)
        )
    }


def equal_and_worse(runs: int, seed: int) -> dict[str, float]:
    """200 equal pairs are no worse by 2 points; 1,000 pairs that lose 5 are worse: the least, over
    how the pairs are spread. Looks without an end are for more pairs than 200. With as few as 20
    haystacks, which say little of how haystacks differ, fewer losses are sure: a figure of its
    own."""
    equal = [Design(100, 2, 4), Design(20, 10, 5), Design(8, 25, 5)]
    lossy = [Design(500, 2, 4), Design(100, 10, 5), Design(40, 25, 5)]
    return {
        "no_worse_equal_200": min(
            share_of(passes, way, each, flips(0.0), min(runs, 20), seed)
            for way in WAYS[:2]
            for each in equal
        ),
        # The least of several shares: of few runs it lies below what each of them is.
        "worse_5_1000": min(_called_worse(each, 4 * runs, seed) for each in lossy),
        "worse_5_1000_of_20_haystacks": _called_worse(Design(20, 50, 5), runs, seed),
    }


def _called_worse(design: Design, runs: int, seed: int) -> float:
    """How often a loss of 5 points with 2 % flips is called worse: the least of both ways."""
    return min(share_of(is_worse, way, design, flips(0.02, 0.05), runs, seed) for way in WAYS[:2])


def missing(runs: int, seed: int, misses: float = 0.015) -> dict[str, float]:
    """500 pairs of equal engines, each request of which is lost with such a chance and asked again
    three times: no worse, and called worse though nothing is."""
    design, random, passed, worse = Design(100, 5, 5), np.random.default_rng(seed), 0, 0
    for _ in range(runs):
        rows = design.rows(flips(0.0)(random, design))
        for scores in (rows.first, rows.second):
            scores[random.random(len(scores)) < misses**ASKINGS] = np.nan
        found = one_look(rows, MARGIN)
        passed += passes(found)
        for scores in (rows.first, rows.second):  # nobody asked again
            scores[random.random(len(scores)) < misses] = np.nan
        worse += is_worse(one_look(rows, MARGIN))
    return {"no_worse_missing": passed / runs, "false_worse_missing": worse / runs}


def dead_lengths(runs: int, seed: int) -> dict[str, float]:
    """Green though a length is half lost or more, by number of pairs from three on and length; and
    the length rule's own false alarms."""
    random, green = np.random.default_rng(seed), 0
    for _ in range(runs):
        repeats, lengths = int(random.integers(3, 12)), int(random.integers(2, 60))
        design = Design(repeats, lengths, lengths)
        losses, at = np.zeros((repeats, lengths)), int(random.integers(lengths))
        lost = random.permutation(repeats)[: int(random.integers(-(-repeats // 2), repeats + 1))]
        losses[lost, at] = 1
        margin = float(random.choice([0.02, 0.05, 0.1, 0.3]))
        green += sum(way(design.rows(losses), margin).word == "PASS" for way in WAYS)
    design = Design(6, 40, 40)
    false = share_of(lambda found: bool(found.lengths), one_look, design, flips(0.02), runs, seed)
    return {"dead_length_green": green, "dead_length_false": false}


def opposite(runs: int, seed: int) -> dict[str, float]:
    """Records of which one way says no worse and another worse, at the same margin: drifting,
    clustered and missing ones among them."""
    random, found = np.random.default_rng(seed), 0
    for _ in range(runs):
        design = Design(int(random.integers(1, 120)), int(random.integers(1, 30)), 3)
        draws = [flips(0.02), coins(0.5), dead(0.1), flips(0.1, 0.05)]
        losses = draws[int(random.integers(4))](random, design)
        if random.random() < 0.5:  # something breaks on the way
            losses[int(random.integers(design.haystacks)) :] = float(random.random() < 0.8)
        losses[random.random(losses.shape) < random.choice([0.0, 0.03])] = np.nan
        margin = float(random.choice([0.01, 0.02, 0.05, 0.2]))
        rows = design.rows(losses)
        words = {way(rows, margin).word for way in WAYS}
        words |= {judge(rows, margin, wanted="new").word}
        found += {PASS, FAIL} <= words
    return {"opposite": found}


def figures(runs: int = 400, seed: int = 23) -> dict[str, float]:
    """All of them."""
    found: dict[str, float] = {}
    for part in (
        false_worse,
        false_no_worse_new,
        equal_and_worse,
        missing,
        dead_lengths,
        opposite,
    ):
        found |= part(runs, seed)
    return found


if __name__ == "__main__":
    print(figures())
