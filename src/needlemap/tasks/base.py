"""What a task is: (cell, repeat) -> needles with meant depths, question, reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from needlemap.grid import Cell
from needlemap.placement import Needle
from needlemap.scorers.base import Reference


@dataclass(frozen=True, slots=True)
class Item:
    """What one trial hides and asks."""

    needles: tuple[Needle, ...]
    question: str
    reference: Reference


class Task(Protocol):
    """Built as `Task(**options)`; unknown options raise SettingsError.

    name: its registered name. scorer: the scorer's name it wants when the settings name none.
    """

    name: str
    scorer: str

    def item(self, cell: Cell, repeat: int, seed: int) -> Item:
        """The item of one trial: a pure function of its arguments. Needles in the order of their depths."""
        ...
