"""What a task is, and what it draws: needles, questions, references, backgrounds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from annotated_types import Ge, Gt, Le

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.grid import Cell
from needlemap.registry import Checked, find_kind, option_names
from needlemap.secrets import raised_by

if TYPE_CHECKING:
    from needlemap.haystacks import Source
    from needlemap.settings import Settings


Scope = Literal["trial", "length", "repeat"]
# More facts, digits or letters than any prompt holds would be drawn for hours before they are
# refused. A number in a text, such as a key, is not meant,
# nor is a plug-in's option.
MOST_OPTION = 10_000
_SHOWN = 40  # characters of a number that is refused


def holds_nothing(_text: str) -> bool:
    """An empty background's answer to whether it holds a text."""
    return False


def utf8_bytes(text: str) -> int:
    """The tokens of a text for a model that reads bytes."""
    return len(text.encode())


@dataclass(frozen=True, slots=True)
class Draw:
    """All that one trial is drawn from: equal draws give equal items, in every process.

    holds: whether the background, as far as the cell's length goes, already holds a text, in any
    case, so that keys and values can be fresh. tokens: of a text, as the tested model counts;
    room_tokens:
    of the prompt without the answer: for tasks that hide as much as fits.
    """

    cell: Cell
    repeat: int = 0
    seed: int = 0
    holds: Callable[[str], bool] = holds_nothing
    tokens: Callable[[str], int] = utf8_bytes
    room_tokens: int = 0

    def random(self, purpose: str, scope: Scope = "trial") -> Random:
        """Random numbers for a purpose: other ones for each trial, for each length of a repeat, or
        repeat.

        What stands before the needle of the cell's depth is best drawn for a length or a repeat, so
        that neighbouring depths share their beginnings.
        """
        place: tuple[object, ...] = (self.seed, self.repeat)
        if scope != "repeat":
            place += (self.cell.length_tokens,)
        if scope == "trial":
            place += (self.cell.depth,)
        return Random(f"{purpose}:{':'.join(map(repr, place))}")

    def beside(self, purpose: str, fresh: Scope) -> Random:
        """Random numbers for what stands beside what is asked for, which is drawn for each `fresh`:
        these are drawn for each length at most, so that neighbouring depths share what comes
        before."""
        return self.random(purpose, "repeat" if fresh == "repeat" else "length")


@dataclass(frozen=True, slots=True)
class Needle:
    """A text to hide and the depth it is meant for, a share in [0, 1].

    still: it stays there when a plan chooses another place for an item's first needle. exact: it
    stands at that very token rather than at a sentence's end. wrong: it is a distractor, from which
    no right answer comes.
    """

    text: str
    depth: float
    still: bool = False
    exact: bool = False
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """What a right answer looks like: three different things that older tools mix.

    answer: a full right answer. keywords: words that a right answer holds. needle: the hidden text
    itself. question: as it was asked. decoys: what the prompt holds of the same kind as the
    keywords, but wrong. choices: the right and the wrong ones in the prompt's order, where one of
    them is asked for by its number. none: the answer by which a question lets one say that the text
    holds none, right where there are no keywords; '' where it does not. like: a pattern of what
    would look like an answer there, for texts as `text.plain` leaves them; '' where unknown.
    owners: whose each decoy is, in their order, where a denial may say so ("none; only red-fox has
    4711").
    """

    answer: str
    keywords: tuple[str, ...] = ()
    needle: str = ""
    question: str = ""
    decoys: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    none: str = ""
    like: str = ""
    owners: tuple[str, ...] = ()

    def digest(self) -> str:
        """sha256 of all that is right and wrong; fields that say nothing do not enter, so that a
        version that has more of them knows its references as before."""
        said = {each.name: value for each in fields(self) if (value := getattr(self, each.name))}
        return sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Item:
    """What one trial hides and asks.

    needles: the first is the one meant for the cell's depth; the others may stand anywhere. None:
    nothing is hidden. prologue, epilogue: texts around the haystack, as the braces of a JSON object
    or examples; what is equal in all trials of a repeat is shared between them.
    answer_prefix: how an answer would begin, given to the model where the settings say so. unique:
    texts that must not stand in the haystack; None: needles, keywords and answer.
    """

    needles: tuple[Needle, ...]
    question: str
    reference: Reference
    prologue: str = ""
    epilogue: str = ""
    answer_prefix: str = ""
    unique: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Background:
    """A haystack that a task brings along: a source read in its own order from the start.

    A source that ends, as one document, is asked whole: prompts are then shorter than their length.
    unit: what a needle may not split, a name in `tokens.UNITS`. With 'sentence' prompts have
    exactly the asked length; with the others the haystack ends with a whole unit.
    """

    source: Source
    unit: str = "line"


@dataclass(frozen=True, slots=True)
class ReadyPrompt:
    """A prompt that exists already. messages: role and text. depth: where its answer stands, a
    share; None where unknown. item: what is asked and right; it hides nothing."""

    messages: tuple[tuple[str, str], ...]
    item: Item
    depth: float | None


class Task(metaclass=Checked):
    """Built as `Task(**options)`; unknown options raise SettingsError. Override `item`, and what
    differs. A dataclass whose fields are its options needs no constructor.

    Its options are those of `task_options`, and every setting of the group Task that its
    constructor names
    (needle, needles, question, answer, keywords, spread, diff, draw, language).
    name: its registered name. scorer: the scorer's name it wants when the settings name none,
    scorer_options:
    its options, where the settings say no others. ready: whether its prompts exist already, so
    that no haystack, template or depth is chosen for them.
    """

    name: str
    scorer: str
    scorer_options: Mapping[str, Any] = {}
    ready: bool = False

    def anchor_tokens(self, repeat: int, seed: int) -> int | None:
        """Return the haystack tokens that a repeat's depths are shares of in prompts of every
        length; None: each prompt's own."""
        return None

    @property
    def depthless(self) -> bool:
        """Whether it asks about the whole text, so that one depth says all that any would."""
        return False

    def item(self, draw: Draw) -> Item:
        """The item of one trial: a pure function of the draw."""
        raise NotImplementedError

    def background(self, repeat: int, seed: int) -> Background | None:
        """The haystack of a repeat that it brings along: equal ones are read and tokenised once.
        None: the settings' haystack."""
        return None

    def prompts(self) -> Sequence[ReadyPrompt]:
        """All prompts that exist already, in an order that never changes."""
        return ()

    def source(self) -> tuple[str, str]:
        """Where these come from: a name, and a sha256."""
        return "", ""


def make_task(settings: Settings) -> Task:
    """The task, with the settings that it names. Raises SettingsError for those that it lacks, and
    for numbers beyond all use."""
    from needlemap.settings import settings_of

    kind = find_kind("tasks", settings.task, Task)
    if (
        settings.spread == "chain-as-coded"
        and settings.task == "multi"
        and settings.placement != "token"
    ):
        raise SettingsError(
            "--spread chain-as-coded is OpenCompass's way: give --placement token too."
        )
    named, options = option_names(kind), dict(settings.task_options)
    is_drawn = not kind.ready and kind.__module__.startswith("needlemap.")
    for name, value in options.items() if is_drawn else ():
        if isinstance(value, int | float) and not -MOST_OPTION <= value <= MOST_OPTION:
            raise SettingsError(
                f"Option '{name}' of task {settings.task} takes numbers up to {MOST_OPTION:,}, got "
                f"{str(value)[:_SHOWN]}."
            )
    for name in settings_of("Task"):
        if name in named:
            options.setdefault(name, getattr(settings, name))
    with in_words(settings):
        made: Task = kind(**options)
    return made


@contextmanager
def in_words(settings: Settings) -> Iterator[None]:
    """What a task's own code raises, as a SettingsError."""
    try:
        yield
    except NeedlemapError:
        raise
    except Exception as error:
        if isinstance(error, KeyError) and error.args == (settings.language,):
            raise no_wording(settings.task, settings.language) from error
        raise SettingsError(f"Task '{settings.task}' failed: {raised_by(error)}") from error


def no_wording(task: str, language: str) -> SettingsError:
    """What a task that has no words in a language says."""
    return SettingsError(
        f"Task '{task}' has no wording in '{language}'. Give another --language, or another --task."
    )


Order = Literal["forward", "backward", "random"]
Language = Literal["english", "chinese"]
ZeroOrMore = Annotated[int, Ge(0)]
OneOrMore = Annotated[int, Ge(1)]
Percent = Annotated[float, Gt(0), Le(100)]
Piece = TypeVar("Piece")


def behind(random: Random, depth: float, count: int, span: float) -> list[float]:
    """Depths, ascending, of `count` needles: the first at a depth, the rest uniform in the span
    behind it.

    span: as a share of the haystack; it ends with the haystack.

    >>> (
    ...     [round(one, 2) for one in behind(Random("x"), 0.5, 3, 1.0)],
    ...     behind(Random("x"), 1.0, 2, 0.1),
    ... )
    ([0.5, 0.8, 0.82], [1.0, 1.0])
    """
    width = min(span, 1 - depth)
    return [depth, *sorted(depth + width * random.random() for _ in range(count - 1))]


def anywhere(random: Random, count: int) -> list[float]:
    """Depths, ascending, of needles that stand anywhere."""
    return sorted(random.random() for _ in range(count))


def ordered(random: Random, pieces: list[Piece], order: Order) -> list[Piece]:
    """Pieces in the order in which the text has them.

    >>> ordered(Random("x"), [1, 2, 3], "backward"), ordered(Random("z"), [1, 2, 3], "random")
    ([3, 2, 1], [1, 3, 2])
    """
    if order == "random":
        return random.sample(pieces, len(pieces))
    return pieces[::-1] if order == "backward" else pieces


def hidden(texts: Iterable[str], depths: Iterable[float]) -> tuple[Needle, ...]:
    """Needles in the order given, of which only the first moves where a plan wants it to."""
    return tuple(
        Needle(*both, still=n > 0) for n, both in enumerate(zip(texts, depths, strict=True))
    )


def following(random: Random, texts: list[str], depth: float, span: float) -> list[Needle]:
    """Needles in the order given, from a depth on. span: as for `behind`."""
    return list(hidden(texts, behind(random, depth, len(texts), span)))


def scattered(random: Random, texts: list[str]) -> list[Needle]:
    """Needles in the order given, that stand anywhere."""
    return [
        Needle(*both, still=True) for both in zip(texts, anywhere(random, len(texts)), strict=True)
    ]
