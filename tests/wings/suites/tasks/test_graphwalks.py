"""Walks through graphs: a search finds the right nodes at 4k and 128k tokens, a guess finds them by
chance, and a search that is a little wrong is not right."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import islice
from statistics import mean
from typing import Any

import pytest

from needlemap.errors import SettingsError
from needlemap.grid import Cell
from needlemap.settings.reading import configure
from needlemap.suites.graphwalks import Graph, GraphWalks
from needlemap.suites.sets import Set
from needlemap.tasks import Draw, Item
from needlemap.tasks.values import Values
from needlemap.trials import Trial
from needlemap.trials.build import Experiment, prepare

Edges = list[tuple[str, str]]
LENGTHS = {"4k": 4096, "128k": 131_072}
SIZES = ["4k", "128k"]
ASKED: dict[str, dict[str, Any]] = {
    "one step": {"steps": 1},
    "two steps": {},
    "six steps": {"steps": 6},
    "parents": {"ask": "parents"},
}
every_case = pytest.mark.parametrize("case", ASKED)


@cache
def made(case: str, language: str, size: str) -> Experiment:
    grid = {"lengths": [LENGTHS[size]], "depths": "0:100:5", "repeats": 3, "max_answer_tokens": 64}
    options = {"task": "graphwalks", "task_options": ASKED[case], "language": language}
    return prepare(configure(None, grid | options))


def edges_of(trial: Trial) -> Edges:
    return re.findall(r"^(\S+) -> (\S+)$", trial.prompt.context_text, re.MULTILINE)


def walk(edges: Edges, start: str, steps: int) -> list[set[str]]:
    """The nodes of each depth of a breadth-first search."""
    levels, reached = [{start}], {start}
    for _ in range(steps):
        levels.append({end for begin, end in edges if begin in levels[-1]} - reached)
        reached |= levels[-1]
    return levels


def asked_of(trial: Trial, case: str) -> tuple[Edges, str, int]:
    """Edges as a search goes along them, the asked node, and how many steps are asked for."""
    found = re.search(r"(?:node|节点) ([0-9a-f]{8})", trial.item.question)
    assert found
    edges = edges_of(trial)
    if case == "parents":
        return [edge[::-1] for edge in edges], found[1], 1
    depth = re.search(r"(?:depth|深度是) (\d+)", trial.item.question)
    assert depth
    return edges, found[1], int(depth[1])


def score(experiment: Experiment, trial: Trial, names: list[str]) -> float:
    text = f"{trial.item.answer_prefix}{', '.join(names)}]"
    return asyncio.run(experiment.scorer.score(text, trial.item.reference)).share


MISTAKES: dict[str, Callable[[Edges, str, int], set[str]]] = {
    "one step too few": lambda edges, start, steps: walk(edges, start, steps)[-2],
    "one step too many": lambda edges, start, steps: walk(edges, start, steps + 1)[-1],
    "against the edges": lambda edges, start, steps: walk(
        [edge[::-1] for edge in edges], start, steps
    )[-1],
    "all within the depth": lambda edges, start, steps: set().union(*walk(edges, start, steps)[1:]),
    "again through nodes reached before": lambda edges, start, steps: walked(edges, start, steps),
}


def walked(edges: Edges, start: str, steps: int) -> set[str]:
    """What a walk reaches that does not leave out what it has seen."""
    level = {start}
    for _ in range(steps):
        level = {end for begin, end in edges if begin in level}
    return level


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_search_with_a_mistake_loses(mistake):
    experiment = made("two steps", "english", "4k")
    scores = [
        score(experiment, trial, sorted(MISTAKES[mistake](*asked_of(trial, "two steps"))))
        for trial in experiment.trials
    ]
    assert mean(scores) < 0.95


@every_case
@pytest.mark.parametrize("size", SIZES)
def test_a_prompt_is_at_most_one_edge_shorter_than_asked(case, size):
    for trial in made(case, "english", size).trials:
        assert 0 <= LENGTHS[size] - 64 - trial.prompt.tokens <= 20


def test_nodes_that_are_asked_for_have_about_as_many_edges_as_others():
    """So that counting edges is no way around the search."""
    wanted, others = [], []
    for trial in made("two steps", "english", "4k").trials:
        degree = Counter(node for edge in edges_of(trial) for node in edge)
        right = set(trial.item.reference.keywords)
        wanted += [degree[node] for node in right]
        others += [times for node, times in degree.items() if node not in right]
    assert 0.6 < mean(wanted) / mean(others) < 1.7


def item(depth: float = 0.3, **options: Any) -> Item:
    return GraphWalks(**options).item(Draw(Cell(4000, depth), 1, 2))


def test_the_asked_node_is_fresh_at_each_depth_and_the_levels_behind_it_stay():
    rows = [item(depth / 10) for depth in range(11)]
    assert len({made.question for made in rows}) == 11
    assert len({made.reference.keywords for made in rows}) == 1
    once = [item(depth / 10, fresh="length") for depth in range(11)]
    assert len({made.question for made in once}) == 1


def test_a_graph_has_two_edges_a_node_wherever_it_is_cut():
    graph = Graph(Values("uuid", 8), "0:0")
    for count in (100, 1000, 10_000):
        edges = list(islice(graph.edges(), count))
        nodes = {node for edge in edges for node in edge}
        assert len(set(edges)) == count
        assert 1.4 < count / len(nodes) < 2.2
        assert not [start for start, end in edges if start == end]


def test_an_answer_that_cannot_be_read_is_named_as_such():
    reference = item().reference
    for answer in ("", "I cannot say.", "Final answer: [", reference.question, "I saw [a] there."):
        score = asyncio.run(Set().score(answer, reference))
        assert (score.share, score.unreadable, score.why["said"]) == (0, True, None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ask": "parents", "steps": 2}, "Option 'steps' is for ask=bfs"),
        ({"steps": 0}, "'steps' of GraphWalks: .* greater than or equal to 1, got 0"),
        ({"width": 1}, "'width' of GraphWalks must be at least 2"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, words):
    with pytest.raises(SettingsError, match=words):
        GraphWalks(**options)
