"""Bound the rate of rare events, and bet on what loses more.

All of it is valid however often one looks. The unit of the bound is whatever shares nothing with
others: a family of sessions. Its value is the share of its requests that were faulty, so faults
inside a family may come in runs of any length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import comb, exp, inf, lgamma, log, log1p

# How often the bound may be too low, at any look.
ALPHA = 0.05
# The mixture over rates that the bets are on is beta(1, 500).
FEW, MANY = 1.0, 500.0
# Odds of a loss behind a faulty sequence against one without it.
ODDS = (100.0, 8.0)
# Rates at which the storm lost discordant pairs.
RATES = (0.6, 0.75, 0.9, 0.97)

# Lost behind the sequence, lost without it, askings of each.
Block = tuple[int, int, int]


def log_mixture(faulty: float, n: float, rate: float) -> float:
    """Return the log of the bet against a rate, with beta(1, 500) mixed over all rates.

    `faulty` is the sum of n values in [0, 1]. For values that are no 0 or 1 the bet is a fair
    one too: each factor is convex in its value, so it lies below the mean of its ends.
    """
    faultless = n - faulty
    mixture = _log_beta(FEW + faulty, MANY + faultless) - _log_beta(FEW, MANY)
    single = (faulty * log(rate) if faulty else 0.0) + (
        faultless * log1p(-rate) if faultless else 0.0
    )
    return mixture - single


@lru_cache(maxsize=4_096)
def highest_rate(faulty: float, n: int, alpha: float = ALPHA) -> float:
    """Return the rate above which bets have won at any look.

    Robbins 1970, Annals of Mathematical Statistics 41:1397; Ville 1939.

    >>> round(100 * highest_rate(0, 2_310), 3), highest_rate(0, 0)
    (0.204, 1.0)
    """
    if n == 0:
        return 1.0
    goal = -log(alpha)
    low, high = faulty / n, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if 0 < middle < 1 and log_mixture(faulty, n, middle) >= goal:
            high = middle
        else:
            low = middle
    return high


def units_needed(rate: float) -> int:
    """Return the number of units without any fault that bring the bound below a rate.

    >>> units_needed(0.005), highest_rate(0, units_needed(0.005)) < 0.005
    (787, True)
    """
    low, high = 0, 1
    while highest_rate(0.0, high) >= rate:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if highest_rate(0.0, middle) < rate:
            high = middle
        else:
            low = middle
    return high


def _log_beta(a: float, b: float) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


def log_blocks(blocks: Iterable[Block]) -> float:
    """Return the log of the bet that sequences lose more than the same prompts cold and salted.

    Each block was asked as often in both ways. If the sequence matters nothing, any share-out
    of its losses between the two is as likely as any other, given how many there are (Fisher
    1935, Journal of the Royal Statistical Society 98:39); the bet is on odds of 100 and of 8.

    >>> round(log_blocks([(2, 0, 2), (3, 0, 3)]), 1), log_blocks([(0, 0, 5)]), log_blocks([])
    (4.3, 0.0, 0.0)
    """
    blocks = list(blocks)
    return mean_of_logs([sum(_log_block(block, odds) for block in blocks) for odds in ODDS])


@lru_cache(maxsize=4_096)
def _log_block(block: Block, odds: float) -> float:
    behind, without, n = block
    loss_count = behind + without
    possible = range(max(0, loss_count - n), min(n, loss_count) + 1)
    ways = {k: comb(n, k) * comb(n, loss_count - k) for k in possible}
    total = sum(ways.values())
    weighted_ways = sum(count * odds**k for k, count in ways.items())
    return log(odds**behind * total / weighted_ways)


def log_pairs(lost: int, gained: int) -> float:
    """Return the log of the bet that a storm loses more prompts than the same ones cold.

    The pairs of equal prompts are asked in the same minutes, so that a discordant pair is a
    fair coin if the storm does not matter.

    >>> round(log_pairs(12, 0), 1), round(log_pairs(6, 6), 1)
    (6.9, -1.4)
    """
    wins = [lost * log(2 * rate) + gained * log(2 * (1 - rate)) for rate in RATES]
    return mean_of_logs(wins)


def log_increase(before: tuple[int, int], since: tuple[int, int]) -> float:
    """Return the log of the bet that more is lost since an event than before it.

    before, since: the number of losses, and of prompts.

    >>> round(log_increase((0, 50), (30, 100)), 1), log_increase((5, 50), (10, 100)) < 0
    (8.9, True)
    """
    (lost_before, n_before), (lost_since, n_since) = before, since
    if not n_before or not n_since or lost_since / n_since <= lost_before / n_before:
        return -inf
    return _log_two_rates(before, since)


def log_decrease(before: tuple[int, int], since: tuple[int, int]) -> float:
    """Return the log of the bet that more is lost before an event than since.

    >>> round(log_decrease((30, 100), (0, 50)), 1), log_decrease((0, 50), (30, 100))
    (8.9, -inf)
    """
    return log_increase(since, before)


def _log_two_rates(*counts: tuple[int, int]) -> float:
    """Return the log of the bet on two rates against one.

    Each rate is mixed over beta(1/2, 1/2), against the single rate that fits all best: fair
    whatever that is (Wasserman, Ramdas and Balakrishnan 2020, PNAS 117:16880).
    """
    two_rates = sum(
        _log_beta(0.5 + lost, 0.5 + n - lost) - _log_beta(0.5, 0.5) for lost, n in counts
    )
    lost = sum(lost for lost, _ in counts)
    n = sum(n for _, n in counts)
    rate = lost / n
    return two_rates - lost * log(rate) - ((n - lost) * log1p(-rate) if n > lost else 0.0)


def mean_of_logs(logs: Sequence[float]) -> float:
    """Return the log of the mean of values that are given as logs."""
    largest = max(logs, default=-inf)
    if largest == -inf:
        return largest
    return largest + log(sum(exp(value - largest) for value in logs) / len(logs))


def detectable_rate(pairs: int, gained: int, goal: float) -> float:
    """Return the least rate of losses that so many pairs would have shown in the mean.

    The rate is in addition to that of cold prompts. If no rate would have been shown, it is 1.
    gained: the pairs that were lost cold alone, which is the noise.
    """
    noise = gained / pairs if pairs else 1.0
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        expected = log_pairs(round(pairs * min(1.0, noise + middle)), gained)
        if expected >= goal:
            high = middle
        else:
            low = middle
    return high
