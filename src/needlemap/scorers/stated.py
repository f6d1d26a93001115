"""Score what an answer states: a letter, a label, what its box holds, its first value, key words.

The scorer of key words (`only`) is for tasks in which guessing must not pay: several candidates in
one answer, or one candidate if the text gives none.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Any

from rapidfuzz.distance import Levenshtein

from needlemap.errors import SettingsError
from needlemap.scorers import Score, Scorer
from needlemap.scorers.extract import (
    box_contents,
    claimed_labels,
    last_box,
    letter,
    number_in,
    says_none,
)
from needlemap.scorers.words import find_texts
from needlemap.tasks import Reference
from needlemap.text import named, plain, shape, ungrouped

# It separates words, but `plain` takes it for a hyphen.
_DASH = "\u2014"
# For an answer without a number like the reference, to show how near it came.
_ANY_NUMBER = r"[0-9]+(?:\.0*[1-9][0-9]*)?"
_WORD = re.compile("[0-9a-z]+(?:-[0-9a-z]+)*")
_SENTENCE = re.compile(r"[.!?](?=\s|$)|[。！？\n]")
# Characters of a sentence that may be repeated from the question. A shorter one may be an answer.
_REPEATED_CHARS = 8


class Choice(Scorer):
    """Which of some lettered choices an answer takes; the right letter is the reference answer.

    why: the letter that was taken, None for none.
    """

    name = "choice"
    rule = 5

    async def score(self, answer: str, reference: Reference) -> Score:
        """Return 1 for the right letter.

        Raises SettingsError if the task's answer is not a letter.
        """
        if not re.fullmatch("[A-Z]", reference.answer):
            raise SettingsError(
                "Scorer 'choice' needs a task with lettered choices. Type: --scorer exact"
            )
        chosen = letter(answer, reference.question)
        share = float(chosen == reference.answer)
        return Score(share, share, why={"said": chosen}, unreadable=chosen is None)


class Label(Scorer):
    """Whether an answer names exactly one of a few possible labels, and the right one, where it
    states any.

    The labels are the answer and the decoys, found whole, so that 'no' is not in 'know'; those that
    the question names do not count, as an answer may repeat them. why: the sentence, and the labels
    it names.
    """

    name = "label"
    rule = 6

    async def score(self, answer: str, reference: Reference) -> Score:
        """Return 1 for the right label. Raises SettingsError if the task has no wrong labels."""
        if not reference.decoys:
            raise SettingsError(
                "Scorer 'label' needs a task that says which other labels there are. Type: "
                "--scorer substring"
            )
        question = plain(reference.question)
        labels = list(dict.fromkeys(map(plain, (reference.answer, *reference.decoys))))
        new_labels = [label for label in labels if not named(question, label)]
        sentence, claimed = claimed_labels(answer, new_labels)
        share = float(claimed == labels[:1])
        why = {"sentence": sentence, "labels": claimed}
        return Score(share, share, why=why, unreadable=not claimed)


class Boxed(Scorer):
    """Whether what an answer puts into \\boxed{...} last is the reference answer, and nothing else.

    The box says which of the names in a long derivation is meant as the answer; without one an
    answer cannot be read. Empty boxes, and \\boxed{...} with dots, speak of boxes and are none.
    Case, white space, quotes and LaTeX's words for type are ignored, and where the reference is a
    number what it counts, and whether it stands there in digits. why: what is in the box, or None.
    """

    name = "boxed"
    rule = 5

    async def score(self, answer: str, reference: Reference) -> Score:
        """Return 1 for the right box. Never raises: an answer without a box is an answer."""
        box = last_box(answer)
        contents = box_contents(box or "")
        right_contents = box_contents(reference.answer)
        is_right = contents == right_contents
        if right_contents.isdecimal() and number_in(contents) == int(right_contents):
            is_right = True
        share = float(is_right)
        return Score(share, share, why={"said": box}, unreadable=box is None)


class First(Scorer):
    """Whether the first thing of the reference's kind in an answer is the reference: its first
    number, say.

    An answer that tries several is judged by its first. What the question says too, as the asked
    key, is passed over: an answer may repeat it. So are, where the reference is a number, much
    shorter ones
    ("the 5-digit key"). pattern: what counts, a regular expression; by default the reference's own,
    else what looks like it. chain: an answer may tell the way to it: where the first is a step of
    the needle, the last is judged.

    why: what was taken, and similarity: 1 - edit distance / longer length, in [0, 1], which falls
    before the score does.
    """

    name = "first"
    rule = 6

    def __init__(self, *, pattern: str = "", chain: bool = False) -> None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise SettingsError(
                f"Option 'pattern' of First: '{pattern}' is no pattern ({error})."
            ) from None
        self.options = {"pattern": pattern, "chain": chain}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Return 1 if the first value is right. Raises SettingsError if there is no reference."""
        right_value = _plain_value(reference.answer.strip())
        text = _plain_value(answer)
        question = _plain_value(reference.question)
        if not right_value:
            raise SettingsError("Scorer 'first' needs a reference answer.")
        if right_value.isdecimal():
            text = ungrouped(text)

        pattern = self.options["pattern"] or reference.like or shape(right_value)
        values = new_matches(pattern, text, question=question)
        if not values and right_value.isdecimal():
            values = new_matches(_ANY_NUMBER, text, question=question)
        value = values[0] if values else ""
        if self.options["chain"] and is_step(value, reference):
            value = values[-1]

        share = float(value == right_value)
        similarity = Levenshtein.normalized_similarity(value, right_value)
        why = {"said": value, "similarity": similarity}
        return Score(share, share, why=why, unreadable=not values)


def _plain_value(text: str) -> str:
    return plain(text.replace(_DASH, " "))


def is_step(value: str, reference: Reference) -> bool:
    """Return True if a value is a step on the way to the answer.

    It is a decoy that stands in the needle too, if the needle is known; other decoys belong to
    other needles.

    >>> is_step("b", Reference("c", needle="a b, b c", decoys=("b", "x")))
    True
    """
    in_needle = not reference.needle or named(plain(reference.needle), value)
    return in_needle and value in map(plain, reference.decoys)


def new_matches(pattern: str, text: str, question: str) -> list[str]:
    """Return what a pattern matches in a text, without what the question holds.

    A match is also left out if it is a part of a word that the question holds.

    >>> new_matches("[0-9]+", "the value of 4a-b7 is 31", "what is the value of 4a-b7?")
    ['31']
    """
    in_question: dict[str, bool] = {}

    def is_in_question(part: str) -> bool:
        if part not in in_question:
            in_question[part] = named(question, part)
        return in_question[part]

    words = [word for word in _WORD.finditer(text) if is_in_question(word[0])]
    starts = [word.start() for word in words]
    ends = [word.end() for word in words]
    matches = []
    for match in re.finditer(pattern, text):
        # Words do not overlap, so no other word could hold the match.
        index = bisect_right(starts, match.start()) - 1
        is_part = index >= 0 and match.end() <= ends[index]
        if not is_part and not is_in_question(match[0]):
            matches.append(match[0])
    return matches


class Only(Scorer):
    """The share of the key words that the answer names, each whole; 0 if it names a decoy too.

    Where the text holds no answer: 1 if it says so, in the word that the question gave for it or,
    where the reference says what a value is `like`, in a sentence about the text ("the text does
    not say"), and names no decoy, but with whom the text gives it to (the `owners`), nor anything
    else that looks like an answer. What the question says is no decoy, and repeating the question,
    or a sentence of it, is no answer. why:
    found, missing, decoys; where the question allowed that there be none, present (whether it was
    there) and none (whether the answer denies it); and where there was none and `like` is known,
    invented.
    """

    name = "only"
    rule = 6

    async def score(self, answer: str, reference: Reference) -> Score:
        """Return the share of the key words, or 0 for a wrong one.

        Raises SettingsError if there are no key words, or for an invalid pattern.
        """
        if not any(text.strip() for text in (*reference.keywords, reference.none)):
            raise SettingsError("Scorer 'only' needs a task with keywords. Type: --scorer recall")
        question = plain(reference.question)
        text = without_question(plain(answer), question)
        present, missing = find_texts(text, reference.keywords, rule="words")
        wrong, _ = find_texts(text, reference.decoys, rule="words")
        decoys = [decoy for decoy in wrong if not named(question, plain(decoy))]
        values = new_values(text, question, reference=reference)
        is_denied = False
        if reference.none:
            is_denied = says_none(text, plain(reference.none), known=bool(reference.like))

        if reference.keywords:
            share = len(present) / len(reference.keywords)
            invented = []
        else:
            share = float(is_denied)
            invented = values
            if is_denied:
                # An answer that denies may still name whom the text gives a decoy to.
                decoys = [
                    decoy for decoy in decoys if not is_owned(text, decoy, reference=reference)
                ]
        if decoys or invented:
            share = 0.0

        why: dict[str, Any] = {"found": present, "missing": missing, "decoys": decoys}
        if reference.none:
            why["present"] = bool(reference.keywords)
            why["none"] = is_denied
        if reference.like and not reference.keywords:
            why["invented"] = invented
        # A denial is read, even if no decoy is left of it.
        is_readable = present or decoys or values or is_denied
        return Score(share, share, why=why, unreadable=not is_readable)


def without_question(text: str, question: str) -> str:
    """Return an answer without the sentences that it repeats of the question.

    >>> without_question("who swims? ann.", "who swims?").split()
    ['?', 'ann.']
    """
    for sentence in map(str.strip, _SENTENCE.split(question)):
        if len(sentence) >= _REPEATED_CHARS:
            text = text.replace(sentence, " ")
    return text


def is_owned(text: str, decoy: str, reference: Reference) -> bool:
    """Return True if an answer names a decoy only in sentences that name its owner too."""
    # Not every task has owners, so there may be fewer of them.
    pairs = zip(reference.owners, reference.decoys, strict=False)
    owners = [plain(owner) for owner, other in pairs if other == decoy]
    sentences = [sentence for sentence in _SENTENCE.split(text) if named(sentence, plain(decoy))]
    if not sentences:
        return False
    return all(any(named(sentence, owner) for owner in owners) for sentence in sentences)


def new_values(text: str, question: str, reference: Reference) -> list[str]:
    """Return what looks like an answer and is neither a decoy nor in the question.

    If the reference has no pattern of what looks like an answer, it is what looks like a key word
    that is a number, code or compound. Raises SettingsError for an invalid pattern.

    >>> reference = Reference("none", like="[0-9]+", decoys=("31",))
    >>> new_values("none, or 47 or 12", "what is 12?", reference)
    ['47']
    """
    shapes = [
        shape(keyword)
        for keyword in map(plain, reference.keywords)
        if not keyword.replace(" ", "").isalpha()
    ]
    like = reference.like or "|".join(dict.fromkeys(shapes))
    if not like:
        return []
    try:
        matches = re.finditer(like, ungrouped(text))
        values = dict.fromkeys(re.sub("[ _]", "-", match.group()) for match in matches)
    except re.error as error:
        raise SettingsError(f"like: '{like}' is no pattern ({error}).") from None
    decoys = [plain(decoy) for decoy in reference.decoys]
    return [value for value in values if value not in decoys and not named(question, value)]
