"""One JSON object in which a value is the next key."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from needlemap.errors import SettingsError
from needlemap.grid import Cell
from needlemap.scorers.stated import First
from needlemap.settings.reading import configure
from needlemap.suites.f1 import F1
from needlemap.suites.trace import Thread
from needlemap.tasks import Draw, Item
from needlemap.trials import Trial
from needlemap.trials.build import prepare


def item(**options: Any) -> Item:
    return Thread(**options).item(Draw(Cell(4000, 0.3), 1, 2))


def trials(**options: Any) -> tuple[Trial, ...]:
    small = {"task": "thread", "lengths": [1500], "depths": [0, 50, 100], "max_answer_tokens": 64}
    return prepare(
        configure(None, {**small, "task_options": {"uuid_digits": 16, **options}})
    ).trials


def test_the_object_is_valid_json_whose_thread_ends_with_the_answer():
    for trial in trials(hops=5, threads=2, order="random"):
        text = trial.prompt.messages[-1].content
        pairs = json.loads(text[text.rindex("{\n") : text.rindex("}") + 1])
        key = trial.item.question.split('"')[1]
        steps = 0
        while key in pairs:
            key, steps = pairs[key], steps + 1
        assert (key, steps) == (trial.item.reference.answer, 5)


@pytest.mark.parametrize("order", ["forward", "backward", "random"])
def test_the_threads_first_pair_stands_at_the_cells_depth_in_whatever_order(order):
    made = item(order=order, hops=4)
    depths = [needle.depth for needle in made.needles]
    assert depths == sorted(depths)
    assert depths[0] == 0.3
    starts = [needle.text.split('"')[1] for needle in made.needles]
    first = made.question.split('"')[1]
    assert (starts.index(first) == 0) == (order == "forward")
    if order == "backward":
        assert starts[-1] == first


def test_other_threads_and_values_on_the_way_are_decoys_of_the_last():
    made = item(threads=3, hops=4)
    assert len(made.needles) == 12
    assert len(made.reference.keywords) == 1
    assert len(made.reference.decoys) == 3 + 2 * 4


def test_an_answer_may_tell_the_thread_up_to_its_last_value():
    experiment = prepare(
        configure(None, {"task": "thread", "lengths": [1500], "max_answer_tokens": 64})
    )
    reference = experiment.trials[0].item.reference
    way = " -> ".join([*reference.decoys, reference.answer])
    answers = (
        reference.answer,
        way,
        " -> ".join(reference.decoys),
        f"{way} -> {reference.decoys[0]}",
    )
    assert [asyncio.run(experiment.scorer.score(each, reference)).share for each in answers] == [
        1,
        1,
        0,
        0,
    ]


def test_words_around_a_list_of_all_values_cost_nothing_and_a_made_up_value_does():
    reference = item(ask="all", hops=4).reference
    listed = "\n".join(f"{n}. {value}" for n, value in enumerate(reference.keywords, 1))
    made_up = reference.keywords[0][::-1]
    answers = {
        f"Sure, in that order, these are the values:\n\n{listed}\n\nThe last one is no key.": 1
    }
    answers |= {f"{listed}\n5. {made_up}": 8 / 9, f"{listed}\nPerhaps {made_up} is one too.": 8 / 9}
    for answer, share in answers.items():
        assert asyncio.run(F1().score(answer, reference)).share == pytest.approx(share)


def test_asked_for_all_every_value_on_the_way_is_wanted_but_not_the_key_that_the_question_gives():
    """An older tool credits whoever repeats the first key."""
    made = item(ask="all", hops=4)
    first = made.question.split('"')[1]
    assert len(made.reference.keywords) == 4
    assert first not in made.reference.keywords
    assert asyncio.run(F1().score(first, made.reference)).share == 0
    half = f"The values:\n{first}\n" + "\n".join(made.reference.keywords[:2])
    score = asyncio.run(F1().score(half, made.reference))
    assert (score.why["recall"], score.why["precision"]) == (0.5, 1)


def test_the_scorer_follows_from_what_is_asked():
    assert (Thread().scorer, Thread(ask="all").scorer) == ("first", "f1")
    made = item()
    right = f"The key {made.question.split(chr(34))[1]} leads to {made.reference.answer}."
    assert asyncio.run(First().score(right, made.reference)).share == 1
    assert asyncio.run(First().score(made.reference.decoys[0], made.reference)).share == 0


def test_it_speaks_chinese():
    assert item(language="chinese").question.startswith("在 JSON 对象中查找键“")
    assert "列出" in item(language="chinese", ask="all").question


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hops": 0}, "'hops' of Thread must be at least 1"),
        ({"uuid_digits": 3}, "'uuid_digits' of Thread must be at least 4"),
        ({"ask": "some"}, "Option 'ask' of Thread"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, words):
    with pytest.raises(SettingsError, match=words):
        Thread(**options)
