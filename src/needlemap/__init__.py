"""needlemap: where in its context does a language model find a fact, and where does it lose
it?

    run = needlemap.run(model="openai/gpt-4o", lengths="1k,8k", repeats=3)
    run.map().overall

Importing it loads nothing; the first use of `run`, `load` and their like does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from needlemap.api import arun, compare, curves, load, make_plan, run
    from needlemap.reports.public_api import Compared, Run
    from needlemap.version import SCHEMA, __version__

__all__ = [
    "SCHEMA",
    "Compared",
    "Run",
    "__version__",
    "arun",
    "compare",
    "curves",
    "load",
    "make_plan",
    "run",
]

_LATE = {
    **dict.fromkeys(("arun", "compare", "curves", "load", "make_plan", "run"), "needlemap.api"),
    **dict.fromkeys(("SCHEMA", "__version__"), "needlemap.version"),
    "Compared": "needlemap.reports.public_api",
    "Run": "needlemap.reports.public_api",
}


def __getattr__(name: str) -> Any:
    """Return a name of the Python interface, which is imported when it is first used."""
    if name in _LATE:
        return getattr(import_module(_LATE[name]), name)
    from needlemap.registry import find, installed

    if name in installed("api"):
        return find("api", name)
    raise AttributeError(f"module 'needlemap' has no attribute '{name}'")


def __dir__() -> list[str]:
    """Return the public names, with those of wings."""
    from needlemap.registry import installed

    return sorted({*__all__, *installed("api")})
