"""Servers that a command starts for as long as they are asked, and the names of the models that one serves.

A command is the user's, as typed: it is never read from a run's folder.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from time import monotonic, sleep
from typing import IO
from urllib.parse import urlsplit

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.files import open_inside, open_regular
from needlemap.http.server import NO_KEY, check_address, key_of
from needlemap.secrets import scrub

PORT = "{port}"
STARTS_S = 1_800.0  # in which a server must be there: large weights load slowly
_LOOK_S, _ASKED_S, _ENDS_S = 0.25, 5.0, 15.0
_MOST_BYTES = 2**20  # of a list of models
_SAID = 600  # characters of a log that an error shows


@contextmanager
def started(command: str, log: Path, base_url: str | None = None, name: str = "The command") -> Iterator[str]:
    """Start a server and wait until it answers; its base URL. It ends with the block.

    command: with {port}, which becomes a free one. log: a file in a folder that is there. base_url: by
    default http://127.0.0.1:{port}/v1. name: what errors call it. Raises NeedlemapError where it ends or does
    not answer in time, with the end of its log.
    """
    if PORT not in command and base_url is None:
        raise SettingsError(f"A command to start needs {PORT}, or the address that it serves: '{command}'")
    port = str(free_port())
    url = (base_url or f"http://127.0.0.1:{PORT}/v1").replace(PORT, port)
    check_address(url)
    try:
        words = [part.replace(PORT, port) for part in shlex.split(command)]
    except ValueError as error:
        raise SettingsError(f"'{command}' is no command: {error}.") from None
    with open_inside(log, "ab") as output, running(words, output) as process:
        wait(process, partial(_is_up, url), name, log)
        yield url


@contextmanager
def running(words: Sequence[str], output: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A process, which ends with the block, and what it has started with it. Raises SettingsError."""
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    except OSError as error:
        raise SettingsError(f"'{words[0]}' cannot be started: {error.strerror}.") from None
    try:
        yield process
    finally:
        _end(process)


def wait(process: subprocess.Popen[bytes], answers: Callable[[], bool], name: str, log: Path) -> None:
    """Until a server answers. Raises NeedlemapError where it ended before, or does not in time."""
    until_s = monotonic() + STARTS_S
    while not answers():
        if process.poll() is not None:
            raise NeedlemapError(f"{name} ended before it answered. It said: {_last(log)}")
        if monotonic() > until_s:
            raise NeedlemapError(f"{name} does not answer after {STARTS_S:,.0f} seconds.")
        sleep(_LOOK_S)


def _is_up(url: str) -> bool:
    """Whether a server lists its models, and is healthy where it says anything of that."""
    root = url.removesuffix("/v1")
    return _status(f"{url}/models")[0] == 200 and _status(f"{root}/health")[0] in (200, 404)


def _end(process: subprocess.Popen[bytes]) -> None:
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


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return int(line.getsockname()[1])


def served_model(base_url: str) -> str:
    """The name of the first model that a server lists. Raises NeedlemapError where it lists none."""
    check_address(base_url)
    status, body = _status(f"{base_url.rstrip('/')}/models")
    with suppress(ValueError, TypeError, KeyError, IndexError, RecursionError):
        name = json.loads(body)["data"][0]["id"]
        if status == 200 and isinstance(name, str) and name:
            return name
    raise NeedlemapError(f"{base_url} lists no model (status {status or 'none'}). Name it: openai/NAME.")


def _status(url: str) -> tuple[int, bytes]:
    """A reply's status and the beginning of its body; 0 where nobody answers. Nothing is followed."""
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    key = key_of("OPENAI_API_KEY", url, "")
    headers = {} if key == NO_KEY else {"Authorization": f"Bearer {key}"}
    connection = kind(parts.netloc, timeout=_ASKED_S)
    try:
        connection.request("GET", parts.path, headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.read(_MOST_BYTES)
    except (OSError, HTTPException):
        return 0, b""
    finally:
        connection.close()
