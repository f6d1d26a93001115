"""A server that a command starts ends with the program that started it, however that ends."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from needlemap.deadline import TimeUp, limited_to
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.models import supervisor
from needlemap.models.started import started

WIRE = Path(__file__).parent.parent / "servers" / "wire.py"
SERVES = f"{shlex.quote(sys.executable)} {shlex.quote(str(WIRE))} --port {{port}}"
DEAF = (
    "import runpy, signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    f"sys.argv = {[str(WIRE), '--port']!r} + sys.argv[1:]; "
    f"sys.path.insert(0, {str(WIRE.parent)!r}); runpy.run_path({str(WIRE)!r}, run_name='__main__')"
)
DEAF_SERVES = f"{shlex.quote(sys.executable)} -c {shlex.quote(DEAF)} {{port}}"
HOLDER = """
import sys, time
from pathlib import Path
from needlemap.models.started import started
with started(sys.argv[1], Path(sys.argv[2])) as url:
    print(url, flush=True)
    time.sleep(600)
"""


def script(tmp_path: Path, text: str) -> str:
    """The command of a start script."""
    file = tmp_path / "start.sh"
    file.write_text(f"{text}\n")
    return f"sh {shlex.quote(str(file))} {{port}}"


def in_background(tmp_path: Path, serves: str, then: str) -> str:
    """A start script that starts a server behind an ampersand."""
    return script(tmp_path, f"{serves.replace('{port}', '$1')} &\n{then}")


def is_served(url: str) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", int(url.split(":")[2].split("/")[0]))) == 0


def is_gone(url: str) -> bool:
    """Whether a server ends within the time that the supervisor has, and more on a busy machine."""
    until = time.monotonic() + 100
    while is_served(url):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize(
    ("number", "serves"),
    [
        (signal.SIGHUP, SERVES),
        (signal.SIGQUIT, SERVES),
        (signal.SIGTERM, SERVES),
        (signal.SIGINT, SERVES),
        (signal.SIGKILL, SERVES),
        (signal.SIGKILL, DEAF_SERVES),
    ],
)
def test_a_server_ends_with_us_whatever_ends_us(tmp_path, number, serves):
    """A closed terminal (SIGHUP), SIGQUIT and SIGKILL left servers behind, with a GPU each."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, serves, str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
    )
    assert holder.stdout is not None
    with holder.stdout:
        url = holder.stdout.readline().strip()
    assert is_served(url)
    holder.send_signal(number)
    holder.wait()
    assert is_gone(url)


@pytest.mark.parametrize("then", ["wait", "exit 0"])
@pytest.mark.parametrize("serves", [SERVES, DEAF_SERVES], ids=["hears", "deaf"])
def test_a_server_behind_a_start_script_ends_with_the_block(tmp_path, serves, then):
    """A script (`server & wait`) was gone at SIGTERM, and its server, which took longer, stayed."""
    with started(in_background(tmp_path, serves, then), tmp_path / "log") as url:
        assert is_served(url)
    assert not is_served(url)


def test_a_server_has_time_to_put_its_things_away(tmp_path):
    saying = (
        f"trap 'echo put away' TERM\n{SERVES.replace('{port}', '$1')} &\nwait\nsleep 0.3\necho done"
    )
    with started(script(tmp_path, saying), tmp_path / "log"):
        pass
    assert (tmp_path / "log").read_text().endswith("put away\ndone\n")


def test_signals_to_us_are_as_they_were_for_the_server(tmp_path):
    shows = "import signal; print([signal.getsignal(getattr(signal, 'SIG' + n)) for n in names])"
    code = f"names = 'HUP', 'QUIT', 'TERM'; {shows}"
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} {{port}}"
    with pytest.raises(NeedlemapError) as error, started(command, tmp_path / "log"):
        pass
    assert str(error.value).count("SIG_DFL") == 3


def test_a_command_without_words_and_one_that_is_not_there_are_told(tmp_path):
    for command, said in ((" ", "is empty"), ("no-such-program {port}", "No such file")):
        with (
            pytest.raises(SettingsError, match=said),
            started(command, tmp_path / "log", "http://127.0.0.1:1/v1"),
        ):
            pass


@pytest.mark.parametrize("words", ["CUDA_VISIBLE_DEVICES=0 server", "cd /tmp; server", "server &"])
def test_what_only_a_shell_understands_is_told_so(tmp_path, words):
    """'CUDA_VISIBLE_DEVICES=0' cannot be started: No such file or directory."""
    with (
        pytest.raises(SettingsError, match=r"No shell runs .* env NAME=VALUE .* sh -c"),
        started(words, tmp_path / "log", "http://127.0.0.1:1/v1"),
    ):
        pass


@pytest.mark.parametrize("path", ["/v1", ""])
def test_the_port_of_a_command_is_that_of_the_address_which_may_lack_its_v1(tmp_path, path):
    """A free one was taken, and the address was awaited for half an hour."""
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{line.getsockname()[1]}{path}"
    with started(SERVES, tmp_path / "log", url) as address:
        assert address == url
        assert is_served(f"{url}/")


def test_what_an_earlier_start_said_is_not_said_of_a_later_one(tmp_path):
    log = tmp_path / "log"
    log.write_text("an earlier start\n")
    with (
        pytest.raises(NeedlemapError) as error,
        started("sh -c 'echo a later one' {port}", log),
    ):
        pass
    assert str(error.value).endswith("It said: a later one")


def test_a_limit_of_time_ends_the_wait_and_names_the_log(tmp_path):
    silent = f"{shlex.quote(sys.executable)} -c 'import time; time.sleep(60)' {{port}}"
    with (
        limited_to(3.0),
        pytest.raises(TimeUp, match=f"look into {tmp_path / 'log'}"),
        started(silent, tmp_path / "log"),
    ):
        pass


def test_the_supervisor_itself_may_be_told_to_end():
    with subprocess.Popen(
        [sys.executable, "-I", "-S", supervisor.__file__, "sleep", "600"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        os.kill(process.pid, signal.SIGHUP)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(100) == 0
