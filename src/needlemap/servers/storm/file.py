"""Keep storm.json: what a storm settled at its start, what it found, and the whole sequence."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from needlemap.grid import MOST_LENGTH
from needlemap.records.document import DocumentKind
from needlemap.servers.storm.act import ACTS
from needlemap.servers.storm.evidence import Observation, Suspect
from needlemap.settings import MOST_AT_A_TIME
from needlemap.stats.verdicts import Verdict

SCHEMA = 2


class StormRequest(BaseModel):
    """One request, in the order of sending.

    Attributes:
        key: The number of its record.
        at_s: Seconds since the first request.
        seconds: Seconds until its answer, or until the client went away.
        whose: Of a foreign secret: the record of the request that sent it first.
        ago: How many requests before that was.
        nats: By how many nats a token its margins moved from the reference's; None if they were
            not compared.
    """

    key: int
    round: int
    wave: int
    family: int
    session: int
    operation: str
    at_s: float
    seconds: float
    tokens: int = 0
    cached: int | None = None
    outcome: str = ""
    foreign: str = ""
    whose: int | None = None
    ago: int = 0
    nats: float | None = None

    @classmethod
    def of(cls, request: Observation, start_s: float) -> StormRequest:
        """Return a request as storm.json keeps it. start_s: when the first was sent."""
        outcome = request.outcome
        return cls(
            key=request.key,
            round=request.round,
            wave=request.act.wave,
            family=request.act.family,
            session=request.act.session,
            operation=request.act.operation,
            at_s=round(max(0.0, request.at_s - start_s), 3) if request.at_s else 0.0,
            seconds=round(request.seconds, 3),
            tokens=request.tokens,
            cached=request.cached,
            outcome=outcome.word,
            foreign=outcome.foreign,
            whose=outcome.whose,
            ago=outcome.ago,
            nats=request.nats,
        )


class Replayed(BaseModel):
    """A suspect, and how often its sequence showed it again.

    Attributes:
        replayed: How often its sequence was replayed.
        lost: In how many of these replays it was lost, or its margins moved.
        cold_lost: The same of as many cold requests.
    """

    key: int
    outcome: str
    replayed: int = 0
    lost: int = 0
    cold_lost: int = 0

    @classmethod
    def of(cls, suspect: Suspect) -> Replayed:
        """Return a suspect as storm.json keeps it."""
        lost, lost_cold, count = suspect.replays
        return cls(
            key=suspect.request.key,
            outcome=suspect.request.outcome.word,
            replayed=count,
            lost=lost,
            cold_lost=lost_cold,
        )


def _drawable(requests: list[StormRequest]) -> list[StormRequest]:
    """Return requests whose rounds can be drawn, session by wave.

    Raises ValueError, which pydantic turns into its own error.
    """
    counts = Counter(request.round for request in requests)
    if any(count > ACTS for count in counts.values()):
        raise ValueError(f"a round has more than {ACTS:,} requests")
    return requests


_Requests = Annotated[list[StormRequest], AfterValidator(_drawable)]


class StormFile(BaseModel):
    """storm.json.

    Attributes:
        without: Operations that are left out, each with the round from which on.
        little: Of a model that is judged by equal ways of asking, because it finds too little: how
            many facts it found at first, and of how many.
        slots: Whether the server saves slots.
        other: Its second model; '' for none.
        framing: Tokens that the server counts in addition to ours.
        pace: Seconds of a prompt, and of each of its tokens.
        wanted: The rate that was to be excluded, a share.
        reference: The model whose margins were compared; '' for none.
        limit_nats: Nats a token beyond which margins are in doubt.
        tested: Operations that could show a fault.
        shrunk: The shortest sequence that shows a fault, once it was looked for.
    """

    schema_version: int = SCHEMA
    seed: int
    model: str
    max_length: Annotated[int, Field(ge=0, le=MOST_LENGTH)]
    load: Annotated[int, Field(ge=0, le=MOST_AT_A_TIME)]
    kv_tokens: int | None = None
    cancels: bool = True
    many: bool = True
    without: dict[str, int] = {}
    little: tuple[int, int] | None = None
    slots: bool = False
    other: str = ""
    framing: int = 0
    pace: tuple[float, float] = (0.0, 0.0)
    wanted: float = 0.005
    reference: str = ""
    limit_nats: float | None = None
    verdict: Verdict | None = None
    said: list[str] = []
    counts: dict[str, int] = {}
    rounds: int = 0
    requests: int = 0
    families: int = 0
    faulty: float = 0.0
    highest: float = 1.0
    suspects: list[Replayed] = []
    tested: list[str] = []
    sequence: _Requests = []
    shrunk: _Requests = []


STORM = DocumentKind("storm.json", "storm", StormFile, SCHEMA)
