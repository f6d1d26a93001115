"""What the last box holds is the answer."""

from __future__ import annotations

import asyncio

import pytest

from needlemap.scorers.base import Reference
from needlemap.scorers.boxed import Boxed


def share(answer: str, wanted: str = "Ada Ashford") -> float:
    return asyncio.run(Boxed().score(answer, Reference(wanted))).share


@pytest.mark.parametrize(
    "answer",
    [
        r"\boxed{Ada Ashford}",
        r"So it is $\boxed{ ada  ashford. }$, I am sure.",
        r"\boxed{\text{Ada Ashford}}",
        r"\boxed{Ada\ Ashford}",
        r"\boxed{Ada~Ashford}",
        r"\boxed{\textbf{\text{Ada\ Ashford}}}",
        r"\boxed{\textit{Ada} Ashford}",
        r"First \boxed{Eve Kerr}, no: \boxed{Ada Ashford}",
        r"\boxed{Ada Ashford} and \boxed{never closed",
    ],
)
def test_the_last_closed_box_counts_in_whatever_dress(answer):
    assert share(answer) == 1


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Ada Ashford",
        r"\boxed{}",
        r"\boxed{Ada Ashford",
        r"\boxed{Ada}",
        r"\boxed{Ada Ashford or Eve Kerr}",
        r"\boxed{Ada Ashford} or rather \boxed{Eve Kerr}",
    ],
)
def test_no_box_another_name_and_more_than_the_name_are_wrong(answer):
    assert share(answer) == 0


def test_numbers_are_compared_whole():
    assert share(r"\boxed{12}", "12") == 1
    assert share(r"\boxed{12}", "1") == 0


def test_why_says_what_the_box_holds():
    assert asyncio.run(Boxed().score(r"\boxed{Eve}", Reference("Ada"))).why == {"said": "Eve"}
    assert asyncio.run(Boxed().score("Eve", Reference("Ada"))).why == {"said": None}
