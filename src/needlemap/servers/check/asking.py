"""`check` from start to end: asks batch by batch what the schedule says, keeps each record, and
judges.

What an earlier start has asked is taken from its records, in the same order; the same command goes
on where it ended.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import randbits
from typing import Any

from needlemap.asking import Outcome
from needlemap.asking.campaign import Campaign, MakeModel
from needlemap.asking.failures import FIRST, Failures, no_answer
from needlemap.asking.session import check_price, make_model, marked
from needlemap.asking.single import Step
from needlemap.deadline import LimitReached, without_limit
from needlemap.errors import NeedlemapError, SettingsError, did_you_mean
from needlemap.files import RUN_FILE, is_regular, plain_name
from needlemap.grid import short_size
from needlemap.records.families import (
    SUITE,
    Families,
    SuiteFile,
    begin_families,
    families_of,
    fresh_folder,
)
from needlemap.records.folder import RunFolder
from needlemap.records.record import Record
from needlemap.servers.check.ahead import BuiltAhead
from needlemap.servers.check.ask import BESIDE, ROOMY, Answers, Ask, Key, framing_of
from needlemap.servers.check.change import judge_change
from needlemap.servers.check.families import Asker, experiment_of, made_for
from needlemap.servers.check.finding import CHECK, CheckFile, Finding, Worst
from needlemap.servers.check.haystack import AskBatch, Options
from needlemap.servers.check.judge import Checked, accepted_of, judge, required_of
from needlemap.stats.verdicts import FAIL, SUSPECT
from needlemap.trials import Trial
from needlemap.trials.resolve import ANY

SEED_BITS = 31
_FAMILY = re.compile(r"[a-z-]+-\d+")  # a way of asking, and a size


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """What a check is asked to do. flags: of the model and the limits, as settings have them.
    reference: a model of the same weights, or where they are served. baseline: the folder of a
    check of before, whose prompts are asked again."""

    flags: Mapping[str, Any]
    options: Options = field(default_factory=Options)
    reference: str = ""
    baseline: Path | None = None


@dataclass
class Check:
    """A check on disk. looks: how many answers there were at each look at them. failed: what was
    found at any of them; it stays found. before: the records of the check that this one is set
    beside."""

    asked: CheckOptions
    folder: Families
    asker: Asker
    looks: list[int]
    failed: dict[str, Finding]
    answers: Answers = field(default_factory=Answers)
    before: dict[tuple[str, int, float, int], Record] = field(default_factory=dict)

    @classmethod
    def of(cls, asked: CheckOptions, path: Path | None = None, seed: int | None = None) -> Check:
        """Begin one, or go on with what the folder holds; a fresh one where none is given.
        seed: of its prompts, where it begins; None: a drawn one. Raises NeedlemapError where
        the folder holds another."""
        earlier = CHECK.read(path) if path and CHECK.is_in(path) else None
        base = CHECK.read(asked.baseline) if asked.baseline else None
        known = earlier or base
        if known or seed is None:
            seed = known.seed if known else randbits(SEED_BITS)
        options = replace(asked.options, reference=bool(asked.reference))
        flags = dict(asked.flags)
        asker = made_for(flags, options, seed, path or Path(), asked.reference)
        path = path or fresh_folder(asker.first.settings, "check")
        asker.path = path
        required_of(asker.schedule)  # a slip in the flags is said now, not behind the last answer
        accepted_of(asker.schedule)
        if earlier and list(asker.schedule.sizes) != earlier.sizes:
            raise NeedlemapError(
                f"'{path}' holds a check of {', '.join(map(short_size, earlier.sizes))} tokens, "
                f"not of {', '.join(map(short_size, asker.schedule.sizes))}. Give another folder "
                "with -o."
            )
        looks, failed = earlier.seen if earlier else ([], {})
        made = cls(asked, Families(path, "check", ()), asker, looks, failed)
        if asked.baseline and base:
            if base.sizes != list(asker.schedule.sizes) or base.seed != seed:
                raise SettingsError(
                    f"--baseline {asked.baseline} asked other prompts: give --max-length "
                    f"{base.max_length}, its needle and its template, and a folder of its own."
                )
            made.before = stored_in(asked.baseline)
        return made

    @property
    def tokenizer_assumed(self) -> bool:
        """Whether lengths are another vocabulary's, as the model's own is not known."""
        flags = self.asker.flags
        return flags.get("tokenizer") == ANY and "tokenizer" not in self.asked.flags

    def earlier(self) -> Answers:
        """What the check of before answered to the same asks."""
        found = Answers()
        for reply in self.answers.by_key.values():
            record = self.before.get(_record_key(reply.ask))
            if record is not None and reply.secret in record.keywords:
                found.add(self.asker.reply(reply.ask, record))
        return found

    @without_limit()
    def judged(self) -> Checked:
        """What is known, at the alpha that is left for this look."""
        size = len(self.answers)
        if size and self.looks[-1:] != [size]:
            self.looks.append(size)
        look = max(1, len(self.looks))
        made = judge(self.asker.schedule, self.answers, look, self.failed)
        if self.asked.options.moves:
            from needlemap.servers.check.coarse import judge_cache

            made = judge_cache(self.asker, made, self.answers)
        if self.asked.baseline:
            name = str(self.asked.baseline)
            schedule = self.asker.schedule
            made = judge_change(schedule, made, self.answers, self.earlier(), name, look)
        findings = tuple(self._spent(each) for each in made.findings)
        self.failed.update((each.probe, each) for each in findings if each.state == FAIL)
        return replace(made, findings=findings)

    def _spent(self, finding: Finding) -> Finding:
        """It with the tokens that were sent for it, and the time that answers took."""
        probe = self.asker.schedule.probes[finding.probe]
        ways = probe.ways(self.asker.schedule)
        rows = [each for each in self.answers.by_key.values() if each.ask.way in ways]
        tokens, seconds = sum(row.tokens for row in rows), sum(row.seconds for row in rows)
        return replace(finding, tokens=tokens, seconds=round(seconds, 3))

    def write(self, found: Checked | None) -> None:
        """Keep what is known."""
        schedule, settings = self.asker.schedule, self.asker.first.settings
        file = CheckFile(
            seed=self.asker.seed,
            model=settings.model,
            reference=self.asked.reference,
            max_length=schedule.options.max_length,
            load=schedule.options.load,
            sizes=list(schedule.sizes),
            looks=self.looks,
            verdict=found.verdict if found else None,
            not_asked=list(found.not_asked) if found else [],
            lacking=dict(found.lacking) if found else {},
            findings=list(found.findings) if found else list(self.failed.values()),
        )
        CHECK.write(self.folder.path, file)


def stored_in(path: Path) -> dict[tuple[str, int, float, int], Record]:
    """The last scored record of each place of each family of a check's folder."""
    found = dict[tuple[str, int, float, int], Record]()
    for each in folders_in(path):
        for record in RunFolder(each).records():
            at = each.name, record.length_tokens, round(record.depth, 8), record.repeat
            if record.scored or at not in found:
                found[at] = record
    return found


def folders_in(path: Path) -> list[Path]:
    """The folders of the families that a check has begun."""
    named = sorted(path.iterdir()) if path.is_dir() else ()
    return [each for each in named if each.is_dir() and is_regular(each / RUN_FILE)]


def begun_in(path: Path | None) -> list[str]:
    """Names of the folders in a check's that its asks may go on with."""
    return [each.name for each in folders_in(path) if _FAMILY.fullmatch(each.name)] if path else []


def worst_in(path: Path, probe: str) -> Worst:
    """The shortest trial that shows what a probe of a check found. Raises NeedlemapError without
    one."""
    found = {each.probe: each.worst for each in CHECK.read(path).findings}
    if probe not in found:
        raise SettingsError(f"'{path}' has no probe '{probe}'. {did_you_mean(probe, found)}")
    worst = found[probe]
    if worst is None:
        raise NeedlemapError(
            f"Probe '{probe}' found nothing in '{path}', so there is no worst prompt."
        )
    if not plain_name(worst.way):  # a stranger's file may name any folder of this machine
        raise NeedlemapError(f"'{path / CHECK.file}' names a folder outside of the check's.")
    return worst


def show_nothing(asks: Sequence[Ask], done: int) -> None:
    """Hears that a batch is about to be asked, after so many answers."""


class ProbesOnSchedule:
    """Batch by batch what the schedule of a check says, until nothing is left, a limit is met or
    the server is gone. Finds the verdict.

    make, elsewhere: of the model, and of the reference. stopped: why not all was asked. missed:
    what to say where the first prompts were all missed.
    """

    def __init__(
        self,
        check: Check,
        progress: Callable[[Sequence[Ask], int], None] = show_nothing,
        make: MakeModel = make_model,
        elsewhere: MakeModel = make_model,
    ) -> None:
        self.check, self.progress = check, progress
        models = {"": make, BESIDE: elsewhere}
        self._campaign = Campaign(folders_in(check.folder.path), models)
        self.stopped = self.missed = ""
        self.failing, self.finishes = Failures(), list[str | None]()
        self._limited = False
        self._stored = stored_in(check.folder.path)
        self._prompts = BuiltAhead(self._trials)

    async def run(self) -> Checked:
        """The verdict, once all is asked. Raises NeedlemapError where nothing could be asked."""
        async with self._campaign:
            return await self._ask_all()

    async def _ask_all(self) -> Checked:
        check = self.check
        schedule, answers, path = check.asker.schedule, check.answers, check.folder.path
        check_price(check.asker.first.settings)
        if not CHECK.is_in(path):
            begin_families(path, "check", ("cold",))
            check.write(None)
        try:
            while (batch := schedule.next(answers)) is not None:
                await self._ask(batch)
                self._look_at_first()
            await self._window()
        except LimitReached as error:  # while prompts were built
            self.stopped, self._limited = str(error), True
        finally:
            self._prompts.close()
            found = check.judged()
            if self.missed:  # nothing else was asked, and all of it was lost
                claim, more = "the first prompts were all missed", "look at --needle and --template"
                verdict = replace(found.verdict, word=SUSPECT, claim=claim, next=more)
                found = replace(found, verdict=verdict)
            check.write(found)
        if not any(reply.measured for reply in answers.by_key.values()):
            self._nothing()
        return found

    async def _ask(self, batch: AskBatch) -> None:
        """Take what is on disk, and ask the rest, while the prompts of the next batch are
        built."""
        answers, asker = self.check.answers, self.check.asker
        left = []
        for ask in batch.asks:
            record = self._stored.get(_record_key(ask))
            if record is not None and record.scored:
                answers.add(asker.reply(ask, record))
            elif self._is_left_out(ask):
                answers.tried.add(ask.key)
                if record is not None:
                    answers.add(asker.reply(ask, record))
            else:
                left.append(ask)
        if not left:
            return
        self.progress(left, len(answers))
        try:
            trials = self._prompts.of(left)
        except LimitReached as error:  # what is on disk behind it is judged all the same
            self.stopped, self._limited = str(error), True
            answers.tried.update(ask.key for ask in left)
            return
        self._build_behind(batch)
        for group in [left] if batch.together else [[ask] for ask in left]:
            await self._ask_at_once(group, trials)

    def _build_behind(self, batch: AskBatch) -> None:
        """Have the prompts of the batch behind one built, where it is known and all of it is
        left to ask."""
        behind = self.check.asker.schedule.batch_behind(batch)
        if behind and not any(
            _record_key(ask) in self._stored or self._is_left_out(ask) for ask in behind.asks
        ):
            self._prompts.begin(behind.asks)

    def _trials(self, asks: Sequence[Ask]) -> dict[Key, Trial]:
        """The prompts of some asks, by the asks' keys."""
        asker, found = self.check.asker, dict[Key, Trial]()
        groups = defaultdict[tuple[object, ...], list[Ask]](list)
        for ask in asks:
            groups[ask.family, ask.haystack].append(ask)
        for group in groups.values():
            if group[0].way.startswith(BESIDE):
                own = [replace(ask, way=ask.way.removeprefix(BESIDE)) for ask in group]
                made = asker.experiment(own)
                for ask, each in zip(group, own, strict=True):
                    found[ask.key] = asker.elsewhere(ask, made[each.key])[1]
            else:
                found |= asker.experiment(group)
        order = [found[ask.key] for ask in asks]
        first = experiment_of(asker.resolved(_own(asks[0])), order[:1])
        told = marked(first, order)
        return {ask.key: trial for ask, trial in zip(asks, told, strict=True)}

    def _is_left_out(self, ask: Ask) -> bool:
        """Whether nothing more is asked, or nothing so long."""
        return bool(
            self.stopped or (self.failing.refused_from and ask.length >= self.failing.refused_from)
        )

    async def _ask_at_once(self, asks: Sequence[Ask], trials: Mapping[Key, Trial]) -> None:
        """Ask some prompts at the same time, and take what came of each."""
        check, answers, wanted = self.check, self.check.answers, list[Ask]()
        for ask in asks:
            if self._is_left_out(ask):
                answers.tried.add(ask.key)
            else:
                wanted.append(ask)
                self._named(ask.family)
        if not wanted:
            return
        options, first = check.asker.schedule.options, check.asker.first.settings
        scored = int(any(reply.measured for reply in answers.by_key.values()))
        steps = [self._step(ask, trials[ask.key]) for ask in wanted]
        at_a_time = max(first.concurrency, options.load)
        records, outcome = await self._campaign.ask_together(
            steps, at_a_time=at_a_time, scored=scored
        )
        for ask, record in zip(wanted, records, strict=True):
            if record is None:
                self.stopped = self.stopped or str(outcome.stopped or "a limit is reached")
                self._limited = True
                answers.tried.add(ask.key)
            else:
                self._take(ask, record, outcome)

    def _step(self, ask: Ask, trial: Trial) -> Step:
        asker, beside = self.check.asker, ask.way.startswith(BESIDE)
        resolved = asker.families[ask.family] if beside else asker.resolved(ask)
        folder = RunFolder(self.check.folder.folder(ask.family))
        return Step(ask.family, trial, resolved, folder, BESIDE if beside else "")

    def _take(self, ask: Ask, record: Record, outcome: Outcome) -> None:
        """Take an answer, or what a failure says of all that follows."""
        answers = self.check.answers
        reply = self.check.asker.reply(ask, record)
        answers.add(reply)
        self.finishes.append(record.finish)
        if ask.way != "beyond" and not ask.way.endswith(ROOMY):
            measured = any(each.measured for each in answers.by_key.values())
            self.failing.take(record, ask.length, outcome.hopeless, answered=measured)
            self.stopped = self.stopped or self.failing.ended

    def _named(self, name: str) -> None:
        """Have suite.json name a family."""
        path, names = self.check.folder.path, self.check.folder.names
        if name not in names:
            self.check.folder = Families(path, "check", (*names, name))
            rewrite_families(self.check.folder)

    async def _window(self) -> None:
        """The end of the context, where it is known and lengths are the model's own."""
        if self.stopped or self.failing.refused_from:
            return
        asker = self.check.asker
        asks = asker.window(framing_of(self.check.answers))
        for ask in asks:
            record = self._stored.get(_record_key(ask))
            if record is not None:
                self.check.answers.add(asker.reply(ask, record))
                continue
            await self._ask_at_once([ask], self._counted_there([ask]))

    @without_limit()
    def _look_at_first(self) -> None:
        """Stop where the first prompts were all missed: what to try is said in one line. A model
        that is known to find them is not at fault, so its server's misses are findings."""
        answers = self.check.answers
        if self.stopped or len(answers) > 4 * FIRST or self.check.asker.schedule.options.holds:
            return
        rows = [reply for reply in answers.by_key.values() if reply.measured]
        if len({row.ask.prompt for row in rows}) < FIRST or any(row.right for row in rows):
            return
        row = rows[-1]
        question = self._counted_there([row.ask])[row.ask.key].item.question
        said = row.answer if len(row.answer) <= 120 else f"{row.answer[:119]}…"
        self.missed = (
            f"the first {len(rows)} prompts of {row.ask.length:,} tokens were all missed; to "
            f"{question!r} it said {said!r}. A model that knows one kind of fact is given it with "
            "--needle, --question, --keywords and --draw; one that thinks first needs "
            "--thinking-tokens; else look at --template and --max-answer-tokens"
        )
        self.stopped = self.missed

    def _counted_there(self, asks: Sequence[Ask]) -> dict[Key, Trial]:
        """The prompts of some asks, as long as the server counts them."""
        framing = framing_of(self.check.answers) or 0
        return self._prompts.call(lambda: self.check.asker.experiment(asks, framing))

    @property
    def why(self) -> str:
        """Why not all was asked, in words."""
        failing = self.failing
        if failing.refused_from and not self.stopped:
            return (
                f"the model refused prompts of {failing.refused_from:,} tokens "
                f"({failing.refusal}); give a smaller --max-length"
            )
        return self.stopped

    def _nothing(self) -> None:
        """Raises NeedlemapError where no answer ever came."""
        raise no_answer(self.why, limited=self._limited)


def _own(ask: Ask) -> Ask:
    return replace(ask, way=ask.way.removeprefix(BESIDE))


def _record_key(ask: Ask) -> tuple[str, int, float, int]:
    return ask.family, ask.length, round(ask.depth, 8), ask.repeat


def rewrite_families(folder: Families) -> None:
    """suite.json with the families that were begun so far."""
    before = families_of(folder.path)
    names = [name for name in before.names if (folder.path / name / RUN_FILE).exists()]
    names += [name for name in folder.names if name not in names]
    SUITE.write(folder.path, SuiteFile(suite="check", families=names))
