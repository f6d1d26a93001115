"""The share of the references that an answer names: of several values, how many were found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from needlemap.errors import SettingsError
from needlemap.scorers.base import Reference, Score
from needlemap.scorers.matching import held, named, plain
from needlemap.settings.registry import Checked

Rule = Literal["words", "inside", "ruler"]


class Recall(metaclass=Checked):
    """rule 'words': `matching.py`'s. 'inside': also inside words, as `substring` finds them, but numbers
    whole. 'ruler': RULER's, any occurrence in lower case.

    The references are the keywords, or the answer where there are none. why: found and missing ones, strict
    (whether all were found), and decoys: wrong ones of the prompt that the answer names; they cost nothing.
    """

    name = "recall"
    rule = 3
    scale = (0.0, 1.0)

    def __init__(self, *, rule: Rule = "words") -> None:
        self.options: Mapping[str, Any] = {"rule": rule}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if there is nothing to look for."""
        wanted = reference.keywords or (reference.answer,)
        if not all(text.strip() for text in wanted):
            raise SettingsError(
                "Scorer 'recall' has nothing to look for: the task gives no keywords or answer."
            )
        rule = self.options["rule"]
        found = said(answer, wanted, rule)
        missing = [text for text in wanted if text not in found]
        why = {"found": found, "missing": missing, "strict": not missing}
        if reference.decoys:
            why["decoys"] = said(answer, reference.decoys, rule)
        share = 1 - len(missing) / len(wanted)
        return Score(share, share, why)


def said(answer: str, texts: Sequence[str], rule: Rule) -> list[str]:
    """Those of some texts that an answer names.

    >>> said("It is 41234.", ["1234"], "ruler"), said("It is 41234.", ["1234"], "words")
    (['1234'], [])
    """
    if rule == "ruler":
        lowered = answer.lower()
        return [text for text in texts if text.lower() in lowered]
    compared, finds = plain(answer), held if rule == "inside" else named
    return [text for text in texts if finds(compared, plain(text))]
