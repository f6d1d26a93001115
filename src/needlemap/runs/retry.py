"""Asking again after a passing failure: exponential backoff with jitter, or as long as the server asks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from random import uniform
from typing import TypeVar

from needlemap.errors import Unmeasured

T = TypeVar("T")
_LONGEST_BACKOFF_S = 60.0
_LONGEST_WAIT_S = 600.0  # a server that asks for more is not waited for: the trial is left for a resume


async def attempts(ask: Callable[[], Awaitable[T]], retries: int) -> tuple[T, int]:
    """The result and the number of attempts. Raises the last Unmeasured, with `attempts` noted on it."""
    for number in count(1):
        try:
            return await ask(), number
        except Unmeasured as failure:
            failure.attempts = number
            if number > retries or not _worth_it(failure):
                raise
            wait_s = _wait_s(failure, number)
        await asyncio.sleep(wait_s)
    raise AssertionError("counting has no end")


def _worth_it(failure: Unmeasured) -> bool:
    return failure.transient and (failure.retry_after_s or 0.0) <= _LONGEST_WAIT_S


def _wait_s(failure: Unmeasured, attempt: int) -> float:
    """As long as the server asks for, else anything up to 1, 2, 4, ... 60 seconds ("full jitter").

    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    if failure.retry_after_s is not None:
        return failure.retry_after_s
    return uniform(0.0, min(_LONGEST_BACKOFF_S, 2.0 ** min(attempt - 1, 6)))
