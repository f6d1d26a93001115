"""Run a replica: one copy of a model in a process of its own, which is a Dask worker.

    python -P -m needlemap.cluster.replica FILE

FILE is JSON. It holds the address of the scheduler and the run's certificates. The model and the
haystacks are Dask's data, so that they are freed when the process of the run ends. A haystack is
sent once; a prompt is then spans of it. A replica ends by itself when its scheduler is gone.
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

# The import takes a second.
if TYPE_CHECKING:
    from distributed import Worker

# A text with fewer bytes is sent with each prompt. A longer one is sent once.
_SMALL_BYTES = 2048
# How long a replica waits for the scheduler at its start. A job may start after its run ended.
_PATIENCE_S = 45.0
_LOOK_S = 0.25
_CLOSING_S = 5.0
# Attributes of a model that its constructor may set.
_REPORTED = ("notes", "side")


@dataclass(frozen=True, slots=True)
class Recipe:
    """The arguments that make a model.

    Attributes:
        backend: The name of its back end.
        name: The model's name.
        options: The back end's options.
        weights: The hash of its files; '' if the process of the run does not see them.
        version: The version of needlemap in that process.
    """

    backend: str
    name: str
    options: Mapping[str, Any]
    weights: str = ""
    version: str = __version__

    def make(self) -> Model:
        """Return the model.

        Raises NeedlemapError if it cannot be made here, or if its files or needlemap's version
        differ here.
        """
        if self.version != __version__:
            raise SettingsError(
                f"needlemap is {__version__} there, and {self.version} here. Install one."
            )
        backend = find_backend(self.backend)
        if self.weights and backend.traits(self.name, self.options).weights != self.weights:
            raise SettingsError(f"The files of '{self.name}' differ there from those here.")
        return backend(self.name, **self.options)


class LoadedModel:
    """A model in the process that loaded it. Dask may neither move it nor write it to a disk.

    Attributes:
        model: None if it could not be loaded, or once it was closed.
        problem: Why it could not be loaded; '' if it was.
    """

    def __init__(self, model: Model | None, problem: str = "") -> None:
        self.model = model
        self.problem = problem

    def __reduce__(self) -> Any:
        raise TypeError("a model stays where it was loaded")


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """A replica's report on loading its model.

    Attributes:
        problem: Why the model could not be loaded; '' if it was.
        host: The name of the replica's machine.
        attributes: What the model reported of itself, by the names in `_REPORTED`.
    """

    problem: str
    host: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


def load(recipe: Recipe) -> LoadedModel:
    """Load the model in a replica, and return it or the reason why it could not be loaded."""
    try:
        return LoadedModel(recipe.make())
    except NeedlemapError as error:
        return LoadedModel(None, str(error))
    except Exception as error:
        return LoadedModel(None, raised_by(error))


def report(loaded: LoadedModel) -> ReplicaReport:
    """Return the report on a loaded model, for the process of the run."""
    attributes = {
        name: getattr(loaded.model, name) for name in _REPORTED if hasattr(loaded.model, name)
    }
    return ReplicaReport(loaded.problem, host=os.uname().nodename, attributes=attributes)


async def ask(
    key: str,
    packed: bytes,
    texts: Sequence[str],
    decoding: Decoding,
    given_answer: str | None,
    dask_worker: Worker,
) -> Answer | NeedlemapError:
    """Return the model's answer in a replica, or the error instead of an answer.

    key: of the model in Dask's data. packed: the prompt, as `packed` returns it. texts: keys of its
    long texts. given_answer: return how likely the model finds this one. dask_worker: filled in by
    Dask.
    """
    data: Mapping[str, Any] = dask_worker.data
    model: Model = data[key].model
    prompt = unpacked(packed, [data[text_key] for text_key in texts])
    try:
        return await call_model(model, prompt, decoding, given_answer=given_answer)
    except NeedlemapError as error:
        return error


async def let_go(key: str, dask_worker: Worker) -> None:
    """Close the model and free its memory, because the process of a borrowed worker stays."""
    data: Mapping[str, Any] = dask_worker.data
    loaded: LoadedModel = data[key]
    model = loaded.model
    loaded.model = None
    if model is not None:
        await model.close()
    # The memory is free once nothing refers to the model.
    del model
    gc.collect()
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        sys.modules["torch"].cuda.empty_cache()


def packed(prompt: Prompt) -> tuple[bytes, list[TokenText]]:
    """Return a prompt as bytes without its long texts, and the long texts."""
    file = io.BytesIO()
    numbers = dict[TokenText, int]()
    _Packing(file, numbers).dump(prompt)
    return file.getvalue(), list(numbers)


def unpacked(data: bytes, texts: Sequence[TokenText]) -> Prompt:
    """Return the prompt that was packed, with spans of these texts."""
    prompt: Prompt = _Unpacking(io.BytesIO(data), texts).load()
    return prompt


class _Packing(pickle.Pickler):
    """Pickle without long texts, which are numbered instead."""

    def __init__(self, file: io.BytesIO, numbers: dict[TokenText, int]) -> None:
        """Write to a file. numbers: the number of each long text is added here."""
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._numbers = numbers

    def persistent_id(self, part: Any) -> int | None:
        """Return a long text's number, or None to write a part as it is."""
        if type(part) is not TokenText or len(part.data) < _SMALL_BYTES:
            return None
        return self._numbers.setdefault(part, len(self._numbers))


class _Unpacking(pickle.Unpickler):
    """Unpickle with the long texts in the places of their numbers."""

    def __init__(self, data: io.BytesIO, texts: Sequence[TokenText]) -> None:
        super().__init__(data)
        self._texts = texts

    def persistent_load(self, number: int) -> TokenText:
        """Return the text of a number."""
        return self._texts[number]


def main(file: str) -> None:
    """Serve until a signal, or until the scheduler is gone, and exit without further answers."""
    connection = read_json(read_regular(Path(file)))
    with TemporaryDirectory(prefix="needlemap-", ignore_cleanup_errors=True) as scratch:
        code = asyncio.run(_serve(connection, scratch))
    host, process = connection["owner"]
    # A process that was killed could not delete its key.
    if _is_orphan(host, process):
        Path(file).unlink(missing_ok=True)
    sys.stderr.flush()
    os._exit(code)


def _is_orphan(host: str, process: int) -> bool:
    """Return True if the process that started this one ran on this machine and is gone."""
    if host != socket.gethostname():
        return False
    with suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
    return False


async def _serve(connection: Mapping[str, Any], scratch: str) -> int:
    """Serve until a signal or until the scheduler is gone, and return the exit code."""
    worker = _worker(connection, scratch)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await worker
    except (TimeoutError, OSError) as error:
        show(
            f"needlemap: the scheduler at {connection['address']} is gone: {error!r}",
            file=sys.stderr,
        )
        return 1
    while worker.status.name == "running" and not ended.is_set():
        await asyncio.sleep(_LOOK_S)
    try:
        async with asyncio.timeout(_CLOSING_S):
            await worker.close(timeout=1, executor_wait=False)
    except Exception as error:
        show(f"needlemap: ended, {error!r}", file=sys.stderr)
    return 0


def _worker(connection: Mapping[str, Any], scratch: str) -> Worker:
    """Return a Dask worker that is not started yet.

    scratch: a folder of its own. The folder that all workers of a machine share by default may
    belong to another user.
    """
    import dask
    import distributed

    dask.config.set({"distributed.worker.profile.enabled": False})
    # At its default level it would log every prompt.
    logging.getLogger("distributed").setLevel(logging.WARNING)
    worker: Worker = without_http(distributed.Worker)(
        connection["address"],
        name=_name(),
        nthreads=1,
        memory_limit=0,
        host=connection["host"],
        security=distributed.Security(**connection["security"]),
        death_timeout=_PATIENCE_S,
        local_directory=scratch,
    )
    return worker


def _name() -> str:
    """Return the replica's name, which the process that started it or Slurm's job gives."""
    environment = os.environ
    if "NEEDLEMAP_REPLICA" in environment:
        return environment["NEEDLEMAP_REPLICA"]
    array = environment.get("SLURM_ARRAY_JOB_ID")
    job = f"{array}_{environment['SLURM_ARRAY_TASK_ID']}" if array else environment["SLURM_JOB_ID"]
    restart = environment.get("SLURM_RESTART_COUNT", "0")
    return job if restart == "0" else f"{job}-again-{restart}"


def without_http(server: type[Any]) -> type[Any]:
    """Return a class of Dask servers without the pages that they serve to all the network."""
    return type(server.__name__, (server,), {"start_http_server": _no_pages})


def _no_pages(*_: Any, **__: Any) -> None:
    return None


if __name__ == "__main__":
    main(sys.argv[1])
