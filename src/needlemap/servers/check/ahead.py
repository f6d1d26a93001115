"""The prompts of a check are built while the ones before them are asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Made = TypeVar("Made")
_Result = TypeVar("_Result")


class BuiltAhead(Generic[Asked, Made]):
    """Builds in one thread, one batch after another, so that a builder need not be safe for two.

    build: makes what a batch needs, and may remember what it made.
    """

    def __init__(self, build: Callable[[Sequence[Asked]], Made]) -> None:
        self._build = build
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="needlemap-prompts")
        self._begun: tuple[tuple[Asked, ...], Future[Made]] | None = None

    def of(self, batch: Sequence[Asked]) -> Made:
        """What a batch needs, which may have been begun; raises what building it does."""
        begun, self._begun = self._begun, None
        if begun is not None and begun[0] == tuple(batch):
            return begun[1].result()
        return self.call(lambda: self._build(batch))

    def begin(self, batch: Sequence[Asked]) -> None:
        """Build it from now on, for whoever asks for it next."""
        self._begun = tuple(batch), self._submit(lambda: self._build(batch))

    def call(self, call: Callable[[], _Result]) -> _Result:
        """Whatever else uses the builder, in its turn."""
        return self._submit(call).result()

    def close(self) -> None:
        """Let the thread go, once it has ended what it builds."""
        self._thread.shutdown(cancel_futures=True)

    def _submit(self, call: Callable[[], _Result]) -> Future[_Result]:
        return self._thread.submit(copy_context().run, call)  # a command's limit is in its context
