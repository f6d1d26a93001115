"""What a storm found, as a report.

Its page has a picture of the round in which the first fault came: a row a session, a square a
request. The sequence that `--shrink` left stands below it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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
from needlemap.servers.storm.file import StormFile, StormRequest
from needlemap.servers.storm.judge import WEAK, rounded_up
from needlemap.servers.storm.outcome import CERTAIN
from needlemap.stats.verdicts import FAIL, NO_RESULT, PASS, Verdict, Word, row_word

NOT_ENDED = Verdict(NO_RESULT, "it has not ended yet")
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
    """The report of a storm."""
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
            Fact("suspects", [each.model_dump() for each in found.suspects]),
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
    """A row for each operation: its word, and what came of its requests."""
    by_operation: dict[str, list[StormRequest]] = {}
    for request in found.sequence:
        by_operation.setdefault(request.operation, []).append(request)
    rows = []
    for name, requests in sorted(by_operation.items()):
        counts = Counter(request.outcome for request in requests)
        others = ", ".join(
            f"{count} {word}" for word, count in sorted(counts.items()) if word != "right"
        )
        rows.append(
            {
                "operation": name,
                "state": _word(found, requests),
                "requests": len(requests),
                "right": counts["right"],
                "others": others,
            }
        )
    return tuple(map(Row, rows))


def _word(found: StormFile, requests: Sequence[StormRequest]) -> Word | None:
    """What a storm says of one operation, never more than it says of all of them; None if no
    answer of it was waited for, or the storm has not ended yet."""
    answered = [request for request in requests if request.outcome != "cancelled"]
    if found.verdict is None or not answered:
        return None
    lost_again = {replay.key for replay in found.suspects if replay.lost > replay.cold_lost}
    is_faulty = any(request.outcome in CERTAIN or request.key in lost_again for request in answered)
    right = sum(request.outcome == "right" for request in answered)
    return row_word(
        fails=found.verdict.word == FAIL and is_faulty,
        passes=found.verdict.word == PASS or (not is_faulty and right >= WEAK * len(answered)),
        points=is_faulty,
    )


def _time_line(found: StormFile, first: StormRequest) -> Table:
    """The round of the first fault, session by session: a square for each request, in the
    column of its wave. The faulty session is marked, and those of its family."""
    rows = [each for each in found.sequence if each.round == first.round]
    columns = _columns(rows)
    sessions: dict[tuple[int, int], list[StormRequest]] = {}
    for each in rows:
        sessions.setdefault((each.family, each.session), []).append(each)
    made = []
    for (family, session), requests in sorted(sessions.items()):
        line = [" "] * len(columns)
        for each in requests:
            at = columns[each.wave]
            worse = line[at] not in (" ", SQUARES["right"])
            line[at] = line[at] if worse else SQUARES.get(each.outcome, "?")
        mark = "of the same family" if family == first.family else ""
        if (family, session) == (first.family, first.session):
            mark = f"the first fault: request {first.key}, {first.operation}, {first.outcome}"
        operations = ", ".join(dict.fromkeys(each.operation for each in requests))
        values = {"session": f"{family}.{session}", "waves": "".join(line).rstrip()}
        made.append(Row({**values, "operations": operations, "marked": mark}))
    key = ", ".join(f"{square} {word}" for word, square in SQUARES.items())
    title = f"round {first.round}, a square a request, by wave"
    folded = "The time line as text"
    return Table("time_line", TIME_LINE, tuple(made), title, key, folded)


def _pictures(found: StormFile, first: StormRequest | None) -> Iterator[Squares]:
    """The round of the first fault, and the shrunk sequence."""
    if first is not None:
        own = [each for each in found.sequence if each.round == first.round]
        said = f"Round {first.round}, session by session, time to the right"
        yield Squares(said, _by_session(own, first), KINDS)
    if found.shrunk:
        said = "The shortest sequence that shows it"
        yield Squares(said, _by_session(found.shrunk), SHRUNK)


def _by_session(
    requests: Sequence[StormRequest], first: StormRequest | None = None
) -> tuple[tuple[str, tuple[Square, ...]], ...]:
    """A row a session; the later of two in one place is the worse."""
    rows: dict[tuple[int, int], list[Square]] = {}
    columns = _columns(requests)
    for each in sorted(requests, key=lambda each: _kind(each.outcome) == "fault"):
        letter = "" if each.outcome in ("right", "") else SQUARES.get(each.outcome, "!")
        says = f"request {each.key}, {each.operation}, {each.tokens:,} tokens, {each.outcome}"
        marked = first is not None and each.family == first.family
        square = Square(columns[each.wave], _kind(each.outcome), letter, says.rstrip(", "), marked)
        rows.setdefault((each.family, each.session), []).append(square)
    return tuple(
        (f"{family}.{session}", tuple(squares))
        for (family, session), squares in sorted(rows.items())
    )


def _columns(requests: Iterable[StormRequest]) -> dict[int, int]:
    """The column of each wave: they are numbered as they are there, whatever a file says."""
    return {wave: at for at, wave in enumerate(sorted({each.wave for each in requests}))}


def _kind(outcome: str) -> str:
    """How a square is drawn."""
    known = {"right": "right", "cancelled": "gone", "refused": "gone", "": "other"}
    return known.get(outcome, "fault")


def _first_fault(found: StormFile) -> StormRequest | None:
    """The first request that was a fault by itself, else the first whose replays were lost
    more often than its cold askings."""
    certain = (each for each in found.sequence if each.outcome in CERTAIN)
    suspects = {each.key for each in found.suspects if each.lost > each.cold_lost}
    doubtful = (each for each in found.sequence if each.key in suspects)
    return next(certain, None) or next(doubtful, None)
