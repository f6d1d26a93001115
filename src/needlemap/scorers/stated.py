"""Scorers of what an answer states: a letter, a label, what its box holds, its first value, key
words.

Those of key words (`only`) are for tasks where guessing must not pay: several candidates in one
answer, or one where the text gives none.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Any

from rapidfuzz.distance import Levenshtein

from needlemap.errors import SettingsError
from needlemap.scorers import Score, Scorer
from needlemap.scorers.extract import boxed, contents, counted, labels_said, letter, says_none
from needlemap.scorers.words import sought
from needlemap.tasks import Reference
from needlemap.text import named, plain, shape, ungrouped

_DASH = "\u2014"  # parts words, where `plain` takes it for a hyphen
_ANY = (
    r"[0-9]+(?:\.0*[1-9][0-9]*)?"  # where an answer has none like the reference: how near it came
)
_WORD = re.compile("[0-9a-z]+(?:-[0-9a-z]+)*")
_SENTENCE = re.compile(r"[.!?](?=\s|$)|[。！？\n]")
_REPEATED = 8  # characters: a shorter sentence may be an answer


class Choice(Scorer):
    """Which of some lettered choices an answer takes; the right letter is the reference answer.

    why: the letter that was taken, None for none.
    """

    name = "choice"
    rule = 3

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if the task's answer is no letter."""
        if not re.fullmatch("[A-Z]", reference.answer):
            raise SettingsError(
                "Scorer 'choice' needs a task with lettered choices. Type: --scorer exact"
            )
        said = letter(answer, reference.question)
        right = float(said == reference.answer)
        return Score(right, right, {"said": said}, unreadable=said is None)


class Label(Scorer):
    """Whether an answer names exactly one of a few possible labels, and the right one, where it
    states any.

    The labels are the answer and the decoys, found whole, so that 'no' is not in 'know'; those that
    the question names do not count, as an answer may repeat them. why: the sentence, and the labels
    it names.
    """

    name = "label"
    rule = 4

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if the task says of no wrong label."""
        if not reference.decoys:
            raise SettingsError(
                "Scorer 'label' needs a task that says which other labels there are. Type: "
                "--scorer substring"
            )
        asked = plain(reference.question)
        labels = dict.fromkeys(plain(text) for text in (reference.answer, *reference.decoys))
        sentence, found = labels_said(
            answer, [label for label in labels if not named(asked, label)]
        )
        right = float(found == list(labels)[:1])
        return Score(right, right, {"sentence": sentence, "labels": found}, unreadable=not found)


class Boxed(Scorer):
    """Whether what an answer puts into \\boxed{...} last is the reference answer, and nothing else.

    The box says which of the names in a long derivation is meant as the answer; without one an
    answer cannot be read. Empty boxes, and \\boxed{...} with dots, speak of boxes and are none.
    Case, white space, quotes and LaTeX's words for type are ignored, and where the reference is a
    number what it counts, and whether it stands there in digits. why: what is in the box, or None.
    """

    name = "boxed"
    rule = 3

    async def score(self, answer: str, reference: Reference) -> Score:
        """Never raises: an answer without a box is an answer."""
        said, wanted = boxed(answer), contents(reference.answer)
        holds = contents(said or "")
        right = float(holds == wanted or (wanted.isdecimal() and counted(holds) == int(wanted)))
        return Score(right, right, {"said": said}, unreadable=said is None)


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
    rule = 4

    def __init__(self, *, pattern: str = "", chain: bool = False) -> None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise SettingsError(
                f"Option 'pattern' of First: '{pattern}' is no pattern ({error})."
            ) from None
        self.options = {"pattern": pattern, "chain": chain}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if there is nothing to look for."""
        texts = (reference.answer.strip(), answer, reference.question)
        wanted, answered, asked = (plain(text.replace(_DASH, " ")) for text in texts)
        if not wanted:
            raise SettingsError("Scorer 'first' needs a reference answer.")
        answered = ungrouped(answered) if wanted.isdecimal() else answered
        pattern = self.options["pattern"] or reference.like or shape(wanted)
        told = told_of(pattern, answered, asked)
        if not told and wanted.isdecimal():
            told = told_of(_ANY, answered, asked)
        taken = told[0] if told else ""
        if self.options["chain"] and on_the_way(taken, reference):
            taken = told[-1]
        right = float(taken == wanted)
        why = {"said": taken, "similarity": Levenshtein.normalized_similarity(taken, wanted)}
        return Score(right, right, why, unreadable=not told)


def on_the_way(taken: str, reference: Reference) -> bool:
    """Whether something is a decoy that stands in the needle too, if that is known: a step,
    not another's.

    >>> on_the_way("b", Reference("c", needle="a b, b c", decoys=("b", "x")))
    True
    """
    in_needle = not reference.needle or named(plain(reference.needle), taken)
    return in_needle and taken in map(plain, reference.decoys)


def told_of(pattern: str, answered: str, asked: str) -> list[str]:
    """What a pattern finds that the question does not say, nor a part of what it says.

    >>> told_of("[0-9]+", "the value of 4a-b7 is 31", "what is the value of 4a-b7?")
    ['31']
    """
    known: dict[str, bool] = {}  # by text, whether the question says it
    words = [word for word in _WORD.finditer(answered) if _is_known(known, asked, word[0])]
    starts, ends = [word.start() for word in words], [word.end() for word in words]
    told = []
    for match in re.finditer(pattern, answered):
        at = bisect_right(starts, match.start()) - 1  # words do not overlap: no other could hold it
        repeated = at >= 0 and match.end() <= ends[at]
        if not repeated and not _is_known(known, asked, match[0]):
            told.append(match[0])
    return told


def _is_known(known: dict[str, bool], asked: str, text: str) -> bool:
    """Whether the question says a text, looked up once."""
    if text not in known:
        known[text] = named(asked, text)
    return known[text]


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
    rule = 4

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if there is nothing to look for, or by no pattern."""
        if not any(text.strip() for text in (*reference.keywords, reference.none)):
            raise SettingsError("Scorer 'only' needs a task with keywords. Type: --scorer recall")
        asked = plain(reference.question)
        answered = unasked(plain(answer), asked)
        wrong, _ = sought(answered, reference.decoys, "words")
        decoys = [text for text in wrong if not named(asked, plain(text))]
        found, missing = sought(answered, reference.keywords, "words")
        known = bool(reference.like)
        denied = bool(reference.none) and says_none(answered, plain(reference.none), known=known)
        others = values(answered, asked, reference)
        if denied and not reference.keywords:  # then it is read, whatever is left of the decoys
            decoys = [text for text in decoys if not elsewhere(answered, text, reference)]
        made_up = [] if reference.keywords else others
        share = len(found) / len(reference.keywords) if reference.keywords else float(denied)
        share = 0.0 if decoys or made_up else share
        why: dict[str, Any] = {"found": found, "missing": missing, "decoys": decoys}
        if reference.none:
            why |= {"present": bool(reference.keywords), "none": denied}
        if reference.like and not reference.keywords:
            why["invented"] = made_up
        return Score(share, share, why, unreadable=not (found or decoys or others or denied))


def unasked(answered: str, asked: str) -> str:
    """An answer without the sentences that it repeats of the question.

    >>> unasked("who swims? ann.", "who swims?").split()
    ['?', 'ann.']
    """
    for sentence in map(str.strip, _SENTENCE.split(asked)):
        if len(sentence) >= _REPEATED:
            answered = answered.replace(sentence, " ")
    return answered


def elsewhere(answered: str, decoy: str, reference: Reference) -> bool:
    """Whether an answer names a decoy only in sentences that say whose it is."""
    pairs = zip(
        reference.owners, reference.decoys, strict=False
    )  # not every task says whose they are
    owners = [plain(owner) for owner, each in pairs if each == decoy]
    where = [each for each in _SENTENCE.split(answered) if named(each, plain(decoy))]
    return bool(where) and all(any(named(each, owner) for owner in owners) for each in where)


def values(answered: str, asked: str, reference: Reference) -> list[str]:
    """What looks like an answer, and neither the question nor the text holds. Raises
    SettingsError.

    Where the reference does not say what does, it is what looks like a wanted number, code or
    compound.

    >>> values("none, or 47 or 12", "what is 12?", Reference("none", like="[0-9]+", decoys=("31",)))
    ['47']
    """
    coded = [
        shape(text)
        for text in map(plain, reference.keywords)
        if not text.replace(" ", "").isalpha()
    ]
    if not (like := reference.like or "|".join(dict.fromkeys(coded))):
        return []
    try:
        matches = re.finditer(like, ungrouped(answered))
        found = dict.fromkeys(re.sub("[ _]", "-", match.group()) for match in matches)
    except re.error as error:
        raise SettingsError(f"like: '{like}' is no pattern ({error}).") from None
    known = [plain(text) for text in reference.decoys]
    return [text for text in found if text not in known and not named(asked, text)]
