"""Whether an answer names any one of several right answers: RULER's rule for its question answering tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from needlemap.errors import SettingsError
from needlemap.scorers.base import Reference, Score
from needlemap.scorers.recall import Rule, said
from needlemap.settings.registry import Checked


class Alternatives(metaclass=Checked):
    """rule: as for `recall`. The alternatives are the keywords. why: those that were found."""

    name = "alternatives"
    rule = 3
    scale = (0.0, 1.0)

    def __init__(self, *, rule: Rule = "words") -> None:
        self.options: Mapping[str, Any] = {"rule": rule}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if there is nothing to look for."""
        if not reference.keywords or not all(text.strip() for text in reference.keywords):
            raise SettingsError("Scorer 'alternatives' needs a task with keywords. Type: --scorer substring")
        found = said(answer, reference.keywords, self.options["rule"])
        return Score(float(bool(found)), float(bool(found)), {"found": found})
