"""Build every prompt of a run from its settings, without asking any.

The same settings give the same bytes.

Prompts that exist already, those of a set or of another run, are asked as they are: nothing is
hidden, moved or cut to make them fit. A prompt of a set is shown at the asked length that is
nearest to its own, by ratio, and at the depth nearest to that of its answer. If the set has
no depths, all its prompts are shown at depth 0.
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

# A prompt of a set may be so many times shorter or longer than all asked lengths.
_REACH = sqrt(2)
_MODES = ("exact", "single")
# Scorers that do not read key words.
_WORDLESS = ("judge", "levenshtein", "exact", "first", "logprob")


@dataclass(frozen=True, slots=True)
class Experiment(Resolved):
    """Everything of a run except its answers.

    Attributes:
        haystacks: Name and sha256 of each repeat's text; of prompts that exist already, of their
            file.
        trials: The trials, lengths outermost.
        notes: What a user should know before they are asked.
    """

    haystacks: tuple[tuple[str, str], ...] = ()
    trials: tuple[Trial, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, resolved: Resolved, trials: Iterable[Trial], notes: Sequence[str], **more: Any
    ) -> Experiment:
        """Add trials to resolved settings, each prompt once, and a note on those that are too long.

        more: other fields.
        """
        trials = share_prompts(trials)
        trials += ask_twice(trials, resolved.settings.ask_twice, keys=resolved.keys)
        values = {field.name: getattr(resolved, field.name) for field in fields(Resolved)}
        values["trials"] = tuple(trials)
        values["notes"] = (
            *notes,
            *notes_on_too_long_prompts(resolved, trials),
            *_early_notes(resolved),
        )
        return cls(**(values | more))

    @property
    def tokens_asked(self) -> int:
        """Return the prompt tokens of all requests, as lengths count them."""
        return sum(trial.prompt.tokens for trial in requests(self.trials))

    @property
    def tokens_fed(self) -> int | None:
        """Return the prompt tokens of all requests in the model's vocabulary, if it is another."""
        tokens = sum(trial.prompt.asked_tokens for trial in requests(self.trials))
        if tokens == self.tokens_asked:
            return None
        return tokens

    @property
    def given_away(self) -> list[str]:
        """Return the questions that hold their own answers.

        Prompts that exist already are not looked at: they are asked as they are.
        """
        if self.ready:
            return []
        items = (trial.item for trial in self.trials)
        return given_away(items, scored_words(self.scorer))


def prepare(settings: Settings, *, asked: bool = True) -> Experiment:
    """Resolve the settings and build every prompt.

    asked: False if no model is going to be asked: then none is imported, and `asked` and `key` of
    trials may differ.

    Raises NeedlemapError for anything that the user can correct, and TimeUp as soon as the
    command's time has ended.
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
    repeats = [(number, resolved.grid) for number in range(first, first + settings.repeats)]
    return prepare_haystacks(resolved, repeats)


def prepare_haystacks(resolved: Resolved, repeats: Sequence[tuple[int, Grid]]) -> Experiment:
    """Build the trials of some repeats, each over its haystack at the cells of a grid.

    Raise NeedlemapError if a prompt cannot be built.
    """
    experiment = _prepare_built(resolved, repeats)
    _refuse_unheard(experiment)
    refuse_rewarded(experiment.scorer, (trial.item for trial in experiment.trials))
    if resolved.settings.collisions != "warn":
        refuse_given_away(experiment.given_away)
    return experiment


def _prepare_built(resolved: Resolved, repeats: Sequence[tuple[int, Grid]]) -> Experiment:
    haystacks: list[tuple[str, str]] = []
    trials: list[Trial] = []
    short: list[Trial] = []
    index = cache(resolved.tokenizer.index)
    repeat = None
    for number, grid in repeats:
        if grid is resolved.grid:
            repeat = Repeat.of(resolved, number, index=index, before=repeat)
        else:
            at_grid = replace(resolved, grid=grid)
            repeat = Repeat.of(at_grid, number, index=index, before=None)
        haystack = repeat.builder.haystack
        haystacks.append((haystack.name, haystack.sha256))
        repeat_trials = list(repeat.trials())
        trials += repeat_trials
        short += [trial for trial in repeat_trials if _ran_out(haystack, trial)]

    notes = [*_notes(resolved, trials), *_short_notes(haystacks[0][0], short)]
    return Experiment.of(resolved, trials, notes=notes, haystacks=tuple(haystacks))


def _ran_out(haystack: Haystack, trial: Trial) -> bool:
    """Return True if a prompt is shorter than its length because the haystack ended."""
    prompt = trial.prompt
    is_whole = prompt.haystack_tokens == len(haystack.text)
    return haystack.ended and is_whole and prompt.off_by < 0


def _short_notes(name: str, short: Sequence[Trial]) -> list[str]:
    """Return a note on prompts that hold all of a haystack and are shorter than their length."""
    if not short:
        return []
    tokens = max(trial.prompt.haystack_tokens for trial in short)
    shortest = min(trial.cell.length_tokens for trial in short)
    return [
        f"haystack '{name}' ended after {tokens:,} tokens: prompts of {shortest:,} and more hold "
        f"all of it and are shorter than their length, as OpenCompass makes them (each record has "
        f"its own length: prompt.tokens). --haystack-repeat fills them"
    ]


def _prepare_ready(resolved: Resolved, task: Task) -> Experiment:
    """Build the trials of prompts that exist already.

    Each prompt is a repeat of its own, with its number in the file. Raises SettingsError for
    settings that would have no effect on them, and if none is near an asked length.
    """
    settings = resolved.settings
    keys = resolved.keys
    ready_prompts = task.prompts()
    _refuse_mode(settings)
    index = cache(resolved.tokenizer.index)
    feeder = resolved.feeder or resolved.reader
    prompts = []
    for ready in ready_prompts:
        prefix = settings.answer_prefix
        if prefix == TASKS_OWN:
            prefix = ready.item.answer_prefix
        prompts.append(
            whole_prompt(ready, resolved.traits, index=index, prefix=prefix, feeder=feeder)
        )

    has_depths = all(ready.depth is not None for ready in ready_prompts)
    trials = []
    for number, (ready, prompt) in enumerate(zip(ready_prompts, prompts, strict=True)):
        seconds_left()
        length = near_length(prompt.tokens + settings.reserve, resolved.grid.lengths)
        if length is None:
            continue
        depth = _nearest(ready.depth or 0.0, resolved.grid.depths) if has_depths else 0.0
        cell = Cell(length, depth)
        trials.append(Trial.of(keys, cell, repeat=number, item=ready.item, prompt=prompt))
    if not trials:
        raise _distance_error(sorted(prompt.tokens + settings.reserve for prompt in prompts))
    return Experiment.of(
        resolved,
        trials,
        notes=_set_notes(len(ready_prompts) - len(trials), has_depths),
        grid=_grid(trials),
        haystacks=(task.source(),),
    )


def _prepare_lent(resolved: Resolved, lent: Experiment) -> Experiment:
    """Build the trials of another run, asked of the settings' model.

    Raises SettingsError for chat messages and a model that takes none.
    """
    return Experiment.of(
        resolved,
        _lent_trials(resolved, lent),
        notes=lent.notes,
        grid=lent.grid,
        task=lent.task,
        haystacks=lent.haystacks,
    )


def _lent_trials(resolved: Resolved, lent: Experiment) -> list[Trial]:
    keys = resolved.keys
    lenders_prompts = [trial.prompt for trial in lent.trials]
    prompts = lent_prompts(resolved, lenders_prompts, ready=lent.ready)
    trials = []
    for lent_trial, prompt in zip(lent.trials, prompts, strict=True):
        if lent_trial.second:
            continue
        for repeat, cell in lent_trial.places:
            trial = Trial.of(keys, cell, repeat=repeat, item=lent_trial.item, prompt=prompt)
            trials.append(
                replace(
                    trial,
                    collisions=lent_trial.collisions,
                    haystack_repeated=lent_trial.haystack_repeated,
                )
            )
    return trials


def _notes(resolved: Resolved, trials: Sequence[Trial]) -> list[str]:
    """Return notes on what a user should know of built prompts.

    They tell which documents are read, which distractors show no value, and by what answers are
    scored if a right one may score low because of its wording.
    """
    notes = [*resolved.source.notes(), *valueless(resolved.settings.distractors, trials)]
    if resolved.settings.scorer == "auto" and resolved.scorer.name == WORDING:
        notes.append(
            "scored by wording (edit distance to the needle or --answer): a right answer in other "
            "words scores low. Say what a right answer must hold: --keywords WORD, or --answer "
            "with a piece of the needle"
        )
    return notes


def _refuse_unheard(experiment: Experiment) -> None:
    """Raise SettingsError for a key word of the settings that no right answer holds."""
    settings = experiment.settings
    words = scored_words(experiment.scorer)
    if words or (settings.keywords and experiment.scorer.name not in _WORDLESS):
        refuse_unheard((trial.item for trial in experiment.trials), words)


def _early_notes(resolved: Resolved) -> list[str]:
    """Return what is known of how a model will be asked, before it is loaded."""
    traits = resolved.traits
    notes = list(traits.notes)
    foreign = foreign_vocabulary(resolved.settings, traits, resolved.tokenizer)
    if foreign:
        notes.append(foreign)
    return notes


def notes_on_too_long_prompts(resolved: Resolved, trials: Sequence[Trial]) -> tuple[str, ...]:
    """Return a note on prompts that are longer than the model's positions; () if none is.

    Raise SettingsError if all of them are.
    """
    positions = resolved.traits.positions
    budget = resolved.settings.most_tokens
    sizes = {trial.cell.length_tokens: trial.prompt.asked_tokens + budget for trial in trials}
    if positions is None:
        return ()
    too_long = sorted(length for length, size in sizes.items() if size > positions)
    if not too_long:
        return ()

    fitting = sorted(set(sizes) - set(too_long))
    advice = f"Use --lengths up to {max(fitting):,}." if fitting else "Use shorter --lengths."
    option = backend_or_default(resolved.settings.backend).longer.format(max(sizes.values()))
    if option:
        advice = f"{advice} To try all the same: --model-options {option}"
    note = (
        f"'{resolved.settings.model}' has {positions:,} positions, and a prompt of length "
        f"{too_long[-1]:,} takes {sizes[too_long[-1]]:,} with its answer: {len(too_long)} of "
        f"{len(sizes)} lengths are refused. {advice}"
    )
    if not fitting:
        raise SettingsError(note)
    return (note,)


def near_length(tokens: int, lengths: Sequence[int]) -> int | None:
    """Return the asked length nearest to a number of tokens, by ratio.

    If the number is more than half an octave from all lengths, return None.

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


def _distance_error(sizes: Sequence[int]) -> SettingsError:
    """Return the error for prompts of which none is near an asked length.

    sizes: their tokens, ascending.
    """
    count = 1 + round(log2(sizes[-1] / sizes[0]))
    lengths = f"{sizes[0]}:{sizes[-1]}:{count}:log" if count > 1 else str(sizes[-1])
    return SettingsError(
        f"No prompt of the set is near an asked length: they have {sizes[0]:,} to {sizes[-1]:,} "
        f"tokens, answers included. Type: --lengths {lengths}"
    )


def whole_prompt(
    ready: ReadyPrompt,
    traits: Traits,
    index: Index,
    prefix: str = "",
    feeder: Feeder | None = None,
) -> Prompt:
    """Return a prompt that exists already, as it is asked.

    index: tokenises a text. prefix: the answer's beginning. feeder: makes the ids that the model
    sees. Raises SettingsError for a conversation and a model that takes one text.
    """
    rows = list(ready.messages)
    if not traits.chat:
        if len(rows) > 1:
            raise SettingsError(
                "The set's prompts are conversations, and the model takes one text. Use a chat "
                "model."
            )
        rows = [(TEXT, rows[0][1] + prefix)]
    elif prefix:
        rows.append(("assistant", prefix))

    question = ready.item.question
    messages: list[Message] = []
    if traits.render is not None and not feeder:
        role, text = rows[-1]
        head, tail = traits.render([*rows[:-1], (role, text + MARK)])
        messages.append(Message(TEXT, (*_split_at_question(head, question), tail.span())))
    else:
        for role, text in rows:
            messages.append(Message(role, _split_at_question(index(text.encode()), question)))

    sizes = [sum(map(len, message.spans)) for message in messages]
    longest = sizes.index(max(sizes))
    prompt = Prompt(
        tuple(messages),
        context=(longest, 0, 1),
        tokens=sum(sizes),
        question=question,
        answer_prefix=prefix,
    )
    return feeder.with_model_ids(prompt) if feeder else prompt


def lent_prompts(resolved: Resolved, prompts: Iterable[Prompt], *, ready: bool) -> Iterator[Prompt]:
    """Yield another run's prompts, the same bytes, with the ids that the settings' model is fed.

    ready: whether each is a text of its own. Raises SettingsError for chat messages and a model
    that takes one text.
    """
    feeder = resolved.feeder
    feed = haystack = None
    for lent in prompts:
        prompt = replace(lent, fed=(), ids_sha256="")
        if prompt.chat and not resolved.traits.chat:
            raise SettingsError(
                f"These prompts are chat messages, and '{resolved.settings.model}' takes one text. "
                f"Use a chat model, or the prompts of a run whose model takes one text."
            )
        longest = max(prompt.context_spans, key=len, default=prompt.spans[0]).text
        if feeder is not None and not ready and longest is not haystack:
            haystack = longest
            feed = Feed(feeder, longest)

        if feed is not None:
            yield feed.fed(prompt)
        elif feeder is not None:
            yield feeder.with_model_ids(prompt)
        else:
            yield prompt


def _split_at_question(text: TokenText, question: str) -> tuple[Span, ...]:
    """Return a text as two spans, of which the second starts with the question.

    If the text does not hold the question, return one span. The context of a prompt is the first
    span, so that readers of it, such as the baselines, do not find the question there.
    """
    start = text.data.rfind(question.encode()) if question else -1
    cut = int(np.searchsorted(text.offsets, start, side="right")) - 1
    if start <= 0 or cut <= 0:
        return (text.span(),)
    return text.span(0, cut), text.span(cut)


def _refuse_mode(settings: Settings) -> None:
    if settings.mode not in _MODES:
        raise SettingsError(
            f"Task '{settings.task}' asks prompts as they are, and mode '{settings.mode}' would "
            f"change them. Give --mode exact or single."
        )


def _nearest(depth: float, depths: Sequence[float]) -> float:
    return min(depths, key=lambda other: abs(other - depth))


def _grid(trials: Sequence[Trial]) -> Grid:
    """Return the grid of the lengths and depths that occur."""
    lengths = {trial.cell.length_tokens for trial in trials}
    depths = {trial.cell.depth for trial in trials}
    return Grid(tuple(sorted(lengths)), tuple(sorted(depths)))


def _set_notes(left_out: int, has_depths: bool) -> list[str]:
    """Return notes on the prompts of a set. left_out: how many are near no asked length."""
    notes = []
    if left_out:
        notes.append(f"{left_out:,} prompts are near no asked length and are left out")
    if not has_depths:
        notes.append(
            "the set does not tell where answers stand: all its prompts are shown at depth 0"
        )
    return notes
