"""Keys with values: how many are hidden, how many asked for, in which haystack, in whose words."""

from __future__ import annotations

from typing import Any

import pytest

from needlemap.errors import SettingsError
from needlemap.grid import Cell
from needlemap.tasks import Draw, Item
from needlemap.tasks.key_values import Magic, Multikey, Multiquery, Multivalue

CELL = Cell(4000, 0.3)


def item(task: type[Magic] = Magic, draw: Draw | None = None, **options: Any) -> Item:
    return task(**options).item(draw or Draw(CELL, 1, 2))


def test_one_sentence_hides_the_value_that_the_question_asks_for():
    made = item()
    (needle,) = made.needles
    (value,) = made.reference.keywords
    key = made.question.partition("assigned to ")[2].partition("?")[0]
    assert needle.depth == CELL.depth
    assert needle.text == f"Keep in mind that the number assigned to {key} is {value}."
    assert made.answer_prefix == f"The number assigned to {key} is"
    assert made.reference.answer == value


@pytest.mark.parametrize(
    ("task", "needles", "wanted", "decoys"),
    [(Magic, 1, 1, 0), (Multikey, 4, 1, 3), (Multivalue, 4, 4, 0), (Multiquery, 4, 4, 0)],
)
def test_the_four_names_are_four_counts(task, needles, wanted, decoys):
    made = item(task)
    assert len(made.needles) == needles
    assert (len(made.reference.keywords), len(made.reference.decoys)) == (wanted, decoys)


def test_more_keys_values_and_queries_make_it_harder():
    made = item(keys=6, values=3, queries=2)
    assert (len(made.needles), len(made.reference.keywords), len(made.reference.decoys)) == (
        18,
        6,
        12,
    )
    assert made.question.count("-") == 2  # two keys are named
    assert len({needle.text for needle in made.needles}) == 18


def test_all_values_of_an_asked_key_are_wanted():
    made = item(Multivalue)
    assert len({needle.text.partition(" is ")[0] for needle in made.needles}) == 1
    assert all(value in made.reference.needle for value in made.reference.keywords)


def test_several_values_make_a_question_for_all_of_them():
    assert "Which numbers" in item(Multivalue).question
    assert item(Multiquery).question.endswith("List every one of them.")
    assert item(Multikey).question.endswith("Answer with that number alone.")


def test_what_stands_beside_the_asked_needle_is_the_same_at_all_depths_of_a_length():
    """So that prompts share it; another length, or repeat, has other keys in other places."""
    task = Multikey()
    rows = [
        task.item(Draw(Cell(length, depth), repeat)).needles
        for length, depth, repeat in (
            (4000, 0.1, 0),
            (4000, 0.9, 0),
            (8000, 0.1, 0),
            (4000, 0.1, 1),
        )
    ]
    assert rows[0][1:] == rows[1][1:]
    assert len({row[1:] for row in rows}) == 3
    assert len({row[0] for row in rows}) == 4


@pytest.mark.parametrize(("fresh", "count"), [("trial", 8), ("length", 4), ("repeat", 2)])
def test_fresh_says_how_often_the_asked_key_is_drawn(fresh, count):
    task = Magic(fresh=fresh)
    draws = [
        Draw(Cell(length, depth), repeat)
        for length in (1000, 2000)
        for depth in (0.1, 0.9)
        for repeat in (0, 1)
    ]
    assert len({task.item(draw).question for draw in draws}) == count


def test_haystacks_are_noise_prose_or_sentences_like_the_needles():
    assert Magic().background(0, 0) is None
    noise = Magic(haystack="repeat").background(0, 0)
    assert noise == Magic(haystack="repeat").background(
        1, 5
    )  # read and tokenised once for all repeats
    assert noise.unit == "sentence"
    lines = Magic(haystack="needles").background(0, 0)
    document = next(lines.source.documents()).text.splitlines()
    assert all(line.startswith("Keep in mind that the number assigned to ") for line in document)
    assert lines.unit == "line"
    assert lines != Magic(haystack="needles").background(1, 0)


def test_lines_of_a_source_can_be_read_from_any_document_on():
    source = Magic(haystack="needles").background(0, 0).source
    first, second = (document for document, _ in zip(source.documents(), range(2), strict=False))
    assert next(source.documents(1)) == second != first


def test_a_key_that_the_haystack_holds_is_drawn_again():
    plain = item()
    held = plain.reference.keywords[0]
    assert item(draw=Draw(CELL, 1, 2, lambda text: text == held)).reference.keywords[0] != held


def test_the_kind_of_value_is_named_in_needle_question_and_beginning():
    made = item(value="uuid", uuid_digits=8)
    wanted = made.reference.keywords[0]
    key = made.answer_prefix.removeprefix("The UUID assigned to ").removesuffix(" is")
    assert made.needles[0].text == f"Keep in mind that the UUID assigned to {key} is {wanted}."
    assert made.question.startswith(f"Which UUID does the text say is assigned to {key}?")


def test_it_speaks_chinese():
    made = item(Multiquery, language="chinese")
    assert made.needles[0].text.startswith("请记住，")
    assert made.question.count("、") == 2
    assert made.question.count("和") == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kees": 2}, r"Unknown option 'kees' of Magic. Did you mean 'keys'\?"),
        ({"keys": 0}, "'keys' of Magic must be at least 1, got 0"),
        ({"digits": 0}, "'digits' of Magic must be at least 1"),
        ({"uuid_digits": 2}, "'uuid_digits' of Magic must be at least 4"),
        (
            {"keys": 2, "queries": 3},
            "3 queries need as many keys, there are 2. Add --task-options keys=3",
        ),
        ({"haystack": "essay"}, "Option 'haystack' of Magic"),
    ],
)
def test_what_cannot_be_is_said(options, words):
    with pytest.raises(SettingsError, match=words):
        Magic(**options)
