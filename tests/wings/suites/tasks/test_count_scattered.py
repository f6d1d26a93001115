"""Scattered counts: how many, where, in what order, and which of two numbers is right."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from needlemap.errors import SettingsError
from needlemap.grid import Cell
from needlemap.scorers import Score
from needlemap.settings.reading import configure
from needlemap.suites.f1 import F1
from needlemap.suites.trace import ScatteredCounts
from needlemap.tasks import Draw, Item
from needlemap.trials.build import prepare


def item(depth: float = 0.0, repeat: int = 0, **options: Any) -> Item:
    return ScatteredCounts(**options).item(Draw(Cell(4000, depth), repeat, 1))


def scored(answer: str, made: Item) -> Score:
    return asyncio.run(F1().score(answer, made.reference))


def test_32_different_numbers_stand_evenly_spaced_from_the_cells_depth_on():
    for depth in (0.0, 0.36):
        made = item(depth)
        assert len(set(made.reference.keywords)) == len(made.needles) == 32
        assert made.needles[0].depth == depth
        depths = [needle.depth for needle in made.needles] + [1.0]
        gaps = [right - left for left, right in pairwise(depths)]
        assert gaps == pytest.approx([(1 - depth) / 32] * 32)
        for needle, number in zip(made.needles, made.reference.keywords, strict=True):
            assert needle.text == f"The lighthouse keeper counted {number} gulls."


def test_numbers_are_fresh_in_every_trial_and_in_no_haystack():
    lists = [item(depth, repeat).reference.keywords for depth in (0.0, 0.5) for repeat in range(5)]
    assert len(set(lists)) == 10
    given = {
        "task": "count-scattered",
        "lengths": [4000, 30_000],
        "depths": [0],
        "tokenizer": "cl100k_base",
    }
    for trial in prepare(configure(None, given | {"max_answer_tokens": 64})).trials:
        text = trial.prompt.context_text
        places = [text.index(number) for number in trial.item.reference.keywords]
        assert places == sorted(places)
        assert all(text.count(number) == 1 for number in trial.item.reference.keywords)
        realised = [needle.realised for needle in trial.prompt.needles]
        assert realised == pytest.approx([place / 32 for place in range(32)], abs=0.04)


def test_words_around_the_list_and_thousands_cost_nothing_and_a_wrong_number_does():
    made = item(numbers=4)
    listed = ", ".join(f"{int(number):,}" for number in made.reference.keywords)
    assert (
        scored(
            f"In the order in which they stand, the 4 counts, all told, were {listed}.", made
        ).share
        == 1
    )
    assert scored(
        f"The counts were {listed}, and 1 more of 9,999 gulls.", made
    ).share == pytest.approx(8 / 9)


def test_of_a_corrected_count_only_the_second_number_is_right():
    made = item(corrected=True, numbers=4)
    wanted, wrong = made.reference.keywords, made.reference.decoys
    assert not set(wanted) & set(wrong)
    for needle, number, other in zip(made.needles, wanted, wrong, strict=True):
        assert needle.text == (
            f"The lighthouse keeper counted {other} gulls, saw a mistake, counted again and now "
            f"had {number}."
        )
    assert "only the corrected one" in made.question
    assert "corrected" not in item().question
    assert scored(", ".join(wanted), made).share == 1
    assert scored(", ".join(wrong), made).share == 0
    both = scored(", ".join(wanted + wrong), made)
    assert (both.why["recall"], both.why["precision"], both.why["wrong"]) == (1, 0.5, list(wrong))


def test_recall_and_precision_tell_which_numbers_are_missing_and_which_made_up():
    made = item(numbers=4)
    first, second, third, fourth = made.reference.keywords
    score = scored(f"{first}, {third}, 12, {fourth}", made)
    assert (score.why["recall"], score.why["precision"]) == (0.75, 0.75)
    assert (score.why["missing"], score.why["wrong"]) == ([second], ["12"])


def test_another_order_costs_nothing_and_is_told():
    made = item(numbers=5)
    first, *rest = made.reference.keywords
    late, lacking = scored(", ".join([*rest, first]), made), scored(", ".join(rest), made)
    assert (late.share, late.why["ordered"], lacking.why["ordered"]) == (1, 0.8, 0.8)
    assert scored(", ".join([first, *rest]), made).why["ordered"] == 1
    assert scored("", made).why["ordered"] == 0


def test_it_speaks_chinese():
    chinese = item(language="chinese", corrected=True)
    assert chinese.needles[0].text.startswith("看守灯塔的人先数到")
    assert "，数错后更正的只列更正后的数字。" in chinese.question


@pytest.mark.parametrize("options", [{"numbers": 0}, {"digits": 1}])
def test_wrong_options_are_refused(options):
    with pytest.raises(SettingsError, match=r"Option .* of ScatteredCounts must be at least"):
        ScatteredCounts(**options)
