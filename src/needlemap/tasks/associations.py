"""Facts whose needle and question share no content word: common knowledge links the two.

All are our own, in `data/latent-*.yaml`, in English and Chinese. A fact leads from its anchor, which stands
in the needle, one or two steps to its target, which stands in the question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from needlemap.files import read_yaml

ORDERS = ("direct", "inverted")  # whether the name or the anchor comes first


@dataclass(frozen=True, slots=True)
class Association:
    """One fact, asked for over so many hops.

    needles: by order, with {name}. watch: texts that would let a haystack answer the question too: every step
    from the anchor on, whichever is asked for.
    """

    relation: str
    hops: int
    anchor: str
    target: str
    needles: Mapping[str, str]
    question: str
    watch: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Knowledge:
    """A language's people, and all facts about them."""

    names: tuple[str, ...]
    associations: tuple[Association, ...]

    def asked_over(self, hops: int) -> tuple[Association, ...]:
        """Those over so many hops; all for 0."""
        return tuple(each for each in self.associations if hops in (0, each.hops))


def with_so_many(facts: Sequence[Association], anchors: int) -> tuple[Association, ...]:
    """Those whose relation has so many different anchors."""
    known: dict[str, set[str]] = {each.relation: set() for each in facts}
    for each in facts:
        known[each.relation].add(each.anchor)
    return tuple(each for each in facts if len(known[each.relation]) >= anchors)


@cache
def knowledge(language: str) -> Knowledge:
    """That of a language, 'english' or 'chinese', read once."""
    text = files("needlemap.tasks").joinpath("data", f"latent-{language}.yaml").read_text("utf-8")
    read: dict[str, Any] = read_yaml(text)
    found = [
        each for name, row in read["relations"].items() for each in _relation(name, row, read["through"])
    ]
    return Knowledge(tuple(read["names"]), tuple(found))


def _relation(name: str, row: Mapping[str, Any], through: Mapping[str, str]) -> Iterator[Association]:
    """Its associations. through: by anchor, a step that no question names."""
    for anchor, *targets in row["facts"]:
        needles = {order: row[order].replace("{anchor}", anchor) for order in ORDERS}
        for hops, target in enumerate(targets, 1):
            if target is None:
                continue
            question = row[("one", "two")[hops - 1]].replace("{target}", target)
            steps = (anchor, *filter(None, targets), through.get(anchor))
            watch = tuple(row.get("watch", filter(None, steps)))
            yield Association(name, hops, anchor, target, needles, question, watch)
