"""The loop of a run: asks the model, scores the answers, appends the records.

Requests run concurrently and in the order given; scoring (a judge may be slow) never holds a request back.
It knows nothing of terminals and files: it tells a `Watcher` what happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from needlemap.errors import Failure, Unmeasured
from needlemap.models.base import Answer, Decoding, Model
from needlemap.money import Prices
from needlemap.runs.budget import Budget
from needlemap.runs.record import Record
from needlemap.runs.recording import RecordMaker
from needlemap.runs.retry import attempts
from needlemap.scorers.base import Score, Scorer
from needlemap.settings import Settings
from needlemap.trials import Trial

_HOPELESS = (Failure.UNAUTHORISED,)  # every further request would fail in the same way
_HOPELESS_REJECTIONS = 3  # as would requests refused as malformed, when nothing else ever came back


class Watcher(Protocol):
    """Is told what happens in a run."""

    def asked(self, trial: Trial) -> None:
        """A request goes out."""
        ...

    def recorded(self, record: Record) -> None:
        """A trial ended; its record is already kept."""
        ...


class Keeper(Protocol):
    """Keeps records; returns when a record is safe."""

    def append(self, record: Record) -> None:
        """Keep one record."""
        ...


@dataclass(slots=True)
class Outcome:
    """How a run ended. stopped: why not all trials were asked, None if they were. refused_from: the least
    length in tokens that the model refused as too long."""

    scored: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    stopped: str | None = None
    hopeless: str | None = None
    refused_from: int | None = None
    refusal: str = ""


class Runner:
    """One run over a list of trials."""

    def __init__(
        self,
        model: Model,
        scorer: Scorer,
        settings: Settings,
        budget: Budget,
        keeper: Keeper,
        watcher: Watcher,
    ) -> None:
        self._model, self._scorer, self._settings = model, scorer, settings
        self._budget, self._keeper, self._watcher = budget, keeper, watcher
        self._maker = RecordMaker(settings, scorer, Prices.of(settings))
        self._decoding = Decoding(
            settings.max_answer_tokens, settings.temperature, settings.timeout_s, settings.request
        )
        self._writing = asyncio.Lock()
        self._outcome = Outcome()

    async def run(self, trials: Sequence[Trial]) -> Outcome:
        """Ask all trials, in this order as far as concurrency allows. Records are kept as they come."""
        queue = iter(trials)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._settings.concurrency, len(trials))):
                group.create_task(self._lane(queue, group))
        return self._outcome

    async def _lane(self, queue: Iterator[Trial], group: asyncio.TaskGroup) -> None:
        scoring = asyncio.Semaphore(4)
        for trial in queue:
            if self._stop():
                return
            await scoring.acquire()
            answered = await self._ask(trial)
            task = group.create_task(self._finish(trial, *answered))
            task.add_done_callback(lambda _: scoring.release())
            if self._settings.pause_s:
                await asyncio.sleep(self._settings.pause_s)

    def _stop(self) -> bool:
        self._outcome.stopped = self._outcome.stopped or self._budget.spent
        return self._outcome.stopped is not None or self._outcome.hopeless is not None

    async def _ask(self, trial: Trial) -> tuple[Answer | Unmeasured, int]:
        """The model's answer, or why there is none, and the number of attempts."""
        refused = self._outcome.refused_from
        if refused is not None and trial.cell.length_tokens >= refused:
            return Unmeasured(Failure.TOO_LONG, f"not sent: {refused} tokens were refused"), 0
        self._watcher.asked(trial)
        try:
            return await attempts(
                lambda: self._model.answer(trial.prompt, self._decoding), self._settings.retries
            )
        except Unmeasured as failure:
            return failure, failure.attempts

    async def _finish(self, trial: Trial, answered: Answer | Unmeasured, tried: int) -> None:
        """Score, record, keep."""
        answer = answered if isinstance(answered, Answer) else None
        score = answered if isinstance(answered, Unmeasured) else await self._score(trial, answered)
        record = self._maker.make(trial, answer, score, tried)
        self._budget.add(record)
        self._note(trial, score)
        async with self._writing:
            await asyncio.to_thread(self._keeper.append, record)
        self._watcher.recorded(record)

    async def _score(self, trial: Trial, answer: Answer) -> Score | Unmeasured:
        try:
            score, _ = await attempts(
                lambda: self._scorer.score(answer.text, trial.item.reference), self._settings.retries
            )
        except Unmeasured as failure:
            return failure
        return score

    def _note(self, trial: Trial, score: Score | Unmeasured) -> None:
        """What a trial's end says about the run."""
        outcome = self._outcome
        if isinstance(score, Score):
            outcome.scored += 1
            return
        failures = outcome.failures
        failures[score.failure] = failures.get(score.failure, 0) + 1
        rejected = score.failure is Failure.REJECTED and failures[score.failure] >= _HOPELESS_REJECTIONS
        if score.failure in _HOPELESS or (rejected and not outcome.scored):
            outcome.hopeless = outcome.hopeless or str(score)
        if score.failure is Failure.TOO_LONG and score.attempts and not str(score).startswith("not sent"):
            outcome.refused_from = min(
                outcome.refused_from or trial.cell.length_tokens, trial.cell.length_tokens
            )
            outcome.refusal = str(score)
