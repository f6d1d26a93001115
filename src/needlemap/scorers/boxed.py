"""Whether what an answer puts into \\boxed{...} last is the reference answer, and nothing else.

The box says which of the names in a long derivation is meant as the answer; without one an answer is wrong.
Empty boxes, and \\boxed{...} with dots, speak of boxes and are none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from unicodedata import normalize

from needlemap.scorers.base import Reference, Score
from needlemap.scorers.matching import plain
from needlemap.scorers.numerals import in_digits
from needlemap.settings.registry import Checked

_OPEN = re.compile(r"\\(?:boxed|fbox)\s*\{")
_DRESS = re.compile(  # LaTeX that changes how its words look, not what they say; quotes of all kinds
    r"\\(?:text|math|operatorname|emph|underline|mbox|hbox|bm|boldsymbol|left|right|q?quad|displaystyle|tiny"
    r"|small|normalsize|large|huge|bf|it|rm|tt)[a-z]*\*?"
    r"|\\[ ,;:!\\]|(?<!~)~(?!~)|[{}$*`\"“”‘’「」『』《》]",
    re.IGNORECASE,
)
_LONGEST = 200  # characters of a number with what it counts; more is something else
_HAN = re.compile("(?<=[\u2e80-\u9fff]) (?=[\u2e80-\u9fff])")
_COUNT = re.compile(r"([^0-9]*)(?<![0-9a-z.-])([0-9]{1,9})(?:\.0+)?(?![0-9a-z.])([^0-9]*)")
_OF = re.compile(  # what may stand beside a number and leave it what it is
    r"(?:[\s=:：()]|\b(?:the|answer|distance|it|is|are|of|by|[a-z](?= =))\b"
    r"|\b(?:generations?|steps?|levels?|above|higher|up|apart)\b|(?<=generation)\(s\)"
    r"|答案|距离|相[隔差]|[是为隔差代辈世高])*"
)


class Boxed(metaclass=Checked):
    """Case, white space, quotes and LaTeX around a name are ignored, and where the reference is a number what
    it counts, and whether it stands there in digits. why: what is in the box, or None."""

    name = "boxed"
    rule = 2
    scale = (0.0, 1.0)

    def __init__(self) -> None:
        self.options: Mapping[str, Any] = {}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Never raises: an answer without a box is an answer."""
        said, wanted = boxed(answer), _bare(reference.answer)
        holds = "" if said is None else _bare(said)
        right = float(holds == wanted or (wanted.isdecimal() and counted(holds) == int(wanted)))
        return Score(right, right, {"said": said})


def boxed(answer: str) -> str | None:
    """What the last box holds that is closed and not empty; None without one.

    >>> boxed(r"So \\boxed{5}, or rather \\boxed{\\text{Ada}} (in a \\boxed{})."), boxed("Ada")
    ('\\\\text{Ada}', None)
    """
    text = normalize("NFKC", answer)
    held = (text[start:end] for start, end in sorted(_closed(text), reverse=True))
    return next((one for one in held if _bare(one)), None)


def counted(text: str) -> int | None:
    """The only number in a bare text, where nothing stands beside it but what it counts.

    >>> counted("4 generations"), counted("四代"), counted("four"), counted("3 or 4"), counted("almost 4")
    (4, 4, 4, None, None)
    """
    found = _COUNT.fullmatch(in_digits(text)) if len(text) <= _LONGEST else None
    return int(found[2]) if found and _OF.fullmatch(f"{found[1]} {found[3]}") else None


def _closed(text: str) -> list[tuple[int, int]]:
    """Where the boxes that are closed start and end, inside their braces."""
    boxes, opened = {match.end() for match in _OPEN.finditer(text)}, list[int]()
    found = list[tuple[int, int]]()
    for place, sign in enumerate(text, 1):
        if sign == "{":
            opened.append(place)
        elif sign == "}" and opened and (start := opened.pop()) in boxes:
            found.append((start, place - 1))
    return found


def _bare(text: str) -> str:
    words = " ".join(_DRESS.sub(" ", plain(text)).split())
    return _HAN.sub("", words).strip(". 。")
