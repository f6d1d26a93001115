"""The answer itself; all, any, or a share of some words, whatever their case."""

from __future__ import annotations

import asyncio

import pytest

from needlemap.errors import SettingsError
from needlemap.scorers import Score
from needlemap.scorers.stated import First
from needlemap.scorers.words import Alternatives, Exact, Recall, Substring
from needlemap.tasks import Reference


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


REFERENCE = Reference("Eat a sandwich in Dolores Park.", ("Dolores", "sandwich"))


def score(answer: str, reference: Reference = REFERENCE, **options: object) -> Score:
    return asyncio.run(Substring(**options).score(answer, reference))  # type: ignore[arg-type]


def test_all_words_in_any_case_are_one():
    found = score("A SANDWICH at dolores park")
    assert (found.share, found.native) == (1.0, 1.0)
    assert found.why == {"found": ["Dolores", "sandwich"], "missing": []}


LOCKER = Reference("The code is 51328.", ("51328",))


@pytest.mark.parametrize(
    "answer",
    [
        "51328",
        "It is 51328.",
        "**51328**",
        "#51328!",
        "code:51328",
        "51328th",
        "５１３２８",
        "51,328",
        "51 328",
        "51'328",
        "51{,}328",
        "$51{,}328$",
        "密码是51328号",
        "密码是５１，３２８。",
        "12, 51328, 9",
    ],
)
def test_a_number_is_found_however_it_is_written(answer):
    assert score(answer, LOCKER).share == 1


def test_a_word_that_is_a_number_may_be_written_with_thousands_itself():
    assert score("1234", words=("1,234",)).share == score("1,234", words=("1234",)).share == 1
    assert score("12.5", words=("12",)).share == score("12345", words=("1,234",)).share == 0


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "1513289",
        "513280",
        "151328",
        "151,328",
        "51,328,000",
        "51 32 8",
        "5132",
        "51,3289",
        "51，3，28",
        "密码是513289号",
        "51-328-1513289",
        "51328.5",
        "0.51328",
    ],
)
def test_a_part_of_a_longer_number_is_not_that_number(answer):
    """1513289 once counted for 51328."""
    assert score(answer, LOCKER).share == 0


def test_a_number_behind_the_number_of_a_list_is_found_without_a_space():
    """It is in a list of several; 1.1234567 alone may be a fraction, and is given as one."""
    answer = "1.1234567\n2.7654321\n10.5550001"
    reference = Reference("", ("1234567", "7654321", "5550001"))
    assert score(answer, reference).share == 1
    assert scored(answer, reference, rule="inside").share == 1
    assert scored("It is 1.1234567.", reference, rule="inside").share == 0


@pytest.mark.parametrize("answer", ["12.5", "12.5 km", "**1.5**", "- 12.5", "１２．５"])
def test_the_digits_of_a_short_fraction_are_no_number_behind_that_of_a_list(answer):
    """12.5 was once both a 5, behind the number of a list, and no 5."""
    reference = Reference("5", ("5",))
    for scorer in (Substring(), Recall(), Recall(rule="inside"), First()):
        assert asyncio.run(scorer.score(answer, reference)).share == 0


@pytest.mark.parametrize("mark", ["\u2018", "\u2019", "\u02bc"])
@pytest.mark.parametrize("rule", ["words", "inside"])
def test_typographic_apostrophes_are_straight_ones(mark, rule):
    for straight, word in (("It is O'Brien's boat.", "O'Brien"), ("It is 51'328.", "51328")):
        curly = straight.replace("'", mark)
        assert scored(curly, Reference("", (word,)), rule=rule).share == 1
        assert scored(straight, Reference("", (word.replace("'", mark),)), rule=rule).share == 1
    curly = "It is O'Brien's boat.".replace("'", mark)
    assert score(curly, Reference("", ("O'Brien's boat",))).share == 1


def test_words_are_found_in_longer_ones_and_in_any_width_and_case():
    assert score("Sandwiches in ＤＯＬＯＲＥＳ Park's shade").share == 1
    assert score("在上海人工智能实验室。", Reference("", ("人工智能",))).share == 1
    assert score("the red fox", Reference("", ("red-fox",))).share == 1
    assert score("room 123", Reference("", ("room 12",))).share == 0
    assert score("room 12a", Reference("", ("room 12",))).share == 1


@pytest.mark.parametrize(
    ("answer", "theirs"), [("1513289", 1), ("5１328", 0), ("51,328", 0), ("CODE 51328", 1), ("", 0)]
)
def test_the_older_tools_rule_finds_a_word_anywhere_and_as_it_stands(answer, theirs):
    assert score(answer, LOCKER, anywhere=True).share == theirs


def test_one_word_missing_is_nothing():
    found = score("a sandwich")
    assert found.share == 0.0
    assert found.why["missing"] == ["Dolores"]


def test_its_own_words_come_before_the_references():
    assert score("a park", words=["Park"]).share == 1.0


def test_without_keywords_the_whole_answer_is_looked_for():
    assert score("It is: jack ma!", Reference("Jack Ma")).share == 1.0


def test_nothing_to_look_for_is_an_error_not_a_score():
    with pytest.raises(SettingsError, match="no words to look for"):
        score("anything", Reference(" "))
    with pytest.raises(SettingsError, match="every answer holds"):
        Substring(words=("",))


def test_a_single_text_for_words_is_refused_not_cut_into_letters():
    with pytest.raises(SettingsError, match="Option 'words' of Substring"):
        Substring(words="dolores")  # type: ignore[arg-type]


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
