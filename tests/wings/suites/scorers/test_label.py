"""Exactly one label where the answer first names any, and the right one."""

from __future__ import annotations

import asyncio
import time

import pytest

from needlemap.errors import SettingsError
from needlemap.scorers import Score
from needlemap.scorers.stated import Label
from needlemap.suites.lexicon import lexicon
from needlemap.tasks import Reference

REFERENCE = Reference(
    "barn", question="Where is Ada, who left the hall?", decoys=("hall", "attic", "bar")
)


def label_reference(language: str, place: str, question: str) -> Reference:
    """What task `facts` gives: every other place of its world is wrong."""
    places: list[str] = lexicon("world", language)["places"]
    return Reference(place, question=question, decoys=tuple(one for one in places if one != place))


ENGLISH = label_reference(
    "english", "dairy", "Where is the bracelet at the end? Answer with the place alone."
)
CHINESE = label_reference("chinese", "书房", "在文中最后，手镯在哪里？只回答地点。")


def scored(answer: str, reference: Reference = REFERENCE) -> Score:
    return asyncio.run(Label().score(answer, reference))


@pytest.mark.parametrize(
    "answer",
    [
        "barn",
        "Barn.",
        "She is in the barn.",
        "\n\n The **barn**!",
        "The barn. Not the attic.",
        "barn\nattic",
    ],
)
def test_the_right_label_alone_is_right(answer):
    assert scored(answer).share == 1


@pytest.mark.parametrize(
    "answer",
    [
        "1. dairy",
        "- Dairy",
        "> dairy",
        "DAIRY!",
        "(dairy)",
        "`dairy`",
        "**Dairy**",
        r"\boxed{dairy}",
        "Answer: dairy",
        "**Answer:**\ndairy",
        "### Answer\ndairy",
        "**Final answer**\n\nDairy",
        "| Place |\n|---|\n| dairy |",
        "Okay.\ndairy",
        "Hmm... the dairy.",
        "Sure! The bracelet is in the dairy.",
        "Jasper Rookshaw has it. He is in the dairy.",
        "The bracelet is in the **dairy**. It was in the barn earlier.",
        "In the dairy\n\nExplanation: Jasper walked from the barn to the kitchen, then to the "
        "dairy.",
        "If I'm not mistaken, it is in the dairy.",
    ],
)
def test_what_stands_before_the_first_label_says_nothing(answer):
    """'1. dairy' was once judged by its first sentence, '1'."""
    assert scored(answer, ENGLISH).share == 1


@pytest.mark.parametrize(
    "answer",
    [
        "The bracelet is in the dairy, not the barn.",
        "He's in the dairy rather than the barn.",
        "It's not in the barn, it's in the dairy.",
        "It isn\u2019t in the barn; it is in the dairy.",
        "It is no longer in the barn but in the dairy.",
        "It is not in the barn. It is in the dairy.",
        "Ann, who was never in the barn, is in the dairy.",
        "She did not stay in the barn and went to the dairy.",
        "Instead of the barn he went to the dairy.",
        "It is not in the barn or the attic but in the dairy.",
    ],
)
def test_a_label_that_is_denied_is_not_named(answer):
    assert scored(answer, ENGLISH).share == 1


@pytest.mark.parametrize(
    "answer",
    [
        "Without doubt the dairy",
        "Without question, Ann is in the dairy.",
        "Not surprisingly, dairy",
        "It is not clear, probably dairy",
        "Ann did not take the ball elsewhere and stays in the dairy",
    ],
)
def test_a_denial_reaches_no_further_than_its_clause_and_may_be_turned_round(answer):
    """It once reached to the sentence's end, so that all of these were wrong."""
    assert scored(answer, ENGLISH).share == 1


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "barn",
        "dairymaid",
        "I don't know.",
        "dairy or barn",
        "In the dairy, or the barn.",
        "kitchen, garden, dairy",
        "barn\ndairy",
        "The barn. Or the dairy.",
        "Places: dairy, barn\ndairy",
        "It moved from the barn to the dairy.",
        "Not the dairy",
        "It isn't in the dairy.",
        "It was never in the dairy.",
        "The barn, not the dairy.",
        "It is not in the barn or the dairy.",
        "It is neither in the dairy nor in the barn.",
        "Anywhere but in the dairy or the barn",
        "The text does not say that it is in the dairy.",
        "I don't think it is in the dairy.",
        "It cannot be in the dairy.",
        "It was not moved to the dairy.",
        "She has not left for the dairy.",
        "Not in the barn or in the dairy",
        "It is not in the barn and the dairy.",
    ],
)
def test_another_label_two_none_and_a_denied_one_are_wrong(answer):
    assert scored(answer, ENGLISH).share == 0


@pytest.mark.parametrize(
    "answer",
    [
        "书房。",
        "1. 书房",
        "一、书房",
        "「书房」",
        "答案：书房",
        "**答案：**\n书房",
        "### 答案\n书房",
        "答案是：\n\n**书房**",
        "好的！手镯在书房。",
        "根据文章，手镯最后在书房。",
        "手镯由某某带着。某某在书房。",
        "他没有离开书房。",
        "手镯在书房，不在花园。",
        "手镯不在花园，在书房。",
        "手镯不在花园，而是在书房。",
        "手镯不在花园在书房。",
        "手镯不在花园或谷仓，在书房。",
        "不是在别处而是在书房",
    ],
)
def test_a_right_answer_in_chinese(answer):
    assert scored(answer, CHINESE).share == 1


@pytest.mark.parametrize(
    "answer",
    [
        "花园",
        "不在书房",
        "不在花园和书房",
        "没有移动到书房",
        "并非书房",
        "书房或花园",
        "花园。书房。",
        "不在书房，在花园。",
        "不是书房而是花园",
    ],
)
def test_a_wrong_answer_in_chinese(answer):
    assert scored(answer, CHINESE).share == 0


@pytest.mark.parametrize(
    "answer",
    [
        "It has not left the dairy.",
        "It was not taken from the dairy",
        "Not the dairy",
        "I don't know.",
        "",
    ],
)
def test_an_answer_that_names_no_label_or_only_denies_one_is_unreadable(answer):
    score = scored(answer, ENGLISH)
    assert (score.share, score.why["labels"], score.unreadable) == (0, [], True)


def test_a_denial_may_be_a_label_itself():
    """BABILong asks whether somebody is somewhere: yes, no or maybe."""
    reference = Reference("no", question="Is Ada in the hall?", decoys=("yes", "maybe"))
    for answer in ("No.", "No, she is not in the hall.", "Ada is no longer in the hall."):
        assert scored(answer, reference).share == 1
    assert scored("I know that she is not.", reference).share == 0


def test_what_the_question_names_does_not_count():
    assert scored("From the hall Ada went to the barn").share == 1
    assert scored("hall").share == 0


def test_labels_are_found_whole():
    """A substring test would find 'bar' in every 'barn'."""
    assert scored("the barn").why["labels"] == ["barn"]
    assert scored("the bar").why["labels"] == ["bar"]


def test_why_says_what_was_read():
    assert scored("In the attic, or the barn? Yes.").why == {
        "sentence": "in the attic, or the barn?",
        "labels": ["barn", "attic"],
    }
    assert scored("Well. The barn.").why == {"sentence": "the barn", "labels": ["barn"]}
    assert scored("Well. No idea.").why == {"sentence": "well", "labels": []}


def test_a_heading_is_no_sentence():
    reference = Reference("barn", question="Where is she?", decoys=("attic",))
    assert scored("The answer is:\nbarn", reference).share == 1
    assert scored("The answer is: barn", reference).share == 1
    assert scored("Not in the attic:\nbarn", reference).share == 1


def test_a_task_without_other_labels_is_refused():
    with pytest.raises(SettingsError, match="which other labels"):
        scored("barn", Reference("barn"))


@pytest.mark.parametrize(
    "piece", ["not ", "not the ", "not. ", "neither in the barn or ", "不在", "\n", "x"]
)
def test_a_long_answer_is_read_once(piece):
    begun = time.process_time()
    scored(piece * (100_000 // len(piece)), ENGLISH)
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        ("Ada went to the hall. She then went to the barn. So: barn.", 1),
        ("Ada went to the barn. She then went to the hall. So: hall.", 0),
        ("It was in the barn. Now it is in the hall.", 0),
        ("The hall? No, the barn.", 1),
        ("The barn? No, the hall.", 0),
        ("The barn?", 1),
        ("先去了大厅。然后去了谷仓。所以是barn。", 1),
        ("Answer: barn. She was in the hall before.", 1),
    ],
)
def test_who_concludes_is_judged_by_the_conclusion(answer, share):
    reference = Reference("barn", ("barn",), question="Where is Ada?", decoys=("hall", "attic"))
    assert asyncio.run(Label().score(answer, reference)).share == share
