"""Keys and values: fresh, of the kind and size that was asked for."""

from __future__ import annotations

import re
from random import Random

import pytest

from needlemap.errors import SettingsError
from needlemap.tasks import holds_nothing
from needlemap.tasks.values import Values, grouped, words


@pytest.mark.parametrize(
    ("values", "pattern"),
    [
        (Values("number", 7), r"[1-9]\d{6}"),
        (Values("number", 1), r"[1-9]"),
        (Values("uuid", 32), r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
        (Values("uuid", 8), r"[0-9a-f]{8}"),
        (Values("uuid", 40), r"[0-9a-f]{8}(-[0-9a-f]{8}){4}"),
        (Values("word", 0), r"[a-z]+-[a-z]+"),
        (Values("word", 0, "chinese"), r"[\u4e00-\u9fff]{4,5}"),
    ],
)
def test_each_kind_has_its_form(values, pattern):
    random = Random(1)
    assert all(re.fullmatch(pattern, values.draw(random)) for _ in range(200))


@pytest.mark.parametrize("size", [4, 8, 12, 32, 64])
def test_a_uuid_is_neither_a_number_nor_a_word(size):
    """A scorer tells its kind by the reference: of those with four digits one in seven was a
    number."""
    random = Random(5)
    drawn = [Values("uuid", size).draw(random).replace("-", "") for _ in range(500)]
    assert not [value for value in drawn if value.isdecimal() or value.isalpha()]


@pytest.mark.parametrize(
    "values",
    [
        *(Values("number", digits) for digits in (5, 7, 12)),
        *(Values("uuid", digits) for digits in (8, 9, 16, 32, 40)),
        Values("word", 0),
        Values("word", 0, "chinese"),
    ],
)
def test_all_values_of_a_kind_look_like_it_and_prose_does_not(values):
    random, said = (
        Random(6),
        "Well-known. On 2024-01-05 a be-fed dead-beef took page 200 of red, 众所周知。",
    )
    for _ in range(200):
        value = values.draw(random)
        assert re.findall(values.like, f"{said} {value}. 是{value}号") == [value, value]
        assert not re.findall(values.like, f"x{value}")


def test_fresh_values_come_once_and_are_not_in_the_haystack():
    random, taken, values = Random(2), set[str](), Values("number", 2)
    found = [values.fresh(random, taken, lambda text: text.startswith("9")) for _ in range(60)]
    assert len(set(found)) == 60 == len(taken)
    assert not [value for value in found if value.startswith("9")]


def test_a_kind_that_is_used_up_says_what_to_do():
    random, taken, values = Random(3), set[str](), Values("number", 1)
    for _ in range(9):
        values.fresh(random, taken, holds_nothing)
    with pytest.raises(SettingsError, match=r"used up.*digits=3"):
        values.fresh(random, taken, holds_nothing)


@pytest.mark.parametrize("language", ["english", "chinese"])
def test_no_word_is_part_of_another_where_they_are_joined(language):
    """Else 'red-fox' would be found in 'bored-foxglove'."""
    adjectives, nouns = words(language)
    assert len(set(adjectives)) == len(adjectives) >= 100
    assert len(set(nouns)) == len(nouns) >= 130
    assert not [(a, b) for a in adjectives for b in adjectives if a != b and b.endswith(a)]
    assert not [(a, b) for a in nouns for b in nouns if a != b and b.startswith(a)]


def test_groups_lose_no_digit():
    assert all(grouped("a" * size).replace("-", "") == "a" * size for size in range(1, 70))
