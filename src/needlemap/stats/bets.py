"""Rare events: a bound of their rate, and bets on what loses more, all valid however often one
looks.

The unit of the bound is whatever shares nothing with others: a family of sessions. Its value
is the share of its requests that were faulty, so faults inside a family may come in runs of
any length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import comb, exp, inf, lgamma, log, log1p

ALPHA = 0.05  # how often the bound may be too low, at any look
FEW, MANY = 1.0, 500.0  # the mixture over rates that the bets are on: beta(1, 500)
ODDS = (100.0, 8.0)  # of a loss behind a faulty sequence against one without it
RATES = (0.6, 0.75, 0.9, 0.97)  # of discordant pairs that the storm lost


def log_mixture(faulty: float, n: float, rate: float) -> float:
    """Log of the bet that the rate is none other than this: beta(1, 500) mixed over all rates.

    faulty: the sum of n values in [0, 1]. For values that are no 0 or 1 the bet is a fair one
    too: each factor is convex in its value, so it lies below the mean of its ends.
    """
    ok = n - faulty
    mixed = _log_beta(FEW + faulty, MANY + ok) - _log_beta(FEW, MANY)
    own = (faulty * log(rate) if faulty else 0.0) + (ok * log1p(-rate) if ok else 0.0)
    return mixed - own


@lru_cache(maxsize=4_096)
def highest_rate(faulty: float, n: int, alpha: float = ALPHA) -> float:
    """The rate above which bets have won, at any time looked (Robbins 1970, Annals of
    Mathematical Statistics 41:1397; Ville 1939).

    >>> round(100 * highest_rate(0, 2_310), 3), highest_rate(0, 0)
    (0.204, 1.0)
    """
    goal = -log(alpha)
    low, high = (faulty / n if n else 0.0), 1.0
    if n == 0:
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if 0 < middle < 1 and log_mixture(faulty, n, middle) >= goal:
            high = middle
        else:
            low = middle
    return high


def needed(rate: float, alpha: float = ALPHA) -> int:
    """Units without any fault that bring the bound below a rate.

    >>> needed(0.005), highest_rate(0, needed(0.005)) < 0.005
    (787, True)
    """
    low, high = 0, 1
    while highest_rate(0.0, high, alpha) >= rate:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if highest_rate(0.0, middle, alpha) < rate else (middle, high)
    return high


def _log_beta(a: float, b: float) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


Block = tuple[int, int, int]  # lost behind the sequence, lost without it, askings of each


def log_blocks(blocks: Iterable[Block]) -> float:
    """Log of the bet that sequences lose more than the same prompts cold and salted.

    Each block was asked so often in both ways. If the sequence matters nothing, any share-out
    of its losses between the two is as likely as any other, given how many there are (Fisher
    1935, Journal of the Royal Statistical Society 98:39); the bet is on odds of 100 and of 8.

    >>> round(log_blocks([(2, 0, 2), (3, 0, 3)]), 1), log_blocks([(0, 0, 5)]), log_blocks([])
    (4.3, 0.0, 0.0)
    """
    rows = list(blocks)
    wins = [sum(_log_block(row, odds) for row in rows) for odds in ODDS]
    return mean_of_logs(wins)


@lru_cache(maxsize=4_096)
def _log_block(block: Block, odds: float) -> float:
    with_it, without, n = block
    lost = with_it + without
    ways = range(max(0, lost - n), min(n, lost) + 1)
    each = {k: comb(n, k) * comb(n, lost - k) for k in ways}
    total = sum(each.values())
    weighed = sum(count * odds**k for k, count in each.items())
    return log(odds**with_it * total / weighed)


def log_pairs(lost: int, gained: int) -> float:
    """Log of the bet that of pairs of equal prompts the storm's are lost more often than the
    cold ones, asked in the same minutes: a discordant pair is a fair coin if they are not.

    >>> round(log_pairs(12, 0), 1), round(log_pairs(6, 6), 1)
    (6.9, -1.4)
    """
    wins = [lost * log(2 * rate) + gained * log(2 * (1 - rate)) for rate in RATES]
    return mean_of_logs(wins)


def log_grown(before: tuple[int, int], since: tuple[int, int]) -> float:
    """Log of the bet that more is lost since an event than before it. before, since: how many
    were lost, of how many. Two rates, each mixed over beta(1/2, 1/2), against the single rate
    that fits all best: fair whatever that is (Wasserman, Ramdas and Balakrishnan 2020, PNAS
    117:16880).

    >>> round(log_grown((0, 50), (30, 100)), 1), log_grown((5, 50), (10, 100)) < 0
    (8.9, True)
    """
    (one, n), (two, m) = before, since
    if not n or not m or two / m <= one / n:
        return -inf
    apart = sum(
        _log_beta(0.5 + hit, 0.5 + of - hit) - _log_beta(0.5, 0.5) for hit, of in (before, since)
    )
    rate = (one + two) / (n + m)
    lost, right = one + two, n + m - one - two
    return apart - lost * log(rate) - (right * log1p(-rate) if right else 0.0)


def mean_of_logs(logs: Sequence[float]) -> float:
    """Return the log of the mean of values that are given as logs."""
    most = max(logs, default=-inf)
    if most == -inf:
        return most
    return most + log(sum(exp(each - most) for each in logs) / len(logs))


def shown_rate(pairs: int, gained: int, goal: float) -> float:
    """The least rate of losses, beside that of cold prompts, which so many pairs would have
    shown in the mean; 1 where none would. gained: of the pairs, those lost cold alone: the
    noise."""
    noise = gained / pairs if pairs else 1.0
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        expected = log_pairs(round(pairs * min(1.0, noise + middle)), gained)
        low, high = (low, middle) if expected >= goal else (middle, high)
    return high
