"""What a verdict is: four words, one rule, and the exit codes of all commands that give one.

`compare`, `compare --sequential`, `run --until`, `ab`, suites, `check` and the pytest fixture
judge by `decide` and end with one of these codes. How the ends of a loss are found is no
matter of this file: see `difference.py` for one look, `sequential.py` for many.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

Word = Literal["better", "no worse", "worse", "undecided"]

LOW_ALPHA = 0.01  # how often a loss's lower end may lie above the true loss
HIGH_ALPHA = 0.025  # how often its upper end may lie below

NO_WORSE = 0  # no worse, or all that applies passes
WORSE = 1  # worse, or a probe fails
UNDECIDED = 4  # too little was asked, and nothing points to a loss
SUSPECT = 5  # undecided, and something points to a loss

# The worst last: 2 wrong settings, 3 a limit, 130 and 143 interrupted.
_RANKS = (NO_WORSE, UNDECIDED, SUSPECT, WORSE, 2, 3, 130, 143)


def decide(low: float, high: float, margin: float) -> Word:
    """Judge a loss by its ends and the margin, all shares: the lower end at 99 %, the upper at
    97.5 %, each one-sided.

    At a margin of 0 `no worse` takes a sure gain, which is `better`.

    >>> decide(-0.01, 0.015, 0.02), decide(0.03, 0.08, 0.02), decide(0.01, 0.05, 0.02)
    ('no worse', 'worse', 'undecided')
    """
    if high < 0:
        return "better"
    if high < margin:
        return "no worse"
    return "worse" if low > margin else "undecided"


def verdict_code(word: Word, *, suspect: bool) -> int:
    """The exit code of a word. suspect: whether something points to a loss.

    >>> verdict_code("undecided", suspect=False), verdict_code("undecided", suspect=True)
    (4, 5)
    """
    if word == "undecided":
        return SUSPECT if suspect else UNDECIDED
    return WORSE if word == "worse" else NO_WORSE


def softened(code: int, on_undecided: str) -> int:
    """The code under `--on-undecided`: `pass` turns 4 into 0, and never 5.

    >>> softened(4, "pass"), softened(5, "pass"), softened(4, "fail")
    (0, 5, 4)
    """
    return NO_WORSE if code == UNDECIDED and on_undecided == "pass" else code


def worst_code(codes: Iterable[int]) -> int:
    """The exit code of several: 1 over 5 over 4 over 0, and a command's other codes over
    these.

    >>> worst_code([0, 4, 5]), worst_code([5, 1, 0])
    (5, 1)
    """
    return max(codes, key=_RANKS.index)
