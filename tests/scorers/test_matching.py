"""What counts as naming a value: whole, whatever its case, width or kind of hyphen."""

from __future__ import annotations

import pytest

from needlemap.scorers.matching import named, plain


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
        ("", "1"),
        ("anything", ""),
    ],
)
def test_a_part_of_a_longer_word_is_not_the_value(said, wanted):
    assert not named(plain(said), plain(wanted))
