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


def test_case_counts():
    assert score("it was jack", "Jack").native < 20


def test_whitespace_in_the_answer_is_ignored_but_not_in_the_keyword():
    assert score("J a c k", "Jack").native == 100.0
    assert score("The chef Jack Ma", "Jack Ma").native < 20


@pytest.mark.parametrize("keywords", [(), ("",)])
def test_a_task_without_keywords_is_an_error_not_a_score(keywords):
    with pytest.raises(SettingsError, match="needs a task with keywords"):
        score("anything", *keywords)


def test_options_are_refused():
    with pytest.raises(SettingsError, match="It takes none"):
        Keyword(words=("a",))  # type: ignore[call-arg]
