"""Lines of descent: who stands so many generations above or below, and how many there are
between."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from math import sqrt
from random import Random
from typing import Any

import pytest

from needlemap.errors import SettingsError, TooShort
from needlemap.grid import Cell
from needlemap.scorers.stated import Boxed
from needlemap.settings.reading import configure
from needlemap.suites.kinship import FamilyLines, Kinship, line, links
from needlemap.suites.lexicon import lexicon
from needlemap.tasks import Draw, Item
from needlemap.tasks.values import Person, fresh_person
from needlemap.trials import Trial
from needlemap.trials.build import prepare

ENGLISH = {  # which of the two names of a sentence is the child
    r"^(.+) is the (?:mother|father) of (.+)\.$": 2,
    r"^(.+) is the (?:daughter|son) of (.+)\.$": 1,
    r"^The (?:mother|father) of (.+) is (.+)\.$": 1,
    r"^(.+) has a (?:daughter|son) called (.+)\.$": 2,
    r"^Among the children of (.+) is (.+)\.$": 2,
    r"^(.+) brought up (?:her|his) (?:daughter|son) (.+)\.$": 2,
}


def item(depth: float = 0.3, **options: Any) -> Item:
    return Kinship(**options).item(Draw(Cell(4000, depth), 1, 2))


def facts_said(task: Kinship, draw: Draw) -> tuple[Item, list[tuple[str, str]]]:
    """An item and, in the order of the text, each fact's two names: the child's, the parent's."""
    made, background = task.item(draw), task.background(draw.repeat, draw.seed)
    needles = [(needle.depth, needle.text) for needle in made.needles]
    if background is not None:
        lines = next(iter(background.source.documents())).text.splitlines()
        needles += [((place + 0.5) / len(lines), text) for place, text in enumerate(lines)]
    said = [parents([text.strip()]) for _, text in sorted(needles, key=lambda both: both[0])]
    return made, [pair for one in said for pair in one.items()]


def trials(
    mode: str = "exact", lengths: tuple[int, ...] = (2000,), **options: Any
) -> tuple[Trial, ...]:
    grid = {
        "lengths": list(lengths),
        "depths": "0:100:5",
        "repeats": 2,
        "max_answer_tokens": 64,
        "mode": mode,
    }
    return prepare(configure(None, {"task": "kinship", "task_options": options, **grid})).trials


def parents(lines: list[str]) -> dict[str, str]:
    """Each child's parent. A line that is no fact, or a second parent, is an error."""
    found: dict[str, str] = {}
    for text in lines:
        match, child = next(
            (m, child) for pattern, child in ENGLISH.items() if (m := re.match(pattern, text))
        )
        assert match[child] not in found
        found[match[child]] = match[3 - child]
    assert len(set(found.values())) == len(found)
    return found


def context_lines(trial: Trial) -> list[str]:
    return trial.prompt.context_text.strip().split("\n")


def up(person: str, above: dict[str, str]) -> list[str]:
    """Somebody, the parent, the grandparent, ..."""
    found = [person]
    while found[-1] in above:
        found.append(above[found[-1]])
    return found


def names(made: Item) -> list[str]:
    return [
        name
        for name in re.findall(r"[A-Z]\w+ [A-Z]\w+", made.question)
        if not name.startswith("Who")
    ]


SHORTCUTS: dict[str, Callable[[list[tuple[str, str]], str, Random], str]] = {
    "any name said once": lambda facts, asked, random: random.choice(once(facts, asked)),
    "the last name said once": lambda facts, asked, _: once(facts, asked)[-1],
    "the first name said once": lambda facts, asked, _: once(facts, asked)[0],
    "a parent who is nobody's child": lambda facts, _, random: random.choice(ends(facts, 1)),
    "the last of these": lambda facts, *_: ends(facts, 1)[-1],
    "the first of these": lambda facts, *_: ends(facts, 1)[0],
    "a child who is nobody's parent": lambda facts, asked, random: random.choice(
        [name for name in ends(facts, 0) if name != asked] or [asked]
    ),
    "the last parent": lambda facts, *_: facts[-1][1],
    "the first parent": lambda facts, *_: facts[0][1],
    "whom the asked one's fact names": lambda facts, asked, _: "".join(
        name for fact in facts if asked in fact for name in fact if name != asked
    ),
    "the parent in the fact behind the asked one's": lambda facts, asked, _: facts[
        min(len(facts) - 1, 1 + next(n for n, fact in enumerate(facts) if asked in fact))
    ][1],
}


def once(facts: list[tuple[str, str]], asked: str) -> list[str]:
    said = Counter(name for fact in facts for name in fact)
    return [name for name, times in said.items() if times == 1 and name != asked]


def ends(facts: list[tuple[str, str]], side: int) -> list[str]:
    """Names that only stand on one side, child or parent, in the order of the text."""
    others = {fact[1 - side] for fact in facts}
    return [fact[side] for fact in facts if fact[side] not in others]


READ = 120  # items for each guess


@cache
def read(ask: str, haystack: str, depth: float) -> list[tuple[Item, list[tuple[str, str]]]]:
    task = Kinship(ask=ask, haystack=haystack, families=7, facts=8)
    return [facts_said(task, Draw(Cell(4000, depth), repeat, 7)) for repeat in range(READ)]


@pytest.mark.parametrize("shortcut", SHORTCUTS)
@pytest.mark.parametrize("haystack", ["prose", "none"])
@pytest.mark.parametrize("ask", ["eldest", "ancestor", "descendant"])
def test_no_shortcut_past_the_chain_is_right_more_often_than_the_guide_says(
    ask, haystack, shortcut
):
    """1 in families + 1 of the eldest, 1 in facts of others. Names said once were right 1 in 3, or
    always."""
    random, chance = Random(shortcut), 1 / 8
    for depth in (0.0, 0.5, 1.0):
        hits = sum(
            SHORTCUTS[shortcut](said, names(made)[0], random) == made.reference.answer
            for made, said in read(ask, haystack, depth)
        )
        assert hits / READ <= chance + 3.5 * sqrt(chance * (1 - chance) / READ), depth


def test_steps_are_as_likely_each_so_that_no_distance_is_a_good_guess():
    task = Kinship(ask="distance", facts=6)
    said = Counter(
        task.item(Draw(Cell(4000, 0.5), repeat)).reference.answer for repeat in range(1200)
    )
    assert max(said.values()) < 200 + 3.5 * sqrt(1200 * 5 / 36)


def test_the_eldest_of_one_line_alone_is_not_asked_for():
    with pytest.raises(
        SettingsError, match=r"no step need be traced. Give families=3, or ask=ancestor"
    ):
        Kinship(families=0)
    assert len(item(families=0, ask="ancestor").needles) == 4


def steps_of(made: Item) -> int:
    found = re.search(r"(\d+) generations?", made.question)
    assert found
    return int(found[1])


@pytest.mark.parametrize("mode", ["exact", "bins"])
@pytest.mark.parametrize("families", [0, 2])
def test_dense_prompts_hold_the_facts_and_nothing_else_whatever_the_length(mode, families):
    made = trials(mode, (1000, 2000), haystack="none", facts=12, ask="ancestor", families=families)
    for trial in made:
        lines = context_lines(trial)
        above = parents(lines)
        assert len(lines) == 12 * (families + 1)
        (start,) = names(trial.item)
        assert up(start, above)[steps_of(trial.item)] == trial.item.reference.answer
        assert len(up(start, above)) == 13
    sizes = {trial.prompt.tokens for trial in made}
    assert max(sizes) - min(sizes) < 30  # names are longer and shorter


DENSE: dict[str, Any] = {"haystack": "none", "ask": "ancestor", "families": 0}


def test_a_dense_prompt_that_does_not_fit_is_refused_and_never_cut():
    with pytest.raises(TooShort, match="leaves no room for its haystack") as error:
        trials(lengths=(500,), facts=40, **DENSE)
    least = re.search(r"lengths of (\d+)", str(error.value))
    assert least
    assert len(context_lines(trials(lengths=(int(least[1]),), facts=40, **DENSE)[0])) == 40


def test_where_facts_are_all_there_is_the_first_step_stands_at_the_cells_depth():
    for trial in trials(facts=40, **DENSE):
        lines = context_lines(trial)
        (place,) = [n for n, text in enumerate(lines) if names(trial.item)[0] in text]
        assert place / 39 == pytest.approx(trial.cell.depth, abs=0.05)


def test_512_dense_facts_can_be_asked():
    (first, *_) = trials(lengths=(16_000,), facts=512, **(DENSE | {"ask": "descendant"}))
    above = parents(context_lines(first))
    assert len(above) == 512
    (start,) = names(first.item)
    assert up(first.item.reference.answer, above)[steps_of(first.item)] == start


@pytest.mark.parametrize("length", [600, 1500, 4000])
def test_as_many_facts_as_fit_fill_most_of_a_length(length):
    made = trials(lengths=(length,), haystack="families", facts="fit")
    for trial in made:
        lines = context_lines(trial)
        above = parents(lines)
        line_of = up(names(trial.item)[0], above)
        assert line_of[-1] == trial.item.reference.answer
        assert 0.6 < (len(line_of) - 1) / len(lines) < 0.98
        assert trial.prompt.tokens > length - 64 - 40
    assert len({len(trial.item.needles) for trial in made}) == 1


@pytest.mark.parametrize("ask", ["eldest", "ancestor", "descendant", "distance"])
def test_the_answer_is_the_only_one_that_the_facts_allow(ask):
    for repeat in range(12):
        made = Kinship(ask=ask, facts=7, families=2).item(Draw(Cell(4000, 0.5), repeat))
        above = parents([needle.text for needle in made.needles])
        assert len(above) == 21
        found, answer = names(made), made.reference.answer
        steps = re.search(r"(\d+) generations?", made.question)
        if ask == "eldest":
            assert up(found[0], above)[-1] == answer
        elif ask == "ancestor":
            assert steps
            assert up(found[0], above)[int(steps[1])] == answer
        elif ask == "descendant":
            assert steps
            assert up(answer, above)[int(steps[1])] == found[0]
        else:
            assert up(found[0], above)[int(answer)] == found[1]


def test_steps_are_drawn_from_one_to_all_or_given():
    drawn = {
        Kinship(ask="distance", facts=5).item(Draw(Cell(4000, 0.5), repeat)).reference.answer
        for repeat in range(60)
    }
    assert drawn == {"1", "2", "3", "4", "5"}
    assert "3 generations above" in item(ask="ancestor", facts=5, steps=3).question
    assert "1 generation above" in item(ask="ancestor", facts=5, steps=1).question
    with pytest.raises(
        SettingsError, match=r"Length 600 has room for .* facts, steps are 100. Use longer"
    ):
        trials(lengths=(600,), haystack="families", facts="fit", ask="ancestor", steps=100)


@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_the_asked_persons_fact_stands_at_the_cells_depth_and_those_of_other_lines_behind_it(depth):
    made = item(depth, facts=6, families=2)
    asked, *others = made.needles[:3]
    assert names(made)[0] in asked.text
    assert asked.depth == depth
    assert all(depth <= other.depth for other in others)
    assert len(made.needles) == 18


def test_what_lines_go_on_with_stays_where_it_is_at_all_depths_of_a_length():
    """Wherever the asked person's fact stands; so its place tells nothing of the answer's."""
    rows = [item(depth, facts=5, families=2) for depth in (0.0, 0.4, 1.0)]
    kept = [sorted((needle.depth, needle.text) for needle in made.needles[3:]) for made in rows]
    assert len(kept[0]) == 12
    assert kept[0] == kept[1] == kept[2]
    assert max(depth for depth, _ in kept[0]) - min(depth for depth, _ in kept[0]) > 0.5


def test_any_of_the_lines_may_be_asked_about():
    eldest = {item(depth / 40, families=2).reference.answer for depth in range(40)}
    assert len(eldest) == 3


def test_facts_stand_in_random_order_or_up_or_down_the_line():
    def starts(order: str) -> list[int]:
        made = item(facts=8, order=order)
        found = up(names(made)[0], parents([needle.text for needle in made.needles]))
        said = sorted((needle for needle in made.needles[1:]), key=lambda needle: needle.depth)
        children = [next(iter(parents([needle.text]))) for needle in said]
        return [found.index(child) for child in children if child in found]

    assert starts("forward") == list(range(1, 8))
    assert starts("backward") == list(range(1, 8))[::-1]
    assert starts("random") not in (list(range(1, 8)), list(range(1, 8))[::-1])


def test_words_agree_with_who_is_a_woman():
    ada, tom = Person("Ada", True), Person("Tom", False)
    said = {
        link.sentence(Random(seed), "english")
        for seed in range(99)
        for link in links([ada, tom], up=True)
    }
    assert {
        "Tom is the father of Ada.",
        "Ada is the daughter of Tom.",
        "Tom brought up his daughter Ada.",
    } < said
    assert len(said) == len(lexicon("kinship", "english")["sentences"])
    said = {
        link.sentence(Random(seed), "chinese")
        for seed in range(99)
        for link in links([ada, tom], up=False)
    }
    assert {"Ada是Tom的母亲。", "Tom是Ada的儿子。", "Ada把她的儿子Tom抚养成人。"} < said


def test_a_haystack_of_families_holds_whole_families_that_share_nobody():
    source = FamilyLines(8, "english", "0:0")
    documents = [
        document.text.splitlines()
        for document, _ in zip(source.documents(), range(3), strict=False)
    ]
    above = parents([text for lines in documents for text in lines])
    eldest = set(above.values()) - set(above)
    assert len(above) == 8 * len(eldest)
    assert next(source.documents(2)).text.splitlines() == documents[2]


@pytest.mark.parametrize("language", ["english", "chinese"])
def test_thousands_of_people_have_names_of_their_own(language):
    people = line(Random(0), language, 5000, set(), lambda _: False)
    assert len({one.name for one in people}) == 5000
    if language == "chinese":
        assert {len(one.name) for one in people} == {3}  # so that no name is part of another


def test_when_everybody_is_known_that_is_said():
    with pytest.raises(SettingsError, match="Names of people are used up"):
        fresh_person(Random(0), "english", set(), lambda _: True)


def test_the_answers_beginning_opens_the_box():
    made = item()
    assert (
        asyncio.run(
            Boxed().score(f"{made.answer_prefix}{made.reference.answer}}}", made.reference)
        ).share
        == 1
    )
    assert asyncio.run(Boxed().score(made.reference.answer, made.reference)).share == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"facts": 1}, "'facts' of kinship must be 2 to 512"),
        ({"facts": 513}, "'facts' of kinship must be 2 to 512"),
        ({"facts": "fit"}, "Add --task-options haystack=families"),
        (
            {"ask": "distance", "steps": 2},
            "'steps' is for ask=ancestor and ask=descendant, not for ask=distance",
        ),
        ({"ask": "ancestor", "steps": 5}, "'steps' must be 1 to 4"),
        ({"families": -1}, "'families' of Kinship must be at least 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, words):
    with pytest.raises(SettingsError, match=words):
        Kinship(**options)
