"""Which letter an answer takes."""

from __future__ import annotations

import asyncio

import pytest

from needlemap.errors import SettingsError
from needlemap.scorers.base import Reference
from needlemap.scorers.choice import Choice, letter


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("The correct answer is (B).", "B"),
        ("the correct answer is b", "B"),
        ("**Answer: C**", "C"),
        ("Answer: (D)", "D"),
        ("I first thought the answer is (A), but the answer is (C).", "C"),
        ("B", "B"),
        ("(B) green", "B"),
        ("B. green", "B"),
        ("B) green", "B"),
        ("**B**", "B"),
        ("Only (D) is named in the text.", "D"),
        ("Either (A) or (D).", ""),
        ("(A) or (D)", ""),
        ("A dog is named.", ""),
        ("I cannot tell.", ""),
        ("Answers differ.", ""),
        ("The answer is a dog.", ""),
        ("The answer isn't clear.", ""),
        ("", ""),
    ],
)
def test_the_letter_that_is_taken(answer, said):
    assert letter(answer) == said
    assert asyncio.run(Choice().score(answer, Reference("B"))).share == float(said == "B")


def test_a_task_without_letters_is_refused():
    with pytest.raises(SettingsError, match="lettered choices"):
        asyncio.run(Choice().score("B", Reference("Jack")))
