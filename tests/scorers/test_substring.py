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
