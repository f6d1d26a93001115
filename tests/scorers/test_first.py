"""The first thing of the reference's kind decides."""

from __future__ import annotations

import asyncio

import pytest

from needlemap.errors import SettingsError
from needlemap.scorers.base import Reference, Score
from needlemap.scorers.first import First

UUID = "0961f7af-3b6c-214b-abd9-e54f40d3d615"
OTHER = "9cc9f6a2-f548-076b-1c9c-075cb1aa2cc8"


def scored(answer: str, wanted: str, question: str = "", **options: str) -> Score:
    return asyncio.run(First(**options).score(answer, Reference(wanted, question=question)))


@pytest.mark.parametrize(
    ("answer", "wanted", "share"),
    [
        ("The pass key is 48213.", "48213", 1),
        ("48213 or 48214", "48213", 1),
        ("48214 or 48213", "48213", 0),  # the first counts, not the best
        ("482130", "48213", 0),
        ("The 1 key is 48213", "48213", 0),
        ("none", "48213", 0),
        ("", "48213", 0),
        (f'"{UUID}"', UUID, 1),
        (UUID.upper(), UUID, 1),
        (f"{OTHER}, no: {UUID}", UUID, 0),
        ("It is Red-Fox.", "red-fox", 1),
        ("这个值是安静茶壶。", "安静茶壶", 1),
        ("这个值是高大茶壶。", "安静茶壶", 0),
    ],
)
def test_the_first_of_its_kind_is_compared(answer, wanted, share):
    assert scored(answer, wanted).share == share


def test_an_answer_may_repeat_the_question():
    """A model that names the asked key before its value once scored 0."""
    assert scored(f"The value of {OTHER} is {UUID}.", UUID, f"What is the value of {OTHER}?").share == 1


def test_how_near_a_wrong_answer_came_is_kept():
    why = scored("48214", "48213").why
    assert why == {"said": "48214", "similarity": 0.8}


def test_a_pattern_of_ones_own():
    assert scored("answer: B", "B", pattern=r"\b[a-d]\b").share == 1
    with pytest.raises(SettingsError, match="is no pattern"):
        First(pattern="(")


def test_nothing_to_look_for_is_an_error():
    with pytest.raises(SettingsError, match="needs a reference answer"):
        scored("x", " ")
