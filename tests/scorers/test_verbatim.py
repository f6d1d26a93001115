"""A text repeated behind its code is scored by how much it is that text, as MRCR scores it."""

from __future__ import annotations

import asyncio
from difflib import SequenceMatcher

import pytest

from needlemap.errors import SettingsError
from needlemap.scorers import Score
from needlemap.scorers.edit import Verbatim, ratio
from needlemap.tasks import Reference

FIRST = "Dear Ada, the harbour light is safe, and Bruno sends you 12 kisses."
SECOND = "Dear Leo, on Monday we found the anchor chain below the pier."
THIRD = "My dear Olive, you asked me what became of the ninth wave."
REFERENCE = Reference(f"x7Kq\n{SECOND}", (SECOND,), choices=(FIRST, SECOND, THIRD))


def scored(answer: str, reference: Reference = REFERENCE, **options: bool) -> Score:
    return asyncio.run(Verbatim(**options).score(answer, reference))


def test_a_block_of_code_is_no_part_of_the_text():
    assert scored(f"```text\nx7Kq\n{SECOND}\n```").share == 1
    poem = f"{SECOND}\n```"
    ending = Reference(f"x7Kq\n{poem}", (poem,))
    assert scored(f"x7Kq\n{poem}", ending).share == 1


@pytest.mark.parametrize("between", ["", " ", "\n", "\n\n"])
def test_the_text_behind_its_code_is_right_whatever_white_space_stands_around(between):
    score = scored(f"  x7Kq{between}{SECOND}\n")
    assert (score.share, score.why["code"], score.why["perfect"]) == (1, True, True)


def test_without_the_code_in_front_nothing_counts_but_what_was_picked_is_still_told():
    for answer in (SECOND, f"Sure! x7Kq {SECOND}", f"x7kq {SECOND}"):
        score = scored(answer)
        assert (score.share, score.why["code"], score.why["perfect"]) == (0, False, False)
        assert score.why["picked"] == 2
        assert score.why["similarity"] > 0.8


@pytest.mark.parametrize(
    "answer",
    [
        f"**x7Kq**\n\n{SECOND}",
        f"`x7Kq`\n{SECOND}",
        f'"x7Kq" {SECOND}',
        f"\u201cx7Kq\u201d {SECOND}",
        f"[x7Kq] {SECOND}",
        f"x7Kq: {SECOND}",
        f"x7Kq \u2014 {SECOND}",
        f"Code: x7Kq\n{SECOND}",
        f"**Code:** x7Kq\n\n{SECOND}",
        f"The code is x7Kq.\n\n{SECOND}",
        f"### x7Kq\n\n{SECOND}",
        f"> x7Kq\n{SECOND}",
        f"```\nx7Kq\n{SECOND}\n```",
        f"```text\nx7Kq\n{SECOND}\n```\n",
        f"~~~ c++\nCode: x7Kq\n\n{SECOND}\n~~~",
        f"x7Kq\n```\n{SECOND}\n```",
        f"```x7Kq\n{SECOND}```",
    ],
)
def test_marks_around_the_code_cost_nothing_but_in_mrcr(answer):
    """An answer of which all else was right once scored 0 for two stars; OpenAI's rule does so
    still."""
    assert scored(answer).why["perfect"]
    strict = scored(answer, bare=True)
    assert strict.share == (strict.share if answer.startswith("x7Kq") else 0)
    assert scored(f"x7Kq{SECOND}", bare=True).share == 1


@pytest.mark.parametrize(
    "answer",
    [
        SECOND,
        f"Sure! x7Kq {SECOND}",
        f"Here it is: **x7Kq** {SECOND}",
        f"**x7kq** {SECOND}",
        f"Code: {SECOND} x7Kq",
        f"Code x7K {SECOND}",
        "**",
        "Code:",
    ],
)
def test_without_the_code_at_the_beginning_marks_do_not_help(answer):
    assert scored(answer).share == 0


def test_a_text_may_begin_with_a_mark():
    quoted = f'"{SECOND}"'
    for answer in (f"x7Kq {quoted}", f"**x7Kq** {quoted}"):
        assert scored(answer, Reference(f"x7Kq {quoted}", (quoted,))).share == 1


def test_a_code_with_letters_added_is_another_code():
    assert scored(f"x7KqZZ {SECOND}").share == 0
    assert scored(f"x7Kq{SECOND}").share == 1


def test_the_ratio_is_difflibs_with_the_answer_first_as_mrcr_computes_it():
    answer = SECOND.replace("Monday", "Friday")[:50]
    assert scored(f"x7Kq{answer}").share == SequenceMatcher(None, answer, SECOND).ratio()
    assert not scored(f"x7Kq{answer}").why["perfect"]


def test_another_of_the_texts_is_named_by_its_number():
    score = scored(f"x7Kq {THIRD}")
    assert (score.why["asked"], score.why["picked"]) == (2, 3)
    assert score.share == ratio(THIRD, SECOND) < 0.7


def test_an_answer_that_is_like_none_picks_none():
    assert (
        scored("").why["picked"]
        == scored("x7Kq").why["picked"]
        == scored("x7Kq 中").why["picked"]
        == 0
    )
    assert scored("").share == scored("x7Kq").share == 0


def test_noise_is_what_a_text_chosen_at_random_would_score():
    noise = scored("").why["noise"]
    assert noise == pytest.approx(
        sum(scored(f"x7Kq {one}").share for one in (FIRST, SECOND, THIRD)) / 3
    )
    assert 1 / 3 < noise < 0.7


def test_a_task_that_names_no_other_texts_has_a_score_all_the_same():
    score = scored(f"x7Kq{SECOND}", Reference(f"x7Kq{SECOND}", (SECOND,)))
    assert (score.share, score.why) == (1, {"code": True, "similarity": 1.0, "perfect": True})


@pytest.mark.parametrize(
    "reference", [Reference("12", ("1", "2")), Reference("It is 12."), Reference("a", ("b",))]
)
def test_a_task_with_nothing_to_repeat_is_refused(reference):
    with pytest.raises(SettingsError, match="--task ordinal"):
        scored("12", reference)
