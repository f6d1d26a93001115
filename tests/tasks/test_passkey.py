"""A pass key in noise, and number strings."""

from __future__ import annotations

from itertools import groupby
from random import Random

import pytest

from needlemap.errors import SettingsError
from needlemap.grid import Cell
from needlemap.tasks import Draw
from needlemap.tasks.key_values import Passkey, key_of

DRAW = Draw(Cell(4000, 0.5))


def test_the_key_stands_in_its_sentence_and_nowhere_in_the_question():
    item = Passkey().item(DRAW)
    assert len(item.reference.answer) == 5
    assert item.needles[0].text.count(item.reference.answer) == 2
    assert item.reference.answer not in item.question + item.answer_prefix


def test_a_key_of_any_size_never_begins_with_0():
    random = Random(1)
    assert all(key_of(random, 3, 0)[0] != "0" for _ in range(300))
    assert {len(key_of(random, digits, digits // 2)) for digits in (1, 7, 10)} == {1, 7, 10}


def test_doubled_digits_stand_twice_in_a_row():
    random = Random(2)
    for _ in range(100):
        runs = [len(list(run)) for _, run in groupby(key_of(random, 10, 5))]
        assert all(run % 2 == 0 for run in runs)


def test_every_key_is_drawn_about_as_often_as_another():
    """Chi squared of the first digit, 8 degrees of freedom, below the 1 % point."""
    random = Random(3)
    counts = [0] * 10
    for _ in range(9000):
        counts[int(key_of(random, 5, 0)[0])] += 1
    assert counts[0] == 0
    assert sum((count - 1000) ** 2 / 1000 for count in counts[1:]) < 20.09


def test_a_key_that_the_noise_holds_is_drawn_again():
    held = Passkey().item(DRAW).reference.answer
    assert Passkey().item(Draw(DRAW.cell, holds=lambda text: text == held)).reference.answer != held


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"digits": 0}, "'digits' of Passkey must be at least 1"),
        ({"digits": 5, "doubled": 3}, "Of 5 digits 3 cannot repeat the one before them"),
        ({"doubled": -1}, "'doubled' of Passkey must be at least 0"),
    ],
)
def test_what_cannot_be_is_said(options, words):
    with pytest.raises(SettingsError, match=words):
        Passkey(**options)
