"""What a probe came to, at each size and in all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from needlemap.records.document import DocumentKind
from needlemap.servers.check.ask import Reply
from needlemap.servers.check.effects import Effect
from needlemap.stats.verdicts import FAIL, OPEN, Verdict, Word

SCHEMA = 3
State = Word | Literal["not applicable"]
UNITS = (
    "excludes: a pass at every size rules out a loss of so many points (95 %); tokens: of all that "
    "serves a probe"
)


@dataclass(frozen=True, slots=True)
class KnownIssue:
    """A public fault that looks like a finding. tried: what to do about it."""

    name: str
    link: str
    tried: str


def issue(where: str, name: str, tried: str) -> KnownIssue:
    """A fault by its place on GitHub, as owner/name#number."""
    repository, _, number = where.partition("#")
    return KnownIssue(name, f"https://github.com/{repository}/issues/{number}", tried)


@dataclass(frozen=True, slots=True)
class Worst:
    """The smallest trial that shows a finding: its way of asking, and its place there."""

    way: str
    length_tokens: int
    depth: float
    repeat: int

    @classmethod
    def of(cls, reply: Reply) -> Worst:
        """The place of an answer."""
        ask = reply.ask
        return cls(ask.family, ask.length, ask.depth, ask.repeat)


@dataclass(frozen=True, slots=True)
class AtSize:
    """What a probe came to at one size.

    n: answers or pairs. lost, gained: of these, noise
    left out. effect: a loss as a share, with its 95 % interval; upper: points of loss that are not
    excluded. p: chance of as much on a server without this fault. limit: points below which upper
    must stay for a pass. worst: where to look. suspects: pairs that were lost each time they were
    asked again, noise: pairs that were not, left: lost pairs that were not asked again.
    """

    size: Annotated[int, Field(ge=1)]
    state: Word
    n: int = 0
    lost: int = 0
    gained: int = 0
    effect: Effect | None = None
    upper: float | None = None
    p: float | None = None
    said: str = ""
    worst: Worst | None = None
    suspects: tuple[Worst, ...] = ()
    noise: int = 0
    left: int = 0

    @property
    def is_open(self) -> bool:
        """Whether it neither passes nor fails."""
        return self.state in OPEN


@dataclass(frozen=True, slots=True)
class Finding:
    """What a probe came to. sizes: at each size. said: in words. passes_to: the longest size up to
    which it passes, None without one. decides: whether the exit code hears of it. tokens, seconds:
    what was sent for it, and how long it was waited for; what serves several probes counts for
    each."""

    probe: str
    state: State
    n: int
    said: str
    effect: Effect | None = None
    p: float | None = None
    worst: Worst | None = None
    known: tuple[KnownIssue, ...] = ()
    sizes: tuple[AtSize, ...] = ()
    passes_to: int | None = None
    excludes: str = ""
    decides: bool = True
    accepted: tuple[int, ...] = ()
    tokens: int = 0
    seconds: float = 0.0

    @property
    def is_open(self) -> bool:
        """Whether it neither passes nor fails."""
        return self.state in OPEN


class CheckFile(BaseModel):
    """check.json: what a check was asked to do, and what its probes found at its last end. lacking:
    probes that do not apply, and why."""

    schema_version: int = SCHEMA
    seed: int
    model: str
    reference: str = ""
    max_length: int
    load: int
    sizes: list[int] = []
    looks: list[int] = []
    verdict: Verdict | None = None
    not_asked: list[str] = []
    lacking: dict[str, str] = {}
    findings: list[Finding] = []

    @property
    def seen(self) -> tuple[list[int], dict[str, Finding]]:
        """The looks so far, and what was found at them."""
        failed = {each.probe: each for each in self.findings if each.state == FAIL}
        return list(self.looks), failed


CHECK = DocumentKind("check.json", "check", CheckFile, SCHEMA)


def read_check(path: Path) -> CheckFile:
    """check.json. Raises NeedlemapError where there is none, or one that is none of ours."""
    return CHECK.read(path)
