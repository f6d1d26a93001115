"""Asking again after a passing failure: exponential backoff with jitter, or as long as the server
asks.

A rate limit is no failure: it is waited for (see `pacer.py`), and counts as no retry. One answer's
score is asked for again in the same way; what these requests cost counts too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf
from random import uniform
from time import monotonic
from typing import TypeVar
from unicodedata import normalize

from needlemap.asking.pacer import LONGEST_WAIT_S, Pacer, Ticket
from needlemap.errors import Failure, Unmeasured
from needlemap.models import Answer
from needlemap.scorers import Score, Scorer
from needlemap.settings.prices import summed
from needlemap.tasks import Reference

T = TypeVar("T")
_LONGEST_BACKOFF_S = 60.0
_TRUSTED = 2  # failures of a request after which a server's word is taken, however short the wait
_LONGEST_OUTAGE_BACKOFF_S = 15.0  # a server may be back any moment


async def attempts(
    ask: Callable[[], Awaitable[T]], retries: int, pacer: Pacer | None = None, tokens: float = 0.0
) -> tuple[T, int]:
    """The result and the number of attempts. Raises the last Unmeasured, with `attempts` noted on
    it, or one that says SKIPPED where the run's time is up before the next attempt.

    A server that is not there (`Unmeasured.outage`) may get more retries: see `Pacer.waits_out`.
    One that was never there gets none, unless it is waited for: see `Pacer.awaits`.
    pacer: says when to send, default at once. tokens: what the request may take of a limit.
    """
    pacer, failed, failed_s = pacer or Pacer(), 0, inf
    last: Unmeasured | None = None
    for number in count(1):
        try:
            ticket = await pacer.admit(tokens)
        except Unmeasured as failure:  # a server's limit has no room for too long
            failure.attempts = number - 1
            raise
        if ticket is None:
            raise _skipped(last)
        try:
            return await _paced(ask, pacer, ticket), number
        except Unmeasured as failure:
            failure.attempts, last = number, failure
            if failure.failure is Failure.RATE_LIMITED or failure.unreached:
                if await _is_waited_for(failure, pacer, ticket):
                    continue
                if pacer.is_over:
                    raise _skipped(failure) from None
                raise
            failed += 1
            waited_out = failed > retries > 0 and pacer.waits_out(failure, failed_s)
            if not _passing(failure) or not (failed <= retries or waited_out):
                raise
            failed_s = monotonic()
        wait_s = _wait_s(last, failed)
        pacer.failed(last, wait_s)
        if not await pacer.rest(wait_s):
            raise _skipped(last)
    raise AssertionError("counting has no end")


def _skipped(last: Unmeasured | None) -> Unmeasured:
    """That the run's time was up before there was an answer. last: what came instead of one."""
    words = "not sent" if last is None else str(last)
    skipped = Unmeasured(Failure.SKIPPED, f"The time was up before an answer: {words}")
    skipped.attempts = 0 if last is None else last.attempts
    return skipped


async def _is_waited_for(failure: Unmeasured, pacer: Pacer, ticket: Ticket) -> bool:
    """Whether to ask again after a rate limit, or a server that was never there: no failures of
    this request, so that without it all are hopeless."""
    if not _passing(failure):
        return False
    rests = await pacer.awaits(failure) if failure.unreached else pacer.refused(ticket, failure)
    failure.hopeless = not rests
    return rests


async def _paced(ask: Callable[[], Awaitable[T]], pacer: Pacer, ticket: Ticket) -> T:
    """Ask once, and tell the pacer how it ended; it hears of a passing rate limit from the
    caller."""
    try:
        said = await ask()
    except Unmeasured as failure:
        if failure.failure is not Failure.RATE_LIMITED or not _passing(failure):
            pacer.ended()
        raise
    except BaseException:
        pacer.ended()
        raise
    if isinstance(said, Answer):
        used = (
            None
            if said.prompt_tokens is None
            else said.prompt_tokens + (said.completion_tokens or 0)
        )
        pacer.answered(ticket, said.allowance, used)
    else:
        pacer.answered(ticket)
    return said


def _passing(failure: Unmeasured) -> bool:
    return failure.transient and (failure.retry_after_s or 0.0) <= LONGEST_WAIT_S


def _wait_s(failure: Unmeasured, attempt: int) -> float:
    """As long as the server asks for, else anything up to 1, 2, 4, ... 60 seconds ("full jitter"),
    up to 15 for one that is not there.

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

    paid: US dollars of attempts that failed; None for an unknown price.
    """

    scorer: Scorer
    said: str
    reference: Reference
    paid: list[float | None] = field(default_factory=list)

    async def score(self, retries: int, pacer: Pacer | None = None) -> Score:
        """Raises the last Unmeasured, with what all attempts cost."""
        try:
            score, _ = await attempts(self._once, retries, pacer)
        except Unmeasured as failure:
            failure.usd = summed(self.paid)
            raise
        return replace(score, usd=summed([*self.paid, score.usd])) if self.paid else score

    async def _once(self) -> Score:
        try:
            most = JUDGED if self.scorer.asks else LONGEST
            most = max(most, _MUCH * len(self.reference.answer))
            return await self.scorer.score(bounded(self.said, most), self.reference)
        except Unmeasured as failure:
            self.paid.append(failure.usd)
            raise


def bounded(said: str, most: int = LONGEST) -> str:
    """An answer of bearable length, also as scorers compare it: one letter may stand for eighteen.

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
