"""Build the prompts of the next batch while the current one is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Generic, TypeVar

Item = TypeVar("Item")
Built = TypeVar("Built")
_Result = TypeVar("_Result")


class BuiltAhead(Generic[Item, Built]):
    """Builds batches in one thread, one after another, so that a builder need not be thread-safe.

    build: returns the prompts of a batch. It may keep what it built.
    """

    def __init__(self, build: Callable[[Sequence[Item]], Built]) -> None:
        self._build = build
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="needlemap-prompts")
        self._pending: tuple[tuple[Item, ...], Future[Built]] | None = None

    def of(self, batch: Sequence[Item]) -> Built:
        """Return the prompts of a batch, from the pending build if that is of the same batch.

        Raises what the builder raises.
        """
        pending = self._pending
        self._pending = None
        if pending is not None:
            pending_batch, future = pending
            if pending_batch == tuple(batch):
                return future.result()
        return self.call(lambda: self._build(batch))

    def begin(self, batch: Sequence[Item]) -> None:
        """Start to build a batch, for the next call of `of`."""
        self._pending = tuple(batch), self._submit(lambda: self._build(batch))

    def call(self, function: Callable[[], _Result]) -> _Result:
        """Return the result of another function that uses the builder, called in its turn."""
        return self._submit(function).result()

    def close(self) -> None:
        """Drop the pending build, and stop the thread once the running one has ended."""
        self._thread.shutdown(cancel_futures=True)

    def _submit(self, function: Callable[[], _Result]) -> Future[_Result]:
        # The time limit of a command is a context variable, which a new thread would not see.
        return self._thread.submit(copy_context().run, function)
