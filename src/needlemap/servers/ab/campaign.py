"""Run `ab` from start to end: send two arms the same prompts, block by block in random order, until
a verdict.

Each arm is a family of the run's folder for each family of the preset. The reference has one more,
`again`: it is asked twice, which shows how much it differs from itself. A haystack has one length
and few depths, and there are many haystacks, because each is one bet of the verdict (`arms.py`). If
the verdict ends the asking, each has one depth, in turn: a second prompt after the same text would
hardly improve the bet, and would cost as much. A family or length that the reference mostly gets
wrong is not asked further. The seed is drawn for the ab, so that no older cache answers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from random import Random
from secrets import randbits
from typing import Any

from needlemap.asking import Outcome
from needlemap.asking.campaign import Campaign, FullGrid, MakeModel, RunObserver
from needlemap.asking.failures import ARM_GONE, Failures
from needlemap.asking.resume import GRID_MODES
from needlemap.asking.session import Session
from needlemap.deadline import LimitReached
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.grid import Grid
from needlemap.models import backend_or_default
from needlemap.records.families import (
    Families,
    begin_families,
    concurrent_start_error,
    fresh_folder,
)
from needlemap.records.folder import Kept, RunFolder
from needlemap.records.record import Record
from needlemap.servers.ab.arms import ArmsLoss, ArmTrial, judge_arms, trios
from needlemap.servers.ab.file import AB, AGAIN, NAME, WEIGHED, AbFile, Arm, Findings, read_ab
from needlemap.servers.check.asking import SEED_BITS
from needlemap.servers.check.families import logprobs_setting
from needlemap.settings.reading import COMMAND, checked
from needlemap.settings.suites import Chosen, only_model
from needlemap.stats import asks_same, latest_records, place_of, places_of
from needlemap.stats.looks import Scope
from needlemap.stats.tested import is_untested
from needlemap.trials.build import Experiment, prepare_haystacks
from needlemap.trials.resolve import Resolved, resolve

# Pairs if nothing else ends it.
MOST = 20_000
# Pairs without --until.
PAIRS = 200
# vLLM's request field: prompts of other salts share no cache.
SALT = "cache_salt"
# A block is this part of what was asked before, so that whatever drifts meets both arms.
_PART = 16
# Haystacks of a family that the reference is asked twice of; after them one in four.
YARDSTICK = 100
YARDSTICK_STEP = 4
# Times that a lost answer is asked for again, after one block each.
AGAINS = 3
Settle = Callable[[dict[str, Any]], Mapping[str, Chosen]]


@dataclass(frozen=True, slots=True)
class AbOptions:
    """What an ab is asked to do.

    Attributes:
        arms: The reference, and the other arm.
        flags: Settings of both models and the limits.
        settle: Returns what flags choose.
        margin: The largest loss that is accepted, in points.
        pairs: The most pairs that are asked.
        decided: Whether a verdict ends the asking before that.
        weigh: Whether the reference's answers are also given to both arms, to be weighed.
        scope: What the verdict is to hold for.
    """

    arms: tuple[Arm, Arm]
    flags: Mapping[str, Any]
    settle: Settle
    margin: float = 2.0
    pairs: int = PAIRS
    decided: bool = False
    weigh: bool = False
    scope: Scope = "these"

    def __post_init__(self) -> None:
        if not 0 < self.margin <= 100:
            raise SettingsError(
                f"--margin {self.margin:g}: give a loss in points, more than 0 and up to 100."
            )
        if self.arms[0].name == self.arms[1].name:
            raise SettingsError(
                f"Both arms are named '{self.arms[0].name}'. Give each a name of its own."
            )
        if "base_url" in self.flags:
            raise SettingsError(
                "--base-url is one address, and each arm has its own: --arm NAME=URL."
            )


@dataclass(slots=True)
class Ab:
    """An ab on disk.

    Attributes:
        asked: What it is asked to do.
        folder: Its folder, with all families.
        seed: Fixes all prompts.
        ways: For each arm and `again`, the settings of the preset's families, resolved.
        weighing: The same for answers that are given to be weighed; {} if none are.
    """

    asked: AbOptions
    folder: Families
    seed: int
    ways: Mapping[str, Mapping[str, Resolved]]
    weighing: Mapping[str, Mapping[str, Resolved]]
    _folders: dict[str, RunFolder] = field(default_factory=dict)

    @classmethod
    def of(cls, asked: AbOptions, path: Path | None = None) -> Ab:
        """Start an ab, or resume the one in the folder.

        path: the folder; None for a fresh one. Raises NeedlemapError if the folder holds another
        ab, or the arms would be sent other prompts.
        """
        before = read_ab(path) if path and AB.is_in(path) else None
        seed = before.seed if before else _typed_seed(asked, randbits(SEED_BITS))
        ways = {arm.name: _resolved(asked, arm, seed, arm.name) for arm in asked.arms}
        first = next(iter(ways.values()))
        ways[AGAIN] = _resolved(asked, asked.arms[0], seed, AGAIN) if _salt(asked) else first
        weighing = {}
        if asked.weigh:
            weighing = {arm: _weighing(families) for arm, families in ways.items()}
        names = [f"{arm}-{family}" for arm in ways for family in first]
        names += [f"{arm}-{family}{WEIGHED}" for arm in weighing for family in first]
        path = path or fresh_folder(next(iter(first.values())).settings, "ab")
        ab = cls(
            asked,
            Families(path, "ab", tuple(names)),
            seed=seed,
            ways=ways,
            weighing=weighing,
        )
        if before is not None:
            _check_fixed(ab, before)
        ab.check_prompts()
        return ab

    @property
    def families(self) -> tuple[str, ...]:
        """Return the names of the preset's families."""
        return tuple(self.first)

    @property
    def first(self) -> Mapping[str, Resolved]:
        """Return the reference's families, by name."""
        return self.ways[self.asked.arms[0].name]

    def grids(self) -> list[tuple[list[int], list[float]]]:
        """Return the lengths and depths of each family."""
        return [
            (list(resolved.grid.lengths), list(resolved.grid.depths))
            for resolved in self.first.values()
        ]

    @property
    def depths(self) -> int:
        """Return the prompts of one haystack of each family, together."""
        return sum(len(self.depths_of(resolved.grid, 0)) for resolved in self.first.values())

    def depths_of(self, grid: Grid, number: int) -> tuple[float, ...]:
        """Return the depths of one haystack: all, or one in turn if a verdict ends the asking."""
        if not self.asked.decided:
            return grid.depths
        turn = number // len(grid.lengths)
        return (grid.depths[turn % len(grid.depths)],)

    def untested(self) -> dict[str, frozenset[int]]:
        """Return the lengths, by family, of which the reference gets under half right."""
        return {
            family: self._untested_lengths(family, resolved.grid.lengths)
            for family, resolved in self.first.items()
        }

    def _untested_lengths(self, family: str, lengths: Sequence[int]) -> frozenset[int]:
        scores = defaultdict[int, list[float]](list)
        for record in self.records(self.asked.arms[0].name, family):
            if record.score is not None:
                scores[record.length_tokens].append(record.score)
        all_scores = [score for part in scores.values() for score in part]
        if is_untested(len(all_scores), sum(all_scores)):
            return frozenset(lengths)
        return frozenset(
            length for length in lengths if is_untested(len(scores[length]), sum(scores[length]))
        )

    @property
    def haystacks(self) -> int:
        """Return the most haystacks of each family that are asked."""
        return ceil(self.asked.pairs / self.depths)

    @property
    def most_pairs(self) -> int:
        """Return the most pairs that are asked, as haystacks are asked whole."""
        return self.haystacks * self.depths

    def experiment(
        self, arm: str, family: str, numbers: Iterable[int], *, weigh: bool = False
    ) -> Experiment:
        """Return the trials of some haystacks, each of which has one of the lengths, in turn.

        A prompt that an earlier haystack came to as well counts for that one. Asked for again in
        another one, an answer that was lost would have no partner in the other arm. weigh: only
        those that the reference answered, with that answer as the one to weigh.
        """
        resolved = (self.weighing if weigh else self.ways)[arm][family]
        lengths = resolved.grid.lengths
        grids = []
        for number in numbers:
            depths = self.depths_of(resolved.grid, number)
            grids.append((number, Grid((lengths[number % len(lengths)],), depths)))
        experiment = replace(prepare_haystacks(resolved, grids), grid=resolved.grid)
        if weigh:
            return with_answers(experiment, self.records(self.asked.arms[0].name, family))
        places = {record.key: place_of(record) for record in self.records(arm, family)}
        trials = [
            trial
            for trial in experiment.trials
            if trial.key not in places or places[trial.key] >= places_of(trial)[0]
        ]
        return replace(experiment, trials=tuple(trials))

    def tested(
        self, family: str, numbers: Iterable[int], untested: Mapping[str, Collection[int]]
    ) -> list[int]:
        """Return the haystacks whose length of a family is tested."""
        lengths, left_out = self.first[family].grid.lengths, untested[family]
        return [number for number in numbers if lengths[number % len(lengths)] not in left_out]

    def check_prompts(self) -> None:
        """Raise SettingsError if the arms would not be sent the same prompts."""
        reference, other = (arm.name for arm in self.asked.arms)
        for family in self.families:
            reference_trials = self.experiment(reference, family, [0]).trials
            other_trials = self.experiment(other, family, [0]).trials
            for first, second in zip(reference_trials, other_trials, strict=True):
                if not asks_same(first.prompt, second.prompt):
                    raise SettingsError(
                        f"'{reference}' and '{other}' would get other prompts: their vocabularies "
                        "or templates differ. Give one --tokenizer and one --template for both."
                    )

    def begin(self) -> None:
        """Make the folder. Raises NeedlemapError if it holds something else."""
        begin_families(self.folder.path, self.folder.suite, self.folder.names)
        if not AB.is_in(self.folder.path):
            self.keep({})
        elif read_ab(self.folder.path).seed != self.seed:
            raise concurrent_start_error(self.folder.path)

    def keep(self, findings: Mapping[str, Any]) -> None:
        """Write ab.json. findings: what was found, as its document has it."""
        file = AbFile(
            seed=self.seed,
            margin=self.asked.margin,
            arms=list(self.asked.arms),
            families=list(self.families),
            grids=self.grids(),
            until_decided=self.asked.decided,
            scope=self.asked.scope,
            findings=Findings.model_validate(findings),
        )
        AB.write(self.folder.path, file)

    def trios(self) -> list[ArmTrial]:
        """Return all that was asked so far."""
        arms = [*(arm.name for arm in self.asked.arms), AGAIN]
        kinds = [(arm, kind) for kind in ("", WEIGHED) for arm in arms]
        return trios(
            {
                family: [self.records(arm, f"{family}{kind}") for arm, kind in kinds]
                for family in self.families
            }
        )

    def judged(self) -> ArmsLoss:
        """Return what the answers so far come to."""
        return judge_arms(
            self.trios(),
            self.asked.margin / 100,
            wanted=self.asked.scope,
            stops=self.asked.decided,
        )

    def records(self, arm: str, family: str) -> list[Record]:
        """Return the records of one arm's family so far."""
        name = f"{arm}-{family}"
        if name not in self._folders:
            self._folders[name] = RunFolder(self.folder.folder(name), Kept.RECORDS)
        folder = self._folders[name]
        return latest_records(folder.records()) if folder.exists else []


def _weighing(families: Mapping[str, Resolved]) -> dict[str, Resolved]:
    """Return families in which answers are given to be weighed."""
    changes = {"scorer": "logprob", "scorer_options": {}}
    return {
        name: resolve(family.settings.model_copy(update=changes))
        for name, family in families.items()
    }


def _typed_seed(asked: AbOptions, seed: int) -> int:
    """Return the seed that was typed, or else this one. Raises SettingsError."""
    return checked({"seed": asked.flags.get("seed", seed)}, COMMAND).seed


def _salt(asked: AbOptions) -> str:
    """Return what keeps a server's cached prefixes apart, if the user sends it."""
    return str(asked.flags.get("request", {}).get(SALT, ""))


def _resolved(asked: AbOptions, arm: Arm, seed: int, name: str) -> dict[str, Resolved]:
    """Return one arm's families, under a salt of their own. Raises SettingsError."""
    flags = {**asked.flags, "model": arm.model, "label": arm.name, "seed": seed, "canary": False}
    flags = logprobs_setting(arm.model) | flags
    if not backend_or_default(arm.model.partition("/")[0]).streams:
        # It is for the other arm: an answer is the same however it is sent.
        flags.pop("stream", None)
    if arm.base_url:
        flags["base_url"] = arm.base_url
    salt = _salt(asked)
    if salt:
        flags["request"] = {**flags["request"], SALT: f"{salt}-{name}"}
    families = {}
    for rank, (task_name, settings) in enumerate(only_model(asked.settle(flags)).families.items()):
        if settings.mode in GRID_MODES or settings.seek is not None or settings.until:
            raise SettingsError("ab asks haystacks one by one: leave mode, seek and until out.")
        if settings.order == "listed":
            raise SettingsError(
                "ab wants many haystacks, and documents as listed make one. Set order: shuffled"
            )
        family = task_name or settings.task
        if not NAME.fullmatch(family):
            raise SettingsError(
                f"Family '{family}' cannot be an ab's: use letters, digits, '_' and '.'."
            )
        # Each family has haystacks of its own.
        resolved = resolve(settings.model_copy(update={"seed": seed + rank}))
        families[family] = resolved
        if resolved.ready:
            raise SettingsError(
                f"Task '{settings.task}' has prompts of its own, and ab makes fresh ones."
            )
    return families


def _check_fixed(ab: Ab, before: AbFile) -> None:
    """Raise NeedlemapError if a folder's ab is another one."""
    asked, path = ab.asked, ab.folder.path
    if before.margin != asked.margin:
        raise NeedlemapError(
            f"'{path}' has a margin of {before.margin:g} points, fixed beforehand. Type --margin "
            f"{before.margin:g}, or give another folder with -o."
        )
    if [arm.name for arm in before.arms] != [arm.name for arm in asked.arms]:
        names = " and ".join(arm.name for arm in before.arms)
        raise NeedlemapError(
            f"'{path}' has the arms {names}. Type these, or give another folder with -o."
        )
    if before.grids != ab.grids() or _typed_seed(asked, before.seed) != before.seed:
        raise NeedlemapError(
            f"'{path}' has other lengths, depths or seed. Give another folder with -o."
        )


class ArmsInBlocks:
    """An ab that asks all arms block by block, in random order.

    It ends with a verdict, a limit, or an arm that stops answering.

    Attributes:
        ab: The ab on disk.
        stopped: Why some trials were not asked; '' if all were.

    Args:
        observer: Shown how each family is asked.
        tell: Called with the verdict after each block.
        make: By arm, how its model is made.
    """

    def __init__(
        self,
        ab: Ab,
        observer: RunObserver,
        tell: Callable[[ArmsLoss], None],
        make: Mapping[str, MakeModel] | None = None,
    ) -> None:
        self.ab = ab
        self.tell = tell
        self.stopped = ""
        self._campaign = Campaign(map(ab.folder.folder, ab.folder.names), make, observer)
        self._is_limited = False
        self._failures = {arm.name: Failures(gone=ARM_GONE) for arm in ab.asked.arms}
        # By arm, why it answers no more.
        self._gone = dict[str, str]()
        # By arm, family and haystack, how often lost answers were asked for again.
        self._again = Counter[tuple[str, str, int]]()

    async def run(self) -> list[ArmTrial]:
        """Return all that was asked. Raises NeedlemapError if both arms are gone."""
        self.ab.begin()
        async with self._campaign:
            try:
                await self._ask_blocks()
            except LimitReached as error:
                # While prompts were built.
                self._stop_at_limit(error)
        if len(self._gone) == len(self.ab.asked.arms):
            raise NeedlemapError(f"No arm answers. {self._why_gone()}")
        return self.ab.trios()

    def _stop_at_limit(self, reason: object) -> None:
        self.stopped = str(reason)
        self._is_limited = True

    def _why_gone(self) -> str:
        """Return why each arm ended, in the arms' order, once if the reason is the same."""
        reasons = {arm.name: self._gone[arm.name] for arm in self.ab.asked.arms}
        if len(set(reasons.values())) == 1:
            (reason,) = set(reasons.values())
            return f"{' and '.join(reasons)}: {reason}"
        return " ".join(f"{arm}: {reason}" for arm, reason in reasons.items())

    async def _ask_blocks(self) -> None:
        ab = self.ab
        number = first_open(ab)
        loss = ab.judged()
        self.tell(loss)
        while number < ab.haystacks and not self.stopped:
            if ab.asked.decided and _ends(loss):
                break
            await self._ask_lost_again(range(number))
            untested = ab.untested()
            if all(
                untested[name] == set(resolved.grid.lengths) for name, resolved in ab.first.items()
            ):
                reference = ab.asked.arms[0].name
                self.stopped = f"'{reference}' gets under half of the prompts right everywhere"
                break
            stop = min(ab.haystacks, number + self._block_size(number))
            await self._ask_block(range(number, stop), untested)
            number = stop
            loss = ab.judged()
            if number == ab.haystacks or (ab.asked.decided and _ends(loss)):
                while not self.stopped and await self._ask_lost_again(range(number)):
                    loss = ab.judged()
            self.tell(loss)

    async def _ask_block(self, numbers: range, untested: Mapping[str, Collection[int]]) -> None:
        """Ask all arms some haystacks of each family, in an order that the seed fixes."""
        ab = self.ab
        arms = [*(arm.name for arm in ab.asked.arms), AGAIN]
        for family in ab.families:
            order = list(arms)
            Random(f"{ab.seed}:{numbers.start}:{family}").shuffle(order)
            tested = ab.tested(family, numbers, untested)
            for arm in order:
                await self._ask_arm(arm, family, tested)
            if ab.weighing:
                for arm in order:
                    await self._ask_arm(arm, family, tested, weigh=True)

    async def _ask_lost_again(self, numbers: range) -> bool:
        """Ask again for the answers that one arm lost, at most AGAINS times each.

        Time-outs alone must not make a difference between two arms. Returns True if there were any.
        """
        has_asked = False
        for family in self.ab.families:
            for arm in self.ab.asked.arms:
                lost = self._lost(arm.name, family, numbers)
                if not lost or self._is_limited or arm.name in self._gone:
                    continue
                has_asked = True
                self._again.update((arm.name, family, number) for number in lost)
                experiment = self.ab.experiment(arm.name, family, lost)
                outcome = await self._ask(f"{arm.name}-{family}", arm.name, experiment)
                if outcome is not None and outcome.stopped:
                    self._stop_at_limit(outcome.stopped)
        return has_asked

    def _lost(self, arm: str, family: str, numbers: Iterable[int]) -> list[int]:
        """Return the haystacks of which an arm's answers were lost and may be asked for again."""
        lost = {record.repeat for record in self.ab.records(arm, family) if not record.scored}
        return [
            number
            for number in sorted(lost.intersection(numbers))
            if self._again[arm, family, number] < AGAINS
        ]

    def _block_size(self, number: int) -> int:
        """Return the haystacks of a block: a part of those before, and as many as keep all
        requests busy."""
        sizes = [
            ceil(resolved.workers / len(self.ab.depths_of(resolved.grid, 0)))
            for resolved in self.ab.ways[AGAIN].values()
        ]
        return max(number // _PART, *sizes)

    async def _ask_arm(
        self, arm: str, family: str, numbers: Iterable[int], *, weigh: bool = False
    ) -> None:
        """Ask one arm one family's haystacks, unless a limit was met or it answers no more."""
        numbers = list(numbers)
        if arm == AGAIN:
            numbers = [
                number for number in numbers if number < YARDSTICK or number % YARDSTICK_STEP == 0
            ]
        server = self._server(arm)
        if not numbers or self._is_limited or server in self._gone:
            return
        experiment = self.ab.experiment(arm, family, numbers, weigh=weigh)
        if not experiment.trials:
            return
        name = f"{arm}-{family}{WEIGHED if weigh else ''}"
        outcome = await self._ask(name, server, experiment)
        if outcome is not None:
            self._take(server, outcome)

    async def _ask(self, name: str, server: str, experiment: Experiment) -> Outcome | None:
        """Ask the trials of a family, and return how that ended; None if nothing was left to ask.

        name: the family's. server: the arm that answers.
        """
        session = Session.open(experiment, self.ab.folder.folder(name))
        return await FullGrid(session).ask(self._campaign, name, server)

    def _server(self, arm: str) -> str:
        """Return the arm that answers: for `again` it is the reference."""
        return self.ab.asked.arms[0].name if arm == AGAIN else arm

    def _take(self, arm: str, outcome: Outcome) -> None:
        """Stop if the end of a block shows a limit, or an arm that answers no more."""
        failures = self._failures[arm]
        failures.take_batch(outcome)
        if outcome.stopped:
            self._stop_at_limit(outcome.stopped)
        elif failures.ended:
            self._gone[arm] = failures.ended
            self.stopped = self.stopped or f"'{arm}' answers no more: {failures.ended}"


def _ends(arms: ArmsLoss) -> bool:
    """Return True if further prompts are needless.

    A verdict is known, or missing answers keep it open.
    """
    return arms.judged.is_decided or arms.judged.settled


def first_open(ab: Ab) -> int:
    """Return the first incomplete haystack.

    Of it an arm was asked fewer trials than another, or some failed. Haystacks that cannot be
    tested are left aside.
    """
    untested = ab.untested()
    first = ab.haystacks
    for family in ab.families:
        tested = set(ab.tested(family, range(first), untested))
        whole = _whole_haystacks(ab, family)
        first = next(
            (number for number in range(first) if number in tested and number not in whole),
            first,
        )
    return first


def _whole_haystacks(ab: Ab, family: str) -> set[int]:
    """Return the haystacks of which both arms answered all trials.

    Several depths may give one prompt, so the arms' own trials are counted, not the grid's cells.
    """
    asked = Counter[int]()
    scored = []
    for arm in ab.asked.arms:
        records = ab.records(arm.name, family)
        asked |= Counter(record.repeat for record in records)
        scored.append(Counter(record.repeat for record in records if record.scored))
    return {
        number
        for number, count in asked.items()
        if all(counts[number] == count for counts in scored)
    }


def with_answers(experiment: Experiment, records: Iterable[Record]) -> Experiment:
    """Return the trials with an answer, which is the one to weigh.

    It is for servers that return no log-probabilities of their answers, and for changes of the
    prefill. An answer is weighed after its prompt, whole, in one pass if the server repeats prompts
    with log-probabilities, else token by token (`models/likelihood.py` tries which).
    """
    answers = {place_of(record): record.answer for record in records if record.answer}
    trials = []
    for trial in experiment.trials:
        answer = answers.get(places_of(trial)[0])
        if not answer:
            continue
        reference = replace(trial.item.reference, answer=answer)
        key = experiment.keys.key(trial.asked, reference)
        trials.append(replace(trial, key=key, item=replace(trial.item, reference=reference)))
    return replace(experiment, trials=tuple(trials))
