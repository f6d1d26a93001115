"""A server that a command starts, for as long as it is asked.

The command is the user's, as typed: it is never read from a run's folder. The server ends with this
program, however that ends (`models/supervisor.py`).
"""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import IO

from needlemap.deadline import seconds_left
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.files import open_inside, open_regular
from needlemap.http import check_address
from needlemap.models import supervisor
from needlemap.models.servers import is_up
from needlemap.secrets import scrub
from needlemap.text import tell

PORT = "{port}"
# In which a server must be there: large weights load slowly.
STARTS_S = 1_800.0
_LOOK_S, _ENDS_S = 0.25, 15.0
# Characters of a log that an error shows.
_LOG_END = 400
# After which a note shows what is waited for.
_SAID_S = 5.0
_OF_A_SHELL = {"cd", "export", "source", "&", "&&", ";", "|", ">", ">>"}


@contextmanager
def started(
    command: str, log: Path, base_url: str | None = None, name: str = "The command"
) -> Iterator[str]:
    """Start a server, wait until it answers, and yield its base URL. It ends with the block.

    command: with {port}, which becomes the port of the address, else a free one. log: a file in a
    folder that is there. base_url: by default http://127.0.0.1:{port}/v1. name: what errors call
    it. Raises NeedlemapError if it ends or does not answer in time, with the end of its log.
    """
    if PORT not in command and base_url is None:
        raise SettingsError(
            f"A command to start needs {PORT}, or the address that it serves: '{command}'"
        )
    port = _port_in(base_url) or str(_free_port())
    url = (base_url or f"http://127.0.0.1:{PORT}/v1").replace(PORT, port)
    check_address(url)
    try:
        words = [part.replace(PORT, port) for part in shlex.split(command)]
    except ValueError as error:
        raise SettingsError(f"'{command}' is no command: {error}.") from None
    if not words:
        raise SettingsError("A command to start is empty. Give the words that start a server.")
    if "=" in words[0] or _OF_A_SHELL & {word.rstrip(";") or ";" for word in words}:
        raise SettingsError(
            f"No shell runs '{command}'. Set a variable by env NAME=VALUE PROGRAM ..., or type: "
            "sh -c '...'"
        )
    # It would be taken for the one that is started.
    if is_up(url):
        raise SettingsError(f"A server answers at {url} already: end it, then type the same.")
    with open_inside(log, "ab") as output:
        log_start = output.tell()
        process = _start(words, output)
        try:
            _wait_until_up(process, url, name, log, log_start)
            yield url
        finally:
            _end(process)


def _start(words: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start the supervisor of a server, which ends when its standard input is closed.

    Raises SettingsError.
    """
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", supervisor.__file__, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=output,
        # A terminal's signals are not for it.
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        with process.stdout:
            line = process.stdout.readline().decode(errors="replace")
    except BaseException:
        _end(process)
        raise
    if line == "\n":
        return process
    _end(process)
    reason = line.strip() or "its supervisor ended"
    raise SettingsError(f"'{words[0]}' cannot be started: {reason}.")


def _wait_until_up(
    process: subprocess.Popen[bytes], url: str, name: str, log: Path, log_start: int
) -> None:
    """Wait until a server answers.

    log_start: bytes of the log that are of others. Raises NeedlemapError if it ended before, or
    does not answer in time.
    """
    start_s = monotonic()
    has_told = False
    while not is_up(url):
        waited_s = monotonic() - start_s
        if process.poll() is not None:
            raise NeedlemapError(
                f"{name} ended before it answered. It said: {_log_end(log, log_start)}"
            )
        if waited_s > STARTS_S:
            raise NeedlemapError(
                f"{name} does not answer at {url} after {STARTS_S:,.0f} seconds. It said: "
                f"{_log_end(log, log_start)}"
            )
        if waited_s > _SAID_S and not has_told:
            tell(f"note: waiting for {url}; what is started prints into {log}")
            has_told = True
        sleep(_LOOK_S)
        seconds_left(what=f"before {url} answered", do=f"look into {log}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let the supervisor end the server, and wait for it.

    The server ends even if this process does not wait.
    """
    assert process.stdin is not None
    process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_ENDS_S)


def _log_end(log: Path, log_start: int) -> str:
    """Return the end of what a server printed. log_start: bytes of the log that are of others."""
    with open_regular(log) as file:
        file.seek(max(log_start, log.stat().st_size - _LOG_END))
        return scrub(file.read(_LOG_END).decode("utf-8", "replace").strip()) or "nothing"


def _port_in(base_url: str | None) -> str:
    """Return the port of an address, or '' if it names none."""
    match = re.match(r"\w+://[^/]*:(\d+)", base_url or "")
    return match[1] if match else ""


def _free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return int(line.getsockname()[1])
