"""Score the set in an answer's final list by F1, for the nodes of a graph and other sets.

After the rule of OpenAI's GraphWalks, whose own lines keep "Final Answer: [" in the first name and
give an answer without a right name 100 %. Here the first name is read whole, and an answer without
a right name gets 0.
"""

from __future__ import annotations

import re

from needlemap.scorers import Score, Scorer
from needlemap.tasks import Reference
from needlemap.text import plain

_SIGNS = str.maketrans("【】、；", "[],,")
_FINAL = re.compile(r"final answer|最终答案")
_LIST = re.compile(r"\[([^\[\]]*)\]")
# What may stand behind the end of an answer.
_BEHIND = re.compile(r"[\s*_`.。$}]*")
# LaTeX's \[ and \] leave a backslash.
_AROUND = " \t\"'`*_.<>()\\"


class Set(Scorer):
    """F1 of the names in an answer's final list against the wanted ones, whose order is free.

    The list is the last one in brackets behind the last "final answer"; without these words, one
    that ends the answer. An answer without such a list, or with dots or the question's own list in
    it, cannot be read and gets 0. Wanted are the keywords; where there are none, an empty list is
    right. native: F1. why: the names read (None where unread), recall, precision, missing, wrong.
    """

    name = "set"
    rule = 3

    async def score(self, answer: str, reference: Reference) -> Score:
        """Return the F1 of the final list. Never raises: an answer without a list is an answer."""
        names = names_listed(answer, reference.question)
        if names is None:
            return Score(0.0, 0.0, why={"said": None}, unreadable=True)

        right_names = dict.fromkeys(map(plain, reference.keywords))
        hits = [name for name in names if name in right_names]
        # If there are no right names, an empty list is right.
        recall = len(hits) / len(right_names) if right_names else float(not names)
        precision = len(hits) / len(names) if names else float(not right_names)
        share = 0.0
        if recall + precision:
            share = 2 * recall * precision / (recall + precision)
        why = {
            "said": names,
            "recall": recall,
            "precision": precision,
            "missing": [name for name in right_names if name not in names],
            "wrong": [name for name in names if name not in right_names],
        }
        return Score(share, share, why=why)


def names_listed(answer: str, question: str = "") -> list[str] | None:
    """Return the names of an answer's final list, each once, or None if it has no such list.

    >>> names_listed("Level 1: [a]. Final answer: [b, `c`, b]"), names_listed("So: [b]")
    (['b', 'c'], ['b'])
    >>> names_listed("Final answer: [b"), names_listed("I saw [a] and left."), names_listed("[]")
    (None, None, [])
    """
    text = plain(answer).translate(_SIGNS)
    plain_question = plain(question).translate(_SIGNS)
    announced = [match.end() for match in _FINAL.finditer(text)]
    start = announced[-1] if announced else 0
    lists = [
        match
        for match in _LIST.finditer(text, start)
        if match[0] not in plain_question and "..." not in match[1]
    ]
    if not lists:
        return None

    last = lists[-1]
    is_at_end = _BEHIND.fullmatch(text, last.end()) is not None
    if not announced and not is_at_end:
        return None
    names = (name.strip(_AROUND) for name in re.split(r"[,;\n]", last[1]))
    return list(dict.fromkeys(filter(None, names)))
