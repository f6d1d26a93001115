"""Asking again after a passing failure: exponential backoff with jitter, or as long as the server asks.

A rate limit is no failure: it is waited for (see `pacer.py`), and counts as no retry.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from random import uniform
from typing import TypeVar

from needlemap.errors import Failure, Unmeasured
from needlemap.models.base import Answer
from needlemap.runs.pacer import Pacer, Ticket

T = TypeVar("T")
_LONGEST_BACKOFF_S = 60.0
LONGEST_WAIT_S = 600.0  # a server that asks for more is not waited for: the trial is left for a resume


async def attempts(
    ask: Callable[[], Awaitable[T]], retries: int, pacer: Pacer | None = None, tokens: float = 0.0
) -> tuple[T, int]:
    """The result and the number of attempts. Raises the last Unmeasured, with `attempts` noted on it.

    pacer: says when to send, default at once. tokens: what the request may take of a limit.
    """
    pacer, failed = pacer or Pacer(), 0
    last = Unmeasured(Failure.SKIPPED, "Not sent: the run's time was up.")
    last.attempts = 0
    for number in count(1):
        ticket = await pacer.admit(tokens)
        if ticket is None:
            raise last
        try:
            return await _paced(ask, pacer, ticket), number
        except Unmeasured as failure:
            failure.attempts, last = number, failure
            if failure.failure is Failure.RATE_LIMITED:
                if _passing(failure):
                    if pacer.refused(ticket, failure):
                        continue
                    failure.hopeless = True
                raise
            failed += 1
            if failed > retries or not _passing(failure):
                raise
        wait_s = _wait_s(last, failed)
        pacer.failed(last, wait_s)
        if not await pacer.rest(wait_s):
            raise last
    raise AssertionError("counting has no end")


async def _paced(ask: Callable[[], Awaitable[T]], pacer: Pacer, ticket: Ticket) -> T:
    """Ask once, and tell the pacer how it ended; it hears of a passing rate limit from the caller."""
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
        used = None if said.prompt_tokens is None else said.prompt_tokens + (said.completion_tokens or 0)
        pacer.answered(ticket, said.allowance, used)
    else:
        pacer.answered(ticket)
    return said


def _passing(failure: Unmeasured) -> bool:
    return failure.transient and (failure.retry_after_s or 0.0) <= LONGEST_WAIT_S


def _wait_s(failure: Unmeasured, attempt: int) -> float:
    """As long as the server asks for, else anything up to 1, 2, 4, ... 60 seconds ("full jitter").

    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    if failure.retry_after_s is not None:
        return failure.retry_after_s
    return uniform(0.0, min(_LONGEST_BACKOFF_S, 2.0 ** min(attempt - 1, 6)))
