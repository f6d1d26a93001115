"""The families to ask each model, from a preset and flags, or another run's prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from needlemap.asking.resume import with_prompts_of
from needlemap.settings.suites import Chosen, choose_each
from needlemap.settings.trust import Trust, refuse_code, without_code


def models_to_ask(
    named: str | None,
    flags: Mapping[str, Any],
    *,
    trusted: Trust = False,
    planned: bool = False,
) -> dict[str, Chosen]:
    """The families to ask each model, by the name of its folder ('' of a single model).

    named, flags, planned: as `choose_each` takes them. trusted: follow the run whose prompts are
    asked, though another machine began it; 'prompts': as far as that asks and runs nothing.
    Raises NeedlemapError.
    """
    each = choose_each(named, flags, trusted=trusted, planned=planned)
    for name, chosen in each.items():
        run = chosen.first.prompts_of
        if run and isinstance(run, str) and not chosen.suite:  # a suite refuses it when prepared
            lent = with_prompts_of(chosen.first, Path(run), trusted)
            if planned:
                lent = without_code(lent, flags)
            elif trusted is not True:
                refuse_code(lent, flags, f"'{run}'")
            each[name] = replace(chosen, families={"": lent})
    return each


def folders_of(each: Mapping[str, Chosen]) -> list[str]:
    """The folders in a run's that the families of its models lie in; '' for itself."""
    return [
        f"{name}/{family}".strip("/") for name, chosen in each.items() for family in chosen.families
    ]
