"""What a haystack already holds, found as a plain search would find it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from needlemap.collisions import Held, collisions
from needlemap.errors import HaystackError
from needlemap.tokenizers.catalogue import load

TEXT = "The Red-Fox met 1234567 foxes.\nÜber 上海的实验室 it said: red-foxes, 12-34! un_der"
TOKENS = load("cl100k_base").index(TEXT.encode())
HELD = Held(TOKENS)
pieces = st.integers(0, len(TEXT)).flatmap(
    lambda start: st.integers(start, len(TEXT)).map(lambda stop: TEXT[start:stop])
)


@given(st.one_of(pieces, st.text("aefxdr-12 .上海", max_size=6)))
def test_it_says_what_a_search_in_lower_case_says(text):
    assert HELD.holds(text) == (text.lower() in TEXT.lower())


@pytest.mark.parametrize("word", ["red-fox", "RED-FOX", "234567", "实验", "red-foxes, 12"])
def test_a_word_inside_another_is_held(word):
    assert HELD.holds(word)


def test_many_words_are_found_where_few_would_be():
    few = collisions(Held(TOKENS), "texts", len(TOKENS), ["foxes", "absent"], allowed=True)
    words = ["foxes", *(f"absent{number}" for number in range(99))]
    many = collisions(Held(TOKENS), "texts", len(TOKENS), words, allowed=True)
    assert few == many == {"foxes": TEXT.index("foxes")}


def test_what_stands_behind_the_end_of_the_prompts_does_not_count():
    assert not collisions(Held(TOKENS), "texts", 3, ["it said"], allowed=False)
    with pytest.raises(HaystackError, match=r"already holds 'it said' \(byte \d+\)"):
        collisions(Held(TOKENS), "texts", len(TOKENS), ["it said"], allowed=False)
