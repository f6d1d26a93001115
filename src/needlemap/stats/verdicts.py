"""Define what a verdict is: one type, its words, and the exit codes of all commands.

PASS: the claim is shown. FAIL: the opposite is shown. SUSPECT: neither is shown, and something
looks wrong. NOT ENOUGH DATA: neither is shown, and nothing looks wrong. NO RESULT: nothing was
measured that a verdict could rest on.

This module turns an interval into a word. `difference.py` and `sequential.py` compute it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

Word = Literal["PASS", "FAIL", "NOT ENOUGH DATA", "SUSPECT", "NO RESULT"]
PASS: Final = "PASS"
FAIL: Final = "FAIL"
NOT_ENOUGH_DATA: Final = "NOT ENOUGH DATA"
SUSPECT: Final = "SUSPECT"
NO_RESULT: Final = "NO RESULT"
OPEN = (NOT_ENOUGH_DATA, SUSPECT)

# How often the lower end of a loss may lie above the true loss.
LOW_ALPHA = 0.01
# How often its upper end may lie below the true loss.
HIGH_ALPHA = 0.025

WRONG_SETTINGS = 2
_CODES: dict[Word, int] = {PASS: 0, FAIL: 1, NO_RESULT: 3, NOT_ENOUGH_DATA: 4, SUSPECT: 5}
# The first of these decides: an interrupted command did not see the rest, and a failure stays a
# failure whatever else is missing.
_ORDER = (143, 130, 1, 5, 4, 2, 3, 0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a command.

    Attributes:
        word: the verdict in a word.
        claim: what the word is about, with its number.
        evidence: what it rests on.
        scope: what it holds for.
        next: what to type or do to know more.
    """

    word: Word
    claim: str
    evidence: str = ""
    scope: str = ""
    next: str = ""

    def line(self, command: str) -> str:
        """Return the last line of a command.

        >>> Verdict("PASS", "b loses less than 2 points", "40 pairs", "these prompts").line("ab")
        'PASS ab: b loses less than 2 points, 40 pairs; these prompts.'
        """
        shown = ", ".join(filter(None, (self.claim, self.evidence)))
        parts = [part.rstrip(".") for part in (shown, self.scope, self.next) if part]
        return f"{self.word} {command}: {'; '.join(parts)}."

    def plain(self, command: str) -> dict[str, Any]:
        """Return the verdict as JSON values, with its exit code and line."""
        return {**asdict(self), "code": exit_code(self.word), "line": self.line(command)}


# Of a folder whose command still runs, or was interrupted before its first answer.
NOT_ENDED = Verdict(NO_RESULT, "it has not ended yet")


def decide(low: float, high: float, margin: float) -> Word:
    """Return the word for a loss, given its one-sided ends at 99 % and 97.5 %, all shares.

    At a margin of 0 a PASS needs a sure gain.

    >>> decide(-0.01, 0.015, 0.02), decide(0.03, 0.08, 0.02), decide(0.01, 0.05, 0.02)
    ('PASS', 'FAIL', 'NOT ENOUGH DATA')
    """
    if high < margin:
        return PASS
    return FAIL if low > margin else NOT_ENOUGH_DATA


def row_word(*, fails: bool, passes: bool, points: bool) -> Word:
    """Return the word for one row of a table. points: True if something looks wrong.

    >>> row_word(fails=False, passes=False, points=True)
    'SUSPECT'
    """
    if fails:
        return FAIL
    if passes:
        return PASS
    return SUSPECT if points else NOT_ENOUGH_DATA


def exit_code(word: Word, on_undecided: str = "fail", *, exit_zero: bool = False) -> int:
    """Return the exit code of a command whose verdict has this word.

    on_undecided: 'pass' makes NOT ENOUGH DATA exit with 0. SUSPECT keeps its code.
    exit_zero: makes every word exit with 0.

    >>> exit_code("NOT ENOUGH DATA"), exit_code("NOT ENOUGH DATA", "pass")
    (4, 0)
    >>> exit_code("SUSPECT", "pass"), exit_code("FAIL", exit_zero=True)
    (5, 0)
    """
    if exit_zero:
        return 0
    if word == NOT_ENOUGH_DATA and on_undecided == "pass":
        return 0
    return _CODES[word]


def combined_code(codes: Iterable[int]) -> int:
    """Return the most serious exit code of several commands, or 0 if there are none.

    `_ORDER` lists the codes, the most serious first.

    >>> combined_code([0, 4, 5]), combined_code([5, 1, 3]), combined_code([3, 0])
    (5, 1, 3)
    """
    return min(codes, key=_ORDER.index, default=0)


def combined_word(words: Iterable[Word]) -> Word:
    """Return the most serious of several words.

    From the most serious on: FAIL, SUSPECT, NOT ENOUGH DATA, NO RESULT, PASS.

    >>> combined_word(["PASS", "NO RESULT", "NOT ENOUGH DATA"])
    'NOT ENOUGH DATA'
    """
    return min(words, key=_rank)


def most_serious(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return verdicts sorted by their words, the most serious first."""
    return sorted(verdicts, key=lambda verdict: _rank(verdict.word))


def _rank(word: Word) -> int:
    return _ORDER.index(_CODES[word])
