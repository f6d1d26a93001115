"""What a haystack already holds, found as a plain search would find it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from needlemap.text import contains, plain
from needlemap.tokenizers import load
from needlemap.trials.leaks import Held, _gives_away, collision_error, collisions

TEXT = "The Red-Fox met 1234567 foxes.\nÜber 上海的实验室 it said: red-foxes, 12-34! un_der"
TOKENS = load("cl100k_base").index(TEXT.encode())
HOLDS = Held(TOKENS).within(len(TOKENS))
pieces = st.integers(0, len(TEXT)).flatmap(
    lambda start: st.integers(start, len(TEXT)).map(lambda stop: TEXT[start:stop])
)


@given(st.one_of(pieces, st.text("aefxdr-12 .上海", max_size=6)))
def test_it_finds_what_a_search_in_lower_case_or_a_scorer_finds(text):
    """A word without a letter or a digit, e.g. '. ', is no word to a scorer."""
    is_named = any(map(str.isalnum, text)) and contains(plain(TEXT), plain(text))
    assert HOLDS(text) == (text.lower() in TEXT.lower() or is_named)


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


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("There are 51,328 of them.", "51328"),
        ("There are 51,328 of them.", "51 328"),
        ("The best thing is to sit\nin the **park** now.", "to sit in the park"),
        ("Über the red‑fox.", "red fox"),
        ("Über ５１，３２８ of them.", "51328"),
    ],
)
def test_what_a_scorer_takes_for_the_answer_is_held_already(text, word):
    """An answer that quotes it would score 100."""
    tokens = load("cl100k_base").index(text.encode())
    held = Held(tokens)
    (place,) = collisions(held, len(tokens), [word]).values()
    start = next(text.index(part) for part in ("51", "５１", "to sit", "red") if part in text)
    assert place == len(text[:start].encode())
    ends = [stop for stop in range(len(tokens) + 1) if held.within(stop)(word)]
    assert ends == list(range(ends[0], len(tokens) + 1))
    assert ends[0] > 1


@pytest.mark.parametrize(
    ("text", "word"),
    [("There are 51,328,000 of them.", "51328"), ("It is 513.28.", "51328"), ("re: dfo", "x")],
)
def test_what_no_scorer_takes_for_the_answer_is_not_held(text, word):
    tokens = load("cl100k_base").index(text.encode())
    assert not collisions(Held(tokens), len(tokens), [word])


def test_a_question_gives_its_answer_away_in_other_writing():
    assert _gives_away("Is it 51,328?", ["51328"])
    assert not _gives_away("Is it 51,329?", ["51328"])


def test_the_error_says_what_where_and_what_to_do():
    assert "already holds 'fox' (byte 7)" in str(collision_error("mine", "fox", 7))
    assert "--collisions warn" in str(collision_error("mine", "fox", 7))
