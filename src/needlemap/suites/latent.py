"""Hide needles that must be understood to be found.

Latent: the question shares no content word with the needle. The idea is NoLiMa's (Modarressi et al.
2025, arXiv 2502.05167). All facts, names and wording are our own, in `data/latent.yaml`, in English
and Chinese. A fact has an anchor, which stands in the needle, and a target, which stands in the
question. One or two steps of common knowledge lead from the anchor to the target.
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

# The least distance between the needle that is asked for and a distractor, as a share.
APART = 0.2
# Added to it, because both go to the end of a sentence, and a plan can move the first needle.
_MOVED = 0.05
# The name comes first, or the anchor.
ORDERS = ("direct", "inverted")


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
        language_knowledge = knowledge(self.language)
        self._people = language_knowledge.names
        # The anchors of the needles, and of a question about a fact that is not hidden.
        anchors = self.distractors + 2
        self._facts = with_anchors(language_knowledge.with_hops(self.hops), anchors)
        self._orders = ORDERS if self.order == "both" else (self.order,)
        self._absence = Absence(self.absent, self.near, self.language)
        self._wording = wording("latent", self.language)

    def item(self, draw: Draw) -> Item:
        """Return an item: a fact at the cell's depth, distractors elsewhere, and a question."""
        # The order of the draws fixes all prompts: the fact, its wording, then the distractors.
        random = self._fact_random(draw)
        fact = _unmentioned_fact(self._facts, random, draw)
        order = random.choice(self._orders)
        facts = [fact, *self._distractors(fact, random, draw)]
        names = self._names(draw, len(facts))
        texts = [
            hidden_fact.needles[order].replace("{name}", name)
            for hidden_fact, name in zip(facts, names, strict=True)
        ]
        needles = hidden(texts, self._depths(draw))
        prefix = self._absence.prefix(self._wording["begun"])

        kind = self._absence.draw_kind(draw)
        asked_fact = fact
        if kind != "present":
            asked_fact = self._absent_fact(facts, draw, same=kind == "near")
        question = self._absence.question(asked_fact.question + self._wording["alone"])
        if kind != "present":
            reference = self._absence.unanswered(question, tuple(names), any_of(self._people))
            return Item(
                needles,
                question,
                reference=reference,
                answer_prefix=prefix,
                unique=(*texts, *names),
            )

        name = names[0]
        reference = Reference(
            answer=name,
            keywords=(name,),
            needle=texts[0],
            question=question,
            decoys=tuple(person for person in self._people if person != name),
            none=self._absence.none,
        )
        return Item(needles, question, reference=reference, answer_prefix=prefix)

    def _fact_random(self, draw: Draw) -> Random:
        """Return the random numbers from which the fact is drawn.

        If a fact is drawn for each trial, all lengths of a depth share it.
        """
        if self.fresh == "trial":
            return draw.random(f"latent {draw.cell.depth!r}", "repeat")
        return draw.random("latent", self.fresh)

    def _distractors(self, fact: Association, random: Random, draw: Draw) -> list[Association]:
        """Return distractors: facts of the same kind with anchors of their own."""
        same_kind = [other for other in self._facts if other.relation == fact.relation]
        distractors = list[Association]()
        anchors = {fact.anchor}
        while len(distractors) < self.distractors:
            candidates = [other for other in same_kind if other.anchor not in anchors]
            distractor = _unmentioned_fact(candidates, random, draw)
            distractors.append(distractor)
            anchors.add(distractor.anchor)
        return distractors

    def _names(self, draw: Draw, count: int) -> list[str]:
        """Return people that the haystack does not name.

        Raise SettingsError if there are not enough of them.
        """
        gone = (
            "The haystack holds nearly all names of task 'latent'. Use another --haystack or "
            "shorter lengths."
        )
        anybody = partial(draw.random("latent names", self.fresh).choice, self._people)
        taken = set[str]()
        return [fresh(anybody, taken, draw.holds, gone) for _ in range(count)]

    def _depths(self, draw: Draw) -> list[float]:
        """Return the cell's depth and the distractors' depths, which are far from it.

        They are drawn for a length, so most depths of a length have the same distractors' depths.
        """
        random = draw.random("latent beside", "length")
        depths = [draw.cell.depth]
        while len(depths) <= self.distractors:
            depth = random.random()
            if abs(depth - draw.cell.depth) >= APART + _MOVED:
                depths.append(depth)
        return depths

    def _absent_fact(self, facts: list[Association], draw: Draw, *, same: bool) -> Association:
        """Return a fact that is not hidden.

        same: whether it is of the same kind as the hidden facts.
        """
        anchors = {fact.anchor for fact in facts}
        relation = facts[0].relation
        candidates = [
            fact
            for fact in self._facts
            if (fact.relation == relation) == same and fact.anchor not in anchors
        ]
        return _unmentioned_fact(candidates, draw.random("latent missed"), draw)


def _unmentioned_fact(facts: Sequence[Association], random: Random, draw: Draw) -> Association:
    """Return a fact about which the haystack says nothing.

    Raise SettingsError if the haystack says something about every fact that is drawn.
    """
    for _ in range(TRIES):
        fact = random.choice(facts)
        if not any(map(draw.holds, fact.watch)):
            return fact
    raise SettingsError(
        "The haystack has something to say about every fact of task 'latent', so it might answer "
        "too. Use another --haystack, shorter --lengths or fewer distractors."
    )


@dataclass(frozen=True, slots=True)
class Association:
    """One fact.

    Attributes:
        relation: The kind of fact.
        hops: The steps of common knowledge from anchor to target.
        anchor: What the needle says.
        target: What the question asks for.
        needles: By order, with {name}.
        question: About the target.
        watch: Texts that would let a haystack answer the question too: every step from the anchor
            on, whichever is asked for.
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
    """The people of a language, and all facts about them."""

    names: tuple[str, ...]
    associations: tuple[Association, ...]

    def with_hops(self, hops: int) -> tuple[Association, ...]:
        """Return the facts with this number of hops, or all for 0."""
        return tuple(fact for fact in self.associations if hops in (0, fact.hops))


def with_anchors(facts: Sequence[Association], least: int) -> tuple[Association, ...]:
    """Return the facts whose relation has at least so many different anchors."""
    anchors_by_relation: dict[str, set[str]] = {fact.relation: set() for fact in facts}
    for fact in facts:
        anchors_by_relation[fact.relation].add(fact.anchor)
    return tuple(fact for fact in facts if len(anchors_by_relation[fact.relation]) >= least)


@cache
def knowledge(language: Language) -> Knowledge:
    """Return the knowledge in a language, which is read once."""
    content = lexicon("latent", language)
    associations = list[Association]()
    for name, row in content["relations"].items():
        associations += _relation(name, row, through=content["through"])
    return Knowledge(tuple(content["names"]), tuple(associations))


def _relation(
    name: str, row: Mapping[str, Any], through: Mapping[str, str]
) -> Iterator[Association]:
    """Yield the associations of a relation. through: by anchor, a step that no question names."""
    for anchor, *targets in row["facts"]:
        needles = {order: row[order].replace("{anchor}", anchor) for order in ORDERS}
        steps = [anchor, *targets, through.get(anchor)]
        watch = row.get("watch", [step for step in steps if step])
        # The first target is one step away, the second two.
        questions = (row["one"], row["two"])
        for hops, (question, target) in enumerate(zip(questions, targets, strict=True), 1):
            if target is not None:
                yield Association(
                    name,
                    hops,
                    anchor=anchor,
                    target=target,
                    needles=needles,
                    question=question.replace("{target}", target),
                    watch=tuple(watch),
                )
