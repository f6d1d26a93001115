"""What a task is: a draw -> needles with meant depths, question, reference. It scores nothing.

A task that says no more is asked about the haystack that the settings name. One that also has a `background`
brings its own: noise lines, JSON pairs, sentences like its needles, a transcript.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, Protocol, runtime_checkable

from needlemap.haystacks.base import Source
from needlemap.prompts.placement import Needle
from needlemap.scorers.base import Reference
from needlemap.settings.grid import Cell

Scope = Literal["trial", "length", "repeat"]


def holds_nothing(_text: str) -> bool:
    """An empty background's answer to whether it holds a text."""
    return False


def utf8_bytes(text: str) -> int:
    """The tokens of a text for a model that reads bytes."""
    return len(text.encode())


@dataclass(frozen=True, slots=True)
class Draw:
    """All that one trial is drawn from: equal draws give equal items, in every process.

    holds: whether the background, as far as the cell's length goes, already holds a text, in any case, so
    that keys and values can be fresh. tokens: of a text, as the tested model counts; room_tokens: of the
    prompt without the answer: for tasks that hide as much as fits.
    """

    cell: Cell
    repeat: int = 0
    seed: int = 0
    holds: Callable[[str], bool] = holds_nothing
    tokens: Callable[[str], int] = utf8_bytes
    room_tokens: int = 0

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
    """A haystack that a task brings along: a source read in its own order from the start.

    A source that ends, as one document, is asked whole: prompts are then shorter than their length.
    unit: what a needle may not split, a name in `cuts.UNITS`. With 'sentence' prompts have exactly the
    asked length; with the others the haystack ends with a whole unit.
    """

    source: Source
    unit: str = "line"


@runtime_checkable
class Depthless(Protocol):
    """A task that may ask about the whole text, so that one depth says all that any would."""

    @property
    def depthless(self) -> bool:
        """Whether it does."""
        ...


def is_depthless(task: Task) -> bool:
    """Whether a task asks about the whole text."""
    return isinstance(task, Depthless) and task.depthless


@dataclass(frozen=True, slots=True)
class Whole:
    """A prompt that exists already. messages: role and text. depth: where its answer stands, a share; None
    where nobody knows. item: what is asked and right; it hides nothing."""

    messages: tuple[tuple[str, str], ...]
    item: Item
    depth: float | None


@runtime_checkable
class Ready(Protocol):
    """A task whose prompts exist already, so that no haystack, template or depth is chosen for them."""

    def prompts(self) -> Sequence[Whole]:
        """All of them, in an order that never changes."""
        ...

    def source(self) -> tuple[str, str]:
        """Where they come from: a name, and a sha256."""
        ...


@runtime_checkable
class Dialled(Protocol):
    """A task that can be made harder. dial: sets of options, each harder than the one before."""

    dial: Sequence[Mapping[str, Any]]


@runtime_checkable
class Scored(Protocol):
    """A task whose scorer has options for it. scorer_options: those, where the settings do not say others."""

    scorer_options: Mapping[str, Any]


@runtime_checkable
class Backgrounded(Protocol):
    """A task that may bring its own haystack."""

    def background(self, repeat: int, seed: int) -> Background | None:
        """That of a repeat: equal ones are read and tokenised once. None: the settings' haystack."""
        ...
