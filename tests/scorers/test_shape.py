"""What looks like an answer of a kind, and what does not."""

from __future__ import annotations

import re

import pytest

from needlemap.scorers.shape import any_of, but, hexadecimal, number, shape


@pytest.mark.parametrize(
    ("wanted", "like", "unlike"),
    [
        ("48213", ["4821", "482134", "48213482"], ["x", "482", "5"]),
        ("482", ["1", "48213"], ["x"]),
        ("red-fox", ["sad-dog", "1-2"], ["red fox"]),
        ("anna", ["bob"], ["-"]),
        ("安静茶壶", ["安静茶壶"], ["高大茶壶"]),
        ("dead-beef", ["sad-dog"], ["50aea17b"]),  # words, though all their letters are hexadecimal
        ("50aea17b", ["50aea17", "50aea17bc"], ["50aea", "deadbeef", "50ae-a17b", "the"]),
        ("50aea17b-4dd3", ["50aea17b-4dd", "50aea17b4dd3", "50ae-a17b4-dd3"], ["2024-01-05", "be-fed-dead"]),
    ],
)
def test_a_reference_says_what_looks_like_it(wanted, like, unlike):
    pattern = shape(wanted)
    assert re.fullmatch(pattern, wanted)
    assert all(re.fullmatch(pattern, text) for text in like)
    assert not [text for text in unlike if re.fullmatch(pattern, text)]


@pytest.mark.parametrize(
    ("digits", "least", "most"), [(1, 1, 1), (3, 3, 3), (4, 3, 5), (7, 6, 8), (32, 24, 40)]
)
def test_a_quarter_more_or_less_is_near_enough(digits, least, most):
    for pattern in (number(digits), hexadecimal(digits, hyphens=False)):
        found = [size for size in range(1, 60) if re.fullmatch(pattern, "7" * size)]
        assert found == list(range(least, most + 1))


@pytest.mark.parametrize("digits", [9, 10, 12, 16, 32])
def test_no_date_looks_like_hexadecimal_groups(digits):
    """A date has as many digits as some of them, and hyphens; its longest group is the year."""
    dates = ("2024-01-05", "05-01-2024", "2024-01-05-12-30", "2024-01-05-12-30-00", "2024-0105-1230-0000")
    assert not [date for date in dates if re.findall(hexadecimal(digits, hyphens=True), date)]


def test_a_part_of_something_longer_does_not_look_like_it():
    long = "0961f7af-3b6c-214b-abd9-e54f40d3d615"
    assert not re.findall(hexadecimal(8, hyphens=False), long)
    assert not re.findall(hexadecimal(32, hyphens=True), f"{long}{long}")
    assert not re.findall(number(4), "482133 a4821 2024-01-05 05-01-2024")


@pytest.mark.parametrize("filling", ["-", "a-", "f-", "dead-", "0-", "x7", "1"])
@pytest.mark.parametrize("wanted", ["red-fox", "48213", "50aea17b", "0961f7af-3b6c-214b-abd9-e54f40d3d615"])
def test_a_long_text_takes_no_longer_than_its_length(wanted, filling):
    """20,000 hyphens once took 0.8 s. A million, so, would take half an hour: pytest's limit would end it."""
    text = filling * (1_000_000 // len(filling))
    assert wanted not in re.findall(shape(wanted), text)


def test_a_sign_in_front_of_a_word_may_stand_behind_another_word():
    assert re.findall(shape("@anna"), "mail x@bob") == ["@bob"]


def test_words_are_told_by_their_lists_in_any_case():
    assert re.findall(
        any_of(["Ann", "Bo"], ["Lee"], joint=" "), "ann lee, bo leeds, ann  lee, joann lee"
    ) == ["ann lee"]
    assert re.findall(any_of(["柯以宁"]), "是柯以宁吗") == ["柯以宁"]


def test_some_texts_may_be_left_out():
    assert re.findall(but(any_of(["ann", "anna"]), ["Ann"]), "ann, anna") == ["anna"]
    key, value = "0961f7af-3b6c-214b-abd9-e54f40d3d615", "9cc9f6a2-f548-076b-1c9c-075cb1aa2cc8"
    assert re.findall(but(hexadecimal(32, hyphens=True), [key]), f"{key} {value}") == [value]
