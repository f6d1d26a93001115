"""Exactly one label in the first sentence, and the right one."""

from __future__ import annotations

import asyncio

import pytest

from needlemap.errors import SettingsError
from needlemap.scorers.base import Reference, Score
from needlemap.scorers.label import Label

REFERENCE = Reference("barn", question="Where is Ada, who left the hall?", decoys=("hall", "attic", "bar"))


def scored(answer: str, reference: Reference = REFERENCE) -> Score:
    return asyncio.run(Label().score(answer, reference))


@pytest.mark.parametrize(
    "answer",
    ["barn", "Barn.", "She is in the barn.", "\n\n The **barn**!", "The barn. Not the attic.", "barn\nattic"],
)
def test_the_right_label_alone_in_the_first_sentence_is_right(answer):
    assert scored(answer).share == 1


@pytest.mark.parametrize(
    "answer", ["", "attic", "barn or attic", "I think. The barn.", "barnyard", "unknown"]
)
def test_another_two_or_none_is_wrong(answer):
    assert scored(answer).share == 0


def test_what_the_question_names_does_not_count():
    assert scored("From the hall Ada went to the barn").share == 1
    assert scored("hall").share == 0


def test_labels_are_found_whole():
    """A substring test would find 'bar' in every 'barn'."""
    assert scored("the barn").why["labels"] == ["barn"]
    assert scored("the bar").why["labels"] == ["bar"]


def test_why_says_what_was_read():
    assert scored("In the attic, or the barn? Yes.").why == {
        "sentence": "in the attic, or the barn",
        "labels": ["barn", "attic"],
    }


def test_chinese_needs_no_spaces():
    reference = Reference("厨房", question="某某在哪里？", decoys=("花园",))
    assert scored("某某在厨房。", reference).share == 1
    assert scored("某某在厨房，不在花园。", reference).share == 0


def test_a_heading_is_no_sentence():
    reference = Reference("barn", question="Where is she?", decoys=("attic",))
    assert scored("The answer is:\nbarn", reference).share == 1
    assert scored("The answer is: barn", reference).share == 1


def test_a_task_without_other_labels_is_refused():
    with pytest.raises(SettingsError, match="which other labels"):
        scored("barn", Reference("barn"))
