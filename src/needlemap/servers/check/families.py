"""The families of a check: settings of each way of asking, and the trials of its asks.

Each way at each size is a family of the run's folder, so that `report`, `compare` and `replay` take
it. All facts are those of the task `apart`; the seed is drawn for the check, so that no cache of
before answers its prompts.
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
from needlemap.servers.apart import drawn_apart, twin_of
from needlemap.servers.check.ask import (
    BESIDE,
    ROOMY,
    TIMES_ROOM,
    TOSS,
    Ask,
    Key,
    Reply,
    did_end,
    is_parrot,
)
from needlemap.servers.check.haystack import BEHIND, LAST, Options
from needlemap.servers.check.margins import margins_of
from needlemap.servers.check.schedule import Schedule
from needlemap.settings import PromptSource, Settings
from needlemap.settings.reading import DEFAULT_ITEMS, addressed, configure
from needlemap.tasks import make_task
from needlemap.trials import Trial
from needlemap.trials.build import Experiment, beyond, lent_prompts, prepare
from needlemap.trials.repeat import Repeat
from needlemap.trials.resolve import ANY, Resolved, foreign_vocabulary, resolve

ENOUGH = 4_000  # tokens of a prompt that shows what stands around a haystack
MOST_FACTS = 8
SPARE = 2  # tokens by which a fact may be longer than the one that is measured
SECRET = "100000000000:999999999999"  # twelve digits: by chance no two are equal
_ITEM = ("needle", "question", "keywords", "draw")
_SHORT_ONES = ("demo",)  # back ends whose models were trained on short secrets
_SCARCE = 1_024  # tokens of a size, of which facts may take half
_AROUND = 60  # characters beside a fact that a copy of the prompt holds
WINDOW_DEPTH = 0.9
KEPT = 6  # haystacks: one, its copy behind a first line, and the four of a crowd
_VALUES = ("a", "b", "c", "d", "e", "f")
TOSSED: dict[str, Any] = {  # the gauge finds each of the six about as likely
    "needle": " ".join(f"The locker code for Turin is {{{name}}}." for name in _VALUES),
    "question": "What is the locker code for Turin?",
    "keywords": ["{a}"],
    "draw": dict.fromkeys(_VALUES, SECRET),
}


def keeping_logprobs(model: str) -> dict[str, bool]:
    """The setting that has a model's back end keep an answer's log-probabilities; none where it
    cannot."""
    backend = backend_or_default(model.partition("/")[0])
    return {} if "logprobs" in backend.unread else {"logprobs": True}


def facts_for(flags: Mapping[str, Any]) -> dict[str, Any]:
    """What is hidden and asked: the user's own words, or locker codes of twelve digits."""
    own = {
        name: flags[name] for name in ("needle", "question", "keywords", "draw") if flags.get(name)
    }
    if own:
        return own
    language = str(flags.get("language", "english"))
    item = dict(DEFAULT_ITEMS.get(language, DEFAULT_ITEMS["english"]))
    if str(flags.get("model", "")).partition("/")[0] not in _SHORT_ONES:
        item["draw"] = {**item["draw"], "number": SECRET}
    return item


@dataclass(eq=False)
class Asker:
    """Makes the prompts of one check. flags: of the model and the limits, as settings have them;
    first: the settings of all ways, resolved."""

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
        """The settings of the family that an ask belongs to."""
        size, schedule = ask.size, self.schedule
        window = ask.way in ("window", "beyond")
        lengths = [ask.length] if window else _lengths(schedule, ask)
        options: dict[str, Any] = {
            "beside": [100 * depth for depth in depths_beside(schedule, ask)],
            "anchor": 0 if window else schedule.anchor(size),
            **({"drawn": schedule.drawn(size)} if not window and schedule.drawn(size) else {}),
            "exact": not window,
            "asked": None if ask.place is None else ask.fact,
            "line": ask.salt,
            "series": size,
            **({"twin": True} if ask.twin else {}),
        }
        own: dict[str, Any] = {
            "task_options": {**self.first.settings.task_options, **options},
            "lengths": Lengths.of(sorted(lengths)),
            "depths": Depths.of([setting(ask.depth)]),
            "repeats": 1,
            "first_repeat": 0,
        }
        if ask.state == "loaded" and not self.first.traits.serial:
            own["concurrency"] = schedule.options.load
        if ask.way.endswith(ROOMY):
            first = self.first.settings
            own["max_answer_tokens"] = TIMES_ROOM * first.max_answer_tokens
            own["thinking_tokens"] = first.thinking_tokens and TIMES_ROOM * first.thinking_tokens
            if first.reserve_tokens is None:
                own["reserve_tokens"] = first.max_answer_tokens  # the same prompt
        if ask.way in TOSS:
            own |= TOSSED
        return self.first.settings.model_copy(update=own)

    def resolved(self, ask: Ask) -> Resolved:
        """The family that an ask belongs to, resolved."""
        found = self.families.get(ask.family)
        if found is None:
            settings = self.settings(ask)
            grid = make_grid(settings.lengths, settings.depths)
            found = replace(self.first, settings=settings, grid=grid, task=make_task(settings))
            self.families[ask.family] = found
        return found

    def experiment(self, asks: Sequence[Ask], framing: int = 0) -> dict[Key, Trial]:
        """The trials of some asks of one family and one haystack, by the asks' keys."""
        resolved = self.resolved(asks[0])
        if framing:
            settings = resolved.settings.model_copy(update={"framing_tokens": framing})
            resolved = replace(resolved, settings=settings)
            self.families[asks[0].family] = resolved
        grid = Grid(lengths=tuple(sorted({ask.length for ask in asks})), depths=(0.0,))
        part = replace(resolved, grid=grid)
        repeat = self._repeat(asks[0], part)
        cells = [Cell(ask.length, ask.depth) for ask in asks]
        return {ask.key: trial for ask, trial in zip(asks, repeat.trials(cells), strict=True)}

    def _repeat(self, ask: Ask, resolved: Resolved) -> Repeat:
        """The haystack of an ask, made once for all ways that share it: the last few are kept, as
        what is asked beside it has haystacks of its own."""
        made = self._haystacks.pop(ask.haystack, {})
        self._haystacks[ask.haystack] = made
        if len(self._haystacks) > KEPT:
            del self._haystacks[next(iter(self._haystacks))]
        if ask.family in made:
            return replace(made[ask.family], resolved=resolved)
        whole = replace(resolved, grid=Grid(lengths=(max(ask.size, ask.length),), depths=(0.0,)))
        shared = next(iter(made.values()), None)
        anchored = (
            shared is not None
            and shared.resolved.task.anchor_tokens(ask.repeat, self.seed)
            == resolved.task.anchor_tokens(ask.repeat, self.seed)
            and shared.number == ask.repeat
            and max(shared.resolved.grid.lengths) >= max(ask.size, ask.length)
        )
        if shared is not None and anchored:
            found = replace(shared, resolved=whole, frames={})
        else:
            found = Repeat.of(whole, ask.repeat, cache(resolved.tokenizer.index), None)
        made[ask.family] = found
        return replace(found, resolved=resolved)

    def elsewhere(self, ask: Ask, trial: Trial) -> tuple[Resolved, Trial]:
        """The same prompt for the reference, and the settings with which it is asked."""
        own = replace(ask, way=ask.way.removeprefix(BESIDE))
        resolved = self.families.get(ask.family)
        if resolved is None:
            settings = elsewhere(self.settings(own), self.reference, self.path / own.family)
            resolved = resolve(settings)
            self.families[ask.family] = resolved
        (prompt,) = lent_prompts(resolved, [trial.prompt], ready=False)
        return resolved, Trial.of(resolved.keys, trial.cell, trial.repeat, trial.item, prompt)

    def start(self, positions: Sequence[int], needles: Sequence[str]) -> int:
        """Tokens of a prompt before its first needle, which is the asked fact. positions: haystack
        tokens before each. Where the vocabulary joins text across a seam, it is some tokens off."""
        if not positions or len(positions) != len(needles):
            return 0
        before = [text for text, at in zip(needles, positions, strict=True) if at < positions[0]]
        return self.schedule.options.head + positions[0] + sum(map(self._tokens, before))

    def _tokens(self, text: str) -> int:
        if text not in self._counted:
            self._counted[text] = self.first.tokenizer.count(text.encode())
        return self._counted[text]

    def window(self, framing: int | None) -> list[Ask]:
        """Prompts that end with the last tokens of the context, and one of a token more, behind
        which no answer has room; none where the context is unknown, or lengths are another
        vocabulary's."""
        options = self.schedule.options
        context, size = options.context, self.schedule.sizes[-1]
        if context is None or context > size or framing is None:
            return []
        if "window" not in self.schedule.probes:
            return []
        ends = [("window", context - less) for less in reversed(range(LAST))]
        ends.append(("beyond", context + options.answer_tokens + 1))
        return [Ask(way, size, length, WINDOW_DEPTH, 0) for way, length in ends]

    def secrets(self, ask: Ask) -> tuple[str, ...]:
        """The key words of the facts of an ask's haystack."""
        at = ask.size, ask.repeat, ask.facts, ask.twin
        if at not in self._secrets:
            self._secrets[at] = self._drawn(*at)
        return self._secrets[at]

    def _drawn(self, size: int, repeat: int, facts: int, twin: bool) -> tuple[str, ...]:
        settings, series = self.first.settings, self.seed + size
        draws = drawn_apart(settings.draw or {}, repeat, series, facts, settings.question)
        if twin:
            draws[-1] = twin_of(draws[-1], settings.keywords)
        words = ([fill(word, values, "keywords") for word in settings.keywords] for values in draws)
        return tuple(max(row, key=len) for row in words)

    @without_limit()
    def reply(self, ask: Ask, record: Record) -> Reply:
        """What came of an ask, by its record."""
        secrets = self.secrets(ask)
        secret = secrets[ask.fact]
        beside = tuple(each for at, each in enumerate(secrets) if at != ask.fact)
        answer = record.answer or ""
        around = [n.before[-_AROUND:] for n in record.needles[:1]]
        around += [n.after[:_AROUND] for n in record.needles[:1]]
        parrot = is_parrot(answer, beside, around)
        budget = self.first.settings.max_answer_tokens
        budget *= TIMES_ROOM if ask.way.endswith(ROOMY) else 1
        ended = did_end(record.finish, record.completion_tokens, budget)
        right = (record.score or 0.0) >= 1.0 and ended and not parrot
        failure = "" if record.scored else record.failure or "not measured"
        positions = record.prompt.positions if record.prompt else ()
        sent = (record.prompt_tokens or record.own_tokens) + (record.completion_tokens or 0)
        return Reply(
            ask,
            answer,
            right,
            ended,
            failure,
            secret,
            beside,
            self.start(positions, [needle.text for needle in record.needles]),
            record.prompt_tokens,
            record.own_tokens,
            record.cached_tokens,
            margins_of(record),
            sent if record.latency_s is not None else 0,
            record.latency_s or 0.0,
            record.attempts,
        )


def depths_beside(schedule: Schedule, ask: Ask) -> Sequence[float]:
    """Where the facts of an ask's haystack stand."""
    if ask.facts == 1:
        return (ask.depth,) if ask.place is None else (0.5,)
    return schedule.depths_at(ask.size)


def _lengths(schedule: Schedule, ask: Ask) -> Iterable[int]:
    """The lengths that a family may have."""
    if ask.size == schedule.short or ask.way.startswith("half"):
        return [ask.length]
    fixed = range(ask.size - schedule.comb - BEHIND, ask.size + 1)
    return {ask.length, *fixed, *schedule.drawn_lengths[ask.size]}


def elsewhere(settings: Settings, reference: str, run: Path) -> Settings:
    """The settings with which a way's very prompts are asked of the reference."""
    named = {name: getattr(settings, name) for name in PromptSource.model_fields if name != "run"}
    address = "://" in reference
    asker = {"base_url": reference} if address else {"model": reference, "base_url": None}
    own: dict[str, Any] = {
        "model_options": {},
        "logprobs": False,
        **keeping_logprobs(str(asker.get("model") or settings.model)),
        **asker,
    }
    lent = {"prompts_of": PromptSource(run=str(run), **named)}
    return addressed(settings.model_copy(update={**own, **lent}))


def made_for(
    flags: Mapping[str, Any], options: Options, seed: int, path: Path, reference: str = ""
) -> Asker:
    """What asks for a check. Measures what stands around a haystack, and how many facts fit. Raises
    SettingsError for what is wrong, with what to type."""
    flags = {**keeping_logprobs(str(flags.get("model", ""))), **flags}
    flags, first = settle_flags({**flags, **facts_for(flags)}, seed)
    answer = first.settings.max_answer_tokens
    most = min(options.max_length, ENOUGH + answer)
    around, head, fact = _around(first, most, 0 if options.holds else SPARE)
    questions = _questions(first.settings)
    sizes = Schedule(
        replace(options, answer_tokens=answer, around=around + fact, facts=1, probes=()), seed
    ).sizes
    room = (sizes[0] - around) // (2 * fact) if sizes[0] < _SCARCE else MOST_FACTS
    facts = max(1, min(MOST_FACTS, questions, room))
    schedule = Schedule(
        replace(
            options,
            answer_tokens=answer,
            around=around + facts * fact,
            head=head,
            facts=facts,
            logprobs=first.settings.logprobs,
            serial=first.traits.serial,
            distinct=questions > 1 or _draws(first.settings),
            twins=_has_twins(first.settings),
        ),
        seed,
    )
    beyond(first, [])
    return Asker(flags, seed, schedule, first, reference, path)


def settle_flags(flags: Mapping[str, Any], seed: int) -> tuple[dict[str, Any], Resolved]:
    """Settings with the vocabulary that lengths count, where the model's own is not known: any will
    do, as ways of asking are only set beside each other. Raises SettingsError."""
    found = resolve(_settled(flags, seed))
    if not foreign_vocabulary(found.settings, found.traits, found.tokenizer):
        return dict(flags), found
    known = {**flags, "tokenizer": ANY}
    return known, resolve(_settled(known, seed))


def _settled(flags: Mapping[str, Any], seed: int) -> Settings:
    """The settings that all ways share."""
    own = {"task": "apart", "seed": seed, "collisions": "warn", "canary": False, "repeats": 1}
    return configure(None, {**flags, **own})


def _around(first: Resolved, length: int, spare: int) -> tuple[int, int, int]:
    """Tokens of a prompt beside haystack and fact, tokens of them before the haystack, and
    tokens of a fact: with a seed of their own, so that the sizes of two checks are the same.
    spare: tokens by which another fact may be longer, which the gauge's are not. What is
    spared of all facts stands behind the last one: a cache's last block may lack it."""
    one: dict[str, Any] = {
        "lengths": Lengths.of([length]),
        "depths": Depths.of([50]),
        "seed": 0,
        "task_options": {"beside": [50.0]},
    }
    trial = prepare(first.settings.model_copy(update=one)).trials[0]
    prompt = trial.prompt
    number, start, _ = prompt.context
    before = [span for message in prompt.messages[:number] for span in message.spans]
    before += prompt.messages[number].spans[:start]
    fact = first.tokenizer.count(trial.item.needles[0].text.encode())
    around = length - prompt.haystack_tokens - fact
    return max(around, first.settings.reserve), sum(map(len, before)), fact + spare


def _questions(settings: Settings) -> int:
    """How many facts a haystack may hide: as many as their questions differ."""
    for count in range(MOST_FACTS, 1, -1):
        try:
            drawn_apart(settings.draw or {}, 0, 0, count, settings.question)
            return count
        except SettingsError:
            continue
    return 1


def _draws(settings: Settings) -> bool:
    """Whether secrets differ by haystack."""
    values = list(settings.draw or {})
    return any("{" + name + "}" in word for name in values for word in settings.keywords)


def _has_twins(settings: Settings) -> bool:
    """Whether a right answer holds a number, whose twin ends otherwise."""
    (values,) = drawn_apart(settings.draw or {}, 0, 0, 1, settings.question)
    return twin_of(values, settings.keywords) != values


def experiment_of(resolved: Resolved, trials: Sequence[Trial]) -> Experiment:
    """A family as it is described on disk."""
    return Experiment.of(resolved, trials, ())
