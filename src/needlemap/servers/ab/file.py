"""Keep ab.json: what an ab fixed beforehand, and what it found; read arms as they are typed.

A stranger's file may name any folder of this machine, so names are checked before they are
followed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from needlemap.errors import NeedlemapError, SettingsError, did_you_mean
from needlemap.records.document import DocumentKind

# The reference's second asking.
AGAIN = "again"
# After the name of a family whose answers are given.
WEIGHED = "-weighed"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]{0,30}")
# An address without its scheme.
_HOST = re.compile(r"[\w.-]+:\d+(/|$)")


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of an ab.

    Attributes:
        name: Its name.
        model: BACKEND/NAME; '' if only its server knows.
        base_url: The address at which it is served; '' if it needs none.
    """

    name: str
    model: str
    base_url: str = ""

    @classmethod
    def of(cls, typed: str, model: str) -> Arm:
        """Return the arm that NAME=URL or NAME=MODEL describes.

        model: the model at an address. Raises SettingsError if the text is neither.
        """
        name, equals, value = typed.partition("=")
        if not equals or not value or not NAME.fullmatch(name) or name == AGAIN:
            raise SettingsError(
                f"--arm '{typed}' names no arm. Give NAME=URL or NAME=MODEL, as --arm "
                f"fp8=http://127.0.0.1:8001/v1; a name has letters, digits, '_' and '.', and is "
                f"not '{AGAIN}'."
            )
        if _HOST.match(value):
            raise SettingsError(
                f"--arm '{typed}': an address begins with http:// or https://, as {name}="
                f"http://{value}"
            )
        if "://" not in value:
            return cls(name, value)
        return cls(name, model, value)


class WorstPrompt(BaseModel):
    """The place of one of the worst prompts. depth: in percent."""

    model_config = ConfigDict(extra="allow")
    family: str
    length: int
    depth: float
    repeat: int


class Findings(BaseModel):
    """The findings of an ab when it last ended, in the form of its JSON document."""

    model_config = ConfigDict(extra="allow")
    worst: list[WorstPrompt] = []


class AbFile(BaseModel):
    """ab.json: the options that were fixed beforehand, and the findings.

    Attributes:
        grids: By family, lengths in tokens and depths as shares.
        until_decided: Whether a verdict ends the asking.
        scope: The haystacks that the verdict is to hold for: these, or new ones.
    """

    schema_version: int = 1
    seed: int
    margin: Annotated[float, Field(ge=0, le=100)]
    arms: list[Arm]
    families: list[str]
    grids: list[tuple[list[int], list[float]]] = []
    until_decided: bool = False
    scope: Literal["these", "new"] = "these"
    findings: Findings = Findings()


AB = DocumentKind("ab.json", "ab", AbFile, 1)


def read_ab(path: Path) -> AbFile:
    """Read ab.json. Raises NeedlemapError if it is missing, or names no two arms and families."""
    file = AB.read(path)
    names = [*(arm.name for arm in file.arms), *file.families]
    if len(file.arms) != 2 or not all(map(NAME.fullmatch, names)):
        raise NeedlemapError(
            f"'{path / AB.file}' does not name two arms and their families. Give another folder."
        )
    return file


def worst_of_ab(path: Path, arm: str | None = None) -> tuple[str, tuple[str, float, int]]:
    """Return the folder name and the place of the worst prompt.

    The folder is that of the named arm's family, or of the other arm's if no arm is named. The
    place is length, depth in percent, and repeat.

    Raises SettingsError for an unknown arm, and NeedlemapError if there is no worst prompt.
    """
    file = read_ab(path)
    names = [side.name for side in file.arms]
    if arm is not None and arm not in names:
        raise SettingsError(f"'{path}' has no arm '{arm}'. {did_you_mean(arm, names)}")
    if not file.findings.worst:
        raise NeedlemapError(f"No prompt of '{path}' was answered otherwise, so none is the worst.")
    worst = file.findings.worst[0]
    if worst.family not in file.families:
        raise NeedlemapError(f"'{path / AB.file}' names a family that it does not have.")
    return f"{arm or names[1]}-{worst.family}", (str(worst.length), worst.depth, worst.repeat)
