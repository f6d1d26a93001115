"""A replica: one copy of a model in a process of its own, a worker of Dask that the asking process
reaches.

    python -P -m needlemap.cluster.replica FILE

FILE, JSON, says where the scheduler is, and holds the run's certificates.
Its model and the haystacks are Dask's data, so that they are gone when the asking process is. A
haystack comes once; a prompt is then spans of it. It ends by itself when its scheduler is gone.
"""

from __future__ import annotations

import asyncio
import gc
import io
import logging
import os
import pickle
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.files import read_regular
from needlemap.models import Answer, Decoding, Model, find_backend
from needlemap.models.call import call_model
from needlemap.prompts import Prompt
from needlemap.secrets import raised_by
from needlemap.text import show
from needlemap.text.tokens import TokenText
from needlemap.untrusted import read_json
from needlemap.version import __version__

if TYPE_CHECKING:  # it takes a second to import
    from distributed import Worker

_SMALL = 2048  # bytes of a text that travels with each prompt; a longer one travels once
_PATIENCE_S = 45.0  # for the scheduler, at the start; a job may begin when nobody asks any more
_LOOK_S, _CLOSING_S = 0.25, 5.0
_TOLD = ("notes", "side")  # what a model that was tried knows of itself


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a model is made of. weights: hash of its files, where the asking process sees them."""

    backend: str
    name: str
    options: Mapping[str, Any]
    weights: str = ""
    version: str = __version__

    def make(self) -> Model:
        """The model. Raises NeedlemapError when it cannot be made here, or is another one
        here."""
        if self.version != __version__:
            raise SettingsError(
                f"needlemap is {__version__} there, and {self.version} here. Install one."
            )
        backend = find_backend(self.backend)
        if self.weights and backend.traits(self.name, self.options).weights != self.weights:
            raise SettingsError(f"The files of '{self.name}' differ there from those here.")
        return backend(self.name, **self.options)


class LoadedModel:
    """A model where it lives, or why there is none. Dask may neither move it nor put it on a
    disk."""

    def __init__(self, model: Model | None, problem: str = "") -> None:
        self.model, self.problem = model, problem

    def __reduce__(self) -> Any:
        raise TypeError("a model stays where it was loaded")


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """A replica's report on loading its model. problem: why it could not. told: see `_TOLD`."""

    problem: str
    host: str
    told: Mapping[str, Any] = field(default_factory=dict)


def load(recipe: Recipe) -> LoadedModel:
    """The model, in a replica; it stays there."""
    try:
        return LoadedModel(recipe.make())
    except NeedlemapError as error:
        return LoadedModel(None, str(error))
    except Exception as error:
        return LoadedModel(None, raised_by(error))


def report(held: LoadedModel) -> ReplicaReport:
    """How the loading went."""
    told = {name: getattr(held.model, name) for name in _TOLD if hasattr(held.model, name)}
    return ReplicaReport(held.problem, os.uname().nodename, told)


async def ask(
    key: str,
    packed: bytes,
    texts: Sequence[str],
    decoding: Decoding,
    given: str | None,
    dask_worker: Worker,
) -> Answer | NeedlemapError:
    """An answer, or how likely a given one is found; or why there is none. texts: keys of long
    texts."""
    data: Mapping[str, Any] = dask_worker.data
    model: Model = data[key].model
    prompt = unpacked(packed, [data[each] for each in texts])
    try:
        return await call_model(model, prompt, decoding, given)
    except NeedlemapError as error:
        return error


async def let_go(key: str, dask_worker: Worker) -> None:
    """Close the model, and free what it held, where the process stays."""
    data: Mapping[str, Any] = dask_worker.data
    held: LoadedModel = data[key]
    model, held.model = held.model, None
    if model is not None:
        await model.close()
    del model
    gc.collect()
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        sys.modules["torch"].cuda.empty_cache()


def packed(prompt: Prompt) -> tuple[bytes, list[TokenText]]:
    """A prompt as bytes without its long texts, and those."""
    out, found = io.BytesIO(), dict[TokenText, int]()
    pickler = _Packing(out, found)
    pickler.dump(prompt)
    return out.getvalue(), list(found)


def unpacked(data: bytes, texts: Sequence[TokenText]) -> Prompt:
    """The prompt again, with spans of these texts."""
    prompt: Prompt = _Unpacking(io.BytesIO(data), texts).load()
    return prompt


class _Packing(pickle.Pickler):
    """Leaves long texts out, and notes which they were."""

    def __init__(self, out: io.BytesIO, found: dict[TokenText, int]) -> None:
        super().__init__(out, pickle.HIGHEST_PROTOCOL)
        self._found = found

    def persistent_id(self, part: Any) -> int | None:
        """A long text's number; None for what is written as it is."""
        if type(part) is not TokenText or len(part.data) < _SMALL:
            return None
        return self._found.setdefault(part, len(self._found))


class _Unpacking(pickle.Unpickler):
    """Puts long texts in again."""

    def __init__(self, data: io.BytesIO, texts: Sequence[TokenText]) -> None:
        super().__init__(data)
        self._texts = texts

    def persistent_load(self, number: int) -> TokenText:
        """The text of a number."""
        return self._texts[number]


def main(file: str) -> None:
    """Serve until told to end, or until the scheduler is gone; no answer is waited for."""
    told = read_json(read_regular(Path(file)))
    with TemporaryDirectory(prefix="needlemap-", ignore_cleanup_errors=True) as scratch:
        code = asyncio.run(_serve(told, scratch))
    if _is_orphan(*told["owner"]):  # killed, it could not take its key away
        Path(file).unlink(missing_ok=True)
    sys.stderr.flush()
    os._exit(code)


def _is_orphan(host: str, process: int) -> bool:
    """Whether who started it ran on this machine and is gone."""
    if host != socket.gethostname():
        return False
    with suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
    return False


async def _serve(told: Mapping[str, Any], scratch: str) -> int:
    worker = _worker(told, scratch)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await worker
    except (TimeoutError, OSError) as error:
        show(f"needlemap: the scheduler at {told['address']} is gone: {error!r}", file=sys.stderr)
        return 1
    while worker.status.name == "running" and not ended.is_set():
        await asyncio.sleep(_LOOK_S)
    try:
        async with asyncio.timeout(_CLOSING_S):
            await worker.close(timeout=1, executor_wait=False)
    except Exception as error:
        show(f"needlemap: ended, {error!r}", file=sys.stderr)
    return 0


def _worker(told: Mapping[str, Any], scratch: str) -> Worker:
    """scratch: a folder of its own: the one that all of a machine share may be another
    user's."""
    import dask
    import distributed

    dask.config.set({"distributed.worker.profile.enabled": False})
    logging.getLogger("distributed").setLevel(logging.WARNING)  # it would tell of every prompt
    made: Worker = without_http(distributed.Worker)(
        told["address"],
        name=_name(),
        nthreads=1,
        memory_limit=0,
        host=told["host"],
        security=distributed.Security(**told["security"]),
        death_timeout=_PATIENCE_S,
        local_directory=scratch,
    )
    return made


def _name() -> str:
    """What started it calls it: by a name of its own, or the job of Slurm."""
    environment = os.environ
    if "NEEDLEMAP_REPLICA" in environment:
        return environment["NEEDLEMAP_REPLICA"]
    array = environment.get("SLURM_ARRAY_JOB_ID")
    job = f"{array}_{environment['SLURM_ARRAY_TASK_ID']}" if array else environment["SLURM_JOB_ID"]
    restart = environment.get("SLURM_RESTART_COUNT", "0")
    return job if restart == "0" else f"{job}-again-{restart}"


def without_http(server: type[Any]) -> type[Any]:
    """A server of Dask without the pages that each serves to all the network."""
    return type(server.__name__, (server,), {"start_http_server": _no_pages})


def _no_pages(*_: Any, **__: Any) -> None:
    return None


if __name__ == "__main__":
    main(sys.argv[1])
