"""Make the families of a check: settings of each way of asking, and the trials of its asks.

Each way at each size is a family of the run's folder, so that `report`, `compare` and `replay` can
read it. All facts are those of the task `apart`. The seed is drawn for the check, so that no older
cache answers its prompts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from needlemap.deadline import without_limit
from needlemap.errors import SettingsError
from needlemap.grid import Cell, Depths, Grid, Lengths, make_grid, setting
from needlemap.models import backend_or_default
from needlemap.prompts.templates import fill
from needlemap.records.record import Record
from needlemap.scorers import find_scorer
from needlemap.servers.apart import drawn_apart, twin_of
from needlemap.servers.check.ask import (
    BESIDE,
    LONG,
    ROOMY,
    TIMES_ROOM,
    TOSS,
    Ask,
    Key,
    Reply,
    answered_by,
    did_end,
    is_parrot,
)
from needlemap.servers.check.haystack import BEHIND, LAST, Options
from needlemap.servers.check.long_answers import long_item
from needlemap.servers.check.margins import margins_of, steps_of
from needlemap.servers.check.schedule import Schedule
from needlemap.settings import PromptSource, Settings
from needlemap.settings.reading import DEFAULT_ITEMS, addressed, configure
from needlemap.tasks import make_task
from needlemap.trials import Trial
from needlemap.trials.build import Experiment, beyond, lent_prompts, prepare
from needlemap.trials.repeat import Repeat
from needlemap.trials.resolve import ANY, Resolved, foreign_vocabulary, resolve

# Tokens of a prompt that shows what stands around a haystack.
ENOUGH = 4_000
MOST_FACTS = 8
# Tokens by which a fact may be longer than the one that is measured.
SPARE = 2
# Twelve digits: by chance no two are equal.
SECRET = "100000000000:999999999999"
# Back ends whose models were trained on short secrets.
_SHORT_ONES = ("demo",)
# Tokens of a size below which facts may take half of it.
_SCARCE = 1_024
# The scorer of answers that are sent to the model.
GIVEN = "logprob"
# Characters next to a fact that a copy of the prompt holds.
_AROUND = 60
WINDOW_DEPTH = 0.9
# Haystacks that are kept: one, its copy after a first line, and the four of a crowd.
KEPT = 6
_ITEM = ("needle", "question", "keywords", "draw")
_VALUES = ("a", "b", "c", "d", "e", "f")
# The gauge finds each of the six about as likely.
TOSSED: dict[str, Any] = {
    "needle": " ".join(f"The locker code for Turin is {{{name}}}." for name in _VALUES),
    "question": "What is the locker code for Turin?",
    "keywords": ["{a}"],
    "draw": dict.fromkeys(_VALUES, SECRET),
}


def keeping_logprobs(model: str) -> dict[str, bool]:
    """Return the setting that has a model's back end keep an answer's log-probabilities.

    {} if it cannot.
    """
    backend = backend_or_default(model.partition("/")[0])
    return {} if "logprobs" in backend.unread else {"logprobs": True}


def facts_for(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is hidden and asked: what was typed, or locker codes of twelve digits."""
    typed = {name: flags[name] for name in _ITEM if flags.get(name)}
    if typed:
        return typed
    language = str(flags.get("language", "english"))
    item = dict(DEFAULT_ITEMS.get(language, DEFAULT_ITEMS["english"]))
    if str(flags.get("model", "")).partition("/")[0] not in _SHORT_ONES:
        item["draw"] = {**item["draw"], "number": SECRET}
    return item


@dataclass(eq=False)
class Asker:
    """Makes the prompts of one check.

    Attributes:
        flags: Settings of the model and the limits.
        seed: The seed of the check.
        schedule: What the check asks.
        first: The settings of all ways, resolved.
        reference: A model of the same weights, or its address; '' for none.
        path: The folder of the check.
        families: The settings of each family so far, resolved.
    """

    flags: Mapping[str, Any]
    seed: int
    schedule: Schedule
    first: Resolved
    reference: str
    path: Path
    families: dict[str, Resolved] = field(default_factory=dict)
    _haystacks: dict[object, dict[str, Repeat]] = field(default_factory=dict)
    _secrets: dict[tuple[int, int, int, bool], tuple[str, ...]] = field(default_factory=dict)
    _counted: dict[str, int] = field(default_factory=dict)

    def settings(self, ask: Ask) -> Settings:
        """Return the settings of the family that an ask belongs to."""
        first = self.first.settings
        changes: dict[str, Any] = {
            "task_options": {**first.task_options, **self._task_options(ask)},
            "lengths": Lengths.of(sorted(_lengths(self.schedule, ask))),
            "depths": Depths.of([setting(ask.depth)]),
            "repeats": 1,
            "first_repeat": 0,
        }
        if ask.state == "loaded" and not self.first.traits.serial:
            changes["concurrency"] = self.schedule.options.load
        if ask.way.endswith(ROOMY):
            changes["max_answer_tokens"] = TIMES_ROOM * first.max_answer_tokens
            changes["thinking_tokens"] = first.thinking_tokens and (
                TIMES_ROOM * first.thinking_tokens
            )
            if first.reserve_tokens is None:
                # So that the prompt stays the same.
                changes["reserve_tokens"] = first.max_answer_tokens
        if ask.way in TOSS:
            changes |= TOSSED
        if ask.way == LONG:
            changes |= long_item(self.schedule, ask)
        if ask.position:
            changes["scorer"] = GIVEN
        return first.model_copy(update=changes)

    def _task_options(self, ask: Ask) -> dict[str, Any]:
        """Return the options of the task `apart` for an ask."""
        schedule = self.schedule
        is_window = _is_window(ask)
        options: dict[str, Any] = {
            "beside": [100 * depth for depth in depths_beside(schedule, ask)],
            "anchor": 0 if is_window else schedule.anchor(ask.size),
        }
        if not is_window and schedule.drawn(ask.size):
            options["drawn"] = schedule.drawn(ask.size)
        options |= {
            "exact": not is_window,
            "asked": None if ask.place is None else ask.fact,
            "line": ask.salt,
            "series": ask.size,
        }
        if ask.twin:
            options["twin"] = True
        return options

    def resolved(self, ask: Ask) -> Resolved:
        """Return the settings of the family that an ask belongs to, resolved."""
        if ask.family not in self.families:
            settings = self.settings(ask)
            self.families[ask.family] = replace(
                self.first,
                settings=settings,
                grid=make_grid(settings.lengths, settings.depths),
                task=make_task(settings),
                scorer=find_scorer(GIVEN)() if ask.position else self.first.scorer,
            )
        return self.families[ask.family]

    def experiment(self, asks: Sequence[Ask], framing: int = 0) -> dict[Key, Trial]:
        """Return the trials of some asks of one family and one haystack, by the asks' keys.

        framing: tokens that the server counts in addition to ours.
        """
        resolved = self.resolved(asks[0])
        if framing:
            settings = resolved.settings.model_copy(update={"framing_tokens": framing})
            resolved = replace(resolved, settings=settings)
            self.families[asks[0].family] = resolved
        grid = Grid(lengths=tuple(sorted({ask.length for ask in asks})), depths=(0.0,))
        repeat = self._repeat(asks[0], replace(resolved, grid=grid))
        cells = [Cell(ask.length, ask.depth) for ask in asks]
        return {ask.key: trial for ask, trial in zip(asks, repeat.trials(cells), strict=True)}

    def _repeat(self, ask: Ask, resolved: Resolved) -> Repeat:
        """Return the haystack of an ask, made once for all ways that share it.

        The last few are kept, because what is asked next to it has haystacks of its own.
        """
        # Put at the end, so that the least recently used one is dropped.
        by_family = self._haystacks.pop(ask.haystack, {})
        self._haystacks[ask.haystack] = by_family
        if len(self._haystacks) > KEPT:
            del self._haystacks[next(iter(self._haystacks))]
        if ask.family not in by_family:
            longest = max(ask.size, ask.length)
            whole = replace(resolved, grid=Grid(lengths=(longest,), depths=(0.0,)))
            shared = next(iter(by_family.values()), None)
            if shared is not None and self._can_share(shared, ask, resolved):
                repeat = replace(shared, resolved=whole, frames={})
            else:
                repeat = Repeat.of(whole, ask.repeat, cache(resolved.tokenizer.index), None)
            by_family[ask.family] = repeat
        return replace(by_family[ask.family], resolved=resolved)

    def _can_share(self, repeat: Repeat, ask: Ask, resolved: Resolved) -> bool:
        """Return True if a haystack that another way made serves an ask."""
        anchor = repeat.resolved.task.anchor_tokens(ask.repeat, self.seed)
        return (
            anchor == resolved.task.anchor_tokens(ask.repeat, self.seed)
            and repeat.number == ask.repeat
            and max(repeat.resolved.grid.lengths) >= max(ask.size, ask.length)
        )

    def elsewhere(self, ask: Ask, trial: Trial) -> tuple[Resolved, Trial]:
        """Return the reference's settings, and the same prompt for it."""
        if ask.family not in self.families:
            here = replace(ask, way=ask.way.removeprefix(BESIDE))
            settings = elsewhere(self.settings(here), self.reference, self.path / here.family)
            self.families[ask.family] = resolve(settings)
        resolved = self.families[ask.family]
        (prompt,) = lent_prompts(resolved, [trial.prompt], ready=False)
        return resolved, Trial.of(resolved.keys, trial.cell, trial.repeat, trial.item, prompt)

    def prefill(self, ask: Ask, given: Reply) -> Trial:
        """Return an answer as it is sent as a prompt, up to one of its tokens. given: the reply."""
        prompt = answered_by(ask)
        trial = self.experiment([prompt])[prompt.key]
        text = "".join(token for token, _ in given.steps[: ask.position])
        reference = replace(trial.item.reference, answer=text)
        item = replace(trial.item, reference=reference)
        keys = self.resolved(ask).keys
        return Trial.of(keys, trial.cell, trial.repeat, item, trial.prompt)

    def start(self, positions: Sequence[int], needles: Sequence[str]) -> int:
        """Return the tokens of a prompt before its first needle, which is the asked fact.

        positions: haystack tokens before each needle. If the vocabulary joins text across a seam,
        the number is some tokens off.
        """
        if not positions or len(positions) != len(needles):
            return 0
        before = [
            needle
            for needle, position in zip(needles, positions, strict=True)
            if position < positions[0]
        ]
        return self.schedule.options.head + positions[0] + sum(map(self._tokens, before))

    def _tokens(self, text: str) -> int:
        if text not in self._counted:
            self._counted[text] = self.first.tokenizer.count(text.encode())
        return self._counted[text]

    def window(self, framing: int | None) -> list[Ask]:
        """Return prompts that end with the last tokens of the context, and one that is longer.

        After the longer one no answer has room. [] if the context is unknown, or if lengths count
        another vocabulary. framing: tokens that the server counts in addition to ours.
        """
        options = self.schedule.options
        context, size = options.context, self.schedule.sizes[-1]
        if context is None or context > size or framing is None:
            return []
        if "window" not in self.schedule.probes:
            return []
        lengths = [("window", context - less) for less in reversed(range(LAST))]
        lengths.append(("beyond", context + options.answer_tokens + 1))
        return [Ask(way, size, length, depth=WINDOW_DEPTH, repeat=0) for way, length in lengths]

    def secrets(self, ask: Ask) -> tuple[str, ...]:
        """Return the key words of the facts of an ask's haystack."""
        key = ask.size, ask.repeat, ask.facts, ask.twin
        if key not in self._secrets:
            self._secrets[key] = self._drawn_secrets(ask)
        return self._secrets[key]

    def _drawn_secrets(self, ask: Ask) -> tuple[str, ...]:
        settings = self.first.settings
        draws = drawn_apart(
            settings.draw or {},
            ask.repeat,
            seed=self.seed + ask.size,
            count=ask.facts,
            question=settings.question,
        )
        if ask.twin:
            draws[-1] = twin_of(draws[-1], settings.keywords)
        secrets = []
        for values in draws:
            words = [fill(word, values, "keywords") for word in settings.keywords]
            secrets.append(max(words, key=len))
        return tuple(secrets)

    @without_limit()
    def reply(self, ask: Ask, record: Record) -> Reply:
        """Return what came of an ask, by its record."""
        secrets = self.secrets(ask)
        beside = tuple(secret for fact, secret in enumerate(secrets) if fact != ask.fact)
        answer = record.answer or ""
        first_needles = record.needles[:1]
        around = [needle.before[-_AROUND:] for needle in first_needles]
        around += [needle.after[:_AROUND] for needle in first_needles]
        budget = self.first.settings.max_answer_tokens
        if ask.way.endswith(ROOMY):
            budget *= TIMES_ROOM
        ended = did_end(record.finish, record.completion_tokens, budget)
        is_right = (record.score or 0.0) >= 1.0 and not is_parrot(answer, beside, around)
        tokens = 0
        if record.latency_s is not None:
            tokens = record.prompt_tokens or record.own_tokens
            tokens += record.completion_tokens or 0
        positions = record.prompt.positions if record.prompt else ()
        return Reply(
            ask,
            answer=answer,
            right=is_right and ended,
            ended=ended,
            failure="" if record.scored else record.failure or "not measured",
            secret=secrets[ask.fact],
            beside=beside,
            start=self.start(positions, [needle.text for needle in record.needles]),
            prompt_tokens=record.prompt_tokens,
            own_tokens=record.own_tokens,
            cached_tokens=record.cached_tokens,
            margins=margins_of(record),
            steps=steps_of(record),
            tokens=tokens,
            seconds=record.latency_s or 0.0,
            attempts=record.attempts,
            before=record.logprobs.start if record.logprobs else None,
        )


def depths_beside(schedule: Schedule, ask: Ask) -> Sequence[float]:
    """Return where the facts of an ask's haystack stand."""
    if ask.facts > 1:
        return schedule.depths_at(ask.size)
    return (ask.depth,) if ask.place is None else (0.5,)


def _is_window(ask: Ask) -> bool:
    """Return True for a prompt at the end of the context, or one beyond it."""
    return ask.way in ("window", "beyond")


def _lengths(schedule: Schedule, ask: Ask) -> Iterable[int]:
    """Return the lengths that a family may have."""
    if _is_window(ask) or ask.size == schedule.short or ask.way.startswith("half"):
        return [ask.length]
    consecutive = range(ask.size - schedule.comb - BEHIND, ask.size + 1)
    return {ask.length, *consecutive, *schedule.drawn_lengths[ask.size]}


def elsewhere(settings: Settings, reference: str, run: Path) -> Settings:
    """Return the settings with which a way's very prompts are sent to the reference.

    reference: an address, or a model. run: the folder of the way's family.
    """
    if "://" in reference:
        address: dict[str, Any] = {"base_url": reference}
    else:
        address = {"model": reference, "base_url": None}
    source = {name: getattr(settings, name) for name in PromptSource.model_fields if name != "run"}
    changes: dict[str, Any] = {
        "model_options": {},
        "logprobs": False,
        **keeping_logprobs(str(address.get("model") or settings.model)),
        **address,
        "prompts_of": PromptSource(run=str(run), **source),
    }
    return addressed(settings.model_copy(update=changes))


def made_for(
    flags: Mapping[str, Any],
    options: Options,
    seed: int,
    path: Path,
    reference: str = "",
) -> Asker:
    """Return what makes the prompts of a check.

    It measures what stands around a haystack, and how many facts fit. Raises SettingsError for what
    is wrong, with what to type.
    """
    flags = {**keeping_logprobs(str(flags.get("model", ""))), **flags}
    flags, first = settle_flags({**flags, **facts_for(flags)}, seed)
    answer_tokens = first.settings.max_answer_tokens
    length = min(options.max_length, ENOUGH + answer_tokens)
    frame = _frame(first, length, spare=0 if options.holds else SPARE)
    with_one_fact = replace(
        options,
        answer_tokens=answer_tokens,
        around=frame.around + frame.fact,
        facts=1,
        probes=(),
    )
    shortest = Schedule(with_one_fact, seed).sizes[0]
    questions = _questions(first.settings)
    room = MOST_FACTS
    if shortest < _SCARCE:
        room = (shortest - frame.around) // (2 * frame.fact)
    facts = max(1, min(MOST_FACTS, questions, room))
    settled = replace(
        options,
        answer_tokens=answer_tokens,
        around=frame.around + facts * frame.fact,
        head=frame.head,
        facts=facts,
        logprobs=first.settings.logprobs,
        prefills=first.traits.teacher and first.traits.remote,
        serial=first.traits.serial,
        distinct=questions > 1 or _draws(first.settings),
        twins=_has_twins(first.settings),
    )
    schedule = Schedule(settled, seed)
    beyond(first, [])
    return Asker(
        flags,
        seed,
        schedule=schedule,
        first=first,
        reference=reference,
        path=path,
    )


def settle_flags(flags: Mapping[str, Any], seed: int) -> tuple[dict[str, Any], Resolved]:
    """Return the flags with the vocabulary that lengths count, and what they resolve to.

    If the model's own is not known, any will do, because ways of asking are only compared with each
    other. Raises SettingsError.
    """
    resolved = resolve(_settled(flags, seed))
    if not foreign_vocabulary(resolved.settings, resolved.traits, resolved.tokenizer):
        return dict(flags), resolved
    with_any = {**flags, "tokenizer": ANY}
    return with_any, resolve(_settled(with_any, seed))


def _settled(flags: Mapping[str, Any], seed: int) -> Settings:
    """Return the settings that all ways share."""
    shared = {"task": "apart", "seed": seed, "collisions": "warn", "canary": False, "repeats": 1}
    return configure(None, {**flags, **shared})


@dataclass(frozen=True, slots=True)
class Frame:
    """Tokens of a prompt that are not haystack.

    Attributes:
        around: Tokens without the facts, the answer included.
        head: Of them, those before the haystack.
        fact: Tokens of one fact.
    """

    around: int
    head: int
    fact: int


def _frame(first: Resolved, length: int, *, spare: int) -> Frame:
    """Measure a prompt of that length.

    spare: tokens by which another fact may be longer, which the gauge's are not. What is spared of
    all facts stands after the last one, and a cache's last block may lack it.
    """
    one_prompt: dict[str, Any] = {
        "lengths": Lengths.of([length]),
        "depths": Depths.of([50]),
        # Not the check's, so that the sizes of two checks are the same.
        "seed": 0,
        "task_options": {"beside": [50.0]},
    }
    trial = prepare(first.settings.model_copy(update=one_prompt)).trials[0]
    prompt = trial.prompt
    message, first_span, _ = prompt.context
    before = [span for earlier in prompt.messages[:message] for span in earlier.spans]
    before += prompt.messages[message].spans[:first_span]
    fact = first.tokenizer.count(trial.item.needles[0].text.encode())
    around = length - prompt.haystack_tokens - fact
    return Frame(
        around=max(around, first.settings.reserve),
        head=sum(map(len, before)),
        fact=fact + spare,
    )


def _questions(settings: Settings) -> int:
    """Return how many facts a haystack may hide: as many as their questions differ."""
    for count in range(MOST_FACTS, 1, -1):
        try:
            drawn_apart(
                settings.draw or {},
                repeat=0,
                seed=0,
                count=count,
                question=settings.question,
            )
        except SettingsError:
            continue
        return count
    return 1


def _draws(settings: Settings) -> bool:
    """Return True if secrets differ by haystack."""
    names = list(settings.draw or {})
    return any(f"{{{name}}}" in word for name in names for word in settings.keywords)


def _has_twins(settings: Settings) -> bool:
    """Return True if a right answer holds a number, whose twin ends otherwise."""
    (values,) = drawn_apart(
        settings.draw or {},
        repeat=0,
        seed=0,
        count=1,
        question=settings.question,
    )
    return twin_of(values, settings.keywords) != values


def experiment_of(resolved: Resolved, trials: Sequence[Trial]) -> Experiment:
    """Return a family as it is described on disk."""
    return Experiment.of(resolved, trials, ())
