"""Bet on units that are judged one after another, so that every look at them may decide.

Each of two bets grows only if its claim is true. If the claim is false, it ever exceeds 1 / alpha
with a probability of at most alpha (Ville 1939, Etude critique de la notion de collectif, chapter
V). A unit is a pair, or a whole haystack, whose mean loss counts: then the bet holds however the
prompts of a haystack are correlated.

For planned units the bets are on the mean over all of them, since these are drawn without
replacement in a seeded order (Waudby-Smith and Ramdas 2020, NeurIPS 33, section 3); when the last
is seen, that mean is known. For new haystacks they are on the mean of all that the source could
give.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log

import numpy as np

from needlemap.stats import Array
from needlemap.stats.verdicts import FAIL, HIGH_ALPHA, LOW_ALPHA, NOT_ENOUGH_DATA, PASS, Word

BETS = np.array([0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9])
# `further_haystacks` looks ahead at most so many haystacks.
FARTHEST = 20_000
# If one haystack in 20 loses everything, fewer than these are drawn without such a haystack in
# more than 2.5 % of runs: they show nothing about new haystacks.
FEWEST_NEW = 72


def log_wealth(values: Array, bound: float, planned: int | None = None) -> Array:
    """Return the log of the bet that the mean of values lies above a bound: (looks,).

    The bet is the mean of BETS, each 1 + g (x - c) / c, c being the mean of the values still to
    come if the mean of all were the bound. It is infinite once no values to come could bring
    the mean down to the bound.

    Args:
        values: of units in their order, (looks,) in [0, 1].
        bound: in [0, 1].
        planned: how many units these are drawn from without replacement; None for no end.
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
    """Two bets on the loss of units in their order.

    Attributes:
        no_worse: log of the bet that less than the margin is lost, after each unit.
        worse: log of the bet that more is lost.
        alphas: how often each claim may be false.
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
        """Bet on units' losses.

        Args:
            losses: in [-1, 1], with missing answers counted against B, and for B.
            margin: the loss that is allowed, a share.
            planned: as in `log_wealth`.
            low_alpha: how often the claim of a larger loss may be false.
        """
        against, in_favour = (np.array(side, dtype=np.float64) for side in losses)
        return cls(
            no_worse=log_wealth((1 - against) / 2, (1 - margin) / 2, planned),
            worse=log_wealth((1 + in_favour) / 2, (1 + margin) / 2, planned),
            alphas=(HIGH_ALPHA, low_alpha),
        )

    def won(self, count: int) -> list[Word]:
        """Return the claims whose bets have won within `count` units: once won stays won."""
        return [word for word, wins, goal in self._claims if wins[:count].max(initial=-inf) >= goal]

    @property
    def _claims(self) -> list[tuple[Word, Array, float]]:
        """Return for each of the two claims its word, the log of its bet, and its goal."""
        return [
            (PASS, self.no_worse, -log(self.alphas[0])),
            (FAIL, self.worse, -log(self.alphas[1])),
        ]

    @property
    def first(self) -> tuple[int, Word]:
        """Return the number of units after which a bet has first won, and its word.

        If no bet has won, the number of all units and NOT ENOUGH DATA are returned.
        """
        wins = [
            (int(index) + 1, word)
            for word, log_wins, goal in self._claims
            for index in np.flatnonzero(log_wins >= goal)[:1]
        ]
        return min(wins, default=(len(self.worse), NOT_ENOUGH_DATA))


def further_haystacks(losses: Sequence[float], margin: float) -> int | None:
    """Return the further haystacks after which an endless bet wins, if losses stay as they are.

    Without any losses they are taken to be 0. If more than FARTHEST are needed, None is returned.

    >>> further_haystacks([], 0.02), further_haystacks([], 0.1)
    (287, 55)
    """
    mean = sum(losses) / len(losses) if losses else 0.0
    counts = []
    for sign, alpha in ((-1.0, HIGH_ALPHA), (1.0, LOW_ALPHA)):
        bound = (1 + sign * margin) / 2
        values = (1 + sign * np.array([*losses, mean])) / 2
        log_growth = np.log1p(BETS * ((values - bound) / bound)[:, None])
        log_step = log_growth[:-1].mean(axis=0) if losses else log_growth[-1]
        count = _steps_to_win(log_growth[:-1].sum(axis=0), log_step, goal=-log(alpha))
        if count is not None:
            counts.append(count)
    return min(counts, default=None)


def _steps_to_win(log_start: Array, log_step: Array, goal: float) -> int | None:
    """Return after how many equal steps the mean of several bets reaches a goal.

    If more than FARTHEST are needed, None is returned.

    Args:
        log_start: The log of each bet now, (bets,).
        log_step: What a step adds to each, (bets,).
        goal: The log of the goal.
    """

    def has_won(steps: int) -> bool:
        log_mean = np.logaddexp.reduce(log_start + steps * log_step) - log(len(BETS))
        return bool(log_mean >= goal)

    if has_won(1):
        return 1
    # The log of a mean of exponentials is convex in the steps: once it is above the goal after it
    # was below, it stays there, so that halving finds the first such step.
    steps = range(1, FARTHEST + 1)
    index = bisect_left(steps, True, key=has_won)
    return steps[index] if index < len(steps) else None
