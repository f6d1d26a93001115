"""A small world: who is where, who carries what, what is inside what; the last state holds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from math import sqrt
from random import Random
from typing import Any

import pytest

from needlemap.errors import SettingsError
from needlemap.grid import Cell
from needlemap.suites.facts import (
    Cast,
    Facts,
    Move,
    another,
    draw_cast,
    sentence,
    state,
    supporting,
)
from needlemap.suites.lexicon import lexicon
from needlemap.tasks import Draw, Item, holds_nothing

CAST = Cast(("Ada", "Eve"), ("barn", "hall"), ("coin", "ring"), ("tin", "jar"))


def item(depth: float = 0.3, repeat: int = 1, **options: Any) -> Item:
    return Facts(**options).item(Draw(Cell(4000, depth), repeat, 2))


def where(now: dict[str, str], what: str) -> str:
    """Where somebody or something is: where its box is, where its carrier is."""
    while what in now:
        what = now[what]
    return what


def test_a_thing_is_where_its_box_is_and_a_box_where_its_carrier_is():
    told = [Move("put", "coin", "tin"), Move("have", "tin", "Ada"), Move("go", "Ada", "barn")]
    assert where(state(told), "coin") == "barn"
    assert where(state([*told, Move("go", "Ada", "hall")]), "coin") == "hall"
    assert where(state([*told, Move("put", "coin", "jar")]), "coin") == "jar"


@pytest.mark.parametrize("support", [1, 2, 3])
def test_so_many_facts_lead_from_what_is_asked_to_the_place(support):
    told = Cast(
        CAST.people,
        CAST.places,
        CAST.things if support > 1 else (),
        CAST.boxes if support > 2 else (),
    )
    for seed in range(20):
        chain = supporting(Random(seed), told, [], support)
        assert [fact.kind for fact in chain] == ["put", "have", "go"][-support:]
        assert where(state(chain), chain[0].subject) == chain[-1].to
        for left_out in chain:
            rest = [fact for fact in chain if fact is not left_out]
            assert where(state(rest), chain[0].subject) != chain[-1].to


def test_nothing_that_is_settled_changes_and_everything_said_changes_something():
    said: list[Move] = [Move("go", "Ada", "barn")]
    for seed in range(200):
        now, barred = state(said), {"Eve": "hall"}
        fact = another(Random(seed).random(), CAST.possible(), now, settled=["Ada"], barred=barred)
        assert fact.subject != "Ada"
        assert fact != Move("go", "Eve", "hall")
        assert state(said).get(fact.subject) != fact.to
        said.append(fact)


@pytest.mark.parametrize("support", [1, 2, 3])
@pytest.mark.parametrize("depth", [0.0, 0.4, 1.0])
def test_the_first_supporting_fact_stands_at_the_cells_depth_and_the_others_behind_it(
    support, depth
):
    made = item(depth, support=support, places=4)
    texts = made.reference.needle.split("\n")
    behind = made.needles[: support + 3]
    assert [needle.text for needle in behind if needle.text in texts] == texts
    assert (behind[0].text, behind[0].depth) == (texts[0], depth)
    assert [needle.depth for needle in behind] == sorted(needle.depth for needle in behind)
    assert len(texts) == support
    assert len(made.needles) == support + 3 + 12


def walks(made: Item) -> list[str]:
    """The places to which people go, as the text has them."""
    said = "\n".join(
        needle.text for needle in sorted(made.needles, key=lambda needle: needle.depth)
    )
    pattern = r"(?:went|walked over|moved on|is) (?:to|in) the (\w+)(?: now)?\.$"
    return re.findall(r"in the (\w+)", made.prologue) + re.findall(pattern, said, re.MULTILINE)


@pytest.mark.parametrize("support", [1, 2, 3])
def test_from_the_first_supporting_fact_on_each_place_is_named_once_by_chain_and_walks(support):
    for repeat in range(30):
        made = item(1.0, repeat, support=support, facts=0)
        places = walks(made)[5:]
        assert len(set(places)) == len(places) == 6
        assert made.reference.answer in places


SHORTCUTS: dict[str, Callable[[list[str], Random], str]] = {
    "named last": lambda places, _: places[-1],
    "named last but one": lambda places, _: places[-2],
    "named first": lambda places, _: places[0],
    "named most": lambda places, random: often(places, random, max),
    "named least": lambda places, random: often(places, random, min),
    "any of the last six": lambda places, random: random.choice(places[-6:]),
    "any": lambda places, random: random.choice(sorted(set(places))),
}


def often(places: list[str], random: Random, which: Callable[..., int]) -> str:
    counted = Counter(places)
    times = which(counted.values())
    return random.choice([place for place in counted if counted[place] == times])


@cache
def read(support: int, depth: float) -> list[tuple[list[str], str]]:
    """Places named, and the right one."""
    made = [item(depth, repeat, support=support) for repeat in range(READ)]
    known = set(lexicon("world", "english")["places"])
    return [
        ([place for place in walks(one) if place in known], one.reference.answer) for one in made
    ]


READ = 250  # items for each guess


@pytest.mark.parametrize("shortcut", SHORTCUTS)
@pytest.mark.parametrize("support", [1, 2, 3])
@pytest.mark.parametrize("depth", [0.0, 0.5, 0.9, 1.0])
def test_no_place_is_a_better_guess_than_another(depth, support, shortcut):
    """The place named last was always right at depth 100, as what decides stood at the end.

    At depth 0 that named first was, before the text began with where people are.
    """
    random, chance = Random(shortcut), 1 / 6
    hits = sum(
        SHORTCUTS[shortcut](places, random) == right for places, right in read(support, depth)
    )
    assert hits / READ <= chance + 3.5 * sqrt(chance * (1 - chance) / READ)


def test_two_people_are_enough_to_mislead():
    for repeat in range(40):
        made = item(0.5, repeat, people=2, places=2, support=3)
        assert len(made.needles) == 3 + 1 + 12


def test_the_deciding_facts_are_said_once_however_often_their_people_move():
    for repeat in range(30):
        made = item(0.8, repeat, support=2, facts=25)
        texts = [needle.text for needle in made.needles]
        assert [texts.count(text) for text in made.reference.needle.split("\n")] == [1, 1]


def test_earlier_states_of_what_is_asked_occur_and_are_superseded():
    def named_before(repeat: int) -> bool:
        made = item(0.9, repeat, support=1)
        who = made.question.removeprefix("Where is ").partition(" at the end")[0]
        return any(who in needle.text for needle in made.needles[1:])

    assert sum(named_before(repeat) for repeat in range(40)) > 25


def test_what_stands_before_the_first_supporting_fact_is_the_same_at_all_depths_of_a_length():
    rows = [item(depth).needles for depth in (0.4, 0.8)]
    before = [[needle for needle in row if needle.depth < 0.4] for row in rows]
    assert before[0] == before[1]
    assert len(before[0]) > 2


def test_all_places_are_as_likely():
    """So chance is one in as many as there are."""
    found = Counter(
        item(repeat=repeat, places=4, fresh="trial").reference.answer for repeat in range(600)
    )
    assert len(found) == len(lexicon("world", "english")["places"])  # other four in every repeat
    assert max(found.values()) < 3 * min(found.values())


def test_labels_are_all_places_of_the_world_and_the_question_names_none():
    made = item()
    labels = {made.reference.answer, *made.reference.decoys}
    assert labels == set(lexicon("world", "english")["places"])
    assert not [label for label in labels if label in made.question + made.answer_prefix]


@pytest.mark.parametrize("language", ["english", "chinese"])
def test_no_word_of_the_world_is_part_of_another(language):
    words = lexicon("world", language)
    for kind in ("places", "things", "boxes"):
        assert len(set(words[kind])) == len(words[kind])
        assert not [
            (one, two) for one in words[kind] for two in words[kind] if one != two and one in two
        ]


def test_names_that_the_haystack_holds_are_drawn_again():
    size = {"people": 2, "places": 2, "things": 2, "boxes": 2}
    plain = draw_cast(Random(1), "english", size, holds_nothing)
    taken = {plain.people[0], plain.things[0]}
    other = draw_cast(Random(1), "english", size, lambda text: text in taken)
    assert not taken & {*other.people, *other.things}


def test_every_wording_says_who_and_where():
    for language in ("english", "chinese"):
        for kind, fact in (
            ("go", Move("go", "A", "B")),
            ("have", Move("have", "A", "B")),
            ("put", Move("put", "A", "B")),
        ):
            said = {sentence(seed / 60, fact, language) for seed in range(60)}
            assert len(said) == len(lexicon("world", language)[kind])
            assert all("A" in text and "B" in text for text in said)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"support": 4}, "Option 'support' of Facts"),
        ({"places": 1}, "'places' of Facts must be at least 2"),
        ({"places": 21}, "'places' of facts must be 2 to 20, got 21"),
        ({"people": 1}, "'people' of Facts must be at least 2"),
        ({"span": 101}, "'span' of Facts must be above 0 and at most 100"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, words):
    with pytest.raises(SettingsError, match=words):
        Facts(**options)
