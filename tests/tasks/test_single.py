"""One needle at the cell's depth; placeholders are drawn afresh for each repeat."""

from __future__ import annotations

import pytest

from needlemap.errors import SettingsError
from needlemap.grid import Cell
from needlemap.tasks import Draw, Needle, Reference
from needlemap.tasks.single import Single, drawn

DRAW = {"city": ["Oslo", "Lima", "Cairo"], "number": "10000:99999"}
TASK = Single(
    needle="The code for {city} is {number}.",
    question="What is the code for {city}?",
    keywords=["{number}"],
    draw=DRAW,
)


def test_needle_question_reference_and_keywords_are_fields_of_their_own():
    task = Single(needle="Ann eats figs.", question="What?", answer="figs", keywords=["fig"])
    item = task.item(Draw(Cell(1000, 0.3), 0, 0))
    assert item.needles == (Needle("Ann eats figs.", 0.3),)
    assert item.question == "What?"
    assert item.reference == Reference("figs", ("fig",), "Ann eats figs.", "What?")


def test_the_needle_is_the_answer_where_none_is_given():
    assert Single(needle="A.", question="B?").item(Draw(Cell(1, 0), 0, 0)).reference.answer == "A."


def test_the_same_values_stand_everywhere():
    item = TASK.item(Draw(Cell(1000, 0.5), 3, 9))
    (number,) = item.reference.keywords
    assert number in item.needles[0].text
    assert (
        item.needles[0]
        .text.split(" is ")[0]
        .endswith(item.question.removesuffix("?").split(" for ")[1])
    )


def test_a_repeat_draws_the_same_in_every_cell_and_another_draws_anew():
    texts = {TASK.item(Draw(Cell(length, 0.1), 0, 0)).needles[0].text for length in (1000, 2000)}
    assert len(texts) == 1
    assert (
        len({TASK.item(Draw(Cell(1000, 0), repeat, 0)).needles[0].text for repeat in range(20)})
        == 20
    )
    assert TASK.item(Draw(Cell(1000, 0), 0, 0)) != TASK.item(Draw(Cell(1000, 0), 0, 1))


def test_draws_are_pinned():
    assert (
        drawn(DRAW, 0, 0)
        == drawn(dict(reversed(DRAW.items())), 0, 0)
        == {"city": "Lima", "number": "51328"}
    )


def test_keywords_choose_the_scorer():
    assert (TASK.scorer, Single(needle="A", question="B").scorer) == ("substring", "levenshtein")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"needle": " "}, "needs a --needle and a --question"),
        ({"question": ""}, "needs a --needle and a --question"),
        ({"neddle": "x"}, r"Unknown option 'neddle' of Single. Did you mean 'needle'\?"),
    ],
)
def test_what_is_missing_or_misspelt_is_said(options, words):
    with pytest.raises(SettingsError, match=words):
        Single(**{"needle": "A", "question": "B"} | options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"needle": "{cty}"}, r"needle: unknown placeholder \{cty\}"),
        ({"question": "{x}"}, r"question: unknown placeholder \{x\}"),
        ({"answer": "{x}"}, r"answer: unknown placeholder \{x\}"),
        ({"keywords": ["{x}"]}, r"keywords: unknown placeholder \{x\}"),
        ({"draw": {"city": []}}, "'city' has no values to draw from"),
        ({"draw": {"city": "x:y"}}, "draw: 'city' is 'x:y'. Write a list of values, or low:high"),
        ({"draw": {"city": "9:1"}}, "draw: 'city' is '9:1'"),
    ],
)
def test_what_cannot_be_drawn_or_filled_is_said(options, words):
    with pytest.raises(SettingsError, match=words):
        Single(**{"needle": "A", "question": "B", "draw": {"city": ["Oslo"]}} | options).item(
            Draw(Cell(1, 0), 0, 0)
        )
