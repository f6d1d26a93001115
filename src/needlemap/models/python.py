"""A user's own function as a model: `python/module:function`."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from threading import Thread
from time import perf_counter
from typing import Any

from needlemap.errors import Failure, SettingsError, Unmeasured, did_you_mean
from needlemap.http import faults
from needlemap.models.base import Answer, Decoding, Model, Traits
from needlemap.prompts.prompt import Prompt


class PythonModel(Model):
    """Calls `function(messages)` with [{"role": ..., "content": ...}, ...], or with a plain prompt's text.

    It returns a str or an Answer, and may be async. The current directory can be imported from. A plain
    function that runs out of time is left running in its thread, since Python cannot stop one; the program's
    end does not wait for it.
    """

    unread = ("temperature", "thinking_tokens", "request", "logprobs")

    def __init__(self, name: str) -> None:
        self.name = name
        self._function = load(name)

    @classmethod
    def traits(cls, name: str, options: Mapping[str, Any]) -> Traits:
        """Chat messages; lengths count cl100k_base tokens unless told otherwise."""
        return Traits(tokenizer="cl100k_base", weights=source_hash(name))

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        """Call once. Raises Unmeasured if the function raises, runs out of time or returns something else."""
        start = perf_counter()
        try:
            async with asyncio.timeout(decoding.timeout_s) as clock:
                said = await self._call(question(prompt))
        except Unmeasured:
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and clock.expired():
                raise faults.timed_out(decoding.timeout_s) from None
            failure = Failure.MEMORY if isinstance(error, MemoryError) else Failure.MODEL
            raise Unmeasured(failure, f"{self.name}: {faults.raised_by(error)}") from error
        return self._answer(said, perf_counter() - start)

    async def _call(self, asked: object) -> object:
        return await beside(self._function, asked)

    def _answer(self, said: object, latency_s: float) -> Answer:
        if isinstance(said, str):
            said = Answer(said)
        if isinstance(said, Answer):
            return replace(said, latency_s=said.latency_s or latency_s)
        problem = f"{self.name} must return a str or a needlemap Answer, it returned {type(said).__name__}"
        raise faults.unreadable(problem, repr(said))


async def beside(function: Callable[..., Any], asked: object) -> Any:
    """What a function returns: awaited where it is async, else called in a thread, which nobody waits for
    when the run ends."""
    if is_async(function):
        return await function(asked)
    done: Future[object] = Future()
    Thread(target=_work, args=(done, function, asked), daemon=True).start()
    said = await asyncio.wrap_future(done)
    return await said if inspect.isawaitable(said) else said


def _work(done: Future[object], function: Callable[..., object], asked: object) -> None:
    """Call a function and hand over what it returns or raises, wanted or not."""
    done.set_running_or_notify_cancel()
    try:
        done.set_result(function(asked))
    except BaseException as error:
        done.set_exception(error)


def question(prompt: Prompt) -> list[dict[str, str]] | str:
    """What the function is called with."""
    if not prompt.chat:
        return prompt.messages[0].content
    return [{"role": message.role, "content": message.content} for message in prompt.messages]


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a function, or an object's call, is declared async."""
    call = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def source_hash(name: str) -> str:
    """Hash of the file that a function is written in, so that an edited one is asked anew; '' without one."""
    try:
        file = inspect.getsourcefile(inspect.unwrap(load(name)))
    except TypeError:
        return ""
    return sha256(Path(file).read_bytes()).hexdigest()[:16] if file and Path(file).is_file() else ""


def load(name: str) -> Callable[..., Any]:
    """The function that 'module:function' names. Raises SettingsError that says what is missing."""
    module_name, _, path = name.partition(":")
    if not module_name or not path or module_name.endswith(".py") or "/" in module_name:
        raise SettingsError(
            f"'{name}' names no function. Type python/module:function, as in python/my_model:answer."
        )
    found: Any = _module(module_name)
    for attribute in path.split("."):
        if not hasattr(found, attribute):
            known = (
                [key for key in vars(found) if not key.startswith("_")] if hasattr(found, "__dict__") else []
            )
            raise SettingsError(f"'{module_name}' has no '{attribute}'. {did_you_mean(attribute, known)}")
        found = getattr(found, attribute)
    if not callable(found):
        raise SettingsError(f"'{name}' is {type(found).__name__}, not a function.")
    return found  # type: ignore[no-any-return]


def _module(name: str) -> Any:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise SettingsError(f"No module '{name}' here ({here}) or installed.") from None
        raise SettingsError(f"Module '{name}' needs '{error.name}', which is not installed.") from error
    except Exception as error:
        raise SettingsError(f"Module '{name}' cannot be imported: {faults.raised_by(error)}.") from error
