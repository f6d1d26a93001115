"""Needles that must be understood to be found.

Latent: the question shares no content word with the needle. After the idea of NoLiMa (Modarressi et
al. 2025, arXiv 2502.05167); all facts, names and wording are our own, in `data/latent.yaml`, in
English and Chinese. A fact leads from its anchor, which stands in the needle, one or two steps to
its target, which stands in the question: common knowledge links the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from random import Random
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from needlemap.errors import SettingsError
from needlemap.suites.lexicon import lexicon
from needlemap.tasks import Draw, Item, Language, Reference, Scope, Task, hidden
from needlemap.tasks.absence import Absence
from needlemap.tasks.values import TRIES, fresh, wording
from needlemap.text import any_of

APART = 0.2  # of the haystack, at least, between the asked needle and a distractor
_MOVED = 0.05  # more, as both go to the end of a sentence, and a plan may move the asked one
ORDERS = ("direct", "inverted")  # whether the name or the anchor comes first


@dataclass(kw_only=True, eq=False)
class Latent(Task):
    """A fact about somebody; who it is, is asked for in words that share nothing with it.

    hops: how many steps of common knowledge lead from the needle to the question, 1 or 2; 0:
    either. order:
    whether the name ('direct') or the fact ('inverted') comes first in the needle. distractors:
    facts of the same kind about other people, at least a fifth of the haystack away. fresh: how
    often the fact is drawn:
    'trial': for each depth of a repeat, so that all lengths ask the same, each of another person;
    'length',
    'repeat': as for `magic`. absent, near: as for `magic`.
    """

    name = "latent"
    scorer = "only"

    hops: Literal[0, 1, 2] = 0
    order: Literal["direct", "inverted", "both"] = "both"
    distractors: Annotated[int, Ge(0), Le(4)] = 0
    fresh: Scope = "trial"
    absent: float = 0.0
    near: float = 0.5
    language: Language = "english"

    def __post_init__(self) -> None:
        known, most = (
            knowledge(self.language),
            self.distractors + 2,
        )  # anchors in a prompt and its question
        self._people, self._facts = known.names, with_so_many(known.asked_over(self.hops), most)
        self._orders = ORDERS if self.order == "both" else (self.order,)
        self._absence = Absence(self.absent, self.near, self.language)
        self._wording = wording("latent", self.language)

    def item(self, draw: Draw) -> Item:
        """Return the fact at the cell's depth, the distractors elsewhere, and the question."""
        # The order of the draws fixes all prompts: the fact, its wording, then the distractors.
        random = self._random(draw)
        fact = _quiet(self._facts, random, draw)
        order = random.choice(self._orders)
        facts = [fact, *self._others(fact, random, draw)]
        names = self._names(draw, len(facts))
        texts = [
            hidden_fact.needles[order].replace("{name}", name)
            for hidden_fact, name in zip(facts, names, strict=True)
        ]
        needles = hidden(texts, self._depths(draw))
        prefix = self._absence.prefix(self._wording["begun"])

        kind = self._absence.draw_kind(draw)
        asked = fact
        if kind != "present":
            asked = self._missed(facts, draw, same=kind == "near")
        question = self._absence.question(asked.question + self._wording["alone"])
        if kind != "present":
            reference = self._absence.unanswered(question, tuple(names), any_of(self._people))
            return Item(needles, question, reference, answer_prefix=prefix, unique=(*texts, *names))
        name = names[0]
        reference = Reference(
            answer=name,
            keywords=(name,),
            needle=texts[0],
            question=question,
            decoys=tuple(person for person in self._people if person != name),
            none=self._absence.none,
        )
        return Item(needles, question, reference, answer_prefix=prefix)

    def _random(self, draw: Draw) -> Random:
        """Return the random numbers from which the fact is drawn."""
        if self.fresh == "trial":
            return draw.random(f"latent {draw.cell.depth!r}", "repeat")
        return draw.random("latent", self.fresh)

    def _others(self, fact: Association, random: Random, draw: Draw) -> list[Association]:
        """Return distractors: facts of the same kind with anchors of their own."""
        alike = [other for other in self._facts if other.relation == fact.relation]
        distractors = list[Association]()
        anchors = {fact.anchor}
        while len(distractors) < self.distractors:
            others = [other for other in alike if other.anchor not in anchors]
            distractor = _quiet(others, random, draw)
            distractors.append(distractor)
            anchors.add(distractor.anchor)
        return distractors

    def _names(self, draw: Draw, count: int) -> list[str]:
        """Return people that the haystack does not name.

        Raises SettingsError if there are too few.
        """
        gone = (
            "The haystack holds nearly all names of task 'latent'. Use another --haystack or "
            "shorter lengths."
        )
        anybody = partial(draw.random("latent names", self.fresh).choice, self._people)
        taken = set[str]()
        return [fresh(anybody, taken, draw.holds, gone) for _ in range(count)]

    def _depths(self, draw: Draw) -> list[float]:
        """Return the cell's depth, and far from it those of the distractors.

        They are the same at most depths of a length.
        """
        beside, depths = draw.random("latent beside", "length"), [draw.cell.depth]
        while len(depths) <= self.distractors:
            depth = beside.random()
            if abs(depth - draw.cell.depth) >= APART + _MOVED:
                depths.append(depth)
        return depths

    def _missed(self, facts: list[Association], draw: Draw, *, same: bool) -> Association:
        """Return a fact that is not hidden.

        same: whether it is of the same kind as the one that is.
        """
        anchors, relation = {fact.anchor for fact in facts}, facts[0].relation
        others = [
            other
            for other in self._facts
            if (other.relation == relation) == same and other.anchor not in anchors
        ]
        return _quiet(others, draw.random("latent missed"), draw)


def _quiet(facts: Sequence[Association], random: Random, draw: Draw) -> Association:
    """A fact about which the haystack says nothing. Raises SettingsError when there is
    none."""
    for _ in range(TRIES):
        fact = random.choice(facts)
        if not any(map(draw.holds, fact.watch)):
            return fact
    raise SettingsError(
        "The haystack has something to say about every fact of task 'latent', so it might answer "
        "too. Use "
        "another --haystack, shorter --lengths or fewer distractors."
    )


@dataclass(frozen=True, slots=True)
class Association:
    """One fact, asked for over so many hops.

    needles: by order, with {name}. watch: texts that would let a haystack answer the question too:
    every step from the anchor on, whichever is asked for.
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
def knowledge(language: Language) -> Knowledge:
    """That of a language, read once."""
    read = lexicon("latent", language)
    found = [
        each
        for name, row in read["relations"].items()
        for each in _relation(name, row, read["through"])
    ]
    return Knowledge(tuple(read["names"]), tuple(found))


def _relation(
    name: str, row: Mapping[str, Any], through: Mapping[str, str]
) -> Iterator[Association]:
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
