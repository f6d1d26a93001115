"""Run a check from start to end: send batch by batch what the schedule says, keep records, judge.

What an earlier start has sent is taken from its records, in the same order, so the same command
resumes where it ended.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from needlemap.servers.check.ask import (
    BESIDE,
    CONVERSATION,
    Answers,
    Ask,
    Key,
    Reply,
    answered_ask,
    framing_of,
)
from needlemap.servers.check.change import judge_change
from needlemap.servers.check.families import Asker, make_asker
from needlemap.servers.check.finding import CHECK, CheckFile, Finding, Worst
from needlemap.servers.check.haystack import WAYS, AskBatch, Options
from needlemap.servers.check.judge import (
    Checked,
    accepted_of,
    judge,
    missed_advice,
    outcome_of_missed,
    required_of,
)
from needlemap.servers.check.prefilling import prefilling
from needlemap.servers.ways import PREFILLED
from needlemap.stats.verdicts import FAIL
from needlemap.trials import Trial
from needlemap.trials.build import Experiment

SEED_BITS = 31
# The name of a family: a way of asking, and a size.
_FAMILY = re.compile(r"[a-z][a-z0-9-]*-\d+")
# Answers after which first prompts are no longer looked at: by then the schedule decides.
_FIRST_ANSWERS = 4 * FIRST
# Characters of a wrong answer that the message about missed first prompts shows.
_SHOWN = 120

# Family, length in tokens, depth and repeat.
RecordKey = tuple[str, int, float, int]


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The options of a check, with the settings of its model.

    Attributes:
        flags: Settings of the model and the limits.
        options: What the check asks, and how much.
        reference: A model of the same weights, or the address at which they are served.
        baseline: The folder of an earlier check, whose prompts are sent again.
    """

    flags: Mapping[str, Any]
    options: Options = field(default_factory=Options)
    reference: str = ""
    baseline: Path | None = None


@dataclass
class Check:
    """A check on disk.

    Attributes:
        asked: Its options.
        folder: Its folder, and the families that it has started.
        asker: The maker of its prompts.
        looks: The number of answers at each look at them.
        failed_findings: By probe, the findings that failed at any look. They stay.
        answers: The answers so far.
        baseline_records: The records of the check that this one is compared with.
    """

    asked: CheckOptions
    folder: Families
    asker: Asker
    looks: list[int]
    failed_findings: dict[str, Finding]
    answers: Answers = field(default_factory=Answers)
    baseline_records: dict[RecordKey, Record] = field(default_factory=dict)

    @classmethod
    def of(cls, asked: CheckOptions, path: Path | None = None, seed: int | None = None) -> Check:
        """Start a check, or resume the one in the folder.

        path: the folder; None for a fresh one. seed: of the prompts of a new check; None for a
        drawn one. Raises NeedlemapError if the folder holds another check.
        """
        earlier = CHECK.read(path) if path and CHECK.is_in(path) else None
        baseline = CHECK.read(asked.baseline) if asked.baseline else None
        seed_source = earlier or baseline
        if seed_source is not None:
            seed = seed_source.seed
        elif seed is None:
            seed = randbits(SEED_BITS)

        asker = make_asker(
            dict(asked.flags),
            replace(asked.options, reference=bool(asked.reference)),
            seed=seed,
            path=path or Path(),
            reference=asked.reference,
        )
        path = path or fresh_folder(asker.base.settings, "check")
        asker.path = path
        # A slip in the flags is reported now, not after the last answer.
        required_of(asker.schedule)
        accepted_of(asker.schedule)
        sizes = list(asker.schedule.sizes)
        if earlier and earlier.sizes != sizes:
            raise NeedlemapError(
                f"'{path}' holds a check of {', '.join(map(short_size, earlier.sizes))} tokens, "
                f"not of {', '.join(map(short_size, sizes))}. Give another folder with -o."
            )
        check = cls(
            asked=asked,
            folder=Families(path, "check", ()),
            asker=asker,
            looks=list(earlier.looks) if earlier else [],
            failed_findings=earlier.failed_findings if earlier else {},
        )
        if asked.baseline and baseline:
            if baseline.sizes != sizes or baseline.seed != seed:
                raise SettingsError(
                    f"--baseline {asked.baseline} asked other prompts: give --max-length "
                    f"{baseline.max_length}, its needle and its template, and a folder of its own."
                )
            check.baseline_records = read_records(asked.baseline)
        return check

    def baseline_answers(self) -> Answers:
        """Return the baseline's answers to the same prompts."""
        answers = Answers()
        for reply in self.answers.by_key.values():
            record = self.baseline_records.get(_record_key(reply.ask))
            if record is not None and reply.secret in record.keywords:
                answers.add(self.asker.reply(reply.ask, record))
        return answers

    @without_limit()
    def judge(self) -> Checked:
        """Return the outcome by the answers so far, at the alpha of this look."""
        size = len(self.answers)
        if size and self.looks[-1:] != [size]:
            self.looks.append(size)
        look = max(1, len(self.looks))
        schedule = self.asker.schedule
        checked = judge(schedule, self.answers, look, self.failed_findings)
        if self.asked.options.moves:
            # It loads the gauge's engine, which other checks do not need.
            from needlemap.servers.check.coarse import judge_cache

            checked = judge_cache(self.asker, checked, self.answers)
        if self.asked.baseline:
            checked = judge_change(
                schedule,
                checked,
                self.answers,
                self.baseline_answers(),
                str(self.asked.baseline),
                look,
            )
        findings = tuple(self._with_cost(finding) for finding in checked.findings)
        for finding in findings:
            if finding.state == FAIL:
                self.failed_findings[finding.probe] = finding
        return replace(checked, findings=findings)

    def _with_cost(self, finding: Finding) -> Finding:
        """Return a finding with the tokens that were sent for it, and the time of its answers."""
        schedule = self.asker.schedule
        ways = schedule.probes[finding.probe].ways(schedule)
        replies = [
            reply
            for reply in (*self.answers.by_key.values(), *self.answers.prefills.values())
            if (reply.ask.source or reply.ask.way) in ways
        ]
        return replace(
            finding,
            tokens=sum(reply.tokens for reply in replies),
            seconds=round(sum(reply.seconds for reply in replies), 3),
        )

    def write(self, checked: Checked | None) -> None:
        """Write check.json.

        checked: the outcome; None if there is none yet.
        """
        schedule, settings = self.asker.schedule, self.asker.base.settings
        file = CheckFile(
            seed=self.asker.seed,
            model=settings.model,
            reference=self.asked.reference,
            max_length=schedule.options.max_length,
            load=schedule.options.load,
            sizes=list(schedule.sizes),
            looks=self.looks,
            verdict=checked.verdict if checked else None,
            not_asked=list(checked.not_asked) if checked else [],
            lacking=dict(checked.lacking) if checked else {},
            findings=list(checked.findings) if checked else list(self.failed_findings.values()),
        )
        CHECK.write(self.folder.path, file)


def read_records(path: Path) -> dict[RecordKey, Record]:
    """Return the last record of each place of each family in a check's folder, scored if one is."""
    records = dict[RecordKey, Record]()
    for folder in folders_in(path):
        for record in RunFolder(folder).records():
            key = folder.name, record.length_tokens, round(record.depth, 8), record.repeat
            if record.scored or key not in records:
                records[key] = record
    return records


def folders_in(path: Path) -> list[Path]:
    """Return the folders of the families that a check has started, in the order of their names."""
    if not path.is_dir():
        return []
    return [
        folder
        for folder in sorted(path.iterdir())
        if folder.is_dir() and is_regular(folder / RUN_FILE)
    ]


def resumable_families(path: Path | None) -> list[str]:
    """Return the names of the families in a check's folder that can be resumed."""
    if path is None:
        return []
    return [folder.name for folder in folders_in(path) if _FAMILY.fullmatch(folder.name)]


def worst_in(path: Path, probe: str) -> Worst:
    """Return the shortest trial that shows what a probe found.

    Raises NeedlemapError if there is none.
    """
    worst_by_probe = {finding.probe: finding.worst for finding in CHECK.read(path).findings}
    if probe not in worst_by_probe:
        raise SettingsError(
            f"'{path}' has no probe '{probe}'. {did_you_mean(probe, worst_by_probe)}"
        )
    worst = worst_by_probe[probe]
    if worst is None:
        raise NeedlemapError(
            f"Probe '{probe}' found nothing in '{path}', so there is no worst prompt."
        )
    # A stranger's file may name any folder of this machine.
    if not plain_name(worst.way):
        raise NeedlemapError(f"'{path / CHECK.file}' names a folder outside of the check's.")
    return worst


def show_nothing(asks: Sequence[Ask], done: int) -> None:
    """Show no progress."""


class ProbesOnSchedule:
    """A check that sends what its schedule says, until nothing is left, a limit is met or the
    server is gone.

    Attributes:
        check: The check on disk.
        stopped: Why not all prompts were sent; '' if all were.
        missed: The message that the first prompts were all missed; '' if they were not.
        failures: The failed requests so far.
        finishes: How the answers ended, in the server's words.

    Args:
        progress: Called with the prompts of each batch, and how many answers there are.
        make, make_reference: Makers of the model and of the reference.
    """

    def __init__(
        self,
        check: Check,
        progress: Callable[[Sequence[Ask], int], None] = show_nothing,
        make: MakeModel = make_model,
        make_reference: MakeModel = make_model,
    ) -> None:
        self.check = check
        self.progress = progress
        self.stopped = ""
        self.missed = ""
        self.failures = Failures()
        self.finishes = list[str | None]()
        models = {"": make, BESIDE: make_reference, PREFILLED: prefilling(make)}
        self._campaign = Campaign(folders_in(check.folder.path), models)
        self._is_limited = False
        self._stored_records = read_records(check.folder.path)
        self._prompts = BuiltAhead(self._trials)

    async def run(self) -> Checked:
        """Send all prompts, and return the outcome.

        Raises NeedlemapError if no request was answered.
        """
        async with self._campaign:
            return await self._run_in_campaign()

    async def _run_in_campaign(self) -> Checked:
        check, path = self.check, self.check.folder.path
        check_price(check.asker.base.settings)
        if not CHECK.is_in(path):
            begin_families(path, "check", ("cold",))
            check.write(None)

        try:
            while (batch := check.asker.schedule.next_batch(check.answers)) is not None:
                await self._ask(batch)
                self._look_at_first()
            await self._ask_window()
        except LimitReached as error:
            # The limit was met while prompts were built.
            self._stop_at_limit(error)
        finally:
            self._prompts.close()
            checked = check.judge()
            if self.missed:
                checked = outcome_of_missed(checked, check.answers)
            check.write(checked)

        if not self._has_answer:
            raise no_answer(self.why, limited=self._is_limited)
        return checked

    @property
    def _has_answer(self) -> bool:
        return any(reply.measured for reply in self.check.answers.by_key.values())

    def _stop_at_limit(self, error: LimitReached) -> None:
        self.stopped = str(error)
        self._is_limited = True

    async def _ask(self, batch: AskBatch) -> None:
        """Take the stored answers of a batch, and send the rest.

        The prompts of the next batch are built meanwhile.
        """
        answers = self.check.answers
        unsent = self._take_stored(batch.asks)
        if not unsent:
            return
        self.progress(unsent, len(answers))
        try:
            trials = self._prompts.of(unsent)
        except LimitReached as error:
            # Answers of later batches that are on disk are still judged.
            self._stop_at_limit(error)
            answers.tried.update(ask.key for ask in unsent)
            return
        self._build_next(batch)
        groups = [unsent] if batch.together else [[ask] for ask in unsent]
        for group in groups:
            await self._ask_together(group, trials)

    def _take_stored(self, asks: Iterable[Ask]) -> list[Ask]:
        """Take the stored answers, and return the asks that are still to be sent."""
        answers, asker = self.check.answers, self.check.asker
        unsent = []
        for ask in asks:
            record = self._stored_records.get(_record_key(ask))
            if record is not None and record.scored:
                answers.add(asker.reply(ask, record))
            elif self._is_left_out(ask):
                answers.tried.add(ask.key)
                if record is not None:
                    answers.add(asker.reply(ask, record))
            else:
                unsent.append(ask)
        return unsent

    def _build_next(self, batch: AskBatch) -> None:
        """Start to build the next batch's prompts, if it is known and nothing of it was sent."""
        next_batch = self.check.asker.schedule.batch_after(batch)
        if next_batch is None:
            return
        for ask in next_batch.asks:
            if _record_key(ask) in self._stored_records or self._is_left_out(ask):
                return
        self._prompts.begin(next_batch.asks)

    def _trials(self, asks: Sequence[Ask]) -> dict[Key, Trial]:
        """Build the prompts of some asks, by the asks' keys."""
        asker = self.check.asker
        groups = defaultdict[tuple[object, ...], list[Ask]](list)
        for ask in asks:
            groups[ask.family, ask.haystack].append(ask)

        by_key = dict[Key, Trial]()
        for group in groups.values():
            if group[0].position:
                for ask in group:
                    answer = self.check.answers.by_key[answered_ask(ask).key]
                    by_key[ask.key] = asker.prefill(ask, answer)
            elif group[0].way.startswith(CONVERSATION):
                by_key |= {ask.key: asker.conversation(ask) for ask in group}
            elif group[0].way.startswith(BESIDE):
                server_asks = [_without_reference(ask) for ask in group]
                trials = asker.experiment(server_asks)
                for ask, server_ask in zip(group, server_asks, strict=True):
                    _, by_key[ask.key] = asker.reference_trial(ask, trials[server_ask.key])
            else:
                by_key |= asker.experiment(group)

        trials_in_order = [by_key[ask.key] for ask in asks]
        resolved = asker.resolved(_without_reference(asks[0]))
        experiment = Experiment.of(resolved, trials_in_order[:1], ())
        marked_trials = marked(experiment, trials_in_order)
        return {ask.key: trial for ask, trial in zip(asks, marked_trials, strict=True)}

    def _is_left_out(self, ask: Ask) -> bool:
        """Return True if nothing more is sent, or no prompts as long as this."""
        if self.stopped:
            return True
        refused_from = self.failures.refused_from
        return refused_from is not None and ask.length >= refused_from

    async def _ask_together(self, asks: Iterable[Ask], trials: Mapping[Key, Trial]) -> None:
        """Send some prompts at the same time, and take their replies."""
        asker, answers = self.check.asker, self.check.answers
        unsent = list[Ask]()
        for ask in asks:
            if self._is_left_out(ask):
                answers.tried.add(ask.key)
            else:
                unsent.append(ask)
                self._add_family(ask.family)
        if not unsent:
            return
        records, outcome = await self._campaign.ask_together(
            [self._step(ask, trials[ask.key]) for ask in unsent],
            at_a_time=max(asker.base.settings.concurrency, asker.schedule.options.load),
            scored=int(self._has_answer),
        )
        for ask, record in zip(unsent, records, strict=True):
            if record is not None:
                self._take(ask, record, outcome)
                continue
            self.stopped = self.stopped or str(outcome.stopped or "a limit is reached")
            self._is_limited = True
            answers.tried.add(ask.key)

    def _step(self, ask: Ask, trial: Trial) -> Step:
        asker = self.check.asker
        if ask.way.startswith(BESIDE):
            resolved, model = asker.families[ask.family], BESIDE
        else:
            resolved, model = asker.resolved(ask), PREFILLED if ask.position else ""
        return Step(
            family=ask.family,
            trial=trial,
            resolved=resolved,
            folder=RunFolder(self.check.folder.folder(ask.family)),
            model=model,
        )

    def _take(self, ask: Ask, record: Record, outcome: Outcome) -> None:
        """Take a reply; if it is a failure that ends the check, stop."""
        self.check.answers.add(self.check.asker.reply(ask, record))
        if ask.position:
            # That a server cannot score its answer is no failure of other prompts.
            return
        self.finishes.append(record.finish)
        # A sound server may refuse these prompts.
        if ask.may_go_unanswered:
            return
        self.failures.take(record, ask.length, outcome.hopeless, answered=self._has_answer)
        self.stopped = self.stopped or self.failures.ended

    def _add_family(self, name: str) -> None:
        """Add a family's name to suite.json."""
        path, names = self.check.folder.path, self.check.folder.names
        if name not in names:
            self.check.folder = Families(path, "check", (*names, name))
            rewrite_families(self.check.folder)

    async def _ask_window(self) -> None:
        """Send prompts to the end of the context, if it is known and lengths are the model's."""
        if self.stopped or self.failures.refused_from:
            return
        asker = self.check.asker
        for ask in asker.window(framing_of(self.check.answers)):
            record = self._stored_records.get(_record_key(ask))
            if record is not None:
                self.check.answers.add(asker.reply(ask, record))
            else:
                await self._ask_together([ask], self._trials_as_counted([ask]))

    @without_limit()
    def _look_at_first(self) -> None:
        """Stop if the first prompts were all missed, with a message that names what to try.

        If the model is known to find them, or found them in the baseline, the misses are findings,
        so the check goes on. It also goes on if equal ways of asking can judge without a right
        answer: if the server gives log-probabilities, or if the probe `ways` was named.
        """
        answers, schedule = self.check.answers, self.check.asker.schedule
        if self.stopped or len(answers) > _FIRST_ANSWERS or schedule.options.holds:
            return
        replies = [reply for reply in answers.by_key.values() if reply.measured]
        prompts = {reply.ask.prompt for reply in replies}
        if len(prompts) < FIRST or any(reply.right for reply in replies):
            return
        if any(reply.right for reply in self.check.baseline_answers().by_key.values()):
            return
        gives_logprobs = (
            WAYS in schedule.probes
            and not schedule.options.quick
            and any(reply.steps for reply in replies)
        )
        if gives_logprobs or WAYS in schedule.options.probes:
            return
        self.missed = self._missed_message(replies)
        self.stopped = self.missed

    def _missed_message(self, replies: Sequence[Reply]) -> str:
        last_reply = replies[-1]
        last_ask = last_reply.ask
        question = self._trials_as_counted([last_ask])[last_ask.key].item.question
        answer = last_reply.answer
        if len(answer) > _SHOWN:
            answer = f"{answer[: _SHOWN - 1]}…"
        options = self.check.asker.schedule.options
        flags = "--probe ways in place of --quick" if options.quick else "--probe ways"
        return (
            f"the first {len(replies)} prompts of {last_ask.length:,} tokens were all missed; to "
            f"{question!r} it said {answer!r}. {missed_advice(flags)}"
        )

    def _trials_as_counted(self, asks: Sequence[Ask]) -> dict[Key, Trial]:
        """Build the prompts of some asks, as long as the server counts them."""
        framing = framing_of(self.check.answers) or 0
        return self._prompts.call(lambda: self.check.asker.experiment(asks, framing))

    @property
    def why(self) -> str:
        """Return why not all prompts were sent, in words."""
        failures = self.failures
        if failures.refused_from and not self.stopped:
            return (
                f"the model refused prompts of {failures.refused_from:,} tokens "
                f"({failures.refusal}); give a smaller --max-length"
            )
        return self.stopped


def _without_reference(ask: Ask) -> Ask:
    """Return the ask that sends the same prompt to the server."""
    return replace(ask, way=ask.way.removeprefix(BESIDE))


def _record_key(ask: Ask) -> RecordKey:
    return ask.family, ask.length, round(ask.depth, 8), ask.repeat


def rewrite_families(folder: Families) -> None:
    """Write suite.json with the families that were started so far."""
    stored_names = families_of(folder.path).names
    names = [name for name in stored_names if (folder.path / name / RUN_FILE).exists()]
    names += [name for name in folder.names if name not in names]
    SUITE.write(folder.path, SuiteFile(suite="check", families=names))
