"""storm.json: what a storm fixed at its beginning, what it found, and the whole sequence with
times."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from needlemap.grid import MOST_LENGTH
from needlemap.records.document import DocumentKind
from needlemap.servers.storm.act import ACTS
from needlemap.settings import MOST_AT_A_TIME
from needlemap.stats.verdicts import Verdict

SCHEMA = 2


class StormRequest(BaseModel):
    """One request, in the order of sending. key: the number of its record. at_s: seconds since the
    first; seconds: until its answer, or until the client went away. shares: keys of earlier
    requests of the same family. whose, ago: of a foreign secret, whose it is and from how many
    requests before. nats: by how many nats a token its margins moved from the reference's, None
    where that was not looked at."""

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


class Replayed(BaseModel):
    """A suspect: how often it was lost, or its margins moved, in replays of its sequence, and cold
    and salted."""

    key: int
    outcome: str
    replayed: int = 0
    lost: int = 0
    cold_lost: int = 0


def _drawable(requests: list[StormRequest]) -> list[StormRequest]:
    """Requests of rounds that can be drawn, session by wave. Raises ValueError, as pydantic wants
    it."""
    if any(count > ACTS for count in Counter(each.round for each in requests).values()):
        raise ValueError(f"a round has more than {ACTS:,} requests")
    return requests


_Requests = Annotated[list[StormRequest], AfterValidator(_drawable)]


class StormFile(BaseModel):
    """storm.json. framing: tokens that the server counts beside ours. pace: seconds of a prompt,
    and of each of its tokens. wanted: the rate that was to be excluded, a share. shrunk: the
    shortest sequence that shows a fault, once it was looked for. without: operations that are left
    out, each from which round on. reference: beside which margins
    were compared, '' for none; limit_nats: beyond which they are in doubt."""

    schema_version: int = SCHEMA
    seed: int
    model: str
    max_length: Annotated[int, Field(ge=0, le=MOST_LENGTH)]
    load: Annotated[int, Field(ge=0, le=MOST_AT_A_TIME)]
    kv_tokens: int | None = None
    cancels: bool = True
    many: bool = True
    without: dict[str, int] = {}
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
    sequence: _Requests = []
    shrunk: _Requests = []


STORM = DocumentKind("storm.json", "storm", StormFile, SCHEMA)
