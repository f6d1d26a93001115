"""A storm on disk: what is asked of it, its texts and rounds, and what was answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from secrets import randbits
from typing import Any

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.grid import MOST_LENGTH, MOST_TOKENS
from needlemap.records.families import Families, fresh_folder
from needlemap.records.folder import RunFolder
from needlemap.records.record import Record
from needlemap.secrets import hidden
from needlemap.servers.check.asking import SEED_BITS
from needlemap.servers.check.families import elsewhere, facts_for, settle_flags
from needlemap.servers.storm.act import Act, Fact, Piece, Round, Turn
from needlemap.servers.storm.act import Path as Conversation
from needlemap.servers.storm.file import STORM, StormFile
from needlemap.servers.storm.operation import FamilyPlan, Limits
from needlemap.servers.storm.operations import OPERATIONS
from needlemap.servers.storm.operations.fresh import Fresh
from needlemap.servers.storm.plan import make_round
from needlemap.servers.storm.texts import Texts
from needlemap.trials import Trial, provider_host
from needlemap.trials.build import beyond, lent_prompts
from needlemap.trials.resolve import Resolved, resolve

FIRSTS, STORMED, BESIDE, COLD, REPLAY = "first", "storm", "beside", "cold", "replay"
SHRINK = "shrink"
FAMILIES = (FIRSTS, STORMED, BESIDE, COLD, REPLAY, SHRINK)
THERE = "reference-"  # before a family whose prompts the reference answers
WEIGHED = tuple(f"{THERE}{name}" for name in (FIRSTS, STORMED, COLD, REPLAY, SHRINK))
ALL_FAMILIES = FAMILIES + WEIGHED
OWN = "own server"  # what `provider_host` says of addresses of one's own
SMALLEST = 1_000  # tokens of the longest prompt at least


@dataclass(frozen=True, slots=True)
class StormOptions:
    """What a storm is asked to do. flags: of the model and the limits, as settings have them.
    wanted: the rate that is to be excluded, a share. own: whether clients may go away at an address
    that is not one's own. gauge: whether the model is the gauge. reference: a model of the same
    weights, beside which margins are compared; '' for none. without: operations to leave out."""

    flags: Mapping[str, Any]
    max_length: int = 64_000
    load: int = 8
    kv_tokens: int | None = None
    wanted: float = 0.005
    own: bool = False
    gauge: bool = False
    reference: str = ""
    without: tuple[str, ...] = ()


@dataclass
class Storm:
    """A storm on disk. fixed: what its beginning settled; None before it."""

    options: StormOptions
    folder: Families
    resolved: Resolved
    seed: int
    fixed: StormFile | None
    _texts: Texts | None = None
    _reference: Resolved | None = None

    @classmethod
    def of(cls, options: StormOptions, path: Path | None = None, seed: int | None = None) -> Storm:
        """Begin one, or go on with what the folder holds; a fresh one where none is given.
        seed: of a new one; drawn where none is given. Raises NeedlemapError where it holds
        another, SettingsError."""
        before = STORM.read(path) if path and STORM.is_in(path) else None
        drawn = randbits(SEED_BITS) if seed is None else seed
        seed = before.seed if before else drawn
        _, resolved = settle_flags({**options.flags, **facts_for(options.flags)}, seed)
        beyond(resolved, [])
        least = SMALLEST if resolved.settings.max_answer_tokens < 100 else 2 * SMALLEST
        if options.max_length < least:
            smaller = ", or a smaller --max-answer-tokens" if least > SMALLEST else ""
            raise SettingsError(
                f"--max-length {options.max_length:,} leaves no room for conversations: use "
                f"{least:,} or more{smaller}."
            )
        if options.max_length > MOST_LENGTH:
            raise SettingsError(
                f"--max-length is {MOST_LENGTH:,} at most, got {options.max_length:.6g}."
            )
        if not 0 < (options.kv_tokens or 1) <= MOST_TOKENS:
            raise SettingsError(
                f"--kv-tokens takes 1 to {MOST_TOKENS:,}, got {options.kv_tokens:.6g}."
            )
        asked = (options.max_length, options.load, resolved.settings.model)
        if before and (before.max_length, before.load, before.model) != asked:
            raise NeedlemapError(
                f"'{path}' holds a storm of {before.model} to {before.max_length:,} tokens with "
                f"--load {before.load}. Type the same, or give another folder with -o."
            )
        path = path or fresh_folder(resolved.settings, "storm")
        settled = before if before and before.pace != (0.0, 0.0) else None
        check_left_out(options.without)
        if settled and (new := set(options.without) - set(settled.without)):
            later = dict.fromkeys(sorted(new), settled.rounds + 1)
            settled = settled.model_copy(update={"without": {**settled.without, **later}})
        if before and before.reference != options.reference:
            raise NeedlemapError(
                f"'{path}' holds a storm whose margins are set beside {_beside(before.reference)}. "
                f"What is typed sets them beside {_beside(options.reference)}, and no other is "
                f"asked. Type the same, or give another folder with -o."
            )
        names = FAMILIES + (WEIGHED if options.reference else ())
        made = cls(options, Families(path, "storm", names), resolved, seed, settled)
        if before and before.cancels and not made.cancels:
            raise NeedlemapError(
                f"In the storm of '{path}' clients go away, which costs another's server what "
                f"nobody reads. To go on with it at this address, type the same with --own."
            )
        return made

    @property
    def cancels(self) -> bool:
        """Whether clients go away: at an address of one's own, or where it is allowed."""
        settings, traits = self.resolved.settings, self.resolved.traits
        host = provider_host(settings.backend, settings.base_url)
        return not traits.serial and (not traits.remote or host == OWN or self.options.own)

    @property
    def limits(self) -> Limits:
        """What its rounds may do."""
        settings, options = self.resolved.settings, self.options
        fixed = self.fixed
        return Limits(
            options.max_length,
            options.load,
            settings.max_answer_tokens,
            fixed.kv_tokens if fixed else options.kv_tokens,
            fixed.cancels if fixed else self.cancels,
            fixed.many if fixed else True,
        )

    def limits_at(self, number: int) -> Limits:
        """What one of its rounds may do: an operation that the model cannot do is left out from
        some round on."""
        known = self.fixed.without if self.fixed else dict.fromkeys(self.options.without, 0)
        left_out = (name for name, start in known.items() if number >= start)
        return replace(self.limits, without=frozenset(left_out))

    @property
    def texts(self) -> Texts:
        """What makes its prompts."""
        if self._texts is None:
            self._texts = Texts(self.resolved, self.seed, self.options.max_length)
        self._texts.framing = self.fixed.framing if self.fixed else 0
        return self._texts

    def round(self, number: int) -> Round:
        """One round of it."""
        return make_round(self.seed, number, self.limits_at(number))

    def file(self) -> StormFile:
        """What is on disk, or will be."""
        return self.fixed or StormFile(
            seed=self.seed,
            model=self.resolved.settings.model,
            max_length=self.options.max_length,
            load=self.options.load,
            kv_tokens=self.options.kv_tokens,
            cancels=self.cancels,
            wanted=self.options.wanted,
            reference=self.options.reference,
            without=dict.fromkeys(self.options.without, 0),
        )

    @property
    def reference(self) -> Resolved | None:
        """With what settings the reference is asked; None without one."""
        wanted = self.options.reference
        if wanted and self._reference is None:
            run = self.folder.folder(STORMED)
            self._reference = resolve(elsewhere(self.resolved.settings, wanted, run))
        return self._reference

    def there(self, resolved: Resolved, trial: Trial) -> Trial:
        """The same prompt as the reference is fed it. resolved: of the reference."""
        (prompt,) = lent_prompts(resolved, [trial.prompt], ready=False)
        return Trial.of(resolved.keys, trial.cell, trial.repeat, trial.item, prompt)

    def records(self) -> dict[tuple[str, int], Record]:
        """All that was asked and answered, by family and number."""
        found = {}
        for name in self.folder.names:
            for record in RunFolder(self.folder.folder(name)).records():
                if record.answer is not None or (name, record.repeat) not in found:
                    found[name, record.repeat] = record
        return found


def check_left_out(names: Sequence[str]) -> None:
    """Raises SettingsError for a name that is not that of an operation that can be left out."""
    known = [name for each in OPERATIONS for name in (each.name, each.follows) if name]
    known.remove(Fresh.name)
    for name in names:
        if name not in known:
            raise SettingsError(f"--without '{name}': choose of {', '.join(known)}.")


def _beside(reference: str) -> str:
    """What margins are set beside, in words."""
    return f"'{hidden(reference)}'" if reference else "nothing"


def first_round(seed: int, limits: Limits) -> Round:
    """A few prompts one after another, short and long, by which a storm learns the model's
    ways: how long it takes, what its server counts beside ours, and whether it answers several
    questions at once."""
    numbers = iter(range(100))
    plan = FamilyPlan(0, Random(f"first:{seed}"), limits, numbers, numbers)
    acts = []
    sizes = (200, 200, limits.room // 4, limits.room // 2, 400, 400, 400)
    for number, size in enumerate(sizes):
        stream = replace(plan.stream(0, min(size, limits.room)), family=number)
        turn = plan.turn((), (Piece(stream, stream.tokens),))
        if number > 3:
            facts = tuple(Fact(stream, at) for at in stream.facts_within(stream.tokens))
            turn = Turn(turn.pieces, facts)
        acts.append(Act(number, number, number, number, Fresh.name, (turn,)))
    return Round(0, tuple(acts))


@dataclass
class Answered:
    """Answers of one asking of a round, by conversation."""

    by_path: dict[tuple[int, Conversation], str] = field(default_factory=dict)

    def of(self, family: int) -> Callable[[Conversation], str | None]:
        """What the model said to a conversation of a family."""
        return lambda path: self.by_path.get((family, path))
