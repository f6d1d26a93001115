"""Where is it now? One to three facts about a small world, scattered among others, answer that together.

After BABILong (Kuratov et al. 2024, arXiv 2406.10149), with a world and words of our own. What was said last
of somebody or something holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Literal

from needlemap.errors import SettingsError
from needlemap.options import Checked
from needlemap.placement import Needle
from needlemap.scorers.base import Reference
from needlemap.tasks.base import Draw, Item, Scope
from needlemap.tasks.spread import anywhere, behind, share
from needlemap.tasks.world import Cast, Fact, cast, sentence, state, world

_THINGS = 3  # and as many boxes, where the question needs them


class Facts(metaclass=Checked):
    """Sentences about where people are, what they carry and what is inside what; one place is asked for.

    support: how many facts the answer takes: 1 (where somebody is), 2 (something that somebody carries) or 3
    (something in a box that somebody carries). facts: how many others there are. people, places: how many.
    span: over how much of the haystack, in percent, the supporting facts go on behind their first. fresh: how
    often the asked ones are drawn, as for `magic`; the others are drawn for each length at most.
    """

    name = "facts"
    scorer = "label"
    dial = (*({"support": support} for support in (1, 2, 3)), {"support": 3, "facts": 24, "people": 8})

    def __init__(
        self,
        *,
        support: Literal[1, 2, 3] = 2,
        facts: int = 12,
        people: int = 5,
        places: int = 6,
        span: float = 100.0,
        fresh: Scope = "trial",
        language: Literal["english", "chinese"] = "english",
    ) -> None:
        known = len(world(language)["places"])
        if facts < 0 or people < 2 or not 2 <= places <= known:
            raise SettingsError(
                f"Options of facts: facts are 0 or more, people 2 or more, places 2 to {known}."
            )
        self._support, self._facts, self._span = support, facts, share(span)
        self._size = {
            "people": people,
            "places": places,
            "things": _THINGS if support > 1 else 0,
            "boxes": _THINGS if support > 2 else 0,
        }
        self._fresh, self._language = fresh, language

    def item(self, draw: Draw) -> Item:
        """The supporting facts, the first of them at the cell's depth, then the others."""
        scope: Scope = "repeat" if self._fresh == "repeat" else "length"
        beside, own = draw.random("facts", scope), draw.random("facts asked", self._fresh)
        told = cast(beside, self._language, self._size, draw.holds)
        depths = behind(beside, draw.cell.depth, self._support, self._span)
        moments = [(moment, beside.random(), beside.random()) for moment in anywhere(beside, self._facts)]
        chain, shown, said = story(own, told, depths, [(moment, which) for moment, which, _ in moments])
        words = [sentence(own.random(), fact, self._language) for fact in shown]
        needles = [Needle(*both, still=n > 0) for n, both in enumerate(zip(words, depths, strict=True))]
        for (moment, _, how), fact in zip(moments, said, strict=True):
            needles.append(Needle(sentence(how, fact, self._language), moment, still=True))
        return self._asked(told, chain, tuple(needles), words)

    def _asked(self, told: Cast, chain: list[Fact], needles: tuple[Needle, ...], words: list[str]) -> Item:
        """The question about the first of a chain of facts, whose last says the place."""
        known, what, place = world(self._language), chain[0].subject, chain[-1].to
        role = "who" if chain[0].kind == "go" else "what"
        question, begun = (
            known[role].format_map({role: what}),
            known[f"{role}_begun"].format_map({role: what}),
        )
        decoys = tuple(other for other in known["places"] if other != place)
        reference = Reference(place, (place,), "\n".join(words), question, decoys)
        unique = (*told.people, *told.things, *told.boxes)
        return Item(needles, question, reference, answer_prefix=begun, unique=unique)


def story(
    random: Random, told: Cast, depths: Sequence[float], moments: Sequence[tuple[float, float]]
) -> tuple[list[Fact], list[Fact], list[Fact]]:
    """A chain of facts that answers a question, the same as the text has them, and what else is said.

    depths: where the facts of the chain stand. moments: where the others do, ascending, with a chance each
    that says which it is. The others before the chain do not depend on it.
    """
    possible, said, now = told.possible(), list[Fact](), dict[str, str]()
    early = sum(moment < depths[0] for moment, _ in moments)
    for _, chance in moments[:early]:
        tell(another(chance, possible, now), said, now)
    chain = supporting(random, possible, said, len(depths))
    shown = random.sample(chain, len(chain))
    for moment, chance in moments[early:]:
        settled = [fact.subject for fact, depth in zip(shown, depths, strict=True) if depth <= moment]
        tell(another(chance, possible, now, settled, state(chain)), said, now)
    return chain, shown, said


def another(
    chance: float,
    possible: Sequence[Fact],
    now: Mapping[str, str],
    settled: Sequence[str] = (),
    barred: Mapping[str, str] | None = None,
) -> Fact:
    """A fact that changes something of how things are, but nothing settled, and nothing into what is barred.

    chance: in [0, 1), which of those that are left.
    """
    never = barred or {}
    left = [
        fact
        for fact in possible
        if now.get(fact.subject) != fact.to != never.get(fact.subject) and fact.subject not in settled
    ]
    return left[int(chance * len(left))]


def tell(fact: Fact, said: list[Fact], now: dict[str, str]) -> None:
    """One more fact is said, and holds from now on."""
    said.append(fact)
    now[fact.subject] = fact.to


def supporting(random: Random, possible: Sequence[Fact], said: Sequence[Fact], support: int) -> list[Fact]:
    """Facts that lead from something to a place, none of them said before where that can be.

    The first's subject is asked for; each other one is about what the one before leads to.
    """
    chain: list[Fact] = []
    for kind in ("put", "have", "go")[-support:]:
        fitting = [
            fact for fact in possible if fact.kind == kind and (not chain or fact.subject == chain[-1].to)
        ]
        chain.append(random.choice([fact for fact in fitting if fact not in said] or fitting))
    return chain
