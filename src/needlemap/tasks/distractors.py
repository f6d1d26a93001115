"""Make distractors: sentences like the user's own needle that the question does not ask for.

    needle:    The locker code for {city} is {number}.
    question:  What is the locker code for {city}?
    near miss: The locker code for Lima is 51328.

A near miss is the needle with one of the question's slots filled otherwise, and every other slot
too, so that it contradicts nothing and gives another answer. Of several needles it is all of them.
The user's own sentences may hold slots too; a tab parts a sentence from the value that a wrong
answer would take from it. In the manner of Chroma's "Context Rot" (2025), with our own rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from random import Random

from needlemap.errors import SettingsError
from needlemap.prompts.templates import fill, placeholders
from needlemap.tasks import Needle
from needlemap.text import contains, named, plain, shape

# Values that are drawn in addition to those needed, because some may not do.
_SPARE = 50
_TAB = "\t"


@dataclass(frozen=True, slots=True)
class OwnWords:
    """What the user hides, asks and wants, with slots, and the values that these are drawn from."""

    needles: tuple[str, ...]
    question: str
    answer: str | None
    keywords: tuple[str, ...]
    draw: Mapping[str, Sequence[str] | str]


@dataclass(frozen=True, slots=True)
class Distractor:
    """The sentences of one distractor.

    values: what a wrong answer would take from them; () if that is unknown.
    """

    texts: tuple[str, ...]
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of the user's own words.

    Attributes:
        question: Those that say which fact is asked for.
        answer: Those that make its answer.
    """

    question: list[str]
    answer: list[str]


def near_misses(
    wording: OwnWords, values: Mapping[str, str], right: Sequence[str], count: int, random: Random
) -> list[Distractor]:
    """Return so many near misses.

    values: of the needle's own slots. right: what a right answer holds. Raises SettingsError if the
    slots do not allow as many.
    """
    slots = _slots(wording)
    fillings = _fillings(wording, slots.question, values=values, count=count, random=random)
    if len(fillings) < count:
        listed = ", ".join(f"{{{name}}}" for name in slots.question)
        raise SettingsError(
            f"--distractors {count}: {listed} in the question allows {len(fillings)} near misses. "
            f"Give --draw more values, or --distractors {len(fillings)}."
        )
    pools = {}
    for name in wording.draw:
        if name not in slots.question:
            pools[name] = _pool(
                wording, name, values=values, right=right, count=count, random=random
            )
    for name in slots.answer:
        if not pools[name]:
            raise SettingsError(
                f"--distractors {count}: --draw gives {{{name}}} no other value than "
                f"'{values[name]}', so each near miss would hold the answer. Give it more values."
            )
    distractors = []
    for number, (slot, value) in enumerate(fillings[:count]):
        others = {name: pool[number % len(pool)] for name, pool in pools.items() if pool}
        filled = {**values, **others, slot: value}
        texts = tuple(fill(needle, filled, what="needle") for needle in wording.needles)
        _refuse_right(texts, right, what=f"near miss '{' '.join(texts)}'")
        distractors.append(Distractor(texts, _values(wording, filled, right=right)))
    return distractors


def _fillings(
    wording: OwnWords,
    slots: Sequence[str],
    values: Mapping[str, str],
    count: int,
    random: Random,
) -> list[tuple[str, str]]:
    """Return other values of the question's slots, the slots in turn: each a slot and its value."""
    others = {}
    for name in slots:
        others[name] = _others(wording.draw[name], values[name], count=count, random=random)
    fillings = []
    for row in zip_longest(*others.values()):
        for name, value in zip(others, row, strict=True):
            if value is not None:
                fillings.append((name, value))
    return fillings


def own_sentences(
    lines: Sequence[str], values: Mapping[str, str], right: Sequence[str]
) -> list[Distractor]:
    """Return the user's sentences, each with the value that a wrong answer takes from it.

    It stands after a tab, or is the one text that looks like a right number or code. Raises
    SettingsError for a sentence that holds the right answer.
    """
    distractors = []
    for line in lines:
        before, tab, after = fill(line, dict(values), what="distractors").partition(_TAB)
        text = before.strip()
        value = after.strip()
        if not text:
            raise SettingsError(f"distractors: '{line}' has no sentence before its tab.")
        if tab and not contains(plain(text), plain(value)):
            raise SettingsError(f"distractors: '{text}' does not hold its value '{value}'.")
        _refuse_right((text,), right, what=f"'{text}'")
        value = value or _looking_like(text, right)
        distractors.append(Distractor((text,), (value,) if value else ()))
    return distractors


def decoys_of(distractors: Sequence[Distractor], question: str) -> tuple[str, ...]:
    """Return the values that a wrong answer takes from distractors.

    Those that the question names are left out.
    """
    values = dict.fromkeys(value for distractor in distractors for value in distractor.values)
    return tuple(value for value in values if not named(plain(question), plain(value)))


def hidden_beside(distractors: Sequence[Distractor], random: Random) -> Iterator[Needle]:
    """Yield their sentences as needles that stand anywhere, and stay there."""
    for distractor in distractors:
        for text in distractor.texts:
            yield Needle(text, random.random(), still=True, wrong=True)


def _slots(wording: OwnWords) -> Slots:
    """Return the slots that say which fact is asked for, and those that make its answer.

    Raises SettingsError if there are none of either.
    """
    hidden = {name for text in wording.needles for name in placeholders(text, "needle")}
    in_question = placeholders(wording.question, "question")
    question = [name for name in dict.fromkeys(in_question) if name in hidden]

    answers: Sequence[str] = wording.needles
    if wording.keywords:
        answers = wording.keywords
    elif wording.answer:
        answers = [wording.answer]
    in_answer = [name for text in answers for name in placeholders(text, "answer")]
    answer = [name for name in dict.fromkeys(in_answer) if name in hidden and name not in question]

    advice = "or give sentences of your own: --distractors FILE"
    if not question:
        raise SettingsError(
            f"--distractors N draws near misses from a slot that needle and question share, and "
            f"they share none: write one as {{city}}, with --draw city=Oslo,Lima,Cairo, {advice}"
        )
    if not answer:
        raise SettingsError(
            f"--distractors N draws near misses with other answers, and the answer has no slot: "
            f"write one as {{number}}, with --draw number=1000:9999, {advice}"
        )
    return Slots(question=question, answer=answer)


def _others(choices: Sequence[str] | str, value: str, count: int, random: Random) -> list[str]:
    """Return up to so many values of a slot that differ from its own value, in any order."""
    if isinstance(choices, str):
        # A range such as 1000:9999, which was drawn from before, so it is well formed.
        low, _, high = choices.partition(":")
        numbers = range(int(low), int(high) + 1)
        sample = random.sample(numbers, min(len(numbers), count + 1))
        values = [str(number) for number in sample]
    else:
        values = list(dict.fromkeys(map(str, choices)))
        random.shuffle(values)
    return [other for other in values if plain(other) != plain(value)][:count]


def _pool(
    wording: OwnWords,
    name: str,
    values: Mapping[str, str],
    right: Sequence[str],
    count: int,
    random: Random,
) -> list[str]:
    """Return other values of a slot that neither hold a right answer nor stand in one."""
    others = _others(wording.draw[name], values[name], count=count + _SPARE, random=random)
    return [value for value in others if not any(_alike(value, word) for word in right)]


def _alike(text: str, other: str) -> bool:
    """Return True if either of two texts stands in the other."""
    plain_text = plain(text)
    plain_other = plain(other)
    return plain_text in plain_other or plain_other in plain_text


def _values(wording: OwnWords, filled: Mapping[str, str], right: Sequence[str]) -> tuple[str, ...]:
    """Return what an answer takes from a near miss, in place of the right values."""
    right_texts = wording.keywords or (wording.answer or "",)
    texts = (
        fill(text, dict(filled), what="answer")
        for text in right_texts
        if placeholders(text, "answer")
    )
    return tuple(text for text in texts if text not in right)


def _refuse_right(texts: Sequence[str], right: Sequence[str], what: str) -> None:
    """Raise SettingsError for a distractor that holds the right answer."""
    for word in right:
        if any(plain(word).strip() in plain(text) for text in texts):
            raise SettingsError(
                f"--distractors: {what} holds the right answer '{word}', so it would be no wrong "
                f"one. Change it, or --keywords."
            )


def _looking_like(text: str, right: Sequence[str]) -> str:
    """Return the one number or code in a text that looks like a right one.

    '' if there is none, or several.
    """
    words = [plain(word).strip() for word in right]
    if not words or any(word.replace(" ", "").isalpha() for word in words):
        return ""
    plain_text = plain(text)
    matches = {match[0] for word in words for match in re.finditer(shape(word), plain_text)}
    return matches.pop() if len(matches) == 1 else ""
