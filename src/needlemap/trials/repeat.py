"""Make the trials of one repeat: its haystack, the prompt of every cell, and their keys."""

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
from needlemap.tasks import Background, Draw, Item, Needle, holds_nothing, in_words
from needlemap.trials import Trial
from needlemap.trials.leaks import Held, collision_error, collisions, hidden_words
from needlemap.trials.resolve import Resolved, make_builder

# As setting answer_prefix: the beginning that the task has for its answers.
TASKS_OWN = "{task}"


def _feed(resolved: Resolved, builder: PromptBuilder) -> Feed | None:
    """Return what makes the ids that the model sees, or None if they are not known."""
    feeder, haystack = resolved.feeder or resolved.reader, builder.haystack
    if feeder is None:
        return None
    if not feeder.counts or resolved.settings.joined == "tokens":
        return Feed(feeder, haystack.text)
    adds_up = builder.adds_up if feeder.tokenizer is resolved.tokenizer else None
    return Feed(feeder, haystack.text, haystack.cuts, adds_up)


@dataclass(frozen=True, slots=True)
class Repeat:
    """One repeat of every cell: one haystack, one draw of values.

    Attributes:
        resolved: The settings of the family.
        number: The number of the repeat.
        index: Tokenises a text, once each.
        background: The haystack that the task brings along; None for the settings'.
        builder: Makes prompts over the haystack.
        held: What the haystack holds.
        feed: Makes the ids that the model sees; None if they are not known.
        frames: The frames so far, by their texts.
    """

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
        """Return a repeat, over the haystack of the one before if nothing in it would change."""
        with in_words(resolved.settings):
            background = resolved.task.background(number, resolved.settings.seed)
        # A haystack of the settings is the same in each repeat only if its order is fixed.
        is_fixed = background is not None or resolved.settings.order == "listed"
        if before is not None and before.background == background and is_fixed:
            return replace(before, resolved=resolved, number=number, frames={})
        builder = make_builder(resolved, number, background)
        return cls(
            resolved,
            number,
            index=index,
            background=background,
            builder=builder,
            held=Held(builder.haystack.text),
            feed=_feed(resolved, builder),
            frames={},
        )

    def trials(self, cells: Iterable[Cell] | None = None) -> Iterator[Trial]:
        """Yield the trials, lengths outermost. cells: only these; None for all."""
        repeated_from = self.builder.haystack.repeated_from
        places = self._places() if cells is None else [(cell, None) for cell in cells]
        trials = [self._trial(cell, position) for cell, position in places]
        for trial, words in zip(trials, self._collisions(trials), strict=True):
            tokens = trial.prompt.haystack_tokens
            is_repeated = repeated_from is not None and tokens > repeated_from
            yield replace(trial, collisions=words, haystack_repeated=is_repeated)

    def _collisions(self, trials: Sequence[Trial]) -> Iterator[tuple[str, ...]]:
        """Yield, for each trial, the words wanted in its answer that its haystack already holds.

        Raise SettingsError for the first of them, unless the settings only warn.
        """
        haystack = self.builder.haystack
        scorer_words = scored_words(self.resolved.scorer)
        words_by_trial = [hidden_words(trial.item, scorer_words) for trial in trials]
        all_words = (word for words in words_by_trial for word in words)
        longest = max(trial.prompt.haystack_tokens for trial in trials)
        # All prompts are over the same haystack, so it is searched once, for the longest.
        first_byte = collisions(self.held, longest, all_words)

        for trial, words in zip(trials, words_by_trial, strict=True):
            end = int(haystack.text.offsets[trial.prompt.haystack_tokens])
            colliding_words = tuple(word for word in words if first_byte.get(word, end) < end)
            if colliding_words and self.resolved.settings.collisions != "warn":
                word = colliding_words[0]
                raise collision_error(haystack.name, word, first_byte[word])
            yield colliding_words

    def _trial(self, cell: Cell, position: int | None) -> Trial:
        """Return the trial of a cell.

        position: of the first needle, which several cells share; in mode 'bins' its own depth
        decides if that does not fit. Raises TimeUp once the command's time has ended.
        """
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
        """Return a prompt as a trial, with the item's other prompts that its scorer reads."""
        beside = {
            role: self._finished_prompt(self._other_prompt(role, frame, item, cell), item)
            for role in self.resolved.scorer.passes[1:]
        }
        finished = self._finished_prompt(prompt, item)
        return Trial.of(self.resolved.keys, cell, self.number, item, finished, beside)

    def _finished_prompt(self, prompt: Prompt, item: Item) -> Prompt:
        """Return a prompt with its question, its answer's beginning and its ids."""
        prefix = self._answer_prefix(item) or self.resolved.template.answer_prefix
        prompt = replace(prompt, question=item.question, answer_prefix=prefix)
        return self.feed.fed(prompt) if self.feed else prompt

    def _other_prompt(self, role: Pass, frame: Frame, item: Item, cell: Cell) -> Prompt:
        """Return another prompt of an item, for scorers that read how likely its answer is there.

        In the role 'oracle' it has the needles and no haystack, in other roles the haystack without
        them. Raises SettingsError for an item that hides nothing.
        """
        right_needles, wrong_needles = list[Needle](), list[Needle]()
        for needle in item.needles:
            if needle.wrong or _is_decoy(needle.text, item):
                wrong_needles.append(needle)
            else:
                right_needles.append(needle)
        if not right_needles:
            raise SettingsError(
                f"Scorer '{self.resolved.scorer.name}' leaves the needle out of a prompt, and task "
                f"'{self.resolved.settings.task}' hides none. Take a task that does, as --task "
                "single."
            )
        if role == "oracle":
            return self.builder.prompt_without_haystack(frame, right_needles)
        return self.builder.build(frame, wrong_needles, cell.length_tokens)

    def _draw(self, cell: Cell, number: int, holds: Callable[[str], bool]) -> Draw:
        settings = self.resolved.settings
        room = cell.length_tokens - settings.reserve
        return Draw(cell, number, settings.seed, holds, self._tokens, room)

    def _tokens(self, text: str) -> int:
        return self.resolved.tokenizer.count(text.encode())

    def _answer_prefix(self, item: Item) -> str:
        """Return the answer's beginning that the settings ask for: a text, or the task's own."""
        given = self.resolved.settings.answer_prefix
        return item.answer_prefix if given == TASKS_OWN else given

    def _in_bin(self, prompt: Prompt) -> bool:
        """Return True if the first needle is in its cell's bin.

        If it is at a depth of the task's own, which has no bin, or if nothing is hidden, return
        True.
        """
        grid, needles = self.resolved.grid, prompt.needles
        if not needles or needles[0].meant not in grid.depths:
            return True
        return in_bin(grid, needles[0].meant, needles[0].realised)

    def _places(self) -> list[tuple[Cell, int | None]]:
        """Return the cells to ask, with the first needle's position if the mode chooses it."""
        resolved = self.resolved
        mode, grid = resolved.settings.mode, resolved.grid
        sizes = []
        for length in grid.lengths:
            cell = Cell(length, grid.depths[0])
            with in_words(resolved.settings):
                item = resolved.task.item(self._draw(cell, self.number, holds_nothing))
            frame = self._frame(item, cell)
            sizes.append(self.builder.haystack_tokens(frame, item.needles, length))
        return places(mode, grid, sizes, self.builder.haystack.cuts)

    def _frame(self, item: Item, cell: Cell) -> Frame:
        """Return the frame of an item's texts, made once; in mode 'cold' each trial has its own."""
        settings = self.resolved.settings
        prefix = self._answer_prefix(item)
        salt = _salt_line(settings, cell, self.number) if settings.mode == "cold" else ""
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
    """Return True if a needle holds a wrong answer and no right one."""
    reference = item.reference
    holds_decoy = any(word in text for word in reference.decoys)
    holds_keyword = any(word in text for word in reference.keywords)
    return holds_decoy and not holds_keyword


def scored_words(scorer: Scorer) -> list[str]:
    """Return the words that the scorer's options tell it to look for."""
    words = scorer.options.get("words")
    # A plug-in's option of that name may be anything.
    if not isinstance(words, list):
        return []
    return [word for word in words if isinstance(word, str)]


def _salt_line(settings: Settings, cell: Cell, repeat: int) -> str:
    """Return a first line that no other prompt of the run has."""
    text = f"{settings.seed}:{repeat}:{cell.length_tokens}:{cell.depth!r}"
    return f"Document {hashlib.sha256(text.encode()).hexdigest()[:16]}\n"
