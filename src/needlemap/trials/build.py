"""From settings to trials: every prompt of a run, built but not asked. Same settings, same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from needlemap.errors import SettingsError
from needlemap.haystacks.assembly import Haystack
from needlemap.haystacks.base import Parted
from needlemap.models.base import Traits
from needlemap.plan.places import in_bin, places
from needlemap.prompts.feeding import Feed
from needlemap.prompts.frame import Remembering, make_frame
from needlemap.prompts.placement import Builder, Frame
from needlemap.prompts.prompt import Prompt
from needlemap.scorers.base import Scorer
from needlemap.settings.grid import Cell, Grid
from needlemap.settings.settings import Settings, lender_of
from needlemap.tasks.base import Background, Draw, Item, Ready, Task, holds_nothing
from needlemap.tasks.single import WORDING
from needlemap.text.tokens import Tokenizer
from needlemap.trials.keys import asked_hash, asked_whole, prefix_hashes, scored_key
from needlemap.trials.leaks import (
    Held,
    collided,
    collisions,
    given_away,
    hidden_words,
    refuse_given_away,
    refuse_unheard,
)
from needlemap.trials.published import lent_prompts, place_wholes
from needlemap.trials.resolve import Resolved, make_background, make_builder, resolve

_LONGER = {"hf": "allow_beyond=true", "lmdeploy": "session_len={}"}  # options that take longer prompts
_WORDLESS = ("judge", "levenshtein", "exact", "first", "logprob")  # scorers that read no key words
TASKS_OWN = "{task}"  # as setting answer_prefix: the beginning that the task has for its answers


@dataclass(frozen=True, slots=True)
class Trial:
    """One prompt to ask. key: its identity; asked: that of its answer, however it is scored. collisions:
    texts that the haystack already held before the needle was hidden. haystack_repeated: whether documents
    come more than once in it. shared_tokens: what the prompt has in common with the one before it in its
    lane; None where the run's mode shares nothing."""

    key: str
    asked: str
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

    haystacks: name and sha256 of each repeat's text; of prompts that exist already, of their file. shared:
    hash of what all trials have in common. workers: how many prompts are asked at a time. notes: what a user
    should know before they are.
    """

    settings: Settings
    grid: Grid
    traits: Traits
    tokenizer: Tokenizer
    task: Task
    scorer: Scorer
    workers: int
    shared: str
    haystacks: tuple[tuple[str, str], ...]
    trials: tuple[Trial, ...]
    notes: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether its prompts exist already, and stand as they are."""
        return isinstance(self.task, Ready)

    @property
    def tokens_asked(self) -> int:
        """Prompt tokens of all trials, as lengths count them."""
        return sum(trial.prompt.tokens for trial in self.trials)

    @property
    def tokens_fed(self) -> int | None:
        """Prompt tokens of all trials as the model is fed them, where that is another vocabulary."""
        fed = sum(trial.prompt.asked_tokens for trial in self.trials)
        return fed if fed != self.tokens_asked else None

    @property
    def given_away(self) -> list[str]:
        """Questions that hold their own answers; those of prompts that exist already are as they are."""
        if self.ready:
            return []
        return given_away((trial.item for trial in self.trials), scored_words(self.scorer))


def prepare(settings: Settings, *, asked: bool = True) -> Experiment:
    """Resolve everything and build every prompt. Raises NeedlemapError for whatever the user can mend.

    asked: False where no model is going to be: none is imported, and `asked` and `key` of trials may differ.
    """
    resolved = resolve(settings, asked=asked)
    if (lender := lender_of(settings)) is not None:
        return _prepare_lent(resolved, prepare(lender, asked=False))
    if isinstance(resolved.task, Ready):
        return _prepare_ready(resolved, resolved.task)
    haystacks: list[tuple[str, str]] = []
    trials: list[Trial] = []
    known, ground = Remembering(resolved.tokenizer), None
    for number in range(settings.first_repeat, settings.first_repeat + settings.repeats):
        ground = _Ground.of(resolved, number, ground)
        haystack = ground.builder.haystack
        haystacks.append((haystack.name, haystack.sha256))
        trials.extend(_Repeat(resolved, ground, number, known).trials())
    experiment = Experiment(
        settings,
        resolved.grid,
        resolved.traits,
        resolved.tokenizer,
        resolved.task,
        resolved.scorer,
        resolved.workers,
        resolved.shared,
        tuple(haystacks),
        tuple(trials),
        (*beyond(resolved, trials), *_asked(resolved, trials), *_notes(resolved)),
    )
    _refuse_unheard(experiment)
    if settings.collisions != "warn":
        refuse_given_away(experiment.given_away)
    return experiment


def _asked(resolved: Resolved, trials: Sequence[Trial]) -> tuple[str, ...]:
    """What is known of how a model will be asked, before it is loaded."""
    traits, most = resolved.traits, resolved.settings.most_tokens
    if traits.window_bytes is None:
        return traits.notes
    size = traits.window_bytes * (max((trial.prompt.asked_tokens for trial in trials), default=0) + most)
    return (
        *traits.notes,
        f"sliding windows keep all tokens, up to {size / 1e9:,.2f} GB for the longest prompt; without room "
        f"for one and a half times that they keep the last ones, and copies of them where prompts part",
    )


def _notes(resolved: Resolved) -> tuple[str, ...]:
    """Which documents are read, and by what answers are scored where a right one may score low for its
    wording."""
    told = tuple(resolved.source.told()) if isinstance(resolved.source, Parted) else ()
    if resolved.settings.scorer != "auto" or resolved.scorer.name != WORDING:
        return told
    return (
        *told,
        "scored by wording (edit distance to the needle or --answer): a right answer in other words scores "
        "low. Say what a right answer must hold: --keywords WORD, or --answer with a piece of the needle",
    )


def _refuse_unheard(experiment: Experiment) -> None:
    """Raises SettingsError where a key word from the settings is looked for, and is in no right answer."""
    settings, words = experiment.settings, scored_words(experiment.scorer)
    if words or (settings.keywords and experiment.scorer.name not in _WORDLESS):
        refuse_unheard((trial.item for trial in experiment.trials), words)


def _prepare_ready(resolved: Resolved, task: Ready) -> Experiment:
    """The trials of prompts that exist already: each is a repeat of its own, by its number."""
    settings, wholes = resolved.settings, task.prompts()
    given = settings.answer_prefix
    prefixes = [whole.item.answer_prefix if given == TASKS_OWN else given for whole in wholes]
    found = place_wholes(resolved, wholes, prefixes)
    shared = resolved.shared
    trials = []
    for each in found.placed:
        known = shared + (each.prompt.ids_sha256 if resolved.feeds_counted else "")
        asked = asked_whole(known, each.prompt, each.whole.item, each.number, each.cell)
        key = scored_key(asked, resolved.scorer)
        trials.append(Trial(key, asked, each.cell, each.number, each.whole.item, each.prompt, (), False))
    parts = resolved.traits, resolved.tokenizer, resolved.task, resolved.scorer, resolved.workers, shared
    notes = (*found.notes, *beyond(resolved, trials), *_asked(resolved, trials))
    return Experiment(settings, found.grid, *parts, (task.source(),), tuple(trials), notes)


def _prepare_lent(resolved: Resolved, lent: Experiment) -> Experiment:
    """Another run's trials, asked of the settings' model. Raises SettingsError for one that takes no chat."""
    shared, trials = resolved.shared, list[Trial]()
    prompts = lent_prompts(resolved, [trial.prompt for trial in lent.trials], ready=lent.ready)
    for trial, prompt in zip(lent.trials, prompts, strict=True):
        asked = asked_whole(shared, prompt, trial.item, trial.repeat, trial.cell)
        key = scored_key(asked, resolved.scorer)
        trials.append(replace(trial, key=key, asked=asked, prompt=prompt))
    return replace(
        lent,
        settings=resolved.settings,
        traits=resolved.traits,
        scorer=resolved.scorer,
        workers=resolved.workers,
        shared=shared,
        trials=tuple(trials),
        notes=(*lent.notes, *beyond(resolved, trials)),
    )


@dataclass(frozen=True, slots=True)
class _Ground:
    """What a repeat's prompts stand on: a haystack, the builder over it, and what it holds. feed: makes the
    ids that the model sees."""

    background: Background | None
    builder: Builder
    held: Held
    feed: Feed | None

    @classmethod
    def of(cls, resolved: Resolved, number: int, before: _Ground | None) -> _Ground:
        """The ground of a repeat: the one before again where nothing in it would change."""
        background = make_background(resolved.settings, resolved.task, number)
        same = before is not None and before.background == background
        if before is not None and same and (background is not None or resolved.settings.order == "listed"):
            return before
        builder = make_builder(resolved, number, background)
        text = builder.haystack.text
        return cls(background, builder, Held(text), _feed(resolved, builder.haystack))


def _feed(resolved: Resolved, haystack: Haystack) -> Feed | None:
    """What makes the ids that the model sees, where they are known."""
    feeder = resolved.feeder or resolved.reader
    if feeder is None:
        return None
    own = feeder.counts and resolved.settings.joined != "tokens"
    return Feed(feeder, haystack.text, haystack.cuts if own else None)


@dataclass(frozen=True, slots=True)
class _Built:
    """A prompt and what it was built from."""

    cell: Cell
    item: Item
    frame: Frame
    prompt: Prompt


class _Repeat:
    """One repeat of every cell: one haystack, one draw of values."""

    def __init__(self, resolved: Resolved, ground: _Ground, number: int, known: Remembering) -> None:
        self._resolved, self._builder, self._held = resolved, ground.builder, ground.held
        self._number, self._known, self._feed = number, known, ground.feed
        self._frames: dict[tuple[str, ...], Frame] = {}

    def trials(self) -> Iterator[Trial]:
        """The trials, lengths outermost."""
        built = [self._built(cell, position) for cell, position in self._places()]
        haystack = self._builder.haystack
        stops = [each.prompt.haystack_tokens for each in built]
        hashes = prefix_hashes(haystack.text, stops)
        allowed = self._resolved.settings.collisions == "warn"
        hidden = [hidden_words(each.item, scored_words(self._resolved.scorer)) for each in built]
        words = (word for row in hidden for word in row)
        found = collisions(self._held, max(stops), words)
        shared = self._resolved.shared
        for each, stop, row in zip(built, stops, hidden, strict=True):
            end = int(haystack.text.offsets[stop])
            held = tuple(word for word in row if found.get(word, end) < end)
            if held and not allowed:
                raise collided(haystack.name, held[0], found[held[0]])
            wanted = (each.cell.length_tokens, each.cell.depth)
            known = shared + (each.prompt.ids_sha256 if self._resolved.feeds_counted else "")
            asked = asked_hash(known, hashes[stop], each.frame, each.item, each.prompt, self._number, wanted)
            yield Trial(
                scored_key(asked, self._resolved.scorer),
                asked,
                each.cell,
                self._number,
                each.item,
                each.prompt,
                held,
                haystack.repeated_from is not None and stop > haystack.repeated_from,
            )

    def _built(self, cell: Cell, position: int | None) -> _Built:
        """The prompt of a cell; in mode 'bins' at its own depth where no shared position fits."""
        settings = self._resolved.settings
        held = self._held.within(cell.length_tokens)
        item = self._resolved.task.item(self._draw(cell, self._number, held))
        frame = self._frame(item, cell)
        prompt = self._builder.build(frame, item.needles, cell.length_tokens, position)
        if settings.mode == "bins" and not self._in_bin(prompt):
            prompt = self._builder.build(frame, item.needles, cell.length_tokens)
        prefix = self._answer_prefix(item) or self._resolved.template.answer_prefix
        prompt = replace(prompt, question=item.question, answer_prefix=prefix)
        prompt = self._feed.fed(prompt) if self._feed else prompt
        return _Built(cell, item, frame, prompt)

    def _draw(self, cell: Cell, number: int, holds: Callable[[str], bool]) -> Draw:
        settings = self._resolved.settings
        room = cell.length_tokens - settings.reserve
        return Draw(cell, number, settings.seed, holds, self._tokens, room)

    def _tokens(self, text: str) -> int:
        return self._resolved.tokenizer.count(text.encode())

    def _answer_prefix(self, item: Item) -> str:
        """The answer's beginning that the settings ask for: a text, or the task's own."""
        given = self._resolved.settings.answer_prefix
        return item.answer_prefix if given == TASKS_OWN else given

    def _in_bin(self, prompt: Prompt) -> bool:
        if not prompt.needles:
            return True
        needle = prompt.needles[0]
        return in_bin(self._resolved.grid, needle.meant, needle.realised, self._resolved.tolerance)

    def _places(self) -> list[tuple[Cell, int | None]]:
        """The cells to ask, with the first needle's position where the mode chooses it.

        A lattice's cells follow from haystack sizes, so they are those of the first draw in every repeat,
        whatever its haystack holds.
        """
        resolved = self._resolved
        mode, grid = resolved.settings.mode, resolved.grid
        sizes = []
        for length in grid.lengths:
            cell = Cell(length, grid.depths[0])
            number = 0 if mode == "lattice" else self._number
            item = resolved.task.item(self._draw(cell, number, holds_nothing))
            sizes.append(self._builder.haystack_tokens(self._frame(item, cell), item.needles, length))
        return places(mode, grid, sizes, self._builder.haystack.cuts, resolved.tolerance)

    def _frame(self, item: Item, cell: Cell) -> Frame:
        """The frame of an item's texts, made once; in mode 'cold' one of its own for each trial."""
        settings, prefix = self._resolved.settings, self._answer_prefix(item)
        salt = _salt(settings, cell, self._number) if settings.mode == "cold" else ""
        texts = (item.question, item.prologue, item.epilogue, prefix, salt)
        if texts not in self._frames:
            frame = make_frame(
                self._resolved.template,
                item.question,
                self._known,
                guide=settings.guide,
                question_first=settings.question_position == "start",
                answer_prefix=prefix,
                prologue=item.prologue,
                epilogue=item.epilogue,
                salt=salt,
                render=None if self._resolved.feeder else self._resolved.traits.render,
            )
            self._frames[texts] = self._feed.framed(frame) if self._feed else frame
        return self._frames[texts]


def beyond(resolved: Resolved, trials: Sequence[Trial]) -> tuple[str, ...]:
    """What to say of prompts that the model has no positions for. Raises SettingsError if all are such."""
    most, room = resolved.settings.most_tokens, resolved.traits.positions
    sizes = {trial.cell.length_tokens: trial.prompt.asked_tokens + most for trial in trials}
    long = sorted(length for length, size in sizes.items() if room is not None and size > room)
    if not long:
        return ()
    fitting = sorted(set(sizes) - set(long))
    advice = f"Use --lengths up to {max(fitting):,}." if fitting else "Use shorter --lengths."
    option = _LONGER.get(resolved.settings.backend, "").format(max(sizes.values()))
    said = (
        f"'{resolved.settings.model}' has {room:,} positions, and a prompt of length {long[-1]:,} takes "
        f"{sizes[long[-1]]:,} with its answer: {len(long)} of {len(sizes)} lengths are refused. {advice}"
        f"{f' To try all the same: --model-options {option}' if option else ''}"
    )
    if not fitting:
        raise SettingsError(said)
    return (said,)


def scored_words(scorer: Scorer) -> list[str]:
    """Words that the scorer was told to look for; a plug-in's option may mean something else by it."""
    words = scorer.options.get("words")
    return [word for word in words if isinstance(word, str)] if isinstance(words, list) else []


def _salt(settings: Settings, cell: Cell, repeat: int) -> str:
    """A first line that no other prompt of the run has."""
    text = f"{settings.seed}:{repeat}:{cell.length_tokens}:{cell.depth!r}"
    return f"Document {hashlib.sha256(text.encode()).hexdigest()[:16]}\n"
