"""Report the results of a storm.

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
from needlemap.servers.check.effects import rounded_up
from needlemap.servers.storm.evidence import WEAK
from needlemap.servers.storm.file import StormFile, StormRequest
from needlemap.servers.storm.outcome import CERTAIN, UNCOMPARED
from needlemap.stats.verdicts import FAIL, NOT_ENDED, PASS, Word, row_word

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


def storm_report(path: Path, file: StormFile) -> Report:
    """Return the report of a storm."""
    verdict = file.verdict or NOT_ENDED
    fault = _first_fault(file)
    return Report(
        "storm",
        file.model,
        (
            Fact("storm", str(path)),
            Fact("wanted", file.wanted),
            Fact("highest", file.highest),
            Fact("requests", file.requests),
            Fact("families", file.families),
            Fact("faulty", file.faulty),
            Fact("rounds", file.rounds),
            Fact("counts", dict(file.counts)),
            Fact("suspects", [suspect.model_dump() for suspect in file.suspects]),
            Fact("first_fault", fault.model_dump() if fault else None),
            Fact(value=f"{file.families:,}", head="Families", note="of requests that share texts"),
            Fact(value=f"{file.requests:,}", head="Requests"),
            Fact(
                value=f"{rounded_up(file.highest)} %",
                head="Not excluded",
                note="the highest rate of faulty families",
            ),
            Table("operations", COLUMNS, _rows(file)),
            *([_time_line(file, fault)] if fault else []),
            *(Fact(said=line) for line in file.said),
        ),
        verdict,
        (Claim("storm", verdict.word, text="\n".join([verdict.line("storm"), *file.said])),),
        squares=tuple(_pictures(file, fault)),
    )


def _rows(file: StormFile) -> tuple[Row, ...]:
    """Return a row for each operation, with its word and the outcomes of its requests."""
    by_operation: dict[str, list[StormRequest]] = {}
    for request in file.sequence:
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
                "state": _word(file, name, requests),
                "requests": len(requests),
                "right": sum(counts[word] for word in SOUND),
                "others": others,
            }
        )
    return tuple(map(Row, rows))


def _word(file: StormFile, name: str, requests: Sequence[StormRequest]) -> Word | None:
    """Return the word for one operation, which never claims more than the storm's.

    In a storm that fails, wrong answers count in the rate of faults, so that none of them passes.
    If all its requests were cancelled, if it could show no fault and shows none, or if the storm
    has not ended yet, return None.
    """
    answered = [request for request in requests if request.outcome != "cancelled"]
    if file.verdict is None or not answered:
        return None
    lost_again = {replay.key for replay in file.suspects if replay.lost > replay.cold_lost}
    is_faulty = any(request.outcome in CERTAIN or request.key in lost_again for request in answered)
    if not is_faulty and name not in file.tested:
        return None
    right = sum(request.outcome in SOUND for request in answered)
    is_enough = file.verdict.word == PASS or right >= WEAK * len(answered)
    storm_fails = file.verdict.word == FAIL
    points = is_faulty or (storm_fails and any(_is_wrong(request) for request in answered))
    return row_word(
        fails=storm_fails and is_faulty,
        passes=is_enough and not points,
        points=points,
    )


def _is_wrong(request: StormRequest) -> bool:
    """Return True if an answer is missing or not right, whatever the reason."""
    return request.outcome not in (*SOUND, UNCOMPARED)


def _time_line(file: StormFile, fault: StormRequest) -> Table:
    """Return the round of the first fault as a table with a row for each session.

    A row has a square for each request, in the column of its wave. The faulty session and those of
    its family are marked.
    """
    requests = [request for request in file.sequence if request.round == fault.round]
    columns = _columns_by_wave(requests)
    sessions: dict[tuple[int, int], list[StormRequest]] = {}
    for request in requests:
        sessions.setdefault((request.family, request.session), []).append(request)
    squares = _squares(file)
    rows = []
    for (family, session), session_requests in sorted(sessions.items()):
        mark = ""
        if (family, session) == (fault.family, fault.session):
            mark = f"the first fault: request {fault.key}, {fault.operation}, {fault.outcome}"
        elif family == fault.family:
            mark = "of the same family"
        values = {
            "session": f"{family}.{session}",
            "waves": _line(session_requests, columns, squares),
            "operations": ", ".join(
                dict.fromkeys(request.operation for request in session_requests)
            ),
            "marked": mark,
        }
        rows.append(Row(values))
    key = ", ".join(f"{square} {word}" for word, square in squares.items())
    return Table(
        "time_line",
        TIME_LINE,
        tuple(rows),
        f"round {fault.round}, a square a request, by wave",
        after=key,
        folded="The time line as text",
    )


def _line(
    requests: Iterable[StormRequest], columns: Mapping[int, int], squares: Mapping[str, str]
) -> str:
    """Return a session's squares in one line.

    If several requests share a column, the first one that is not right is shown.
    """
    line = [" "] * len(columns)
    for request in requests:
        column = columns[request.wave]
        if line[column] in (" ", SQUARES["right"]):
            line[column] = squares.get(request.outcome, "?")
    return "".join(line).rstrip()


def _pictures(file: StormFile, fault: StormRequest | None) -> Iterator[Squares]:
    """Yield pictures of the round of the first fault and of the shrunk sequence, if any."""
    if fault is not None:
        requests = [request for request in file.sequence if request.round == fault.round]
        title = f"Round {fault.round}, session by session, time to the right"
        yield Squares(title, _by_session(requests, fault), KINDS)
    if file.shrunk:
        title = "The shortest sequence that shows it"
        yield Squares(title, _by_session(file.shrunk), SHRUNK)


def _by_session(
    requests: Sequence[StormRequest], fault: StormRequest | None = None
) -> tuple[tuple[str, tuple[Square, ...]], ...]:
    """Return a row of squares for each session.

    Faults come last in a row, so that they are drawn over other squares.
    """
    rows: dict[tuple[int, int], list[Square]] = {}
    columns = _columns_by_wave(requests)
    for request in sorted(requests, key=lambda request: _kind(request.outcome) == "fault"):
        outcome = request.outcome
        letter = "" if outcome in (*SOUND, "") else LETTERS.get(outcome, "!")
        title = f"request {request.key}, {request.operation}, {request.tokens:,} tokens, {outcome}"
        square = Square(
            columns[request.wave],
            _kind(outcome),
            letter,
            title.rstrip(", "),
            fault is not None and request.family == fault.family,
        )
        rows.setdefault((request.family, request.session), []).append(square)
    return tuple(
        (f"{family}.{session}", tuple(squares))
        for (family, session), squares in sorted(rows.items())
    )


def _columns_by_wave(requests: Iterable[StormRequest]) -> dict[int, int]:
    """Return the column of each wave, by the wave's number.

    Columns are numbered without gaps, whatever wave numbers a file has.
    """
    waves = sorted({request.wave for request in requests})
    return {wave: column for column, wave in enumerate(waves)}


def _kind(outcome: str) -> str:
    """Return the kind of a square, by which it is drawn."""
    if outcome in ("cancelled", "refused"):
        return "gone"
    if outcome in ("uncompared", ""):
        return "other"
    return "right" if outcome in SOUND else "fault"


def _squares(file: StormFile) -> dict[str, str]:
    """Return the squares of the outcomes that a storm can have, by how it was judged."""
    return SQUARES if file.little is None else LETTERS


def _first_fault(file: StormFile) -> StormRequest | None:
    """Return the first request that was a fault by itself.

    If there is none, return the first one that was lost more often in replays than cold. If there
    is none of these either, return None.
    """
    suspects = {suspect.key for suspect in file.suspects if suspect.lost > suspect.cold_lost}
    for request in file.sequence:
        if request.outcome in CERTAIN:
            return request
    for request in file.sequence:
        if request.key in suspects:
            return request
    return None
