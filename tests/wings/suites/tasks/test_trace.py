"""Variables that get their value from one another: chains, their order in the text, and what is
asked."""

from __future__ import annotations

import asyncio
import re
from math import sqrt
from typing import Any

import pytest

from needlemap.errors import SettingsError
from needlemap.grid import Cell
from needlemap.plan import reused, walk_order
from needlemap.settings.reading import configure
from needlemap.suites.f1 import F1
from needlemap.suites.trace import Chain, Trace
from needlemap.tasks import Draw, Item
from needlemap.trials.build import prepare

CELL = Cell(4000, 0.3)


def item(draw: Draw | None = None, **options: Any) -> Item:
    return Trace(**options).item(draw or Draw(CELL, 1, 2))


def in_text_order(made: Item) -> list[str]:
    return [needle.text for needle in sorted(made.needles, key=lambda needle: needle.depth)]


def test_a_chain_says_of_each_variable_where_its_value_comes_from():
    chain = Chain("48213", ("KEB41", "QUF07", "ZOF47"))
    assert chain.lines("Let {name} = {source}.") == [
        "Let KEB41 = 48213.",
        "Let QUF07 = KEB41.",
        "Let ZOF47 = QUF07.",
    ]


def test_all_variables_of_one_value_are_wanted_and_those_of_others_are_decoys():
    made = item(chains=3, hops=2)
    assert (len(made.needles), len(made.reference.keywords), len(made.reference.decoys)) == (
        9,
        3,
        6,
    )
    value = re.search(r"\d+", made.question)
    assert value
    assert made.needles[0].text == f"Let {made.reference.keywords[0]} = {value[0]}."


def test_neither_question_nor_the_answers_beginning_says_a_name_or_how_many_there_are():
    for hops in (1, 4, 9):
        made = item(hops=hops)
        said = made.question + made.answer_prefix
        assert not [name for name in made.reference.keywords if name in said]
        assert not re.search(rf"\b{hops}\b|\b{hops + 1}\b", said)
    assert re.sub(r"\d", "", item(hops=1).question) == re.sub(r"\d", "", item(hops=9).question)


@pytest.mark.parametrize("order", ["forward", "backward", "random"])
@pytest.mark.parametrize("depth", [0.0, 0.3, 1.0])
def test_the_chain_begins_at_the_cells_depth_in_whatever_order_it_stands(order, depth):
    made = item(Draw(Cell(4000, depth), 1, 2), order=order, chains=1, hops=5)
    depths = [needle.depth for needle in made.needles]
    assert depths[0] == depth == min(depths)
    assert depths == sorted(depths)
    assert [needle.still for needle in made.needles] == [False, *[True] * 5]
    places = [made.reference.keywords.index(text.split()[1]) for text in in_text_order(made)]
    assert sorted(places) == [0, 1, 2, 3, 4, 5]
    if order != "random":
        assert places == sorted(places, reverse=order == "backward")


def test_random_order_is_another_one_in_each_repeat():
    def order(repeat: int) -> tuple[int, ...]:
        made = item(Draw(CELL, repeat), order="random", chains=1)
        return tuple(made.reference.keywords.index(text.split()[1]) for text in in_text_order(made))

    assert len({order(repeat) for repeat in range(20)}) > 15


def test_span_says_over_how_much_of_the_haystack_the_chain_goes_on():
    depths = [needle.depth for needle in item(span=10, chains=1, hops=20).needles]
    assert max(depths) <= 0.4
    assert max(depths) > 0.38
    assert max(needle.depth for needle in item(chains=1, hops=20).needles) > 0.9


def test_the_lines_behind_the_first_are_spread_uniformly():
    """Kolmogorov and Smirnov: no larger gap to the uniform distribution than one of a hundred draws
    has."""
    made = [item(Draw(CELL, repeat)) for repeat in range(60)]
    asked = sorted((needle.depth - 0.3) / 0.7 for one in made for needle in one.needles[1:5])
    others = sorted(needle.depth for one in made for needle in one.needles[5:])
    for depths in (asked, others):
        gaps = [
            max((n + 1) / len(depths) - depth, depth - n / len(depths))
            for n, depth in enumerate(depths)
        ]
        assert max(gaps) < 1.63 / sqrt(len(depths))


def test_what_stands_before_the_chain_is_the_same_at_all_depths_of_a_length():
    one, other = (item(Draw(Cell(4000, depth), 1)).needles for depth in (0.2, 0.8))
    assert one[5:] == other[5:]
    assert not {needle.text for needle in one[:5]} & {needle.text for needle in other[:5]}


@pytest.mark.parametrize(("fresh", "count"), [("trial", 8), ("length", 4), ("repeat", 2)])
def test_fresh_says_how_often_the_chain_is_drawn(fresh, count):
    draws = [
        Draw(Cell(length, depth), repeat)
        for length in (1000, 2000)
        for depth in (0.1, 0.9)
        for repeat in (0, 1)
    ]
    assert len({item(draw, fresh=fresh).question for draw in draws}) == count


def test_a_name_that_the_haystack_holds_is_drawn_again():
    held = item().reference.keywords[0]
    assert held not in item(Draw(CELL, 1, 2, lambda text: text == held)).reference.keywords


def test_naming_all_variables_of_the_prompt_earns_half():
    reference = item(chains=3).reference
    said = ", ".join(reference.keywords + reference.decoys)
    score = asyncio.run(F1().score(said, reference))
    assert (score.why["recall"], score.why["precision"], score.share) == (
        1,
        pytest.approx(1 / 3),
        0.5,
    )
    assert len(score.why["wrong"]) == 10


def test_with_a_pattern_names_that_the_prompt_lacks_are_wrong_too():
    reference = item().reference
    said = f"Tracing it through: {' '.join(reference.keywords)} and XYZ99"
    score = asyncio.run(F1(item=r"\b[a-z]{3}[0-9]{2}\b").score(said, reference))
    assert score.why["wrong"] == ["xyz99"]
    assert score.why["precision"] == pytest.approx(5 / 6)


def test_shots_are_solved_examples_before_the_text_the_same_in_all_trials():
    """So prompts go on sharing their beginnings, those of other repeats too where the noise is
    one."""
    draws = [
        Draw(Cell(length, depth), repeat)
        for length in (1000, 9000)
        for depth in (0, 1)
        for repeat in (0, 1)
    ]
    examples = {item(draw, shots=2).prologue for draw in draws}
    assert len(examples) == 1
    (text,) = examples
    assert text.endswith(
        "Answer: " + ", ".join(solution(text)) + "\n\nNow the text that is asked about:\n"
    )
    assert text.count("An example of a text:") == text.count("Which variables") == 2
    assert text != item(Draw(CELL, 1, 3), shots=2).prologue
    assert item(shots=0) == item()
    assert not item().prologue


def solution(text: str) -> list[str]:
    """What a reader of the last example answers, in the order of its lines."""
    example = text.split("An example of a text:\n")[-1]
    value = re.search(r"the value (\d+)", example)
    assert value
    reached = [value[1]]
    for name, source in re.findall(r"Let (\w+) = (\w+)\.", example):
        reached += [name] * (source in reached)
    return reached[1:]


@pytest.mark.parametrize("language", ["english", "chinese"])
def test_nothing_in_an_example_is_in_the_item(language):
    """Else a variable would have two values, or an answer could be copied from the example."""
    for repeat in range(200):
        made = item(Draw(CELL, repeat), shots=3, chains=4, digits=3, language=language)
        said, held = made.prologue, "".join(needle.text for needle in made.needles)
        words = re.compile(r"[A-Z]{3}\d\d|\b\d{3}\b", re.ASCII)
        assert not set(words.findall(said)) & set(words.findall(held + made.question))
        assert len(re.findall("= ", said)) == 15


def test_an_example_neither_says_how_many_variables_there_are_nor_pays_who_copies_it():
    short, long = item(shots=1, hops=2), item(shots=1, hops=9)
    assert len(solution(short.prologue)) == len(solution(long.prologue)) == 3
    copied = asyncio.run(F1().score(", ".join(solution(long.prologue)), long.reference))
    assert (copied.share, len(copied.why["wrong"])) == (0, 3)
    both = ", ".join([*long.reference.keywords, *solution(long.prologue)])
    assert asyncio.run(F1().score(both, long.reference)).why["precision"] == pytest.approx(10 / 13)


def test_a_preset_with_its_example_is_as_long_as_asked_and_reachable_without():
    given = {"lengths": [1000], "depths": [0, 50, 100], "repeats": 2, "model": "baseline/bm25"}
    for shots in (1, 0):
        settings = configure("ruler-vt", given | ({} if shots else {"task_options": {"shots": 0}}))
        for trial in prepare(settings).trials:
            assert trial.prompt.tokens == 1000 - 64
            assert ("An example of a text:" in trial.prompt.messages[-1].content) == bool(shots)


def test_repeats_of_one_noise_share_as_much_with_an_example_as_without():
    asked = {"lengths": [1000], "depths": [0, 50, 100], "repeats": 4, "model": "baseline/bm25"}
    shared = []
    for shots in (0, 1):
        prompts = [
            trial.prompt
            for trial in prepare(
                configure("ruler-vt", asked | {"task_options": {"shots": shots}})
            ).trials
        ]
        shared.append(sum(reused([prompts[place] for place in walk_order(prompts)])))
    assert shared[1] > shared[0]


def test_noise_or_prose_and_two_languages():
    assert Trace().background(0, 0) is None
    assert Trace(haystack="repeat").background(0, 0) == Trace(haystack="repeat").background(1, 5)
    made = item(language="chinese")
    assert made.needles[0].text.startswith("设 ")
    assert made.question.startswith("哪些变量的值是")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"chains": 0}, "'chains' of Trace must be at least 1"),
        ({"shots": -1}, "'shots' of Trace must be at least 0"),
        ({"span": 0}, "'span' of Trace must be above 0 and at most 100, got 0"),
        ({"order": "sideways"}, "Option 'order' of Trace"),
        ({"hobs": 3}, r"Unknown option 'hobs' of Trace. Did you mean 'hops'\?"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, words):
    with pytest.raises(SettingsError, match=words):
        Trace(**options)
