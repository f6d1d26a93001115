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
    rescored_record,
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
from needlemap.sync import first_error
from needlemap.trials import Trial, requests


class TrialObserver:
    """Receives the events of a run. This base class ignores them."""

    def planned(self, trials: Sequence[Trial]) -> None:
        """Show that these trials are about to be sent, in this order, each with what it shares."""

    def trial_begins(self, trial: Trial) -> None:
        """Show that a request goes out."""

    def recorded(self, record: Record) -> None:
        """Show that a trial ended; its record is already kept."""

    def show_event(self, event: str) -> None:
        """Show something else that people want to know, such as a long wait."""

    def show_standing(self, standing: str) -> None:
        """Show the state of the model's replicas, each time it is looked at."""


class RecordSink(Protocol):
    """Keeps records."""

    async def append(self, record: Record) -> None:
        """Return when the record is safe.

        It becomes so even if the caller is cancelled meanwhile.
        """
        ...


# For the score of an answer that came in time, if no judge is needed.
_SCORED_S = 2.0
# Answers of one lane that may wait for their score.
_UNSCORED = 4


@dataclass(slots=True)
class Outcome:
    """The result of a run: what was scored, what failed, and why it stopped.

    Attributes:
        scored: The trials that were scored.
        failures: The trials that failed, by kind.
        stopped: Why not all prompts were sent; None if they were.
        hopeless: Why every further request would fail; None if it might not.
        refused_from: The least length in tokens that the model refused as too long.
        refusal: That refusal in its words.
        words: The words of the first failure of each kind.
        canary: Why the run ended after its first trial.
        warnings: What the user should know of it.
        aside: Prompts that lost too many replicas, by name.
        decided: Whether it ended because its verdict is known.
    """

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
        """Combine the outcomes of two consecutive batches."""
        return Outcome(
            scored=self.scored + other.scored,
            failures=dict(Counter(self.failures) + Counter(other.failures)),
            stopped=self.stopped or other.stopped,
            hopeless=self.hopeless or other.hopeless,
            refused_from=self.refused_from or other.refused_from,
            refusal=self.refusal or other.refusal,
            words={**other.words, **self.words},
            canary=self.canary or other.canary,
            warnings=[*self.warnings, *other.warnings],
            aside=[*self.aside, *other.aside],
            decided=self.decided or other.decided,
        )

    def fail(self, failure: Unmeasured, already: int = 0) -> None:
        """Count a failure, and note if every further request would fail in the same way.

        already: the number of trials that were scored at earlier starts.
        """
        self.failures[failure.failure] = self.failures.get(failure.failure, 0) + 1
        self.words.setdefault(failure.failure, str(failure))
        count = self.failures[failure.failure]
        if is_hopeless(failure, count, answered=bool(self.scored or already)):
            self.hopeless = self.hopeless or str(failure)

    @property
    def over(self) -> bool:
        """Return True once the run must stop sending requests."""
        reasons = self.stopped, self.hopeless, self.canary, self.refused_from
        return self.decided or any(reason is not None for reason in reasons)


@dataclass
class Runner:
    """One run over a list of trials.

    Attributes:
        model: None if `answers` has all.
        already: The trials that were scored before this start.
        answers: By `asked`, records of answers that are still to be scored: their prompts are not
            sent again.
        decides: Whether a record is the last that is needed.
        pacer: The pacer of several runners that share a server's limits.
        outcome: How the run went so far.
    """

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
        settings = self.settings
        self.outcome = Outcome()
        self._maker = RecordMaker(settings, self.scorer, Prices.of(settings))
        self._decoding = decoding_of(settings)
        # What was sent and not read, by the trial's key.
        self._unread: dict[str, UnreadRecord] = {}
        at_a_time = settings.concurrency * (self.model.replicas if self.model else 1)
        self._pacer = self.pacer or pacer_of(
            settings,
            self.budget,
            at_a_time=at_a_time,
            say=self.watcher.show_event,
        )
        # Of scorers that read several prompts of an item: what came of each request and in how many
        # attempts, and the trials that wait for it by their keys, both by the request's `asked`.
        self._results: dict[str, Result] = {}
        self._open: dict[str, dict[str, Trial]] = {}
        # A judge's server has limits of its own.
        self._scoring = Pacer(left_s=self.budget.left_s) if self.scorer.asks else Pacer()

    async def run(
        self, *walks: tuple[Sequence[Trial], Lanes], most: int = 0, own_caches: bool = False
    ) -> Outcome:
        """Ask all trials of one walk after the other, as many at a time as there are lanes.

        Records are kept as they come. most: the lanes to use if a walk has fewer and others follow.
        own_caches: whether each lane has a cache of its own.

        Raises NeedlemapError if a back end or scorer does not work at all, OSError if records
        cannot be written.
        """
        for trial in chain.from_iterable(walk for walk, _ in walks):
            self._expect(trial)
        takeover = _costs if own_caches else lambda _: Halves()
        queue = LaneQueue(*walks, most=most, takeover=takeover)
        try:
            async with asyncio.TaskGroup() as group:
                for lane in range(len(queue)):
                    group.create_task(self._lane(queue, lane, group))
        except* (NeedlemapError, OSError) as errors:
            raise first_error(errors) from None
        self.outcome.stopped = self.budget.stopped
        return self.outcome

    async def _lane(self, queue: LaneQueue[Trial], lane: int, group: asyncio.TaskGroup) -> None:
        LANE.set(lane)
        scoring = asyncio.Semaphore(_UNSCORED)
        while (trial := queue.next_item(lane)) is not None and not self._stop():
            await scoring.acquire()
            result, attempts = await self._ask(trial)
            if _is_skipped(result):
                await self._keep_sent(trial, result, attempts)
                scoring.release()
                continue
            if self.scorer.passes[1:]:
                await self._take(trial, result, attempts)
                scoring.release()
                continue
            finish = group.create_task(self._finish(trial, result, attempts))
            finish.add_done_callback(lambda _: scoring.release())
            if not self.scorer.asks:
                await finish
            if self.settings.pause_s and attempts:
                await self._pause()

    async def _pause(self) -> None:
        """Wait as long as the settings want between requests, but not beyond the run's time."""
        left_s = max(0.0, self.budget.left_s())
        await asyncio.sleep(min(self.settings.pause_s, left_s))

    def sibling(self, sink: RecordSink, already: int, answers: Mapping[str, Record]) -> Runner:
        """Return a runner of other trials under the same limits, whose records go to `sink`.

        No observer hears of its trials.
        """
        return Runner(
            model=self.model,
            scorer=self.scorer,
            settings=self.settings,
            budget=self.budget,
            sink=sink,
            watcher=TrialObserver(),
            already=already,
            answers=answers,
            pacer=self._pacer,
        )

    async def run_alone(self, trial: Trial) -> Record | None:
        """Ask one trial, one request after the other, keep its record and return it.

        If a limit keeps one of its requests from being sent, return None. Raise as `run` does.
        """
        self._expect(trial)
        records: list[Record] = []
        for request in requests([trial]):
            result, attempts = await self._ask(request)
            if _is_skipped(result):
                await self._keep_sent(request, result, attempts)
                self.outcome.stopped = self.budget.stopped
                return None
            records = await self._take(request, result, attempts)

        await self._pause()
        # The last request completes this trial, and any earlier trial that still waited for it.
        # `_expect` added this one last, so its record is the last.
        return records[-1] if records else None

    def _expect(self, trial: Trial) -> None:
        """Keep a trial until the results of all its requests are known.

        A trial of one request is not kept: its result completes it.
        """
        if trial.beside:
            for part in (trial, *trial.beside):
                self._open.setdefault(part.asked, {})[trial.key] = trial

    async def _take(
        self, request: Trial, result: Answer | Unmeasured, attempts: int
    ) -> list[Record]:
        """Take the result of a request. Return the records of the trials that it completes.

        These are in the order in which the trials were expected.
        """
        if not self.scorer.passes[1:]:
            return [await self._finish(request, result, attempts)]

        self._results[request.asked] = request, result, attempts
        records = []
        for trial in list(self._open.get(request.asked, {}).values()):
            hashes = [part.asked for part in (trial, *trial.beside)]
            if not all(request_hash in self._results for request_hash in hashes):
                continue
            for request_hash in hashes:
                self._open[request_hash].pop(trial.key, None)
            results = [self._results[request_hash] for request_hash in hashes]

            # What a request took is counted once.
            for request_hash in hashes[1:]:
                self._results[request_hash] = _without_cost(*self._results[request_hash])
            others = tuple(other for other, _, _ in results[1:])
            all_attempts = sum(attempts for _, _, attempts in results)
            record = await self._finish(
                replace(trial, beside=others), _joint_result(results), attempts=all_attempts
            )
            records.append(record)
        return records

    def _stop(self) -> bool:
        """Return True if no further trial may be sent.

        A limit in dollars or tokens does not stop the run: a smaller request may still fit.
        """
        return self.budget.over or self.outcome.hopeless is not None or self.outcome.decided

    async def _ask(self, trial: Trial) -> tuple[Answer | Unmeasured, int]:
        """Return the model's answer, or why there is none, and the number of requests sent for it.

        A result that is known already is returned with its own number.
        """
        if trial.asked in self._results:
            return self._results[trial.asked][1:]
        if trial.asked in self.answers:
            record = self.answers[trial.asked]
            return answer_of(record), record.attempts

        refused_from = self.outcome.refused_from
        if refused_from is not None and trial.cell.length_tokens >= refused_from:
            reason = f"Not sent: {refused_from:,} tokens were refused."
            return Unmeasured(Failure.TOO_LONG, reason), 0

        answer_tokens = 0 if self.scorer.passes else self._decoding.most_tokens
        reserved = await self.budget.reserve(trial.prompt.asked_tokens, answer_tokens)
        if reserved is None:
            return Unmeasured(Failure.SKIPPED, f"Not sent: {self.budget.stopped}"), 0
        if trial.role == "whole":
            self.watcher.trial_begins(trial)

        decoding = replace(self._decoding, seed=crc32(trial.asked.encode()))
        given_answer = trial.item.reference.answer if self.scorer.passes else None
        attempts = Attempts(
            self.settings.retries,
            self._pacer,
            tokens=reserved.tokens,
            prompt_tokens=trial.prompt.asked_tokens,
        )
        assert self.model is not None, "without a model, each trial has an answer already"
        try:
            async with asyncio.timeout(self.budget.waits_s()):
                async for attempt in attempts:
                    with attempt, self._count_unread(trial):
                        answer = await call_model(self.model, trial.prompt, decoding, given_answer)
                        attempt.hear(answer)
            self._spend(trial, answer)
            return answer, attempts.number
        except TimeoutError:
            self.budget.look_at_the_clock()
            reason = "Cut off when the time was up: it counts as not asked."
            return Unmeasured(Failure.SKIPPED, reason), self._unread_requests(trial)
        except Unmeasured as failure:
            if failure.unreached:
                raise NeedlemapError(unreached_words(failure)) from None
            self.budget.look_at_the_clock()
            return failure, failure.attempts
        finally:
            self.budget.settle(reserved)

    def _unread_requests(self, trial: Trial) -> int:
        """Return how many requests for a trial had answers that could not be read."""
        return self._unread.get(trial.key, NONE_UNREAD).attempts

    async def _keep_sent(self, trial: Trial, skipped: Unmeasured, attempts: int) -> None:
        """Keep what a skipped trial took, since a provider may bill it.

        Only limits read such a record.
        """
        if self._unread_requests(trial):
            record, _ = self._make_record(trial, None, skipped, attempts)
            self._unread.pop(trial.key, None)
            await self.sink.append(record)

    def _spend(self, trial: Trial, answer: Answer) -> None:
        """Count what an answer took, and pass on its note."""
        if answer.note:
            self.watcher.show_event(answer.note)
        prompt_tokens = answer.prompt_tokens
        if prompt_tokens is None:
            prompt_tokens = trial.prompt.asked_tokens
        self.budget.spend(prompt_tokens, answer.cached_tokens or 0, answer.completion_tokens or 0)

    @contextmanager
    def _count_unread(self, trial: Trial) -> Iterator[None]:
        """Count a request that was sent inside and brought no answer that can be read."""
        try:
            yield
        except Unmeasured as failure:
            if failure.spent is not None:
                failure.transient &= self._add_unread(trial, failure.spent)
            raise
        except asyncio.CancelledError:
            # The request was sent.
            self._add_unread(trial, Spent())
            raise

    def _add_unread(self, trial: Trial, spent: Spent) -> bool:
        """Count a request whose answer could not be read. Return True if it may be sent again."""
        prompt_tokens = spent.prompt_tokens
        if prompt_tokens is None:
            prompt_tokens = trial.prompt.asked_tokens
        unread = UnreadRecord(
            attempts=1,
            prompt_tokens=prompt_tokens,
            answer_tokens=spent.answer_tokens,
            usd=self.budget.prices.usd(prompt_tokens, 0, spent.answer_tokens),
        )
        self._unread[trial.key] = self._unread.get(trial.key, NONE_UNREAD) + unread
        return self.budget.add_unread(unread)

    async def _finish(self, trial: Trial, result: Answer | Unmeasured, attempts: int) -> Record:
        """Score a trial's result, and keep and return its record."""
        answer: Answer | None = None
        score: Score | Unmeasured
        if isinstance(result, Answer):
            answer = result
            score = await self._score(trial, answer)
        else:
            score = result

        record, score = self._make_record(trial, answer, score, attempts)
        self._unread.pop(trial.key, None)
        self.budget.add_judge_cost(record.judge_usd)
        if trial.asked in self.answers:
            record = rescored_record(self.answers[trial.asked], record)
        if _is_skipped(score):
            # The answer is kept, and scored by the next start.
            await self.sink.append(record)
            return record
        self._count_result(record, score)
        await self.sink.append(record)
        self.watcher.recorded(record)
        self.outcome.decided |= self.decides is not None and self.decides(record)
        return record

    def _make_record(
        self, trial: Trial, answer: Answer | None, score: Score | Unmeasured, attempts: int
    ) -> tuple[Record, Score | Unmeasured]:
        """Return a trial's record, and the score or failure that it holds.

        If the score or the answer does not fit into a record, a failure takes its place.
        """
        try:
            unread = self._unread.get(trial.key, NONE_UNREAD)
            record = self._maker.make(trial, answer, score, attempts, unread)
            record.line()
        except Exception as error:
            if isinstance(score, Score):
                return self._make_record(trial, answer, failure_of(error, Failure.SCORER), attempts)
            if answer is None:
                raise
            return self._make_record(trial, None, failure_of(error, Failure.UNREADABLE), attempts)
        return record, score

    async def _score(self, trial: Trial, answer: Answer) -> Score | Unmeasured:
        least_s = 0.0 if self.scorer.asks else _SCORED_S
        text = whole_answer(trial.prompt.answer_prefix, answer.text)
        if self.scorer.asks and not answer.text.strip():
            # A start that was given is not an answer to be judged.
            text = ""
        scoring = Scoring(self.scorer, text, trial.item.reference)
        try:
            async with asyncio.timeout(self.budget.waits_s(least_s)):
                return await self._score_of(scoring, answer)
        except TimeoutError:
            self.budget.look_at_the_clock()
            failure = Unmeasured(Failure.SKIPPED, "Not scored when the time was up.")
            failure.usd = summed(scoring.paid)
            return failure

    async def _score_of(self, scoring: Scoring, answer: Answer) -> Score | Unmeasured:
        try:
            if self.scorer.passes and answer.forced is not None:
                return self.scorer.weigh(answer, scoring.reference)
            return await scoring.score(self.settings.retries, self._scoring)
        except Unmeasured as failure:
            return failure
        except Exception as error:
            return failure_of(error, Failure.SCORER)

    def _count_result(self, record: Record, score: Score | Unmeasured) -> None:
        """Count the end of a trial."""
        outcome = self.outcome
        if isinstance(score, Score):
            outcome.scored += 1
            return
        if score.failure is Failure.REPLICA:
            where = f"depth {100 * record.depth:.4g} %, repeat {record.repeat}"
            outcome.aside.append(f"{record.length_tokens:,} tokens at {where}: {score}")
        outcome.fail(score, self.already)
        if score.failure is Failure.TOO_LONG and record.answer is None and record.attempts:
            refused_from = outcome.refused_from or record.length_tokens
            outcome.refused_from = min(refused_from, record.length_tokens)
            outcome.refusal = str(score)


# A request, what came of it, and the number of attempts.
Result = tuple["Trial", "Answer | Unmeasured", int]


def _without_cost(request: Trial, result: Answer | Unmeasured, _: int) -> Result:
    """Return a request's result for further records, which cost nothing more."""
    if isinstance(result, Answer):
        result = replace(result, prompt_tokens=0, cached_tokens=0, latency_s=0.0)
    return replace(request, shared_tokens=0), result, 0


def _joint_result(results: Sequence[Result]) -> Answer | Unmeasured:
    """Return an item's answer to its whole prompt, which holds its other answers by their roles.

    If a request failed, return the first failure.
    """
    answers = dict[str, Answer]()
    for request, result, _ in results:
        if isinstance(result, Unmeasured):
            return result
        answers[request.role] = result
    return replace(answers.pop("whole"), beside=answers)


def _is_skipped(result: Answer | Score | Unmeasured) -> TypeGuard[Unmeasured]:
    """Return True if a limit kept a request from being sent, or cut it or its scoring off."""
    return isinstance(result, Unmeasured) and result.failure is Failure.SKIPPED


def _costs(walk: Sequence[Trial]) -> Costs:
    """Return the trials' costs in prompt tokens, with ANSWER_TOKENS for the time of each answer."""
    full_costs = [trial.prompt.asked_tokens + ANSWER_TOKENS for trial in walk]
    shared = [trial.shared_tokens or 0 for trial in walk]
    return Costs([cost - saved for cost, saved in zip(full_costs, shared, strict=True)], full_costs)


def pacer_of(
    settings: Settings, budget: Budget, at_a_time: int, say: Callable[[str], None]
) -> Pacer:
    """Return the pacer of requests to one server, by the limits of settings and budget."""
    return Pacer(
        at_a_time,
        requests_per_minute=settings.requests_per_minute,
        tokens_per_minute=settings.tokens_per_minute,
        left_s=budget.left_s,
        say=say,
        wait_s=settings.wait,
    )


def decoding_of(settings: Settings) -> Decoding:
    """Return how answers are drawn, by the settings."""
    return Decoding(
        settings.max_answer_tokens,
        settings.temperature,
        settings.timeout_s,
        settings.request,
        thinking_tokens=settings.thinking_tokens,
        logprobs=settings.logprobs,
        stream=settings.stream,
    )


def failure_of(error: Exception, failure: Failure) -> Unmeasured:
    """Return a plug-in's own exception as a failure of one trial.

    If it is a NeedlemapError, raise it: that ends the run.
    """
    if isinstance(error, NeedlemapError):
        raise error
    return Unmeasured(failure, raised_by(error))
