"""Report what a storm found.

Its page has a picture of the round in which the first fault came: a row a session, a square a
request. The sequence that `--shrink` left stands below it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from needlemap.reports.report import (
    COUNT,
    FIGURES,
    SENTENCE,
    Claim,
    Column,
    Fact,
    Report,
    Row,
    Square,
    Squares,
    Table,
)
from needlemap.servers.storm.evidence import WEAK
from needlemap.servers.storm.file import StormFile, StormRequest
from needlemap.servers.storm.outcome import CERTAIN
from needlemap.servers.storm.wording import rounded_up
from needlemap.stats.verdicts import FAIL, NO_RESULT, PASS, Verdict, Word, row_word

NOT_ENDED = Verdict(NO_RESULT, "it has not ended yet")
SOUND = ("right", "equal")
SQUARES = {
    "right": "■",
    "foreign": "F",
    "text": "T",
    "salad": "S",
    "lost": "L",
    "endless": "E",
    "empty": "0",
    "moved": "M",
    "refused": "R",
    "cancelled": "·",
}
# Also of a model that finds too little.
LETTERS = {**SQUARES, "equal": "■", "uncompared": "?"}
KINDS = (
    ("right", "right"),
    ("fault", "wrong, with the letter of the outcome"),
    ("gone", "the client went away, or was refused"),
    ("marked", "the first fault, and the sessions that share its texts"),
)
SHRUNK = (("other", "a request that it takes"), ("fault", "the answer that is wrong"))
TIME_LINE = (
    Column("session", "session"),
    Column("waves", "time"),
    Column("operations", "operations"),
    Column("marked", "fault", SENTENCE),
)
COLUMNS = (
    Column("operation", "operation"),
    Column("state", "verdict", FIGURES),
    Column("requests", "requests", COUNT),
    Column("right", "right", COUNT),
    Column("others", "others", SENTENCE),
)


def storm_report(path: Path, found: StormFile) -> Report:
    """Return the report of a storm."""
    verdict = found.verdict or NOT_ENDED
    first = _first_fault(found)
    return Report(
        "storm",
        found.model,
        (
            Fact("storm", str(path)),
            Fact("wanted", found.wanted),
            Fact("highest", found.highest),
            Fact("requests", found.requests),
            Fact("families", found.families),
            Fact("faulty", found.faulty),
            Fact("rounds", found.rounds),
            Fact("counts", dict(found.counts)),
            Fact("suspects", [suspect.model_dump() for suspect in found.suspects]),
            Fact("first_fault", first.model_dump() if first else None),
            Fact(value=f"{found.families:,}", head="Families", note="of requests that share texts"),
            Fact(value=f"{found.requests:,}", head="Requests"),
            Fact(
                value=f"{rounded_up(found.highest)} %",
                head="Not excluded",
                note="the highest rate of faulty families",
            ),
            Table("operations", COLUMNS, _rows(found)),
            *([_time_line(found, first)] if first else []),
            *(Fact(said=line) for line in found.said),
        ),
        verdict,
        (Claim("storm", verdict.word, text="\n".join([verdict.line("storm"), *found.said])),),
        squares=tuple(_pictures(found, first)),
    )


def _rows(found: StormFile) -> tuple[Row, ...]:
    """Return a row for each operation: its word, and what came of its requests."""
    by_operation: dict[str, list[StormRequest]] = {}
    for request in found.sequence:
        by_operation.setdefault(request.operation, []).append(request)
    rows = []
    for name, requests in sorted(by_operation.items()):
        counts = Counter(request.outcome for request in requests)
        others = ", ".join(
            f"{count} {word}" for word, count in sorted(counts.items()) if word not in SOUND
        )
        rows.append(
            {
                "operation": name,
                "state": _word(found, requests),
                "requests": len(requests),
                "right": sum(counts[word] for word in SOUND),
                "others": others,
            }
        )
    return tuple(map(Row, rows))


def _word(found: StormFile, requests: Sequence[StormRequest]) -> Word | None:
    """Return the word for one operation, which never claims more than the storm's.

    None if no answer of it was waited for, or the storm has not ended yet.
    """
    answered = [request for request in requests if request.outcome != "cancelled"]
    if found.verdict is None or not answered:
        return None
    lost_again = {replay.key for replay in found.suspects if replay.lost > replay.cold_lost}
    is_faulty = any(request.outcome in CERTAIN or request.key in lost_again for request in answered)
    right = sum(request.outcome in SOUND for request in answered)
    return row_word(
        fails=found.verdict.word == FAIL and is_faulty,
        passes=found.verdict.word == PASS or (not is_faulty and right >= WEAK * len(answered)),
        points=is_faulty,
    )


def _time_line(found: StormFile, first: StormRequest) -> Table:
    """Return the round of the first fault, session by session.

    It has a square for each request, in the column of its wave. The faulty session is marked, and
    those of its family.
    """
    requests = [request for request in found.sequence if request.round == first.round]
    columns = _columns(requests)
    sessions: dict[tuple[int, int], list[StormRequest]] = {}
    for request in requests:
        sessions.setdefault((request.family, request.session), []).append(request)
    squares = _squares(found)
    rows = []
    for (family, session), sent in sorted(sessions.items()):
        mark = ""
        if (family, session) == (first.family, first.session):
            mark = f"the first fault: request {first.key}, {first.operation}, {first.outcome}"
        elif family == first.family:
            mark = "of the same family"
        values = {
            "session": f"{family}.{session}",
            "waves": _line(sent, columns, squares),
            "operations": ", ".join(dict.fromkeys(request.operation for request in sent)),
            "marked": mark,
        }
        rows.append(Row(values))
    key = ", ".join(f"{square} {word}" for word, square in squares.items())
    return Table(
        "time_line",
        TIME_LINE,
        tuple(rows),
        f"round {first.round}, a square a request, by wave",
        after=key,
        folded="The time line as text",
    )


def _line(
    requests: Iterable[StormRequest], columns: Mapping[int, int], squares: Mapping[str, str]
) -> str:
    """Return a session's squares; of several in one column the first that is not right."""
    line = [" "] * len(columns)
    for request in requests:
        column = columns[request.wave]
        if line[column] in (" ", SQUARES["right"]):
            line[column] = squares.get(request.outcome, "?")
    return "".join(line).rstrip()


def _pictures(found: StormFile, first: StormRequest | None) -> Iterator[Squares]:
    """Yield the round of the first fault, and the shrunk sequence."""
    if first is not None:
        requests = [request for request in found.sequence if request.round == first.round]
        title = f"Round {first.round}, session by session, time to the right"
        yield Squares(title, _by_session(requests, first), KINDS)
    if found.shrunk:
        title = "The shortest sequence that shows it"
        yield Squares(title, _by_session(found.shrunk), SHRUNK)


def _by_session(
    requests: Sequence[StormRequest], first: StormRequest | None = None
) -> tuple[tuple[str, tuple[Square, ...]], ...]:
    """Return a row a session. Faults come last, so that they are drawn over others."""
    rows: dict[tuple[int, int], list[Square]] = {}
    columns = _columns(requests)
    for request in sorted(requests, key=lambda request: _kind(request.outcome) == "fault"):
        outcome = request.outcome
        letter = "" if outcome in (*SOUND, "") else LETTERS.get(outcome, "!")
        title = f"request {request.key}, {request.operation}, {request.tokens:,} tokens, {outcome}"
        square = Square(
            columns[request.wave],
            _kind(outcome),
            letter,
            title.rstrip(", "),
            first is not None and request.family == first.family,
        )
        rows.setdefault((request.family, request.session), []).append(square)
    return tuple(
        (f"{family}.{session}", tuple(squares))
        for (family, session), squares in sorted(rows.items())
    )


def _columns(requests: Iterable[StormRequest]) -> dict[int, int]:
    """Return the column of each wave.

    Waves are numbered by those that there are, whatever numbers a file has.
    """
    waves = sorted({request.wave for request in requests})
    return {wave: column for column, wave in enumerate(waves)}


def _kind(outcome: str) -> str:
    """Return how a square is drawn."""
    if outcome in ("cancelled", "refused"):
        return "gone"
    if outcome in ("uncompared", ""):
        return "other"
    return "right" if outcome in SOUND else "fault"


def _squares(found: StormFile) -> dict[str, str]:
    """Return the squares of a storm's outcomes, by how it was judged."""
    return SQUARES if found.little is None else LETTERS


def _first_fault(found: StormFile) -> StormRequest | None:
    """Return the first request that was a fault by itself.

    Else it is the first whose replays were lost more often than its cold requests; None if there is
    neither.
    """
    suspects = {suspect.key for suspect in found.suspects if suspect.lost > suspect.cold_lost}
    for request in found.sequence:
        if request.outcome in CERTAIN:
            return request
    for request in found.sequence:
        if request.key in suspects:
            return request
    return None
