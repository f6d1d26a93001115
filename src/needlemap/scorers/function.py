"""A function of one's own as a scorer: named `python/module:function`, or handed over in Python."""

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


class FunctionScorer(Scorer):
    """Calls `function(answer, reference)`, which may be async: a share in [0, 1], a bool or a
    Score.

    reference: what a right answer looks like: `answer`, `keywords`, `question`, `needle`, ... Its
    options hold the hash of its source, so that an edited one scores anew.
    """

    @classmethod
    def named(cls, name: str) -> type[Scorer]:
        """The scorer that calls the function of that name. Raises SettingsError."""
        function, hashed = load_function(name), source_hash(name)
        body = {
            "name": MARK + name,
            "options": {"source": hashed},
            "_function": staticmethod(function),
        }
        return type(cls.__name__, (cls,), body)

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises TypeError for a value that is no score."""
        said = await call_beside(self._function, answer, reference)
        if isinstance(said, Score):
            return said
        if not isinstance(said, bool | int | float):
            raise TypeError(
                f"{self.name} must return a number in [0, 1] or a Score, it returned {said!r:.80}"
            )
        return Score(float(said), float(said))

    @staticmethod
    def _function(answer: str, reference: Reference) -> Any:
        raise NotImplementedError


async def call_beside(function: Callable[..., Any], *given: object) -> Any:
    """What a function returns: awaited where it is async, else called in a thread, which
    nobody waits for when the run ends."""
    if is_async(function):
        return await function(*given)
    done: Future[object] = Future()
    Thread(target=_work, args=(done, function, given), daemon=True).start()
    said = await asyncio.wrap_future(done)
    return await said if inspect.isawaitable(said) else said


def _work(done: Future[object], function: Callable[..., object], given: tuple[object, ...]) -> None:
    """Call a function and hand over what it returns or raises, wanted or not."""
    done.set_running_or_notify_cancel()
    try:
        done.set_result(function(*given))
    except BaseException as error:
        done.set_exception(error)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a function, or an object's call, is declared async."""
    call = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def source_hash(name: str) -> str:
    """Hash of the file that a function is written in, so that an edited one is asked anew; of
    one without a file (a notebook's) of its own source, else of its byte code. '' where none
    is known."""
    function = inspect.unwrap(load_function(name))
    if name not in _HELD:
        with suppress(TypeError):
            file = inspect.getsourcefile(function)
            if file and Path(file).is_file():
                return sha256(Path(file).read_bytes()).hexdigest()[:16]
    return sha256(_source(function)).hexdigest()[:16] if _source(function) else ""


def _source(function: Callable[..., Any]) -> bytes:
    """A function's source, if it is known. Values that it closes over are not part of it."""
    with suppress(TypeError, OSError):
        return inspect.getsource(function).encode()
    code = getattr(function, "__code__", None)
    return b"" if code is None else code.co_code + repr((code.co_consts, code.co_names)).encode()


_HELD: dict[
    str, Callable[..., Any]
] = {}  # functions that no import finds, by the name they were given


def name_function(function: Callable[..., Any]) -> str:
    """What settings call a function: 'module:function', by which it is found again in this
    process.

    A function that can be imported by that name is not held: the command line means the same
    by it.
    """
    module = str(getattr(function, "__module__", None) or "__main__")
    name = f"{module}:{getattr(function, '__qualname__', type(function).__qualname__)}"
    _HELD.pop(name, None)
    with suppress(SettingsError):
        if load_function(name) is function:
            return name
    _HELD[name] = function
    return name


def load_function(name: str) -> Callable[..., Any]:
    """The function that 'module:function' names, or that was handed over under that name.

    Raises SettingsError that says what is missing.
    """
    if name in _HELD:
        return _HELD[name]
    module_name, _, path = name.partition(":")
    if not module_name or not path or module_name.endswith(".py") or "/" in module_name:
        raise SettingsError(
            f"'{name}' names no function. Type python/module:function, as in "
            f"python/my_model:answer."
        )
    found: Any = _module(module_name)
    for attribute in path.split("."):
        if not hasattr(found, attribute):
            known = (
                [key for key in vars(found) if not key.startswith("_")]
                if hasattr(found, "__dict__")
                else []
            )
            raise SettingsError(
                f"'{module_name}' has no '{attribute}'. {did_you_mean(attribute, known)}"
            )
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
        raise SettingsError(
            f"Module '{name}' needs '{error.name}', which is not installed."
        ) from error
    except Exception as error:
        raise SettingsError(f"Module '{name}' cannot be imported: {raised_by(error)}.") from error
