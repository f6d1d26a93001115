"""Files of the hub, fetched in the time that the command has."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path

from needlemap.deadline import call_within


def fetch(call: Callable[[], str], name: str) -> Path:
    """Where a file or a folder of the hub lies here: `call` downloads it, unless the cache has
    it. Raises TimeUp, and whatever the library does (its own, its client's, OSError,
    ValueError)."""
    what = f"while '{name}' was fetched from the hub"
    return Path(call_within(inf, call, what, "a folder or file here"))
