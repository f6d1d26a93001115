"""Questions about passages: no short cut answers them, at 4k and 128k tokens, and a user's file is
asked."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from math import sqrt
from pathlib import Path
from random import Random
from typing import Any

import pytest
from questions_reader import questions_choices, questions_oracle

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.grid import Cell
from needlemap.plan import reused, walk_order
from needlemap.settings.reading import configure
from needlemap.suites import published
from needlemap.suites.lexicon import lexicon
from needlemap.suites.passages import KINDS, Entries, facts_of
from needlemap.suites.questions import Questions
from needlemap.tasks import Draw
from needlemap.trials.build import Experiment, prepare

KNOWN = lexicon("passages", "english")
TOWNS = rf"\b(?:{'|'.join(KNOWN['towns'])})\b"
LENGTHS = {"4k": 4096, "128k": 131_072}
at_each_length = pytest.mark.parametrize(
    "length", ["4k", pytest.param("128k", marks=pytest.mark.long)]
)
Entry = tuple[str, str]  # its title, and what it says
Solver = Callable[[list[Entry], str, str, Random], str]  # entries, question, type of value


@cache
def made_experiment(length: str, hops: int) -> Experiment:
    """110 trials of a length."""
    given = {"lengths": [LENGTHS[length]], "depths": "0:100:11", "repeats": 10}
    return prepare(configure(f"ruler-qa-{hops}", {"model": "baseline/bm25", **given}))


@cache
def entries_of(length: str, hops: int, number: int) -> list[Entry]:
    trial = made_experiment(length, hops).trials[number]
    text = trial.prompt.messages[-1].content
    return re.findall(r"^([^:\n]+): (.+)$", text[: text.rindex(trial.item.question)], re.MULTILINE)


def values(text: str, kind: str) -> list[str]:
    return re.findall(TOWNS if kind == "town" else r"\b1[78]\d\d\b", text)


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def named(entries: list[Entry], question: str) -> list[Entry]:
    """The entry that the question names, where it leads to another that one behind it."""
    found = [entry for entry in entries if f" {entry[0]} " in question]
    for title, said in entries:
        if any(title in entry[1] for entry in found) and (title, said) not in found:
            found.append((title, said))
    return found


def all_values(entries: list[Entry], kind: str) -> list[str]:
    return values(" ".join(said for _, said in entries), kind)


def of_most_words(entries: list[Entry], question: str, kind: str, random: Random) -> str:
    """A value of the passage that has most of the question's words."""
    asked_words = words(question)
    best = max(entries, key=lambda entry: len(asked_words & words(" ".join(entry))))
    return random.choice(values(best[1], kind))


def named_last(entries: list[Entry], _question: str, kind: str, _random: Random) -> str:
    return all_values(entries, kind)[-1]


def named_first(entries: list[Entry], _question: str, kind: str, _random: Random) -> str:
    return all_values(entries, kind)[0]


def most_often(entries: list[Entry], _question: str, kind: str, _random: Random) -> str:
    return Counter(all_values(entries, kind)).most_common()[0][0]


def most_seldom(entries: list[Entry], _question: str, kind: str, _random: Random) -> str:
    return Counter(all_values(entries, kind)).most_common()[-1][0]


def of_a_line_unlike_others(entries: list[Entry], _q: str, kind: str, random: Random) -> str:
    """A value of the line whose words come in the fewest other lines."""
    lines = Counter(word for _, said in entries for word in words(said))
    rare = min(entries, key=lambda entry: sum(lines[word] for word in words(entry[1])))
    return random.choice(values(rare[1], kind))


def of_the_longest_line(entries: list[Entry], _q: str, kind: str, random: Random) -> str:
    return random.choice(values(max(entries, key=lambda entry: len(entry[1]))[1], kind))


def of_the_line_before(entries: list[Entry], question: str, kind: str, random: Random) -> str:
    """A value of the line before the one that the question names, as if lines were shifted."""
    at = next(at for at, entry in enumerate(entries) if f" {entry[0]} " in question)
    return random.choice(values(entries[at - 1][1], kind))


ELSEWHERE: dict[str, Solver] = {
    solver.__name__: solver
    for solver in (
        of_most_words,
        named_last,
        named_first,
        most_often,
        most_seldom,
        of_a_line_unlike_others,
        of_the_longest_line,
        of_the_line_before,
    )
}


def first_there(entries: list[Entry], question: str, kind: str, _random: Random) -> str:
    return values(named(entries, question)[-1][1], kind)[0]


def last_there(entries: list[Entry], question: str, kind: str, _random: Random) -> str:
    return values(named(entries, question)[-1][1], kind)[-1]


def like_the_question_there(entries: list[Entry], question: str, kind: str, _r: Random) -> str:
    """The value of the passage's sentence that has most of the question's words."""
    sentences = [each for each in named(entries, question)[-1][1].split(". ") if values(each, kind)]
    best = max(sentences, key=lambda sentence: len(words(question) & words(sentence)))
    return values(best, kind)[0]


def without_the_second_step(entries: list[Entry], question: str, kind: str, r: Random) -> str:
    return r.choice(values(named(entries, question)[0][1], kind))


IN_THE_PASSAGE: dict[str, Solver] = {
    solver.__name__: solver for solver in (first_there, last_there, like_the_question_there)
}


def share(length: str, hops: int, solver: Solver) -> tuple[float, float]:
    """How often a solver is right, and four standard errors of a share of a quarter."""
    experiment, random = made_experiment(length, hops), Random(1)
    scores = []
    for number, trial in enumerate(experiment.trials):
        question = trial.item.question
        kind = "year" if "the year" in question else "town"
        said = solver(entries_of(length, hops, number), question, kind, random)
        score = asyncio.run(experiment.scorer.score(said, trial.item.reference)).share
        scores.append(score)
    return sum(scores) / len(scores), 4 * sqrt(0.25 * 0.75 / len(scores))


@pytest.mark.parametrize("hops", [1, 2])
@at_each_length
@pytest.mark.parametrize("name", ELSEWHERE)
def test_no_short_cut_finds_the_passage(length: str, hops: int, name: str) -> None:
    """Of 36 towns or 200 years a guess is right once in 36 at best."""
    right, _ = share(length, hops, ELSEWHERE[name])
    assert right <= 1 / 36 + 4 * sqrt(1 / 36 / 110)


@pytest.mark.parametrize("hops", [1, 2])
@at_each_length
@pytest.mark.parametrize("name", IN_THE_PASSAGE)
def test_who_has_the_passage_must_still_read_it(length: str, hops: int, name: str) -> None:
    """It has four towns and three years, in any order and in other words than the question's."""
    right, off = share(length, hops, IN_THE_PASSAGE[name])
    assert right <= 0.29 + off


@at_each_length
def test_two_steps_cannot_be_answered_from_the_first_passage(length: str) -> None:
    right, _ = share(length, 2, without_the_second_step)
    assert right <= 1 / 36 + 4 * sqrt(1 / 36 / 110)


@pytest.mark.parametrize("hops", [1, 2])
@at_each_length
def test_the_right_reader_is_always_right_and_a_guesser_as_often_as_chance(
    length: str, hops: int
) -> None:
    experiment, random = made_experiment(length, hops), Random(2)
    expected = variance = got = 0.0
    for trial in experiment.trials:
        text = trial.prompt.messages[-1].content
        text = text[: text.rindex(trial.item.question)]
        (said,) = questions_oracle(text, trial.item.question)
        assert asyncio.run(experiment.scorer.score(said, trial.item.reference)).share == 1
        choices = questions_choices(text, trial.item.question)
        guess = random.choice(choices)
        got += asyncio.run(experiment.scorer.score(guess, trial.item.reference)).share
        expected += 1 / len(choices)
        variance += 1 / len(choices)
    assert abs(got - expected) <= 4 * sqrt(variance)


def test_a_name_has_one_entry_and_no_value_is_part_of_another_name() -> None:
    lines = [line for line, _ in zip(Entries("0:0").pieces(), range(4000), strict=False)]
    titles = [line.partition(":")[0] for line in lines]
    assert len(set(titles)) == len(titles)
    assert not [title for title in titles if re.search("|".join(KNOWN["towns"]), title)]
    assert not [(a, b) for a in KNOWN["towns"] for b in KNOWN["towns"] if a != b and a in b]


def test_an_entry_tells_a_fact_in_other_words_than_its_question() -> None:
    small = {"in", "to", "at", "which", "town", "year", "who", "was", "is", "had", "its", "it", "a",
             "the", "for", "of", "value", "they", "their", "them"}  # fmt: skip
    for kind in KINDS:
        for fact in facts_of(kind).values():
            for form in fact["says"]:
                assert not words(fact["ask"]) & words(form) - small, (fact["ask"], form)


def test_prompts_of_neighbouring_depths_share_more_where_one_passage_is_asked_for_a_length() -> (
    None
):
    given = {"task": "questions", "lengths": [4000], "depths": "0:100:11", "max_answer_tokens": 32}
    shares = []
    for fresh in ("trial", "length"):
        chosen = configure(None, {**given, "task_options": {"fresh": fresh}})
        prompts = [trial.prompt for trial in prepare(chosen).trials]
        walk = [prompts[place] for place in walk_order(prompts)]
        shares.append(sum(reused(walk)) / sum(prompt.tokens for prompt in walk))
    assert shares[0] < shares[1] > 0.3


# Files of the user's, in the forms in which SQuAD and HotpotQA are published.


def article(number: int) -> dict[str, Any]:
    """One of SQuAD's articles: two paragraphs, one of them with a question that has no answer."""
    return {
        "title": f"Lake_{number}",
        "paragraphs": [
            {
                "context": f"Lake {number} lies\nin the hills. It is {number + 40} feet deep.",
                "qas": [
                    {
                        "id": f"{number}a",
                        "question": f"How many feet deep is Lake {number}?",
                        "answers": [
                            {"text": f"{number + 40}", "answer_start": 33},
                            {"text": f"{number + 40} feet", "answer_start": 33},
                        ],
                    },
                    {
                        "id": f"{number}b",
                        "question": "Who swims in it?",
                        "answers": [],
                        "is_impossible": True,
                    },
                ],
            },
            {"context": f"The shore of Lake {number} is sandy.", "qas": []},
        ],
    }


def squad(folder: Path) -> Path:
    file = folder / "squad.json"
    file.write_text(json.dumps({"version": "1.1", "data": [article(n) for n in range(30)]}))
    return file


def squad_rows(folder: Path) -> Path:
    """The same as rows of a data set, a line each."""
    rows = []
    for number in range(30):
        paragraph = article(number)["paragraphs"][0]
        texts = [each["text"] for each in paragraph["qas"][0]["answers"]]
        rows.append(
            {
                "title": f"Lake_{number}",
                "context": paragraph["context"],
                "question": paragraph["qas"][0]["question"],
                "answers": {"text": texts, "answer_start": [33, 33]},
            }
        )
    file = folder / "squad.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def hotpot(folder: Path) -> Path:
    rows = [
        {
            "_id": str(number),
            "question": f"Who owns the boat on Lake {number}?",
            "answer": f"Owner{number}",
            "supporting_facts": [[f"Lake {number}", 0], [f"Boat {number}", 1]],
            "context": [
                [f"Other {number}", [f"Other {number} is a hill.", " It is green."]],
                [f"Lake {number}", [f"On Lake {number} sails Boat {number}."]],
                [f"Boat {number}", ["It is red.", f" Its owner is Owner{number}."]],
            ],
        }
        for number in range(30)
    ]
    file = folder / "hotpot.json"
    file.write_text(json.dumps(rows))
    return file


def hotpot_rows(folder: Path) -> Path:
    rows = json.loads(hotpot(folder).read_text())
    for row in rows:
        titles, sentences = zip(*row["context"], strict=True)
        row["context"] = {"title": titles, "sentences": sentences}
        names, places = zip(*row["supporting_facts"], strict=True)
        row["supporting_facts"] = {"title": names, "sent_id": places}
    file = folder / "hotpot.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.parametrize("make", [squad, squad_rows, hotpot, hotpot_rows])
def test_a_file_in_its_published_form_is_asked(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    file = make(tmp_path)
    options = {"path": str(file)}
    given = {"task": "questions", "task_options": options, "lengths": [700, 1400]}
    experiment = prepare(
        configure(None, given | {"depths": "0:100:5", "repeats": 2, "max_answer_tokens": 32})
    )
    assert len(experiment.trials) == 20
    questions = set()
    for trial in experiment.trials:
        text, item = trial.prompt.messages[-1].content, trial.item
        questions.add(item.question)
        assert all(needle.text in text for needle in item.needles)
        assert text.count(item.needles[0].text) == 1
        assert trial.cell.length_tokens - 32 - trial.prompt.tokens <= 60
        for answer in item.reference.keywords:
            assert asyncio.run(experiment.scorer.score(answer, item.reference)).share == 1
        if "hotpot" in file.name:
            assert len(item.needles) == 3
            assert item.reference.answer in item.needles[1].text
        else:
            assert len(item.reference.keywords) == 2
            assert item.needles[0].text.startswith("Lake ")
            assert item.needles[0].text.count("\n") == 1
    assert len(questions) > 7


def test_a_hotpot_rows_are_the_file_s(tmp_path: Path) -> None:
    one, two = (Questions(path=str(make(tmp_path))) for make in (hotpot, hotpot_rows))
    assert one._file is not None
    assert two._file is not None
    assert one._file.questions == two._file.questions
    assert one._file.passages == two._file.passages


def test_passages_that_answer_a_repeats_questions_stand_nowhere_else_in_it(tmp_path: Path) -> None:
    """A passage that stood in the haystack too would answer at another depth than the cell's."""
    task = Questions(path=str(squad(tmp_path)))
    for repeat in range(3):
        lines = task.background(repeat, 0).source
        kept = {line for document, _ in zip(lines.documents(), range(9), strict=False)
                for line in document.text.splitlines(keepends=True)}  # fmt: skip
        for depth in range(30):
            item = task.item(Draw(Cell(1000, depth / 30), repeat, 0))
            assert not {needle.text for needle in item.needles} & kept


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "cannot be read"),
        ('{"rows": []}', r"is not SQuAD's form, data > paragraphs > qas \(KeyError\('data'\)\)"),
        ('{"data": []}', "holds no questions"),
        ('[{"question": "Who?"}]', "question 1: not of the form 'squad'"),
        ('[{"question": "Who?", "supporting_facts": []}]', "not of the form 'hotpot'"),
        ('[{"context": "A b.", "question": "Who?", "answers": {"text": []}}]', "0 questions with"),
    ],
)
def test_a_file_that_is_neither_is_refused_in_words(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    file.write_text(text)
    with pytest.raises(SettingsError, match=why):
        Questions(path=str(file))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "own.json")
    with pytest.raises(SettingsError, match="No file at"):
        Questions(path=str(tmp_path / "own.json"))


def test_no_more_is_read_than_of_other_published_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = squad(tmp_path)
    monkeypatch.setattr(published, "_MOST_BYTES", file.stat().st_size - 1)
    with pytest.raises(NeedlemapError, match="is larger than"):
        Questions(path=str(file))


def test_another_file_is_another_run(tmp_path: Path) -> None:
    source = Questions(path=str(squad(tmp_path))).source()
    assert source[0] == "passages:squad.json"
    assert source[1] != Questions(path=str(hotpot(tmp_path))).source()[1]
    assert Questions().source() == ("", "")
