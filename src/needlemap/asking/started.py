"""Servers of an ab that are started for it: each by a command that was typed, on a port of this machine.

A command is never read from a folder, and never kept in one: only its address is, so that an ab goes on with
the same prompts' keys. What a server says goes into a log beside the arms' folders.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import urlsplit

from pydantic_core import to_json

from needlemap.errors import NeedlemapError, SettingsError, Unmeasured
from needlemap.files import make_folder, open_inside, open_regular
from needlemap.http.server import WaitingDoor
from needlemap.records.ab import NAME, Arm

PORT = "{port}"
HOST = "127.0.0.1"
STARTS_S = 1_800.0  # in which a server must be there: large weights load slowly
_ENDS_S = 15.0
_LOOK_S = 0.25
_SAID = 600  # characters of a log that an error shows
_MOST_BYTES = 1_000_000
_LOADING = (502, 503)


def command_arms(
    typed: Sequence[str], model: str, before: Sequence[Arm] = ()
) -> tuple[list[Arm], dict[str, list[str]]]:
    """The arms of commands NAME='...', and by name each command's words. before: arms of an earlier start,
    whose ports are taken again. Raises SettingsError."""
    arms, commands = list[Arm](), dict[str, list[str]]()
    for each in typed:
        name, _, command = each.partition("=")
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise SettingsError(f"--arm-command '{name}' cannot be read: {error}.") from None
        if not NAME.fullmatch(name) or not any(PORT in word for word in words):
            raise SettingsError(
                f"--arm-command wants NAME='COMMAND ... {PORT} ...', as --arm-command "
                f"q8='llama-server -m model.gguf --cache-type-k q8_0 --port {PORT}'."
            )
        found = [urlsplit(arm.base_url).port for arm in before if arm.name == name and arm.base_url]
        port = found[0] if found and found[0] else _free_port()
        commands[name] = [word.replace(PORT, str(port)) for word in words]
        arms.append(Arm.of(f"{name}=http://{HOST}:{port}/v1", model))
    return arms, commands


@contextmanager
def started(arms: Sequence[Arm], commands: Mapping[str, Sequence[str]], folder: Path) -> Iterator[None]:
    """Start the arms' servers, wait until each answers, and end them. Raises NeedlemapError for one that ends
    before, or does not answer in time."""
    with ExitStack() as stack:
        running = {
            arm.name: stack.enter_context(_process(commands[arm.name], folder, arm.name))
            for arm in arms
            if arm.name in commands
        }
        for arm in arms:
            if arm.name in running:
                _wait(arm, running[arm.name], folder)
        yield


@contextmanager
def _process(words: Sequence[str], folder: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    make_folder(folder)
    with open_inside(_log(folder, name), "ab") as log:
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            raise SettingsError(f"--arm-command '{name}' cannot be started: {error.strerror}.") from None
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server and what it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDS_S)
            return


def _wait(arm: Arm, process: subprocess.Popen[bytes], folder: Path) -> None:
    """Until a server answers a question of one token, rightly or with a refusal."""
    door, until_s = WaitingDoor({}), monotonic() + STARTS_S
    said = [{"role": "user", "content": "1"}]
    body = to_json({"model": arm.model.partition("/")[2], "messages": said, "max_tokens": 1})
    try:
        while not _answers(door, arm.base_url, body):
            if process.poll() is not None:
                said_last = _last(_log(folder, arm.name))
                raise NeedlemapError(f"Arm '{arm.name}' ended before it answered. It said: {said_last}")
            if monotonic() > until_s:
                raise NeedlemapError(f"Arm '{arm.name}' does not answer after {STARTS_S:,.0f} seconds.")
            sleep(_LOOK_S)
    finally:
        door.close()


def _answers(door: WaitingDoor, address: str, body: bytes) -> bool:
    try:
        reply = door.post(address, "/chat/completions", body, STARTS_S, _MOST_BYTES)
    except Unmeasured:
        return False
    return reply.status not in _LOADING


def _last(log: Path) -> str:
    """The end of what a server said."""
    with open_regular(log) as file:
        file.seek(max(0, log.stat().st_size - _SAID))
        return file.read(_SAID).decode("utf-8", "replace").strip() or "nothing"


def _log(folder: Path, name: str) -> Path:
    return folder / f"server-{name}.log"


def _free_port() -> int:
    with socket.socket() as line:
        line.bind((HOST, 0))
        port: int = line.getsockname()[1]
        return port
