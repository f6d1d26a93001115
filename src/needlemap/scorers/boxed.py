"""Whether what an answer puts into \\boxed{...} last is the reference answer, and nothing else.

The box says which of the names in a long derivation is meant as the answer; without one an answer is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from needlemap.options import Checked
from needlemap.scorers.base import Reference, Score
from needlemap.scorers.matching import plain

_OPEN = "\\boxed{"
_DRESS = re.compile(r"\\(?:(?:text|math)(?:rm|bf|it|sf|tt|normal)?|emph)\s*\{([^{}]*)\}|\\[ ,;]|[$*~\"]")


class Boxed(metaclass=Checked):
    """Case, white space, and LaTeX around a name are ignored. why: what is in the box, or None."""

    name = "boxed"
    scale = (0.0, 1.0)

    def __init__(self) -> None:
        self.options: Mapping[str, Any] = {}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Never raises: an answer without a box is an answer."""
        said = boxed(answer)
        right = float(said is not None and _bare(said) == _bare(reference.answer))
        return Score(right, right, {"said": said})


def boxed(answer: str) -> str | None:
    """What the last box that is closed holds; None without one.

    >>> boxed(r"So \\boxed{5}, or rather \\boxed{\\text{Ada}}."), boxed("Ada")
    ('\\\\text{Ada}', None)
    """
    start = len(answer)
    while (start := answer.rfind(_OPEN, 0, start)) >= 0:
        depth = 1
        for place in range(start + len(_OPEN), len(answer)):
            depth += {"{": 1, "}": -1}.get(answer[place], 0)
            if not depth:
                return answer[start + len(_OPEN) : place]
    return None


def _bare(text: str) -> str:
    bare, dressed = plain(text), ""
    while bare != dressed:
        bare, dressed = _DRESS.sub(lambda match: match[1] or " ", bare), bare
    return " ".join(bare.split()).strip(". 。")
