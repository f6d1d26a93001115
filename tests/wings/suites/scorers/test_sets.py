"""The set in an answer's final list: what is read of it, and what it scores."""

from __future__ import annotations

import asyncio
import time

import pytest

from needlemap.scorers import Score
from needlemap.suites.sets import Set
from needlemap.tasks import Reference

QUESTION = "Which nodes? End with: Final answer: [node, node, ...]"


def scored(answer: str, *wanted: str) -> Score:
    return asyncio.run(Set().score(answer, Reference("", wanted, question=QUESTION)))


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        ("Final Answer: [a, b]", 1),
        ("Final Answer: [b,a,b]", 1),
        ("final answer:\n[`A`, 'b']", 1),
        ("Level 1 is [x, y].\nFinal Answer: [a, b]\n", 1),
        ("Final Answer: [x]. No, wait. Final answer: [a, b]", 1),
        ("[a, b]", 1),
        ("最终答案：【a、b】", 1),
        (r"Final answer: \[a, b\]", 1),
        (r"\[\text{Final answer: } [a, b]\]", 1),
        ("Final Answer: [a]", 2 / 3),
        ("Final Answer: [a, x]", 1 / 2),
        ("Final Answer: [a, b, x, y]", 2 / 3),
        ("Final Answer: []", 0),
    ],
)
def test_f1_of_the_last_list(answer, share):
    found = scored(answer, "a", "b")
    assert found.share == pytest.approx(share)
    assert not found.unreadable


def test_an_answer_without_a_right_name_scores_0():
    """By the set's own lines it scores 100 %: recall and precision are both 0, and F1 is then 1."""
    found = scored("Final Answer: [x, y]", "a", "b")
    assert (found.share, found.unreadable, found.why["wrong"]) == (0, False, ["x", "y"])


def test_where_no_name_is_wanted_an_empty_list_is_right_and_silence_is_not():
    assert scored("Final Answer: []").share == 1
    assert scored("Final Answer: [a]").share == 0
    silent = scored("There are none.")
    assert (silent.share, silent.unreadable) == (0, True)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "a, b",
        "Final Answer: a, b",
        "Final Answer: [a, b",
        "The first level is [a, b]. Now the second",
        "[a, b] is what the first level holds. Final Answer: unknown",
        QUESTION,
        "Final Answer: [a, b, ...]",
    ],
)
def test_what_has_no_final_list_cannot_be_read_and_scores_0(answer):
    found = scored(answer, "a", "b")
    assert (found.share, found.unreadable, found.why) == (0, True, {"said": None})


@pytest.mark.parametrize(
    "text", ["[" * 400_000, "final answer: [" * 40_000, "[a]" * 150_000 + "x", "." * 600_000]
)
def test_long_nonsense_is_read_in_proportion_to_its_length(text):
    began = time.process_time()
    assert scored(text, "a").share == 0
    assert time.process_time() - began < 5
