"""ab.json: what an ab fixed beforehand, and what it found; the arms as they are typed.

A stranger's file may name any folder of this machine: names are looked at before they are
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

AGAIN = "again"  # the reference's second asking
WEIGHED = "-weighed"  # behind the name of a family whose answers are given
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]{0,30}")
_HOST = re.compile(r"[\w.-]+:\d+(/|$)")  # an address without its scheme


@dataclass(frozen=True, slots=True)
class Arm:
    """One side. model: BACKEND/NAME, '' where only its server knows. base_url: where it is
    served, '' for one that needs no address."""

    name: str
    model: str
    base_url: str = ""

    @classmethod
    def of(cls, typed: str, model: str) -> Arm:
        """From NAME=URL or NAME=MODEL; model: of the addresses. Raises SettingsError."""
        name, equals, value = typed.partition("=")
        if not equals or not value or not NAME.fullmatch(name) or name == AGAIN:
            raise SettingsError(
                f"--arm '{typed}' names no arm. Give NAME=URL or NAME=MODEL, as --arm "
                f"fp8=http://127.0.0.1:8001/v1; a name has letters, digits, '_' and '.', and is "
                f"not "
                f"'{AGAIN}'."
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
    """Where one of the worst prompts is; depth in percent."""

    model_config = ConfigDict(extra="allow")
    family: str
    length: int
    depth: float
    repeat: int


class Findings(BaseModel):
    """What an ab came to at its last end, as its JSON document has it."""

    model_config = ConfigDict(extra="allow")
    worst: list[WorstPrompt] = []


class AbFile(BaseModel):
    """ab.json: what was fixed beforehand, and what was found at the last end."""

    schema_version: int = 1
    seed: int
    margin: Annotated[float, Field(ge=0, le=100)]
    arms: list[Arm]
    families: list[str]
    grids: list[
        tuple[list[int], list[float]]
    ] = []  # by family: lengths in tokens, depths as shares
    until_decided: bool = False  # whether a verdict ends the asking
    scope: Literal["these", "new"] = "these"  # what the verdict is to hold for
    findings: Findings = Findings()


AB = DocumentKind("ab.json", "ab", AbFile, 1)


def read_ab(path: Path) -> AbFile:
    """ab.json. Raises NeedlemapError where there is none, or one that is none of ours."""
    file = AB.read(path)
    named = [*(arm.name for arm in file.arms), *file.families]
    if len(file.arms) != 2 or not all(map(NAME.fullmatch, named)):
        raise NeedlemapError(
            f"'{path / AB.file}' does not name two arms and their families. Give another folder."
        )
    return file


def worst_of_ab(path: Path, arm: str | None = None) -> tuple[str, tuple[str, float, int]]:
    """The family's folder of an arm, the other one if none is named, and length, depth in
    percent and repeat of the worst prompt. Raises NeedlemapError."""
    file = read_ab(path)
    names = [each.name for each in file.arms]
    if arm is not None and arm not in names:
        raise SettingsError(f"'{path}' has no arm '{arm}'. {did_you_mean(arm, names)}")
    if not file.findings.worst:
        raise NeedlemapError(f"No prompt of '{path}' was answered otherwise, so none is the worst.")
    worst = file.findings.worst[0]
    if worst.family not in file.families:
        raise NeedlemapError(f"'{path / AB.file}' names a family that it does not have.")
    return f"{arm or names[1]}-{worst.family}", (str(worst.length), worst.depth, worst.repeat)
