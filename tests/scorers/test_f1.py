"""A list is scored by what it holds and by what it should not hold."""

from __future__ import annotations

import asyncio

import pytest

from needlemap.errors import SettingsError
from needlemap.scorers.base import Reference, Score
from needlemap.scorers.f1 import F1, items

WANTED = ("AAAAA", "BBBBB", "CCCCC")


def scored(answer: str, **options: object) -> Score:
    given = {name: options.pop(name) for name in ("item",) if name in options}
    return asyncio.run(F1(**given).score(answer, Reference("", WANTED, **options)))


def test_the_whole_list_and_nothing_else_is_right():
    assert scored("AAAAA, BBBBB and CCCCC").share == 1
    assert scored("1. ccccc\n2. bbbbb\n3. aaaaa").share == 1


def test_what_is_missing_costs_recall_and_what_is_wrong_costs_precision():
    score = scored("AAAAA, BBBBB, DDDDD")
    assert score.why["recall"] == pytest.approx(2 / 3)
    assert score.why["precision"] == pytest.approx(2 / 3)
    assert score.share == pytest.approx(2 / 3)
    assert score.why["wrong"] == ["ddddd"]


def test_known_decoys_are_all_that_counts_as_wrong():
    score = scored("I found AAAAA and EEEEE, well", decoys=("DDDDD", "EEEEE"))
    assert (score.why["precision"], score.why["wrong"]) == (0.5, ["eeeee"])


def test_what_the_question_says_earns_nothing():
    score = scored("AAAAA", question="Which follow AAAAA?")
    assert (score.share, score.why["missing"]) == (0, ["bbbbb", "ccccc"])


def test_items_may_have_a_pattern():
    assert scored("My list: AAAAA BBBBB CCCCC, that is it", item="[A-Z]{5}").share == 1


def test_with_a_pattern_all_that_looks_like_an_item_counts_not_the_decoys_alone():
    score = scored("AAAAA EEEEE FFFFF", item="[A-Z]{5}", decoys=("EEEEE",))
    assert score.why["wrong"] == ["eeeee", "fffff"]


def test_a_list_with_spaces_alone_hides_no_wrong_items():
    """Whoever copied the whole text without a comma once had full precision."""
    assert scored("AAAAA BBBBB CCCCC EEEEE").why["wrong"] == ["eeeee"]
    assert scored("1) AAAAA 2) BBBBB 3) CCCCC").share == 1
    assert scored("They are AAAAA (30), BBBBB (30) and CCCCC (30).").share == 1


def test_a_heading_is_no_item():
    assert scored("These are they:\nAAAAA\nBBBBB\nCCCCC").share == 1


@pytest.mark.parametrize("answer", ["", "none", "DDDDD"])
def test_an_answer_without_any_of_them_is_0(answer):
    assert scored(answer).share == 0


def test_items_of_a_list_in_any_style():
    assert items('["fig", "plum"]') == ["fig", "plum"]
    assert items("- fig\n* plum\n• pear") == ["fig", "plum", "pear"]
    assert items("无花果、李子和梨") == ["无花果", "李子", "梨"]


def test_what_cannot_be_scored_is_said():
    with pytest.raises(SettingsError, match="whose answer is a list"):
        asyncio.run(F1().score("x", Reference("y")))
    with pytest.raises(SettingsError, match="is no pattern"):
        F1(item="(")
