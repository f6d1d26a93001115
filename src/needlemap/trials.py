"""From settings to trials: every prompt of a run, built but not asked. Same settings, same bytes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from needlemap.errors import HaystackError
from needlemap.framing import make_frame
from needlemap.grid import Cell, Grid, make_grid
from needlemap.haystacks.assembly import Haystack, assemble
from needlemap.haystacks.base import Source
from needlemap.identity import prefix_hashes, settings_hash, trial_key
from needlemap.models.base import Traits
from needlemap.placement import Builder, Frame
from needlemap.plan.places import in_bin, places
from needlemap.prompts import Prompt
from needlemap.resolve import (
    load_tokenizer,
    make_builder,
    make_scorer,
    make_source,
    make_task,
    make_template,
    model_traits,
)
from needlemap.scorers.base import Scorer
from needlemap.settings import Settings
from needlemap.tasks.base import Item, Task
from needlemap.templates import Template
from needlemap.tokens import Tokenizer

_DIGITS = {"none": None, "round": 0, "truncate": -1}


@dataclass(frozen=True, slots=True)
class Trial:
    """One prompt to ask. key: its identity. collisions: texts that the haystack already held before the
    needle was hidden. haystack_repeated: whether documents come more than once in it. shared_tokens: what the
    prompt has in common with the one before it in its lane; None where the run's mode shares nothing."""

    key: str
    cell: Cell
    repeat: int
    item: Item
    prompt: Prompt
    collisions: tuple[str, ...]
    haystack_repeated: bool
    shared_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Experiment:
    """All of a run but its answers: what was resolved from the settings, and the trials, lengths outermost.

    haystacks: name and sha256 of each repeat's text. traits: what the model takes.
    """

    settings: Settings
    grid: Grid
    tokenizer: Tokenizer
    task: Task
    scorer: Scorer
    template: Template
    haystacks: tuple[tuple[str, str], ...]
    trials: tuple[Trial, ...]
    traits: Traits

    @property
    def workers(self) -> int:
        """How many prompts are asked at a time."""
        return 1 if self.traits.serial else self.settings.concurrency

    @property
    def tokens_asked(self) -> int:
        """Prompt tokens of all trials."""
        return sum(trial.prompt.tokens for trial in self.trials)


def prepare(settings: Settings) -> Experiment:
    """Resolve everything and build every prompt. Raises NeedlemapError for whatever the user can mend."""
    grid = make_grid(
        settings.lengths,
        settings.depths,
        ends=settings.sigmoid_ends,
        depth_digits=_DIGITS[settings.depth_rounding],
    )
    traits = model_traits(settings)
    tokenizer, task = load_tokenizer(settings, traits), make_task(settings)
    scorer, template = make_scorer(settings, task, traits), make_template(settings, traits)
    source = make_source(settings)
    options, vocabulary = dict(scorer.options), tokenizer.fingerprint
    shared = settings_hash(settings, scorer.name, options, vocabulary, traits.weights)
    haystacks: list[tuple[str, str]] = []
    trials: list[Trial] = []
    builder: Builder | None = None
    for repeat in range(settings.first_repeat, settings.first_repeat + settings.repeats):
        if builder is None or settings.order != "listed":
            haystack = _haystack(settings, source, tokenizer, max(grid.lengths), repeat)
            builder = make_builder(settings, haystack, tokenizer, ids=traits.render is not None)
        haystacks.append((haystack.name, haystack.sha256))
        trials.extend(_trials(settings, grid, builder, tokenizer, task, template, shared, repeat, traits))
    return Experiment(
        settings, grid, tokenizer, task, scorer, template, tuple(haystacks), tuple(trials), traits
    )


def _haystack(
    settings: Settings, source: Source, tokenizer: Tokenizer, longest: int, repeat: int
) -> Haystack:
    return assemble(
        source,
        tokenizer,
        max(1, longest - settings.reserve),
        order=settings.order,
        joined=settings.joined,
        seed=settings.seed,
        repeat=repeat,
        repeat_allowed=settings.haystack_repeat,
    )


def _trials(
    settings: Settings,
    grid: Grid,
    builder: Builder,
    tokenizer: Tokenizer,
    task: Task,
    template: Template,
    shared: str,
    repeat: int,
    traits: Traits,
) -> Iterator[Trial]:
    frames = _Frames(settings, template, tokenizer, traits)
    built: list[tuple[Cell, Item, Frame, Prompt]] = []
    for cell, position in _places(settings, grid, builder, task, frames, repeat):
        item = task.item(cell, repeat, settings.seed)
        frame = frames.frame(item.question, cell, repeat)
        prompt = builder.build(frame, item.needles, cell.length_tokens, position)
        if settings.mode == "bins" and not _in_bin(settings, grid, prompt):
            prompt = builder.build(frame, item.needles, cell.length_tokens)
        built.append((cell, item, frame, replace(prompt, question=item.question)))
    text = builder.haystack.text
    hashes = prefix_hashes(text, [prompt.haystack_tokens for *_, prompt in built])
    longest = max(prompt.haystack_tokens for *_, prompt in built)
    found = _collisions(settings, builder.haystack, longest, [item for _, item, _, _ in built])
    repeated = builder.haystack.repeated_from
    for cell, item, frame, prompt in built:
        stop = prompt.haystack_tokens
        yield Trial(
            trial_key(shared, hashes[stop], frame, item, prompt, repeat, (cell.length_tokens, cell.depth)),
            cell,
            repeat,
            item,
            prompt,
            tuple(word for word in _words(item) if found.get(word, len(text.data)) < int(text.offsets[stop])),
            repeated is not None and stop > repeated,
        )


class _Frames:
    """The frames of one repeat, each made once."""

    def __init__(self, settings: Settings, template: Template, tokenizer: Tokenizer, traits: Traits) -> None:
        self._settings, self._template = settings, template
        self._tokenizer, self._traits = tokenizer, traits
        self._made: dict[tuple[str, str], Frame] = {}

    def frame(self, question: str, cell: Cell, repeat: int) -> Frame:
        """The frame of a question; in mode 'cold' one of its own for each trial."""
        settings = self._settings
        salt = _salt(settings, cell, repeat) if settings.mode == "cold" else ""
        if (question, salt) not in self._made:
            self._made[question, salt] = make_frame(
                self._template,
                question,
                self._tokenizer,
                guide=settings.guide,
                question_first=settings.question_position == "start",
                answer_prefix=settings.answer_prefix,
                salt=salt,
                render=self._traits.render,
            )
        return self._made[question, salt]


def _places(
    settings: Settings, grid: Grid, builder: Builder, task: Task, frames: _Frames, repeat: int
) -> list[tuple[Cell, int | None]]:
    """The cells to ask, with the first needle's position where the mode chooses it.

    A lattice's cells follow from haystack sizes, so they are those of the first draw in every repeat.
    """
    drawn = 0 if settings.mode == "lattice" else repeat
    sizes = []
    for length in grid.lengths:
        cell = Cell(length, grid.depths[0])
        item = task.item(cell, drawn, settings.seed)
        frame = frames.frame(item.question, cell, drawn)
        sizes.append(builder.haystack_tokens(frame, item.needles, length))
    return places(settings.mode, grid, sizes, builder.haystack.cuts, _tolerance(settings))


def _in_bin(settings: Settings, grid: Grid, prompt: Prompt) -> bool:
    needle = prompt.needles[0]
    return in_bin(grid, needle.meant, needle.realised, _tolerance(settings))


def _tolerance(settings: Settings) -> float | None:
    return None if settings.bin_tolerance is None else settings.bin_tolerance / 100


def _salt(settings: Settings, cell: Cell, repeat: int) -> str:
    """A first line that no other prompt of the run has."""
    text = f"{settings.seed}:{repeat}:{cell.length_tokens}:{cell.depth!r}"
    return f"Document {hashlib.sha256(text.encode()).hexdigest()[:16]}\n"


def _words(item: Item) -> tuple[str, ...]:
    """What must not stand in the haystack: needles, keywords, and the answer."""
    texts = [needle.text.strip() for needle in item.needles]
    return tuple(dict.fromkeys([*texts, *item.reference.keywords, item.reference.answer.strip()]))


def _collisions(settings: Settings, haystack: Haystack, longest: int, items: list[Item]) -> dict[str, int]:
    """The byte where each word first occurs in the longest prompt's haystack, in any case; an error unless
    allowed."""
    text = bytes(haystack.text.span(0, longest).data).decode("utf-8", "replace")
    lowered, found = text.lower(), {}
    for word in dict.fromkeys(word for item in items for word in _words(item)):
        if word and word.lower() in lowered:
            match = re.search(re.escape(word), text, re.IGNORECASE)
            found[word] = len(text[: match.start()].encode()) if match else 0
    if found and settings.collisions == "error":
        word, place = next(iter(found.items()))
        raise HaystackError(
            f"The haystack '{haystack.name}' already holds '{word}' (byte {place}), so an answer could come "
            f"from there. Change the needle or the haystack, or allow it with --collisions warn."
        )
    return found
