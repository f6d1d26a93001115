"""Ask for the nodes that a breadth-first search of a graph reaches at a depth, or a node's parents.

After OpenAI's GraphWalks, huggingface.co/datasets/openai/graphwalks; wording is our own.

    3f2a91c0 -> 77d1be42
    77d1be42 -> 0c9e13fa     from 3f2a91c0 at depth 2: [0c9e13fa]

A graph is a list of edges, one a line, that fills the length; a prompt is up to one edge shorter.
The graph grows: each edge joins two nodes, of which one in four is new, so nodes have four edges on
average wherever the list is cut. The asked part is hidden in it as edges of its own: levels of
nodes after the asked one, joined by more edges than a tree has, some of them backwards. Edges from
the rest of the graph lead into these levels and out of the last, and never make a way shorter.
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

# Share of the edges' ends that are new nodes. Nodes have 1 / _NEW edges on average.
_NEW = 0.25
# Steps of a search if none are given.
_STEPS = 2
# How many of the graph's first nodes may have edges to and from the asked part.
_OUTSIDE = 32
# Where it starts and where it ends.
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
        """Return the rest of the graph."""
        return Background(Graph(self._values, f"{seed}:{repeat}"))

    def item(self, draw: Draw) -> Item:
        """Return an item with the asked node's first edge at the cell's depth.

        Its other edges stand after it. Edges of the levels after it stand anywhere, the same at all
        depths of a length.
        """
        shared_random = draw.beside("graphwalks beside", self.fresh)
        asked_random = draw.random("graph", self.fresh)
        outside = _first_nodes(self._values, f"{draw.seed}:{draw.repeat}")
        taken = set(outside)
        levels = []
        for _ in range(self._steps + 1):
            width = shared_random.randint(2, self.width)
            levels.append(
                [self._values.fresh(shared_random, taken, holds=draw.holds) for _ in range(width)]
            )
        level_edges = _level_edges(shared_random, levels, outside=outside)
        level_needles = scattered(shared_random, self._lines(level_edges))

        asked_node = self._values.fresh(asked_random, taken, holds=draw.holds)
        asked_edges = [(asked_node, node) for node in levels[0]]
        asked_edges.append((asked_random.choice(levels[1]), asked_node))
        asked_needles = following(
            asked_random, self._lines(asked_edges), depth=draw.cell.depth, span=1.0
        )
        right_nodes = tuple(sorted(levels[self._steps - 1]))
        question = self._words[self.ask].format(node=asked_node, steps=self._steps)
        return Item(
            (*asked_needles, *level_needles),
            question,
            reference=Reference(f"[{', '.join(right_nodes)}]", right_nodes, question=question),
            answer_prefix=self._words["begun"],
            unique=(asked_node, *(node for level in levels for node in level)),
        )

    def _lines(self, edges: list[Edge]) -> list[str]:
        """Return edges as the text has them.

        A search follows edges from their start; parents are found from their end.
        """
        if self.ask == "parents":
            return [line(end, start) for start, end in edges]
        return [line(start, end) for start, end in edges]


def line(start: str, end: str) -> str:
    """Return an edge as the text has it.

    >>> line("a", "b")
    'a -> b\\n'
    """
    return f"{start} -> {end}\n"


def _level_edges(random: Random, levels: list[list[str]], outside: list[str]) -> list[Edge]:
    """Return the edges of some levels in any order.

    One leads to each node from the level before, except in the first level. As many again go one
    level further at most. One leads from outside to every other node, and one from each node of the
    last level to the outside.
    """
    # A dict and not a set, whose order is another one in each process.
    edges = dict[Edge, None]()
    for previous, level in pairwise(levels):
        for node in level:
            edges[random.choice(previous), node] = None

    nodes = [(number, node) for number, level in enumerate(levels) for node in level]
    for number, node in nodes:
        ends = [
            other for other_number, other in nodes if other_number <= number + 1 and other != node
        ]
        edges[node, random.choice(ends)] = None

    entry_nodes = random.sample([node for _, node in nodes], len(nodes) // 2)
    for node in entry_nodes:
        edges[random.choice(outside), node] = None
    for node in levels[-1]:
        edges[node, random.choice(outside)] = None
    return random.sample(list(edges), len(edges))


@dataclass(frozen=True, slots=True)
class Graph(Stream):
    """Edges of a graph that grows without end, each once.

    Attributes:
        values: The kind of the nodes' names.
        source: What fixes the graph, one a repeat.
    """

    values: Values
    source: str
    name: str = "graph"

    def pieces(self) -> Iterator[str]:
        """Yield a line for each edge."""
        for start, end in self.edges():
            yield line(start, end)

    def edges(self) -> Iterator[Edge]:
        """Yield the edges. One end in four is a new node, the others are any nodes before."""
        random = Random(f"graph:{self.source}")
        taken = set[str]()
        nodes: list[str] = []
        previous = set[Edge]()
        while True:
            ends = []
            for _ in range(2):
                if len(nodes) < 2 or random.random() < _NEW:
                    node = self.values.fresh(random, taken, holds=holds_nothing)
                    nodes.append(node)
                else:
                    node = nodes[int(random.random() * len(nodes))]
                ends.append(node)
            edge = (ends[0], ends[1])
            if ends[0] != ends[1] and edge not in previous:
                previous.add(edge)
                yield edge


@cache
def _first_nodes(values: Values, source: str) -> list[str]:
    """Return the first nodes of a graph."""
    edges = islice(Graph(values, source).edges(), 4 * _OUTSIDE)
    return list(dict.fromkeys(node for edge in edges for node in edge))[:_OUTSIDE]
