"""Keys with values: hidden one a sentence, or all in one JSON object; one of them is asked for, or
some.

One a sentence: RULER's needle tests (Hsieh et al. 2024, arXiv 2404.06654).

One key among the needles is always the one that the cell's depth is meant for. The wording is our
own.

A pass key in noise (Mohtashami and Jaggi 2023, arXiv 2305.16300) is a smoke test. The noise is so
uniform that the key is the one thing that stands out: it finds broken caches and positions, and
ranks no models. Number strings, with digits that stand twice, ask for exact copying too.

A JSON object of pairs (Liu et al. 2023, arXiv 2307.03172): nothing in it helps but the keys
themselves, no meaning, no wording, no odd one out. Its last pair is never the asked one, since it
alone lacks a comma.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Annotated, Literal

from annotated_types import Ge

from needlemap.errors import SettingsError
from needlemap.tasks import (
    Background,
    Draw,
    Item,
    Language,
    Needle,
    OneOrMore,
    Reference,
    Scope,
    Task,
    ZeroOrMore,
    hidden,
)
from needlemap.tasks.absence import Absence, one_edit
from needlemap.tasks.values import Kind, PairLines, Values, fresh, noise, solved, wording
from needlemap.text import but

UuidDigits = Annotated[int, Ge(4)]
_UUIDS = {"haystack": "needles", "key": "uuid", "value": "uuid"}


@dataclass(frozen=True, slots=True)
class Hidden:
    """A key, one of its values, and the depth that this needle is meant for."""

    key: str
    value: str
    depth: float


@dataclass(kw_only=True, eq=False)
class Magic(Task):
    """Keys with values, one a sentence, in noise, in prose or among their like; by default one of
    each.

    keys, each with so many values, of which queries are asked for, all values of them.
    haystack: 'prose' (what the settings name), 'repeat' (the same few sentences) or 'needles'
    (sentences like the needles, one a line, with other keys and values). digits: of numbers;
    uuid_digits: of UUIDs, hexadecimal. fresh: how often the asked key is drawn anew: for each
    trial, for each length of a repeat, or for each repeat; the keys beside it are drawn for each
    length at most, so that neighbouring depths share what comes before. absent: the share of trials
    whose question asks for keys that the text lacks, and of these near: those one edit away from
    keys that it has; see `latent.py`.
    """

    name = "magic"
    scorer = "recall"

    haystack: Literal["prose", "repeat", "needles"] = "prose"
    key: Kind = "word"
    value: Kind = "number"
    keys: OneOrMore = 1
    values: OneOrMore = 1
    queries: OneOrMore = 1
    digits: OneOrMore = 7
    uuid_digits: UuidDigits = 32
    fresh: Scope = "trial"
    absent: float = 0.0
    near: float = 0.5
    language: Language = "english"

    def __post_init__(self) -> None:
        if self.queries > self.keys:
            raise SettingsError(
                f"{self.queries} queries need as many keys, there are {self.keys}. "
                f"Add --task-options keys={self.queries}"
            )
        self._keys, self._values = (
            Values.sized(kind, self.digits, self.uuid_digits, self.language)
            for kind in (self.key, self.value)
        )
        self._absence = Absence(self.absent, self.near, self.language)
        if self.absent:
            self.scorer = "only"
        self._wording = wording("magic", self.language)
        several = self.values * self.queries > 1
        self._needle = self._naming("needle")
        self._question = self._naming("several" if several else "one")
        self._prefix = self._absence.prefix(self._naming("begun_several" if several else "begun"))

    def background(self, repeat: int, seed: int) -> Background | None:
        """Noise, or lines like the needles; None for prose."""
        if self.haystack == "repeat":
            return noise(self.language)
        if self.haystack == "needles":
            return Background(
                PairLines(self._needle, self._keys, self._values, f"{seed}:{repeat}", "needles")
            )
        return None

    def item(self, draw: Draw) -> Item:
        """The needles, that of the cell's depth first; all values of the asked keys are
        wanted."""
        pairs, meant = self._hidden(draw), self._absence.draw_kind(draw)
        asked = list(dict.fromkeys(one.key for one in pairs))[: self.queries]
        draw.random(f"{self.name} order", self.fresh).shuffle(asked)
        named = (
            asked
            if meant == "present"
            else self._elsewhere(asked, pairs, draw, near=meant == "near")
        )
        end = "\n" if self.haystack == "needles" else ""
        texts = [self._needle.format(key=one.key, value=one.value) + end for one in pairs]
        needles, keys = hidden(texts, [one.depth for one in pairs]), self._listed(named)
        question = self._absence.question(self._question.format(keys=keys))
        prefix = self._prefix.format(keys=keys)
        if meant == "present":
            reference = self._reference(asked, pairs, texts, question)
            return Item(needles, question, reference, answer_prefix=prefix)
        values, owners = tuple(one.value for one in pairs), tuple(one.key for one in pairs)
        reference = self._absence.unanswered(question, values, self._like(pairs), owners)
        unique = (*(text.strip() for text in texts), *values, *named)
        return Item(needles, question, reference, answer_prefix=prefix, unique=unique)

    def _naming(self, part: str) -> str:
        """A text in which the kind of value is named."""
        kind, kinds = self._wording["kinds"][self.value]
        text: str = self._wording[part]
        return text.replace("{kind}", kind).replace("{kinds}", kinds)

    def _listed(self, words: Sequence[str]) -> str:
        """Words as a sentence lists them: a, b and c."""
        comma, last = self._wording["comma"], self._wording["last"]
        return str(last.join(filter(None, [comma.join(words[:-1]), words[-1]])))

    def _reference(
        self, asked: list[str], pairs: list[Hidden], texts: list[str], question: str
    ) -> Reference:
        """All values of the asked keys."""
        wanted = tuple(one.value for key in asked for one in pairs if one.key == key)
        sought = "\n".join(
            text.strip() for text, one in zip(texts, pairs, strict=True) if one.key in asked
        )
        decoys = tuple(one.value for one in pairs if one.key not in asked)
        answer = self._listed(wanted)
        return Reference(answer, wanted, sought, question, decoys, none=self._absence.none)

    def _like(self, pairs: list[Hidden]) -> str:
        """What looks like a value and is none of the keys: to say which ones there are is to
        invent none."""
        like = self._values.like
        return but(like, [one.key for one in pairs]) if self._keys == self._values else like

    def _elsewhere(
        self, asked: list[str], pairs: list[Hidden], draw: Draw, *, near: bool
    ) -> list[str]:
        """Keys that are nowhere in the text instead of the asked ones: near to them, or quite
        others."""
        random = draw.random(f"{self.name} absent")
        taken = {text for one in pairs for text in (one.key, one.value)}
        if near:
            return [one_edit(key, self._keys, random, taken, draw.holds) for key in asked]
        return [self._keys.fresh(random, taken, draw.holds) for _ in asked]

    def _hidden(self, draw: Draw) -> list[Hidden]:
        """The asked key's values, the first at the cell's depth, then those of the other
        keys."""
        others, own = (
            draw.beside(f"{self.name} beside", self.fresh),
            draw.random(self.name, self.fresh),
        )
        taken: set[str] = set()
        depths = [others.random() for _ in range(self.keys * self.values - 1)]
        rest = [self._pairs(others, taken, draw) for _ in range(self.keys - 1)]
        pairs = [*self._pairs(own, taken, draw), *(pair for row in rest for pair in row)]
        return [
            Hidden(*pair, depth)
            for pair, depth in zip(pairs, [draw.cell.depth, *depths], strict=True)
        ]

    def _pairs(self, random: Random, taken: set[str], draw: Draw) -> list[tuple[str, str]]:
        """A fresh key with its fresh values."""
        key = self._keys.fresh(random, taken, draw.holds)
        return [(key, self._values.fresh(random, taken, draw.holds)) for _ in range(self.values)]


@dataclass(kw_only=True, eq=False)
class Multikey(Magic):
    """One key of four is asked for; the others stand in its way."""

    name = "multikey"
    keys: OneOrMore = 4


@dataclass(kw_only=True, eq=False)
class Multivalue(Magic):
    """One key has four values, and all are asked for."""

    name = "multivalue"
    values: OneOrMore = 4


@dataclass(kw_only=True, eq=False)
class Multiquery(Magic):
    """Four keys are hidden, and all are asked for."""

    name = "multiquery"
    keys: OneOrMore = 4
    queries: OneOrMore = 4


@dataclass(kw_only=True, eq=False)
class Passkey(Task):
    """A number hidden in noise: a smoke test.

    digits: of the key, of which `doubled` repeat the digit before them. fresh: as for `magic`.
    """

    name = "passkey"
    scorer = "first"

    digits: OneOrMore = 5
    doubled: ZeroOrMore = 0
    fresh: Scope = "trial"
    language: Language = "english"

    def __post_init__(self) -> None:
        if 2 * self.doubled > self.digits:
            raise SettingsError(
                f"Of {self.digits} digits {self.doubled} cannot repeat the one before them. Give "
                f"digits of 1 "
                f"or more, and doubled of half of them or less."
            )

    def background(self, repeat: int, seed: int) -> Background:
        """The same few sentences again and again."""
        return noise(self.language)

    def item(self, draw: Draw) -> Item:
        """The sentence with the key, which no noise holds."""
        random, words = draw.random("passkey", self.fresh), wording("passkey", self.language)
        gone = (
            f"The text holds all pass keys of {self.digits} digits. Use more: --task-options "
            f"digits=10"
        )
        value = fresh(partial(key_of, random, self.digits, self.doubled), set(), draw.holds, gone)
        needle, question = words["needle"].format(value=value), words["question"]
        return Item(
            (Needle(needle, draw.cell.depth),),
            question,
            Reference(value, (value,), needle, question),
            answer_prefix=words["begun"],
        )


def key_of(random: Random, digits: int, doubled: int) -> str:
    """A key, which never begins with 0.

    >>> key_of(Random("x"), 10, 5)
    '6699997711'
    """
    single = [random.randrange(1, 10), *(random.randrange(10) for _ in range(digits - doubled - 1))]
    twice = set(random.sample(range(len(single)), doubled))
    return "".join(str(digit) * (2 if place in twice else 1) for place, digit in enumerate(single))


PAIR = '"{key}": "{value}"'
_SHOWN = 4  # pairs of an example


@dataclass(kw_only=True, eq=False)
class KeyValue(Task):
    """One JSON object of pairs, as many as fit; the value of one key is asked for.

    key, value: of what kind; digits, uuid_digits: their size.

    query_first: the question stands before the object too. shots: solved examples on small objects
    of their own, the same in all trials of a repeat. fresh: as for `magic`.
    """

    name = "kv"
    scorer = "first"

    key: Kind = "uuid"
    value: Kind = "uuid"
    digits: OneOrMore = 7
    uuid_digits: UuidDigits = 32
    query_first: bool = False
    shots: ZeroOrMore = 0
    fresh: Scope = "trial"
    language: Language = "english"

    def __post_init__(self) -> None:
        self._keys, self._values = (
            Values.sized(kind, self.digits, self.uuid_digits, self.language)
            for kind in (self.key, self.value)
        )
        self._wording = wording("kv", self.language)

    def background(self, repeat: int, seed: int) -> Background:
        """The object's pairs, one a line."""
        return Background(
            PairLines(f"{PAIR},", self._keys, self._values, f"{seed}:{repeat}", "json")
        )

    def item(self, draw: Draw) -> Item:
        """The asked pair; what opens the object, and what closes it."""
        random, taken = draw.random("kv", self.fresh), set[str]()
        examples = "".join(self._example(draw, taken, number) for number in range(self.shots))
        last = self._pair(draw.random("kv last", "repeat"), taken, draw)
        key, value = self._pair(random, taken, draw)
        pair, question = (
            PAIR.format(key=key, value=value),
            self._wording["question"].format(key=key),
        )
        like = (
            self._values.like if self.value == "word" else ""
        )  # of others a reference says it itself
        return Item(
            (Needle(f"{pair},\n", draw.cell.depth),),
            question,
            Reference(value, (value,), pair, question, like=like),
            prologue=examples + (f"{question}\n\n" if self.query_first else "") + "{\n",
            epilogue=closing(*last),
            answer_prefix=self._wording["begun"].format(key=key),
        )

    def _example(self, draw: Draw, taken: set[str], number: int) -> str:
        """A small object with its question and answer."""
        randoms = (draw.random(f"kv example {number}.{place}", "repeat") for place in range(_SHOWN))
        pairs = [self._pair(random, taken, draw) for random in randoms]
        key, value = draw.random(f"kv asked {number}", "repeat").choice(pairs)
        lines = ",\n".join(PAIR.format(key=one, value=other) for one, other in pairs)
        return solved(f"{{\n{lines}\n}}", self._wording["question"].format(key=key), value)

    def _pair(self, random: Random, taken: set[str], draw: Draw) -> tuple[str, str]:
        key = self._keys.fresh(random, taken, draw.holds)
        return key, self._values.fresh(random, taken, draw.holds)


def closing(key: str, value: str) -> str:
    """An object's last pair, and its end."""
    return f"{PAIR.format(key=key, value=value)}\n}}"
