"""Build the prompts of NeedleBench's ancestral trace (OpenCompass, versions 1 and 2) byte for byte.

A prompt holds the facts of one line of descent and nothing else. Names come from the user's file,
and the wording from `template`. Its "prompt" has {shuffled_story} and the placeholders of the
question ({last_person}, ...), with other braces doubled. Its "sentences" have {A}, who is the
elder, {B} and {relationship}. Its "terms" are the possible relationships.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from needlemap.errors import HaystackError, SettingsError, did_you_mean
from needlemap.interop.opencompass.data import json_of
from needlemap.interop.opencompass.prompts import LANGUAGES

QUESTIONS = ("ELDEST_ANCESTOR", "NTH_ANCESTOR", "NTH_DESCENDANT", "RELATIONSHIP_DISTANCE")
FORMS = ("SHUFFLED", "ORDERED", "CHOICE", "ELDER_ONLY")
_LETTERS = "ABCD"
_TURNS = ("ABCD", "BCDA", "CDAB", "DABC")


def load_trace(
    path: str | Path,
    num_needles: int,
    language: str,
    repeats: int,
    question_type: str,
    template: Mapping[str, Any],
    file_name: str = "names.json",
) -> list[dict[str, str]]:
    """Return rows {"prompt", "answer"} of version 2's trace, with `num_needles` facts.

    question_type: one of QUESTIONS. template: "prompt" with {shuffled_story} and
    {last_person}, or {person} and {n}, or {person_a} and {person_b}; "sentences"; "terms"; and
    "generations" of each term. Raises NeedlemapError.
    """
    _check(question_type, "question_type", allowed=QUESTIONS)
    _check_count(num_needles)
    names = _names(path, file_name, language=language, count=num_needles + 1)
    is_descent = question_type == "NTH_DESCENDANT"
    rows = []
    for repeat in range(repeats):
        random = Random(repeat + 1 + 10_000 * QUESTIONS.index(question_type))
        people = random.sample(names, num_needles + 1)
        facts: list[str] = []
        generations = 0
        for elder, younger in pairwise(people):
            sentence, term = fact(random, template, elder=elder, younger=younger)
            facts.append(sentence)
            generations += template["generations"][term]
        random.shuffle(facts)

        eldest = people[0]
        youngest = people[-1]
        prompt = template["prompt"].format(
            shuffled_story="".join(facts),
            last_person=youngest,
            person=eldest if is_descent else youngest,
            n=generations,
            person_a=eldest,
            person_b=youngest,
        )
        if question_type == "RELATIONSHIP_DISTANCE":
            answer = str(generations)
        elif is_descent:
            answer = youngest
        else:
            answer = eldest
        rows.append({"prompt": prompt, "answer": answer})
    return rows


def load_eldest(
    path: str | Path,
    num_needles: int,
    language: str,
    repeats: int,
    form: str,
    template: Mapping[str, Any],
    seed: int = 0,
    file_name: str = "names.json",
) -> list[dict[str, str]]:
    """Return rows {"prompt", "answer"} that ask for the eldest of `num_needles` people.

    form: version 1's "SHUFFLED" and "ORDERED" (answer 'name*name'); its "CHOICE" of four people,
    with four rows a repeat, one for each turn of the options (answer 'repeat--letter--turn'); or
    version 2's "ELDER_ONLY" (answer 'name'). template: "prompt" with {shuffled_story} and
    {last_person}, "sentences", "terms". seed: of "SHUFFLED" and "ORDERED", which the original
    does not seed. Raises NeedlemapError.
    """
    _check(form, "form", allowed=FORMS)
    _check_count(num_needles)
    options = len(_LETTERS) if form == "CHOICE" else 0
    names = _names(path, file_name, language=language, count=max(num_needles, options))
    seeded = Random(seed)
    rows: list[dict[str, str]] = []
    for repeat in range(repeats):
        random = Random(repeat) if form in ("CHOICE", "ELDER_ONLY") else seeded
        people = random.sample(names, num_needles)
        facts: list[str] = []
        for elder, younger in pairwise(people):
            sentence, _ = fact(random, template, elder=elder, younger=younger)
            facts.append(sentence)
        # The original shuffles an empty fact with the others.
        facts.append("")
        if form != "ORDERED":
            random.shuffle(facts)

        eldest = people[0]
        prompt = template["prompt"].format(shuffled_story="".join(facts), last_person=people[-1])
        if form == "CHOICE":
            rows += _choices(prompt, repeat, options=_options(random, names, people=people))
        elif form == "ELDER_ONLY":
            rows.append({"prompt": prompt, "answer": eldest})
        else:
            rows.append({"prompt": prompt, "answer": f"{eldest}*{eldest}"})
    return rows


def fact(random: Random, template: Mapping[str, Any], elder: str, younger: str) -> tuple[str, str]:
    """Return a fact about two people, and the term in it."""
    sentence: str = random.choice(template["sentences"])
    term: str = random.choice(template["terms"])
    filled = sentence.replace("{A}", elder).replace("{B}", younger)
    return filled.replace("{relationship}", term), term


def _options(random: Random, names: list[str], people: list[str]) -> list[str]:
    """Return four people, the eldest first: those of the line of descent, then others."""
    options = people[: len(_LETTERS)]
    others = [name for name in names if name not in people]
    return options + random.sample(others, len(_LETTERS) - len(options))


def _choices(prompt: str, repeat: int, options: list[str]) -> list[dict[str, str]]:
    """Return a row for each turn of the options, of which the first is right."""
    rows = []
    for turn in _TURNS:
        turned_options = [options[_LETTERS.index(letter)] for letter in turn]
        lines = "".join(
            f"{letter}. {name}\n" for letter, name in zip(_LETTERS, turned_options, strict=True)
        )
        right_letter = _LETTERS[turn.index("A")]
        rows.append(
            {
                "prompt": f"{prompt}\n{lines}",
                "answer": f"{repeat}--{right_letter}--{turn}",
            }
        )
    return rows


def _names(path: str | Path, file_name: str, *, language: str, count: int) -> list[str]:
    """Return the file's names in a language, at least `count`.

    Raises HaystackError, SettingsError.
    """
    _check(language, "language", allowed=LANGUAGES)
    try:
        names: list[str] = json_of(path, file_name)[language].split(",")
    except (KeyError, TypeError, AttributeError):
        raise HaystackError(
            f"'{Path(path) / file_name}' holds no names under \"{language}\". "
            "Give them as one text, separated by commas."
        ) from None
    if len(names) < count:
        raise SettingsError(
            f"{count} people are needed, and '{Path(path) / file_name}' has {len(names)} names in "
            f"{language}. Lower num_needles, or add names."
        )
    return names


def _check(value: str, name: str, allowed: Mapping[str, str] | tuple[str, ...]) -> None:
    if value not in allowed:
        raise SettingsError(f"Unknown {name} '{value}'. {did_you_mean(value, allowed)}")


def _check_count(num_needles: int) -> None:
    if num_needles < 1:
        raise SettingsError(f"num_needles must be at least 1, got {num_needles}.")
