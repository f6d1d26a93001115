"""Run several coroutines together, or one from ordinary code.

A loop may run already there, as in a notebook's cell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, TypeVar

from needlemap.errors import NeedlemapError

T = TypeVar("T")


async def together(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of coroutines, in their order.

    The first NeedlemapError or OSError cancels the others. It is raised once these have ended.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except* (NeedlemapError, OSError) as errors:
        raise first_error(errors) from None
    return [task.result() for task in tasks]


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first of some errors that is not a group itself."""
    error = errors.exceptions[0]
    if isinstance(error, BaseExceptionGroup):
        return first_error(error)
    return error


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine.

    If a loop runs in this thread, the coroutine gets a loop in a thread of its own.
    """
    loop = None
    with suppress(RuntimeError):
        loop = asyncio.get_running_loop()
    # Not in an except clause: what fails inside would have its error as a cause.
    return asyncio.run(coroutine) if loop is None else _run_in_thread(coroutine)


def result_at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that awaits nothing, without a loop.

    Raises RuntimeError if it does.
    """
    try:
        coroutine.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    coroutine.close()
    raise RuntimeError("this coroutine waits for something")


def _run_in_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that runs on another thread's loop.

    An interrupt here cancels it there, and waits until it has cleaned up.
    """
    with _other_loop() as loop:
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        finally:
            future.cancel()
            asyncio.run_coroutine_threadsafe(_settle_loop(), loop).result()


async def await_in_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that runs on another thread's loop; this loop stays free.

    A cancellation here cancels it there, and waits until it has cleaned up.
    """
    with _other_loop() as loop:
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return await asyncio.wrap_future(future)
        finally:
            future.cancel()
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_settle_loop(), loop))


@contextmanager
def _other_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Run a loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="needlemap", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _settle_loop() -> None:
    """Wait for the tasks that still run on this loop, then for its generators and threads."""
    loop = asyncio.get_running_loop()
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    await asyncio.gather(*others, return_exceptions=True)
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()
