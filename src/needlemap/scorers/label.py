"""Whether an answer names exactly one of a few possible labels, and the right one, where it first names any.

The first sentence that names a label is judged, or the last that concludes ("So she is in the hall."): list
marks, headings and a friendly word before it say nothing. Labels are found whole, so that 'no' is not in
'know'; those that the question names do not count, as an answer may repeat them, nor those that the sentence
denies ("in the barn, not the hall").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from needlemap.errors import SettingsError
from needlemap.scorers.base import Reference, Score
from needlemap.scorers.matching import named, plain
from needlemap.scorers.shape import any_of
from needlemap.settings.registry import Checked

_END = re.compile(r"[.!](?=[\s*_\"'”’)\]]|$)|(?<=\?)(?=[\s*_\"'”’)\]])|[。！]|(?<=？)|\n")
_HEADING = (":", "：")
_ASKS = ("?", "？")
_CONCLUDES = re.compile(
    r"\W*(?:(?:and |but )?(?:so|therefore|thus|hence|now|finally|actually|wait|no(?=,))\b"
    r"|(?:the |my )?(?:final )?answer\b|in (?:conclusion|the end)\b|所以|因此|答案|现在|最后|最终|不[对,])"
)
_DENIAL = (
    r"\b(?:not|cannot|never(?! mind)|neither|nor|no longer|instead of|rather than|without)\b|n['’]t\b"
    r"|不在|不是|不再|不可能|没在|没有|并非|而非"
)
_STOP = (  # where a denial ends: a clause's end, or what turns it round ("has not left the hall")
    r"[,;:()]|\s-+\s|\b(?:and|but|so|because|since|while|who|which|if|except|only|just|else|elsewhere|other"
    r"|sure|certain|mistaken|wrong|doubt|question|surprising(?:ly)?|out of|(?:away|taken|removed|gone) from"
    r"|left(?! for\b)|leave|leaving|moved?(?! (?:in)?to\b))\b"
    r"|离开|移动(?!到)|弄错|而是|而在|[但别]|所以|其他"
)
_REACH = 40  # characters
_ALSO = r"\W{0,3}(?:\b(?:n?or|and)\b|或者|[或和及、/])\W{0,3}(?:(?<!and )in )?(?:the )?在?"


class Label(metaclass=Checked):
    """The labels are the answer and the decoys. why: the sentence, and the labels that it names."""

    name = "label"
    rule = 3
    scale = (0.0, 1.0)

    def __init__(self) -> None:
        self.options: Mapping[str, Any] = {}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if the task says of no wrong label."""
        if not reference.decoys:
            raise SettingsError(
                "Scorer 'label' needs a task that says which other labels there are. Type: --scorer substring"
            )
        asked = plain(reference.question)
        labels = dict.fromkeys(plain(text) for text in (reference.answer, *reference.decoys))
        known = [label for label in labels if not named(asked, label)]
        denied = denial(known)
        said = [(each, claimed(each, known, denied)) for each in map(plain, sentences(answer))]
        sentence, found = judged(said) or (said or [("", [])])[0]
        right = float(found == list(labels)[:1])
        return Score(right, right, {"sentence": sentence, "labels": found})


def denial(labels: list[str]) -> re.Pattern[str]:
    """What denies a label: a 'not' or the like and the first label behind it in its clause, with what an
    'or' joins to that."""
    label = any_of(labels)
    return re.compile(f"({_DENIAL})(?:(?!{_STOP}).){{0,{_REACH}}}?{label}(?:{_ALSO}{label})*")


def claimed(sentence: str, labels: list[str], denied: re.Pattern[str]) -> list[str]:
    """The labels that a plain sentence names and does not deny.

    >>> labels = ["hall", "barn"]
    >>> claimed("never in the hall, she is in the barn", labels, denial(labels))
    ['barn']
    """
    left = denied.sub(r"\1 ", sentence)  # a denial may be a label itself
    return [label for label in labels if named(left, label)]


def judged(said: list[tuple[str, list[str]]]) -> tuple[str, list[str]] | None:
    """Of the sentences that name labels the last that concludes or corrects, else the first that is no
    question, else the first; None where none names one.

    >>> judged([("first to the barn", ["barn"]), ("so: hall", ["hall"])]), judged([("no idea", [])])
    (('so: hall', ['hall']), None)
    """
    naming = [one for one in said if one[1]]
    last = [one for one in naming if _CONCLUDES.match(one[0])]
    firm = [one for one in naming if not one[0].endswith(_ASKS)]
    return next(iter(last[-1:] or firm or naming), None)


def sentences(text: str) -> list[str]:
    """The sentences and lines of a text that are not blank; a line that ends with a colon is a heading.

    >>> sentences(" In the hall. Or the barn?"), sentences("答案：\\n大厅。谷仓。")
    (['In the hall', 'Or the barn?'], ['大厅', '谷仓'])
    """
    pieces = (piece.strip() for piece in _END.split(text))
    return [piece for piece in pieces if piece and not piece.endswith(_HEADING)]
