"""Distractors: sentences like the user's own needle that the question does not ask for.

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
from needlemap.text import held, named, plain, shape

_SPARE = 50  # values that are drawn beyond those needed, as some may not do
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
    """The sentences of one distractor, and what a wrong answer would take from them; nothing where
    that is unknown."""

    texts: tuple[str, ...]
    values: tuple[str, ...] = ()


def near_misses(
    wording: OwnWords, values: Mapping[str, str], right: Sequence[str], count: int, random: Random
) -> list[Distractor]:
    """So many near misses. values: of the needle's own slots. right: what a right answer
    holds.

    Raises SettingsError where slots do not allow as many.
    """
    asked, told = _slots(wording)
    ways = {name: _others(wording.draw[name], values[name], count, random) for name in asked}
    turns = [
        (name, each) for row in zip_longest(*ways.values()) for name, each in _named(ways, row)
    ]
    if len(turns) < count:
        listed = ", ".join(f"{{{name}}}" for name in asked)
        raise SettingsError(
            f"--distractors {count}: {listed} in the question allows {len(turns)} near misses. "
            f"Give --draw more values, or --distractors {len(turns)}."
        )
    rest = [name for name in wording.draw if name not in asked]
    pools = {name: _pool(wording, name, values, right, count, random) for name in rest}
    for name in told:
        if not pools[name]:
            raise SettingsError(
                f"--distractors {count}: --draw gives {{{name}}} no other value than "
                f"'{values[name]}', so each near miss would hold the answer. Give it more values."
            )
    found = []
    for number, (name, other) in enumerate(turns[:count]):
        drawn = {each: pool[number % len(pool)] for each, pool in pools.items() if pool}
        filled = {**values, **drawn, name: other}
        texts = tuple(fill(needle, filled, "needle") for needle in wording.needles)
        _refuse_right(texts, right, f"near miss '{' '.join(texts)}'")
        found.append(Distractor(texts, _values(wording, filled, right)))
    return found


def own_sentences(
    lines: Sequence[str], values: Mapping[str, str], right: Sequence[str]
) -> list[Distractor]:
    """The user's sentences, each with its value: what stands behind a tab, else the one text
    that looks like a right number or code. Raises SettingsError for one that holds the right
    answer."""
    found = []
    for line in lines:
        text, tab, value = (fill(line, dict(values), "distractors")).partition(_TAB)
        text, value = text.strip(), value.strip()
        if not text:
            raise SettingsError(f"distractors: '{line}' has no sentence before its tab.")
        if tab and not held(plain(text), plain(value)):
            raise SettingsError(f"distractors: '{text}' does not hold its value '{value}'.")
        _refuse_right((text,), right, f"'{text}'")
        known = value or _looking_like(text, right)
        found.append(Distractor((text,), (known,) if known else ()))
    return found


def decoys_of(found: Sequence[Distractor], question: str) -> tuple[str, ...]:
    """The values that a wrong answer takes from distractors, but those that the question
    names."""
    values = dict.fromkeys(value for each in found for value in each.values)
    return tuple(value for value in values if not named(plain(question), plain(value)))


def hidden_beside(found: Sequence[Distractor], random: Random) -> Iterator[Needle]:
    """Their sentences as needles that stand anywhere, and stay there."""
    for text in (text for each in found for text in each.texts):
        yield Needle(text, random.random(), still=True, wrong=True)


def _slots(wording: OwnWords) -> tuple[list[str], list[str]]:
    """The slots that tell which fact is asked for, and those that make its answer. Raises
    SettingsError without any of either."""
    hidden = [name for text in wording.needles for name in placeholders(text, "needle")]
    in_question = placeholders(wording.question, "question")
    asked = [name for name in dict.fromkeys(in_question) if name in hidden]
    wanted = wording.keywords or ([wording.answer] if wording.answer else wording.needles)
    in_answer = (name for text in wanted for name in placeholders(text, "answer"))
    told = [name for name in dict.fromkeys(in_answer) if name in hidden and name not in asked]
    own = "or give sentences of your own: --distractors FILE"
    if not asked:
        raise SettingsError(
            f"--distractors N draws near misses from a slot that needle and question share, and "
            f"they share none: write one as {{city}}, with --draw city=Oslo,Lima,Cairo, {own}"
        )
    if not told:
        raise SettingsError(
            f"--distractors N draws near misses with other answers, and the answer has no slot: "
            f"write one as {{number}}, with --draw number=1000:9999, {own}"
        )
    return asked, told


def _named(ways: Mapping[str, Sequence[str]], row: Sequence[str | None]) -> list[tuple[str, str]]:
    return [(name, each) for name, each in zip(ways, row, strict=True) if each is not None]


def _others(choices: Sequence[str] | str, own: str, count: int, random: Random) -> list[str]:
    """Up to so many different values of a slot but its own, in any order."""
    if isinstance(choices, str):
        low, _, high = choices.partition(":")  # was drawn from before: it is a range
        numbers = range(int(low), int(high) + 1)
        drawn = random.sample(numbers, min(len(numbers), count + 1))
        others = [str(each) for each in drawn]
    else:
        others = list(dict.fromkeys(map(str, choices)))
        random.shuffle(others)
    return [each for each in others if plain(each) != plain(own)][:count]


def _pool(
    wording: OwnWords,
    name: str,
    values: Mapping[str, str],
    right: Sequence[str],
    count: int,
    random: Random,
) -> list[str]:
    """Other values of a slot that neither hold a right answer nor stand in one."""
    others = _others(wording.draw[name], values[name], count + _SPARE, random)
    return [each for each in others if not any(_alike(each, word) for word in right)]


def _alike(one: str, other: str) -> bool:
    """Whether either of two texts stands in the other."""
    left, right = plain(one), plain(other)
    return left in right or right in left


def _values(wording: OwnWords, filled: Mapping[str, str], right: Sequence[str]) -> tuple[str, ...]:
    """What an answer takes from a near miss: what is wanted of the needle, filled
    otherwise."""
    wanted = wording.keywords or (wording.answer or "",)
    texts = (fill(text, dict(filled), "answer") for text in wanted if placeholders(text, "answer"))
    return tuple(text for text in texts if text not in right)


def _refuse_right(texts: Sequence[str], right: Sequence[str], what: str) -> None:
    """Raises SettingsError for a distractor that holds the right answer."""
    for word in right:
        if any(plain(word).strip() in plain(text) for text in texts):
            raise SettingsError(
                f"--distractors: {what} holds the right answer '{word}', so it would be no wrong "
                f"one. Change it, or --keywords."
            )


def _looking_like(text: str, right: Sequence[str]) -> str:
    """The one number or code in a text that looks like a right one; '' without, and with
    several."""
    coded = [plain(word).strip() for word in right]
    if not coded or any(word.replace(" ", "").isalpha() for word in coded):
        return ""
    found = {match[0] for word in coded for match in re.finditer(shape(word), plain(text))}
    return found.pop() if len(found) == 1 else ""
