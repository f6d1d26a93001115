"""The results of several coroutines, and that of one for ordinary code, where a loop may run
already, as in a notebook's cell."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, TypeVar

from needlemap.errors import NeedlemapError

T = TypeVar("T")


async def together(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Their results, in their order. The first that raises NeedlemapError or OSError ends the
    others, which have let go of their things when it is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in coroutines]
    except* (NeedlemapError, OSError) as errors:
        raise first_of(errors) from None
    return [task.result() for task in tasks]


def first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first of some errors that is not a group itself."""
    error = errors.exceptions[0]
    return first_of(error) if isinstance(error, BaseExceptionGroup) else error


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Its result. Where a loop runs in this thread, the coroutine gets a loop in a thread of
    its own."""
    loop = None
    with suppress(RuntimeError):
        loop = asyncio.get_running_loop()
    # Not in an except clause: what fails inside would have its error as a cause.
    return asyncio.run(coroutine) if loop is None else _run_in_thread(coroutine)


def result_at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that awaits nothing, without a loop. Raises RuntimeError
    if it does."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    coroutine.close()
    raise RuntimeError("this coroutine waits for something")


def _run_in_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    """An interrupt here cancels it there, and waits until it has put its things away."""
    with _other_loop() as loop:
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        finally:
            future.cancel()
            asyncio.run_coroutine_threadsafe(_settle_loop(), loop).result()


async def await_in_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    """Its result, while the loop that waits for it is free. Who is cancelled here cancels it
    there, and waits until it has put its things away."""
    with _other_loop() as loop:
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return await asyncio.wrap_future(future)
        finally:
            future.cancel()
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_settle_loop(), loop))


@contextmanager
def _other_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs in a thread of its own."""
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
    """Wait for what still runs on this loop, then for its generators and threads."""
    loop = asyncio.get_running_loop()
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    await asyncio.gather(*others, return_exceptions=True)
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()
