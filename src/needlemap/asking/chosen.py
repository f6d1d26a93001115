"""The families to ask each model, from a preset and flags, or another run's prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from needlemap.asking.discovery import known_settings, listed_model
from needlemap.asking.resume import with_prompts_of
from needlemap.errors import SettingsError
from needlemap.settings.suites import Chosen, choose_each
from needlemap.settings.trust import Trust, refuse_code, without_code


def find_models_to_ask(
    named: str | None,
    flags: Mapping[str, Any],
    *,
    asks: bool = True,
    trusted: Trust = False,
    planned: bool = False,
    skip: Sequence[str] | None = None,
) -> dict[str, Chosen]:
    """Return what `models_to_ask` does, with the settings that the flags leave to others.

    These are the model that a server lists, and settings that an installed package knows for a
    model. asks: as `listed_model` takes it.
    """
    settled = {**flags, **listed_model(named, flags, asks=asks)}
    settled |= known_settings(named, settled)
    return models_to_ask(named, settled, trusted=trusted, planned=planned, skip=skip)


def models_to_ask(
    named: str | None,
    flags: Mapping[str, Any],
    *,
    trusted: Trust = False,
    planned: bool = False,
    skip: Sequence[str] | None = None,
) -> dict[str, Chosen]:
    """Return the families to ask each model, by the name of its folder ('' of a single model).

    named, flags, planned: as `choose_each` takes them. trusted: follow the run whose prompts are
    asked, though another machine started it; 'prompts': as far as that asks and runs nothing. skip:
    families of a suite to leave out. Raises NeedlemapError.
    """
    chosen_by_model = choose_each(named, flags, trusted=trusted, planned=planned)
    if skip:
        chosen_by_model = {
            name: without_families(chosen, skip) for name, chosen in chosen_by_model.items()
        }
    _refuse_several_seeks(chosen_by_model)
    for name, chosen in chosen_by_model.items():
        run = chosen.first.prompts_of
        # A suite refuses another run's prompts when it is prepared.
        if run and isinstance(run, str) and not chosen.suite:
            borrowed = with_prompts_of(chosen.first, Path(run), trusted)
            if planned:
                borrowed = without_code(borrowed, flags)
            elif trusted is not True:
                refuse_code(borrowed, flags, f"'{run}'")
            chosen_by_model[name] = replace(chosen, families={"": borrowed})
    return chosen_by_model


def _refuse_several_seeks(chosen_by_model: Mapping[str, Chosen]) -> None:
    """Raise SettingsError if several models are to seek.

    Each chooses lengths of its own, so a table of the models would compare uneven means.
    """
    seeks = any(
        settings.seek is not None
        for chosen in chosen_by_model.values()
        for settings in chosen.families.values()
    )
    if seeks and len(chosen_by_model) > 1:
        raise SettingsError("--seek is for one model at a time. Give one --model.")


def without_families(chosen: Chosen, names: Sequence[str]) -> Chosen:
    """Leave families out, and weighted means that need them.

    Raises SettingsError for a name that is not one of the suite's, and if none is left.
    """
    if not chosen.suite:
        raise SettingsError("--skip leaves out families of a suite: name one, e.g. suite:ruler.")
    if unknown := sorted(set(names) - set(chosen.families)):
        raise SettingsError(
            f"Suite '{chosen.suite}' has no family '{unknown[0]}'. Families: "
            f"{', '.join(chosen.families)}."
        )
    families = {name: settings for name, settings in chosen.families.items() if name not in names}
    if not families:
        raise SettingsError("--skip leaves out all families. Name fewer.")
    scores = {name: means for name, means in chosen.scores.items() if not set(means) & set(names)}
    return replace(chosen, families=families, scores=scores)


def folders_of(chosen_by_model: Mapping[str, Chosen]) -> list[str]:
    """Return the folders in a run's that hold the families of its models, or '' for itself."""
    return [
        f"{name}/{family}".strip("/")
        for name, chosen in chosen_by_model.items()
        for family in chosen.families
    ]
