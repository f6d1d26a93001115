"""Asking again after a passing failure: exponential backoff with jitter, or as long as the
server asks.

A rate limit is no failure: it is waited for (see `pacer.py`), and counts as no retry. One
answer's score is asked for again in the same way; what these requests cost counts too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from random import uniform
from time import monotonic
from unicodedata import normalize

from needlemap.allowance import Allowance
from needlemap.asking.pacer import LONGEST_WAIT_S, Pacer, Ticket
from needlemap.errors import Failure, Unmeasured
from needlemap.models import Answer
from needlemap.scorers import Score, Scorer
from needlemap.settings.prices import summed
from needlemap.tasks import Reference

_LONGEST_BACKOFF_S = 60.0
# Failures of a request up to which a server's figure is taken, however short the wait.
_TRUSTED = 2
# A server may be back any moment.
_LONGEST_OUTAGE_BACKOFF_S = 15.0


class Attempts:
    """The attempts at one request: the next comes once a passing failure was waited for.

        async for attempt in Attempts(retries, pacer):
            with attempt:
                answer = await ...
                attempt.hear(answer)

    It ends with the first that raises nothing. Raises the last Unmeasured, with `attempts`
    noted on it, or one that says SKIPPED where the run's time is up before the next attempt.

    A server that is not there (`Unmeasured.outage`) may get more retries: see
    `Pacer.waits_out`. One that was never there gets none, unless it is waited for: see
    `Pacer.awaits`. pacer: says when to send, default at once. tokens: what the request may
    take of a limit. prompt_tokens: what it takes at least. verdicts: how many are asked for until
    one can be read. number: of the attempt, from 1 on.
    """

    def __init__(
        self,
        retries: int,
        pacer: Pacer | None = None,
        tokens: float = 0.0,
        prompt_tokens: float = 0.0,
        *,
        verdicts: int = 1,
    ) -> None:
        self.number = 0
        self._retries = retries
        self._pacer = pacer or Pacer()
        self._tokens = tokens
        self._prompt_tokens = prompt_tokens
        self._verdicts = verdicts
        self._failed = 0
        self._failed_s = inf
        self._ticket: Ticket | None = None
        self._answer: Answer | None = None
        self._failure: Unmeasured | None = None

    def __aiter__(self) -> Attempts:
        return self

    async def __anext__(self) -> Attempts:
        """Return the next attempt, once it may go out."""
        if self._failure is not None:
            await self._wait_for_retry(self._failure)
        elif self.number:
            raise StopAsyncIteration
        try:
            self._ticket = await self._pacer.admit(self._tokens)
        except Unmeasured as failure:
            # A server's limit has no room for too long.
            failure.attempts = self.number
            raise
        if self._ticket is None:
            raise _skipped_failure(self._failure)
        self.number += 1
        self._answer = self._failure = None
        return self

    def hear(self, answer: Answer) -> None:
        """Take what an answer reports of a server's limits."""
        self._answer = answer

    def __enter__(self) -> None:
        """Start the request."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Tell the pacer how the request ended.

        It hears of a passing rate limit before the next attempt.
        """
        if error is None:
            assert self._ticket is not None, "the request was admitted"
            allowance, tokens = _reported_use(self._answer)
            self._pacer.answered(self._ticket, allowance, tokens)
            return False
        if not isinstance(error, Unmeasured):
            self._pacer.ended()
            return False
        error.attempts = self.number
        self._failure = error
        if error.failure is not Failure.RATE_LIMITED or not _is_passing(error):
            self._pacer.ended()
        return True

    async def _wait_for_retry(self, failure: Unmeasured) -> None:
        """Wait until a retry is worth it. Raises Unmeasured if it is not."""
        if failure.failure is Failure.JUDGE and self._verdicts > 1:
            self._verdicts -= 1
            return
        if failure.failure is Failure.RATE_LIMITED or failure.unreached:
            if await self._is_waited_for(failure):
                return
            raise _skipped_failure(failure) if self._pacer.is_over else failure

        self._failed += 1
        is_retried = self._failed <= self._retries
        if not is_retried and self._retries > 0:
            is_retried = self._pacer.waits_out(failure, self._failed_s)
        if not is_retried or not _is_passing(failure):
            raise failure
        self._failed_s = monotonic()
        wait_s = _wait_s(failure, self._failed)
        self._pacer.failed(failure, wait_s)
        if not await self._pacer.rest(wait_s):
            raise _skipped_failure(failure)

    async def _is_waited_for(self, failure: Unmeasured) -> bool:
        """Return True to retry after a rate limit, or after a server that was never there.

        Both concern all requests. So if the wait is given up, all further requests are hopeless.
        """
        if not _is_passing(failure):
            return False
        if self._is_above_limit(failure):
            failure.transient = False
            self._pacer.ended()
            return False
        assert self._ticket is not None, "the request was sent"
        if failure.unreached:
            is_retried = await self._pacer.awaits(failure)
        else:
            is_retried = self._pacer.refused(self._ticket, failure)
        failure.hopeless = not is_retried
        return is_retried

    def _is_above_limit(self, failure: Unmeasured) -> bool:
        """Return True if a prompt is larger than all that the server takes in a minute.

        Its words or its headers tell. Such a prompt never passes.
        """
        limit = failure.limit_tokens
        if limit is None and failure.allowance is not None and failure.allowance.tokens is not None:
            limit = failure.allowance.tokens.limit
        if limit is None or failure.failure is not Failure.RATE_LIMITED:
            return False
        return self._prompt_tokens > limit


def _reported_use(answer: Answer | None) -> tuple[Allowance | None, int | None]:
    """Return what a server still allows after an answer, and the tokens that it counted.

    Each is None if the server did not report it.
    """
    if answer is None:
        return None, None
    if answer.prompt_tokens is None:
        return answer.allowance, None
    return answer.allowance, answer.prompt_tokens + (answer.completion_tokens or 0)


def _skipped_failure(failure: Unmeasured | None) -> Unmeasured:
    """Return the failure of a request that had no answer when the run's time was up.

    failure: of its last attempt; None if there was none.
    """
    reason = "not sent" if failure is None else str(failure)
    failure_at_end = Unmeasured(Failure.SKIPPED, f"The time was up before an answer: {reason}")
    failure_at_end.attempts = 0 if failure is None else failure.attempts
    return failure_at_end


def _is_passing(failure: Unmeasured) -> bool:
    return failure.transient and (failure.retry_after_s or 0.0) <= LONGEST_WAIT_S


def _wait_s(failure: Unmeasured, attempt: int) -> float:
    """Return the seconds to wait: the server's figure, or up to 1, 2, 4, ... 60 at random.

    "Full jitter"; up to 15 for a server that is not there.

    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    longest_s = _LONGEST_OUTAGE_BACKOFF_S if failure.outage else _LONGEST_BACKOFF_S
    backoff_s = uniform(0.0, min(longest_s, 2.0 ** min(attempt - 1, 6)))
    if failure.retry_after_s is None:
        return backoff_s
    return failure.retry_after_s if attempt <= _TRUSTED else max(backoff_s, failure.retry_after_s)


# Characters of an answer that are scored: the first and the last half of them.
LONGEST = 40_000
# Characters that a judge reads.
JUDGED = 200_000
# So many times the length of the right answer is scored in any case.
_TIMES_REFERENCE = 3


@dataclass(slots=True)
class Scoring:
    """One answer to be scored.

    Attributes:
        scorer: scores it.
        text: the answer; of one that never ended its start and its end.
        reference: the right answer.
        paid: US dollars of attempts that brought no score; None for an unknown price.
    """

    scorer: Scorer
    text: str
    reference: Reference
    paid: list[float | None] = field(default_factory=list)

    async def score(self, retries: int, pacer: Pacer | None = None) -> Score:
        """Return the score, with the cost of all attempts.

        If the scorer sends requests, the score's reasons count the attempts. If the last attempt
        fails, its Unmeasured is raised, with the cost and the number of all attempts.
        """
        most_characters = JUDGED if self.scorer.asks else LONGEST
        # A right answer must fit, however long it is.
        most_characters = max(most_characters, _TIMES_REFERENCE * len(self.reference.answer))
        answer = bounded(self.text, most_characters)

        attempts = Attempts(retries, pacer, verdicts=self.scorer.attempts)
        try:
            async for attempt in attempts:
                with attempt, self._add_cost():
                    score = await self.scorer.score(answer, self.reference)
        except Unmeasured as failure:
            failure.usd = summed(self.paid)
            if failure.failure is Failure.JUDGE and attempts.number > 1:
                failure.args = (f"Asked {attempts.number} times. {failure}",)
            raise

        # A scorer that sent no request replaces the number of attempts by its own.
        reasons = {"attempts": attempts.number, **score.why} if self.scorer.asks else score.why
        return replace(score, why=reasons, usd=summed([*self.paid, score.usd]))

    @contextmanager
    def _add_cost(self) -> Iterator[None]:
        """Count what a failure inside cost, or what a verdict that is cut off may cost."""
        try:
            yield
        except Unmeasured as failure:
            self.paid.append(failure.usd)
            raise
        except asyncio.CancelledError:
            # No vocabulary has more tokens than bytes.
            most_tokens = len(self.text.encode("utf-8", "replace"))
            self.paid.append(self.scorer.most_usd(self.reference, most_tokens))
            raise


def bounded(answer: str, most_characters: int = LONGEST) -> str:
    """Return an answer of bearable length, also as scorers compare it.

    One letter may stand for eighteen.

    >>> len(bounded("x" * 1_000_000)) <= LONGEST, bounded("short")
    (True, 'short')
    """
    answer = _ends(answer, most_characters)
    room_characters = most_characters
    while not answer.isascii() and len(normalize("NFKC", answer)) > most_characters:
        room_characters //= 2
        answer = _ends(answer, room_characters)
    return answer


def _ends(text: str, most_characters: int) -> str:
    """Return a text, or the two ends of a longer one."""
    if len(text) <= most_characters:
        return text
    half = most_characters // 2
    return f"{text[: half - 1]}\n{text[-half:]}"
