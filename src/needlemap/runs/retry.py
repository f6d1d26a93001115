"""Asking again after a passing failure: exponential backoff with jitter, or as long as the server asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt
from tenacity.wait import wait_random_exponential

from needlemap.errors import Unmeasured

T = TypeVar("T")
_BACKOFF = wait_random_exponential(multiplier=1.0, max=60.0)
_LONGEST_WAIT_S = 600.0  # a server that asks for more is not waited for: the trial is left for a resume


async def attempts(ask: Callable[[], Awaitable[T]], retries: int) -> tuple[T, int]:
    """The result and the number of attempts. Raises the last Unmeasured, with `attempts` noted on it."""
    retrying = AsyncRetrying(
        stop=stop_after_attempt(retries + 1),
        wait=_wait,
        retry=retry_if_exception(_worth_it),
        reraise=True,
    )
    number = 0
    try:
        async for attempt in retrying:
            number = attempt.retry_state.attempt_number
            with attempt:
                result = await ask()
    except Unmeasured as failure:
        failure.attempts = number
        raise
    return result, number


def _worth_it(error: BaseException) -> bool:
    return (
        isinstance(error, Unmeasured)
        and error.transient
        and (error.retry_after_s is None or error.retry_after_s <= _LONGEST_WAIT_S)
    )


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, Unmeasured) and error.retry_after_s is not None:
        return error.retry_after_s
    return float(_BACKOFF(state))
