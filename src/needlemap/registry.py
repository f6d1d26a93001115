"""One door for every extension: Python entry points. Built-ins use it too.

Groups: needlemap.models, needlemap.tasks, needlemap.scorers, needlemap.haystacks, needlemap.tokenizers.
Nothing is imported before it is named; a plug-in that cannot be imported is an error when it is named.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from needlemap.errors import SettingsError, did_you_mean


@cache
def installed(kind: str) -> dict[str, EntryPoint]:
    """The extensions of a kind ('models', 'tasks', ...) by name, not yet imported."""
    return {point.name: point for point in _all().select(group=f"needlemap.{kind}")}


@cache
def _all() -> Any:
    """Every installed package's `EntryPoints`: one look at their files serves all kinds."""
    return entry_points()


def find(kind: str, name: str) -> Any:
    """The class that an extension registers. Raises SettingsError with the nearest known name."""
    known = installed(kind)
    if name not in known:
        noun = kind.removesuffix("s")
        raise SettingsError(f"Unknown {noun} '{name}'. {did_you_mean(name, known)}")
    try:
        return known[name].load()
    except ImportError as error:
        missing = error.name or str(error)
        raise SettingsError(
            f"{kind.removesuffix('s').capitalize()} '{name}' needs '{missing}', which is not installed. "
            f"Run: pip install 'needlemap[{name}]'"
        ) from error
