"""One JSON object of pairs, one key asked for."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any

import pytest

from needlemap.errors import SettingsError
from needlemap.grid import Cell
from needlemap.scorers.stated import First
from needlemap.settings.reading import configure
from needlemap.tasks import Draw
from needlemap.tasks.key_values import KeyValue
from needlemap.tasks.values import Values
from needlemap.trials import Trial
from needlemap.trials.build import prepare

DRAW = Draw(Cell(4000, 0.5))


def trials(**given: Any) -> tuple[Trial, ...]:
    small = {
        "task": "kv",
        "lengths": [3000],
        "depths": [0, 25, 50, 75, 100],
        "max_answer_tokens": 64,
    }
    return prepare(configure(None, small | given)).trials


def pairs(trial: Trial) -> list[tuple[str, str]]:
    text = trial.prompt.messages[-1].content
    return json.loads(text[text.rindex("{\n") : text.rindex("}") + 1], object_pairs_hook=list)


@pytest.mark.parametrize("mode", ["exact", "bins"])
def test_the_object_is_valid_and_holds_the_answer(mode):
    for trial in trials(mode=mode):
        found = dict(pairs(trial))
        (wanted,) = trial.item.reference.keywords
        assert [
            key for key, value in found.items() if value == wanted and key in trial.item.question
        ]


def test_the_asked_pair_stands_at_its_depth_among_them():
    for trial in trials():
        found = pairs(trial)
        place = [value for _, value in found].index(trial.item.reference.answer)
        assert (
            abs(place - trial.cell.depth * (len(found) - 2)) <= 1.5
        )  # the last pair is never asked for


def test_as_many_pairs_as_fit_are_measured_not_reckoned():
    """How many tokens a pair has differs by a third between vocabularies."""
    counts = {name: len(pairs(trials(tokenizer=name)[2])) for name in ("cl100k_base", "qwen3")}
    assert counts["cl100k_base"] > 1.25 * counts["qwen3"]


def test_the_question_may_come_first_too():
    item = KeyValue(query_first=True).item(DRAW)
    assert item.prologue == f"{item.question}\n\n{{\n"
    assert KeyValue().item(DRAW).prologue == "{\n"


def test_shots_are_solved_examples_that_all_trials_of_a_repeat_share():
    task = KeyValue(shots=2)
    one, other, apart = (
        task.item(Draw(Cell(4000, depth), repeat)).prologue
        for depth, repeat in ((0.1, 0), (0.9, 0), (0.1, 1))
    )
    assert one == other != apart
    example, answer, *_ = (
        one.split("\n\n")[0].rpartition("}\n")[0] + "}",
        one.split("\n\n")[0].split("\n")[-1],
    )
    assert answer in json.loads(example).values()
    assert one.count("Which value") == 2


def test_the_size_of_keys_and_values_is_set():
    item = KeyValue(key="number", digits=3, value="word").item(DRAW)
    key, value = item.needles[0].text.removesuffix(",\n").split(": ")
    assert len(key.strip('"')) == 3
    assert "-" in value
    assert len(KeyValue(uuid_digits=8).item(DRAW).reference.answer) == 8


@pytest.mark.parametrize("language", ["english", "chinese"])
def test_of_word_values_the_first_counts_and_not_the_right_one_somewhere(language):
    reference = KeyValue(key="word", value="word", language=language).item(DRAW).reference
    others = Values("word", 7, language)
    wrong = next(
        one for seed in range(99) if (one := others.draw(Random(seed))) != reference.answer
    )
    for answer, share in (
        (f"{reference.answer}", 1),
        (f"{wrong}, {reference.answer}", 0),
        (wrong, 0),
    ):
        assert asyncio.run(First().score(answer, reference)).share == share


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shots": -1}, "'shots' of KeyValue must be at least 0"),
        ({"uuid_digits": 1}, "'uuid_digits' of KeyValue must be at least 4"),
        ({"shot": 1}, r"Did you mean 'shots'\?"),
    ],
)
def test_what_cannot_be_is_said(options, words):
    with pytest.raises(SettingsError, match=words):
        KeyValue(**options)
