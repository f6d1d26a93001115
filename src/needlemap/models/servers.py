"""Servers of models: an answer made of a reply's JSON object, what a server tells of itself, and
servers that a command starts for as long as they are asked.

A command is the user's, as typed: it is
never read from a run's folder.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import IO, TYPE_CHECKING, Any

from needlemap.errors import Failure, NeedlemapError, SettingsError, Spent, Unmeasured
from needlemap.files import open_inside, open_regular
from needlemap.http import (
    VERSIONED,
    Door,
    WaitingDoor,
    bearer,
    check_address,
    custom_headers,
    faults,
    key_of,
)
from needlemap.models import Answer, Model, tokens
from needlemap.secrets import scrub

if TYPE_CHECKING:
    from needlemap.http import Reader

RESERVED = (
    "model",
    "messages",
    "prompt",
    "system",
    "stream",
    "n",
)  # asking differently is another setting
_KEY = "OPENAI_API_KEY"
_TOLD_S, _TOLD_BYTES = 10.0, 4_000_000  # for what a server tells of itself
PORT = "{port}"
STARTS_S = 1_800.0  # in which a server must be there: large weights load slowly
_LOOK_S, _ENDS_S = 0.25, 15.0
_SAID = 600  # characters of a log that an error shows


class ServedModel(Model):
    """A model behind a provider's API, or behind a server that speaks as it does. Replies are not
    streamed.

    host: the provider's own. variables: how the names of its variables in the environment begin.
    """

    host = variables = ""

    def __init__(self, name: str, base_url: str, key_env: str, version: str = "") -> None:
        self.name = name
        key = key_of(key_env, base_url, self.host, required=key_env != f"{self.variables}_API_KEY")
        sent = {header: value for header, value in self.headers(key).items() if value}
        sent |= custom_headers(f"{self.variables}_CUSTOM_HEADERS")
        self._server = Door(base_url, sent, version)

    @property
    def base_url(self) -> str:
        """Where it is asked; with what the address lacked as soon as the server turns out to want
        that."""
        return self._server.base_url

    def headers(self, key: str) -> dict[str, str]:
        """What goes with each request, by the names of the provider's own client. Raises
        SettingsError."""
        raise NotImplementedError

    async def close(self) -> None:
        """Release connections."""
        await self._server.close()


def understood(read: Reader, body: dict[str, Any], took_s: float) -> Answer:
    """The answer in a reply by `read`. Raises Unmeasured, with what the server says that it
    took."""
    try:
        return read(body, took_s)
    except Unmeasured as failure:
        if failure.failure is Failure.UNREADABLE:
            failure.spent = spent(body)
        raise
    except Exception as error:  # whatever a reply makes of our reading is the reply's fault
        odd = faults.unreadable("The reply cannot be read", f"{type(error).__name__}: {error}")
        odd.spent = spent(body)
        raise odd from None


def spent(body: Mapping[str, Any]) -> Spent:
    """What a reply says that it took, in either wire format."""
    usage = body.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    sent = count(usage, "prompt_tokens")
    return Spent(
        sent_tokens(usage) if sent is None else sent,
        next(
            (
                found
                for name in ("completion_tokens", "output_tokens")
                if (found := count(usage, name))
            ),
            0,
        ),
    )


def sent_tokens(usage: Mapping[str, Any]) -> int | None:
    """The prompt's tokens in Anthropic's report, which counts those of its cache apart."""
    fresh, *cached = (
        count(usage, f"{name}input_tokens") for name in ("", "cache_read_", "cache_creation_")
    )
    return None if fresh is None else fresh + sum(part or 0 for part in cached)


def count(usage: Mapping[str, Any], *path: str) -> int | None:
    """A token count at a path of a usage report, or None where the provider gives none."""
    value: Any = usage
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return tokens(value)


def texts_of(parts: Any, field: str = "text") -> list[str]:
    """The texts of an answer's parts; parts without one have none."""
    return [
        part[field] for part in parts if isinstance(part, dict) and isinstance(part.get(field), str)
    ]


def check_request(request: Mapping[str, Any]) -> None:
    """Raises SettingsError for request fields that would change what is asked behind the record's
    back."""
    for field in RESERVED:
        if field in request:
            raise SettingsError(
                f"Request field '{field}' cannot be set: needlemap sets it. Remove it from "
                f"'request'."
            )


def context_told(base_url: str, model: str) -> int | None:
    """Tokens of prompt and answer that a server says a model takes: in its list of models (vLLM,
    SGLang), or of itself (llama.cpp); None where it says nothing."""
    where = base_url.rstrip("/")
    for row in _rows(_told(where, "/models")[1]):
        if row.get("id") == model and (found := tokens(row.get("max_model_len"))):
            return found
    itself = _told(VERSIONED.sub("", where), "/props")[1].get("default_generation_settings")
    return tokens(itself.get("n_ctx")) or None if isinstance(itself, dict) else None


def served_model(base_url: str) -> str:
    """The name of the first model that a server lists. Raises NeedlemapError where it lists
    none."""
    check_address(base_url)
    status, listed = _told(base_url.rstrip("/"), "/models")
    name = next((row.get("id") for row in _rows(listed)), None)
    if isinstance(name, str) and name:
        return name
    raise NeedlemapError(
        f"{base_url} lists no model (status {status or 'none'}). Name it: openai/NAME."
    )


def _rows(listed: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The models in a list."""
    rows = listed.get("data")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _told(server: str, path: str) -> tuple[int, dict[str, Any]]:
    """A reply's status, 0 where nobody answers, and its JSON object, an empty one where it has
    none."""
    door, status = WaitingDoor(server, bearer(_KEY)), 0
    try:
        reply = door.ask("GET", path, b"", _TOLD_S, _TOLD_BYTES)
        status = reply.status
        return status, door.object_in(reply, server)
    except Unmeasured:
        return status, {}
    finally:
        door.close()


@contextmanager
def started(
    command: str, log: Path, base_url: str | None = None, name: str = "The command"
) -> Iterator[str]:
    """Start a server and wait until it answers; its base URL. It ends with the block.

    command: with {port}, which becomes a free one. log: a file in a folder that is there. base_url:
    by default http://127.0.0.1:{port}/v1. name: what errors call it. Raises NeedlemapError where it
    ends or does not answer in time, with the end of its log.
    """
    if PORT not in command and base_url is None:
        raise SettingsError(
            f"A command to start needs {PORT}, or the address that it serves: '{command}'"
        )
    port = str(_free_port())
    url = (base_url or f"http://127.0.0.1:{PORT}/v1").replace(PORT, port)
    check_address(url)
    try:
        words = [part.replace(PORT, port) for part in shlex.split(command)]
    except ValueError as error:
        raise SettingsError(f"'{command}' is no command: {error}.") from None
    with open_inside(log, "ab") as output:
        process = _launched(words, output)
        try:
            _wait(process, url, name, log)
            yield url
        finally:
            _end(process)


def _launched(words: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    """A process, in a group of its own. Raises SettingsError."""
    try:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise SettingsError(f"'{words[0]}' cannot be started: {error.strerror}.") from None


def _wait(process: subprocess.Popen[bytes], url: str, name: str, log: Path) -> None:
    """Until a server answers. Raises NeedlemapError where it ended before, or does not in time."""
    until_s = monotonic() + STARTS_S
    while not _is_up(url):
        if process.poll() is not None:
            raise NeedlemapError(f"{name} ended before it answered. It said: {_last(log)}")
        if monotonic() > until_s:
            raise NeedlemapError(f"{name} does not answer after {STARTS_S:,.0f} seconds.")
        sleep(_LOOK_S)


def _is_up(url: str) -> bool:
    """Whether a server lists its models, and is healthy where it says anything of that."""
    root = url.removesuffix("/v1")
    return _told(url, "/models")[0] == 200 and _told(root, "/health")[0] in (200, 404)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process, and what it has started with it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDS_S)
            return


def _last(log: Path) -> str:
    """The end of what a server said."""
    with open_regular(log) as file:
        file.seek(max(0, log.stat().st_size - _SAID))
        return scrub(file.read(_SAID).decode("utf-8", "replace").strip()) or "nothing"


def _free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return int(line.getsockname()[1])
