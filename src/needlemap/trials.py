"""From settings to trials: every prompt of a run, built but not asked. Same settings, same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from needlemap.collisions import collisions, hidden_words
from needlemap.framing import make_frame
from needlemap.grid import Cell, Grid
from needlemap.identity import prefix_hashes, settings_hash, trial_key
from needlemap.models.base import Traits
from needlemap.placement import Builder, Frame
from needlemap.plan.places import in_bin, places
from needlemap.prompts import Prompt
from needlemap.resolve import Resolved, make_builder, resolve
from needlemap.scorers.base import Scorer
from needlemap.settings import Settings
from needlemap.tasks.base import Item, Task
from needlemap.tokens import Tokenizer


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
    """All of a run but its answers: what the settings come to, and the trials, lengths outermost.

    haystacks: name and sha256 of each repeat's text. workers: how many prompts are asked at a time.
    """

    settings: Settings
    grid: Grid
    traits: Traits
    tokenizer: Tokenizer
    task: Task
    scorer: Scorer
    workers: int
    haystacks: tuple[tuple[str, str], ...]
    trials: tuple[Trial, ...]

    @property
    def tokens_asked(self) -> int:
        """Prompt tokens of all trials."""
        return sum(trial.prompt.tokens for trial in self.trials)


def prepare(settings: Settings) -> Experiment:
    """Resolve everything and build every prompt. Raises NeedlemapError for whatever the user can mend."""
    resolved = resolve(settings)
    haystacks: list[tuple[str, str]] = []
    trials: list[Trial] = []
    builder: Builder | None = None
    for number in range(settings.first_repeat, settings.first_repeat + settings.repeats):
        if builder is None or settings.order != "listed":
            builder = make_builder(resolved, number)
        haystacks.append((builder.haystack.name, builder.haystack.sha256))
        trials.extend(_Repeat(resolved, builder, number).trials())
    return Experiment(
        settings,
        resolved.grid,
        resolved.traits,
        resolved.tokenizer,
        resolved.task,
        resolved.scorer,
        resolved.workers,
        tuple(haystacks),
        tuple(trials),
    )


@dataclass(frozen=True, slots=True)
class _Built:
    """A prompt and what it was built from."""

    cell: Cell
    item: Item
    frame: Frame
    prompt: Prompt


class _Repeat:
    """One repeat of every cell: one haystack, one draw of values."""

    def __init__(self, resolved: Resolved, builder: Builder, number: int) -> None:
        self._resolved, self._builder, self._number = resolved, builder, number
        self._frames: dict[tuple[str, str], Frame] = {}

    def trials(self) -> Iterator[Trial]:
        """The trials, lengths outermost."""
        built = [self._built(cell, position) for cell, position in self._places()]
        haystack = self._builder.haystack
        stops = [each.prompt.haystack_tokens for each in built]
        hashes = prefix_hashes(haystack.text, stops)
        allowed = self._resolved.settings.collisions == "warn"
        hidden = [hidden_words(each.item, self._scored_words()) for each in built]
        words = (word for row in hidden for word in row)
        found = collisions(haystack, max(stops), words, allowed=allowed)
        shared = self._shared()
        for each, stop, row in zip(built, stops, hidden, strict=True):
            end = int(haystack.text.offsets[stop])
            asked = (each.cell.length_tokens, each.cell.depth)
            yield Trial(
                trial_key(shared, hashes[stop], each.frame, each.item, each.prompt, self._number, asked),
                each.cell,
                self._number,
                each.item,
                each.prompt,
                tuple(word for word in row if found.get(word, end) < end),
                haystack.repeated_from is not None and stop > haystack.repeated_from,
            )

    def _scored_words(self) -> list[str]:
        """Words that the scorer was told to look for; a plug-in's option may mean something else by it."""
        words = self._resolved.scorer.options.get("words")
        return [word for word in words if isinstance(word, str)] if isinstance(words, list) else []

    def _shared(self) -> str:
        resolved = self._resolved
        options, vocabulary = dict(resolved.scorer.options), resolved.tokenizer.fingerprint
        return settings_hash(
            resolved.settings, resolved.scorer.name, options, vocabulary, resolved.traits.weights
        )

    def _built(self, cell: Cell, position: int | None) -> _Built:
        """The prompt of a cell; in mode 'bins' at its own depth where no shared position fits."""
        item = self._item(cell, self._number)
        frame = self._frame(item.question, cell)
        prompt = self._builder.build(frame, item.needles, cell.length_tokens, position)
        if self._resolved.settings.mode == "bins" and not self._in_bin(prompt):
            prompt = self._builder.build(frame, item.needles, cell.length_tokens)
        prefix = self._resolved.settings.answer_prefix or self._resolved.template.answer_prefix
        prompt = replace(prompt, question=item.question, answer_prefix=prefix)
        return _Built(cell, item, frame, prompt)

    def _item(self, cell: Cell, number: int) -> Item:
        return self._resolved.task.item(cell, number, self._resolved.settings.seed)

    def _in_bin(self, prompt: Prompt) -> bool:
        needle = prompt.needles[0]
        return in_bin(self._resolved.grid, needle.meant, needle.realised, self._resolved.tolerance)

    def _places(self) -> list[tuple[Cell, int | None]]:
        """The cells to ask, with the first needle's position where the mode chooses it.

        A lattice's cells follow from haystack sizes, so they are those of the first draw in every repeat.
        """
        resolved = self._resolved
        mode, grid = resolved.settings.mode, resolved.grid
        sizes = []
        for length in grid.lengths:
            cell = Cell(length, grid.depths[0])
            item = self._item(cell, 0 if mode == "lattice" else self._number)
            sizes.append(
                self._builder.haystack_tokens(self._frame(item.question, cell), item.needles, length)
            )
        return places(mode, grid, sizes, self._builder.haystack.cuts, resolved.tolerance)

    def _frame(self, question: str, cell: Cell) -> Frame:
        """The frame of a question, made once; in mode 'cold' one of its own for each trial."""
        settings = self._resolved.settings
        salt = _salt(settings, cell, self._number) if settings.mode == "cold" else ""
        if (question, salt) not in self._frames:
            self._frames[question, salt] = make_frame(
                self._resolved.template,
                question,
                self._resolved.tokenizer,
                guide=settings.guide,
                question_first=settings.question_position == "start",
                answer_prefix=settings.answer_prefix,
                salt=salt,
                render=self._resolved.traits.render,
            )
        return self._frames[question, salt]


def _salt(settings: Settings, cell: Cell, repeat: int) -> str:
    """A first line that no other prompt of the run has."""
    text = f"{settings.seed}:{repeat}:{cell.length_tokens}:{cell.depth!r}"
    return f"Document {hashlib.sha256(text.encode()).hexdigest()[:16]}\n"
