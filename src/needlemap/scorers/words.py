"""Score answers by their words: the answer is the reference, or names all, any or some words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from needlemap.errors import SettingsError
from needlemap.scorers import Score, Scorer
from needlemap.tasks import Reference
from needlemap.text import contains, named, plain

Rule = Literal["words", "inside", "ruler"]


class Exact(Scorer):
    """Whether the answer is the reference, whitespace around both aside; options: case, whitespace
    within."""

    name = "exact"
    rule = 2

    def __init__(self, *, ignore_case: bool = False, ignore_whitespace: bool = False) -> None:
        self.options = {"ignore_case": ignore_case, "ignore_whitespace": ignore_whitespace}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Return 1 for an equal text, else 0. Never raises: an empty answer is an answer."""
        text = normal(answer, **self.options)
        right_text = normal(reference.answer, **self.options)
        share = float(text == right_text)
        return Score(share, share, why={"said": text, "wanted": right_text})


class Substring(Scorer):
    """Whether the answer holds all the words, in any case: 1 or 0.

    It reads no negation ("do not eat a sandwich" holds "sandwich") and finds words inside others
    ("of" in "coffee"), but no number inside a longer one: 12 is neither in 3124 nor in 12.5. words:
    what to look for; by default the reference's keywords, or its answer if it has none. anywhere:
    the older tools' rule, by which nothing but case is alike, and 51328 is found in 1513289.
    """

    name = "substring"
    rule = 5

    def __init__(self, *, words: tuple[str, ...] = (), anywhere: bool = False) -> None:
        if not all(word.strip() for word in words):
            raise SettingsError(
                "Option 'words' of Substring holds an empty word, which every answer holds."
            )
        self.words = words
        self._rule: Rule = "ruler" if anywhere else "inside"
        self.options = {"words": list(words), "anywhere": anywhere}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Return 1 if all words are in the answer. Raises SettingsError if there are no words."""
        words = self.words or reference.keywords or (reference.answer,)
        if not all(word.strip() for word in words):
            raise SettingsError(
                "Scorer 'substring' has no words to look for. Set its option 'words'."
            )
        present, missing = find_texts(answer, words, rule=self._rule)
        share = float(not missing)
        return Score(share, share, why={"found": present, "missing": missing})


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
    rule = 5

    def __init__(self, *, rule: Rule = "words") -> None:
        self.options = {"rule": rule}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Return the share of the references in the answer.

        Raises SettingsError if there are no references.
        """
        references = reference.keywords or (reference.answer,)
        if not all(text.strip() for text in references):
            raise SettingsError(
                "Scorer 'recall' has nothing to look for: the task gives no keywords or answer."
            )
        rule = self.options["rule"]
        present, missing = find_texts(answer, references, rule=rule)
        why = {"found": present, "missing": missing, "strict": not missing}
        if reference.decoys:
            why["decoys"], _ = find_texts(answer, reference.decoys, rule=rule)
        share = 1 - len(missing) / len(references)
        return Score(share, share, why=why)


class Alternatives(Scorer):
    """Whether an answer names any one of several right answers: RULER's rule for question
    answering.

    rule: as for `recall`. The alternatives are the keywords. why: those that were found.
    """

    name = "alternatives"
    rule = 5

    def __init__(self, *, rule: Rule = "words") -> None:
        self.options = {"rule": rule}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Return 1 if any alternative is in the answer. Raises SettingsError if there is none."""
        if not reference.keywords or not all(text.strip() for text in reference.keywords):
            raise SettingsError(
                "Scorer 'alternatives' needs a task with keywords. Type: --scorer substring"
            )
        present, _ = find_texts(answer, reference.keywords, rule=self.options["rule"])
        share = float(bool(present))
        return Score(share, share, why={"found": present})


def normal(text: str, ignore_case: bool = False, ignore_whitespace: bool = False) -> str:
    """Return a text as it is compared.

    >>> normal(" Jack  Ma ", ignore_case=True), normal(" Jack  Ma ", ignore_whitespace=True)
    ('jack  ma', 'JackMa')
    """
    text = re.sub(r"\s+", "", text) if ignore_whitespace else text.strip()
    return text.casefold() if ignore_case else text


def find_texts(answer: str, texts: Sequence[str], rule: Rule) -> tuple[list[str], list[str]]:
    """Return the texts that an answer names, and those that it lacks.

    >>> find_texts("It is 41234.", ["1234"], "ruler"), find_texts("It is 41234.", ["1234"], "words")
    ((['1234'], []), ([], ['1234']))
    >>> find_texts("51,328 sandwiches, not 1513289", ["51328", "sandwich", "15132"], "inside")
    (['51328', 'sandwich'], ['15132'])
    """
    if rule == "ruler":
        lowered = answer.lower()
        present = [text for text in texts if text.lower() in lowered]
    else:
        compared = plain(answer)
        names = contains if rule == "inside" else named
        present = [text for text in texts if names(compared, plain(text))]
    return present, [text for text in texts if text not in present]
