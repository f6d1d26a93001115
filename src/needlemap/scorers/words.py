"""Scorers that compare words: the answer is the reference, or names all, any, or a share of some
words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from needlemap.errors import SettingsError
from needlemap.scorers import Score, Scorer
from needlemap.tasks import Reference
from needlemap.text import held, named, plain

Rule = Literal["words", "inside", "ruler"]


class Exact(Scorer):
    """Whether the answer is the reference, whitespace around both aside; options: case, whitespace
    within."""

    name = "exact"
    rule = 2

    def __init__(self, *, ignore_case: bool = False, ignore_whitespace: bool = False) -> None:
        self.options = {"ignore_case": ignore_case, "ignore_whitespace": ignore_whitespace}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Never raises: an empty answer is an answer."""
        said, wanted = normal(answer, **self.options), normal(reference.answer, **self.options)
        return Score(float(said == wanted), float(said == wanted), {"said": said, "wanted": wanted})


class Substring(Scorer):
    """Whether the answer holds all the words, in any case: 1 or 0.

    It reads no negation ("do not eat a sandwich" holds "sandwich") and finds words inside others
    ("of" in "coffee"), but no number inside a longer one: 12 is neither in 3124 nor in 12.5. words:
    what to look for; by default the reference's keywords, or its answer if it has none. anywhere:
    the older tools' rule, by which nothing but case is alike, and 51328 is found in 1513289.
    """

    name = "substring"
    rule = 3

    def __init__(self, *, words: tuple[str, ...] = (), anywhere: bool = False) -> None:
        if not all(word.strip() for word in words):
            raise SettingsError(
                "Option 'words' of Substring holds an empty word, which every answer holds."
            )
        self.words, self._anywhere = words, anywhere
        self.options = {"words": list(words), "anywhere": anywhere}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if there is nothing to look for."""
        words = self.words or reference.keywords or (reference.answer,)
        if not all(word.strip() for word in words):
            raise SettingsError(
                "Scorer 'substring' has no words to look for. Set its option 'words'."
            )
        found, missing = sought(answer, words, "ruler" if self._anywhere else "inside")
        return Score(float(not missing), float(not missing), {"found": found, "missing": missing})


class Recall(Scorer):
    """The share of the references that an answer names: of several values, how many were found.

    rule 'words': `text.named`'s. 'inside': also inside words, as `substring` finds them, but
    numbers whole. 'ruler': RULER's, any occurrence in lower case.

    The references are the keywords, or the answer where there are none. why: found and missing
    ones, strict
    (whether all were found), and decoys: wrong ones of the prompt that the answer names; they cost
    nothing.
    """

    name = "recall"
    rule = 3

    def __init__(self, *, rule: Rule = "words") -> None:
        self.options = {"rule": rule}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if there is nothing to look for."""
        wanted = reference.keywords or (reference.answer,)
        if not all(text.strip() for text in wanted):
            raise SettingsError(
                "Scorer 'recall' has nothing to look for: the task gives no keywords or answer."
            )
        rule = self.options["rule"]
        found, missing = sought(answer, wanted, rule)
        why = {"found": found, "missing": missing, "strict": not missing}
        if reference.decoys:
            why["decoys"], _ = sought(answer, reference.decoys, rule)
        share = 1 - len(missing) / len(wanted)
        return Score(share, share, why)


class Alternatives(Scorer):
    """Whether an answer names any one of several right answers: RULER's rule for question
    answering.

    rule: as for `recall`. The alternatives are the keywords. why: those that were found.
    """

    name = "alternatives"
    rule = 3

    def __init__(self, *, rule: Rule = "words") -> None:
        self.options = {"rule": rule}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if there is nothing to look for."""
        if not reference.keywords or not all(text.strip() for text in reference.keywords):
            raise SettingsError(
                "Scorer 'alternatives' needs a task with keywords. Type: --scorer substring"
            )
        found, _ = sought(answer, reference.keywords, self.options["rule"])
        return Score(float(bool(found)), float(bool(found)), {"found": found})


def normal(text: str, ignore_case: bool = False, ignore_whitespace: bool = False) -> str:
    """A text as it is compared.

    >>> normal(" Jack  Ma ", ignore_case=True), normal(" Jack  Ma ", ignore_whitespace=True)
    ('jack  ma', 'JackMa')
    """
    text = re.sub(r"\s+", "", text) if ignore_whitespace else text.strip()
    return text.casefold() if ignore_case else text


def sought(answer: str, texts: Sequence[str], rule: Rule) -> tuple[list[str], list[str]]:
    """Those of some texts that an answer names, and those that it lacks.

    >>> sought("It is 41234.", ["1234"], "ruler"), sought("It is 41234.", ["1234"], "words")
    ((['1234'], []), ([], ['1234']))
    >>> sought("51,328 sandwiches, not 1513289", ["51328", "sandwich", "15132"], "inside")
    (['51328', 'sandwich'], ['15132'])
    """
    if rule == "ruler":
        lowered = answer.lower()
        found = [text for text in texts if text.lower() in lowered]
    else:
        compared, finds = plain(answer), held if rule == "inside" else named
        found = [text for text in texts if finds(compared, plain(text))]
    return found, [text for text in texts if text not in found]
