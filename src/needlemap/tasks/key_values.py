"""Keys with values, hidden one a sentence: RULER's needle tests (Hsieh et al. 2024, arXiv 2404.06654).

One key among the needles is always the one that the cell's depth is meant for. The wording is our own.

A pass key in noise (Mohtashami and Jaggi 2023, arXiv 2305.16300) is a smoke test. The noise is so uniform
that the key is the one thing that stands out: it finds broken caches and positions, and ranks no models.
Number strings, with digits that stand twice, ask for exact copying too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from needlemap.errors import SettingsError
from needlemap.tasks import Background, Draw, Item, Needle, Reference, Scope, Task
from needlemap.tasks.latent import Absence, one_edit
from needlemap.tasks.values import PASS_KEY, WORDINGS, Kind, Noise, Pairs, Values
from needlemap.text.matching import but


@dataclass(frozen=True, slots=True)
class Hidden:
    """A key, one of its values, and the depth that this needle is meant for."""

    key: str
    value: str
    depth: float


class Magic(Task):
    """Keys with values, one a sentence, in noise, in prose or among their like; by default one of each.

    keys, each with so many values, of which queries are asked for, all values of them.
    haystack: 'prose' (what the settings name), 'repeat' (the same few sentences) or 'needles' (sentences like
    the needles, one a line, with other keys and values). digits: of numbers;
    uuid_digits: of UUIDs, hexadecimal. fresh: how often the asked key is drawn anew: for each trial, for each
    length of a repeat, or for each repeat; the keys beside it are drawn for each length at most, so that
    neighbouring depths share what comes before. absent: the share of trials whose question asks for keys that
    the text lacks, and of these near: those one edit away from keys that it has; see `latent.py`.
    """

    name = "magic"
    scorer = "recall"
    KEYS, VALUES, QUERIES = 1, 1, 1
    dial: tuple[Mapping[str, Any], ...] = (
        {"keys": 1},
        {"keys": 4},
        {"keys": 16},
        {"haystack": "needles"},
        {"haystack": "needles", "key": "uuid", "value": "uuid"},
        {"haystack": "needles", "key": "uuid", "value": "uuid", "uuid_digits": 64},
    )

    def __init__(
        self,
        *,
        haystack: Literal["prose", "repeat", "needles"] = "prose",
        key: Kind = "word",
        value: Kind = "number",
        keys: int | None = None,
        values: int | None = None,
        queries: int | None = None,
        digits: int = 7,
        uuid_digits: int = 32,
        fresh: Scope = "trial",
        absent: float = 0.0,
        near: float = 0.5,
        language: Literal["english", "chinese"] = "english",
    ) -> None:
        self._count = (
            self.KEYS if keys is None else keys,
            self.VALUES if values is None else values,
            self.QUERIES if queries is None else queries,
        )
        _check(*self._count, digits, uuid_digits)
        sizes = {"word": 0, "number": digits, "uuid": uuid_digits}
        self._keys, self._values = Values(key, sizes[key], language), Values(value, sizes[value], language)
        self._haystack, self._fresh = haystack, fresh
        self._absence = Absence(absent, near, language)
        if absent:
            self.scorer = "only"
        self._wording = own = WORDINGS[language]
        several = self._count[1] * self._count[2] > 1
        asked, begun = (own.several, own.begun_several) if several else (own.one, own.begun)
        self._needle, self._question = own.naming(value, own.needle), own.naming(value, asked)
        self._prefix = self._absence.prefix(own.naming(value, begun))

    def background(self, repeat: int, seed: int) -> Background | None:
        """Noise, or lines like the needles; None for prose."""
        if self._haystack == "repeat":
            return Background(Noise(self._wording.noise), "sentence")
        if self._haystack == "needles":
            return Background(
                Pairs(self._needle, self._keys, self._values, f"{seed}:{repeat}", "needles"), "line"
            )
        return None

    def item(self, draw: Draw) -> Item:
        """The needles, that of the cell's depth first; all values of the asked keys are wanted."""
        hidden, meant = self._hidden(draw), self._absence.asked(draw)
        asked = list(dict.fromkeys(one.key for one in hidden))[: self._count[2]]
        draw.random(f"{self.name} order", self._fresh).shuffle(asked)
        named = asked if meant == "present" else self._elsewhere(asked, hidden, draw, near=meant == "near")
        end = "\n" if self._haystack == "needles" else ""
        texts = [self._needle.format(key=one.key, value=one.value) + end for one in hidden]
        keys = self._wording.listed(named)
        question = self._absence.question(self._question.format(keys=keys))
        needles = tuple(
            Needle(text, one.depth, still=place > 0)
            for place, (text, one) in enumerate(zip(texts, hidden, strict=True))
        )
        prefix = self._prefix.format(keys=keys)
        if meant == "present":
            return Item(
                needles, question, self._reference(asked, hidden, texts, question), answer_prefix=prefix
            )
        values = tuple(one.value for one in hidden)
        owners = tuple(one.key for one in hidden)
        reference = self._absence.unanswered(question, values, self._like(hidden), owners)
        unique = (*(text.strip() for text in texts), *values, *named)
        return Item(needles, question, reference, answer_prefix=prefix, unique=unique)

    def _reference(
        self, asked: list[str], hidden: list[Hidden], texts: list[str], question: str
    ) -> Reference:
        """All values of the asked keys."""
        wanted = tuple(one.value for key in asked for one in hidden if one.key == key)
        sought = "\n".join(text.strip() for text, one in zip(texts, hidden, strict=True) if one.key in asked)
        decoys = tuple(one.value for one in hidden if one.key not in asked)
        answer = self._wording.listed(list(wanted))
        return Reference(answer, wanted, sought, question, decoys, none=self._absence.none)

    def _like(self, hidden: list[Hidden]) -> str:
        """What looks like a value and is none of the keys: to say which ones there are is to invent none."""
        like = self._values.like
        return but(like, [one.key for one in hidden]) if self._keys == self._values else like

    def _elsewhere(self, asked: list[str], hidden: list[Hidden], draw: Draw, *, near: bool) -> list[str]:
        """Keys that are nowhere in the text instead of the asked ones: near to them, or quite others."""
        random = draw.random(f"{self.name} absent")
        taken = {text for one in hidden for text in (one.key, one.value)}
        if near:
            return [one_edit(key, self._keys, random, taken, draw.holds) for key in asked]
        return [self._keys.fresh(random, taken, draw.holds) for _ in asked]

    def _hidden(self, draw: Draw) -> list[Hidden]:
        """The asked key's values, the first at the cell's depth, then those of the other keys."""
        keys, values, _ = self._count
        beside: Scope = "repeat" if self._fresh == "repeat" else "length"
        others, own = draw.random(f"{self.name} beside", beside), draw.random(self.name, self._fresh)
        taken: set[str] = set()
        depths = [others.random() for _ in range(keys * values - 1)]
        rest = [self._pairs(others, taken, draw) for _ in range(keys - 1)]
        pairs = [*self._pairs(own, taken, draw), *(pair for row in rest for pair in row)]
        return [Hidden(*pair, depth) for pair, depth in zip(pairs, [draw.cell.depth, *depths], strict=True)]

    def _pairs(self, random: Random, taken: set[str], draw: Draw) -> list[tuple[str, str]]:
        """A fresh key with its fresh values."""
        key = self._keys.fresh(random, taken, draw.holds)
        return [(key, self._values.fresh(random, taken, draw.holds)) for _ in range(self._count[1])]


class Multikey(Magic):
    """One key of four is asked for; the others stand in its way."""

    name = "multikey"
    KEYS = 4
    dial = ({"keys": 4}, {"keys": 8}, {"keys": 16}, *Magic.dial[-3:])


class Multivalue(Magic):
    """One key has four values, and all are asked for."""

    name = "multivalue"
    VALUES = 4
    dial = (
        *({"values": count} for count in (4, 8, 16)),
        *({**step, "values": 16} for step in Magic.dial[-3:]),
    )


class Multiquery(Magic):
    """Four keys are hidden, and all are asked for."""

    name = "multiquery"
    KEYS, QUERIES = 4, 4
    dial = (
        *({"keys": count, "queries": count} for count in (4, 8, 16)),
        *({**step, "keys": 16, "queries": 16} for step in Magic.dial[-3:]),
    )


def _check(keys: int, values: int, queries: int, digits: int, uuid_digits: int) -> None:
    least = {"keys": keys, "values": values, "queries": queries, "digits": digits}
    for name, given in least.items():
        if given < 1:
            raise SettingsError(f"Option '{name}' must be at least 1, got {given}.")
    if uuid_digits < 4:
        raise SettingsError(f"Option 'uuid_digits' must be at least 4, got {uuid_digits}.")
    if queries > keys:
        raise SettingsError(
            f"{queries} queries need as many keys, there are {keys}. Add --task-options keys={queries}"
        )


class Passkey(Task):
    """A number hidden in noise: a smoke test.

    digits: of the key, of which `doubled` repeat the digit before them. fresh: as for `magic`.
    """

    name = "passkey"
    scorer = "first"
    dial = tuple({"digits": digits, "doubled": digits // 2} for digits in (6, 10, 20, 40))

    def __init__(
        self,
        *,
        digits: int = 5,
        doubled: int = 0,
        fresh: Scope = "trial",
        language: Literal["english", "chinese"] = "english",
    ) -> None:
        if digits < 1 or not 0 <= 2 * doubled <= digits:
            raise SettingsError(
                f"Of {digits} digits {doubled} cannot repeat the one before them. Give digits of 1 or more, "
                f"and doubled of half of them or less."
            )
        self._digits, self._doubled, self._fresh = digits, doubled, fresh
        self._needle, self._question, self._prefix = PASS_KEY[language]
        self._noise = WORDINGS[language].noise

    def background(self, repeat: int, seed: int) -> Background:
        """The same few sentences again and again."""
        return Background(Noise(self._noise), "sentence")

    def item(self, draw: Draw) -> Item:
        """The sentence with the key, which no noise holds."""
        random = draw.random("passkey", self._fresh)
        value = key_of(random, self._digits, self._doubled)
        while draw.holds(value):
            value = key_of(random, self._digits, self._doubled)
        needle = self._needle.format(value=value)
        return Item(
            (Needle(needle, draw.cell.depth),),
            self._question,
            Reference(value, (value,), needle, self._question),
            answer_prefix=self._prefix,
        )


def key_of(random: Random, digits: int, doubled: int) -> str:
    """A key, which never begins with 0.

    >>> key_of(Random("x"), 10, 5)
    '6699997711'
    """
    single = [random.randrange(1, 10), *(random.randrange(10) for _ in range(digits - doubled - 1))]
    twice = set(random.sample(range(len(single)), doubled))
    return "".join(str(digit) * (2 if place in twice else 1) for place, digit in enumerate(single))
