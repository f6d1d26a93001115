"""The share of the references that an answer names, by our rule or by RULER's.

RULER's published rule (arXiv 2404.06654, section 3 and appendix): of each sample's references, the share that
occurs in the prediction, both in lower case. The vectors below are made from that sentence, traps included.
"""

from __future__ import annotations

import asyncio

import pytest

from needlemap.errors import SettingsError
from needlemap.scorers.base import Reference, Score
from needlemap.scorers.recall import Recall

# answer, references, RULER's share, our share
VECTORS = [
    ("The number is 1234567.", ["1234567"], 1.0, 1.0),
    ("1, 2", ["1", "2", "3", "4"], 0.5, 0.5),
    ("", ["1234567"], 0.0, 0.0),
    ("ABC-DEF", ["abc-def"], 1.0, 1.0),
    ("it is Paris", ["PARIS"], 1.0, 1.0),
    ("It is not 1234567.", ["1234567"], 1.0, 1.0),  # neither reads a "not"
    ("all of them: 11 12 13 14 15", ["12"], 1.0, 1.0),  # naming everything is not punished
    ("12345678", ["1234567"], 1.0, 0.0),  # a longer number holds it by chance
    ("red-foxes", ["red-fox"], 1.0, 0.0),
    ("1", ["1", "11"], 0.5, 0.5),
    ("11", ["1", "11"], 1.0, 0.5),  # one reference inside another
    ("7", ["7", "7"], 1.0, 1.0),  # a reference given twice counts twice
    ("1,234,567", ["1234567"], 0.0, 1.0),  # thousands
    ("7,884, 3,437 and 12", ["7884", "3437"], 0.0, 1.0),
    ("1 234 567", ["1234567"], 0.0, 1.0),
    ("11,234,567", ["1234567"], 0.0, 0.0),
    ("1,234,567,890", ["1234567"], 0.0, 0.0),
    ("rocky waffle", ["rocky-waffle"], 0.0, 1.0),
    ("rocky_waffle", ["rocky-waffle"], 0.0, 1.0),
    ("rocky waffles", ["rocky-waffle"], 0.0, 0.0),
    ("a rock and a waffle", ["rocky-waffle"], 0.0, 0.0),
    ("MAB 22 and DUP_{13}", ["MAB22", "DUP13"], 0.0, 1.0),
    ("MAB 221", ["MAB22"], 0.0, 0.0),
    ("１２３４５６７", ["1234567"], 0.0, 1.0),  # full-width digits
    ("red\u2011fox", ["red-fox"], 0.0, 1.0),  # a hyphen that does not break
    ("STRASSE", ["straße"], 0.0, 1.0),  # lower case, not folded case
    ("密码是12号", ["12"], 1.0, 1.0),
    ("line one\n1234567\nline three", ["1234567"], 1.0, 1.0),
    ("123\n4567", ["1234567"], 0.0, 0.0),
    ("the  answer", ["the answer"], 0.0, 1.0),  # to RULER white space is text
]


def scored(answer: str, reference: Reference, **options: str) -> Score:
    return asyncio.run(Recall(**options).score(answer, reference))


@pytest.mark.parametrize(("answer", "references", "theirs", "ours"), VECTORS)
def test_both_rules_on_vectors_made_from_the_published_definition(answer, references, theirs, ours):
    reference = Reference("", tuple(references))
    assert scored(answer, reference, rule="ruler").share == theirs
    assert scored(answer, reference).share == ours


def test_strict_tells_whether_all_were_found():
    reference = Reference("", ("11", "12"))
    assert scored("11", reference).why == {"found": ["11"], "missing": ["12"], "strict": False}
    assert scored("12, 11", reference).why["strict"] is True


def test_a_decoy_that_is_named_is_told_and_costs_nothing():
    score = scored("It is 11 or 99.", Reference("", ("11",), decoys=("99", "98")))
    assert (score.share, score.why["decoys"]) == (1.0, ["99"])


def test_the_answer_is_looked_for_where_there_are_no_keywords():
    assert scored("It is Oslo.", Reference("Oslo")).share == 1


def test_nothing_to_look_for_is_an_error():
    with pytest.raises(SettingsError, match="has nothing to look for"):
        scored("x", Reference(" "))
    with pytest.raises(SettingsError, match="rule"):
        Recall(rule="rulr")
