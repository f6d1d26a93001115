"""One needle and its question; or several needles that belong together, and one question that needs
them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from needlemap.errors import SettingsError
from needlemap.prompts.templates import fill, placeholders
from needlemap.tasks import Draw, Item, Needle, Reference, Task
from needlemap.tasks.distractors import (
    Distractor,
    OwnWords,
    decoys_of,
    hidden_beside,
    near_misses,
    own_sentences,
)
from needlemap.text import held, plain

WORDING = "levenshtein"  # where nobody says what a right answer must hold
Choices = Mapping[str, Sequence[str] | str]


@dataclass(kw_only=True, eq=False)
class Worded(Task):
    """Needles and a question in the user's words.

    Texts may hold {placeholders}, drawn afresh for each repeat from the lists in `draw` (a list of
    values, or
    'low:high' for whole numbers); the same repeat draws the same values in every cell. answer: a
    right answer; the needles themselves when not given. keywords: words that a right answer holds.
    Without them an answer that is a part of a needle is what a right one must hold; else the
    wording counts.
    """

    question: str
    answer: str | None = None
    keywords: Sequence[str] = ()
    draw: Choices | None = None


@dataclass(kw_only=True, eq=False)
class AmongOthers(Worded):
    """What `Worded` says, among distractors if there are any.

    distractors: how many near misses are drawn from the needle's slots, or the user's own
    sentences. They stand anywhere, at the same places in all prompts of a repeat.
    """

    distractors: int | Sequence[str] = 0

    def _item(self, draw: Draw, needles: Sequence[str], depths: Sequence[float]) -> Item:
        values = drawn(self.draw or {}, draw.repeat, draw.seed)
        texts = [
            fill(needle, values, "needles" if len(needles) > 1 else "needle") for needle in needles
        ]
        whole = "\n".join(texts)
        answer = whole if self.answer is None else fill(self.answer, values, "answer")
        question = fill(self.question, values, "question")
        words = tuple(fill(word, values, "keywords") for word in self.keywords)
        others = self._others(draw, needles, values, self._right(words, answer))
        reference = Reference(answer, words, whole, question, decoys_of(others, question))
        beside = hidden_beside(others, draw.random("distractors", "repeat"))
        needles_all = (*map(Needle, texts, depths), *beside)
        return Item(needles_all, question, reference)

    def _right(self, words: Sequence[str], answer: str) -> list[str]:
        """What no distractor may hold: the key words that are drawn, else all; else the answer."""
        drawn_ones = [
            word
            for text, word in zip(self.keywords, words, strict=True)
            if placeholders(text, "keywords")
        ]
        return drawn_ones or [*words] or [answer]

    def _others(
        self, draw: Draw, needles: Sequence[str], values: dict[str, str], right: Sequence[str]
    ) -> list[Distractor]:
        """The distractors, the same in all cells of a repeat."""
        if not self.distractors:
            return []
        if not isinstance(self.distractors, int):
            return own_sentences(self.distractors, values, right)
        said = (tuple(needles), self.question, self.answer, tuple(self.keywords), self.draw or {})
        random = draw.random("near misses", "repeat")
        return near_misses(OwnWords(*said), values, right, self.distractors, random)


@dataclass(kw_only=True, eq=False)
class Single(AmongOthers):
    """One needle at the cell's depth."""

    name = "single"
    needle: str

    def __post_init__(self) -> None:
        if not self.needle.strip() or not self.question.strip():
            raise SettingsError("The single task needs a --needle and a --question.")
        self.scorer = "substring" if self.keywords or is_part(self.answer, self.needle) else WORDING

    def item(self, draw: Draw) -> Item:
        """The needle at the cell's depth, its question, and its reference."""
        return self._item(draw, [self.needle], [draw.cell.depth])


def is_part(answer: str | None, needle: str) -> bool:
    """Whether an answer is given that is a piece of the needle, so that every right answer must
    hold it.

    >>> is_part("heron-42", "The code is heron-42."), is_part("The code is 7.", "The code is 7.")
    (True, False)
    """
    said, whole = plain(answer or "").strip(), plain(needle).strip()
    return bool(said) and said.rstrip(".。") != whole.rstrip(".。") and held(whole, said)


def drawn(draw: Choices, repeat: int, seed: int) -> dict[str, str]:
    """One value for each name, from the seed and the repeat.

    >>> drawn({"number": "1000:9999"}, 0, 0) == drawn({"number": "1000:9999"}, 0, 0)
    True
    """
    random = Random(f"draw:{seed}:{repeat}")
    return {name: _value(random, name, choices) for name, choices in sorted(draw.items())}


def _value(random: Random, name: str, choices: Sequence[str] | str) -> str:
    if not isinstance(choices, str):
        if not choices:
            raise SettingsError(f"draw: '{name}' has no values to draw from.")
        return str(random.choice(list(choices)))
    low, _, high = choices.partition(":")
    try:
        return str(random.randint(int(low), int(high)))
    except ValueError:
        raise SettingsError(
            f"draw: '{name}' is '{choices}'. Write a list of values, or low:high as in 1000:9999."
        ) from None


@dataclass(kw_only=True, eq=False)
class Multi(AmongOthers):
    """Needles spread from the cell's depth on.

    spread 'chain': needle i at depth + i * diff, not beyond 100 (diff in percent).
    'chain-as-coded':
    the same meant depths, placed by OpenCompass's formula, which counts needles twice. 'even':
    needle i of k at depth + i * (100 - depth) / k, as needlehaystack does. Scored by the share of
    the keywords that the answer holds, as in `single` where there are none.
    """

    name = "multi"
    needles: Sequence[str]
    spread: Literal["chain", "chain-as-coded", "even"] = "chain"
    diff: float = 10.0

    def __post_init__(self) -> None:
        if not self.needles or not all(map(str.strip, self.needles)) or not self.question.strip():
            raise SettingsError(
                "The multi task needs --needles (once for each), none of them empty, and a "
                "--question."
            )
        if self.distractors and self.spread == "chain-as-coded":
            raise SettingsError(
                "--spread chain-as-coded is OpenCompass's formula for its own needles, which knows "
                "no --distractors. Give --spread chain."
            )
        by_part = "substring" if is_part(self.answer, "\n".join(self.needles)) else WORDING
        self.scorer = "recall" if self.keywords else by_part
        self.scorer_options = {"rule": "inside"} if self.keywords else {}

    def item(self, draw: Draw) -> Item:
        """The needles with their meant depths, the question, and the reference."""
        depths = spread_depths(draw.cell.depth, len(self.needles), self.spread, self.diff / 100)
        return self._item(draw, self.needles, depths)


def spread_depths(depth: float, count: int, spread: str, diff: float) -> list[float]:
    """Meant depths, as shares, of `count` needles that start at `depth`.

    >>> (
    ...     [round(d, 2) for d in spread_depths(0.4, 4, "even", 0)],
    ...     spread_depths(0.9, 3, "chain", 0.25),
    ... )
    ([0.4, 0.55, 0.7, 0.85], [0.9, 1.0, 1.0])
    """
    step = (1 - depth) / count if spread == "even" else diff
    return [min(1.0, depth + place * step) for place in range(count)]
