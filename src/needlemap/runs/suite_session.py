"""A suite from start to end: one family after the other, with one model and one budget.

A family's prompts are built when its turn comes and let go of when it is done, so that a suite of many needs
no more memory, and its first request waits no longer, than one of few.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import monotonic
from typing import Protocol

from needlemap.errors import NeedlemapError
from needlemap.models.base import Model
from needlemap.runs.families import Families, budget_beside
from needlemap.runs.session import Session, make_model
from needlemap.settings.settings import Settings
from needlemap.trials.build import prepare


class Asking(Protocol):
    """Asks what is left of families."""

    async def ask(self, family: str, session: Session, model: Model) -> bool:
        """Ask one; whether to go on with the next. The model stays open."""
        ...

    def unprepared(self, family: str, error: NeedlemapError) -> None:
        """Hear that one cannot be asked, for what only building all its prompts showed: the others can."""
        ...


async def ask_families(folder: Families, settled: Mapping[str, Settings], asking: Asking) -> None:
    """Ask the families that are not whole yet, in their order. The model is made when the first of them is
    about to be asked, and closed at the end. Raises NeedlemapError."""
    turns = _Turns(folder, asking)
    try:
        for family, settings in settled.items():
            if not await turns.take(family, settings):
                break
    finally:
        if turns.model is not None:
            await turns.model.close()


class _Turns:
    """What stays from one family to the next."""

    def __init__(self, folder: Families, asking: Asking) -> None:
        self._folder, self._asking, self._started_s = folder, asking, monotonic()
        self.model: Model | None = None

    async def take(self, family: str, settings: Settings) -> bool:
        """Whether to go on after this family."""
        try:
            session = Session.open(prepare(settings), self._folder.folder(family))
        except NeedlemapError as error:
            self._asking.unprepared(family, error)
            return True
        if not session.wanted:
            return True
        if self.model is None:
            self.model = make_model(settings)
        budget = budget_beside(settings, self._folder.beside(family), self._started_s)
        return await self._asking.ask(family, replace(session, budget=budget), self.model)
