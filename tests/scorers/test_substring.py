"""All words present, whatever their case."""

from __future__ import annotations

import asyncio

import pytest

from needlemap.errors import SettingsError
from needlemap.scorers.base import Reference, Score
from needlemap.scorers.substring import Substring

REFERENCE = Reference("Eat a sandwich in Dolores Park.", ("Dolores", "sandwich"))


def score(answer: str, reference: Reference = REFERENCE, **options: object) -> Score:
    return asyncio.run(Substring(**options).score(answer, reference))  # type: ignore[arg-type]


def test_all_words_in_any_case_are_one():
    found = score("A SANDWICH at dolores park")
    assert (found.share, found.native) == (1.0, 1.0)
    assert found.why == {"found": ["Dolores", "sandwich"], "missing": []}


LOCKER = Reference("The code is 51328.", ("51328",))


@pytest.mark.parametrize(
    "answer",
    [
        "51328",
        "It is 51328.",
        "**51328**",
        "#51328!",
        "code:51328",
        "51328th",
        "５１３２８",
        "51,328",
        "51 328",
        "51'328",
        "51{,}328",
        "$51{,}328$",
        "密码是51328号",
        "密码是５１，３２８。",
        "12, 51328, 9",
    ],
)
def test_a_number_is_found_however_it_is_written(answer):
    assert score(answer, LOCKER).share == 1


def test_a_word_that_is_a_number_may_be_written_with_thousands_itself():
    assert score("1234", words=("1,234",)).share == score("1,234", words=("1234",)).share == 1
    assert score("12.5", words=("12",)).share == score("12345", words=("1,234",)).share == 0


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "1513289",
        "513280",
        "151328",
        "151,328",
        "51,328,000",
        "51 32 8",
        "5132",
        "51,3289",
        "51，3，28",
        "密码是513289号",
        "51-328-1513289",
        "51328.5",
        "0.51328",
    ],
)
def test_a_part_of_a_longer_number_is_not_that_number(answer):
    """1513289 once counted for 51328."""
    assert score(answer, LOCKER).share == 0


def test_words_are_found_in_longer_ones_and_in_any_width_and_case():
    assert score("Sandwiches in ＤＯＬＯＲＥＳ Park's shade").share == 1
    assert score("在上海人工智能实验室。", Reference("", ("人工智能",))).share == 1
    assert score("the red fox", Reference("", ("red-fox",))).share == 1
    assert score("room 123", Reference("", ("room 12",))).share == 0
    assert score("room 12a", Reference("", ("room 12",))).share == 1


@pytest.mark.parametrize(
    ("answer", "theirs"), [("1513289", 1), ("5１328", 0), ("51,328", 0), ("CODE 51328", 1), ("", 0)]
)
def test_the_older_tools_rule_finds_a_word_anywhere_and_as_it_stands(answer, theirs):
    assert score(answer, LOCKER, anywhere=True).share == theirs


def test_one_word_missing_is_nothing():
    found = score("a sandwich")
    assert found.share == 0.0
    assert found.why["missing"] == ["Dolores"]


def test_its_own_words_come_before_the_references():
    assert score("a park", words=["Park"]).share == 1.0


def test_without_keywords_the_whole_answer_is_looked_for():
    assert score("It is: jack ma!", Reference("Jack Ma")).share == 1.0


def test_nothing_to_look_for_is_an_error_not_a_score():
    with pytest.raises(SettingsError, match="no words to look for"):
        score("anything", Reference(" "))
    with pytest.raises(SettingsError, match="every answer holds"):
        Substring(words=("",))


def test_a_single_text_for_words_is_refused_not_cut_into_letters():
    with pytest.raises(SettingsError, match="Option 'words' of Substring"):
        Substring(words="dolores")  # type: ignore[arg-type]
