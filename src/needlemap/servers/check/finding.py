"""Findings of probes, at each size and in all, and the file that keeps them."""

from __future__ import annotations

from dataclasses import dataclass
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
    """A public fault that looks like a finding. tried: a setting that removes it."""

    name: str
    link: str
    tried: str


def issue(where: str, name: str, tried: str) -> KnownIssue:
    """Return a fault by its place on GitHub, e.g. owner/name#number."""
    repository, _, number = where.partition("#")
    return KnownIssue(name, f"https://github.com/{repository}/issues/{number}", tried)


@dataclass(frozen=True, slots=True)
class Worst:
    """The smallest trial that shows a finding: its family, and its place there."""

    way: str
    length_tokens: int
    depth: float
    repeat: int

    @classmethod
    def of(cls, reply: Reply) -> Worst:
        """Return the place of an answer."""
        ask = reply.ask
        return cls(
            way=ask.family,
            length_tokens=ask.length,
            depth=ask.depth,
            repeat=ask.repeat,
        )


@dataclass(frozen=True, slots=True)
class AtSize:
    """The finding of a probe at one size.

    n: answers or pairs.
    lost, gained: of these.
    effect: a loss as a share of all of them, with its 95 % interval.
    upper: points of loss that are not ruled out.
    p: chance of as large a loss on a server without this fault.
    said: the finding in words.
    worst: the trial to look at first.
    suspects: pairs that were lost each time they were sent again.
    noise: number of lost pairs that were found again without a net loss. They keep no size from
        passing.
    left: number of lost pairs that were not sent again.
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
        """Return True if it neither passes nor fails."""
        return self.state in OPEN


@dataclass(frozen=True, slots=True)
class Band:
    """Prompts of `tokens` tokens and more, up to the next band.

    n: prompts.
    beyond: those that moved by more than the limit.
    most_nats: the largest move, or None if texts were compared.
    """

    tokens: int
    n: int
    beyond: int
    most_nats: float | None


@dataclass(frozen=True, slots=True)
class WayRow:
    """The finding of a way of asking, compared with the same prompts alone and cold.

    n: prompts.
    beyond: those that moved by more than limit_nats.
    confirmed: those that did so again.
    percentiles: of all moves in nats, by percent; the values are None if texts were compared.
    alike: share of equal first tokens.
    bands: prompts by their tokens.
    left_out: replies that were not in the state that the way needs.
    """

    way: str
    state: Word | Literal["not tested"]
    n: int
    beyond: int
    confirmed: int
    limit_nats: float
    percentiles: dict[int, float | None]
    alike: float | None
    bands: tuple[Band, ...]
    left_out: int
    said: str


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of a probe.

    said: the finding in words.
    sizes: its rows, one for each size.
    ways: its rows by way of asking, of the probe `ways` only.
    passes_to: the longest size up to which it passes, or None if the first size does not pass.
    decides: False if the exit code does not depend on it.
    tokens, seconds: what was sent for it, and how long its answers took. A prompt that serves
        several probes counts for each.
    """

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
    ways: tuple[WayRow, ...] = ()

    @classmethod
    def not_applicable(cls, probe: str, reason: str, *, decides: bool) -> Finding:
        """Return the finding of a probe that does not apply."""
        return cls(probe, state="not applicable", n=0, said=reason, decides=decides)

    @property
    def is_open(self) -> bool:
        """Return True if it neither passes nor fails."""
        return self.state in OPEN


class CheckFile(BaseModel):
    """The file check.json: the options of a check, and its findings when it last ended.

    lacking: probes that do not apply, each with the reason.
    """

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
    def failed_findings(self) -> dict[str, Finding]:
        """Return the findings that failed at any look, by probe."""
        return {finding.probe: finding for finding in self.findings if finding.state == FAIL}


CHECK = DocumentKind("check.json", "check", CheckFile, SCHEMA)
