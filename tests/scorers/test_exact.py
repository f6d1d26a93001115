"""The answer itself."""

from __future__ import annotations

import asyncio

import pytest

from needlemap.scorers.base import Reference
from needlemap.scorers.exact import Exact


@pytest.mark.parametrize(
    ("answer", "options", "share"),
    [
        (" Jack Ma\n", {}, 1.0),
        ("jack ma", {}, 0.0),
        ("JACK MA", {"ignore_case": True}, 1.0),
        ("Jack　Ma", {}, 0.0),
        ("Jack　M a", {"ignore_whitespace": True}, 1.0),
        ("Jack Ma.", {"ignore_case": True, "ignore_whitespace": True}, 0.0),
        ("", {}, 0.0),
    ],
)
def test_what_counts_as_the_same(answer, options, share):
    assert asyncio.run(Exact(**options).score(answer, Reference("Jack Ma"))).share == share


def test_why_shows_what_was_compared():
    why = asyncio.run(Exact(ignore_case=True).score(" Tom", Reference("Jack"))).why
    assert why == {"said": "tom", "wanted": "jack"}
