"""Fetch files of the hub within the time that the command has."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path

from needlemap.deadline import call_within


def fetch(call: Callable[[], str], name: str) -> Path:
    """Return where a file or folder of the hub lies on this machine.

    call: downloads it, unless it is cached. Raises TimeUp, and anything that the library raises
    (its own errors, its client's, OSError, ValueError).
    """
    what = f"while '{name}' was fetched from the hub"
    return Path(call_within(inf, call, what, "a folder or file here"))
