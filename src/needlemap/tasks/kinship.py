"""Ancestors to be traced from parent to parent, and descendants from child to child.

Facts are scattered in prose, lie among other families, or are all there is: `haystack=none` is dense, every
line of it is needed. After NeedleBench (Li et al. 2024, arXiv 2407.11963); people and wording are our own.
Everybody has one parent and one child in the text, so that answers are unique.
"""

from __future__ import annotations

from random import Random
from typing import Literal

from needlemap.errors import SettingsError
from needlemap.options import Checked
from needlemap.scorers.base import Reference
from needlemap.tasks.base import Background, Draw, Item, Scope, holds_nothing
from needlemap.tasks.lineage import Families, Lines, Link, kinship, line, links, sample_lines
from needlemap.tasks.people import Person
from needlemap.tasks.spread import Order, following, ordered, scattered, share

_MOST = 512  # facts of a line
_OTHERS = 32  # facts of another family's line where the asked one's fit the length
_FILLED, _FRAME = (
    0.9,
    150,
)  # of a length: what the line's facts fill, and tokens that are question and template


class Kinship(metaclass=Checked):
    """A line of descent, of which somebody's ancestor, descendant or distance to another is asked for.

    ask: the 'eldest' ancestor, an 'ancestor' or 'descendant' so many steps away, or the 'distance'. facts: of
    the line, 2 to 512; 'fit': as many as the length holds, with haystack=families. steps: how many the answer
    takes; by default drawn for each trial, from one to all. haystack: 'prose' (what the settings name),
    'families' (lines about other families) or 'none' (the line's facts alone, whatever the length). families:
    other ones, as long, among prose. order: in which the facts stand. span: over how much of the haystack, in
    percent, they go on behind the first. fresh: as for `magic`.
    """

    name = "kinship"
    scorer = "boxed"
    dial = tuple({"facts": facts} for facts in (2, 4, 8, 16, 32))

    def __init__(
        self,
        *,
        ask: Literal["eldest", "ancestor", "descendant", "distance"] = "eldest",
        facts: int | Literal["fit"] = 4,
        steps: int | None = None,
        haystack: Literal["prose", "families", "none"] = "prose",
        families: int = 1,
        order: Order = "random",
        span: float = 100.0,
        fresh: Scope = "trial",
        language: Literal["english", "chinese"] = "english",
    ) -> None:
        most = _MOST if facts == "fit" else facts
        _check(ask, most, steps, families)
        if facts == "fit" and haystack != "families":
            raise SettingsError("facts=fit fills a length with facts. Add --task-options haystack=families")
        self._facts = None if facts == "fit" else facts
        self._ask, self._steps, self._up = ask, steps, ask != "descendant"
        self._haystack, self._families = haystack, families if haystack == "prose" else 0
        self._order, self._span, self._fresh, self._language = order, share(span), fresh, language

    def background(self, repeat: int, seed: int) -> Background | None:
        """Lines of other families, or all of the asked line but its first fact; None for prose."""
        source = f"{seed}:{repeat}"
        if self._haystack == "families":
            return Background(Families(self._facts or _OTHERS, self._language, source), "line")
        if self._haystack == "none":
            random = Random(f"kinship lines:{source}")
            facts = [fact.said(random, self._language) for fact in links(self._rest(source), up=self._up)]
            return Background(Lines(tuple(ordered(random, facts, self._order))), "line")
        return None

    def item(self, draw: Draw) -> Item:
        """The facts of the asked line, the first in the text at the cell's depth, then those of others.

        Where they are all there is: the fact about whom the question starts from, at the cell's depth.
        """
        beside = draw.random("kinship beside", "repeat" if self._fresh == "repeat" else "length")
        own, taken, size = draw.random("kinship", self._fresh), set[str](), self._size(draw) + 1
        others = [line(beside, self._language, size, taken, draw.holds) for _ in range(self._families)]
        if self._haystack == "none":
            people = line(own, self._language, 1, taken, draw.holds)
            people += self._rest(f"{draw.seed}:{draw.repeat}")
            facts = links(people[:2], up=self._up)
        else:
            people = line(own, self._language, size, taken, draw.holds)
            facts = ordered(beside, links(people, up=self._up), self._order)
        texts = self._said(own, facts)
        needles = following(beside, texts, draw.cell.depth, self._span)
        for other in others:
            said = ordered(beside, self._said(beside, links(other, up=True)), self._order)
            needles += scattered(beside, said)
        question, answer = self._asked(own, people)
        return Item(
            tuple(needles),
            question,
            Reference(answer, (answer,), "\n".join(text.strip() for text in texts), question),
            answer_prefix=kinship(self._language)["begun"].format(),
            unique=(people[0].name,) if self._haystack == "none" else tuple(one.name for one in people),
        )

    def _size(self, draw: Draw) -> int:
        """How many facts the line has: as given, or as fill most of the length, the rest being other ones."""
        if self._facts is not None:
            return self._facts
        sample = sample_lines(self._language)
        share = _FILLED * (draw.room_tokens - _FRAME) / draw.tokens("".join(sample))
        fitting = max(2, min(_MOST, int(share * len(sample))))
        if self._steps is not None and self._steps > fitting:
            raise SettingsError(
                f"Length {draw.cell.length_tokens:,} has room for {fitting} facts, steps are {self._steps}. "
                f"Use longer --lengths, or fewer steps."
            )
        return fitting

    def _rest(self, source: str) -> list[Person]:
        """The line of a repeat without its first person, who is another one in each trial."""
        random, nobody = Random(f"kinship:{source}"), set[str]()
        return line(random, self._language, self._facts or _MOST, nobody, holds_nothing)

    def _said(self, random: Random, facts: list[Link]) -> list[str]:
        end = "" if self._haystack == "prose" else "\n"
        return [fact.said(random, self._language) + end for fact in facts]

    def _asked(self, random: Random, people: list[Person]) -> tuple[str, str]:
        """Question and answer about a line that starts from whom the question names."""
        most = len(people) - 1
        steps = most if self._ask == "eldest" else self._steps or random.randint(1, most)
        words, end = kinship(self._language), people[steps].name
        generations = words["generations"][steps > 1]
        question = words[self._ask].format(
            start=people[0].name, end=end, steps=steps, generations=generations
        )
        return question, str(steps) if self._ask == "distance" else end


def _check(ask: str, facts: int, steps: int | None, families: int) -> None:
    if not 2 <= facts <= _MOST or families < 0:
        raise SettingsError(
            f"Options of kinship: facts are 2 to {_MOST}, families 0 or more. Got facts={facts}, "
            f"families={families}."
        )
    if steps is not None and ask not in ("ancestor", "descendant"):
        raise SettingsError(f"Option 'steps' is for ask=ancestor and ask=descendant, not for ask={ask}.")
    if steps is not None and not 1 <= steps <= facts:
        raise SettingsError(f"Option 'steps' must be 1 to {facts}, as many as there are facts; got {steps}.")
