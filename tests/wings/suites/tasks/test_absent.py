"""Questions that the text does not answer: how often, how near, and what they leave as it is."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime
from math import sqrt
from random import Random
from typing import Any

import pytest
from rapidfuzz.distance import Levenshtein

from needlemap.errors import SettingsError
from needlemap.grid import Cell
from needlemap.plan import reused, walk_order
from needlemap.records.loaded import load_run
from needlemap.reports.page.summary import summary
from needlemap.scorers import Score
from needlemap.scorers.stated import Only
from needlemap.settings.reading import configure
from needlemap.suites.latent import Latent, knowledge
from needlemap.tasks import Draw, Item
from needlemap.tasks.absence import similar_key
from needlemap.tasks.key_values import Magic, Multikey, Multiquery, Multivalue
from needlemap.tasks.values import Values, words
from needlemap.trials.build import Experiment, prepare

DRAWS = [Draw(Cell(4000, depth / 40), repeat) for depth in range(41) for repeat in range(5)]
MAGIC = (Magic, Multikey, Multivalue, Multiquery)


def items(task: type, **options: Any) -> list[Item]:
    made = task(**{"absent": 0.5} | options)
    return [made.item(draw) for draw in DRAWS]


def absent(rows: list[Item]) -> list[Item]:
    return [item for item in rows if not item.reference.keywords]


def keys_in(text: str) -> list[str]:
    return text.partition("assigned to ")[2].partition("?")[0].replace(" and ", ", ").split(", ")


def hidden_keys(item: Item) -> set[str]:
    return {needle.text.partition("assigned to ")[2].partition(" is")[0] for needle in item.needles}


@pytest.mark.parametrize("task", [*MAGIC, Latent])
def test_half_of_the_questions_have_no_answer_half_of_these_a_near_one(task):
    rows = items(task)
    assert abs(len(absent(rows)) - len(rows) / 2) < 2.6 * sqrt(len(rows)) / 2  # the 1 % point
    assert {item.reference.none for item in rows} == {"none"}
    assert {item.reference.answer for item in absent(rows)} == {"none"}


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_the_share_is_an_option(share):
    rows = items(Magic, absent=share)
    assert abs(len(absent(rows)) - share * len(rows)) <= 2.6 * sqrt(len(rows) * share * (1 - share))


def test_without_it_no_question_says_that_there_may_be_nothing():
    assert Magic().item(DRAWS[0]) == Magic(near=0.1).item(DRAWS[0])
    assert "none" not in Magic().item(DRAWS[0]).question
    assert (Magic().scorer, Magic(absent=0.5).scorer, Latent().scorer) == ("recall", "only", "only")


@pytest.mark.parametrize("task", MAGIC)
@pytest.mark.parametrize("kind", ["number", "uuid"])
def test_a_near_miss_is_one_digit_from_a_hidden_key(task, kind):
    for item in items(task, absent=1, near=1, key=kind):
        hidden = hidden_keys(item)
        for key in keys_in(item.question):
            assert key not in hidden
            assert min(Levenshtein.distance(key, other) for other in hidden) == 1


@pytest.mark.parametrize("task", MAGIC)
def test_a_near_miss_of_words_is_one_of_the_two_with_another_and_never_a_slip_of_the_pen(task):
    """`gaeedy-notebook` for greedy-notebook once read as a typing error, which a careful reader
    answers."""
    adjectives, nouns = map(set, words("english"))
    for item in items(task, absent=1, near=1, key="word"):
        hidden = {tuple(key.split("-")) for key in hidden_keys(item)}
        for key in keys_in(item.question):
            first, second = key.split("-")
            assert (first in adjectives, second in nouns) == (True, True)
            assert (first, second) not in hidden
            assert any((first == other[0]) != (second == other[1]) for other in hidden)


def test_in_chinese_too():
    for item in items(Magic, absent=1, near=1, key="word", language="chinese"):
        (asked,) = re.findall("文中说(.+)对应的", item.question)
        (hidden,) = re.findall("住，(.+?)对应的", item.needles[0].text)
        assert asked != hidden
        assert asked[:2] == hidden[:2] or asked[2:] == hidden[2:]


@pytest.mark.parametrize("task", MAGIC)
def test_what_is_missing_is_not_near(task):
    for item in items(task, absent=1, near=0, key="uuid"):
        distances = [
            Levenshtein.distance(a, b) for a in keys_in(item.question) for b in hidden_keys(item)
        ]
        assert min(distances) > 10


@pytest.mark.parametrize("task", [*MAGIC, Latent])
def test_needles_stay_as_they_are_and_only_the_question_changes(task):
    """So prompts share what they shared, and a depth is where the sentence stands that misleads."""
    for with_it, without in zip(items(task), items(task, absent=0.0), strict=True):
        assert with_it.needles == without.needles
        if with_it.reference.keywords:
            assert with_it.reference.keywords == without.reference.keywords
            assert with_it.question.startswith(without.question)


@pytest.mark.parametrize("task", MAGIC)
def test_all_that_is_hidden_is_a_decoy_where_the_question_asks_for_something_else(task):
    for item in absent(items(task)):
        values = {needle.text.rpartition(" is ")[2].rstrip(".") for needle in item.needles}
        assert set(item.reference.decoys) == values


def only(item: Item, answer: str) -> Score:
    return asyncio.run(Only().score(answer, item.reference))


@pytest.mark.parametrize("task", MAGIC)
@pytest.mark.parametrize("kind", ["word", "number", "uuid"])
@pytest.mark.parametrize("language", ["english", "chinese"])
def test_a_denial_with_a_value_of_the_kind_that_is_asked_for_is_a_false_answer(
    task, kind, language
):
    for item in absent(items(task, value=kind, key=kind, uuid_digits=16, language=language))[:8]:
        made_up = Values(kind, {"word": 0, "number": 7, "uuid": 16}[kind], language).draw(Random(1))
        for said in {made_up, made_up.replace("-", " ") if kind == "word" else made_up}:
            score = only(item, f"{item.reference.none}, 或 {said}")
            assert (score.share, score.why["invented"]) == (0, [made_up])
        assert only(item, f"{item.reference.none} {item.question}").share == 1


@pytest.mark.parametrize("kind", ["word", "number", "uuid"])
def test_a_denial_may_say_which_keys_there_are(kind):
    """They look like values where both are of one kind, and are none."""
    for item in absent(items(Multikey, value=kind, key=kind))[:12]:
        said = f"None: the text has {', '.join(hidden_keys(item))}."
        for text in (said, said.replace("-", " ") if kind == "word" else said):
            assert (only(item, text).share, only(item, text).why["invented"]) == (1, [])


@pytest.mark.parametrize("task", MAGIC)
def test_a_denial_may_say_whose_the_values_of_the_text_are(task):
    for item in absent(items(task)):
        pairs = list(zip(item.reference.owners, item.reference.decoys, strict=True))
        assert {owner for owner, _ in pairs} == set(hidden_keys(item))
        told = "; ".join(f"{owner} has {value}" for owner, value in pairs)
        assert only(item, f"None. The text has others: {told}.").share == 1
        assert only(item, f"None. The text has {pairs[0][1]}.").share == 0


@pytest.mark.parametrize("language", ["english", "chinese"])
def test_a_denial_with_anybodys_name_is_a_false_answer(language):
    """Whose name stands in the text was taken from it, any other one of ours was made up."""
    people = knowledge(language).names
    for item in absent(items(Latent, language=language, distractors=1))[:8]:
        told = [name for name in people if any(name in needle.text for needle in item.needles)]
        assert set(item.reference.decoys) == set(told)
        for name in people:
            score = only(item, f"{item.reference.none}, 或 {name}")
            there = name in told
            assert (score.share, *map(bool, (score.why["decoys"], score.why["invented"]))) == (
                0,
                there,
                not there,
            )


def test_a_near_miss_of_a_fact_is_of_its_kind_and_a_missing_one_is_not():
    kinds = {each.question: each.relation for each in knowledge("english").associations}
    kind_of = {
        needle: each.relation
        for each in knowledge("english").associations
        for needle in each.needles.values()
    }
    for near in (0, 1):
        for item in items(Latent, absent=1, near=near, distractors=1):
            asked = kinds[item.question.partition("?")[0] + "?"]
            text = item.needles[0].text
            name = next(name for name in knowledge("english").names if name in text)
            assert (kind_of[text.replace(name, "{name}")] == asked) == bool(near)


def test_an_unanswered_question_has_no_hidden_fact_for_an_answer():
    facts = knowledge("english").associations
    for item in items(Latent, absent=1, near=1, distractors=2):
        asked = item.question.partition("?")[0] + "?"
        anchors = {each.anchor for each in facts if each.question == asked}
        told = "".join(needle.text for needle in item.needles)
        assert not [anchor for anchor in anchors if re.search(rf"\b{re.escape(anchor)}\b", told)]


@pytest.mark.parametrize("task", [*MAGIC, Latent])
def test_a_haystack_may_hold_the_word_for_nothing_but_not_what_is_asked_for(task):
    """As any English text does; the asked key in it would be an answer."""
    for item in absent(items(task)):
        assert item.unique is not None
        assert "none" not in item.unique
        if task is not Latent:
            assert {*keys_in(item.question), *item.reference.decoys} <= set(item.unique)


def test_the_beginning_of_an_answer_promises_nothing():
    assert {item.answer_prefix for item in items(Magic)} == {"Answer:"}
    assert {item.answer_prefix for item in items(Latent, language="chinese")} == {"答案："}


def test_chinese_questions_allow_it_in_chinese():
    for item in items(Multikey, language="chinese", absent=1):
        assert item.question.endswith("如果文中没有说，就回答“没有”。")
        assert item.reference.answer == item.reference.none == "没有"


def test_one_edit_changes_one_place_to_what_nobody_has():
    random, taken = Random(1), {"11", "22"}
    found = [
        similar_key("12", Values("number", 2), random, taken, lambda text: text == "32")
        for _ in range(8)
    ]
    assert len(set(found)) == 8
    assert not {"11", "22", "32", "12"} & set(found)
    assert all(Levenshtein.distance("12", each) == 1 for each in found)


def test_keys_too_short_for_a_near_miss_say_so():
    with pytest.raises(SettingsError, match=r"one edit away from '12'.*digits=7"):
        similar_key("12", Values("number", 2), Random(1), set(), bool)


def made(**given: Any) -> Experiment:
    small = {"lengths": [1200], "depths": "0:100:21", "max_answer_tokens": 32}
    return prepare(configure(None, small | given))


def test_prompts_share_as_much_as_without_it():
    factors = []
    for share in (0.0, 0.5):
        prompts = [
            t.prompt
            for t in made(task="magic", task_options={"absent": share, "fresh": "repeat"}).trials
        ]
        walk = [prompts[place] for place in walk_order(prompts)]
        asked = sum(prompt.tokens for prompt in walk)
        factors.append(asked / (asked - sum(reused(walk))))
    assert factors[1] > 0.9 * factors[0]


def test_no_asked_key_stands_in_the_haystack():
    experiment = made(
        task="multikey",
        task_options={"absent": 1, "haystack": "needles", "key": "number", "digits": 4},
    )
    for trial in experiment.trials:
        (key,) = keys_in(trial.item.question)
        assert f"to {key} is" not in trial.prompt.context_text


@pytest.mark.parametrize("answer", ["none", "1234567", ""])
def test_an_answer_that_is_always_the_same_is_balanced_at_one_half_or_less(answer):
    experiment = made(task="magic", task_options={"absent": 0.5})
    rates: dict[bool, list[float]] = {True: [], False: []}
    for trial in experiment.trials:
        score = asyncio.run(experiment.scorer.score(answer, trial.item.reference))
        rates[score.why["present"]].append(score.share)
    assert sum(sum(row) / len(row) for row in rates.values()) / 2 <= 0.5


def test_a_run_reports_balanced_accuracy_and_false_answers(typed):
    flags = ("--lengths", "900,1200", "--depths", "0:100:11", "--max-answer-tokens", "32")
    options = ("--task", "magic", "--task-options", "absent=0.5")
    done = typed("run", "--model", "baseline/bm25", *options, *flags, "-o", "r")
    assert "balanced accuracy: 50.0 [" in done.stderr
    lines = typed("report", "r").stdout.splitlines()
    (said,) = [line for line in lines if line.startswith("false answers: ")]
    assert "= 100.0 [" in said  # BM25 never says that there is none
    page = summary([load_run(typed.folder / "r")], made=datetime(2026, 1, 1, tzinfo=UTC))
    assert [line for line in page["runs"][0]["lines"] if line in lines and "false answers" in line]


def test_answers_made_elsewhere_are_scored_so_too(typed):
    flags = ("--lengths", "900", "--depths", "0:100:5", "--max-answer-tokens", "32")
    typed("prompts", "--task", "latent", "--task-options", "absent=1", *flags, "-o", "p.jsonl")
    rows = [json.loads(line) for line in (typed.folder / "p.jsonl").read_text().splitlines()]
    people = knowledge("english").names
    for answer, scores in (("None.", {100.0}), (f"None, or {' or '.join(people)}.", {0.0})):
        said = [row | {"answer": answer} for row in rows]
        (typed.folder / "a.jsonl").write_text("\n".join(map(json.dumps, said)))
        lines = typed("score", "a.jsonl", "--scorer", "only").stdout.splitlines()
        found = [json.loads(line) for line in lines]
        assert {row["score"] for row in found} == scores
        assert {row["why"]["present"] for row in found} == {False}
        assert {len(row["why"]["invented"]) + len(row["why"]["decoys"]) for row in found} == {
            0 if answer == "None." else len(people)
        }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"absent": 1.5}, r"'absent' is a share in 0..1, got 1.5. Give absent=0.5"),
        ({"near": -1}, "'near' is a"),
    ],
)
def test_what_is_no_share_is_refused(options, words):
    with pytest.raises(SettingsError, match=words):
        Magic(**options)
