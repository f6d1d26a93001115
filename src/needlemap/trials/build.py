"""From settings to trials: every prompt of a run, built but not asked. Same settings, same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from needlemap.errors import SettingsError
from needlemap.prompts.templates import Remembering
from needlemap.settings.grid import Grid
from needlemap.settings.settings import Settings, lender_of
from needlemap.tasks import Task
from needlemap.tasks.single import WORDING
from needlemap.trials.leaks import given_away, refuse_given_away, refuse_unheard
from needlemap.trials.published import lent_prompts, place_wholes
from needlemap.trials.repeat import TASKS_OWN, Ground, Repeat, Trial, ask_twice, scored_words, share_prompts
from needlemap.trials.resolve import Resolved, resolve

_LONGER = {"hf": "allow_beyond=true", "lmdeploy": "session_len={}"}  # options that take longer prompts
_WORDLESS = ("judge", "levenshtein", "exact", "first", "logprob")  # scorers that read no key words


@dataclass(frozen=True, slots=True)
class Experiment(Resolved):
    """All of a run but its answers: what the settings come to, and the trials, lengths outermost.

    haystacks: name and sha256 of each repeat's text; of prompts that exist already, of their file. notes:
    what a user should know before they are asked.
    """

    haystacks: tuple[tuple[str, str], ...] = ()
    trials: tuple[Trial, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, resolved: Resolved, trials: Iterable[Trial], notes: Sequence[str], **more: Any) -> Experiment:
        """What was resolved with its trials, each prompt once, and a note on those too long for the model."""
        known = {each.name: getattr(resolved, each.name) for each in fields(Resolved)}
        trials = share_prompts(trials)
        trials += ask_twice(trials, resolved.settings.ask_twice, resolved.keys)
        said = (*notes, *beyond(resolved, trials), *_asked(resolved, trials))
        return cls(**{**known, "trials": tuple(trials), "notes": said, **more})

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
    if resolved.task.ready:
        return _prepare_ready(resolved, resolved.task)
    if settings.seek is not None:
        raise SettingsError("--seek chooses its prompts by the answers: they are not known before it asks.")
    first = settings.first_repeat
    each = [(number, resolved.grid) for number in range(first, first + settings.repeats)]
    return prepare_haystacks(resolved, each)


def prepare_haystacks(resolved: Resolved, each: Sequence[tuple[int, Grid]]) -> Experiment:
    """The trials of some repeats, each over its haystack at the cells of a grid. Raises NeedlemapError."""
    experiment = _prepare_built(resolved, each)
    _refuse_unheard(experiment)
    if resolved.settings.collisions != "warn":
        refuse_given_away(experiment.given_away)
    return experiment


def _prepare_built(resolved: Resolved, each: Sequence[tuple[int, Grid]]) -> Experiment:
    haystacks: list[tuple[str, str]] = []
    trials: list[Trial] = []
    known, ground = Remembering(resolved.tokenizer), None
    for number, grid in each:
        part = resolved if grid is resolved.grid else replace(resolved, grid=grid)
        ground = Ground.of(part, number, ground if part is resolved else None)
        haystack = ground.builder.haystack
        haystacks.append((haystack.name, haystack.sha256))
        trials.extend(Repeat(part, ground, number, known).trials())
    return Experiment.of(resolved, trials, _notes(resolved), haystacks=tuple(haystacks))


def _prepare_ready(resolved: Resolved, task: Task) -> Experiment:
    """The trials of prompts that exist already: each is a repeat of its own, by its number."""
    wholes, given, keys = task.prompts(), resolved.settings.answer_prefix, resolved.keys
    prefixes = [whole.item.answer_prefix if given == TASKS_OWN else given for whole in wholes]
    found = place_wholes(resolved, wholes, prefixes)
    trials = [Trial.of(keys, each.cell, each.number, each.whole.item, each.prompt) for each in found.placed]
    return Experiment.of(resolved, trials, found.notes, grid=found.grid, haystacks=(task.source(),))


def _prepare_lent(resolved: Resolved, lent: Experiment) -> Experiment:
    """Another run's trials, asked of the settings' model. Raises SettingsError for one that takes no chat."""
    keys = resolved.keys
    prompts = lent_prompts(resolved, [trial.prompt for trial in lent.trials], ready=lent.ready)
    trials = [
        Trial.of(keys, cell, repeat, each.item, prompt, each.collisions, each.haystack_repeated)
        for each, prompt in zip(lent.trials, prompts, strict=True)
        for repeat, cell in each.places
        if not each.second
    ]
    whole = {"grid": lent.grid, "task": lent.task, "haystacks": lent.haystacks}
    return Experiment.of(resolved, trials, lent.notes, **whole)


def _notes(resolved: Resolved) -> tuple[str, ...]:
    """Which documents are read, and by what answers are scored where a right one may score low for its
    wording."""
    told = tuple(resolved.source.told())
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
