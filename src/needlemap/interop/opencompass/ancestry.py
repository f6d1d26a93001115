"""NeedleBench's ancestral trace, byte for byte: facts of one line of descent and nothing else
(OpenCompass, versions 1 and 2). Names are the user's file, wording is `template`.

A template's "prompt" has {shuffled_story} and what the question names ({last_person}, ...),
with other braces doubled; "sentences" have {A}, the elder, {B} and {relationship}; "terms" are
what may stand there.
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
    """Rows {"prompt", "answer"} of version 2's trace, of `num_needles` facts.

    question_type: one of QUESTIONS. template: "prompt" with {shuffled_story} and
    {last_person}, or {person} and {n}, or {person_a} and {person_b}; "sentences", "terms", and
    "generations" of each term. Raises NeedlemapError.
    """
    _check(question_type, "question_type", QUESTIONS)
    _check_count(num_needles)
    names = _names(path, file_name, language, num_needles + 1)
    rows = []
    for repeat in range(repeats):
        random = Random(repeat + 1 + 10_000 * QUESTIONS.index(question_type))
        people, facts, steps = random.sample(names, num_needles + 1), list[str](), 0
        for elder, younger in pairwise(people):
            told, term = fact(random, template, elder, younger)
            facts.append(told)
            steps += template["generations"][term]
        random.shuffle(facts)
        first, last = people[0], people[-1]
        down = question_type == "NTH_DESCENDANT"
        prompt = template["prompt"].format(
            shuffled_story="".join(facts),
            last_person=last,
            person=first if down else last,
            n=steps,
            person_a=first,
            person_b=last,
        )
        answer = str(steps) if question_type == QUESTIONS[3] else last if down else first
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
    """Rows {"prompt", "answer"} of the forms that ask for the eldest of `num_needles` people.

    form: version 1's "SHUFFLED" and "ORDERED" (answer 'name*name'), its "CHOICE" of four
    people (four rows a repeat, one a turn of the options; answer 'repeat--letter--turn'), and
    version 2's "ELDER_ONLY" (answer 'name'). template: "prompt" with {shuffled_story} and
    {last_person}, "sentences", "terms". seed: of "SHUFFLED" and "ORDERED", which the original
    does not seed. Raises NeedlemapError.
    """
    _check(form, "form", FORMS)
    _check_count(num_needles)
    options = len(_LETTERS) if form == "CHOICE" else 0
    names = _names(path, file_name, language, max(num_needles, options))
    seeded, rows = Random(seed), list[dict[str, str]]()
    for repeat in range(repeats):
        random = Random(repeat) if form in ("CHOICE", "ELDER_ONLY") else seeded
        people = random.sample(names, num_needles)
        facts = [fact(random, template, *pair)[0] for pair in pairwise(people)]
        facts.append("")  # the original shuffles an empty fact along
        if form != "ORDERED":
            random.shuffle(facts)
        prompt = template["prompt"].format(shuffled_story="".join(facts), last_person=people[-1])
        if form == "CHOICE":
            rows += _choices(prompt, repeat, _options(random, names, people))
        else:
            answer = people[0] if form == "ELDER_ONLY" else f"{people[0]}*{people[0]}"
            rows.append({"prompt": prompt, "answer": answer})
    return rows


def fact(random: Random, template: Mapping[str, Any], elder: str, younger: str) -> tuple[str, str]:
    """A fact about two people, and the term in it."""
    sentence, term = random.choice(template["sentences"]), random.choice(template["terms"])
    filled = sentence.replace("{A}", elder).replace("{B}", younger)
    return filled.replace("{relationship}", term), term


def _options(random: Random, names: list[str], people: list[str]) -> list[str]:
    """Four people, the eldest first: those of the line, then others."""
    options = people[: len(_LETTERS)]
    others = [name for name in names if name not in people]
    return options + random.sample(others, len(_LETTERS) - len(options))


def _choices(prompt: str, repeat: int, options: list[str]) -> list[dict[str, str]]:
    """A row a turn of the options, whose first is the right one."""
    rows = []
    for turn in _TURNS:
        turned = [options[_LETTERS.index(letter)] for letter in turn]
        lines = "".join(
            f"{letter}. {name}\n" for letter, name in zip(_LETTERS, turned, strict=True)
        )
        right = _LETTERS[turn.index("A")]
        rows.append({"prompt": f"{prompt}\n{lines}", "answer": f"{repeat}--{right}--{turn}"})
    return rows


def _names(path: str | Path, file_name: str, language: str, count: int) -> list[str]:
    """The file's names in a language, at least `count`. Raises HaystackError,
    SettingsError."""
    _check(language, "language", LANGUAGES)
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


def _check(value: str, name: str, known: Mapping[str, str] | tuple[str, ...]) -> None:
    if value not in known:
        raise SettingsError(f"Unknown {name} '{value}'. {did_you_mean(value, known)}")


def _check_count(num_needles: int) -> None:
    if num_needles < 1:
        raise SettingsError(f"num_needles must be at least 1, got {num_needles}.")
