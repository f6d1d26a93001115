"""`ab` from start to end: two arms get the same prompts, block by block in random order, until a
verdict.

Each arm is a family of the run's folder for each family of the preset, and the reference one more,
`again`:
it is asked twice, so that it is seen how much it differs from itself. A haystack has one length and
few depths, and there are many, as each is one bet of the verdict (`arms.py`). If the verdict ends
the asking, each has one depth, in turn: a second prompt behind the same text would make the bet
hardly better, and cost as much. A family or length that the reference mostly gets wrong is not
asked further. The seed is drawn for the ab, so that no cache of before answers its prompts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
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
from needlemap.records.families import Families, begin_families, begun_meanwhile, fresh_folder
from needlemap.records.folder import Kept, RunFolder
from needlemap.records.record import Record
from needlemap.servers.ab.arms import ArmsLoss, ArmTrial, judge_arms, trios
from needlemap.servers.ab.file import AB, AGAIN, NAME, WEIGHED, AbFile, Arm, Findings, read_ab
from needlemap.servers.check.asking import SEED_BITS
from needlemap.servers.check.families import keeping_logprobs
from needlemap.settings.reading import COMMAND, checked
from needlemap.settings.suites import Chosen, only_model
from needlemap.stats import asks_same, latest_records, place_of, places_of
from needlemap.stats.looks import Scope
from needlemap.stats.tested import is_untested
from needlemap.trials.build import Experiment, prepare_haystacks
from needlemap.trials.resolve import Resolved, resolve

MOST = 20_000  # pairs, where nothing else ends it
PAIRS = 200  # without --until
SALT = "cache_salt"  # vLLM's request field: prompts of other salts share no cache
_PART = 16  # a block is this part of what was asked before, so that whatever drifts meets both arms
YARDSTICK = 100  # haystacks of a family that the reference is asked twice of; then one in four
AGAINS = 3  # times that a lost answer is asked for again, behind one block each
Settle = Callable[[dict[str, Any]], Mapping[str, Chosen]]


@dataclass(frozen=True, slots=True)
class AbOptions:
    """What an ab is asked to do. arms: the reference, and the other. settle: what flags choose.
    margin: in points. pairs: the most that are asked; decided: whether a verdict ends it before.
    weigh: whether the reference's answers are also given to both arms, to be weighed. scope: what
    the verdict is to hold for."""

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
    """An ab on disk. seed: fixes all prompts. ways: for each arm and `again`, by the preset's
    families, what its settings come to; weighing: the same where given answers are weighed, if they
    are."""

    asked: AbOptions
    folder: Families
    seed: int
    ways: Mapping[str, Mapping[str, Resolved]]
    weighing: Mapping[str, Mapping[str, Resolved]]
    _read: dict[str, RunFolder] = field(default_factory=dict)

    @classmethod
    def of(cls, asked: AbOptions, path: Path | None = None) -> Ab:
        """Begin one, or go on with what the folder holds; a fresh one where none is given. Raises
        NeedlemapError where it holds another, or arms would get other prompts."""
        before = read_ab(path) if path and AB.is_in(path) else None
        seed = before.seed if before else _typed_seed(asked, randbits(SEED_BITS))
        ways = {arm.name: _resolved(asked, arm, seed, arm.name) for arm in asked.arms}
        first = next(iter(ways.values()))
        ways[AGAIN] = _resolved(asked, asked.arms[0], seed, AGAIN) if _salt(asked) else first
        own = {"scorer": "logprob", "scorer_options": {}}
        weighing = {
            arm: {
                name: resolve(each.settings.model_copy(update=own))
                for name, each in families.items()
            }
            for arm, families in (ways.items() if asked.weigh else ())
        }
        names = tuple(f"{arm}-{family}" for arm in ways for family in first)
        names += tuple(f"{arm}-{family}{WEIGHED}" for arm in weighing for family in first)
        path = path or fresh_folder(next(iter(first.values())).settings, "ab")
        made = cls(asked, Families(path, "ab", names), seed, ways, weighing)
        if before is not None:
            _check_fixed(made, before)
        made.check_prompts()
        return made

    @property
    def families(self) -> tuple[str, ...]:
        """The preset's families, by name."""
        return tuple(self.first)

    @property
    def first(self) -> Mapping[str, Resolved]:
        """The reference's families, by name."""
        return self.ways[self.asked.arms[0].name]

    def grids(self) -> list[tuple[list[int], list[float]]]:
        """Lengths and depths of each family."""
        return [(list(each.grid.lengths), list(each.grid.depths)) for each in self.first.values()]

    @property
    def depths(self) -> int:
        """Prompts of one haystack of each family, together."""
        return sum(len(self.depths_of(each.grid, 0)) for each in self.first.values())

    def depths_of(self, grid: Grid, number: int) -> tuple[float, ...]:
        """Return the depths of one haystack: all, or one in turn if a verdict ends the asking."""
        if not self.asked.decided:
            return grid.depths
        turn = number // len(grid.lengths)
        return (grid.depths[turn % len(grid.depths)],)

    def untested(self) -> dict[str, frozenset[int]]:
        """Return the lengths, by family, of which the reference gets under half right."""
        name, untested = self.asked.arms[0].name, {}
        for family, resolved in self.first.items():
            lengths = resolved.grid.lengths
            scores = defaultdict[int, list[float]](list)
            for record in self.records(name, family):
                if record.score is not None:
                    scores[record.length_tokens].append(record.score)
            every = [score for part in scores.values() for score in part]
            untested[family] = frozenset(
                length
                for length in lengths
                if is_untested(len(every), sum(every))
                or is_untested(len(scores[length]), sum(scores[length]))
            )
        return untested

    @property
    def haystacks(self) -> int:
        """Haystacks of each family that are asked at most."""
        return ceil(self.asked.pairs / self.depths)

    @property
    def most_pairs(self) -> int:
        """Pairs that are asked at most: haystacks are asked whole."""
        return self.haystacks * self.depths

    def experiment(
        self, arm: str, family: str, numbers: Iterable[int], *, weigh: bool = False
    ) -> Experiment:
        """The trials of some haystacks: each has one of the lengths, in turn. A prompt that an
        earlier haystack came to, too, is that one's: asked for again in another, an answer that
        was lost would stand beside none of the other arm. weigh: those that the reference
        answered, with that answer as the one to weigh."""
        resolved = (self.weighing if weigh else self.ways)[arm][family]
        lengths = resolved.grid.lengths
        each = [
            (number, Grid((lengths[number % len(lengths)],), self.depths_of(resolved.grid, number)))
            for number in numbers
        ]
        made = replace(prepare_haystacks(resolved, each), grid=resolved.grid)
        if weigh:
            return with_answers(made, self.records(self.asked.arms[0].name, family))
        stands = {record.key: place_of(record) for record in self.records(arm, family)}
        own = [
            trial
            for trial in made.trials
            if trial.key not in stands or stands[trial.key] >= places_of(trial)[0]
        ]
        return replace(made, trials=tuple(own))

    def tested(
        self, family: str, numbers: Iterable[int], untested: Mapping[str, Collection[int]]
    ) -> list[int]:
        """Return the haystacks whose length of a family is tested."""
        lengths, left_out = self.first[family].grid.lengths, untested[family]
        return [number for number in numbers if lengths[number % len(lengths)] not in left_out]

    def check_prompts(self) -> None:
        """Raises SettingsError where the arms would not be asked the same."""
        reference, other = (arm.name for arm in self.asked.arms)
        for family in self.families:
            both = (self.experiment(arm, family, [0]).trials for arm in (reference, other))
            if not all(asks_same(one.prompt, two.prompt) for one, two in zip(*both, strict=True)):
                raise SettingsError(
                    f"'{reference}' and '{other}' would get other prompts: their vocabularies or "
                    f"templates "
                    f"differ. Give one --tokenizer and one --template for both."
                )

    def begin(self) -> None:
        """Make the folder. Raises NeedlemapError where it holds something else."""
        begin_families(self.folder.path, self.folder.suite, self.folder.names)
        if not AB.is_in(self.folder.path):
            self.keep({})
        elif read_ab(self.folder.path).seed != self.seed:
            raise begun_meanwhile(self.folder.path)

    def keep(self, findings: Mapping[str, Any]) -> None:
        """Write ab.json."""
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
        """All that was asked so far."""
        arms = [*(arm.name for arm in self.asked.arms), AGAIN]
        kinds = [(arm, kind) for kind in ("", WEIGHED) for arm in arms]
        found = {
            name: [self.records(arm, f"{name}{kind}") for arm, kind in kinds]
            for name in self.families
        }
        return trios(found)

    def judged(self) -> ArmsLoss:
        """What the answers so far come to."""
        asked = self.asked
        margin = asked.margin / 100
        return judge_arms(self.trios(), margin, wanted=asked.scope, stops=asked.decided)

    def records(self, arm: str, family: str) -> list[Record]:
        """What one arm was asked of one family so far."""
        name = f"{arm}-{family}"
        folder = self._read.setdefault(name, RunFolder(self.folder.folder(name), Kept.RECORDS))
        return latest_records(folder.records()) if folder.exists else []


def _typed_seed(asked: AbOptions, seed: int) -> int:
    """The seed that was typed, else this one. Raises SettingsError."""
    return checked({"seed": asked.flags.get("seed", seed)}, COMMAND).seed


def _salt(asked: AbOptions) -> str:
    """What keeps a server's cached prefixes apart, if the user sends it."""
    return str(asked.flags.get("request", {}).get(SALT, ""))


def _resolved(asked: AbOptions, arm: Arm, seed: int, name: str) -> dict[str, Resolved]:
    """One arm's families, under a salt of their own. Raises SettingsError."""
    flags = {**asked.flags, "model": arm.model, "label": arm.name, "seed": seed, "canary": False}
    flags = keeping_logprobs(arm.model) | flags
    if not backend_or_default(arm.model.partition("/")[0]).streams:
        flags.pop("stream", None)  # the other arm's: an answer is the same however it is sent
    if arm.base_url:
        flags["base_url"] = arm.base_url
    if salt := _salt(asked):
        flags["request"] = {**flags["request"], SALT: f"{salt}-{name}"}
    found = {}
    for rank, (name, settings) in enumerate(only_model(asked.settle(flags)).families.items()):
        if settings.mode in GRID_MODES or settings.seek is not None or settings.until:
            raise SettingsError("ab asks haystacks one by one: leave mode, seek and until out.")
        if settings.order == "listed":
            raise SettingsError(
                "ab wants many haystacks, and documents as listed make one. Set order: shuffled"
            )
        family = name or settings.task
        if not NAME.fullmatch(family):
            raise SettingsError(
                f"Family '{family}' cannot be an ab's: use letters, digits, '_' and '.'."
            )
        found[family] = resolve(
            settings.model_copy(update={"seed": seed + rank})
        )  # haystacks of its own
        if found[family].ready:
            raise SettingsError(
                f"Task '{settings.task}' has prompts of its own, and ab makes fresh ones."
            )
    return found


def _check_fixed(made: Ab, before: AbFile) -> None:
    """Raises NeedlemapError where a folder's ab is another one."""
    asked, path = made.asked, made.folder.path
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
    if before.grids != made.grids() or _typed_seed(asked, before.seed) != before.seed:
        raise NeedlemapError(
            f"'{path}' has other lengths, depths or seed. Give another folder with -o."
        )


class ArmsInBlocks:
    """Asks all arms block by block, in random order, until a verdict, a limit, or an arm that
    stops answering. Its models have the arms' names, and `make` says how they
    are made.

    tell: is called with the verdict after each block. stopped: the reason if some trials were
    not asked.
    """

    def __init__(
        self,
        ab: Ab,
        observer: RunObserver,
        tell: Callable[[ArmsLoss], None],
        make: Mapping[str, MakeModel] | None = None,
    ) -> None:
        self._campaign = Campaign(map(ab.folder.folder, ab.folder.names), make, observer)
        self.ab, self.tell, self.stopped = ab, tell, ""
        self._limited = False
        self._failing = {arm.name: Failures(gone=ARM_GONE) for arm in ab.asked.arms}
        self._gone = dict[str, str]()
        self._again = Counter[tuple[str, str, int]]()

    async def run(self) -> list[ArmTrial]:
        """Return all that was asked. Raises NeedlemapError if both arms are gone."""
        self.ab.begin()
        async with self._campaign:
            try:
                await self._blocks()
            except LimitReached as error:  # while prompts were built
                self._limited, self.stopped = True, str(error)
        arms = [arm.name for arm in self.ab.asked.arms]
        if len(self._gone) == len(arms):
            raise NeedlemapError(f"No arm answers. {self._why_gone()}")
        return self.ab.trios()

    def _why_gone(self) -> str:
        """What every arm ended with, in the arms' order, said once where it is the same."""
        gone = {arm.name: self._gone[arm.name] for arm in self.ab.asked.arms}
        reasons = set(gone.values())
        if len(reasons) == 1:
            return f"{' and '.join(gone)}: {reasons.pop()}"
        return " ".join(f"{arm}: {why}" for arm, why in gone.items())

    async def _blocks(self) -> None:
        ab = self.ab
        arms = [*(arm.name for arm in ab.asked.arms), AGAIN]
        number = first_open(ab)
        self.tell(judged := ab.judged())
        while number < ab.haystacks and not self.stopped:
            if ab.asked.decided and _ends(judged):
                break
            stop = min(ab.haystacks, number + self._size(number))
            await self._ask_again(range(number))
            untested = ab.untested()
            if all(untested[name] == set(each.grid.lengths) for name, each in ab.first.items()):
                reference = ab.asked.arms[0].name
                self.stopped = f"'{reference}' gets under half of the prompts right everywhere"
                break
            for family in ab.families:
                order = list(arms)
                Random(f"{ab.seed}:{number}:{family}").shuffle(order)
                numbers = ab.tested(family, range(number, stop), untested)
                for arm in order:
                    await self._ask_arm(arm, family, numbers)
                for arm in order if ab.weighing else ():
                    await self._ask_arm(arm, family, numbers, weigh=True)
            number = stop
            judged = ab.judged()
            if number == ab.haystacks or (ab.asked.decided and _ends(judged)):
                while not self.stopped and (await self._ask_again(range(number))):
                    judged = ab.judged()
            self.tell(judged)

    async def _ask_again(self, numbers: range) -> bool:
        """Ask again for the answers that one arm lost, at most AGAINS times each. Returns
        whether there were any. Time-outs alone must not make a difference between two arms."""
        ab, found = self.ab, False
        for family in ab.families:
            for arm in ab.asked.arms:
                lost = {each.repeat for each in ab.records(arm.name, family) if not each.scored}
                wanted = [
                    number
                    for number in sorted(lost & set(numbers))
                    if self._again[arm.name, family, number] < AGAINS
                ]
                if not wanted or self._limited or arm.name in self._gone:
                    continue
                found = True
                self._again.update((arm.name, family, number) for number in wanted)
                name = f"{arm.name}-{family}"
                made = ab.experiment(arm.name, family, wanted)
                session = Session.open(made, ab.folder.folder(name))
                outcome = await FullGrid(session).ask(self._campaign, name, arm.name)
                if outcome is not None and outcome.stopped:
                    self._limited, self.stopped = True, str(outcome.stopped)
        return found

    def _size(self, number: int) -> int:
        """Haystacks of a block: a part of those before, and as many as keep all requests busy."""
        ab = self.ab
        sizes = [
            ceil(each.workers / len(ab.depths_of(each.grid, 0))) for each in ab.ways[AGAIN].values()
        ]
        return max(number // _PART, *sizes)

    async def _ask_arm(
        self, arm: str, family: str, numbers: Iterable[int], *, weigh: bool = False
    ) -> None:
        """Ask one arm one family's haystacks, unless a limit was met or it answers no more."""
        wanted = [
            number for number in numbers if arm != AGAIN or number < YARDSTICK or number % 4 == 0
        ]
        if not wanted or self._limited or self._server(arm) in self._gone:
            return
        name = f"{arm}-{family}{WEIGHED if weigh else ''}"
        made = self.ab.experiment(arm, family, wanted, weigh=weigh)
        if made.trials:
            session = Session.open(made, self.ab.folder.folder(name))
            outcome = await FullGrid(session).ask(self._campaign, name, self._server(arm))
            if outcome is not None:
                self._look(self._server(arm), outcome)

    def _server(self, arm: str) -> str:
        """Who answers for an arm: `again` is the reference."""
        return self.ab.asked.arms[0].name if arm == AGAIN else arm

    def _look(self, arm: str, outcome: Outcome) -> None:
        """What the end of a block says of an arm: whether a limit stopped it, or it answers no
        more."""
        failing = self._failing[arm]
        failing.take_batch(outcome)
        if outcome.stopped:
            self._limited, self.stopped = True, str(outcome.stopped)
        elif failing.ended:
            self._gone[arm] = failing.ended
            self.stopped = self.stopped or f"'{arm}' answers no more: {failing.ended}"


def _ends(arms: ArmsLoss) -> bool:
    """Whether further prompts are needless: a verdict is known, or missing answers keep it
    open."""
    return arms.judged.is_decided or arms.judged.settled


def first_open(ab: Ab) -> int:
    """The first incomplete haystack: an arm was asked fewer of its trials than another, or
    failed. Haystacks that cannot be tested are none.

    Several depths may give one prompt, so the arms' own trials are counted, not the grid's
    cells."""
    least, untested = ab.haystacks, ab.untested()
    for family in ab.families:
        arms = [ab.records(arm.name, family) for arm in ab.asked.arms]
        asked = [Counter(record.repeat for record in records) for records in arms]
        scored = [Counter(record.repeat for record in records if record.scored) for records in arms]
        most = asked[0] | asked[1]  # of each haystack
        whole = {number for number in most if all(each[number] == most[number] for each in scored)}
        whole |= set(range(least)) - set(ab.tested(family, range(least), untested))
        least = next((number for number in range(least) if number not in whole), least)
    return least


def with_answers(experiment: Experiment, said: Iterable[Record]) -> Experiment:
    """The trials with an answer, which is the one to weigh.

    For servers that return no log-probabilities of their answers, and for changes of the
    prefill: an answer is weighed behind its prompt, whole, in one pass where the server
    repeats prompts with log-probabilities, else token by token (`models/likelihood.py` tries
    which).
    """
    answers = {place_of(record): record.answer for record in said if record.answer}
    trials = []
    for trial in experiment.trials:
        if answer := answers.get(places_of(trial)[0]):
            reference = replace(trial.item.reference, answer=answer)
            key = experiment.keys.key(trial.asked, reference)
            trials.append(replace(trial, key=key, item=replace(trial.item, reference=reference)))
    return replace(experiment, trials=tuple(trials))
