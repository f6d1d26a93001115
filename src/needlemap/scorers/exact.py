"""Whether the answer is the reference answer: 1 or 0."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from needlemap.scorers.base import Reference, Score
from needlemap.settings.registry import Checked


class Exact(metaclass=Checked):
    """Whitespace around both is ignored; with the options so are case, and whitespace within."""

    name = "exact"
    rule = 2
    scale = (0.0, 1.0)

    def __init__(self, *, ignore_case: bool = False, ignore_whitespace: bool = False) -> None:
        self.options: Mapping[str, Any] = {"ignore_case": ignore_case, "ignore_whitespace": ignore_whitespace}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Never raises: an empty answer is an answer."""
        said, wanted = normal(answer, **self.options), normal(reference.answer, **self.options)
        return Score(float(said == wanted), float(said == wanted), {"said": said, "wanted": wanted})


def normal(text: str, ignore_case: bool = False, ignore_whitespace: bool = False) -> str:
    """A text as it is compared.

    >>> normal(" Jack  Ma ", ignore_case=True), normal(" Jack  Ma ", ignore_whitespace=True)
    ('jack  ma', 'JackMa')
    """
    text = re.sub(r"\s+", "", text) if ignore_whitespace else text.strip()
    return text.casefold() if ignore_case else text
