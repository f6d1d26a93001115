"""Keywords found, or a fifth of the wording."""

from __future__ import annotations

import asyncio

import pytest

from needlemap.errors import SettingsError
from needlemap.scorers.base import Reference, Score
from needlemap.scorers.keyword import Keyword


def score(answer: str, *keywords: str, reference: str = "The chef is Jack.") -> Score:
    return asyncio.run(Keyword().score(answer, Reference(reference, keywords)))


def test_a_keyword_found_is_everything():
    assert score("I think it was Jack", "Jack").native == 100.0


def test_without_it_the_wording_counts_a_fifth():
    found = score("The chef is Tom.", "Jack")
    assert found.native == 0.2 * 100 * (1 - 4 / 14)
    assert found.why == {"found": [], "missing": ["Jack"], "distance": 4}


def test_all_of_several_keywords_must_be_there():
    assert score("Jack and Jill", "Jack", "Jill").share == 1.0
    assert score("Jack alone", "Jack", "Jill").share < 0.2


def test_however_it_is_written_a_keyword_is_found_as_substring_finds_it():
    assert score("it was jack", "Jack").native == 100.0
    assert score("The chef Jack\n**Ma**", "Jack Ma").native == 100.0
    assert score("It is 51328.5", "51328").native < 20


def coded(answer: str, *keywords: str) -> float:
    reference = Reference("The chef is Jack.", keywords)
    return asyncio.run(Keyword(rule="opencompass").score(answer, reference)).native


def test_by_opencompass_rule_case_counts():
    assert coded("it was jack", "Jack") < 20


def test_by_opencompass_rule_whitespace_in_the_answer_is_ignored_but_not_in_the_keyword():
    assert coded("J a c k", "Jack") == 100.0
    assert coded("The chef Jack Ma", "Jack Ma") < 20


@pytest.mark.parametrize("keywords", [(), ("",)])
def test_a_task_without_keywords_is_an_error_not_a_score(keywords):
    with pytest.raises(SettingsError, match="needs a task with keywords"):
        score("anything", *keywords)


def test_options_are_refused():
    with pytest.raises(SettingsError, match="Known: rule"):
        Keyword(words=("a",))  # type: ignore[call-arg]
