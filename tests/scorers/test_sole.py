"""What is wanted and nothing else of its kind; or that there is nothing."""

from __future__ import annotations

import asyncio

import pytest

from needlemap.errors import SettingsError
from needlemap.scorers.base import Reference, Score
from needlemap.scorers.sole import Sole

ANN = Reference("Ann", ("Ann",), question="Who swims?", decoys=("Bob", "Cleo"))
ASKED = "Who swims? If the text does not say, answer: none."
THERE = Reference("Ann", ("Ann",), question=ASKED, decoys=("Bob",), none="none")
NOT_THERE = Reference("none", question=ASKED, decoys=("Bob",), none="none")


def scored(answer: str, reference: Reference) -> Score:
    return asyncio.run(Sole().score(answer, reference))


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        ("Ann", 1),
        ("It is ANN, I think.", 1),
        ("Ann or Bob", 0),  # guessing does not pay
        ("Bob", 0),
        ("Anna", 0),  # a word is found whole
        ("Ann, not Cleopatra", 1),
        ("Who swims? Ann", 1),
        ("", 0),
        ("none", 0),
    ],
)
def test_the_wanted_counts_and_a_decoy_beside_it_spoils_it(answer, share):
    assert scored(answer, ANN).share == share


def test_of_several_wanted_the_share_counts():
    reference = Reference("1, 2", ("1", "2"), decoys=("3",))
    assert scored("1", reference).share == 0.5
    assert scored("1 and 3", reference).share == 0


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        ("none", 1),
        ("None.", 1),
        ("There is none in the text.", 1),
        ("Bob", 0),
        ("none, or perhaps Bob", 0),
        ("nonetheless", 0),
        ("The text does not say.", 0),  # the question asks for one word
        ("", 0),
        (ASKED, 0),  # it holds that word
        (f"{ASKED} None.", 1),
    ],
)
def test_where_there_is_nothing_only_denying_is_right(answer, share):
    assert scored(answer, NOT_THERE).share == share


def test_why_says_whether_it_was_there_and_whether_the_answer_denies_it():
    assert scored("Bob", NOT_THERE).why == {
        "found": [],
        "missing": [],
        "decoys": ["Bob"],
        "present": False,
        "none": False,
    }
    denied = scored("none", THERE)
    assert (denied.share, denied.why["present"], denied.why["none"]) == (0, True, True)
    assert "present" not in scored("Ann", ANN).why


def test_what_the_question_says_is_no_decoy():
    reference = Reference("Ann", ("Ann",), question="Who is taller than Bob?", decoys=("Bob", "Cleo"))
    assert scored("Ann is taller than Bob.", reference).share == 1


def test_chinese_needs_no_ends_of_words():
    reference = Reference("没有", question="谁会游泳？", decoys=("柯以宁",), none="没有")
    assert scored("文中没有提到。", reference).share == 1
    assert scored("柯以宁会游泳。", reference).share == 0


def test_a_task_without_keywords_is_refused():
    with pytest.raises(SettingsError, match=r"needs a task with keywords\. Type: --scorer recall"):
        scored("x", Reference("x"))
