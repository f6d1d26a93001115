"""Walks through a graph: the nodes that a breadth-first search reaches at a depth, or a node's
parents (after OpenAI's GraphWalks, huggingface.co/datasets/openai/graphwalks; wording is our own).

    3f2a91c0 -> 77d1be42
    77d1be42 -> 0c9e13fa     from 3f2a91c0 at depth 2: [0c9e13fa]

A graph is a list of edges, one a line, that fills the length; a prompt is up to one edge shorter.
The graph grows: each edge joins two nodes, of which one in four is new, so nodes have four edges on
average wherever the list is cut. What is asked about is hidden in it as edges of its own: levels of
nodes behind the asked one, joined by more edges than a tree has, some of them backwards. Edges from
the rest of the graph lead into these levels and out of the last, and never shorten a way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise
from random import Random
from typing import Annotated, Literal

from annotated_types import Ge

from needlemap.errors import SettingsError
from needlemap.haystacks import Stream
from needlemap.suites.lexicon import lexicon
from needlemap.tasks import (
    Background,
    Draw,
    Item,
    Language,
    OneOrMore,
    Reference,
    Scope,
    Task,
    following,
    holds_nothing,
    scattered,
)
from needlemap.tasks.key_values import UuidDigits
from needlemap.tasks.values import Values

_NEW = 0.25  # of an edge's ends that are new nodes: nodes have 1 / _NEW edges on average
_STEPS = 2  # of a search where none are given
_OUTSIDE = 32  # of the graph's first nodes, which edges of the asked part lead from and to
Edge = tuple[str, str]


@dataclass(kw_only=True, eq=False)
class GraphWalks(Task):
    """Directed edges, one a line; the nodes at a depth of a search, or a node's parents, are asked.

    ask: 'bfs', what a breadth-first search from a node reaches over `steps` edges and no fewer; or
    'parents', whose edges lead to a node. steps: of the search, 2 by default. width: nodes of a
    level at most, at least 2 each. uuid_digits: size of nodes' names. fresh: how often the asked
    node is drawn, as for `magic`; the levels behind it are drawn for each length at most.
    """

    name = "graphwalks"
    scorer = "set"

    ask: Literal["bfs", "parents"] = "bfs"
    steps: OneOrMore | None = None
    width: Annotated[int, Ge(2)] = 5
    uuid_digits: UuidDigits = 8
    fresh: Scope = "trial"
    language: Language = "english"

    def __post_init__(self) -> None:
        if self.ask == "parents" and self.steps is not None:
            raise SettingsError("Option 'steps' is for ask=bfs: parents are one step away.")
        self._values = Values("uuid", self.uuid_digits)
        self._words = lexicon("graphwalks", self.language)
        self._steps = 1 if self.ask == "parents" else self.steps or _STEPS

    def background(self, repeat: int, seed: int) -> Background:
        """The rest of the graph."""
        return Background(Graph(self._values, f"{seed}:{repeat}"))

    def item(self, draw: Draw) -> Item:
        """The asked node's first edge at the cell's depth, its others behind it; edges of the
        levels behind it stand anywhere, the same at all depths of a length."""
        beside, own = draw.beside("graphwalks beside", self.fresh), draw.random("graph", self.fresh)
        outside = _first_nodes(self._values, f"{draw.seed}:{draw.repeat}")
        taken = set(outside)
        levels = [
            [
                self._values.fresh(beside, taken, draw.holds)
                for _ in range(beside.randint(2, self.width))
            ]
            for _ in range(self._steps + 1)
        ]
        rest = scattered(beside, self._lines(_between(beside, levels, outside)))
        asked = self._values.fresh(own, taken, draw.holds)
        edges = [*((asked, node) for node in levels[0]), (own.choice(levels[1]), asked)]
        needles = following(own, self._lines(edges), draw.cell.depth, 1.0) + rest
        wanted = tuple(sorted(levels[self._steps - 1]))
        question = self._words[self.ask].format(node=asked, steps=self._steps)
        return Item(
            tuple(needles),
            question,
            Reference(f"[{', '.join(wanted)}]", wanted, question=question),
            answer_prefix=self._words["begun"],
            unique=(asked, *(node for level in levels for node in level)),
        )

    def _lines(self, edges: list[Edge]) -> list[str]:
        """Edges as the text has them. A search goes along them, parents are found against
        them."""
        return [line(*(edge if self.ask == "bfs" else edge[::-1])) for edge in edges]


def line(start: str, end: str) -> str:
    """An edge as the text has it.

    >>> line("a", "b")
    'a -> b\\n'
    """
    return f"{start} -> {end}\n"


def _between(random: Random, levels: list[list[str]], outside: list[str]) -> list[Edge]:
    """Edges of some levels in any order: one to each node from the level before, but for the
    first level's; as many again that go one level further at most; one from outside to every
    other node, and one from each node of the last level to the outside."""
    edges = dict[Edge, None]()
    for above, level in pairwise(levels):
        edges |= dict.fromkeys((random.choice(above), node) for node in level)
    nodes = [(place, node) for place, level in enumerate(levels) for node in level]
    for place, node in nodes:
        reached = [other for at, other in nodes if at <= place + 1 and other != node]
        edges[node, random.choice(reached)] = None
    entered = random.sample([node for _, node in nodes], len(nodes) // 2)
    edges |= dict.fromkeys((random.choice(outside), node) for node in entered)
    edges |= dict.fromkeys((node, random.choice(outside)) for node in levels[-1])
    return random.sample(list(edges), len(edges))


@dataclass(frozen=True, slots=True)
class Graph(Stream):
    """Edges of a graph that grows without end, each once. source: what fixes it, one a repeat."""

    values: Values
    source: str
    name: str = "graph"

    def pieces(self) -> Iterator[str]:
        """A line for each edge."""
        return (line(*edge) for edge in self.edges())

    def edges(self) -> Iterator[Edge]:
        """The edges. An end is a new node once in four times, and else any that there is."""
        random, taken = Random(f"graph:{self.source}"), set[str]()
        nodes, known = list[str](), set[Edge]()
        while True:
            ends = []
            for _ in range(2):
                if len(nodes) < 2 or random.random() < _NEW:
                    nodes.append(self.values.fresh(random, taken, holds_nothing))
                    ends.append(nodes[-1])
                else:
                    ends.append(nodes[int(random.random() * len(nodes))])
            edge = ends[0], ends[1]
            if ends[0] != ends[1] and edge not in known:
                known.add(edge)
                yield edge


@cache
def _first_nodes(values: Values, source: str) -> list[str]:
    """The first nodes of a graph."""
    edges = islice(Graph(values, source).edges(), 4 * _OUTSIDE)
    return list(dict.fromkeys(node for edge in edges for node in edge))[:_OUTSIDE]
