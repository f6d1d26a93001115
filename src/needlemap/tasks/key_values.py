"""Hide keys with values, one a sentence or all in one JSON object, and ask for some of them.

One a sentence is RULER's needle tests (Hsieh et al. 2024, arXiv 2404.06654). The cell's depth is
always that of an asked key. The wording is our own.

A pass key in noise (Mohtashami and Jaggi 2023, arXiv 2305.16300) is a smoke test. The noise is so
uniform that only the key stands out, so it finds broken caches and positions, and does not rank
models. Number strings with doubled digits ask for exact copying too.

In a JSON object of pairs (Liu et al. 2023, arXiv 2307.03172) nothing helps but the keys themselves:
no meaning, no wording, no odd one out. Its last pair is never the asked one, because it alone lacks
a comma.
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
from needlemap.tasks.absence import Absence, similar_key
from needlemap.tasks.values import Kind, PairLines, Values, fresh, noise, solved, wording
from needlemap.text import but

UuidDigits = Annotated[int, Ge(4)]


@dataclass(frozen=True, slots=True)
class Hidden:
    """A key, one of its values, and the depth at which this needle is to stand."""

    key: str
    value: str
    depth: float


@dataclass(kw_only=True, eq=False)
class Magic(Task):
    """Keys with values, one a sentence, in noise, in prose or among sentences like them.

    By default there is one key with one value.

    keys: how many keys are hidden, each with so many values.
    queries: how many of them are asked for, with all their values.
    haystack: 'prose' (what the settings name), 'repeat' (the same few sentences) or 'needles'
    (sentences like the needles, one a line, with other keys and values).
    digits: of numbers.
    uuid_digits: of UUIDs, hexadecimal.
    fresh: when the asked key is drawn anew: for each trial, for each length of a repeat, or for
    each repeat. Other keys are drawn for each length at most, so that neighbouring depths share
    what comes before.
    absent: the share of trials whose question asks for keys that the text lacks.
    near: of these, the share that asks for keys one edit away from keys that the text has.
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
            Values.sized(kind, self.digits, uuid_digits=self.uuid_digits, language=self.language)
            for kind in (self.key, self.value)
        )
        self._absence = Absence(self.absent, self.near, language=self.language)
        if self.absent:
            self.scorer = "only"
        self._wording = wording("magic", self.language)
        several = self.values * self.queries > 1
        self._needle = self._naming("needle")
        self._question = self._naming("several" if several else "one")
        self._prefix = self._absence.prefix(self._naming("begun_several" if several else "begun"))

    def background(self, repeat: int, seed: int) -> Background | None:
        """Return noise, or lines like the needles, or None for prose."""
        if self.haystack == "repeat":
            return noise(self.language)
        if self.haystack == "needles":
            lines = PairLines(
                self._needle,
                self._keys,
                values=self._values,
                source=f"{seed}:{repeat}",
                name="needles",
            )
            return Background(lines)
        return None

    def item(self, draw: Draw) -> Item:
        """Return the needles, that of the cell's depth first.

        All values of the asked keys are wanted.
        """
        pairs = self._hidden(draw)
        kind = self._absence.draw_kind(draw)
        hidden_keys = list(dict.fromkeys(pair.key for pair in pairs))[: self.queries]
        draw.random(f"{self.name} order", self.fresh).shuffle(hidden_keys)
        asked_keys = hidden_keys
        if kind != "present":
            asked_keys = self._absent_keys(hidden_keys, pairs, draw=draw, near=kind == "near")

        end = "\n" if self.haystack == "needles" else ""
        texts = [self._needle.format(key=pair.key, value=pair.value) + end for pair in pairs]
        needles = hidden(texts, [pair.depth for pair in pairs])
        listed = self._listed(asked_keys)
        question = self._absence.question(self._question.format(keys=listed))
        prefix = self._prefix.format(keys=listed)
        if kind == "present":
            reference = self._reference(asked_keys, pairs, texts=texts, question=question)
            return Item(needles, question, reference=reference, answer_prefix=prefix)

        values = tuple(pair.value for pair in pairs)
        owners = tuple(pair.key for pair in pairs)
        reference = self._absence.unanswered(
            question, values, like=self._like(pairs), owners=owners
        )
        unique = (*(text.strip() for text in texts), *values, *asked_keys)
        return Item(
            needles,
            question,
            reference=reference,
            answer_prefix=prefix,
            unique=unique,
        )

    def _naming(self, part: str) -> str:
        """Return a text in which the kind of value is named."""
        kind, kinds = self._wording["kinds"][self.value]
        text: str = self._wording[part]
        return text.replace("{kind}", kind).replace("{kinds}", kinds)

    def _listed(self, words: Sequence[str]) -> str:
        """Return words as a sentence lists them: a, b and c."""
        comma = self._wording["comma"]
        last = self._wording["last"]
        parts = [comma.join(words[:-1]), words[-1]]
        return str(last.join(part for part in parts if part))

    def _reference(
        self, asked_keys: list[str], pairs: list[Hidden], texts: list[str], question: str
    ) -> Reference:
        """Return all values of the asked keys."""
        values = tuple(pair.value for key in asked_keys for pair in pairs if pair.key == key)
        sentences = [
            text.strip() for text, pair in zip(texts, pairs, strict=True) if pair.key in asked_keys
        ]
        return Reference(
            answer=self._listed(values),
            keywords=values,
            needle="\n".join(sentences),
            question=question,
            decoys=tuple(pair.value for pair in pairs if pair.key not in asked_keys),
            none=self._absence.none,
        )

    def _like(self, pairs: list[Hidden]) -> str:
        """Return a pattern of what looks like a value and is none of the keys.

        An answer that lists the keys that there are invents nothing.
        """
        like = self._values.like
        if self._keys != self._values:
            return like
        return but(like, [pair.key for pair in pairs])

    def _absent_keys(
        self, asked_keys: list[str], pairs: list[Hidden], draw: Draw, *, near: bool
    ) -> list[str]:
        """Return keys that are nowhere in the text in place of the asked ones.

        near: whether they are one edit away from those.
        """
        random = draw.random(f"{self.name} absent")
        taken = {text for pair in pairs for text in (pair.key, pair.value)}
        if near:
            return [
                similar_key(key, self._keys, random=random, taken=taken, holds=draw.holds)
                for key in asked_keys
            ]
        return [self._keys.fresh(random, taken, holds=draw.holds) for _ in asked_keys]

    def _hidden(self, draw: Draw) -> list[Hidden]:
        """Return the asked key's values, the first at the cell's depth, then the other keys'."""
        others = draw.beside(f"{self.name} beside", self.fresh)
        asked_random = draw.random(self.name, self.fresh)
        taken: set[str] = set()
        depths = [others.random() for _ in range(self.keys * self.values - 1)]
        # The order of the draws fixes all prompts: the other keys come first.
        other_pairs = [self._pairs(others, taken, draw=draw) for _ in range(self.keys - 1)]
        pairs = self._pairs(asked_random, taken, draw=draw)
        for more in other_pairs:
            pairs += more
        return [
            Hidden(key, value, depth=depth)
            for (key, value), depth in zip(pairs, [draw.cell.depth, *depths], strict=True)
        ]

    def _pairs(self, random: Random, taken: set[str], draw: Draw) -> list[tuple[str, str]]:
        """Return a fresh key with its fresh values."""
        key = self._keys.fresh(random, taken, holds=draw.holds)
        return [
            (key, self._values.fresh(random, taken, holds=draw.holds)) for _ in range(self.values)
        ]


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

    digits: of the key.
    doubled: how many of them repeat the digit before.
    fresh: as for `magic`.
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
                "digits of 1 or more, and doubled of half of them or less."
            )

    def background(self, repeat: int, seed: int) -> Background:
        """Return the same few sentences again and again."""
        return noise(self.language)

    def item(self, draw: Draw) -> Item:
        """Return the sentence with the key, which no noise holds."""
        random = draw.random("passkey", self.fresh)
        words = wording("passkey", self.language)
        value = fresh(
            partial(key_of, random, self.digits, self.doubled),
            set(),
            holds=draw.holds,
            gone=f"The text holds all pass keys of {self.digits} digits. Use more: --task-options "
            "digits=10",
        )
        needle = words["needle"].format(value=value)
        question = words["question"]
        return Item(
            (Needle(needle, draw.cell.depth),),
            question,
            reference=Reference(value, (value,), needle=needle, question=question),
            answer_prefix=words["begun"],
        )


def key_of(random: Random, digits: int, doubled: int) -> str:
    """Return a key, which never starts with 0.

    >>> key_of(Random("x"), 10, 5)
    '6699997711'
    """
    single = [random.randrange(1, 10)]
    single += [random.randrange(10) for _ in range(digits - doubled - 1)]
    twice = set(random.sample(range(len(single)), doubled))
    key = ""
    for place, digit in enumerate(single):
        key += str(digit) * (2 if place in twice else 1)
    return key


PAIR = '"{key}": "{value}"'
# Pairs of an example.
_SHOWN = 4


@dataclass(kw_only=True, eq=False)
class KeyValue(Task):
    """One JSON object of pairs, as many as fit; the value of one key is asked for.

    key, value: their kinds.
    digits, uuid_digits: their size.
    query_first: whether the question stands before the object too.
    shots: solved examples on small objects of their own, the same in all trials of a repeat.
    fresh: as for `magic`.
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
            Values.sized(kind, self.digits, uuid_digits=self.uuid_digits, language=self.language)
            for kind in (self.key, self.value)
        )
        self._wording = wording("kv", self.language)

    def background(self, repeat: int, seed: int) -> Background:
        """Return the object's pairs, one a line."""
        lines = PairLines(
            f"{PAIR},",
            self._keys,
            values=self._values,
            source=f"{seed}:{repeat}",
            name="json",
        )
        return Background(lines)

    def item(self, draw: Draw) -> Item:
        """Return the asked pair, with what opens the object and what closes it."""
        random = draw.random("kv", self.fresh)
        taken = set[str]()
        examples = "".join(
            self._example(draw, taken, number=number) for number in range(self.shots)
        )
        last = self._pair(draw.random("kv last", "repeat"), taken, draw=draw)
        key, value = self._pair(random, taken, draw=draw)
        pair = PAIR.format(key=key, value=value)
        question = self._wording["question"].format(key=key)
        # Of numbers and UUIDs, a reference knows by itself what looks like them.
        like = self._values.like if self.value == "word" else ""
        return Item(
            (Needle(f"{pair},\n", draw.cell.depth),),
            question,
            reference=Reference(value, (value,), needle=pair, question=question, like=like),
            prologue=examples + (f"{question}\n\n" if self.query_first else "") + "{\n",
            epilogue=closing(*last),
            answer_prefix=self._wording["begun"].format(key=key),
        )

    def _example(self, draw: Draw, taken: set[str], number: int) -> str:
        """Return a small object with its question and answer."""
        pairs = []
        for place in range(_SHOWN):
            random = draw.random(f"kv example {number}.{place}", "repeat")
            pairs.append(self._pair(random, taken, draw=draw))
        key, value = draw.random(f"kv asked {number}", "repeat").choice(pairs)
        lines = ",\n".join(
            PAIR.format(key=other, value=other_value) for other, other_value in pairs
        )
        question = self._wording["question"].format(key=key)
        return solved(f"{{\n{lines}\n}}", question, answer=value)

    def _pair(self, random: Random, taken: set[str], draw: Draw) -> tuple[str, str]:
        key = self._keys.fresh(random, taken, holds=draw.holds)
        return key, self._values.fresh(random, taken, holds=draw.holds)


def closing(key: str, value: str) -> str:
    """Return an object's last pair, and its end."""
    return f"{PAIR.format(key=key, value=value)}\n}}"
