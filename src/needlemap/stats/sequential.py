"""Bets on whole haystacks: a verdict that may be looked at after each of them.

Each of two bets wins only where its claim is true, so that it ever comes above 1 / alpha with
a chance of at most alpha where the claim is false (Ville 1939, Etude critique de la notion de
collectif, chapter V). A bet is on the mean difference of one haystack, so it holds however the
prompts of a haystack hang together.

On these prompts: the planned haystacks are drawn without replacement, in a seeded order, and
the bets are on the mean over all of them (Waudby-Smith and Ramdas 2020, NeurIPS 33, section
3); when the last is seen, that mean is known. On new haystacks: they are drawn from all that
the source could give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log

import numpy as np

from needlemap.stats import Array
from needlemap.stats.verdicts import FAIL, HIGH_ALPHA, LOW_ALPHA, NOT_ENOUGH_DATA, PASS, Word

BETS = np.array([0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9])
FARTHEST = 20_000  # further haystacks that are looked ahead
# Where one haystack in 20 is dead, fewer may be drawn without a dead one in more than 2.5 % of
# runs: nothing is said of new haystacks then.
FEWEST_NEW = 72
_CLAIMS: tuple[Word, Word] = (PASS, FAIL)


def log_wealth(values: Array, bound: float, planned: int | None = None) -> Array:
    """Log of the bet that the mean of haystacks' values lies above a bound, after each:
    (looks,).

    values: (looks,) in [0, 1]. planned: of how many haystacks these are drawn without
    replacement; None for endlessly many. The mean of BETS, each 1 + g (x - c) / c, c being
    what the next value would be in the mean if all of them had the bound for their mean.
    Infinite where no values left could bring the mean down to the bound.
    """
    drawn = values.cumsum()
    if planned is None:
        centre = np.full(len(values), bound)
        beyond = np.zeros(len(values), dtype=bool)
    else:
        centre = (planned * bound - drawn + values) / (planned - np.arange(len(values)))
        beyond = drawn > planned * bound + 1e-9
    safe = np.where(centre > 1e-12, centre, 1.0)
    grown = np.log1p(BETS * ((values - safe) / np.maximum(safe, 1e-12))[:, None])
    wins = np.logaddexp.reduce(grown.cumsum(axis=0), axis=-1) - log(len(BETS))
    wins[np.logical_or.accumulate(beyond)] = inf
    return np.asarray(wins)


@dataclass(frozen=True, slots=True)
class Bets:
    """What whole haystacks say of a loss, each one bet on its mean loss.

    no_worse, worse: logs of the bets after each haystack: that less than the margin is lost,
    and more. alphas: how often each claim may be false.
    """

    no_worse: Array
    worse: Array
    alphas: tuple[float, float]

    @classmethod
    def of(
        cls,
        losses: tuple[Sequence[float], Sequence[float]],
        margin: float,
        planned: int | None = None,
        low_alpha: float = LOW_ALPHA,
    ) -> Bets:
        """losses: haystacks' mean losses in [-1, 1], what misses counted against B and for it.
        margin: a share. planned: as in `log_wealth`."""
        against, in_favour = (np.array(each, dtype=np.float64) for each in losses)
        no_worse = log_wealth((1 - against) / 2, (1 - margin) / 2, planned)
        worse = log_wealth((1 + in_favour) / 2, (1 + margin) / 2, planned)
        return cls(no_worse, worse, (HIGH_ALPHA, low_alpha))

    @property
    def looks(self) -> list[tuple[int, Word]]:
        """Haystacks seen and the word, wherever one of the bets has won."""
        goals = [-log(alpha) for alpha in self.alphas]
        found = list[tuple[int, Word]]()
        for word, wins, goal in zip(_CLAIMS, (self.no_worse, self.worse), goals, strict=True):
            found += [(int(at) + 1, word) for at in np.flatnonzero(wins >= goal)]
        return sorted(found)

    def won(self, count: int) -> list[Word]:
        """The claims whose bets have won at some look at so many haystacks, or before: a bet
        that has won once has won."""
        goals = [-log(alpha) for alpha in self.alphas]
        pairs = zip(_CLAIMS, (self.no_worse, self.worse), goals, strict=True)
        return [word for word, wins, goal in pairs if wins[:count].max(initial=-inf) >= goal]

    @property
    def first(self) -> tuple[int, Word]:
        """The first look at which one of them has won, and its word; all looks and NOT ENOUGH
        DATA where none has."""
        looks = self.looks
        return looks[0] if looks else (len(self.worse), NOT_ENOUGH_DATA)


def further(losses: Sequence[float], margin: float) -> int | None:
    """Further haystacks after which a bet without an end to them has won, if they go on as
    these; None beyond FARTHEST. Without any: if all answers are equal.

    >>> further([], 0.02), further([], 0.1)
    (287, 55)
    """
    mean = sum(losses) / len(losses) if losses else 0.0
    steps = np.arange(1, FARTHEST + 1)
    found = []
    for sign, alpha in ((-1.0, HIGH_ALPHA), (1.0, LOW_ALPHA)):
        bound = (1 + sign * margin) / 2
        values = (1 + sign * np.array([*losses, mean])) / 2
        grown = np.log1p(BETS * ((values - bound) / bound)[:, None])
        each = grown[:-1].mean(axis=0) if losses else grown[-1]
        ahead = grown[:-1].sum(axis=0) + steps[:, None] * each
        won = np.logaddexp.reduce(ahead, axis=-1) - log(len(BETS)) >= -log(alpha)
        found += [int(won.argmax()) + 1] if won.any() else []
    return min(found, default=None)
