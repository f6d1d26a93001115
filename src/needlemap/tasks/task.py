"""Define a task, and what it draws: needles, questions, references, backgrounds."""

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
# refused. A number in a text, such as a key, is not meant, nor is a plug-in's option.
MOST_OPTION = 10_000
# Characters of a refused number that an error shows.
_SHOWN = 40


def holds_nothing(_text: str) -> bool:
    """Return False: an empty background holds no text."""
    return False


def utf8_bytes(text: str) -> int:
    """Return the tokens of a text for a model that reads bytes."""
    return len(text.encode())


@dataclass(frozen=True, slots=True)
class Draw:
    """All that one trial is drawn from: equal draws give equal items, in every process.

    Attributes:
        cell: The length and depth of the trial.
        repeat: The number of the repeat.
        seed: The seed of the family.
        holds: Returns True if the background, up to the cell's length, already holds a text, in
            upper or lower case, so that keys and values can be fresh.
        tokens: Counts the tokens of a text as the tested model does.
        room_tokens: Tokens of the prompt without the answer, for tasks that hide as much as fits.
    """

    cell: Cell
    repeat: int = 0
    seed: int = 0
    holds: Callable[[str], bool] = holds_nothing
    tokens: Callable[[str], int] = utf8_bytes
    room_tokens: int = 0

    def random(self, purpose: str, scope: Scope = "trial") -> Random:
        """Return random numbers for a purpose.

        They are other ones for each trial, for each length of a repeat, or for each repeat. Draw
        what stands before the needle of the cell's depth for a length or a repeat, so that
        neighbouring depths share their beginnings.
        """
        place: tuple[object, ...] = (self.seed, self.repeat)
        if scope != "repeat":
            place += (self.cell.length_tokens,)
        if scope == "trial":
            place += (self.cell.depth,)
        return Random(f"{purpose}:{':'.join(map(repr, place))}")

    def beside(self, purpose: str, fresh: Scope) -> Random:
        """Return random numbers for what stands next to what is asked for.

        They are drawn for each length at most, so that neighbouring depths share what comes before.
        fresh: how often what is asked for is drawn.
        """
        return self.random(purpose, "repeat" if fresh == "repeat" else "length")


@dataclass(frozen=True, slots=True)
class Needle:
    """A text to hide.

    Attributes:
        text: The text.
        depth: Where it is to stand, a share in [0, 1].
        still: Whether it stays there if a plan chooses another place for an item's first needle.
        exact: Whether it stands at that very token, not at a sentence's end.
        wrong: Whether it is a distractor, from which no right answer comes.
    """

    text: str
    depth: float
    still: bool = False
    exact: bool = False
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """What a right answer looks like. Answer, keywords and needle differ; older tools mix them.

    Attributes:
        answer: A full right answer.
        keywords: Words that a right answer holds.
        needle: The hidden text itself.
        question: The question as it was asked.
        decoys: What the prompt holds of the same kind as the keywords, but wrong.
        choices: The right and the wrong ones in the prompt's order, if one of them is asked for by
            its number.
        none: The answer that says that the text holds none, which is right if there are no
            keywords; '' if the question does not allow it.
        like: A pattern of what would then look like an answer, for texts as `text.plain` leaves
            them; '' if that is unknown.
        owners: Whose each decoy is, in their order, if a denial may name it ("none; only red-fox
            has 4711").
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
        """Return the sha256 of all that is right and wrong.

        Empty fields do not enter, so that a later version with more fields gives the same digest.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        filled = {name: value for name, value in values.items() if value}
        return sha256(json.dumps(filled, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Item:
    """What one trial hides and asks.

    Attributes:
        needles: The first is the one for the cell's depth; the others may stand anywhere. () if
            nothing is hidden.
        question: The question.
        reference: What a right answer looks like.
        prologue, epilogue: Texts around the haystack, for example the braces of a JSON object, or
            examples. What is equal in all trials of a repeat is shared between them.
        answer_prefix: The start of an answer, given to the model if the settings say so.
        unique: Texts that must not stand in the haystack; None for needles, keywords and answer.
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

    If a source ends, for example a single document, it is used whole, and prompts are shorter than
    their length.

    Attributes:
        source: The source.
        unit: What a needle may not split, a name in `tokens.UNITS`. With 'sentence' prompts have
            exactly the wanted length; with the others the haystack ends with a whole unit.
    """

    source: Source
    unit: str = "line"


@dataclass(frozen=True, slots=True)
class ReadyPrompt:
    """A prompt that exists already.

    Attributes:
        messages: Role and text of each message.
        item: What is asked, and what is right; it hides nothing.
        depth: Where its answer stands, a share; None if that is unknown.
    """

    messages: tuple[tuple[str, str], ...]
    item: Item
    depth: float | None


class Task(metaclass=Checked):
    """Makes needles, a question and a reference for each trial.

    Override `item`, and what differs. It is built as `Task(**options)`; unknown options raise
    SettingsError. A dataclass whose fields are its options needs no constructor. Its options are
    those of `task_options`, and every setting of the group Task that its constructor names (needle,
    needles, question, answer, keywords, spread, diff, draw, language).

    Attributes:
        name: Its registered name.
        scorer: The scorer that it wants if the settings name none.
        scorer_options: The scorer's options, if the settings give no others.
        ready: Whether its prompts exist already, so that no haystack, template or depth is chosen
            for them.
        large_options: Its numeric options that are no counts of what it draws, but e.g. tokens of a
            haystack: they may be large.
    """

    name: str
    scorer: str
    scorer_options: Mapping[str, Any] = {}
    ready: bool = False
    large_options: frozenset[str] = frozenset()

    def anchor_tokens(self, repeat: int, seed: int) -> int | None:
        """Return the haystack tokens that a repeat's depths are shares of, in prompts of every
        length.

        None for each prompt's own.
        """
        return None

    @property
    def depthless(self) -> bool:
        """Return True if it asks about the whole text, so that one depth is enough."""
        return False

    def item(self, draw: Draw) -> Item:
        """Return the item of one trial: a pure function of the draw."""
        raise NotImplementedError

    def background(self, repeat: int, seed: int) -> Background | None:
        """Return the haystack that it brings for a repeat, or None for the settings' haystack.

        Equal ones are read and tokenised once.
        """
        return None

    def prompts(self) -> Sequence[ReadyPrompt]:
        """Return all prompts that exist already, in an order that never changes."""
        return ()

    def source(self) -> tuple[str, str]:
        """Return where these come from: a name, and a sha256."""
        return "", ""


def make_task(settings: Settings) -> Task:
    """Return the task, with the settings that it names.

    Raises SettingsError for settings that it lacks, and for numbers beyond all use.
    """
    # Settings name the tasks' types, so the import would be a circle.
    from needlemap.settings import settings_of

    kind = find_kind("tasks", settings.task, Task)
    is_chain = settings.spread == "chain-as-coded" and settings.task == "multi"
    if is_chain and settings.placement != "token":
        raise SettingsError(
            "--spread chain-as-coded is OpenCompass's way: give --placement token too."
        )
    options = dict(settings.task_options)
    if not kind.ready and kind.__module__.startswith("needlemap."):
        counts = {key: value for key, value in options.items() if key not in kind.large_options}
        _check_numbers(settings.task, counts)
    accepted = option_names(kind)
    for name in settings_of("Task"):
        if name in accepted:
            options.setdefault(name, getattr(settings, name))
    with in_words(settings):
        task: Task = kind(**options)
    return task


def _check_numbers(task: str, options: Mapping[str, Any]) -> None:
    """Raise SettingsError for a number that would be drawn for hours."""
    for name, value in options.items():
        if isinstance(value, int | float) and not -MOST_OPTION <= value <= MOST_OPTION:
            raise SettingsError(
                f"Option '{name}' of task {task} takes numbers up to {MOST_OPTION:,}, got "
                f"{str(value)[:_SHOWN]}."
            )


@contextmanager
def in_words(settings: Settings) -> Iterator[None]:
    """Raise what a task's own code raises as a SettingsError."""
    try:
        yield
    except NeedlemapError:
        raise
    except Exception as error:
        if isinstance(error, KeyError) and error.args == (settings.language,):
            raise no_wording(settings.task, settings.language) from error
        raise SettingsError(f"Task '{settings.task}' failed: {raised_by(error)}") from error


def no_wording(task: str, language: str) -> SettingsError:
    """Return the error of a task that has no words in a language."""
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
    """Return the depths, ascending, of `count` needles.

    The first stands at a depth, the rest uniformly in the span after it. span: as a share of the
    haystack; it ends with the haystack.

    >>> [round(depth, 2) for depth in behind(Random("x"), 0.5, 3, 1.0)]
    [0.5, 0.8, 0.82]
    >>> behind(Random("x"), 1.0, 2, 0.1)
    [1.0, 1.0]
    """
    width = min(span, 1 - depth)
    return [depth, *sorted(depth + width * random.random() for _ in range(count - 1))]


def anywhere(random: Random, count: int) -> list[float]:
    """Return the depths, ascending, of needles that stand anywhere."""
    return sorted(random.random() for _ in range(count))


def ordered(random: Random, pieces: list[Piece], order: Order) -> list[Piece]:
    """Return pieces in the order in which the text has them.

    >>> ordered(Random("x"), [1, 2, 3], "backward"), ordered(Random("z"), [1, 2, 3], "random")
    ([3, 2, 1], [1, 3, 2])
    """
    if order == "random":
        return random.sample(pieces, len(pieces))
    return pieces[::-1] if order == "backward" else pieces


def hidden(texts: Iterable[str], depths: Iterable[float]) -> tuple[Needle, ...]:
    """Return needles in the order given, of which only the first moves if a plan wants it to."""
    places = enumerate(zip(texts, depths, strict=True))
    return tuple(Needle(text, depth, still=number > 0) for number, (text, depth) in places)


def following(random: Random, texts: list[str], depth: float, span: float) -> list[Needle]:
    """Return needles in the order given, from a depth on. span: as for `behind`."""
    return list(hidden(texts, behind(random, depth, count=len(texts), span=span)))


def scattered(random: Random, texts: list[str]) -> list[Needle]:
    """Return needles in the order given, that stand anywhere."""
    depths = anywhere(random, len(texts))
    return [Needle(text, depth, still=True) for text, depth in zip(texts, depths, strict=True)]
