"""What a verdict is: one type, four words, and the exit codes of all commands.

PASS: what was claimed is shown. FAIL: the opposite is shown. SUSPECT: neither is, and something
looks wrong. NOT ENOUGH DATA: neither is, and nothing looks wrong. NO RESULT: nothing was measured
that a verdict could rest on. How the ends of a loss are found is no matter of this file: see
`difference.py` for one look, `sequential.py` for many.
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

LOW_ALPHA = 0.01  # how often a loss's lower end may lie above the true loss
HIGH_ALPHA = 0.025  # how often its upper end may lie below

WRONG_SETTINGS = 2
_CODES: dict[Word, int] = {PASS: 0, FAIL: 1, NO_RESULT: 3, NOT_ENOUGH_DATA: 4, SUSPECT: 5}
# Of several the first counts: who was interrupted did not see the rest, and what fails stays
# failed, whatever else is missing.
_ORDER = (143, 130, 1, 5, 4, 2, 3, 0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a command came to. claim: what the word is said of, with its number. evidence: what it
    rests on. scope: what it holds for. next: what to type, or do, to know more."""

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
        """Return the same for programs."""
        return {**asdict(self), "code": exit_code(self.word), "line": self.line(command)}


def decide(low: float, high: float, margin: float) -> Word:
    """Judge a loss by its ends and the margin, all shares: the lower end at 99 %, the upper at
    97.5 %, each one-sided. At a margin of 0 a PASS takes a sure gain.

    >>> decide(-0.01, 0.015, 0.02), decide(0.03, 0.08, 0.02), decide(0.01, 0.05, 0.02)
    ('PASS', 'FAIL', 'NOT ENOUGH DATA')
    """
    if high < margin:
        return PASS
    return FAIL if low > margin else NOT_ENOUGH_DATA


def row_word(*, fails: bool, passes: bool, points: bool) -> Word:
    """Return the word of one thing that was tried. points: whether something looks wrong.

    >>> row_word(fails=False, passes=False, points=True)
    'SUSPECT'
    """
    if fails:
        return FAIL
    return PASS if passes else SUSPECT if points else NOT_ENOUGH_DATA


def exit_code(word: Word, on_undecided: str = "fail", *, exit_zero: bool = False) -> int:
    """Return the exit code of a word. on_undecided: 'pass' turns 4 into 0, and never 5.

    >>> exit_code("NOT ENOUGH DATA"), exit_code("NOT ENOUGH DATA", "pass")
    (4, 0)
    >>> exit_code("SUSPECT", "pass"), exit_code("FAIL", exit_zero=True)
    (5, 0)
    """
    if exit_zero or (word == NOT_ENOUGH_DATA and on_undecided == "pass"):
        return 0
    return _CODES[word]


def combined_code(codes: Iterable[int]) -> int:
    """Return the exit code of several: 1 over 5 over 4 over 2 and 3 over 0.

    >>> combined_code([0, 4, 5]), combined_code([5, 1, 3]), combined_code([3, 0])
    (5, 1, 3)
    """
    return min(codes, key=_ORDER.index, default=0)


def combined_word(words: Iterable[Word]) -> Word:
    """Return the word of several: FAIL over SUSPECT over NOT ENOUGH DATA over NO RESULT over PASS.

    >>> combined_word(["PASS", "NO RESULT", "NOT ENOUGH DATA"])
    'NOT ENOUGH DATA'
    """
    return min(words, key=_rank)


def most_serious(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return several in the order in which they count."""
    return sorted(verdicts, key=lambda verdict: _rank(verdict.word))


def _rank(word: Word) -> int:
    return _ORDER.index(_CODES[word])
