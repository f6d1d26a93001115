"""What is wanted and nothing else of its kind; or that there is nothing."""

from __future__ import annotations

import asyncio

import pytest

from needlemap.errors import SettingsError
from needlemap.scorers.base import Reference, Score
from needlemap.scorers.shape import any_of, number
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


NUMBER = Reference("none", question="Which of 4711?", decoys=("1234567",), none="none", like=number(7))


@pytest.mark.parametrize(
    ("answer", "share", "made_up"),
    [
        ("none", 1, []),
        ("none; but it might be 7394821", 0, ["7394821"]),
        ("None. Perhaps 7,394,821?", 0, ["7394821"]),
        ("none, or 739482", 0, ["739482"]),  # a digit short of the kind that is asked for
        ("none, 7394821 or 7394822", 0, ["7394821", "7394822"]),
        ("None of the 300 sentences names 4711, as of 2024.", 1, []),
        ("none, though 1234567 is there", 0, []),  # a decoy is not made up
        ("none, though 1,234,567 is there", 0, []),
        ("none, for 4,711", 1, []),
        ("7394821", 0, ["7394821"]),
    ],
)
def test_where_there_is_nothing_a_value_beside_the_denial_is_made_up(answer, share, made_up):
    score = scored(answer, NUMBER)
    assert (score.share, score.why["invented"]) == (share, made_up)


def test_of_people_another_name_of_those_that_there_are_is_made_up():
    names = any_of(["Ann", "Bob", "Cleo"])
    reference = Reference("none", question="Who is Ann?", decoys=("Bob",), none="none", like=names)
    answers = ("none; Cleo, I guess", "none but Ann", "None. Cleopatra?", "None, not Bob")
    assert [scored(answer, reference).why["invented"] for answer in answers] == [["cleo"], [], [], []]
    assert [scored(answer, reference).share for answer in answers] == [0, 1, 1, 0]


def test_nobody_says_what_is_made_up_where_nobody_knows_the_kind():
    assert "invented" not in scored("none, or 7394821", NOT_THERE).why
    assert "invented" not in scored("none, or 7394821", THERE).why


def test_a_kind_that_is_no_pattern_is_said():
    with pytest.raises(SettingsError, match="like: '\\(' is no pattern"):
        scored("none", Reference("none", none="none", like="("))


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
