"""Servers of an ab that are started for it: each by a command that was typed, on a port of this machine.

A command is never read from a folder, and never kept in one. What a server says goes into a log beside the
arms' folders.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from pydantic_core import to_json

from needlemap.errors import SettingsError, Unmeasured
from needlemap.files import make_folder, open_inside
from needlemap.http.server import WaitingDoor
from needlemap.models.started import PORT, STARTS_S, free_port, running, wait
from needlemap.records.ab import NAME, Arm

HOST = "127.0.0.1"
_MOST_BYTES = 1_000_000
_LOADING = (502, 503)


def command_arms(typed: Sequence[str], model: str) -> tuple[list[Arm], dict[str, list[str]]]:
    """The arms of commands NAME='...', and by name each command's words. Raises SettingsError."""
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
        port = free_port()
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
    with open_inside(_log(folder, name), "ab") as log, running(words, log) as process:
        yield process


def _wait(arm: Arm, process: subprocess.Popen[bytes], folder: Path) -> None:
    """Until a server answers a question of one token, rightly or with a refusal."""
    door, said = WaitingDoor({}), [{"role": "user", "content": "1"}]
    body = to_json({"model": arm.model.partition("/")[2], "messages": said, "max_tokens": 1})
    try:
        asked = partial(_answers, door, arm.base_url, body)
        wait(process, asked, f"Arm '{arm.name}'", _log(folder, arm.name))
    finally:
        door.close()


def _answers(door: WaitingDoor, address: str, body: bytes) -> bool:
    try:
        reply = door.post(address, "/chat/completions", body, STARTS_S, _MOST_BYTES)
    except Unmeasured:
        return False
    return reply.status not in _LOADING


def _log(folder: Path, name: str) -> Path:
    return folder / f"server-{name}.log"
