"""Keep a storm on disk: what it is asked to do, its texts and rounds, and what was answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from secrets import randbits
from typing import Any

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.grid import MOST_LENGTH, MOST_TOKENS
from needlemap.models import backend_or_default
from needlemap.records.families import Families, fresh_folder
from needlemap.records.folder import RunFolder
from needlemap.records.record import Record
from needlemap.secrets import hidden
from needlemap.servers.check.asking import SEED_BITS
from needlemap.servers.check.families import facts_for, reference_settings, settle_flags
from needlemap.servers.storm.act import Act, Fact, Piece, Round, Turn
from needlemap.servers.storm.act import Path as Conversation
from needlemap.servers.storm.file import STORM, StormFile
from needlemap.servers.storm.operation import FamilyPlan, Limits
from needlemap.servers.storm.operations import OPERATIONS
from needlemap.servers.storm.operations.fresh import Fresh
from needlemap.servers.storm.plan import make_round
from needlemap.servers.storm.texts import Texts
from needlemap.servers.ways import COARSEST, DataType
from needlemap.trials import Trial, provider_host
from needlemap.trials.build import lent_prompts
from needlemap.trials.resolve import Resolved, resolve

# Names of families.
# The first prompts, by which a storm learns the model.
FIRSTS = "first"
# The storm's own prompts.
STORMED = "storm"
# The same prompts sent cold: some during the rounds, and for suspects.
BESIDE = "beside"
COLD = "cold"
# Replays of suspects.
REPLAY = "replay"
SHRINK = "shrink"
# The same prompts sent alone, of which no cache holds anything: once, once more, after a replay.
ALONE, ALONE_AGAIN, ALONE_BEHIND = "alone", "alone-again", "alone-behind"
COLD_AGAIN = "cold-again"
UNCACHED = (ALONE, ALONE_AGAIN, ALONE_BEHIND, COLD_AGAIN)
FAMILIES = (FIRSTS, STORMED, BESIDE, COLD, REPLAY, SHRINK, *UNCACHED)
# Before a family whose prompts the reference answers.
THERE = "reference-"
WEIGHED = tuple(f"{THERE}{name}" for name in (FIRSTS, STORMED, COLD, REPLAY, SHRINK))
ALL_FAMILIES = FAMILIES + WEIGHED
# What `provider_host` returns for addresses of one's own.
OWN = "own server"
# Tokens of the longest prompt, at least.
SMALLEST = 1_000
# Tokens of an answer from which on conversations need twice as much.
_LONG_ANSWER = 100


@dataclass(frozen=True, slots=True)
class StormOptions:
    """What a storm is asked to do.

    Attributes:
        flags: Settings of the model and the limits.
        max_length: Tokens of the longest prompt.
        load: Requests at a time.
        kv_tokens: Tokens that the server caches; None if that is not known.
        wanted: The rate that is to be excluded, a share.
        own: Whether clients may go away at an address that is not one's own.
        gauge: Whether the model is the gauge.
        reference: A model of the same weights whose margins are compared; '' for none.
        without: Operations to leave out.
        ways: Whether equal ways of asking judge, whatever the model finds.
        dtype: What the server computes in.
        slots: Whether the server saves slots.
        other: Its second model; '' for none.
    """

    flags: Mapping[str, Any]
    max_length: int = 64_000
    load: int = 8
    kv_tokens: int | None = None
    wanted: float = 0.005
    own: bool = False
    gauge: bool = False
    reference: str = ""
    without: tuple[str, ...] = ()
    ways: bool = False
    dtype: DataType = COARSEST
    slots: bool = False
    other: str = ""


@dataclass
class Storm:
    """A storm on disk.

    Attributes:
        options: What it is asked to do.
        folder: Its folder, with all families.
        resolved: The settings of its model.
        seed: Fixes all that it sends.
        fixed: What its first prompts settled; None before that.
    """

    options: StormOptions
    folder: Families
    resolved: Resolved
    seed: int
    fixed: StormFile | None
    _texts: Texts | None = None
    _reference: Resolved | None = None

    @classmethod
    def of(cls, options: StormOptions, path: Path | None = None, seed: int | None = None) -> Storm:
        """Start a storm, or resume the one in the folder.

        path: the folder; None for a fresh one. seed: of a new storm; None for a drawn one. Raises
        NeedlemapError if the folder holds another storm, and SettingsError for wrong settings.
        """
        before = STORM.read(path) if path and STORM.is_in(path) else None
        if before:
            seed = before.seed
        elif seed is None:
            seed = randbits(SEED_BITS)

        _, resolved = settle_flags({**options.flags, **facts_for(options.flags)}, seed)
        _check_sizes(options, resolved)
        if before and path:
            _check_same(before, options, resolved, path)
        path = path or fresh_folder(resolved.settings, "storm")
        check_left_out(options.without)
        names = FAMILIES + (WEIGHED if options.reference else ())
        storm = cls(
            options,
            Families(path, "storm", names),
            resolved=resolved,
            seed=seed,
            fixed=_settled_before(before, options.without),
        )
        if before and before.cancels and not storm.cancels:
            raise NeedlemapError(
                f"In the storm of '{path}' clients go away, which costs another's server what "
                "nobody reads. To go on with it at this address, type the same with --own."
            )
        return storm

    @property
    def cancels(self) -> bool:
        """Return True if clients go away: at an address of one's own, or if the user allows it.

        A model that answers one prompt after another has no clients that could.
        """
        traits = self.resolved.traits
        if traits.serial:
            return False
        return not traits.remote or self.options.own or self._host == OWN

    @property
    def is_own(self) -> bool:
        """Return True if the server is at an address of the user's own.

        Only such a server is sent fields that other servers do not know.
        """
        return self.resolved.traits.remote and self._host == OWN

    @property
    def _host(self) -> str:
        settings = self.resolved.settings
        return provider_host(settings.backend, settings.base_url)

    @property
    def by_ways(self) -> bool:
        """Return True if requests are judged by equal ways of asking, and not by their answers."""
        return self.fixed is not None and self.fixed.little is not None

    def judge_by_ways(self, rate: tuple[int, int] | None) -> None:
        """Judge requests by equal ways of asking from now on, or by their answers.

        rate: how many facts the model found, and of how many; None to judge by answers.
        """
        assert self.fixed is not None
        self.fixed = self.fixed.model_copy(update={"little": rate})
        STORM.write(self.folder.path, self.fixed)

    @property
    def request_settings(self) -> Resolved:
        """Return the resolved settings of the storm's requests.

        If equal ways of asking judge, they ask for log-probabilities.
        """
        backend = backend_or_default(self.resolved.settings.backend)
        if not self.by_ways or "logprobs" in backend.unread:
            return self.resolved
        settings = self.resolved.settings.model_copy(update={"logprobs": True})
        return replace(self.resolved, settings=settings)

    @property
    def limits(self) -> Limits:
        """Return the limits of its rounds, by the options and what the first prompts settled."""
        options, fixed = self.options, self.fixed
        limits = Limits(
            max_length=options.max_length,
            load=options.load,
            answer_tokens=self.resolved.settings.max_answer_tokens,
            kv_tokens=options.kv_tokens,
            cancels=self.cancels,
            slots=options.slots,
            other=bool(options.other),
        )
        if fixed is None:
            return limits
        return replace(
            limits,
            kv_tokens=fixed.kv_tokens,
            cancels=fixed.cancels,
            # If nobody reads them, long answers are sent whatever the model can do.
            many=fixed.many or fixed.little is not None,
            slots=fixed.slots,
            other=bool(fixed.other),
        )

    def limits_at(self, number: int) -> Limits:
        """Return the limits of one of its rounds.

        An operation that the model cannot do is left out from some round on.
        """
        without = dict.fromkeys(self.options.without, 0)
        if self.fixed:
            without = self.fixed.without
        names = frozenset(name for name, start in without.items() if number >= start)
        return replace(self.limits, without=names)

    @property
    def texts(self) -> Texts:
        """Return the maker of its prompts."""
        if self._texts is None:
            self._texts = Texts(self.resolved, self.seed, self.options.max_length)
        self._texts.framing = self.fixed.framing if self.fixed else 0
        return self._texts

    def round(self, number: int) -> Round:
        """Return one of its rounds."""
        return make_round(self.seed, number, self.limits_at(number))

    def file(self) -> StormFile:
        """Return storm.json, or what it starts with if nothing is settled yet."""
        return self.fixed or StormFile(
            seed=self.seed,
            model=self.resolved.settings.model,
            max_length=self.options.max_length,
            load=self.options.load,
            kv_tokens=self.options.kv_tokens,
            cancels=self.cancels,
            wanted=self.options.wanted,
            reference=self.options.reference,
            slots=self.options.slots,
            other=self.options.other,
            without=dict.fromkeys(self.options.without, 0),
        )

    @property
    def reference(self) -> Resolved | None:
        """Return the resolved settings of the reference model, or None if the storm has none.

        They are resolved at the first call, and kept, as each request to the reference needs them.
        """
        model_name = self.options.reference
        if model_name and self._reference is None:
            # The reference is sent the storm's prompts, so its settings name the family of those.
            prompts_folder = self.folder.folder(STORMED)
            settings = reference_settings(
                self.resolved.settings,
                reference=model_name,
                run=prompts_folder,
            )
            self._reference = resolve(settings)
        return self._reference

    def reference_trial(self, reference: Resolved, trial: Trial) -> Trial:
        """Return the same prompt as the reference is fed it, by the settings of the reference."""
        (prompt,) = lent_prompts(reference, [trial.prompt], ready=False)
        return Trial.of(reference.keys, trial.cell, trial.repeat, trial.item, prompt)

    def records(self) -> dict[tuple[str, int], Record]:
        """Return the records of all requests, by family and number.

        If a request has several records, the last one with an answer counts.
        """
        records = dict[tuple[str, int], Record]()
        for name in self.folder.names:
            for record in RunFolder(self.folder.folder(name)).records():
                key = name, record.repeat
                if record.answer is not None or key not in records:
                    records[key] = record
        return records


def _check_sizes(options: StormOptions, resolved: Resolved) -> None:
    """Raise SettingsError for lengths that leave no room, or are longer than any prompt."""
    shortest = SMALLEST
    other_advice = ""
    if resolved.settings.max_answer_tokens >= _LONG_ANSWER:
        shortest = 2 * SMALLEST
        other_advice = ", or a smaller --max-answer-tokens"
    if options.max_length < shortest:
        raise SettingsError(
            f"--max-length {options.max_length:,} leaves no room for conversations: use "
            f"{shortest:,} or more{other_advice}."
        )
    if options.max_length > MOST_LENGTH:
        raise SettingsError(
            f"--max-length is {MOST_LENGTH:,} at most, got {options.max_length:.6g}."
        )
    if not 0 < (options.kv_tokens or 1) <= MOST_TOKENS:
        raise SettingsError(f"--kv-tokens takes 1 to {MOST_TOKENS:,}, got {options.kv_tokens:.6g}.")


def _check_same(before: StormFile, options: StormOptions, resolved: Resolved, path: Path) -> None:
    """Raise NeedlemapError if the storm in a folder is not the one that was typed."""
    typed = options.max_length, options.load, resolved.settings.model
    if (before.max_length, before.load, before.model) != typed:
        raise NeedlemapError(
            f"'{path}' holds a storm of {before.model} to {before.max_length:,} tokens with "
            f"--load {before.load}. Type the same, or give another folder with -o."
        )
    if before.reference != options.reference:
        stored_words = _reference_words(before.reference)
        typed_words = _reference_words(options.reference)
        raise NeedlemapError(
            f"'{path}' holds a storm whose margins are set beside {stored_words}. "
            f"What is typed sets them beside {typed_words}, and no other is "
            "asked. Type the same, or give another folder with -o."
        )


def _settled_before(before: StormFile | None, without: Sequence[str]) -> StormFile | None:
    """Return what an earlier start settled, or None if it ended before that.

    without: operations that are left out. Those that were sent so far are left out from the next
    round on.
    """
    if before is None or before.pace == (0.0, 0.0):
        return None
    new_names = sorted(set(without) - set(before.without))
    if not new_names:
        return before
    first_rounds = {**before.without, **dict.fromkeys(new_names, before.rounds + 1)}
    return before.model_copy(update={"without": first_rounds})


def check_left_out(names: Sequence[str]) -> None:
    """Raise SettingsError for a name that is not that of an operation that can be left out."""
    operations = []
    for operation in OPERATIONS:
        operations += [name for name in (operation.name, operation.follows) if name]
    # Each family starts with it.
    operations.remove(Fresh.name)
    for name in names:
        if name not in operations:
            raise SettingsError(f"--without '{name}': choose of {', '.join(operations)}.")


def _reference_words(reference: str) -> str:
    """Return what margins are compared with: the reference's name in quotes, or nothing."""
    return f"'{hidden(reference)}'" if reference else "nothing"


def first_round(seed: int, limits: Limits) -> Round:
    """Return a few prompts one after another, short and long, by which a storm learns a model.

    It learns how long answers take, what its server counts in addition to ours, and whether it
    answers several questions at once.
    """
    numbers = iter(range(100))
    plan = FamilyPlan(0, Random(f"first:{seed}"), limits=limits, streams=numbers, others=numbers)
    acts = []
    singles = (200, 200, limits.room // 4, limits.room // 2)
    several = (400, 400, 400)
    for number, size in enumerate((*singles, *several)):
        stream = replace(plan.stream(0, min(size, limits.room)), family=number)
        turn = plan.turn((), (Piece(stream, stream.tokens),))
        if number >= len(singles):
            facts = stream.facts_within(stream.tokens)
            turn = Turn(turn.pieces, tuple(Fact(stream, fact) for fact in facts))
        act = Act(
            number,
            wave=number,
            family=number,
            session=number,
            operation=Fresh.name,
            path=(turn,),
        )
        acts.append(act)
    return Round(0, tuple(acts))


@dataclass
class RoundAnswers:
    """The answers of a round that was sent once.

    Attributes:
        by_path: The answers by family and conversation.
    """

    by_path: dict[tuple[int, Conversation], str] = field(default_factory=dict)

    def copy(self) -> RoundAnswers:
        """Return a copy to which later answers are not added."""
        return RoundAnswers(dict(self.by_path))

    def of(self, family: int) -> Callable[[Conversation], str | None]:
        """Return a function that gives the answer to a conversation of a family."""
        return lambda path: self.by_path.get((family, path))
