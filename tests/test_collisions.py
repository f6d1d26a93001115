"""What a haystack already holds, found as a plain search would find it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from needlemap.tokenizers import load
from needlemap.trials.leaks import Held, collision_error, collisions

TEXT = "The Red-Fox met 1234567 foxes.\nÜber 上海的实验室 it said: red-foxes, 12-34! un_der"
TOKENS = load("cl100k_base").index(TEXT.encode())
HOLDS = Held(TOKENS).within(len(TOKENS))
pieces = st.integers(0, len(TEXT)).flatmap(
    lambda start: st.integers(start, len(TEXT)).map(lambda stop: TEXT[start:stop])
)


@given(st.one_of(pieces, st.text("aefxdr-12 .上海", max_size=6)))
def test_it_says_what_a_search_in_lower_case_says(text):
    assert HOLDS(text) == (text.lower() in TEXT.lower())


@pytest.mark.parametrize("word", ["red-fox", "RED-FOX", "234567", "实验", "red-foxes, 12"])
def test_a_word_inside_another_is_held(word):
    assert HOLDS(word)


def test_a_text_is_held_from_where_it_first_stands_whole():
    places = [Held(TOKENS).within(tokens)("1234567") for tokens in range(len(TOKENS) + 3)]
    assert places == sorted(places)
    assert places.index(True) == next(
        tokens for tokens in range(len(TOKENS)) if b"1234567" in bytes(TOKENS.span(0, tokens).data)
    )


def test_many_words_are_found_where_few_would_be():
    few = collisions(Held(TOKENS), len(TOKENS), ["foxes", "absent", ""])
    many = collisions(
        Held(TOKENS), len(TOKENS), ["foxes", *(f"absent{number}" for number in range(99))]
    )
    assert few == many == {"foxes": TEXT.index("foxes")}


def test_what_stands_behind_the_end_of_the_prompts_does_not_count():
    assert not collisions(Held(TOKENS), 3, ["it said"])
    assert collisions(Held(TOKENS), len(TOKENS), ["it said"])


def test_the_error_says_what_where_and_what_to_do():
    assert "already holds 'fox' (byte 7)" in str(collision_error("mine", "fox", 7))
    assert "--collisions warn" in str(collision_error("mine", "fox", 7))
