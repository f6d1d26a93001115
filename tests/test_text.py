"""What counts as naming a value: whole, whatever its case, width, kind of hyphen, or thousands'
commas; and what looks like a value."""

from __future__ import annotations

import re

import pytest

from needlemap.text import (
    any_of,
    but,
    contains,
    hexadecimal,
    index_of,
    named,
    number,
    plain,
    shape,
    ungrouped,
)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("It is 1234567.", "1234567"),
        ("**1234567**", "1234567"),
        ("_1234567_", "1234567"),
        ("１２３４５６７", "1234567"),
        ("密码是1234567号", "1234567"),
        ("The key is Red-Fox!", "red-fox"),
        ("red\u2011fox", "red-fox"),  # the hyphen that some models write
        ("STRASSE", "straße"),
        ("one 12345678, then 1234567", "1234567"),
        ("8,540,898", "8540898"),
        ("8 540 898", "8540898"),
        ("8\u202f540\u202f898", "8540898"),  # a narrow space, as French has it
        ("8.540.898", "8540898"),
        ("8'540'898", "8540898"),
        ("8{,}540{,}898", "8540898"),
        ("$8\\,540\\,898$", "8540898"),
        ("数字是８，５４０，８９８。", "8540898"),
        ("7,884, 3,437, 1,234", "3437"),
        ("7884,3437,1234", "3437"),
        ("884,437,234", "437"),  # three digits: a list without spaces, as before
        ("12 345", "345"),
        ("12, 345", "12"),
        ("8,540,898.00", "8540898"),
        ("$1,250.00", "1,250"),
        ("It costs $1,250.", "$1,250"),
        ("It costs $1250.", "$1,250"),
        ("12,500 km", "12,500 km"),
        ("**12 500** km", "12,500 km"),
        ("1,250 red foxes", "1250 red foxes"),
        ("room-1,250", "room-1,250"),
        ("编号1,250号", "编号1,250号"),
        ("red fox", "red-fox"),
        ("red_fox", "red-fox"),
        ("**Red Fox**", "red-fox"),
        ("MAB22", "mab22"),
        ("MAB 22", "mab22"),
        ("MAB_{22}", "mab22"),
        ("MAB\\_22", "mab22"),
        ("$25\\%$", "25%"),
        ("\\$1,250", "$1,250"),
        ("red\\-fox", "red-fox"),
        ("\\text{MAB}_{22}", "mab22"),
        ("MAB-22", "mab22"),
    ],
)
def test_a_value_is_found_however_it_is_written(said, wanted):
    assert named(plain(said), plain(wanted))


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("12345678", "1234567"),
        ("91234567", "1234567"),
        ("red-foxes", "red-fox"),
        ("bored-fox", "red-fox"),
        ("red foxes", "red-fox"),
        ("red, fox", "red-fox"),
        ("18,540,898", "8540898"),
        ("8,540,898,123", "8540898"),
        ("8,540,898.5", "8540898"),
        ("8,540,898.05", "8540898"),
        ("8,540,898,0000", "8540898"),
        ("12,345", "12"),
        ("12,345", "345"),
        ("112,500 km", "12,500 km"),
        ("12,500 km", "2,500 km"),
        ("infra-room-1,250", "room-1,250"),
        ("12{,}345.00", "12"),
        ("85,40,898", "8540898"),
        ("8,540, 898", "8540898"),
        ("854 0898", "8540898"),
        ("MAB 221", "mab22"),
        ("MAB2 2", "mab22"),
        ("XMAB 22", "mab22"),
        ("", "1"),
        ("anything", ""),
    ],
)
def test_a_part_of_a_longer_word_is_not_the_value(said, wanted):
    assert not named(plain(said), plain(wanted))


@pytest.mark.parametrize(
    ("said", "wanted", "found"),
    [
        ("sandwiches", "sandwich", True),
        ("1513289", "51328", False),
        ("51,328", "51328", True),
        ("151,328", "51328", False),
        ("51328", "51,328", True),
        ("3141", "3.141", False),
        ("it is 3.141", "3.141", True),
        ("12.5", "12", False),
        ("12.05", "12", False),
        ("0.12", "12", False),
        ("12.00", "12", True),
        ("12. 5", "12", True),
        ("12,5", "12", True),
        ("v12.5", "v12", False),
        ("no51328no", "51328", True),
        ("anything", "", False),
    ],
)
def test_a_text_holds_another_anywhere_but_a_number_only_whole(said, wanted, found):
    assert contains(plain(said), plain(wanted)) is found


@pytest.mark.parametrize(
    ("said", "wanted", "found"),
    [
        ("51328.5", "51328", False),
        ("0.51328", "51328", False),
        ("It is 7.51328", "51328", False),
        ("51328.00", "51328", True),
        ("It is 51328.", "51328", True),
        ("51328, and no more", "51328", True),
        ("51328.\n5", "51328", True),
        ("7884,3437", "3437", True),
        ("1.7884\n  2.3437\n- **13.1234**", "7884", True),  # a list's lines
        ("1.7884\n  2.3437\n- **13.1234**", "3437", True),
        ("1.7884\n  2.3437\n- **13.1234**", "1234", True),
        ("12.5", "5", False),
        ("12.5 km\n13.5 km", "5", False),
        ("1.345", "345", False),
        ("1.345\n2.67", "345", True),
        ("1.345\n2.67", "67", True),
        ("12.05.2020", "2020", True),
        ("3.1415", "3.141", False),
        ("13.141", "3.141", False),
    ],
)
def test_a_part_of_a_fraction_is_not_the_number(said, wanted, found):
    assert named(plain(said), plain(wanted)) is found


@pytest.mark.parametrize(
    ("said", "wanted", "found"),
    [
        ("infra-red-fox", "red-fox", False),
        ("infra\u2011red fox", "red-fox", False),
        ("the red-fox-hunter", "red-fox", False),
        ("hasty-turnip-x", "hasty-turnip", False),
        ("hasty-turnip-x, hasty-turnip", "hasty-turnip", True),
        ("-red-fox- - x", "red-fox", True),
        ("_red-fox_", "red-fox", True),
        ("red-fox--found", "red-fox", True),
        ("the key\u2014red-fox\u2014is found", "red-fox", True),
        ("密码-red-fox", "red-fox", True),
        ("a fox-like dog", "fox", True),  # a word without a hyphen, as before
    ],
)
def test_a_part_of_a_longer_compound_is_not_the_word(said, wanted, found):
    assert named(plain(said), plain(wanted)) is found


def test_a_place_is_where_the_wanted_text_is_first_found_whole():
    assert index_of("red-foxes, a red fox", "red-fox") == 13
    assert index_of("nothing", "red-fox") == -1


def test_thousands_are_put_together_where_they_are_some():
    assert ungrouped("1,234 and 12,345,678 but 12,34 and 1234,567 and 1,2345") == (
        "1234 and 12345678 but 12,34 and 1234,567 and 1,2345"
    )


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
        (
            "50aea17b-4dd3",
            ["50aea17b-4dd", "50aea17b4dd3", "50ae-a17b4-dd3"],
            ["2024-01-05", "be-fed-dead"],
        ),
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
    dates = (
        "2024-01-05",
        "05-01-2024",
        "2024-01-05-12-30",
        "2024-01-05-12-30-00",
        "2024-0105-1230-0000",
    )
    assert not [date for date in dates if re.findall(hexadecimal(digits, hyphens=True), date)]


def test_a_part_of_something_longer_does_not_look_like_it():
    long = "0961f7af-3b6c-214b-abd9-e54f40d3d615"
    assert not re.findall(hexadecimal(8, hyphens=False), long)
    assert not re.findall(hexadecimal(32, hyphens=True), f"{long}{long}")
    assert not re.findall(number(4), "482133 a4821 2024-01-05 05-01-2024")


@pytest.mark.parametrize("filling", ["-", "a-", "f-", "dead-", "0-", "x7", "1"])
@pytest.mark.parametrize(
    "wanted", ["red-fox", "48213", "50aea17b", "0961f7af-3b6c-214b-abd9-e54f40d3d615"]
)
def test_a_long_text_takes_no_longer_than_its_length(wanted, filling):
    """20,000 hyphens once took 0.8 s. A million, so, would take half an hour: pytest's limit would
    end it."""
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
