"""A server that a command starts for as long as it is asked, and the names of the models that one serves.

The command is the user's, as typed: it is never read from a run's folder.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.http.server import NO_KEY, check_address, key_of
from needlemap.secrets import scrub

PORT = "{port}"
WITHIN_S = 900.0  # for a server to load its weights
_EVERY_S, _ASKED_S, _ENDED_S = 0.1, 5.0, 30.0
_MOST_BYTES = 2**20  # of a list of models
_TOLD = 2_000  # of the log's end


@contextmanager
def started(
    command: str, log: Path, base_url: str | None = None, within_s: float = WITHIN_S
) -> Iterator[str]:
    """Start a server and wait until it answers; its base URL. It ends with the block, its children too.

    command: with {port}, which becomes a free one. base_url: by default http://127.0.0.1:{port}/v1. Raises
    NeedlemapError where it ends or does not answer in time, with the end of its log.
    """
    if PORT not in command and base_url is None:
        raise SettingsError(f"A command to start needs {PORT}, or the address that it serves: '{command}'")
    port = str(free_port())
    url = (base_url or f"http://127.0.0.1:{PORT}/v1").replace(PORT, port)
    check_address(url)
    typed = [part.replace(PORT, port) for part in shlex.split(command)]
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                typed, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        except OSError as error:
            raise NeedlemapError(f"'{typed[0]}' cannot be started: {error.strerror}.") from None
    try:
        _wait(process, url, log, time.monotonic() + within_s)
        yield url
    finally:
        _end(process)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path, until_s: float) -> None:
    """Until it answers and says that it is healthy, where it says anything of that."""
    root = url.removesuffix("/v1")
    while _status(f"{url}/models")[0] != 200 or _status(f"{root}/health")[0] not in (200, 404):
        if process.poll() is not None:
            raise NeedlemapError(
                f"The command ended with {process.returncode} before it served.\n{_tail(log)}"
            )
        if time.monotonic() > until_s:
            raise NeedlemapError(f"Nothing answered at {url} in time.\n{_tail(log)}")
        time.sleep(_EVERY_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it started; kill what does not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDED_S)


def _tail(log: Path) -> str:
    return scrub(log.read_text("utf-8", "replace")[-_TOLD:])


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
