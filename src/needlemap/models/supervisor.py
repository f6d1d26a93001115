"""The process that ends a server whenever the program that started it ends, however that ends.

Run as a program with the server's command behind it; it imports nothing of this package. Standard
input is a pipe whose other end the program holds: its end of file, also after a SIGKILL, is the
order to end the server. One line goes to standard output: empty, or why the command cannot be
started. Standard error is the server's log.

The server has a process group of its own. The group gets SIGTERM, and what is left of it after
five seconds SIGKILL. A process that leaves the group is not found.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from time import monotonic, sleep

# Between SIGTERM and SIGKILL.
TERM_S = 5.0
# For the kernel to take killed processes away.
_KILL_S = 5.0
_LOOK_S = 0.25
_STEP_S = 0.02
# Of prctl(2).
_CHILD_SUBREAPER = 36
_ORDERS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def main(command: list[str]) -> int:
    """Start the server and stay as long as it does.

    Return 0, or 1 if the server cannot be started.
    """
    orders: list[int] = []
    # A handler, since an ignored signal would be ignored by the server too.
    for number in _ORDERS:
        signal.signal(number, lambda order, _: orders.append(order))
    _adopt_orphans()
    try:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            stderr=sys.stderr.fileno(),
            start_new_session=True,
        )
    except OSError as error:
        _report(error.strerror or str(error))
        return 1
    _report("")
    with suppress(ProcessLookupError):
        while is_alive(server.pid) and not (orders and orders[-1] == signal.SIGTERM):
            if select.select([sys.stdin], [], [], _LOOK_S)[0] and not os.read(0, 1):
                break
        end_group(server.pid)
    return 0


def end_group(group: int) -> None:
    """End a process group by SIGTERM, then by SIGKILL.

    Raises ProcessLookupError as soon as it is gone.
    """
    for number, wait_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, _KILL_S)):
        os.killpg(group, number)
        until_s = monotonic() + wait_s
        while is_alive(group) and monotonic() < until_s:
            sleep(_STEP_S)


def is_alive(group: int) -> bool:
    """Return True if a process of the group is left.

    Ended ones that are our children are collected.
    """
    with suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    # It changed its user, and is there.
    except PermissionError:
        return True
    return True


def _adopt_orphans() -> None:
    """Become the parent of processes that the server leaves behind, if the system can do that.

    Linux can. In a container, process 1 may never collect ended processes, which would look alive.
    """
    with suppress(ImportError, OSError, AttributeError):
        from ctypes import CDLL

        CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)


def _report(line: str) -> None:
    """Write one line for the program; nothing if it is gone already."""
    with suppress(OSError):
        os.write(1, f"{line}\n".encode())
        os.close(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
