"""Any one of several right answers."""

from __future__ import annotations

import asyncio

import pytest

from needlemap.errors import SettingsError
from needlemap.scorers.alternatives import Alternatives
from needlemap.scorers.base import Reference

NAMES = Reference("France", ("France", "the French Republic"))


@pytest.mark.parametrize(
    ("answer", "rule", "share"),
    [
        ("In france.", "words", 1.0),
        ("It was the French Republic", "words", 1.0),
        ("In Germany", "words", 0.0),
        ("Francesca", "words", 0.0),
        ("Francesca", "ruler", 1.0),  # its rule looks inside words
        ("", "ruler", 0.0),
    ],
)
def test_one_is_enough(answer, rule, share):
    assert asyncio.run(Alternatives(rule=rule).score(answer, NAMES)).share == share


def test_a_task_without_keywords_is_refused():
    with pytest.raises(SettingsError, match="needs a task with keywords"):
        asyncio.run(Alternatives().score("x", Reference("x")))
