"""One repeat of a run: its haystack, the prompt of every cell over it, and the trials'
keys."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from needlemap.deadline import seconds_left
from needlemap.errors import SettingsError
from needlemap.grid import Cell
from needlemap.plan.cover import in_bin, places
from needlemap.prompts import Prompt
from needlemap.prompts.feeding import Feed
from needlemap.prompts.placement import Frame, PromptBuilder
from needlemap.prompts.templates import Index, make_frame
from needlemap.scorers import Pass, Scorer
from needlemap.settings import Settings
from needlemap.tasks import Background, Draw, Item, holds_nothing, in_words
from needlemap.trials import Trial
from needlemap.trials.leaks import Held, collided, collisions, hidden_words
from needlemap.trials.resolve import Resolved, make_builder

TASKS_OWN = "{task}"  # as setting answer_prefix: the beginning that the task has for its answers


def _feed(resolved: Resolved, builder: PromptBuilder) -> Feed | None:
    """What makes the ids that the model sees, where they are known."""
    feeder, haystack = resolved.feeder or resolved.reader, builder.haystack
    if feeder is None:
        return None
    if not feeder.counts or resolved.settings.joined == "tokens":
        return Feed(feeder, haystack.text)
    known = builder.adds_up if feeder.tokenizer is resolved.tokenizer else None
    return Feed(feeder, haystack.text, haystack.cuts, known)


@dataclass(frozen=True, slots=True)
class Repeat:
    """One repeat of every cell: one haystack, one draw of values. builder: makes prompts over the
    haystack. held: what that holds. feed: makes the ids that the model sees. frames: made so far,
    by their
    texts."""

    resolved: Resolved
    number: int
    index: Index
    background: Background | None
    builder: PromptBuilder
    held: Held
    feed: Feed | None
    frames: dict[tuple[str, ...], Frame]

    @classmethod
    def of(cls, resolved: Resolved, number: int, index: Index, before: Repeat | None) -> Repeat:
        """A repeat, over the haystack of the one before where nothing in it would change."""
        with in_words(resolved.settings):
            background = resolved.task.background(number, resolved.settings.seed)
        same = before is not None and before.background == background
        if (
            before is not None
            and same
            and (background is not None or resolved.settings.order == "listed")
        ):
            return replace(before, resolved=resolved, number=number, frames={})
        builder = make_builder(resolved, number, background)
        held, feed = Held(builder.haystack.text), _feed(resolved, builder)
        return cls(resolved, number, index, background, builder, held, feed, {})

    def trials(self, cells: Iterable[Cell] | None = None) -> Iterator[Trial]:
        """The trials, lengths outermost; of these cells only where some are given."""
        first = self.builder.haystack.repeated_from
        places = self._places() if cells is None else [(cell, None) for cell in cells]
        trials = [self._trial(cell, position) for cell, position in places]
        for trial, held in zip(trials, self._collisions(trials), strict=True):
            repeated = first is not None and trial.prompt.haystack_tokens > first
            yield replace(trial, collisions=held, haystack_repeated=repeated)

    def _collisions(self, trials: Sequence[Trial]) -> Iterator[tuple[str, ...]]:
        """Of each prompt the words looked for in its answer that its haystack already holds.

        Raises SettingsError for one, where the settings do not only warn.
        """
        haystack, scorer = self.builder.haystack, self.resolved.scorer
        hidden = [hidden_words(each.item, scored_words(scorer)) for each in trials]
        most = max(each.prompt.haystack_tokens for each in trials)
        found = collisions(self.held, most, (word for row in hidden for word in row))
        for each, row in zip(trials, hidden, strict=True):
            end = int(haystack.text.offsets[each.prompt.haystack_tokens])
            held = tuple(word for word in row if found.get(word, end) < end)
            if held and self.resolved.settings.collisions != "warn":
                raise collided(haystack.name, held[0], found[held[0]])
            yield held

    def _trial(self, cell: Cell, position: int | None) -> Trial:
        """The trial of a cell; in mode 'bins' at its own depth where no shared position fits.
        Raises TimeUp where the command's time has ended."""
        seconds_left()
        settings = self.resolved.settings
        held = self.held.within(cell.length_tokens)
        with in_words(settings):
            item = self.resolved.task.item(self._draw(cell, self.number, held))
        frame = self._frame(item, cell)
        if item.needles and item.needles[0].still:
            position = None
        prompt = self.builder.build(frame, item.needles, cell.length_tokens, position)
        if settings.mode == "bins" and not self._in_bin(prompt):
            prompt = self.builder.build(frame, item.needles, cell.length_tokens)
        return self._make_trial(cell, item, prompt, frame)

    def _make_trial(self, cell: Cell, item: Item, prompt: Prompt, frame: Frame) -> Trial:
        """A prompt as a trial, with the item's other prompts that its scorer reads."""
        beside = {
            role: self._finished(self._beside(role, frame, item, cell), item)
            for role in self.resolved.scorer.passes[1:]
        }
        finished = self._finished(prompt, item)
        return Trial.of(self.resolved.keys, cell, self.number, item, finished, beside)

    def _finished(self, prompt: Prompt, item: Item) -> Prompt:
        """A prompt with its question, its answer's beginning and its ids."""
        prefix = self._answer_prefix(item) or self.resolved.template.answer_prefix
        prompt = replace(prompt, question=item.question, answer_prefix=prefix)
        return self.feed.fed(prompt) if self.feed else prompt

    def _beside(self, role: Pass, frame: Frame, item: Item, cell: Cell) -> Prompt:
        """Another prompt of an item, for scorers that read how likely its answer is there.
        Raises SettingsError for an item that hides nothing."""
        hidden = [each for each in item.needles if not (each.wrong or _is_decoy(each.text, item))]
        if not hidden:
            raise SettingsError(
                f"Scorer '{self.resolved.scorer.name}' leaves the needle out of a prompt, and task "
                f"'{self.resolved.settings.task}' hides none. Take a task that does, as --task "
                f"single."
            )
        if role == "oracle":
            return self.builder.alone(frame, hidden)
        rest = [needle for needle in item.needles if needle not in hidden]
        return self.builder.build(frame, rest, cell.length_tokens)

    def _draw(self, cell: Cell, number: int, holds: Callable[[str], bool]) -> Draw:
        settings = self.resolved.settings
        room = cell.length_tokens - settings.reserve
        return Draw(cell, number, settings.seed, holds, self._tokens, room)

    def _tokens(self, text: str) -> int:
        return self.resolved.tokenizer.count(text.encode())

    def _answer_prefix(self, item: Item) -> str:
        """The answer's beginning that the settings ask for: a text, or the task's own."""
        given = self.resolved.settings.answer_prefix
        return item.answer_prefix if given == TASKS_OWN else given

    def _in_bin(self, prompt: Prompt) -> bool:
        """Whether the first needle is in its cell's bin; one at a depth of the task's own has
        none."""
        grid, needles = self.resolved.grid, prompt.needles
        if not needles or needles[0].meant not in grid.depths:
            return True
        return in_bin(grid, needles[0].meant, needles[0].realised)

    def _places(self) -> list[tuple[Cell, int | None]]:
        """The cells to ask, with the first needle's position where the mode chooses it."""
        resolved = self.resolved
        mode, grid = resolved.settings.mode, resolved.grid
        sizes = []
        for length in grid.lengths:
            cell = Cell(length, grid.depths[0])
            with in_words(resolved.settings):
                item = resolved.task.item(self._draw(cell, self.number, holds_nothing))
            sizes.append(
                self.builder.haystack_tokens(self._frame(item, cell), item.needles, length)
            )
        return places(mode, grid, sizes, self.builder.haystack.cuts)

    def _frame(self, item: Item, cell: Cell) -> Frame:
        """The frame of an item's texts, made once; in mode 'cold' one of its own for each
        trial."""
        settings, prefix = self.resolved.settings, self._answer_prefix(item)
        salt = _salt(settings, cell, self.number) if settings.mode == "cold" else ""
        texts = (item.question, item.prologue, item.epilogue, prefix, salt)
        if texts not in self.frames:
            frame = make_frame(
                self.resolved.template,
                item.question,
                self.index,
                guide=settings.guide,
                question_first=settings.question_position == "start",
                answer_prefix=prefix,
                prologue=item.prologue,
                epilogue=item.epilogue,
                salt=salt,
                render=None if self.resolved.feeder else self.resolved.traits.render,
            )
            self.frames[texts] = self.feed.framed(frame) if self.feed else frame
        return self.frames[texts]


def _is_decoy(text: str, item: Item) -> bool:
    """Whether a needle says something of another kind than what is asked for."""
    reference = item.reference
    held = (any(word in text for word in words) for words in (reference.decoys, reference.keywords))
    wrong, right = held
    return wrong and not right


def scored_words(scorer: Scorer) -> list[str]:
    """Words that the scorer was told to look for; a plug-in's option may mean something else
    by it."""
    words = scorer.options.get("words")
    return [word for word in words if isinstance(word, str)] if isinstance(words, list) else []


def _salt(settings: Settings, cell: Cell, repeat: int) -> str:
    """A first line that no other prompt of the run has."""
    text = f"{settings.seed}:{repeat}:{cell.length_tokens}:{cell.depth!r}"
    return f"Document {hashlib.sha256(text.encode()).hexdigest()[:16]}\n"
