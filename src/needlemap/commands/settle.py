"""The settings that `run`, `plan` and `prompts` are called with: the same arguments mean the same trials."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from needlemap.runs.lent import with_prompts_of
from needlemap.settings.reading import configure, older_rules
from needlemap.settings.settings import Settings
from needlemap.text.printable import show
from needlemap.trials.build import Experiment
from needlemap.trials.keys import FREE

DEFAULT = "demo"


def settle(preset: str | None, flags: Mapping[str, Any], trusted: bool = False) -> Settings:
    """Settings from a preset and flags. Says which rules an older tool's names bring.

    trusted: follow the run that --prompts-of names, though another machine began it.
    """
    settings, notes = configured(preset, flags, trusted)
    for note in notes if not settings.quiet else ():
        show(f"note: {note}", file=sys.stderr)
    return settings


def configured(
    preset: str | None, flags: Mapping[str, Any], trusted: bool = False
) -> tuple[Settings, list[str]]:
    """Settings, and which rules an older tool's names bring. With neither a preset nor a flag that changes
    answers: the demo."""
    named = preset or (DEFAULT if set(flags) <= FREE else None)
    settings, older = with_prompts_of(configure(named, flags), trusted), older_rules(named, flags)
    return settings, [older.told(settings.model_dump())] if older else []


def tell_notes(experiment: Experiment, told: set[str] | None = None) -> None:
    """What a user should know before prompts are asked or counted: which documents they are made of.

    told: what was told already, of the families before.
    """
    said = set() if told is None else told
    for note in notes_on(experiment):
        if note not in said and not experiment.settings.quiet:
            show(f"note: {note}", file=sys.stderr, flush=True)
        said.add(note)


def notes_on(experiment: Experiment) -> list[str]:
    """What a user should know of the settings before prompts are asked."""
    return [*experiment.notes, *_lacking(experiment)]


def _lacking(experiment: Experiment) -> list[str]:
    """Which packages the model needs where it is asked, of those that are not installed here."""
    missing = [name for name in experiment.traits.needs if find_spec(name) is None]
    if not missing:
        return []
    backend = experiment.settings.backend
    return [
        f"'{experiment.settings.model}' needs {' and '.join(missing)} where it is asked, not installed here. "
        f"There, run: pip install 'needlemap[{backend}]'"
    ]
