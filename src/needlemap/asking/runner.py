"""The loop of a run: asks the model, scores the answers, appends the records.

Requests run concurrently, in lanes. A lane asks on when its last answer is on the disk, so
that a crash loses what is in flight and no more. A judge, which may be slow, works beside the
lanes: up to `_UNSCORED` answers of each may wait for it. The loop knows nothing of terminals
and files: it tells a `TrialObserver` what happens, and a `RecordSink` keeps the records.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Protocol, TypeGuard
from zlib import crc32

from needlemap.asking.budget import Budget
from needlemap.asking.failures import is_hopeless
from needlemap.asking.pacer import Pacer
from needlemap.asking.recording import (
    NONE_UNREAD,
    RecordMaker,
    answer_of,
    scored_anew,
    whole_answer,
)
from needlemap.asking.retry import Attempts, Scoring
from needlemap.errors import Failure, NeedlemapError, Spent, Unmeasured
from needlemap.http.faults import unreached_words
from needlemap.models import LANE, Answer, Decoding, Model
from needlemap.models.call import call_model
from needlemap.plan import Costs, Halves, LaneQueue, Lanes
from needlemap.plan.lanes import ANSWER_TOKENS
from needlemap.records.record import Record, UnreadRecord
from needlemap.scorers import Score, Scorer
from needlemap.secrets import raised_by
from needlemap.settings import Settings
from needlemap.settings.prices import Prices, summed
from needlemap.sync import first_of
from needlemap.trials import Trial, requests


class TrialObserver:
    """Receives the events of a run. This base class ignores them."""

    def planned(self, trials: Sequence[Trial]) -> None:
        """These trials are about to be sent, in this order, each with what it shares."""

    def trial_begins(self, trial: Trial) -> None:
        """A request goes out."""

    def recorded(self, record: Record) -> None:
        """A trial ended; its record is already kept."""

    def show_event(self, event: str) -> None:
        """Something else that people want to know, such as a long wait."""

    def show_standing(self, standing: str) -> None:
        """How the model's replicas stand, each time it is looked at."""


class RecordSink(Protocol):
    """Keeps records."""

    async def append(self, record: Record) -> None:
        """Return when the record is safe; it becomes so even if the caller is cancelled
        meanwhile."""
        ...


_SCORED_S = 2.0  # for the score of an answer that came in time, where no judge is asked
_UNSCORED = 4  # answers of one lane that may wait for their score


@dataclass(slots=True)
class Outcome:
    """How a run ended. stopped: why not all trials were asked, None if they were.
    refused_from: the least length in tokens that the model refused as too long. words: of each
    kind of failure the first one's. canary: why
    the run ended after its first trial. warnings: what the user should know of it. aside:
    prompts that lost too many replicas, by name. decided: whether it ended because its verdict
    is known."""

    scored: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    stopped: str | None = None
    hopeless: str | None = None
    refused_from: int | None = None
    refusal: str = ""
    words: dict[str, str] = field(default_factory=dict)
    canary: str | None = None
    warnings: list[str] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)
    decided: bool = False

    def __add__(self, other: Outcome) -> Outcome:
        """Both, one behind the other."""
        first = ("stopped", "hopeless", "refused_from", "refusal", "canary", "decided")
        return Outcome(
            scored=self.scored + other.scored,
            failures=dict(Counter(self.failures) + Counter(other.failures)),
            warnings=[*self.warnings, *other.warnings],
            aside=[*self.aside, *other.aside],
            words={**other.words, **self.words},
            **{name: getattr(self, name) or getattr(other, name) for name in first},
        )

    def fail(self, failure: Unmeasured, already: int = 0) -> None:
        """Count what was not measured, and see whether every further request would fail so.
        already: how many were scored before."""
        self.failures[failure.failure] = self.failures.get(failure.failure, 0) + 1
        self.words.setdefault(failure.failure, str(failure))
        count, answered = self.failures[failure.failure], bool(self.scored or already)
        if is_hopeless(failure, count, answered=answered):
            self.hopeless = self.hopeless or str(failure)

    @property
    def over(self) -> bool:
        """Whether to ask nothing more."""
        ends = self.stopped, self.hopeless, self.canary, self.refused_from
        return self.decided or any(each is not None for each in ends)


@dataclass
class Runner:
    """One run over a list of trials. model: None where `answers` has all. already: trials that
    were scored before this start. answers: by `asked`, records of answers that are still to be
    scored: their trials are not asked again. decides: whether nothing more need be asked after
    a record. outcome: how it went so far. pacer: of several runners that share a server's
    limits."""

    model: Model | None
    scorer: Scorer
    settings: Settings
    budget: Budget
    sink: RecordSink
    watcher: TrialObserver
    already: int = 0
    answers: Mapping[str, Record] = field(default_factory=dict)
    decides: Callable[[Record], bool] | None = None
    pacer: Pacer | None = None

    def __post_init__(self) -> None:
        model, scorer, settings, budget = self.model, self.scorer, self.settings, self.budget
        self._maker = RecordMaker(settings, scorer, Prices.of(settings))
        self._decoding = decoding_of(settings)
        self.outcome = Outcome()
        self._unread = dict[str, UnreadRecord]()  # what was sent and not read, by the trial's key
        at_a_time = settings.concurrency * (model.replicas if model else 1)
        self._pacer = self.pacer or pacer_of(settings, budget, at_a_time, self.watcher.show_event)
        # Of scorers that read several prompts of an item: what came of each request and in how many
        # attempts, and the trials that wait for it by their keys, both by the request's `asked`.
        self._given = dict[str, Given]()
        self._open = dict[str, dict[str, Trial]]()
        # A judge's server has limits of its own.
        self._scoring = Pacer(left_s=budget.left_s) if scorer.asks else Pacer()

    async def run(
        self, *walks: tuple[Sequence[Trial], Lanes], most: int = 0, own_caches: bool = False
    ) -> Outcome:
        """Ask all trials of one walk after the other, as many at a time as there are lanes;
        `most` where a walk has fewer and others follow. Records are kept as they come.
        own_caches: whether each lane has a cache of its own.

        Raises NeedlemapError when a back end or scorer turns out not to work at all, OSError
        when records cannot be written.
        """
        for trial in chain.from_iterable(walk for walk, _ in walks):
            self._expect(trial)
        queue = LaneQueue(*walks, most=most, takeover=_costs if own_caches else lambda _: Halves())
        try:
            async with asyncio.TaskGroup() as group:
                for lane in range(len(queue)):
                    group.create_task(self._lane(queue, lane, group))
        except* (NeedlemapError, OSError) as errors:
            raise first_of(errors) from None
        self.outcome.stopped = self.budget.stopped
        return self.outcome

    async def _lane(self, queue: LaneQueue[Trial], lane: int, group: asyncio.TaskGroup) -> None:
        LANE.set(lane)
        scoring = asyncio.Semaphore(_UNSCORED)
        while (trial := queue.next(lane)) is not None and not self._stop():
            await scoring.acquire()
            answered, tried = await self._ask(trial)
            if _is_skipped(answered):
                await self._keep_sent(trial, answered, tried)
                scoring.release()
                continue
            if self.scorer.passes[1:]:
                await self._take(trial, answered, tried)
                scoring.release()
                continue
            finish = group.create_task(self._finish(trial, answered, tried))
            finish.add_done_callback(lambda _: scoring.release())
            if not self.scorer.asks:
                await finish
            if self.settings.pause_s and tried:
                await asyncio.sleep(min(self.settings.pause_s, max(0.0, self.budget.left_s())))

    def beside(self, sink: RecordSink, already: int, answers: Mapping[str, Record]) -> Runner:
        """One that asks other trials under the same limits, and keeps them elsewhere; nothing
        watches it."""
        shared = self.model, self.scorer, self.settings, self.budget
        return Runner(*shared, sink, TrialObserver(), already, answers, pacer=self._pacer)

    async def first(self, trial: Trial) -> Record | None:
        """Ask one trial before all others, and keep its record; None when a limit lets nothing
        be asked.

        Raises as `run` does.
        """
        self._expect(trial)
        record = None
        for request in requests([trial]):
            answered, tried = await self._ask(request)
            if _is_skipped(answered):
                await self._keep_sent(request, answered, tried)
                self.outcome.stopped = self.budget.stopped
                return None
            records = await self._take(request, answered, tried)
            record = records[-1] if records else None
        await asyncio.sleep(min(self.settings.pause_s, max(0.0, self.budget.left_s())))
        return record

    def _expect(self, trial: Trial) -> None:
        """Keep a trial until all that its scorer reads of it is known."""
        if trial.beside:
            for each in (trial, *trial.beside):
                self._open.setdefault(each.asked, {})[trial.key] = trial

    async def _take(
        self, request: Trial, answered: Answer | Unmeasured, tried: int
    ) -> list[Record]:
        """Take up what came of a request; the records of the trials of which it was the last."""
        if not self.scorer.passes[1:]:
            return [await self._finish(request, answered, tried)]
        self._given[request.asked] = request, answered, tried
        records = []
        for trial in list(self._open.get(request.asked, {}).values()):
            parts = [each.asked for each in (trial, *trial.beside)]
            if not all(asked in self._given for asked in parts):
                continue
            for asked in parts:
                self._open[asked].pop(trial.key, None)
            found = [self._given[asked] for asked in parts]
            for asked in parts[1:]:  # what it took is counted once
                self._given[asked] = _counted(*self._given[asked])
            whole = replace(trial, beside=tuple(each[0] for each in found[1:]))
            records.append(
                await self._finish(whole, _joined(found), sum(each[2] for each in found))
            )
        return records

    def _stop(self) -> bool:
        """Whether to ask nothing more. A limit in dollars or tokens lets pass what still
        fits."""
        return self.budget.over or self.outcome.hopeless is not None or self.outcome.decided

    async def _ask(self, trial: Trial) -> tuple[Answer | Unmeasured, int]:
        """The model's answer, or why there is none, and the number of attempts (0: not
        sent)."""
        if trial.asked in self._given:
            return self._given[trial.asked][1:]
        if trial.asked in self.answers:
            record = self.answers[trial.asked]
            return answer_of(record), record.attempts
        refused = self.outcome.refused_from
        if refused is not None and trial.cell.length_tokens >= refused:
            return Unmeasured(Failure.TOO_LONG, f"Not sent: {refused:,} tokens were refused."), 0
        answer_tokens = 0 if self.scorer.passes else self._decoding.most_tokens
        reserved = await self.budget.reserve(trial.prompt.asked_tokens, answer_tokens)
        if reserved is None:
            return Unmeasured(Failure.SKIPPED, f"Not sent: {self.budget.stopped}"), 0
        if trial.role == "whole":
            self.watcher.trial_begins(trial)
        decoding = replace(self._decoding, seed=crc32(trial.asked.encode()))
        given = trial.item.reference.answer if self.scorer.passes else None
        prompt_tokens = trial.prompt.asked_tokens
        attempts = Attempts(self.settings.retries, self._pacer, reserved.tokens, prompt_tokens)
        assert self.model is not None  # without one, each trial has an answer already
        try:
            async with asyncio.timeout(self.budget.waits_s()):
                async for attempt in attempts:
                    with attempt, self._counting_lost(trial):
                        answer = await call_model(self.model, trial.prompt, decoding, given)
                        attempt.hear(answer)
            self._spend(trial, answer)
            return answer, attempts.number
        except TimeoutError:
            self.budget.look_at_the_clock()
            said = "Cut off when the time was up: it counts as not asked."
            return Unmeasured(Failure.SKIPPED, said), self._sent(trial)
        except Unmeasured as failure:
            if failure.unreached:
                raise NeedlemapError(unreached_words(failure)) from None
            self.budget.look_at_the_clock()
            return failure, failure.attempts
        finally:
            self.budget.settle(reserved)

    def _sent(self, trial: Trial) -> int:
        """Requests for a trial whose answers could not be read."""
        return self._unread.get(trial.key, NONE_UNREAD).attempts

    async def _keep_sent(self, trial: Trial, skipped: Unmeasured, tried: int) -> None:
        """Keep what a trial took that counts as not asked: a provider may bill it. Only limits
        read such a record."""
        if self._sent(trial):
            record, _ = self._record(trial, None, skipped, tried)
            self._unread.pop(trial.key, None)
            await self.sink.append(record)

    def _spend(self, trial: Trial, answer: Answer) -> None:
        """Count what an answer took, and pass on its note."""
        if answer.note:
            self.watcher.show_event(answer.note)
        counted = answer.prompt_tokens
        prompt_tokens = trial.prompt.asked_tokens if counted is None else counted
        self.budget.spend(prompt_tokens, answer.cached_tokens or 0, answer.completion_tokens or 0)

    @contextmanager
    def _counting_lost(self, trial: Trial) -> Iterator[None]:
        """Inside, a request that was sent and brought no answer that can be read is
        counted."""
        try:
            yield
        except Unmeasured as failure:
            if failure.spent is not None:
                failure.transient &= self._lose(trial, failure.spent)
            raise
        except asyncio.CancelledError:  # it was sent
            self._lose(trial, Spent())
            raise

    def _lose(self, trial: Trial, spent: Spent) -> bool:
        """Count a request whose answer could not be read; whether it may be sent again."""
        sent = trial.prompt.asked_tokens if spent.prompt_tokens is None else spent.prompt_tokens
        lost = UnreadRecord(
            attempts=1,
            prompt_tokens=sent,
            answer_tokens=spent.answer_tokens,
            usd=self.budget.prices.usd(sent, 0, spent.answer_tokens),
        )
        self._unread[trial.key] = self._unread.get(trial.key, NONE_UNREAD) + lost
        return self.budget.lost(lost)

    async def _finish(self, trial: Trial, answered: Answer | Unmeasured, tried: int) -> Record:
        """Score, record, keep."""
        answer = answered if isinstance(answered, Answer) else None
        score = answered if isinstance(answered, Unmeasured) else await self._score(trial, answered)
        record, score = self._record(trial, answer, score, tried)
        self._unread.pop(trial.key, None)
        self.budget.judged(record.judge_usd)
        if trial.asked in self.answers:
            record = scored_anew(self.answers[trial.asked], record)
        if _is_skipped(score):  # its answer is kept, and scored by the next start
            await self.sink.append(record)
            return record
        self._note(record, score)
        await self.sink.append(record)
        self.watcher.recorded(record)
        self.outcome.decided |= self.decides is not None and self.decides(record)
        return record

    def _record(
        self, trial: Trial, answer: Answer | None, score: Score | Unmeasured, tried: int
    ) -> tuple[Record, Score | Unmeasured]:
        """The trial's record and what came of it: a score or an answer that fits into none is
        its failure."""
        try:
            unread = self._unread.get(trial.key, NONE_UNREAD)
            record = self._maker.make(trial, answer, score, tried, unread)
            record.line()
        except Exception as error:
            if isinstance(score, Score):
                return self._record(trial, answer, raised(error, Failure.SCORER), tried)
            if answer is None:
                raise
            return self._record(trial, None, raised(error, Failure.UNREADABLE), tried)
        return record, score

    async def _score(self, trial: Trial, answer: Answer) -> Score | Unmeasured:
        least_s = 0.0 if self.scorer.asks else _SCORED_S
        said = whole_answer(trial.prompt.answer_prefix, answer.text)
        if self.scorer.asks and not answer.text.strip():
            said = ""  # a beginning that was given is no answer to be judged
        scoring = Scoring(self.scorer, said, trial.item.reference)
        try:
            async with asyncio.timeout(self.budget.waits_s(least_s)):
                return await self._scored(scoring, answer)
        except TimeoutError:
            self.budget.look_at_the_clock()
            late = Unmeasured(Failure.SKIPPED, "Not scored when the time was up.")
            late.usd = summed(scoring.paid)
            return late

    async def _scored(self, scoring: Scoring, answer: Answer) -> Score | Unmeasured:
        try:
            if self.scorer.passes and answer.forced is not None:
                return self.scorer.weigh(answer, scoring.reference)
            return await scoring.score(self.settings.retries, self._scoring)
        except Unmeasured as failure:
            return failure
        except Exception as error:
            return raised(error, Failure.SCORER)

    def _note(self, record: Record, score: Score | Unmeasured) -> None:
        """What a trial's end says about the run."""
        outcome = self.outcome
        if isinstance(score, Score):
            outcome.scored += 1
            return
        if score.failure is Failure.REPLICA:
            where = f"depth {100 * record.depth:.4g} %, repeat {record.repeat}"
            outcome.aside.append(f"{record.length_tokens:,} tokens at {where}: {score}")
        outcome.fail(score, self.already)
        if score.failure is Failure.TOO_LONG and record.answer is None and record.attempts:
            outcome.refused_from = min(
                outcome.refused_from or record.length_tokens, record.length_tokens
            )
            outcome.refusal = str(score)


Given = tuple["Trial", "Answer | Unmeasured", int]  # a request, what came of it, attempts


def _counted(request: Trial, answered: Answer | Unmeasured, _: int) -> Given:
    """A request's outcome as further records have it, for which nothing was asked."""
    if isinstance(answered, Answer):
        answered = replace(answered, prompt_tokens=0, cached_tokens=0, latency_s=0.0)
    return replace(request, shared_tokens=0), answered, 0


def _joined(found: Sequence[Given]) -> Answer | Unmeasured:
    """An item's answer behind its whole prompt, with those behind its others, by their roles; the
    first failure among them, if there is one."""
    answers = dict[str, Answer]()
    for request, answered, _ in found:
        if isinstance(answered, Unmeasured):
            return answered
        answers[request.role] = answered
    return replace(answers.pop("whole"), beside=answers)


def _is_skipped(answered: Answer | Score | Unmeasured) -> TypeGuard[Unmeasured]:
    """Whether a limit left it out, or cut it off."""
    return isinstance(answered, Unmeasured) and answered.failure is Failure.SKIPPED


def _costs(walk: Sequence[Trial]) -> Costs:
    """What the trials take in tokens of a prompt, their answers' time among it."""
    anew = [trial.prompt.asked_tokens + ANSWER_TOKENS for trial in walk]
    shared = [trial.shared_tokens or 0 for trial in walk]
    return Costs([cost - held for cost, held in zip(anew, shared, strict=True)], anew)


def pacer_of(
    settings: Settings, budget: Budget, at_a_time: int, say: Callable[[str], None]
) -> Pacer:
    """When requests to one server may go out, by its limits and the run's."""
    return Pacer(
        at_a_time,
        requests_per_minute=settings.requests_per_minute,
        tokens_per_minute=settings.tokens_per_minute,
        left_s=budget.left_s,
        say=say,
        wait_s=settings.wait,
    )


def decoding_of(settings: Settings) -> Decoding:
    """How answers are drawn, by the settings."""
    return Decoding(
        settings.max_answer_tokens,
        settings.temperature,
        settings.timeout_s,
        settings.request,
        thinking_tokens=settings.thinking_tokens,
        logprobs=settings.logprobs,
        stream=settings.stream,
    )


def raised(error: Exception, failure: Failure) -> Unmeasured:
    """A plug-in's own exception as a failure of one trial. Raises NeedlemapError, which ends
    the run."""
    if isinstance(error, NeedlemapError):
        raise error
    return Unmeasured(failure, raised_by(error))
