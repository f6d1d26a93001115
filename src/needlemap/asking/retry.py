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
_TRUSTED = 2  # failures of a request after which a server's word is taken, however short the wait
_LONGEST_OUTAGE_BACKOFF_S = 15.0  # a server may be back any moment


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
        self._retries, self._pacer, self._tokens = retries, pacer or Pacer(), tokens
        self._prompt_tokens, self._verdicts = prompt_tokens, verdicts
        self.number, self._failed, self._failed_s = 0, 0, inf
        self._ticket: Ticket | None = None
        self._answer: Answer | None = None
        self._failure: Unmeasured | None = None

    def __aiter__(self) -> Attempts:
        return self

    async def __anext__(self) -> Attempts:
        """The next attempt, when it may go out."""
        if self._failure is not None:
            await self._rest(self._failure)
        elif self.number:
            raise StopAsyncIteration
        try:
            self._ticket = await self._pacer.admit(self._tokens)
        except Unmeasured as failure:  # a server's limit has no room for too long
            failure.attempts = self.number
            raise
        if self._ticket is None:
            raise _skipped(self._failure)
        self.number += 1
        self._answer = self._failure = None
        return self

    def hear(self, answer: Answer) -> None:
        """Take what an answer says of a server's limits."""
        self._answer = answer

    def __enter__(self) -> None:
        """The request goes out."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Tell the pacer how it ended; it hears of a passing rate limit before the next
        attempt."""
        if error is None:
            assert self._ticket is not None  # it was admitted
            self._pacer.answered(self._ticket, *_used(self._answer))
            return False
        if not isinstance(error, Unmeasured):
            self._pacer.ended()
            return False
        error.attempts, self._failure = self.number, error
        if error.failure is not Failure.RATE_LIMITED or not _passing(error):
            self._pacer.ended()
        return True

    async def _rest(self, failure: Unmeasured) -> None:
        """Wait until it is worth asking again. Raises Unmeasured where it is not."""
        if failure.failure is Failure.JUDGE and self._verdicts > 1:
            self._verdicts -= 1
            return
        if failure.failure is Failure.RATE_LIMITED or failure.unreached:
            if await self._is_waited_for(failure):
                return
            raise _skipped(failure) if self._pacer.is_over else failure
        self._failed += 1
        waited_out = self._failed > self._retries > 0 and self._pacer.waits_out(
            failure, self._failed_s
        )
        if not _passing(failure) or not (self._failed <= self._retries or waited_out):
            raise failure
        self._failed_s = monotonic()
        wait_s = _wait_s(failure, self._failed)
        self._pacer.failed(failure, wait_s)
        if not await self._pacer.rest(wait_s):
            raise _skipped(failure)

    async def _is_waited_for(self, failure: Unmeasured) -> bool:
        """Whether to ask again after a rate limit, or a server that was never there: no
        failures of this request, so that without it all are hopeless."""
        if not _passing(failure):
            return False
        if self._is_above_limit(failure):
            failure.transient = False
            self._pacer.ended()
            return False
        assert self._ticket is not None  # it was sent
        rests = (
            await self._pacer.awaits(failure)
            if failure.unreached
            else self._pacer.refused(self._ticket, failure)
        )
        failure.hopeless = not rests
        return rests

    def _is_above_limit(self, failure: Unmeasured) -> bool:
        """Whether a prompt is larger than all that the server takes in a minute, by its words or
        its headers, so that it never passes."""
        limit = failure.limit_tokens
        if limit is None and failure.allowance is not None and failure.allowance.tokens is not None:
            limit = failure.allowance.tokens.limit
        if limit is None or failure.failure is not Failure.RATE_LIMITED:
            return False
        return self._prompt_tokens > limit


def _used(answer: Answer | None) -> tuple[Allowance | None, int | None]:
    """What a server still takes by an answer, and the tokens that it counted for it."""
    if answer is None:
        return None, None
    if answer.prompt_tokens is None:
        return answer.allowance, None
    return answer.allowance, answer.prompt_tokens + (answer.completion_tokens or 0)


def _skipped(last: Unmeasured | None) -> Unmeasured:
    """That the run's time was up before there was an answer. last: what came instead of
    one."""
    words = "not sent" if last is None else str(last)
    skipped = Unmeasured(Failure.SKIPPED, f"The time was up before an answer: {words}")
    skipped.attempts = 0 if last is None else last.attempts
    return skipped


def _passing(failure: Unmeasured) -> bool:
    return failure.transient and (failure.retry_after_s or 0.0) <= LONGEST_WAIT_S


def _wait_s(failure: Unmeasured, attempt: int) -> float:
    """As long as the server asks for, else anything up to 1, 2, 4, ... 60 seconds ("full
    jitter"), up to 15 for one that is not there.

    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    longest_s = _LONGEST_OUTAGE_BACKOFF_S if failure.outage else _LONGEST_BACKOFF_S
    own_s = uniform(0.0, min(longest_s, 2.0 ** min(attempt - 1, 6)))
    if failure.retry_after_s is None:
        return own_s
    return failure.retry_after_s if attempt <= _TRUSTED else max(own_s, failure.retry_after_s)


LONGEST = 40_000  # characters of an answer that are scored: the first and the last half of them
JUDGED = 200_000  # that a judge reads
_MUCH = 3  # times the right answer are scored in any case


@dataclass(slots=True)
class Scoring:
    """One answer to be scored; of one that never ended its beginning and its end.

    paid: US dollars of attempts that brought no score; None for an unknown price.
    """

    scorer: Scorer
    said: str
    reference: Reference
    paid: list[float | None] = field(default_factory=list)

    async def score(self, retries: int, pacer: Pacer | None = None) -> Score:
        """The score, with what all attempts cost; of a scorer that asks, why counts them.
        Raises the last Unmeasured, which says so too."""
        most = JUDGED if self.scorer.asks else LONGEST
        said = bounded(self.said, max(most, _MUCH * len(self.reference.answer)))
        attempts = Attempts(retries, pacer, verdicts=self.scorer.attempts)
        try:
            async for attempt in attempts:
                with attempt, self._counting_paid():
                    score = await self.scorer.score(said, self.reference)
        except Unmeasured as failure:
            failure.usd = summed(self.paid)
            if failure.failure is Failure.JUDGE and attempts.number > 1:
                failure.args = (f"Asked {attempts.number} times. {failure}",)
            raise
        # A scorer that had no need to ask says so itself.
        why = {"attempts": attempts.number, **score.why} if self.scorer.asks else score.why
        return replace(score, why=why, usd=summed([*self.paid, score.usd]))

    @contextmanager
    def _counting_paid(self) -> Iterator[None]:
        """Inside, what a failure cost is counted; of a verdict that is cut off, what it may
        cost at most."""
        try:
            yield
        except Unmeasured as failure:
            self.paid.append(failure.usd)
            raise
        except asyncio.CancelledError:
            most_tokens = len(self.said.encode("utf-8", "replace"))  # in no vocabulary it has more
            self.paid.append(self.scorer.most_usd(self.reference, most_tokens))
            raise


def bounded(said: str, most: int = LONGEST) -> str:
    """An answer of bearable length, also as scorers compare it: one letter may stand for
    eighteen.

    >>> len(bounded("x" * 1_000_000)) <= LONGEST, bounded("short")
    (True, 'short')
    """
    said, room = _ends(said, most), most
    while not said.isascii() and len(normalize("NFKC", said)) > most:
        room //= 2
        said = _ends(said, room)
    return said


def _ends(said: str, most: int) -> str:
    """A text, or the two ends of a longer one."""
    return said if len(said) <= most else f"{said[: most // 2 - 1]}\n{said[-(most // 2) :]}"
