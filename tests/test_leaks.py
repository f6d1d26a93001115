"""A question that holds its answer measures nothing: refused, unless the user wants to see it."""

from __future__ import annotations

import pytest

from needlemap.tasks import Item, Reference
from needlemap.trials.leaks import given_away


def item(question: str, answer: str, *keywords: str) -> Item:
    return Item((), question, Reference(answer, keywords, "", question))


@pytest.mark.parametrize(
    ("found", "question", "answer", "keywords"),
    [
        (True, "Is the locker code 51328?", "Yes, 51328.", ("51328",)),
        (True, "Does Ann eat FIGS and plums?", "x", ("figs", "Plums")),
        (False, "Does Ann eat figs?", "x", ("figs", "plums")),
        (
            False,
            "What is the locker code for Turin?",
            "The locker code for Turin is 51328.",
            ("51328",),
        ),
        (True, "Say banana.", "banana", ()),
        (False, "Say a fruit.", "", ()),
    ],
)
def test_an_answer_is_given_away_when_all_that_it_is_told_by_stands_in_the_question(
    found, question, answer, keywords
):
    assert bool(given_away([item(question, answer, *keywords)])) == found


def test_what_the_scorer_was_told_to_look_for_counts_instead():
    asked = item("What does Ann eat?", "figs", "figs")
    assert given_away([asked], ["Ann"]) == ["What does Ann eat?"]


def test_it_is_refused_with_what_to_type_and_only_warned_about_on_request(typed):
    flags = ("--needle", "Ann eats figs.", "--question", "Does Ann eat figs?", "--keywords", "figs")
    grid = ("--model", "baseline/bm25", "--lengths", "1k", "--depths", "50", "-o", "r")
    refused = typed("run", *flags, *grid, code=2)
    assert (
        "holds the answer already, so repeating it would be right. Change --question"
        in refused.stderr
    )
    ended = typed("run", *flags, *grid, "--collisions", "warn")
    assert "warning: the question gives its answer away: Does Ann eat figs?" in ended.stderr
