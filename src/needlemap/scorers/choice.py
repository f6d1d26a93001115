"""Which of some lettered choices an answer takes: LongBench v2's letters.

An answer says its letter as it was asked to ("The correct answer is (B)"), or begins with it, or puts one
alone into brackets. One that says several takes none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from needlemap.errors import SettingsError
from needlemap.options import Checked
from needlemap.scorers.base import Reference, Score

# A lower-case letter only where nothing follows: "the answer is a dog" says none.
_SAID = re.compile(
    r"(?i:\banswer\b)\s*(?i:is)?[\s:*\"'`]*"
    r"(?:\(([A-Za-z])\)|([A-Z])(?![\w'])|([a-z])(?=[\s*\"'`]*(?:[.,;:!)]|$)))"
)
_ALONE = re.compile(r"[\s*\"'`]*([A-Z])(?:[).:,*\"'`]|\s*$)")  # not 'A dog'
_BRACKETS = re.compile(r"\(([A-Z])\)")


class Choice(metaclass=Checked):
    """The right letter is the reference answer. why: the letter that was taken, '' for none."""

    name = "choice"
    scale = (0.0, 1.0)

    def __init__(self) -> None:
        self.options: Mapping[str, Any] = {}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if the task's answer is no letter."""
        if not re.fullmatch("[A-Z]", reference.answer):
            raise SettingsError("Scorer 'choice' needs a task with lettered choices. Type: --scorer exact")
        said = letter(answer)
        right = float(said == reference.answer)
        return Score(right, right, {"said": said})


def letter(answer: str) -> str:
    """The letter that an answer takes.

    >>> letter("The correct answer is (B)."), letter("C. Because"), letter("(A) or (D)"), letter("A dog")
    ('B', 'C', '', '')
    """
    said = ["".join(groups) for groups in _SAID.findall(answer)]
    if said:
        return said[-1].upper()
    bracketed = set(_BRACKETS.findall(answer))
    if len(bracketed) == 1:
        return str(bracketed.pop())
    alone = _ALONE.match(answer)
    return alone[1] if alone and not bracketed else ""
