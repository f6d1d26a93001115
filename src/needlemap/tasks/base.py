"""What a task is: a draw -> needles with meant depths, question, reference. It scores nothing.

A task that says no more is asked about the haystack that the settings name. One that also has a `background`
brings its own: noise lines, JSON pairs, sentences like its needles, a transcript.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal, Protocol, runtime_checkable

from needlemap.grid import Cell
from needlemap.haystacks.base import Source
from needlemap.placement import Needle
from needlemap.scorers.base import Reference

Scope = Literal["trial", "length", "repeat"]


def holds_nothing(_text: str) -> bool:
    """An empty background's answer to whether it holds a text."""
    return False


@dataclass(frozen=True, slots=True)
class Draw:
    """All that one trial is drawn from: equal draws give equal items, in every process.

    holds: whether the background, as far as the cell's length goes, already holds a text, in any case, so
    that keys and values can be fresh.
    """

    cell: Cell
    repeat: int = 0
    seed: int = 0
    holds: Callable[[str], bool] = holds_nothing

    def random(self, purpose: str, scope: Scope = "trial") -> Random:
        """Random numbers for a purpose: other ones for each trial, for each length of a repeat, or repeat.

        What stands before the needle of the cell's depth is best drawn for a length or a repeat, so that
        neighbouring depths share their beginnings.
        """
        place: tuple[object, ...] = (self.seed, self.repeat)
        if scope != "repeat":
            place += (self.cell.length_tokens,)
        if scope == "trial":
            place += (self.cell.depth,)
        return Random(f"{purpose}:{':'.join(map(repr, place))}")


@dataclass(frozen=True, slots=True)
class Item:
    """What one trial hides and asks.

    needles: the first is the one meant for the cell's depth; the others may stand anywhere. None: nothing is
    hidden. prologue, epilogue: texts around the haystack, as the braces of a JSON object or examples; what is
    equal in all trials of a repeat is shared between them. answer_prefix: how an answer would begin, given to
    the model where the settings say so. unique: texts that must not stand in the haystack; None: needles,
    keywords and answer.
    """

    needles: tuple[Needle, ...]
    question: str
    reference: Reference
    prologue: str = ""
    epilogue: str = ""
    answer_prefix: str = ""
    unique: tuple[str, ...] | None = None


class Task(Protocol):
    """Built as `Task(**options)`; unknown options raise SettingsError.

    Its options are those of `task_options`, and every setting of the group Task that its constructor names
    (needle, needles, question, answer, keywords, spread, diff, draw, language).
    name: its registered name. scorer: the scorer's name it wants when the settings name none.
    """

    name: str
    scorer: str

    def item(self, draw: Draw) -> Item:
        """The item of one trial: a pure function of the draw."""
        ...


@dataclass(frozen=True, slots=True)
class Background:
    """A haystack that a task brings along: a source without end, read in its own order from the start.

    unit: what a needle may not split, a name in `boundaries.UNITS`. With 'sentence' prompts have exactly the
    asked length; with the others the haystack ends with a whole unit.
    """

    source: Source
    unit: str = "line"


@runtime_checkable
class Backgrounded(Protocol):
    """A task that may bring its own haystack."""

    def background(self, repeat: int, seed: int) -> Background | None:
        """That of a repeat: equal ones are read and tokenised once. None: the settings' haystack."""
        ...
