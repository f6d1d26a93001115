"""Distractors of a needle of one's own: near misses from its slots, or one's own sentences."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import needlemap
from needlemap.errors import SettingsError
from needlemap.grid import Cell
from needlemap.records.loaded import load_run
from needlemap.reports.renderers.json import to_json
from needlemap.reports.renderers.text import to_text
from needlemap.reports.run_report import run_report
from needlemap.settings.reading import DEFAULT_ITEMS, configure
from needlemap.tasks import Draw, Item
from needlemap.tasks.single import Multi, Single
from needlemap.trials.build import prepare

CITIES = ["Oslo", "Lima", "Cairo", "Quito"]
CODE = {
    "needle": "The code for {city} is {number}.",
    "question": "What is the code for {city}?",
    "keywords": ["{number}"],
    "draw": {"city": CITIES, "number": "1000:9999"},
}
TINY = {"lengths": "600,1k", "depths": "0,50,100", "repeats": 2, "model": "baseline/bm25"}


def item_of(task: Single | Multi, depth: float = 0.5, length: int = 4000, repeat: int = 0) -> Item:
    return task.item(Draw(Cell(length, depth), repeat, 0))


def beside(item: Item) -> list[str]:
    return [needle.text for needle in item.needles if needle.wrong]


@pytest.mark.parametrize("language", ["english", "chinese"])
@pytest.mark.parametrize("repeat", range(20))
def test_a_near_miss_is_the_needle_for_another_question_with_another_answer(language, repeat):
    own = DEFAULT_ITEMS[language]
    item = item_of(Single(**own, distractors=11), repeat=repeat)
    needle, texts = item.needles[0].text, beside(item)
    (right,) = item.reference.keywords
    assert len(set(texts)) == 11
    assert needle not in texts
    assert not any(right in text for text in texts)
    assert len(item.reference.decoys) == 11
    assert right not in item.reference.decoys
    asked = next(city for city in own["draw"]["city"] if city in item.question)
    assert not any(asked in text for text in texts)  # nothing contradicts the needle


def test_only_one_slot_of_the_question_differs_so_that_it_is_near():
    task = Single(
        needle="{name} of {city} drinks {drink}.",
        question="What does {name} of {city} drink?",
        keywords=["{drink}"],
        draw={
            "name": ["Ann", "Bob", "Eve"],
            "city": ["Oslo", "Rome", "Lima"],
            "drink": ["tea", "beer", "milk", "rum", "cocoa"],
        },
        distractors=4,
    )
    own, *others = [needle.text.rstrip(".").split() for needle in item_of(task).needles]
    for other in others:
        assert (own[0] != other[0]) + (own[2] != other[2]) == 1
        assert own[4] != other[4]


def test_a_near_miss_of_several_needles_is_all_of_them():
    task = Multi(
        needles=["{name} lives in {city}.", "The code for {city} is {number}."],
        question="What is the code for the city where {name} lives?",
        keywords=["{number}"],
        draw={"name": ["Ann", "Bob", "Eve"], "city": CITIES, "number": "1000:9999"},
        distractors=2,
    )
    item = item_of(task)
    home, code = (needle.text for needle in item.needles[:2])
    first = beside(item)[:2]
    assert len(beside(item)) == 4
    assert first[0].split(" in ")[1].rstrip(".") in first[1]  # it leads on, to another code
    assert first[0].split(" in ")[1] != home.split(" in ")[1]
    assert first[1] != code


def test_they_stand_at_the_same_places_in_all_cells_of_a_repeat():
    task = Single(**CODE, distractors=3)
    rows = {
        tuple((needle.text, needle.depth) for needle in item_of(task, depth, length).needles[1:])
        for depth in (0.0, 0.5, 1.0)
        for length in (1000, 64_000)
    }
    assert len(rows) == 1
    assert all(needle.still for needle in item_of(task).needles[1:])
    assert item_of(task, repeat=1).needles[1:] != item_of(task).needles[1:]


def test_the_needle_is_the_same_with_and_without_them():
    assert item_of(Single(**CODE)).needles[0] == item_of(Single(**CODE, distractors=3)).needles[0]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"distractors": 4}, "allows 3 near misses"),
        ({"question": "What is the code?"}, "share none"),
        ({"keywords": ["code"]}, "the answer has no slot"),
        ({"draw": {"city": CITIES, "number": ["7"]}}, "no other value than '7'"),
        ({"distractors": ["It was {n}."]}, "unknown placeholder"),
        ({"distractors": ["No {city} has {number}."]}, "holds the right answer"),
        ({"distractors": ["It is red.\tblue"]}, "does not hold its value"),
    ],
)
def test_slots_that_do_not_allow_them_are_refused_in_words(changed, said):
    with pytest.raises(SettingsError, match=said):
        item_of(Single(**{**CODE, "distractors": 3, **changed}))


def test_own_sentences_show_their_value_behind_a_tab_or_by_its_look():
    lines = ["It was 4040 once.", "Boats are red.\tred", "Nobody knows."]
    assert item_of(Single(**CODE, distractors=lines)).reference.decoys == ("4040", "red")


def test_prompts_keep_length_depth_and_what_they_share():
    plain, other = (
        prepare(configure(None, {**TINY, "distractors": count})).trials for count in (0, 3)
    )
    assert [t.prompt.off_by for t in other] == [0] * len(other)
    assert all(t.prompt.tokens == t.cell.length_tokens - 300 for t in other)
    for before, now in zip(plain, other, strict=True):
        needle = now.prompt.needles[0]
        assert needle.meant == now.cell.depth
        assert abs(needle.realised - before.prompt.needles[0].realised) < 0.15
        assert now.key != before.key


def test_what_an_answer_takes_from_them_is_named(tmp_path):
    near = tmp_path / "near.txt"
    near.write_text("\ufeffThe keys of {city} are red.\tred\n\nThe old code was 10101.\n", "utf-8")
    said = iter(["It is 10101.", "red, or {right}", "I do not know.", "{right}"])

    def model(messages):
        right = messages[-1]["content"].split(" is ")  # the prompt's own needle
        number = next(part[:5] for part in right if part[:5].isdecimal())
        return next(said).replace("{right}", number)

    run = needlemap.run(
        model=model,
        distractors=near,
        lengths="500",
        depths="0",
        repeats=4,
        concurrency=1,
        seed=3,
        out=tmp_path / "run",
        quiet=True,
    )
    named = Counter(tuple(record.scorer.why["distractors"]) for record in run.records())
    assert named == {("10101",): 1, ("red",): 1, (): 2}
    near.unlink()  # run.json holds the sentences
    assert needlemap.load(tmp_path / "run").about()["settings"]["distractors"] == [
        "The keys of {city} are red.\tred",
        "The old code was 10101.",
    ]
    report = run_report(load_run(tmp_path / "run"))
    (line,) = [line for line in to_text(report).splitlines() if line.startswith("distractors:")]
    assert line.startswith("distractors: 1/4 = 25.0 [")
    assert "1 give both, 1 neither" in line
    taken = to_json(report)["distractors"]
    assert (taken["instead"]["hits"], taken["beside"], taken["neither"]) == (1, 1, 1)


def test_a_scorer_that_would_reward_a_distractor_is_refused():
    with pytest.raises(SettingsError, match="a wrong answer would count as right"):
        prepare(configure(None, {**TINY, "distractors": 2, "scorer": "levenshtein"}))


def test_a_task_with_words_of_its_own_takes_none():
    with pytest.raises(SettingsError, match="Nothing reads --distractors here: it needs task"):
        configure(None, {"task": "kv", "distractors": 2})


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "there is no file"), (b" \n", "holds no sentence"), (b"Caf\xe9.", "is no UTF-8")],
)
def test_a_file_that_is_none_is_refused_in_words(tmp_path: Path, content, said):
    file = tmp_path / "near.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError, match=said):
        configure(None, {"distractors": str(file)})
