"""From settings to trials: every prompt of a run, built but not asked. Same settings, same
bytes.

Prompts that exist already, those of a set or of another run, are asked as they are: nothing is
hidden, moved or cut to make them fit. One of a set stands at the asked length that is nearest
to its own, by ratio, and at the depth nearest to that of its answer; where the set does not
tell depths, all stand at depth 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from math import log, log2, sqrt
from typing import Any

import numpy as np

from needlemap.deadline import seconds_left
from needlemap.errors import SettingsError
from needlemap.grid import Cell, Grid
from needlemap.haystacks import Haystack
from needlemap.models import MARK, Traits, backend_or_default
from needlemap.prompts import TEXT, Message, Prompt
from needlemap.prompts.feeding import Feed, Feeder
from needlemap.prompts.templates import Index
from needlemap.settings import Settings, prompt_source_of
from needlemap.tasks import ReadyPrompt, Task
from needlemap.tasks.single import WORDING
from needlemap.text.tokens import Span, TokenText
from needlemap.trials import Trial, ask_twice, requests, share_prompts
from needlemap.trials.leaks import (
    given_away,
    refuse_given_away,
    refuse_rewarded,
    refuse_unheard,
    valueless,
)
from needlemap.trials.repeat import TASKS_OWN, Repeat, scored_words
from needlemap.trials.resolve import Resolved, foreign_vocabulary, resolve

_REACH = sqrt(2)  # times beyond the shortest and longest asked length that a prompt may be
_MODES = ("exact", "single")
_WORDLESS = ("judge", "levenshtein", "exact", "first", "logprob")  # scorers that read no key words


@dataclass(frozen=True, slots=True)
class Experiment(Resolved):
    """All of a run but its answers: what the settings come to, and the trials, lengths
    outermost.

    haystacks: name and sha256 of each repeat's text; of prompts that exist already, of their file.
    notes:
    what a user should know before they are asked.
    """

    haystacks: tuple[tuple[str, str], ...] = ()
    trials: tuple[Trial, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, resolved: Resolved, trials: Iterable[Trial], notes: Sequence[str], **more: Any
    ) -> Experiment:
        """What was resolved with its trials, each prompt once, and a note on those too long
        for the model."""
        known = {each.name: getattr(resolved, each.name) for each in fields(Resolved)}
        trials = share_prompts(trials)
        trials += ask_twice(trials, resolved.settings.ask_twice, resolved.keys)
        said = (*notes, *beyond(resolved, trials), *_early_notes(resolved))
        return cls(**{**known, "trials": tuple(trials), "notes": said, **more})

    @property
    def tokens_asked(self) -> int:
        """Prompt tokens of all requests, as lengths count them."""
        return sum(trial.prompt.tokens for trial in requests(self.trials))

    @property
    def tokens_fed(self) -> int | None:
        """Prompt tokens of all requests as the model is fed them, where that is another
        vocabulary."""
        fed = sum(trial.prompt.asked_tokens for trial in requests(self.trials))
        return fed if fed != self.tokens_asked else None

    @property
    def given_away(self) -> list[str]:
        """Questions that hold their own answers; those of prompts that exist already are as
        they are."""
        if self.ready:
            return []
        asked = (trial.item for trial in self.trials)
        return given_away(asked, scored_words(self.scorer))


def prepare(settings: Settings, *, asked: bool = True) -> Experiment:
    """Resolve everything and build every prompt. Raises NeedlemapError for whatever the user
    can mend.

    asked: False where no model is going to be: none is imported, and `asked` and `key` of
    trials may differ. Raises TimeUp as soon as the command's time ends.
    """
    resolved = resolve(settings, asked=asked)
    lender = prompt_source_of(settings)
    if resolved.scorer.passes[1:] and (lender is not None or resolved.task.ready):
        raise SettingsError(
            f"Scorer '{resolved.scorer.name}' needs each prompt without its needle too, and these "
            f"prompts are asked as they are. Take a task that hides needles, as --task single."
        )
    if lender is not None:
        return _prepare_lent(resolved, prepare(lender, asked=False))
    if resolved.task.ready:
        return _prepare_ready(resolved, resolved.task)
    if settings.seek is not None:
        raise SettingsError(
            "--seek chooses its prompts by the answers: they are not known before it asks."
        )
    first = settings.first_repeat
    each = [(number, resolved.grid) for number in range(first, first + settings.repeats)]
    return prepare_haystacks(resolved, each)


def prepare_haystacks(resolved: Resolved, each: Sequence[tuple[int, Grid]]) -> Experiment:
    """The trials of some repeats, each over its haystack at the cells of a grid. Raises
    NeedlemapError."""
    experiment = _prepare_built(resolved, each)
    _refuse_unheard(experiment)
    refuse_rewarded(experiment.scorer, (trial.item for trial in experiment.trials))
    if resolved.settings.collisions != "warn":
        refuse_given_away(experiment.given_away)
    return experiment


def _prepare_built(resolved: Resolved, each: Sequence[tuple[int, Grid]]) -> Experiment:
    haystacks: list[tuple[str, str]] = []
    trials: list[Trial] = []
    short: list[Trial] = []
    index, repeat = cache(resolved.tokenizer.index), None
    for number, grid in each:
        part = resolved if grid is resolved.grid else replace(resolved, grid=grid)
        repeat = Repeat.of(part, number, index, repeat if part is resolved else None)
        haystack = repeat.builder.haystack
        haystacks.append((haystack.name, haystack.sha256))
        made = list(repeat.trials())
        trials += made
        short += [trial for trial in made if _holds_all(haystack, trial)]
    notes = (*_notes(resolved, trials), *_ended(haystacks[0][0], short))
    return Experiment.of(resolved, trials, notes, haystacks=tuple(haystacks))


def _holds_all(haystack: Haystack, trial: Trial) -> bool:
    """Whether a prompt is shorter than its length since the haystack ended."""
    prompt = trial.prompt
    whole = prompt.haystack_tokens == len(haystack.text)
    return haystack.ended and whole and prompt.off_by < 0


def _ended(name: str, short: Sequence[Trial]) -> list[str]:
    """That prompts hold all of a haystack and are shorter than their length."""
    if not short:
        return []
    held = max(trial.prompt.haystack_tokens for trial in short)
    first = min(trial.cell.length_tokens for trial in short)
    return [
        f"haystack '{name}' ended after {held:,} tokens: prompts of {first:,} and more hold all of "
        f"it and are shorter than their length, as OpenCompass makes them (each record has its own "
        f"length: prompt.tokens). --haystack-repeat fills them"
    ]


def _prepare_ready(resolved: Resolved, task: Task) -> Experiment:
    """The trials of prompts that exist already: each is a repeat of its own, by its number in
    the file.

    Raises SettingsError for settings that they would not heed, and when none is near an asked
    length.
    """
    settings, keys, wholes = resolved.settings, resolved.keys, task.prompts()
    _refuse_mode(settings)
    given, index = settings.answer_prefix, cache(resolved.tokenizer.index)
    feeder = resolved.feeder or resolved.reader
    prompts = [
        whole_prompt(
            whole,
            resolved.traits,
            index,
            whole.item.answer_prefix if given == TASKS_OWN else given,
            feeder,
        )
        for whole in wholes
    ]
    depths_told = all(whole.depth is not None for whole in wholes)
    trials = []
    for number, (whole, prompt) in enumerate(zip(wholes, prompts, strict=True)):
        seconds_left()
        length = near_length(prompt.tokens + settings.reserve, resolved.grid.lengths)
        if length is not None:
            depth = _nearest(whole.depth or 0.0, resolved.grid.depths) if depths_told else 0.0
            trials.append(Trial.of(keys, Cell(length, depth), number, whole.item, prompt))
    if not trials:
        raise _far(sorted(prompt.tokens + settings.reserve for prompt in prompts))
    notes = _set_notes(len(wholes) - len(trials), depths_told)
    return Experiment.of(resolved, trials, notes, grid=_grid(trials), haystacks=(task.source(),))


def _prepare_lent(resolved: Resolved, lent: Experiment) -> Experiment:
    """Another run's trials, asked of the settings' model. Raises SettingsError for one that
    takes no chat."""
    whole = {"grid": lent.grid, "task": lent.task, "haystacks": lent.haystacks}
    trials = _lent_trials(resolved, lent)
    return Experiment.of(resolved, trials, lent.notes, **whole)


def _lent_trials(resolved: Resolved, lent: Experiment) -> list[Trial]:
    """Another run's trials, asked of the settings' model."""
    keys = resolved.keys
    prompts = lent_prompts(resolved, [trial.prompt for trial in lent.trials], ready=lent.ready)
    return [
        replace(
            Trial.of(keys, cell, repeat, each.item, prompt),
            collisions=each.collisions,
            haystack_repeated=each.haystack_repeated,
        )
        for each, prompt in zip(lent.trials, prompts, strict=True)
        for repeat, cell in each.places
        if not each.second
    ]


def _notes(resolved: Resolved, trials: Sequence[Trial]) -> tuple[str, ...]:
    """Which documents are read, which distractors show no value, and by what answers are
    scored where a right one may score low for its wording."""
    told = (*resolved.source.notes(), *valueless(resolved.settings.distractors, trials))
    if resolved.settings.scorer != "auto" or resolved.scorer.name != WORDING:
        return told
    return (
        *told,
        "scored by wording (edit distance to the needle or --answer): a right answer in other "
        "words scores "
        "low. Say what a right answer must hold: --keywords WORD, or --answer with a piece of the "
        "needle",
    )


def _refuse_unheard(experiment: Experiment) -> None:
    """Raises SettingsError where a key word from the settings is looked for, and is in no
    right answer."""
    settings, words = experiment.settings, scored_words(experiment.scorer)
    if words or (settings.keywords and experiment.scorer.name not in _WORDLESS):
        refuse_unheard((trial.item for trial in experiment.trials), words)


def _early_notes(resolved: Resolved) -> tuple[str, ...]:
    """What is known of how a model will be asked, before it is loaded."""
    traits = resolved.traits
    foreign = foreign_vocabulary(resolved.settings, traits, resolved.tokenizer)
    return (*traits.notes, foreign) if foreign else traits.notes


def beyond(resolved: Resolved, trials: Sequence[Trial]) -> tuple[str, ...]:
    """What to say of prompts that the model has no positions for. Raises SettingsError if all
    are such."""
    most, room = resolved.settings.most_tokens, resolved.traits.positions
    sizes = {trial.cell.length_tokens: trial.prompt.asked_tokens + most for trial in trials}
    long = sorted(length for length, size in sizes.items() if room is not None and size > room)
    if not long:
        return ()
    fitting = sorted(set(sizes) - set(long))
    advice = f"Use --lengths up to {max(fitting):,}." if fitting else "Use shorter --lengths."
    option = backend_or_default(resolved.settings.backend).longer.format(max(sizes.values()))
    said = (
        f"'{resolved.settings.model}' has {room:,} positions, and a prompt of length {long[-1]:,} "
        f"takes "
        f"{sizes[long[-1]]:,} with its answer: {len(long)} of {len(sizes)} lengths are refused. "
        f"{advice}"
        f"{f' To try all the same: --model-options {option}' if option else ''}"
    )
    if not fitting:
        raise SettingsError(said)
    return (said,)


def near_length(tokens: int, lengths: Sequence[int]) -> int | None:
    """The asked length nearest to a number of tokens, by ratio; None half an octave beyond
    both ends.

    >>> (
    ...     near_length(4000, [4096, 8192]),
    ...     near_length(6000, [4096, 8192]),
    ...     near_length(20_000, [4096, 8192]),
    ... )
    (4096, 8192, None)
    """
    if not min(lengths) / _REACH <= tokens <= max(lengths) * _REACH:
        return None
    return min(lengths, key=lambda length: abs(log(tokens / length)))


def _far(sizes: Sequence[int]) -> SettingsError:
    """What to say when no prompt, of these many tokens, is near an asked length."""
    count = 1 + round(log2(sizes[-1] / sizes[0]))
    lengths = f"{sizes[0]}:{sizes[-1]}:{count}:log" if count > 1 else str(sizes[-1])
    return SettingsError(
        f"No prompt of the set is near an asked length: they have {sizes[0]:,} to {sizes[-1]:,} "
        f"tokens, "
        f"answers included. Type: --lengths {lengths}"
    )


def whole_prompt(
    whole: ReadyPrompt, traits: Traits, index: Index, prefix: str = "", feeder: Feeder | None = None
) -> Prompt:
    """A prompt as it is asked. Raises SettingsError for a conversation and a model that takes
    one text."""
    rows = list(whole.messages)
    if not traits.chat:
        if len(rows) > 1:
            raise SettingsError(
                "The set's prompts are conversations, and the model takes one text. Use a chat "
                "model."
            )
        rows = [(TEXT, rows[0][1] + prefix)]
    elif prefix:
        rows.append(("assistant", prefix))
    question = whole.item.question
    if traits.render is not None and not feeder:
        role, text = rows[-1]
        head, tail = traits.render([*rows[:-1], (role, text + MARK)])
        messages: tuple[Message, ...] = (Message(TEXT, (*_parted(head, question), tail.span())),)
    else:
        texts = [(role, index(text.encode())) for role, text in rows]
        messages = tuple(Message(role, _parted(text, question)) for role, text in texts)
    sizes = [sum(map(len, message.spans)) for message in messages]
    longest = sizes.index(max(sizes))
    made = Prompt(messages, context=(longest, 0, 1), tokens=sum(sizes))
    made = replace(made, question=question, answer_prefix=prefix)
    return feeder.seen(made) if feeder else made


def lent_prompts(resolved: Resolved, prompts: Iterable[Prompt], *, ready: bool) -> Iterator[Prompt]:
    """Another run's prompts, the same bytes, with the ids that the settings' model is fed.

    ready: whether each is a text of its own. Raises SettingsError for messages and a model
    that takes one text.
    """
    feeder, feed, haystack = resolved.feeder, None, None
    for lent in prompts:
        prompt = replace(lent, fed=(), ids_sha256="")
        if prompt.chat and not resolved.traits.chat:
            raise SettingsError(
                f"These prompts are chat messages, and '{resolved.settings.model}' takes one text. "
                f"Use a "
                f"chat model, or the prompts of a run whose model takes one text."
            )
        longest = max(prompt.context_spans, key=len, default=prompt.spans[0]).text
        if feeder is not None and not ready and longest is not haystack:
            haystack, feed = longest, Feed(feeder, longest)
        yield feed.fed(prompt) if feed else feeder.seen(prompt) if feeder else prompt


def _parted(text: TokenText, question: str) -> tuple[Span, ...]:
    """A text as two spans, of which the second begins with the question; one where it holds
    none.

    So a reader of the context, as the baselines are, does not find the question there.
    """
    at = text.data.rfind(question.encode()) if question else -1
    cut = int(np.searchsorted(text.offsets, at, side="right")) - 1
    return (text.span(0, cut), text.span(cut)) if at > 0 and cut > 0 else (text.span(),)


def _refuse_mode(settings: Settings) -> None:
    if settings.mode not in _MODES:
        raise SettingsError(
            f"Task '{settings.task}' asks prompts as they are, and mode '{settings.mode}' would "
            f"change them. "
            f"Give --mode exact or single."
        )


def _nearest(depth: float, depths: Sequence[float]) -> float:
    return min(depths, key=lambda each: abs(each - depth))


def _grid(trials: Sequence[Trial]) -> Grid:
    """The lengths and depths that occur."""
    lengths, depths = (
        {getattr(trial.cell, axis) for trial in trials} for axis in ("length_tokens", "depth")
    )
    return Grid(tuple(sorted(lengths)), tuple(sorted(depths)))


def _set_notes(left_out: int, depths_told: bool) -> tuple[str, ...]:
    notes = []
    if left_out:
        notes.append(f"{left_out:,} prompts are near no asked length and are left out")
    if not depths_told:
        notes.append(
            "the set does not tell where answers stand: all its prompts are shown at depth 0"
        )
    return tuple(notes)
