"""Find a scorer by its name."""

from __future__ import annotations

from needlemap.registry import find_kind
from needlemap.scorers.function import FunctionScorer
from needlemap.scorers.scorer import MARK, Scorer


def find_scorer(name: str) -> type[Scorer]:
    """Return the scorer of a name, or a function's scorer if the name starts with `python/`.

    Call it for what the user typed, never for what a folder holds: it runs code of this machine.
    Raises SettingsError if there is no such scorer.
    """
    if name.startswith(MARK):
        return FunctionScorer.named(name.removeprefix(MARK))
    return find_kind("scorers", name, Scorer)
