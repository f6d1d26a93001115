"""What the last box holds is the answer."""

from __future__ import annotations

import asyncio

import pytest

from needlemap.scorers.stated import Boxed
from needlemap.tasks import Reference


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
        r"\boxed{`Ada Ashford`}",
        r"\boxed{**Ada Ashford**}",
        r"\boxed{{Ada Ashford}}",
        r"\boxed {Ada Ashford}",
        r"\fbox{Ada Ashford}",
        r"\boxed{\operatorname{Ada}\,\operatorname{Ashford}}",
        r"\boxed{\mathrm{Ada\;Ashford}}",
        r"\[ \boxed{\text{Ada Ashford}.} \]",
        "\\boxed{\u201cAda Ashford\u201d}",
        r"First \boxed{Eve Kerr}, no: \boxed{Ada Ashford}",
        r"\boxed{Ada Ashford} and \boxed{never closed",
        r"\boxed{Ada Ashford} (as required, not \boxed{})",
        r"\boxed{Ada Ashford}, put into \boxed{...} as asked",
    ],
)
def test_the_last_closed_box_that_holds_anything_counts_in_whatever_dress(answer):
    assert share(answer) == 1


@pytest.mark.parametrize(
    "answer",
    [
        "\\boxed{沈虎江}",
        "\\boxed{“沈虎江”}",
        "\\boxed{「沈虎江」}",
        "\\boxed｛沈虎江｝",
        "答案是\\boxed{ 沈 虎江。}",
    ],
)
def test_a_name_in_chinese(answer):
    assert share(answer, "沈虎江") == 1
    assert share(answer, "沈虎") == 0


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Ada Ashford",
        r"\boxed{}",
        r"\boxed{...} Ada Ashford",
        r"\boxed{Ada Ashford",
        r"\boxed{Ada}",
        r"\boxed{Ada Ashfordson}",
        r"\boxed{not Ada Ashford}",
        r"\boxed{\neg Ada Ashford}",
        r"\boxed{\cancel{Ada Ashford}}",
        r"\boxed{Ada Ashford or Eve Kerr}",
        r"\boxed{Ada Ashford} or rather \boxed{Eve Kerr}",
        r"\boxed{Ada Ashford} or \boxed{none}",
    ],
)
def test_no_box_another_name_and_more_than_the_name_are_wrong(answer):
    assert share(answer) == 0


@pytest.mark.parametrize(
    ("inside", "wanted"),
    [
        ("12", "12"),
        ("12.", "12"),
        ("１２", "12"),
        ("4.0", "4"),
        ("d = 4", "4"),
        ("4 generations", "4"),
        (r"4\text{ generations}", "4"),
        (r"4 \text{ generations above}", "4"),
        ("four", "4"),
        ("Four generations", "4"),
        ("1代", "1"),
        ("一", "1"),
        ("两代", "2"),
        ("高二十代", "20"),
    ],
)
def test_a_number_may_say_what_it_counts_or_stand_in_words(inside, wanted):
    assert share(rf"\boxed{{{inside}}}", wanted) == 1


@pytest.mark.parametrize(
    ("inside", "wanted"),
    [
        ("12", "1"),
        ("1", "12"),
        ("-4", "4"),
        ("4.5", "4"),
        ("14.0", "4"),
        (r"\frac{4}{4}", "4"),
        (r"\frac{1}{2}", "12"),
        ("2^4", "4"),
        ("4/5", "4"),
        ("4th", "4"),
        ("3 or 4", "4"),
        ("4, 5", "4"),
        ("3-4", "4"),
        ("not 4", "4"),
        ("4 or more", "4"),
        ("at least 4", "4"),
        (r"\neq 4", "4"),
        ("two two", "4"),
        ("fourteen", "4"),
        ("4 of the 12 people", "4"),
        ("the text says so often that it is 4", "4"),
        ("不是4", "4"),
        ("4代以上", "4"),
        ("十四代", "4"),
        ("三四代", "4"),
    ],
)
def test_another_number_two_of_them_and_a_denied_one_are_wrong(inside, wanted):
    assert share(rf"\boxed{{{inside}}}", wanted) == 0


def test_why_says_what_the_box_holds():
    assert asyncio.run(Boxed().score(r"\boxed{Eve}", Reference("Ada"))).why == {"said": "Eve"}
    unboxed = asyncio.run(Boxed().score("Eve", Reference("Ada")))
    assert (unboxed.why, unboxed.unreadable) == ({"said": None}, True)
    assert asyncio.run(Boxed().score(r"\boxed{}", Reference("Ada"))).why == {"said": None}


@pytest.mark.parametrize(
    "held",
    [
        *(
            "3 generations below",
            "almost 3",
            "up to 3",
            "3 generations too many",
            "three thousand",
            "1" * 5000,
        ),
        *("低三代", "三千", "3万", "三倍", "三代半", "第三代", "几乎三代", "三" * 5000),
    ],
)
def test_a_number_with_anything_else_beside_it_than_what_it_counts_is_another_answer(held):
    assert share(rf"\boxed{{{held}}}", "3") == 0


@pytest.mark.parametrize(
    "held", ["3", "3.0", "three steps", "d = 3", "3 generations above", "相隔三代", "3 代"]
)
def test_a_number_with_what_it_counts_is_that_number(held):
    assert share(rf"\boxed{{{held}}}", "3") == 1


def test_what_is_struck_out_is_no_answer():
    assert share(r"\boxed{~~Ada Ashford~~}") == 0
