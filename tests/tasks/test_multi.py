"""Several needles: a chain with an increment, or spread evenly from the first depth on."""

from __future__ import annotations

import pytest

from needlemap.errors import SettingsError
from needlemap.grid import Cell
from needlemap.tasks import Draw
from needlemap.tasks.single import Multi, spread_depths

ITEM = {
    "needles": ["A.", "B.", "C."],
    "question": "Which?",
    "answer": "A, B and C",
    "keywords": ["A"],
}


def depths(cell: Cell, **options) -> list[float]:
    return [needle.depth for needle in Multi(**ITEM | options).item(Draw(cell, 0, 0)).needles]


def test_a_chain_goes_on_by_the_increment_and_not_beyond_the_end():
    assert depths(Cell(1000, 0.4), diff=25.0) == [0.4, 0.65, 0.9]
    assert depths(Cell(1000, 0.9), diff=25.0) == [0.9, 1, 1]


def test_the_chain_as_coded_means_the_same_depths():
    assert depths(Cell(1000, 0.4), diff=25.0, spread="chain-as-coded") == [0.4, 0.65, 0.9]


def test_an_even_spread_leaves_the_end_free():
    assert spread_depths(0, 4, "even", 0) == [0, 0.25, 0.5, 0.75]
    assert depths(Cell(1000, 1.0), spread="even") == [1, 1, 1]


def test_the_needles_keep_their_order_and_the_reference_holds_all():
    item = Multi(**ITEM).item(Draw(Cell(1000, 0.1), 0, 0))
    assert [needle.text for needle in item.needles] == ["A.", "B.", "C."]
    assert (item.reference.answer, item.reference.keywords) == ("A, B and C", ("A",))
    assert item.reference.needle == "A.\nB.\nC."


def test_placeholders_are_drawn_once_for_all():
    task = Multi(
        needles=["{city} is far.", "{city} is cold."],
        question="{city}?",
        answer="{city}",
        draw={"city": ["Oslo", "Lima"]},
    )
    item = task.item(Draw(Cell(1000, 0), 0, 0))
    assert (
        len(
            {
                text.split()[0].strip("?")
                for text in (*[n.text for n in item.needles], item.question)
            }
        )
        == 1
    )


def test_key_words_score_it():
    assert Multi(needles=["a b"], question="?", keywords=["a"]).scorer == "recall"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"needles": []},
            r"needs --needles \(once for each\), none of them empty, and a --question",
        ),
        ({"needles": ["A", " "]}, "none of them empty"),
        ({"question": ""}, "and a --question"),
        (
            {"spread": "evn"},
            "'spread' of Multi must be 'chain', 'chain-as-coded' or 'even', got 'evn'",
        ),
        ({"dif": 1}, r"Unknown option 'dif' of Multi. Did you mean 'diff'\?"),
    ],
)
def test_what_is_missing_or_misspelt_is_said(options, words):
    with pytest.raises(SettingsError, match=words):
        Multi(**ITEM | options)
