"""A scorer by its name."""

from __future__ import annotations

from needlemap.registry import find_kind
from needlemap.scorers.function import FunctionScorer
from needlemap.scorers.scorer import MARK, Scorer


def find_scorer(name: str) -> type[Scorer]:
    """A scorer by its name; behind `python/` a function's. Raises SettingsError.

    For what the user typed, never for what a folder says: it runs code of this machine.
    """
    if name.startswith(MARK):
        return FunctionScorer.named(name.removeprefix(MARK))
    return find_kind("scorers", name, Scorer)
