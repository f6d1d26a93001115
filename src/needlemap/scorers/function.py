"""Use a user's own function as a scorer.

It is named `python/module:function`, or handed over in Python.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from needlemap.errors import SettingsError, did_you_mean
from needlemap.scorers.scorer import MARK, Score, Scorer
from needlemap.secrets import raised_by

if TYPE_CHECKING:
    from needlemap.tasks import Reference

# Functions that no import finds, by the name that `name_function` gave them.
_FUNCTIONS: dict[str, Callable[..., Any]] = {}


class FunctionScorer(Scorer):
    """Calls `function(answer, reference)`, which may be async: a share in [0, 1], a bool or a
    Score.

    reference: what a right answer looks like: `answer`, `keywords`, `question`, `needle`, ... Its
    options hold the hash of its source, so that an edited one scores anew.
    """

    @classmethod
    def named(cls, name: str) -> type[Scorer]:
        """Return the scorer that calls the function of a name.

        Raises SettingsError if there is no such function.
        """
        members = {
            "name": f"{MARK}{name}",
            "options": {"source": source_hash(name)},
            "_function": staticmethod(load_function(name)),
        }
        return type(cls.__name__, (cls,), members)

    async def score(self, answer: str, reference: Reference) -> Score:
        """Return the function's score. Raises TypeError for a value that is not a score."""
        value = await call_unblocked(self._function, answer, reference)
        if isinstance(value, Score):
            return value
        if not isinstance(value, bool | int | float):
            raise TypeError(
                f"{self.name} must return a number in [0, 1] or a Score, it returned {value!r:.80}"
            )
        return Score(float(value), float(value))

    @staticmethod
    def _function(answer: str, reference: Reference) -> Any:
        raise NotImplementedError


async def call_unblocked(function: Callable[..., Any], *arguments: object) -> Any:
    """Call a function without blocking the event loop, and return what it returns.

    An async function is awaited. Any other is called in a thread that a run does not wait for when
    it ends.
    """
    if is_async(function):
        return await function(*arguments)

    future: Future[object] = Future()
    Thread(target=_call, args=(future, function, arguments), daemon=True).start()
    value = await asyncio.wrap_future(future)
    # A function that is not declared async may still return a coroutine, e.g. a lambda.
    if inspect.isawaitable(value):
        return await value
    return value


def _call(
    future: Future[object], function: Callable[..., object], arguments: tuple[object, ...]
) -> None:
    """Call a function, and set a future to what it returns or raises."""
    future.set_running_or_notify_cancel()
    try:
        future.set_result(function(*arguments))
    except BaseException as error:
        future.set_exception(error)


def is_async(function: Callable[..., Any]) -> bool:
    """Return True if a function, or the `__call__` of an object, is declared async."""
    call = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def source_hash(name: str) -> str:
    """Return a hash of a function's source, so that an edited function is called anew.

    It is the hash of the file that the function is written in. For a function without a file, for
    example in a notebook, it is the hash of its own source, or else of its byte code. It is '' if
    none of them is known.
    """
    function = inspect.unwrap(load_function(name))
    if name not in _FUNCTIONS:
        with suppress(TypeError):
            file = inspect.getsourcefile(function)
            if file and Path(file).is_file():
                return _short_hash(Path(file).read_bytes())
    source = _source(function)
    return _short_hash(source) if source else ""


def _short_hash(source: bytes) -> str:
    return sha256(source).hexdigest()[:16]


def _source(function: Callable[..., Any]) -> bytes:
    """Return a function's source or byte code, or b'' if neither is known.

    Values that it closes over are not part of it.
    """
    with suppress(TypeError, OSError):
        return inspect.getsource(function).encode()
    code = getattr(function, "__code__", None)
    if code is None:
        return b""
    byte_code: bytes = code.co_code
    return byte_code + repr((code.co_consts, code.co_names)).encode()


def name_function(function: Callable[..., Any]) -> str:
    """Return the name, 'module:function', by which settings refer to a function.

    If an import of that name does not return the same function, the function is stored, so that
    `load_function` finds it as long as this process runs.
    """
    module = str(getattr(function, "__module__", None) or "__main__")
    # A callable object has no name of its own.
    path = getattr(function, "__qualname__", type(function).__qualname__)
    name = f"{module}:{path}"

    # An earlier function of the same name would hide the one that can be imported.
    _FUNCTIONS.pop(name, None)
    with suppress(SettingsError):
        if load_function(name) is function:
            return name

    _FUNCTIONS[name] = function
    return name


def load_function(name: str) -> Callable[..., Any]:
    """Return the function that 'module:function' names, or that was handed over under that name.

    Raises SettingsError that reports what is missing.
    """
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    module_name, _, path = name.partition(":")
    if not module_name or not path or module_name.endswith(".py") or "/" in module_name:
        raise SettingsError(
            f"'{name}' names no function. Type python/module:function, as in "
            f"python/my_model:answer."
        )
    value: Any = _module(module_name)
    for attribute in path.split("."):
        if not hasattr(value, attribute):
            names = list(getattr(value, "__dict__", {}))
            public_names = [other for other in names if not other.startswith("_")]
            raise SettingsError(
                f"'{module_name}' has no '{attribute}'. {did_you_mean(attribute, public_names)}"
            )
        value = getattr(value, attribute)
    if not callable(value):
        raise SettingsError(f"'{name}' is {type(value).__name__}, not a function.")
    return value  # type: ignore[no-any-return]


def _module(name: str) -> Any:
    """Return a module of the current folder or an installed one.

    Raises SettingsError if it cannot be imported.
    """
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise SettingsError(f"No module '{name}' here ({folder}) or installed.") from None
        raise SettingsError(
            f"Module '{name}' needs '{error.name}', which is not installed."
        ) from error
    except Exception as error:
        raise SettingsError(f"Module '{name}' cannot be imported: {raised_by(error)}.") from error
