"""Hide one needle and ask for it, or hide several that one question needs together."""

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
from needlemap.text import contains, plain

# The scorer if nobody says what a right answer must hold.
WORDING = "levenshtein"
Choices = Mapping[str, Sequence[str] | str]


@dataclass(kw_only=True, eq=False)
class Worded(Task):
    """Needles and a question in the user's words.

    Texts may hold {placeholders}, drawn afresh for each repeat. The same repeat draws the same
    values in every cell.

    Attributes:
        question: The question.
        answer: A right answer; None for the needles themselves.
        keywords: Words that a right answer holds. If there are none, an answer that is a part of a
            needle is what a right one must hold; otherwise the wording counts.
        draw: By placeholder, a list of values, or 'low:high' for whole numbers.
    """

    question: str
    answer: str | None = None
    keywords: Sequence[str] = ()
    draw: Choices | None = None


@dataclass(kw_only=True, eq=False)
class AmongOthers(Worded):
    """Needles and a question in the user's words, among distractors if there are any.

    Attributes:
        distractors: How many near misses are drawn from the needle's slots, or the user's own
            sentences. They stand anywhere, at the same places in all prompts of a repeat.
    """

    distractors: int | Sequence[str] = 0

    def _item(self, draw: Draw, needles: Sequence[str], depths: Sequence[float]) -> Item:
        """Return an item with needles at some depths. needles: with placeholders."""
        values = drawn(self.draw or {}, draw.repeat, seed=draw.seed)
        setting = "needles" if len(needles) > 1 else "needle"
        texts = [fill(needle, values, what=setting) for needle in needles]
        all_needles = "\n".join(texts)
        answer = all_needles
        if self.answer is not None:
            answer = fill(self.answer, values, what="answer")
        question = fill(self.question, values, what="question")
        keywords = tuple(fill(keyword, values, what="keywords") for keyword in self.keywords)
        distractors = self._distractors(
            draw, needles, values=values, right=self._right_words(keywords, answer)
        )
        reference = Reference(
            answer,
            keywords,
            needle=all_needles,
            question=question,
            decoys=decoys_of(distractors, question),
        )
        right_needles = map(Needle, texts, depths)
        wrong_needles = hidden_beside(distractors, draw.random("distractors", "repeat"))
        return Item((*right_needles, *wrong_needles), question, reference=reference)

    def _right_words(self, keywords: Sequence[str], answer: str) -> list[str]:
        """Return what no distractor may hold.

        These are the key words with placeholders, otherwise all key words, otherwise the answer.
        keywords, answer: with their values.
        """
        with_placeholders = [
            keyword
            for text, keyword in zip(self.keywords, keywords, strict=True)
            if placeholders(text, "keywords")
        ]
        return with_placeholders or [*keywords] or [answer]

    def _distractors(
        self, draw: Draw, needles: Sequence[str], values: dict[str, str], right: Sequence[str]
    ) -> list[Distractor]:
        """Return the distractors, the same in all cells of a repeat."""
        if not self.distractors:
            return []
        if not isinstance(self.distractors, int):
            return own_sentences(self.distractors, values, right=right)
        words = OwnWords(
            needles=tuple(needles),
            question=self.question,
            answer=self.answer,
            keywords=tuple(self.keywords),
            draw=self.draw or {},
        )
        return near_misses(
            words,
            values,
            right=right,
            count=self.distractors,
            random=draw.random("near misses", "repeat"),
        )


@dataclass(kw_only=True, eq=False)
class Single(AmongOthers):
    """One needle at the cell's depth."""

    name = "single"
    needle: str

    def __post_init__(self) -> None:
        if not self.needle.strip() or not self.question.strip():
            raise SettingsError("The single task needs a --needle and a --question.")
        is_searched = bool(self.keywords) or is_part(self.answer, self.needle)
        self.scorer = "substring" if is_searched else WORDING

    def item(self, draw: Draw) -> Item:
        """Return the needle at the cell's depth, its question, and its reference."""
        return self._item(draw, [self.needle], depths=[draw.cell.depth])


def is_part(answer: str | None, needle: str) -> bool:
    """Return True if an answer is a piece of the needle, so that every right answer must hold it.

    answer: None if none is given.

    >>> is_part("heron-42", "The code is heron-42."), is_part("The code is 7.", "The code is 7.")
    (True, False)
    """
    part = plain(answer or "").strip()
    whole = plain(needle).strip()
    if not part or part.rstrip(".。") == whole.rstrip(".。"):
        return False
    return contains(whole, part)


def drawn(draw: Choices, repeat: int, seed: int) -> dict[str, str]:
    """Return a value for each name, drawn from the seed and the repeat.

    >>> drawn({"number": "1000:9999"}, 0, 0) == drawn({"number": "1000:9999"}, 0, 0)
    True
    """
    random = Random(f"draw:{seed}:{repeat}")
    values = {}
    for name, choices in sorted(draw.items()):
        values[name] = _draw_value(random, name, choices=choices)
    return values


def _draw_value(random: Random, name: str, choices: Sequence[str] | str) -> str:
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
        if self.keywords:
            self.scorer = "recall"
            self.scorer_options = {"rule": "inside"}
        else:
            is_searched = is_part(self.answer, "\n".join(self.needles))
            self.scorer = "substring" if is_searched else WORDING
            self.scorer_options = {}

    def item(self, draw: Draw) -> Item:
        """Return the needles at their meant depths, the question, and the reference."""
        depths = spread_depths(
            draw.cell.depth,
            len(self.needles),
            spread=self.spread,
            diff=self.diff / 100,
        )
        return self._item(draw, self.needles, depths=depths)


def spread_depths(depth: float, count: int, spread: str, diff: float) -> list[float]:
    """Return the meant depths, as shares, of `count` needles that start at `depth`.

    spread: 'chain', 'chain-as-coded' or 'even', as for `Multi`. diff: the share between two needles
    of a chain.

    >>> (
    ...     [round(d, 2) for d in spread_depths(0.4, 4, "even", 0)],
    ...     spread_depths(0.9, 3, "chain", 0.25),
    ... )
    ([0.4, 0.55, 0.7, 0.85], [0.9, 1.0, 1.0])
    """
    step = (1 - depth) / count if spread == "even" else diff
    return [min(1.0, depth + place * step) for place in range(count)]
