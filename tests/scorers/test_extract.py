"""What is read from an answer: the patterns' own examples, and what models really answer."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from needlemap.registry import find
from needlemap.scorers.extract import LANGUAGES, patterns, source
from needlemap.tasks import Reference

ANSWERS = yaml.safe_load(Path(__file__).with_name("answers.yaml").read_text("utf-8"))
NAMES = sorted(set(patterns("english")) - {"numbers"})
MOST_ALTERNATIVES = 180  # of all patterns; 514 stood in four files before


def cases(kind: str) -> list[Any]:
    """The answers of a kind, each with its scorer's name and its reference."""
    found = []
    for row in ANSWERS:
        fields = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in row["reference"].items()
        }
        for answer in row[kind]:
            name = f"{row['scorer']}: {answer!r}"
            found.append(pytest.param(row["scorer"], Reference(**fields), answer, id=name))
    return found


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", NAMES)
def test_a_pattern_finds_its_right_examples_and_none_of_its_wrong_ones(language, name):
    rule = patterns(language)[name]
    finds = re.compile(source(name, language), re.M | re.I)
    seeks = {"counted": finds.fullmatch, "concludes": finds.match}.get(name, finds.search)
    assert [text for text in rule["right"] if not seeks(text)] == []
    assert [text for text in rule["wrong"] if seeks(text)] == []
    assert rule["right"]
    assert rule["wrong"]


def test_all_languages_have_the_same_patterns_and_few_alternatives():
    assert {frozenset(patterns(language)) for language in LANGUAGES} == {
        frozenset([*NAMES, "numbers"])
    }
    written = [patterns(language)[name]["pattern"] for language in LANGUAGES for name in NAMES]
    assert sum(1 + text.count("|") for text in written) <= MOST_ALTERNATIVES


@pytest.mark.parametrize(("scorer", "reference", "answer"), cases("right"))
def test_a_right_answer_scores_full_in_whatever_usual_words(scorer, reference, answer):
    score = asyncio.run(find("scorers", scorer)().score(answer, reference))
    assert (score.share, score.unreadable) == (1, False)


@pytest.mark.parametrize(("scorer", "reference", "answer"), cases("wrong"))
def test_a_wrong_answer_scores_nothing_and_is_read(scorer, reference, answer):
    score = asyncio.run(find("scorers", scorer)().score(answer, reference))
    assert (score.share, score.unreadable) == (0, False)


@pytest.mark.parametrize(("scorer", "reference", "answer"), cases("unreadable"))
def test_an_answer_that_nothing_is_taken_from_scores_nothing_and_says_so(scorer, reference, answer):
    score = asyncio.run(find("scorers", scorer)().score(answer, reference))
    assert (score.share, score.unreadable) == (0, True)
