"""The set in an answer's final list, by F1: for graphs' nodes, and whatever else is asked as a set.

After the rule of OpenAI's GraphWalks, whose own lines keep "Final Answer: [" in the first name and
give an answer without a right name 100 %; here the first is read whole, and the second gets 0.
"""

from __future__ import annotations

import re

from needlemap.scorers import Score, Scorer
from needlemap.tasks import Reference
from needlemap.text import plain

_SIGNS = str.maketrans("【】、；", "[],,")
_FINAL = re.compile(r"final answer|最终答案")
_LIST = re.compile(r"\[([^\[\]]*)\]")
_BEHIND = re.compile(r"[\s*_`.。$}]*")  # what may stand behind an answer's end
_AROUND = " \t\"'`*_.<>()"


class Set(Scorer):
    """F1 of the names in an answer's final list against the wanted ones, whose order is free.

    The list is the last one in brackets behind the last "final answer"; without these words, one
    that ends the answer. An answer without such a list, or with dots or the question's own list in
    it, cannot be read and gets 0. Wanted are the keywords; where there are none, an empty list is
    right. native: F1. why: the names read (None where unread), recall, precision, missing, wrong.
    """

    name = "set"
    rule = 1

    async def score(self, answer: str, reference: Reference) -> Score:
        """Never raises: an answer without a list is an answer."""
        said = names_listed(answer, reference.question)
        if said is None:
            return Score(0.0, 0.0, {"said": None}, unreadable=True)
        wanted = dict.fromkeys(map(plain, reference.keywords))
        found = [name for name in said if name in wanted]
        recall = len(found) / len(wanted) if wanted else float(not said)
        precision = len(found) / len(said) if said else float(not wanted)
        share = 2 * recall * precision / (recall + precision) if recall + precision else 0.0
        why = {
            "said": said,
            "recall": recall,
            "precision": precision,
            "missing": [name for name in wanted if name not in said],
            "wrong": [name for name in said if name not in wanted],
        }
        return Score(share, share, why)


def names_listed(answer: str, question: str = "") -> list[str] | None:
    """The names of an answer's final list, each once; None where there is no such list.

    >>> names_listed("Level 1: [a]. Final answer: [b, `c`, b]"), names_listed("So: [b]")
    (['b', 'c'], ['b'])
    >>> names_listed("Final answer: [b"), names_listed("I saw [a] and left."), names_listed("[]")
    (None, None, [])
    """
    text, asked = plain(answer).translate(_SIGNS), plain(question).translate(_SIGNS)
    said = [each.end() for each in _FINAL.finditer(text)]
    lists = [
        each
        for each in _LIST.finditer(text, said[-1] if said else 0)
        if each[0] not in asked and "..." not in each[1]
    ]
    if not lists or (not said and _BEHIND.fullmatch(text, lists[-1].end()) is None):
        return None
    names = (name.strip(_AROUND) for name in re.split(r"[,;\n]", lists[-1][1]))
    return list(dict.fromkeys(filter(None, names)))
