"""`check` from start to end: the ways of asking in their order, size by size, and what the probes
make of it.

Each way is a family of the run's folder. The seed is drawn for the check, so that no cache of
before answers its prompts, and is kept with it. What a probe has found is not asked for again at
longer lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import randbits
from typing import Any

from needlemap.asking import Outcome
from needlemap.asking.policy import Whole
from needlemap.asking.run import Face, MakeModel, Turns
from needlemap.asking.session import Session, make_model
from needlemap.errors import NeedlemapError, SettingsError, did_you_mean
from needlemap.files import is_regular, plain_name
from needlemap.models import Traits, backend_or_default
from needlemap.probes import PROBES, examined, level
from needlemap.probes.base import (
    BESIDE,
    FILE,
    Answers,
    CheckFile,
    Finding,
    Worst,
    kind_of,
    read_check,
)
from needlemap.probes.ways import Around, Way, sizes_of, ways
from needlemap.records.families import Families, begin_families, begun_meanwhile, fresh_folder
from needlemap.records.folder import RunFolder, write_json
from needlemap.records.record import Record, costs_of
from needlemap.settings import Lender, Settings
from needlemap.settings.reading import addressed, configure
from needlemap.trials.build import Experiment, prepare
from needlemap.trials.resolve import ANY, foreign_vocabulary, resolve

SEED_BITS = 31
ENOUGH = 4_000  # tokens of a prompt that shows what stands around a haystack
COMPARED = ("grid", "empty")  # kinds of ways that the reference is asked too
ENDS = ("window", "beyond")  # kinds of ways whose tokens are counted as the server counts them


@dataclass(frozen=True, slots=True)
class Asked:
    """What a check is asked to do. flags: of the model and the limits, as settings have them. most:
    the longest length in tokens. promised: whether somebody says that the server takes it. context:
    tokens of prompt and answer that the server itself says it takes. reference: a model of the same
    weights, or where they are served. probes: those that are wanted."""

    flags: Mapping[str, Any]
    most: int = 128_000
    load: int = 8
    reference: str = ""
    probes: tuple[str, ...] = tuple(PROBES)
    promised: bool = False
    context: int | None = None

    def __post_init__(self) -> None:
        for name in self.probes:
            if name not in PROBES:
                raise SettingsError(f"Unknown probe '{name}'. {did_you_mean(name, PROBES)}")


@dataclass(frozen=True, slots=True)
class Check:
    """A check on disk. settings: of each way; elsewhere: those that the reference is asked. looks:
    how many records there were at each look at them. failed: what was found at any of them; it
    stays
    found."""

    asked: Asked
    folder: Families
    plan: tuple[Way, ...]
    settings: Mapping[str, Settings]
    elsewhere: Mapping[str, Settings]
    looks: list[int]
    failed: dict[str, Finding]
    folders: dict[str, RunFolder] = field(default_factory=dict)

    @property
    def probes(self) -> tuple[str, ...]:
        """The probes that can tell anything: the last one only beside a reference."""
        return self.asked.probes

    @classmethod
    def of(cls, asked: Asked, path: Path | None = None) -> Check:
        """Begin one, or go on with what the folder holds; a fresh one where none is given. Raises
        NeedlemapError where it holds another."""
        before = read_check(path) if path and is_regular(path / FILE) else None
        seed = before.seed if before else randbits(SEED_BITS)
        asked, traits = _counted(asked, seed)
        first = _settled(asked, {}, seed)
        path = path or fresh_folder(first, "check")
        answer = first.max_answer_tokens
        around = _around(asked, min(asked.most, ENOUGH + answer), seed)
        sizes = sizes_of(asked.most, answer, around)
        plan = ways(sizes, asked.load, answer, around, asked.context)
        lacking = {"load"} if traits.serial else set[str]()
        plan = tuple(way for way in plan if not lacking.intersection(way.probes))
        lacking |= set() if asked.reference else {"reference"}
        asked = replace(asked, probes=tuple(name for name in asked.probes if name not in lacking))
        plan = tuple(
            way for way in plan if not way.probes or set(asked.probes).intersection(way.probes)
        )
        own = {way.name: dict(way.settings) for way in plan}
        for at, each in enumerate(own.values()):
            if (
                at or asked.reference
            ):  # the canary comes before the first way; a reference tells what it would
                each["canary"] = False
            if traits.serial:  # it answers one prompt at a time, and is told no number of them
                each.pop("concurrency", None)
        settled = {name: _settled(asked, each, seed) for name, each in own.items()}
        elsewhere = {
            f"{BESIDE}{name}": _elsewhere(settings, asked.reference, path / name)
            for name, settings in settled.items()
            if "reference" in asked.probes and kind_of(name) in COMPARED
        }
        looks, failed = before.seen if before else ([], {})
        folder = Families(path, "check", (*settled, *elsewhere))
        return cls(asked, folder, plan, settled, elsewhere, looks, failed)

    def begin(self) -> None:
        """Make the folder. Raises NeedlemapError where it holds something else."""
        path, first = self.folder.path, next(iter(self.settings.values()))
        if is_regular(path / FILE) and read_check(path).seed != first.seed:
            raise begun_meanwhile(path)
        begin_families(self.folder.path, self.folder.suite, self.folder.names)
        _write(self, list(self.failed.values()))

    def records(self) -> dict[str, list[Record]]:
        """What is on disk so far, by way of asking."""
        for name in self.folder.begun:
            self.folders.setdefault(name, RunFolder(self.folder.folder(name)))
        return {name: list(folder.records()) for name, folder in self.folders.items()}

    def answers(self) -> Answers:
        """A look at it, at the alpha that is left for that."""
        found = self.records()
        size = sum(map(len, found.values()))
        if size and self.looks[-1:] != [size]:
            self.looks.append(size)
        return Answers(found, level(len(self.looks) or 1), self.asked.promised)

    def framing(self) -> int | None:
        """Tokens that the server counts beside those of our own count; None if not always as
        many."""
        rows = [row for _, row in Answers(self.records(), 0.0).of("grid", "comb")]
        found = {row.prompt_tokens - row.own_tokens if row.prompt_tokens else None for row in rows}
        return found.pop() if len(found) == 1 else None

    def findings(self) -> list[Finding]:
        """What each probe makes of it that can."""
        answers = self.answers()
        every = [self.failed.get(name) or examined(name, answers) for name in self.probes]
        found = [self._spent(each, answers) for each in every if each is not None]
        self.failed.update((each.probe, each) for each in found if each.state == "fail")
        return found

    def _spent(self, finding: Finding, answers: Answers) -> Finding:
        """It with the tokens that were sent for it, and the time that answers took."""
        name = finding.probe
        serving = {way.name for way in self.plan if not way.probes or name in way.probes}
        rows = (
            each
            for way, each in answers.rows
            if way in serving or (name == "reference" and way in self.elsewhere)
        )
        tokens, seconds = spent(rows)
        return replace(finding, tokens=tokens, seconds=seconds)


def spent(records: Iterable[Record]) -> tuple[int, float]:
    """Tokens that were sent and answered, and seconds of answers."""
    costs = costs_of(records, ("prompt_tokens", "completion_tokens", "seconds"))
    sent, answered, seconds = (each or 0 for each in costs.values())
    return int(sent + answered), round(seconds, 3)


def _counted(asked: Asked, seed: int) -> tuple[Asked, Traits]:
    """A check with the vocabulary that its lengths count, where the model's own is not known.
    Raises SettingsError."""
    found = resolve(_settled(asked, {}, seed))
    if foreign_vocabulary(found.settings, found.traits, found.tokenizer):
        asked = replace(asked, flags={**asked.flags, "tokenizer": ANY})
    return asked, found.traits


def worst_in(path: Path, probe: str) -> Worst:
    """The shortest trial that shows what a probe of a check found. Raises NeedlemapError without
    one."""
    found = {each.probe: each.worst for each in read_check(path).findings}
    if probe not in found:
        raise SettingsError(f"'{path}' has no probe '{probe}'. {did_you_mean(probe, found)}")
    worst = found[probe]
    if worst is None:
        raise NeedlemapError(
            f"Probe '{probe}' found nothing in '{path}', so there is no worst prompt."
        )
    if not plain_name(worst.way):  # a stranger's file may name any folder of this machine
        raise NeedlemapError(f"'{path / FILE}' names a folder outside of the check's.")
    return worst


def _settled(asked: Asked, own: Mapping[str, Any], seed: int) -> Settings:
    """The settings of one way of asking."""
    flags = {
        **asked.flags,
        **own,
        "seed": seed,
        "collisions": "warn",
    }  # they are the same in every way
    return configure(None, {**keeping_logprobs(str(flags.get("model", ""))), **flags})


def _around(asked: Asked, length: int, seed: int) -> Around:
    """What a prompt holds beside its haystack."""
    one = {"lengths": [length], "depths": [50.0], "repeats": 1}
    prompt = prepare(_settled(asked, one, seed)).trials[0].prompt
    number, first, _ = prompt.context
    before = [span for message in prompt.messages[:number] for span in message.spans]
    before += prompt.messages[number].spans[:first]
    return Around(length - prompt.haystack_tokens, sum(map(len, before)))


def keeping_logprobs(model: str) -> dict[str, bool]:
    """The setting that has a model's back end keep an answer's log-probabilities; none where it
    cannot."""
    backend = backend_or_default(model.partition("/")[0])
    return {} if "logprobs" in backend.unread else {"logprobs": True}


def _elsewhere(settings: Settings, reference: str, run: Path) -> Settings:
    """The settings with which a way's very prompts are asked of the reference."""
    named = {name: getattr(settings, name) for name in Lender.model_fields if name != "run"}
    address = "://" in reference
    asker = {"base_url": reference} if address else {"model": reference, "base_url": None}
    own: dict[str, Any] = {
        "model_options": {},
        "logprobs": False,
        **keeping_logprobs(asker.get("model") or settings.model),
        **asker,
    }
    lent = {"prompts_of": Lender(run=str(run), **named)}
    return addressed(settings.model_copy(update={**own, **lent}))


def _write(check: Check, findings: Sequence[Finding]) -> None:
    first = next(iter(check.settings.values()))
    asked = check.asked
    file = CheckFile(
        seed=first.seed,
        model=first.model,
        reference=asked.reference,
        max_length=asked.most,
        load=asked.load,
        looks=check.looks,
        findings=list(findings),
    )
    write_json(check.folder.path / FILE, file.model_dump(mode="json"))


@dataclass(slots=True)
class Asking:
    """A check under way. tell: hears of each probe that finds something. make, elsewhere: the
    model, and the reference. told: probes that were heard of. built: prompts of the last way, of
    each model. left: ways that were not asked to their end. stopped: why not."""

    check: Check
    face: Face
    tell: Callable[[Finding], None]
    make: MakeModel = make_model
    elsewhere: MakeModel = make_model
    told: set[str] = field(default_factory=set)
    built: dict[bool, Experiment] = field(default_factory=dict)
    left: list[Way] = field(default_factory=list)
    stopped: str = ""

    async def run(self) -> list[Finding]:
        """Ask way by way until nothing is left, a limit is met or the server is gone. Raises
        NeedlemapError where nothing could be asked at all."""
        self.check.begin()
        folder = self.check.folder
        turns = Turns(self.face, [folder.folder(name) for name in self.check.settings], self.make)
        others = Turns(
            self.face, [folder.folder(name) for name in self.check.elsewhere], self.elsewhere
        )
        try:
            for length in dict.fromkeys(way.length_tokens for way in self.check.plan):
                await self._size(length, turns, others)
                self._look()
        finally:
            await turns.close()
            await others.close()
            findings = self.check.findings()
            _write(self.check, findings)
        return findings

    async def _size(self, length: int, turns: Turns, others: Turns) -> None:
        """All ways of one length that any undecided probe still needs."""
        for way in self.check.plan:
            if way.length_tokens != length or not self._needed(way):
                continue
            settings = self.check.settings[way.name]
            if kind_of(way.name) in ENDS and not self.stopped:
                if (framing := self.check.framing()) is None:
                    continue
                settings = settings.model_copy(update={"framing_tokens": framing})
            if not self.stopped:
                await self._take(way.name, settings, turns)
            beside = f"{BESIDE}{way.name}"
            if beside in self.check.elsewhere and not self.stopped:
                await self._take(beside, self.check.elsewhere[beside], others)
            if self.stopped:
                self.left.append(way)

    def untested(self) -> list[str]:
        """What a check that was stopped left untested, size by size, in words."""
        found = dict[int, set[str]]()
        for way in self.left:
            wanted = set(way.probes or self.check.probes) & set(self.check.probes)
            found.setdefault(way.length_tokens, set()).update(wanted)
        return [f"{length:,} tokens: {', '.join(sorted(names))}" for length, names in found.items()]

    def _needed(self, way: Way) -> bool:
        wanted = [name for name in way.probes if name in self.check.probes]
        return not way.probes or any(name not in self.check.failed for name in wanted)

    async def _take(self, name: str, settings: Settings, turns: Turns) -> None:
        session = Session.open(
            self._experiment(settings, name), self.check.folder.folder(name), Whole()
        )
        outcome = await turns.take(name, session)
        if outcome is not None and outcome.over and kind_of(name) != ENDS[1]:
            self.stopped = _why(outcome)

    def _experiment(self, settings: Settings, name: str) -> Experiment:
        """The prompts of a way; those of the one before again, where it asks the same."""
        side = name in self.check.elsewhere
        before, alike = self.built.get(side), {"canary": settings.canary}
        if before is None or before.settings.model_copy(update=alike) != settings:
            self.built[side] = prepare(settings)
        return replace(self.built[side], settings=settings)

    def _look(self) -> None:
        """What is found so far; it is told once."""
        for finding in self.check.findings():
            if finding.state == "fail" and finding.probe not in self.told:
                self.told.add(finding.probe)
                self.tell(finding)


def _why(outcome: Outcome) -> str:
    """Why a way of asking ended early, in words."""
    refused = outcome.refused_from and (
        f"the model refused prompts of {outcome.refused_from:,} tokens ({outcome.refusal}); give a "
        f"smaller "
        f"--max-length"
    )
    return str(outcome.stopped or outcome.canary or outcome.hopeless or refused or "")


def built(check: Check) -> dict[str, Experiment]:
    """The prompts of all ways, nothing asked. Raises NeedlemapError for what a user can mend."""
    return {name: prepare(settings) for name, settings in check.settings.items()}
