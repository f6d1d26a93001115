"""What an answer lists, told from the counts, marks and words around it."""

from __future__ import annotations

import pytest

from needlemap.scorers.listing import alone, items

WANTED = ["fig", "plum", "pear"]


@pytest.mark.parametrize(
    "line",
    [
        "date",
        "date (30 times)",
        "date - 30",
        "date: 30",
        "date   30",
        "**date** (30)",
        "_date_ (30)",
        "**_date_** 30",
        "_**date**_: 30",
        "`date` -> 30",
        "1. date",
        "- *date*.",
        '"date",',
        "[date]。",
    ],
)
def test_an_item_is_told_from_its_count_and_marks(line):
    assert alone(f"fig\n{line}\nplum", WANTED) == ["fig", "date", "plum"]


@pytest.mark.parametrize(
    ("piece", "item"),
    [
        ("1. fig.", "fig"),
        ("  * [fig] ", "fig"),
        ('- "`fig`":。', "fig"),
        ("2) **fig**  ", "fig"),
        ("fig's", "fig's"),
        (" ... ", None),
    ],
)
def test_an_item_stands_without_bullets_and_quotes(piece, item):
    assert items(piece) == ([item] if item else [])


def test_a_made_up_item_in_the_midst_of_a_sentence_stays_unseen():
    assert alone("They are fig, plum and perhaps a date too", WANTED) == ["plum"]
