"""One needle, one question: the classic test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from needlemap.errors import SettingsError
from needlemap.prompts.placement import Needle
from needlemap.prompts.templates import fill
from needlemap.scorers.base import Reference
from needlemap.scorers.matching import held, plain
from needlemap.settings.registry import Checked
from needlemap.tasks.base import Draw, Item

WORDING = "levenshtein"  # where nobody says what a right answer must hold


class Single(metaclass=Checked):
    """One needle at the cell's depth.

    Texts may hold {placeholders}, drawn afresh for each repeat from the lists in `draw` (a list of values, or
    'low:high' for whole numbers); the same repeat draws the same values in every cell. answer: a right
    answer; the needle itself when not given. keywords: words that a right answer holds. Without them an
    answer that is a part of the needle is what a right one must hold; else the wording counts.
    """

    name = "single"

    def __init__(
        self,
        *,
        needle: str,
        question: str,
        answer: str | None = None,
        keywords: Sequence[str] = (),
        draw: Mapping[str, Sequence[str] | str] | None = None,
    ) -> None:
        if not needle.strip() or not question.strip():
            raise SettingsError("The single task needs a --needle and a --question.")
        self._needle, self._question, self._answer = needle, question, answer
        self._keywords, self._draw = tuple(keywords), dict(draw or {})
        self.scorer = "substring" if keywords or is_part(answer, needle) else WORDING

    def item(self, draw: Draw) -> Item:
        """The needle at the cell's depth, its question, and its reference."""
        values = drawn(self._draw, draw.repeat, draw.seed)
        needle = fill(self._needle, values, "needle")
        answer = needle if self._answer is None else fill(self._answer, values, "answer")
        question = fill(self._question, values, "question")
        words = tuple(fill(word, values, "keywords") for word in self._keywords)
        return Item((Needle(needle, draw.cell.depth),), question, Reference(answer, words, needle, question))


def is_part(answer: str | None, needle: str) -> bool:
    """Whether an answer is given that is a piece of the needle, so that every right answer must hold it.

    >>> is_part("heron-42", "The code is heron-42."), is_part("The code is 7.", "The code is 7.")
    (True, False)
    """
    said, whole = plain(answer or "").strip(), plain(needle).strip()
    return bool(said) and said.rstrip(".。") != whole.rstrip(".。") and held(whole, said)


def drawn(draw: Mapping[str, Sequence[str] | str], repeat: int, seed: int) -> dict[str, str]:
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
