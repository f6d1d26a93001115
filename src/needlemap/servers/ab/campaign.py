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

# The most pairs if nothing else ends an ab.
MOST = 20_000
# Pairs without --until.
PAIRS = 200
# vLLM's request field: prompts of other salts share no cache.
SALT = "cache_salt"
# A block has one haystack for so many earlier ones, so that a drift meets both arms.
_PART = 16
# Haystacks of a family that the reference is asked twice of; after them one in four.
YARDSTICK = 100
YARDSTICK_STEP = 4
# How often a prompt whose answer was lost is sent again, after one block each.
MOST_RETRIES = 3
Settle = Callable[[dict[str, Any]], Mapping[str, Chosen]]


@dataclass(frozen=True, slots=True)
class AbOptions:
    """The options of an ab.

    Attributes:
        arms: The reference, and the other arm.
        flags: Settings of both models and the limits.
        settle: Returns the preset's families under some flags.
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
        options: Its options.
        folder: Its folder, with all families.
        seed: Fixes all prompts.
        ways: For each arm and `again`, the resolved settings of the preset's families.
        weighing: The same for answers that are given to be weighed; {} if none are.
    """

    options: AbOptions
    folder: Families
    seed: int
    ways: Mapping[str, Mapping[str, Resolved]]
    weighing: Mapping[str, Mapping[str, Resolved]]
    _folders: dict[str, RunFolder] = field(default_factory=dict)

    @classmethod
    def of(cls, options: AbOptions, path: Path | None = None) -> Ab:
        """Start an ab, or resume the one in the folder.

        path: the folder; None for a fresh one.

        Raises NeedlemapError if the folder holds another ab, or if the arms would be sent different
        prompts.
        """
        earlier = read_ab(path) if path and AB.is_in(path) else None
        seed = earlier.seed if earlier else _seed_of(options, randbits(SEED_BITS))

        ways = {arm.name: _families_of(options, arm, seed, arm.name) for arm in options.arms}
        reference_families = next(iter(ways.values()))
        ways[AGAIN] = reference_families
        if _salt(options):
            ways[AGAIN] = _families_of(options, options.arms[0], seed, AGAIN)
        weighing = {}
        if options.weigh:
            weighing = {arm: _weighing_families(families) for arm, families in ways.items()}

        names = [f"{arm}-{family}" for arm in ways for family in reference_families]
        names += [f"{arm}-{family}{WEIGHED}" for arm in weighing for family in reference_families]
        path = path or fresh_folder(next(iter(reference_families.values())).settings, "ab")
        ab = cls(
            options,
            Families(path, "ab", tuple(names)),
            seed=seed,
            ways=ways,
            weighing=weighing,
        )
        if earlier is not None:
            _check_same(ab, earlier)
        ab.check_prompts()
        return ab

    @property
    def families(self) -> tuple[str, ...]:
        """Return the names of the preset's families."""
        return tuple(self.reference_families)

    @property
    def reference_families(self) -> Mapping[str, Resolved]:
        """Return the reference's families, by name."""
        return self.ways[self.options.arms[0].name]

    def grids(self) -> list[tuple[list[int], list[float]]]:
        """Return the lengths and depths of each family."""
        return [
            (list(resolved.grid.lengths), list(resolved.grid.depths))
            for resolved in self.reference_families.values()
        ]

    @property
    def depths(self) -> int:
        """Return the number of prompts about one haystack, summed over the families."""
        return sum(
            len(self.depths_of(resolved.grid, 0)) for resolved in self.reference_families.values()
        )

    def depths_of(self, grid: Grid, number: int) -> tuple[float, ...]:
        """Return the depths of a haystack: all, or one in turn if a verdict ends the asking."""
        if not self.options.decided:
            return grid.depths
        turn = number // len(grid.lengths)
        return (grid.depths[turn % len(grid.depths)],)

    def untested(self) -> dict[str, frozenset[int]]:
        """Return, by family, the lengths at which the reference gets under half right."""
        return {
            family: self._untested_lengths(family, resolved.grid.lengths)
            for family, resolved in self.reference_families.items()
        }

    def _untested_lengths(self, family: str, lengths: Sequence[int]) -> frozenset[int]:
        scores = defaultdict[int, list[float]](list)
        for record in self.records(self.options.arms[0].name, family):
            if record.score is not None:
                scores[record.length_tokens].append(record.score)

        all_scores = [score for length_scores in scores.values() for score in length_scores]
        if is_untested(len(all_scores), sum(all_scores)):
            return frozenset(lengths)
        return frozenset(
            length for length in lengths if is_untested(len(scores[length]), sum(scores[length]))
        )

    @property
    def haystacks(self) -> int:
        """Return how many haystacks of each family may be asked about."""
        return ceil(self.options.pairs / self.depths)

    @property
    def most_pairs(self) -> int:
        """Return how many pairs may be asked: those of whole haystacks."""
        return self.haystacks * self.depths

    def experiment(
        self, arm: str, family: str, numbers: Iterable[int], *, weigh: bool = False
    ) -> Experiment:
        """Return the trials of some haystacks, each of which has one of the lengths, in turn.

        If an earlier haystack has the same prompt, the prompt counts for that one: if it were
        retried in another haystack, a lost answer would have no partner in the other arm.

        weigh: return only the trials that the reference answered, with its answer to be weighed.
        """
        resolved = (self.weighing if weigh else self.ways)[arm][family]
        lengths = resolved.grid.lengths
        grids = []
        for number in numbers:
            depths = self.depths_of(resolved.grid, number)
            grids.append((number, Grid((lengths[number % len(lengths)],), depths)))
        experiment = replace(prepare_haystacks(resolved, grids), grid=resolved.grid)
        if weigh:
            return with_answers(experiment, self.records(self.options.arms[0].name, family))
        places = {record.key: place_of(record) for record in self.records(arm, family)}
        trials = [
            trial
            for trial in experiment.trials
            if trial.key not in places or places[trial.key] >= places_of(trial)[0]
        ]
        return replace(experiment, trials=tuple(trials))

    def tested_haystacks(
        self, family: str, numbers: Iterable[int], untested: Mapping[str, Collection[int]]
    ) -> list[int]:
        """Return the haystacks of a family whose lengths are tested."""
        lengths = self.reference_families[family].grid.lengths
        untested_lengths = untested[family]
        return [
            number for number in numbers if lengths[number % len(lengths)] not in untested_lengths
        ]

    def check_prompts(self) -> None:
        """Raise SettingsError if the arms would not be sent the same prompts."""
        reference, other = (arm.name for arm in self.options.arms)
        for family in self.families:
            reference_trials = self.experiment(reference, family, [0]).trials
            other_trials = self.experiment(other, family, [0]).trials
            for trial, other_trial in zip(reference_trials, other_trials, strict=True):
                if not asks_same(trial.prompt, other_trial.prompt):
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
        """Write ab.json with some findings, in the form of its document."""
        file = AbFile(
            seed=self.seed,
            margin=self.options.margin,
            arms=list(self.options.arms),
            families=list(self.families),
            grids=self.grids(),
            until_decided=self.options.decided,
            scope=self.options.scope,
            findings=Findings.model_validate(findings),
        )
        AB.write(self.folder.path, file)

    def trios(self) -> list[ArmTrial]:
        """Return all prompts that were sent so far, with their records."""
        arms = [*(arm.name for arm in self.options.arms), AGAIN]
        kinds = [(arm, kind) for kind in ("", WEIGHED) for arm in arms]
        return trios(
            {
                family: [self.records(arm, f"{family}{kind}") for arm, kind in kinds]
                for family in self.families
            }
        )

    def judge(self) -> ArmsLoss:
        """Return the loss by the answers so far."""
        return judge_arms(
            self.trios(),
            self.options.margin / 100,
            wanted=self.options.scope,
            stops=self.options.decided,
        )

    def records(self, arm: str, family: str) -> list[Record]:
        """Return the records of one arm's family so far."""
        name = f"{arm}-{family}"
        if name not in self._folders:
            self._folders[name] = RunFolder(self.folder.folder(name), Kept.RECORDS)
        folder = self._folders[name]
        return latest_records(folder.records()) if folder.exists else []


def _weighing_families(families: Mapping[str, Resolved]) -> dict[str, Resolved]:
    """Return the same families with settings by which answers are given to be weighed."""
    changes = {"scorer": "logprob", "scorer_options": {}}
    return {
        name: resolve(family.settings.model_copy(update=changes))
        for name, family in families.items()
    }


def _seed_of(options: AbOptions, default: int) -> int:
    """Return the typed seed, or else the default. Raises SettingsError if it is invalid."""
    return checked({"seed": options.flags.get("seed", default)}, COMMAND).seed


def _salt(options: AbOptions) -> str:
    """Return the salt that keeps a server's cached prefixes apart, or '' if the user sends none."""
    return str(options.flags.get("request", {}).get(SALT, ""))


def _families_of(options: AbOptions, arm: Arm, seed: int, name: str) -> dict[str, Resolved]:
    """Return one arm's families, under a salt of their own.

    Raises SettingsError if the preset's families cannot be those of an ab.
    """
    flags = {**options.flags, "model": arm.model, "label": arm.name, "seed": seed, "canary": False}
    flags = logprobs_setting(arm.model) | flags
    if not backend_or_default(arm.model.partition("/")[0]).streams:
        # It is for the other arm: an answer is the same however it is sent.
        flags.pop("stream", None)
    if arm.base_url:
        flags["base_url"] = arm.base_url
    salt = _salt(options)
    if salt:
        flags["request"] = {**flags["request"], SALT: f"{salt}-{name}"}

    families = {}
    chosen = only_model(options.settle(flags))
    for rank, (task_name, settings) in enumerate(chosen.families.items()):
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


def _check_same(ab: Ab, earlier: AbFile) -> None:
    """Raise NeedlemapError if the folder's earlier ab has other options."""
    options, path = ab.options, ab.folder.path
    if earlier.margin != options.margin:
        raise NeedlemapError(
            f"'{path}' has a margin of {earlier.margin:g} points, fixed beforehand. Type --margin "
            f"{earlier.margin:g}, or give another folder with -o."
        )
    if [arm.name for arm in earlier.arms] != [arm.name for arm in options.arms]:
        names = " and ".join(arm.name for arm in earlier.arms)
        raise NeedlemapError(
            f"'{path}' has the arms {names}. Type these, or give another folder with -o."
        )
    if earlier.grids != ab.grids() or _seed_of(options, earlier.seed) != earlier.seed:
        raise NeedlemapError(
            f"'{path}' has other lengths, depths or seed. Give another folder with -o."
        )


class ArmsInBlocks:
    """An ab that asks all arms block by block, in random order.

    It ends with a verdict, a limit, or an arm that stops answering.

    Attributes:
        ab: The ab on disk.
        stopped: Why some trials were not sent; '' if all were.

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
        self._failures = {arm.name: Failures(gone=ARM_GONE) for arm in ab.options.arms}
        # The reason by arm, for arms that no longer answer.
        self._gone = dict[str, str]()
        # How often lost answers were retried, by arm, family and haystack.
        self._retries = Counter[tuple[str, str, int]]()

    async def run(self) -> list[ArmTrial]:
        """Send all blocks, and return the prompts. Raises NeedlemapError if both arms are gone."""
        self.ab.begin()
        async with self._campaign:
            try:
                await self._ask_blocks()
            except LimitReached as error:
                # While prompts were built.
                self._stop_at_limit(error)
        if len(self._gone) == len(self.ab.options.arms):
            raise NeedlemapError(f"No arm answers. {self._why_gone()}")
        return self.ab.trios()

    def _stop_at_limit(self, reason: object) -> None:
        self.stopped = str(reason)
        self._is_limited = True

    def _why_gone(self) -> str:
        """Return why the arms no longer answer, in their order; a reason that both share, once."""
        reasons = {arm.name: self._gone[arm.name] for arm in self.ab.options.arms}
        if len(set(reasons.values())) == 1:
            (reason,) = set(reasons.values())
            return f"{' and '.join(reasons)}: {reason}"
        return " ".join(f"{arm}: {reason}" for arm, reason in reasons.items())

    async def _ask_blocks(self) -> None:
        """Send blocks until the verdict is final, none is left, or `stopped` has a reason."""
        ab = self.ab
        number = first_open(ab)
        loss = ab.judge()
        self.tell(loss)
        while number < ab.haystacks and not self.stopped:
            if ab.options.decided and _is_final(loss):
                break

            await self._retry_lost(range(number))
            untested = ab.untested()
            if all(
                untested[name] == set(resolved.grid.lengths)
                for name, resolved in ab.reference_families.items()
            ):
                reference = ab.options.arms[0].name
                self.stopped = f"'{reference}' gets under half of the prompts right everywhere"
                break

            stop = min(ab.haystacks, number + self._block_size(number))
            await self._ask_block(range(number, stop), untested)
            number = stop
            loss = ab.judge()
            if number == ab.haystacks or (ab.options.decided and _is_final(loss)):
                while not self.stopped and await self._retry_lost(range(number)):
                    loss = ab.judge()
            self.tell(loss)

    async def _ask_block(self, numbers: range, untested: Mapping[str, Collection[int]]) -> None:
        """Send all arms some haystacks of each family, in an order that the seed fixes."""
        ab = self.ab
        arms = [*(arm.name for arm in ab.options.arms), AGAIN]
        for family in ab.families:
            order = list(arms)
            Random(f"{ab.seed}:{numbers.start}:{family}").shuffle(order)
            haystacks = ab.tested_haystacks(family, numbers, untested)
            for arm in order:
                await self._ask_arm(arm, family, haystacks)
            if ab.weighing:
                for arm in order:
                    await self._ask_arm(arm, family, haystacks, weigh=True)

    async def _retry_lost(self, numbers: range) -> bool:
        """Retry the prompts whose answers an arm lost, at most MOST_RETRIES times each.

        Time-outs alone must not make a difference between two arms. Return True if any prompt was
        sent again.
        """
        has_asked = False
        for family in self.ab.families:
            for arm in self.ab.options.arms:
                haystacks = self._haystacks_to_retry(arm.name, family, numbers)
                if not haystacks or self._is_limited or arm.name in self._gone:
                    continue
                has_asked = True
                self._retries.update((arm.name, family, number) for number in haystacks)
                experiment = self.ab.experiment(arm.name, family, haystacks)
                outcome = await self._send_trials(f"{arm.name}-{family}", arm.name, experiment)
                if outcome is not None and outcome.stopped:
                    self._stop_at_limit(outcome.stopped)
        return has_asked

    def _haystacks_to_retry(self, arm: str, family: str, numbers: Iterable[int]) -> list[int]:
        """Return the haystacks of which an arm lost answers that may be retried."""
        lost = {record.repeat for record in self.ab.records(arm, family) if not record.scored}
        return [
            number
            for number in sorted(lost.intersection(numbers))
            if self._retries[arm, family, number] < MOST_RETRIES
        ]

    def _block_size(self, number: int) -> int:
        """Return the number of haystacks of a block, which starts at a haystack.

        It is a part of the number of those before, and enough for all concurrent requests.
        """
        sizes = [
            ceil(resolved.workers / len(self.ab.depths_of(resolved.grid, 0)))
            for resolved in self.ab.ways[AGAIN].values()
        ]
        return max(number // _PART, *sizes)

    async def _ask_arm(
        self, arm: str, family: str, numbers: Iterable[int], *, weigh: bool = False
    ) -> None:
        """Send one arm one family's haystacks, unless a limit was met or it no longer answers."""
        numbers = list(numbers)
        if arm == AGAIN:
            numbers = [
                number for number in numbers if number < YARDSTICK or number % YARDSTICK_STEP == 0
            ]
        answering_arm = self._answering_arm(arm)
        if not numbers or self._is_limited or answering_arm in self._gone:
            return
        experiment = self.ab.experiment(arm, family, numbers, weigh=weigh)
        if not experiment.trials:
            return
        run_name = f"{arm}-{family}{WEIGHED if weigh else ''}"
        outcome = await self._send_trials(run_name, answering_arm, experiment)
        if outcome is not None:
            self._take_outcome(answering_arm, outcome)

    async def _send_trials(
        self, run_name: str, answering_arm: str, experiment: Experiment
    ) -> Outcome | None:
        """Send trials that have no answer yet, and return the outcome, or None if all have one.

        run_name: the name of the folder for the records of one arm and family. answering_arm: the
        name of the arm that the trials are sent to.
        """
        session = Session.open(experiment, self.ab.folder.folder(run_name))
        return await FullGrid(session).ask(self._campaign, run_name, answering_arm)

    def _answering_arm(self, arm: str) -> str:
        """Return the arm that answers: the reference for `again`, otherwise the arm itself."""
        return self.ab.options.arms[0].name if arm == AGAIN else arm

    def _take_outcome(self, arm: str, outcome: Outcome) -> None:
        """Stop if the outcome of a block shows a limit, or an arm that no longer answers."""
        failures = self._failures[arm]
        failures.take_batch(outcome)
        if outcome.stopped:
            self._stop_at_limit(outcome.stopped)
        elif failures.ended:
            self._gone[arm] = failures.ended
            self.stopped = self.stopped or f"'{arm}' answers no more: {failures.ended}"


def _is_final(arms: ArmsLoss) -> bool:
    """Return True if further prompts cannot change the verdict.

    Either it is decided, or missing answers keep it open.
    """
    return arms.loss.is_decided or arms.loss.settled


def first_open(ab: Ab) -> int:
    """Return the number of the first haystack whose trials were not all answered by both arms.

    Haystacks of untested lengths are skipped. If all others are complete, it is the number after
    the last.
    """
    untested = ab.untested()
    first_number = ab.haystacks
    for family in ab.families:
        tested = set(ab.tested_haystacks(family, range(first_number), untested))
        complete = _complete_haystacks(ab, family)
        first_number = min(tested - complete, default=first_number)
    return first_number


def _complete_haystacks(ab: Ab, family: str) -> set[int]:
    """Return the haystacks of which both arms answered all trials.

    Several depths may give one prompt, so the arms' own trials are counted, not the grid's cells.
    """
    record_counts = Counter[int]()
    score_counts = []
    for arm in ab.options.arms:
        records = ab.records(arm.name, family)
        record_counts |= Counter(record.repeat for record in records)
        score_counts.append(Counter(record.repeat for record in records if record.scored))
    return {
        number
        for number, count in record_counts.items()
        if all(counts[number] == count for counts in score_counts)
    }


def with_answers(experiment: Experiment, records: Iterable[Record]) -> Experiment:
    """Return the trials that have an answer in some records, with that answer to be weighed.

    This is for servers that return no log-probabilities of their answers, and for changes of the
    prefill. An answer is weighed after its prompt: in one pass if the server repeats prompts with
    log-probabilities, otherwise token by token (`models/likelihood.py` tries which).
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
