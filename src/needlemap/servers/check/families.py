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
from needlemap.prompts import continued
from needlemap.prompts.templates import fill
from needlemap.records.record import Record
from needlemap.scorers import find_scorer
from needlemap.servers.apart import drawn_apart, twin_of
from needlemap.servers.check.ask import (
    BESIDE,
    CONVERSATION,
    LONG,
    ROOMY,
    TIMES_ROOM,
    TOSS,
    Ask,
    Key,
    Reply,
    answered_ask,
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
from needlemap.trials.build import lent_prompts, prepare
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


def logprobs_setting(model: str) -> dict[str, bool]:
    """Return the setting that has a model's back end keep an answer's log-probabilities.

    If the back end cannot keep them, the result is {}.
    """
    backend = backend_or_default(model.partition("/")[0])
    return {} if "logprobs" in backend.unread else {"logprobs": True}


def facts_for(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the hidden facts: those that were typed, or else locker codes.

    A code has twelve digits, unless the model was trained on short secrets.
    """
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
        base: The resolved settings that all ways share.
        reference: A model of the same weights, or its address; '' for none.
        path: The folder of the check.
        families: The settings of each family so far, resolved.
    """

    flags: Mapping[str, Any]
    seed: int
    schedule: Schedule
    base: Resolved
    reference: str
    path: Path
    families: dict[str, Resolved] = field(default_factory=dict)
    _haystacks: dict[object, dict[str, Repeat]] = field(default_factory=dict)
    _secrets: dict[tuple[int, int, int, bool], tuple[str, ...]] = field(default_factory=dict)
    _token_counts: dict[str, int] = field(default_factory=dict)

    def settings(self, ask: Ask) -> Settings:
        """Return the settings of the family that an ask belongs to."""
        base = self.base.settings
        changes: dict[str, Any] = {
            "task_options": {**base.task_options, **self._task_options(ask)},
            "lengths": Lengths.of(sorted(_lengths(self.schedule, ask))),
            "depths": Depths.of([setting(ask.depth)]),
            "repeats": 1,
            "first_repeat": 0,
        }
        if ask.state == "loaded" and not self.base.traits.serial:
            changes["concurrency"] = self.schedule.options.load
        if ask.way.endswith(ROOMY):
            changes["max_answer_tokens"] = TIMES_ROOM * base.max_answer_tokens
            changes["thinking_tokens"] = base.thinking_tokens and (
                TIMES_ROOM * base.thinking_tokens
            )
            if base.reserve_tokens is None:
                # So that the prompt stays the same.
                changes["reserve_tokens"] = base.max_answer_tokens
        if ask.way in TOSS:
            changes |= TOSSED
        if ask.way == LONG:
            changes |= long_item(self.schedule, ask)
        if ask.position:
            changes["scorer"] = GIVEN
        return base.model_copy(update=changes)

    def _task_options(self, ask: Ask) -> dict[str, Any]:
        """Return the options of the task `apart` for an ask."""
        schedule = self.schedule
        is_window = _is_window(ask)
        options: dict[str, Any] = {
            "beside": [100 * depth for depth in fact_depths(schedule, ask)],
            "anchor": 0 if is_window else schedule.anchor(ask.size),
        }
        if not is_window and schedule.drawn_tokens(ask.size):
            options["drawn"] = schedule.drawn_tokens(ask.size)
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
                self.base,
                settings=settings,
                grid=make_grid(settings.lengths, settings.depths),
                task=make_task(settings),
                scorer=find_scorer(GIVEN)() if ask.position else self.base.scorer,
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
        repeat = self._repeat_of(asks[0], replace(resolved, grid=grid))
        cells = [Cell(ask.length, ask.depth) for ask in asks]
        return {ask.key: trial for ask, trial in zip(asks, repeat.trials(cells), strict=True)}

    def _repeat_of(self, ask: Ask, resolved: Resolved) -> Repeat:
        """Return the repeat that builds an ask's prompts, with the ask's haystack.

        A haystack is built once for all ways that share it. The last KEPT haystacks are cached,
        because prompts that are sent next to a haystack's own have haystacks of their own.
        """
        # Put at the end, so that the least recently used one is dropped.
        by_family = self._haystacks.pop(ask.haystack, {})
        self._haystacks[ask.haystack] = by_family
        if len(self._haystacks) > KEPT:
            del self._haystacks[next(iter(self._haystacks))]

        if ask.family not in by_family:
            by_family[ask.family] = self._make_repeat(ask, resolved, by_family)
        return replace(by_family[ask.family], resolved=resolved)

    def _make_repeat(self, ask: Ask, resolved: Resolved, by_family: Mapping[str, Repeat]) -> Repeat:
        """Return a repeat for the longest prompt of an ask's family.

        by_family: the repeats of other families on the same haystack, one of which may lend it.
        """
        grid = Grid(lengths=(max(ask.size, ask.length),), depths=(0.0,))
        at_longest = replace(resolved, grid=grid)
        other_repeat = next(iter(by_family.values()), None)
        if other_repeat is not None and self._can_share(other_repeat, ask, resolved):
            return replace(other_repeat, resolved=at_longest, frames={})
        return Repeat.of(at_longest, ask.repeat, cache(resolved.tokenizer.index), None)

    def _can_share(self, repeat: Repeat, ask: Ask, resolved: Resolved) -> bool:
        """Return True if the haystack of another way can be used for an ask."""
        anchor = repeat.resolved.task.anchor_tokens(ask.repeat, self.seed)
        return (
            anchor == resolved.task.anchor_tokens(ask.repeat, self.seed)
            and repeat.number == ask.repeat
            and max(repeat.resolved.grid.lengths) >= max(ask.size, ask.length)
        )

    def reference_trial(self, ask: Ask, trial: Trial) -> tuple[Resolved, Trial]:
        """Return the reference model's resolved settings and the same prompt as its trial.

        ask: what is asked of the reference. trial: the prompt, as the server is sent it.
        """
        if ask.family not in self.families:
            server_ask = replace(ask, way=ask.way.removeprefix(BESIDE))
            settings = reference_settings(
                self.settings(server_ask), self.reference, run=self.path / server_ask.family
            )
            self.families[ask.family] = resolve(settings)

        resolved = self.families[ask.family]
        (prompt,) = lent_prompts(resolved, [trial.prompt], ready=False)
        return resolved, Trial.of(resolved.keys, trial.cell, trial.repeat, trial.item, prompt)

    def prefill(self, ask: Ask, answered: Reply) -> Trial:
        """Return the trial that sends an answer as a prompt, up to one of its tokens.

        ask: names the token, as its position. answered: the reply whose answer is sent.
        """
        prompt = answered_ask(ask)
        trial = self.experiment([prompt])[prompt.key]
        text = "".join(token for token, _ in answered.steps[: ask.position])
        reference = replace(trial.item.reference, answer=text)
        item = replace(trial.item, reference=reference)
        keys = self.resolved(ask).keys
        return Trial.of(keys, trial.cell, trial.repeat, item, trial.prompt)

    def conversation(self, ask: Ask) -> Trial:
        """Return the trial that continues a first prompt.

        Its prompt is the first one, the right answer, and the first prompt about other documents,
        which is the one that is asked.

        ask: names the first prompt's way, as its source.
        """
        haystack = self.schedule.haystack(ask)
        assert haystack.further is not None, "it had room when the ask was made"
        # A copy continues a copy.
        first_way = ask.source + ask.way.removeprefix(CONVERSATION)
        first_ask = replace(haystack.cold, way=first_way, salt=ask.salt)
        further_ask = replace(haystack.further.cold, way=ask.way, salt=ask.salt)
        first = self.experiment([first_ask])[first_ask.key]
        further = self.experiment([further_ask])[further_ask.key]

        resolved = self.resolved(ask)
        answer = resolved.tokenizer.index(f"{first.item.reference.answer}\n".encode())
        prompt = continued(first.prompt, answer, further.prompt)
        (lent,) = lent_prompts(resolved, [prompt], ready=False)
        cell = Cell(ask.length, ask.depth)
        return Trial.of(resolved.keys, cell, first.repeat, further.item, lent)

    def start(self, positions: Sequence[int], needles: Sequence[str]) -> int:
        """Return how many tokens of a prompt precede its first needle, which is the asked fact.

        If the positions are not known, the result is 0. If the vocabulary joins text across a
        seam, the result is some tokens off.

        positions: haystack tokens before each needle.
        """
        if not positions or len(positions) != len(needles):
            return 0

        earlier_needles = [
            needle
            for needle, position in zip(needles, positions, strict=True)
            if position < positions[0]
        ]
        return self.schedule.options.head + positions[0] + sum(map(self._tokens, earlier_needles))

    def _tokens(self, text: str) -> int:
        if text not in self._token_counts:
            self._token_counts[text] = self.base.tokenizer.count(text.encode())
        return self._token_counts[text]

    def window(self, framing: int | None) -> list[Ask]:
        """Return prompts that end with the last tokens of the context, and one that is longer.

        After the longer one no answer has room. If the context is unknown or longer than the
        check's prompts, or if lengths count another vocabulary, the result is [].

        framing: tokens that the server counts in addition to ours; None if they vary.
        """
        options = self.schedule.options
        context, size = options.context, self.schedule.sizes[-1]
        if context is None or context > size or framing is None:
            return []
        if "window" not in self.schedule.probes:
            return []

        lengths = [("window", context - shortfall) for shortfall in reversed(range(LAST))]
        lengths.append(("beyond", context + options.answer_tokens + 1))
        return [Ask(way, size, length, depth=WINDOW_DEPTH, repeat=0) for way, length in lengths]

    def secrets(self, ask: Ask) -> tuple[str, ...]:
        """Return the key words of the facts of an ask's haystack."""
        key = ask.size, ask.repeat, ask.facts, ask.twin
        if key not in self._secrets:
            self._secrets[key] = self._draw_secrets(ask)
        return self._secrets[key]

    def _draw_secrets(self, ask: Ask) -> tuple[str, ...]:
        settings = self.base.settings
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
        """Return the reply to an ask that a record holds."""
        secrets = self.secrets(ask)
        other_secrets = tuple(secret for fact, secret in enumerate(secrets) if fact != ask.fact)
        answer = record.answer or ""
        first_needles = record.needles[:1]
        neighbours = [needle.before[-_AROUND:] for needle in first_needles]
        neighbours += [needle.after[:_AROUND] for needle in first_needles]

        budget = self.base.settings.max_answer_tokens
        if ask.way.endswith(ROOMY):
            budget *= TIMES_ROOM
        ended = did_end(record.finish, record.completion_tokens, budget)
        is_right = (record.score or 0.0) >= 1.0 and not is_parrot(answer, other_secrets, neighbours)

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
            other_secrets=other_secrets,
            start=self.start(positions, [needle.text for needle in record.needles]),
            prompt_tokens=record.prompt_tokens,
            own_tokens=record.own_tokens,
            cached_tokens=record.cached_tokens,
            margins=margins_of(record),
            steps=steps_of(record),
            tokens=tokens,
            seconds=record.latency_s or 0.0,
            attempts=record.attempts,
            tokens_before=record.logprobs.start if record.logprobs else None,
        )


def fact_depths(schedule: Schedule, ask: Ask) -> Sequence[float]:
    """Return the depths of the facts in an ask's haystack, as shares of it."""
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


def reference_settings(settings: Settings, reference: str, run: Path) -> Settings:
    """Return the settings with which a family's prompts are sent to the reference.

    settings: those of the family. reference: an address, or a model. run: the family's folder.
    """
    if "://" in reference:
        address: dict[str, Any] = {"base_url": reference}
    else:
        address = {"model": reference, "base_url": None}
    source = {name: getattr(settings, name) for name in PromptSource.model_fields if name != "run"}
    changes: dict[str, Any] = {
        "model_options": {},
        "logprobs": False,
        **logprobs_setting(str(address.get("model") or settings.model)),
        **address,
        "prompts_of": PromptSource(run=str(run), **source),
    }
    return addressed(settings.model_copy(update=changes))


def make_asker(
    flags: Mapping[str, Any],
    options: Options,
    seed: int,
    path: Path,
    reference: str = "",
) -> Asker:
    """Return the asker of a check, which makes its prompts.

    A prompt is built to measure the text around a haystack, and how many facts fit.

    Raises SettingsError, with the flag to type, if a flag is wrong.
    """
    flags = {**logprobs_setting(str(flags.get("model", ""))), **flags}
    flags, base = settle_flags({**flags, **facts_for(flags)}, seed)
    answer_tokens = base.settings.max_answer_tokens

    length = min(options.max_length, ENOUGH + answer_tokens)
    frame = _measure_frame(base, length, spare=0 if options.holds else SPARE)
    with_one_fact = replace(
        options,
        answer_tokens=answer_tokens,
        around=frame.around + frame.fact,
        facts=1,
        probes=(),
    )
    shortest = Schedule(with_one_fact, seed).sizes[0]
    questions = _question_count(base.settings)

    room = MOST_FACTS
    if shortest < _SCARCE:
        room = (shortest - frame.around) // (2 * frame.fact)
    facts = max(1, min(MOST_FACTS, questions, room))

    measured_options = replace(
        options,
        answer_tokens=answer_tokens,
        around=frame.around + facts * frame.fact,
        head=frame.head,
        facts=facts,
        logprobs=base.settings.logprobs,
        prefills=base.traits.teacher and base.traits.remote,
        serial=base.traits.serial,
        distinct=questions > 1 or _has_drawn_secrets(base.settings),
        twins=_has_twins(base.settings),
    )
    schedule = Schedule(measured_options, seed)
    return Asker(
        flags,
        seed,
        schedule=schedule,
        base=base,
        reference=reference,
        path=path,
    )


def settle_flags(flags: Mapping[str, Any], seed: int) -> tuple[dict[str, Any], Resolved]:
    """Return the flags with the tokenizer that lengths count, and the resolved settings.

    If the model's own tokenizer is not known, any will do, because ways of asking are only compared
    with each other. Raises SettingsError if a flag is wrong.
    """
    resolved = resolve(_shared_settings(flags, seed))
    if not foreign_vocabulary(resolved.settings, resolved.traits, resolved.tokenizer):
        return dict(flags), resolved
    with_any = {**flags, "tokenizer": ANY}
    return with_any, resolve(_shared_settings(with_any, seed))


def vocabulary_note(flags: Mapping[str, Any], settings: Settings) -> str:
    """Return a note if the model's vocabulary is not known and nobody named one, else ''.

    flags: those that were typed. settings: those that `settle_flags` made of them.
    """
    if settings.tokenizer != ANY or flags.get("tokenizer") == ANY:
        return ""
    return f"note: the model's vocabulary is not known here: lengths count {ANY}'s tokens"


def _shared_settings(flags: Mapping[str, Any], seed: int) -> Settings:
    """Return the settings that all ways share."""
    fixed = {"task": "apart", "seed": seed, "collisions": "warn", "canary": False, "repeats": 1}
    return configure(None, {**flags, **fixed})


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


def _measure_frame(base: Resolved, length: int, *, spare: int) -> Frame:
    """Return the tokens of a prompt of that length that are not haystack.

    spare: tokens by which another fact may be longer; 0 for the gauge, whose facts all have one
        length. Unused spare tokens of all facts stand after the last one, and a cache's last block
        may lack them.
    """
    one_prompt: dict[str, Any] = {
        "lengths": Lengths.of([length]),
        "depths": Depths.of([50]),
        # Not the check's, so that the sizes of two checks are the same.
        "seed": 0,
        "task_options": {"beside": [50.0]},
    }
    trial = prepare(base.settings.model_copy(update=one_prompt)).trials[0]
    prompt = trial.prompt
    message, first_span, _ = prompt.context
    head_spans = [span for earlier in prompt.messages[:message] for span in earlier.spans]
    head_spans += prompt.messages[message].spans[:first_span]

    fact = base.tokenizer.count(trial.item.needles[0].text.encode())
    around = length - prompt.haystack_tokens - fact
    return Frame(
        around=max(around, base.settings.reserve),
        head=sum(map(len, head_spans)),
        fact=fact + spare,
    )


def _question_count(settings: Settings) -> int:
    """Return how many facts with different questions a haystack may hide, at most MOST_FACTS."""
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


def _has_drawn_secrets(settings: Settings) -> bool:
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
