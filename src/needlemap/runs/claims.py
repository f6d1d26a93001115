"""Who does which work unit: small files in a folder that all workers share, of which one maker alone wins.

    unit-0007.1            the first claim on unit 7: which worker, and how many trials were left
    unit-0007.1.done       how it ended; or .returned, .died, .stuck
    unit-0007.set-aside    it killed its worker three times

A claim is a hard link, which every network file system makes once or not at all; no lock is needed. What ends
a claim is in the file's name, so one listing of the folder tells everything.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from uuid import uuid4

from pydantic import BaseModel, ValidationError

from needlemap.errors import NeedlemapError
from needlemap.files import read_regular

MOST_DEATHS = 3  # of workers on one unit, before it is set aside


class Ending(StrEnum):
    """How a claim ended."""

    DONE = "done"
    RETURNED = "returned"  # its worker was told to stop, or lost for no fault of the unit's
    DIED = "died"  # its worker died, having scored some of it
    STUCK = "stuck"  # its worker died, having scored nothing of it


@dataclass(frozen=True, slots=True)
class Claim:
    """One attempt at a unit. left: its trials without a score when it was claimed."""

    unit: int
    attempt: int
    worker: str
    left: int


@dataclass(slots=True)
class Standing:
    """How the units stand. fresh: free, and none of their workers died; suspect: free, but one did.

    held: the attempt at each that is claimed. claims: how many each had. deaths: of its workers, in a row.
    """

    fresh: set[int] = field(default_factory=set)
    suspect: set[int] = field(default_factory=set)
    held: dict[int, int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    aside: set[int] = field(default_factory=set)
    claims: dict[int, int] = field(default_factory=dict)
    deaths: dict[int, int] = field(default_factory=dict)

    @property
    def free(self) -> set[int]:
        """Units that nobody has."""
        return self.fresh | self.suspect


class Claims:
    """The claims on a number of units, in a folder."""

    def __init__(self, folder: Path, units: int) -> None:
        self._folder, self._units = folder, units

    def standing(self) -> Standing:
        """How all units stand, by one listing."""
        endings: dict[int, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        aside = set()
        for name in os.listdir(self._folder):
            if found := _CLAIM.fullmatch(name):
                endings[int(found[1])][int(found[2])].add(found[3] or "")
            elif found := _ASIDE.fullmatch(name):
                aside.add(int(found[1]))
        standing = Standing(aside=aside)
        for unit in range(self._units):
            _place(standing, unit, endings.get(unit, {}))
        return standing

    def take(self, unit: int, attempt: int, worker: str, left: int) -> Claim | None:
        """Claim a unit; None when somebody was quicker."""
        claim = Claim(unit, attempt, worker, left)
        made = self._made(f"{_name(unit)}.{attempt}", {"worker": worker, "left": left})
        return claim if made else None

    def end(self, claim: Claim, ending: Ending, why: str = "") -> None:
        """Say how a claim ended. Saying it twice changes nothing."""
        self._made(f"{_name(claim.unit)}.{claim.attempt}.{ending}", {"worker": claim.worker, "why": why})

    def set_aside(self, unit: int, why: str) -> None:
        """Take a unit out of the run: nobody claims it any more."""
        self._made(f"{_name(unit)}.set-aside", {"why": why})

    def held(self, standing: Standing) -> list[Claim]:
        """The claims that have not ended."""
        return [self._read(unit, attempt) for unit, attempt in standing.held.items()]

    def endings(self, unit: int) -> list[tuple[str, str]]:
        """Of a unit's ended claims the worker, and why it ended."""
        files = sorted(self._folder.glob(f"{_name(unit)}.*.*"), key=lambda file: file.name)
        rows = [_row(file) for file in files if _CLAIM.fullmatch(file.name)]
        return [(row.worker, row.why) for row in rows]

    def _read(self, unit: int, attempt: int) -> Claim:
        row = _row(self._folder / f"{_name(unit)}.{attempt}")
        return Claim(unit, attempt, row.worker, row.left)

    def _made(self, name: str, row: dict[str, object]) -> bool:
        """Whether this call made the file: written whole under a name of its own, then linked."""
        draft = self._folder / f"draft-{uuid4().hex}"
        draft.write_text(json.dumps(row), encoding="utf-8")
        try:
            os.link(draft, self._folder / name)
        except FileExistsError:
            return draft.stat().st_nlink == 2  # over a network the answer to a link that worked may be lost
        except OSError as error:
            raise NeedlemapError(
                f"'{self._folder}' is on a file system without hard links ({error.strerror}), by which "
                f"workers claim their work. Give a folder on another one with -o."
            ) from None
        finally:
            draft.unlink()
        return True


class _Row(BaseModel):
    """What a claim's file holds, or that of its end."""

    worker: str
    left: int = 0
    why: str = ""


def _row(file: Path) -> _Row:
    """Raises NeedlemapError for a file that is no claim's."""
    try:
        return _Row.model_validate_json(read_regular(file))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]["msg"]
        raise NeedlemapError(f"'{file}' is no claim of this needlemap: {problem}.") from None


_CLAIM = re.compile(r"unit-(\d+)\.(\d+)(?:\.(done|returned|died|stuck))?")
_ASIDE = re.compile(r"unit-(\d+)\.set-aside")


def _name(unit: int) -> str:
    return f"unit-{unit:04d}"


def _place(standing: Standing, unit: int, attempts: dict[int, set[str]]) -> None:
    """Enter one unit. A death after which some of the unit was scored begins the row of deaths anew."""
    deaths, done = 0, False
    for number in sorted(attempts):
        endings = attempts[number]
        done = done or Ending.DONE in endings
        deaths = 1 if Ending.DIED in endings else deaths + (Ending.STUCK in endings)
    standing.claims[unit], standing.deaths[unit] = max(attempts, default=0), deaths
    if done:
        standing.done.add(unit)
        standing.aside.discard(unit)
    elif unit in standing.aside:
        return
    elif attempts and attempts[max(attempts)] <= {""}:
        standing.held[unit] = max(attempts)
    else:
        (standing.suspect if deaths else standing.fresh).add(unit)
