"""The shortest sequence that shows a fault: delta debugging over families, sessions, requests and
lengths.

Faults are flaky, so a candidate is replayed until it has failed several times, or so often that it
would have in 95 of 100 if it were as bad as the whole sequence. One failure is no proof: a server
that earlier replays have half spoilt fails now and then, whatever it is asked. Behind each failure
the same prompt is asked alone: where that is missed too, an earlier replay has spoilt the server,
and the failure says nothing of the candidate, unless the server can be started anew. A sequence
that fails seldom has only families and sessions taken out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import ceil, log
from typing import Any

from needlemap.asking.session import make_model
from needlemap.deadline import LimitReached
from needlemap.errors import NeedlemapError
from needlemap.servers.storm.act import ACTS, Act, Round, Stream, key_of
from needlemap.servers.storm.file import STORM, StormFile, StormRequest
from needlemap.servers.storm.operation import SHORTEST
from needlemap.servers.storm.outcome import CERTAIN, LOST, MOVED, RequestOutcome
from needlemap.servers.storm.reference import SetBeside
from needlemap.servers.storm.storm import SHRINK, Answered, Storm
from needlemap.servers.storm.storming import StormInRounds
from needlemap.stats.exact import binomial_tail, lowest_rate

TRIED = 6  # suspects that are replayed first
FIRST, SELDOM_FIRST = 10, 50  # replays of each of them; where none failed in the first
CONTROLS = 2  # cold askings behind a replay that failed
SPOILT = 10  # more replays whose cold askings failed too than others: the server is spoilt
LAST, MOST_LAST = 20, 100  # replays of the shortest sequence; more while it failed less than
ENOUGH = 3  # failures that show a rate: of the shortest sequence, and of a candidate if MOST allows
SELDOM = 1 / 20  # rate below which only families and sessions are taken out
MOST = 60  # replays of one candidate
LOOPS = 3_000  # of the script at most
_SURE = 0.05


@dataclass(frozen=True)
class Shrunk:
    """The shortest sequence that was found. target: the number of the act that fails. failed, of:
    how often it did, in replays; cold, cold_of: how often the same prompt did cold, in so many
    askings. got: an answer that was wrong; was: how many requests the sequence had at first. limit:
    beyond how many nats the margins of a right text moved; None where the text was wrong."""

    sequence: Round
    target: int
    failed: int
    of: int
    cold: int
    cold_of: int
    got: str
    was: int
    limit: float | None = None

    @property
    def rate(self) -> float:
        """How often it fails."""
        return self.failed / self.of if self.of else 0.0

    @property
    def act(self) -> Act:
        """The request that fails."""
        return next(act for act in self.sequence.acts if act.number == self.target)

    @property
    def loops(self) -> int:
        """Replays that fail at least once in 95 of 100, at the lower end of the rate's
        interval."""
        return times(lowest_rate(self.failed, self.of), LOOPS)


def requests_of(shrunk: Shrunk) -> list[StormRequest]:
    """The sequence as storm.json keeps it; times are those of no asking."""
    return [
        StormRequest(
            key=act.number,
            round=0,
            wave=act.wave,
            family=act.family,
            session=act.session,
            operation=act.operation,
            at_s=0,
            seconds=0,
            tokens=act.tokens,
            outcome="wrong" if act.number == shrunk.target else "",
        )
        for act in shrunk.sequence.acts
    ]


def times(rate: float, most: int = MOST) -> int:
    """How often something of a rate is tried so that it comes at least once in 95 of 100.

    >>> times(1.0), times(0.2), times(0.05)
    (1, 14, 59)
    """
    if rate >= 1 - _SURE:
        return 1
    return most if rate <= 0 else min(most, ceil(log(_SURE) / log(1 - rate)))


def enough(rate: float) -> tuple[int, int]:
    """How often a candidate is to fail, three times at most, in how many replays: so that one of
    this rate does in 95 of 100. As many failures as MOST replays allow, and one at least.

    >>> enough(1.0), enough(0.2), enough(0.1), enough(0.02)
    ((3, 3), (3, 30), (2, 46), (1, 60))
    """

    def is_reached(failures: int, replays: int) -> bool:
        return 1 - binomial_tail(failures, replays, rate) <= _SURE

    for failures in range(ENOUGH, 0, -1):
        for replays in range(failures, MOST + 1):
            if is_reached(failures, replays):
                return failures, replays
    return 1, MOST


class Shrinking(StormInRounds):
    """Finds the shortest sequence of a storm's fault; None where no replay shows one.

    restart: starts the server anew, where that can be done.
    """

    shrunk: Shrunk | None = None

    def __init__(
        self,
        storm: Storm,
        make: Any = make_model,
        say: Callable[[str], object] = str,
        elsewhere: Any = make_model,
        restart: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(storm, make=make, elsewhere=elsewhere)
        self.say, self.restart = say, restart
        self._key = 1 + max((key for name, key in self._stored if name == SHRINK), default=0)
        self._stored = {}
        self._got = ""
        self._limit: float | None = None
        self._spoiler: int | None = None  # the request at whose end the server was first spoilt
        self.spoilt = 0  # failed replays behind which the prompt alone was missed too, less others

    async def _ask_all(self) -> Any:
        """Find whether there is one. Raises NeedlemapError for a folder that holds no storm."""
        found = await self._best()
        if found is None:
            return False
        sequence, target, failed, replays = found
        was = len(sequence.acts)
        rate = failed / replays
        self.say(f"{was} requests fail in {failed} of {replays} replays")
        for name, groups in _levels(rate):
            sequence = await self._without(sequence, target, groups, rate)
            self.say(f"without {name} that need not be: {len(sequence.acts)} requests")
            if self.stopped:
                break
        if rate >= SELDOM:
            sequence = await self._shorter(sequence, target, rate)
        before, failed, asked = (failed, replays), 0, 0
        while not self.stopped and asked < (LAST if failed >= ENOUGH else MOST_LAST):
            failed += await self._shows(sequence, target)
            asked += 1
        if not failed:  # the server was spoilt meanwhile, or a limit was met
            failed, asked = before
        cold = cold_of = 0
        self._start_anew()
        for _ in range(LAST // 2):
            act = next(each for each in sequence.acts if each.number == target)
            outcome = await self._once(sequence.of([act]), target, cold=True)
            cold += _is_wrong(outcome)
            cold_of += outcome is not None
        found_so = sequence, target, failed, asked, cold, cold_of, self._got, was, self._limit
        self.shrunk = Shrunk(*found_so)
        return True

    async def _best(self) -> tuple[Round, int, int, int] | None:
        """The suspect whose sequence fails most often in replays, the shortest of several,
        with how often it failed in how many. Where none fails, each is replayed more often."""
        file = STORM.read(self.storm.folder.path)
        moved = {each.key for each in file.suspects if each.outcome == MOVED}
        keys = to_replay(file)
        best: tuple[Round, int, int, int] | None = None
        limit = self._limit
        for replays in (FIRST, SELDOM_FIRST):
            for key in keys:
                made = self.storm.round(key // ACTS)
                act = next((each for each in made.acts if each.number == key % ACTS), None)
                if act is None:
                    raise NeedlemapError(
                        f"'{self.storm.folder.path / STORM.file}' names request {key}, which its "
                        "seed does not have. Give another folder."
                    )
                sequence, failed = made.until(act), 0
                self._limit = file.limit_nats if key in moved else None
                is_first = key == keys[0] and replays == FIRST
                if is_first and (await self._is_spoilt_before(sequence, act.number)):
                    return None
                for _ in range(replays):
                    failed += await self._shows(sequence, act.number)
                better = best is None or (failed, -len(sequence.acts)) > (
                    best[2],
                    -len(best[0].acts),
                )
                if failed and better:
                    best, limit = (sequence, act.number, failed, replays), self._limit
                if self.stopped or failed == replays:
                    break
            if self.spoilt >= SPOILT:  # what failed since then may be no fault of its sequence
                return None
            self._limit = limit
            if best is not None or self.stopped:
                return best
        return None

    async def _without(
        self, sequence: Round, target: int, groups: Callable[[Round], list[set[int]]], rate: float
    ) -> Round:
        """The sequence without what is not needed, group by group."""
        kept = target
        for group in groups(sequence):
            if kept in group or self.stopped:
                continue
            left = [act for act in sequence.acts if act.number not in group]
            candidate = sequence.of(left)
            if len(candidate.acts) < len(sequence.acts) and (
                await self._fails(candidate, target, rate)
            ):
                sequence = candidate
        return sequence

    async def _shorter(self, sequence: Round, target: int, rate: float) -> Round:
        """The sequence with texts of half the length, as often as it still fails."""
        while not self.stopped:
            candidate = halved(sequence)
            if candidate == sequence or not (await self._fails(candidate, target, rate)):
                return sequence
            sequence = candidate
        return sequence

    async def _fails(self, candidate: Round, target: int, rate: float) -> bool:
        """Whether a candidate fails as often as one of this rate does in 95 of 100."""
        spoilt, (wanted, left) = self.spoilt, enough(rate)
        while 0 < wanted <= left:
            wanted -= await self._shows(candidate, target)
            left -= 1
            if self.stopped or self.spoilt > spoilt + 1:
                return False
        return not wanted

    async def _shows(self, sequence: Round, target: int) -> bool:
        """Whether one replay fails and the same prompt, cold and alone, is right at once
        behind it. A server that an earlier replay has spoilt misses that too, whatever the
        sequence: then one that was started anew tells."""
        if not _is_wrong(await self._once(sequence, target)):
            return False
        if await self._is_right_alone(sequence, target):
            self.spoilt = max(0, self.spoilt - 1)
            return True
        if self.restart is not None and not self.stopped:
            self._start_anew()
            alone = await self._is_right_alone(sequence, target)
            return alone and _is_wrong(await self._once(sequence, target))
        self.spoilt += 1
        self._spoiler = self._spoiler or key_of(sequence.number, target)
        if self.spoilt >= SPOILT and not self.stopped:
            self.stopped = (
                "a replay has spoilt the server, which now misses the same prompt alone: give "
                "--command, which starts it, to shrink further. The first to do so ended in "
                f"request {self._spoiler} of {STORM.file}"
            )
        return False

    def _start_anew(self) -> None:
        """Start the server anew, where that can be done and there is time."""
        if self.restart is None or self.stopped:
            return
        try:
            self.restart()
        except LimitReached as error:
            self.stopped = str(error)

    async def _is_spoilt_before(self, sequence: Round, target: int) -> bool:
        """Whether the server misses the prompt alone before any replay: the storm, or somebody
        else, has spoilt it, and its replays would be blamed."""
        if self.restart is not None:
            return False
        for _ in range(ENOUGH):
            if await self._is_right_alone(sequence, target):
                return False
        if not self.stopped:
            self.stopped = (
                "the server misses the prompt alone already, before any replay: start it anew and "
                "type the same, or give --command, which starts it"
            )
        return True

    async def _is_right_alone(self, sequence: Round, target: int) -> bool:
        """Whether the prompt that fails is right cold and alone, each time."""
        act = next(each for each in sequence.acts if each.number == target)
        for _ in range(CONTROLS):
            again = await self._once(sequence.of([act]), target, cold=True)
            if again is None or _is_wrong(again):
                return False
        return True

    async def _once(
        self, sequence: Round, target: int, *, cold: bool = False
    ) -> RequestOutcome | None:
        """What came of the target in one replay, behind first lines of its own."""
        answered, last = Answered(), None
        self._key += 1
        salt = f"{SHRINK}{self._key}"
        for wave in sequence.waves:
            if self.stopped:
                return None
            acts = [
                replace(act, salt=self._salt(salt, act.number if cold else act.family))
                for act in wave
            ]
            try:
                found = await self._ask(sequence, acts, SHRINK, answered, self._next)
            except LimitReached as error:  # while prompts were built
                self.stopped = str(error)
                return None
            for act, record in found:
                if act.number == target and record is not None:
                    last = self._outcome(sequence, act, record, self._order)
                    asked = sequence, act, SHRINK, record, last, answered
                    if self._limit is not None:
                        last = await self._again(
                            self._limit, last, SetBeside.of(self.storm, *asked)
                        )
                    if _is_wrong(last):
                        self._got = record.answer or ""
        return last

    def _next(self, _act: Act) -> int:
        self._key += 1
        return self._key


def to_replay(file: StormFile) -> list[int]:
    """Requests whose sequences may show a storm's fault again, the likeliest first."""
    sure = [each.key for each in file.sequence if each.outcome in CERTAIN]
    lost = sorted(
        (each for each in file.suspects if each.lost > each.cold_lost),
        key=lambda each: -(each.lost - each.cold_lost) / max(1, each.replayed),
    )
    keys = list(dict.fromkeys([*(each.key for each in lost), *sure]))[:TRIED]
    return keys + [key for key in lost_beside_leaving(file)[:1] if key not in keys]


def lost_beside_leaving(file: StormFile) -> list[int]:
    """Requests lost in the round in which the first client went away, beside it or later: where it
    spoilt the server for all, those of later rounds are victims whose sequence shows nothing."""
    left = next((each for each in file.sequence if each.outcome == "cancelled"), None)
    return [
        each.key
        for each in file.sequence
        if left and (each.round, each.outcome in LOST) == (left.round, True)
        if each.wave >= left.wave
    ]


def _is_wrong(outcome: RequestOutcome | None) -> bool:
    return outcome is not None and (outcome.is_certain or outcome.is_doubtful)


def _levels(rate: float) -> Iterable[tuple[str, Callable[[Round], list[set[int]]]]]:
    """What is taken out, the largest first."""
    yield "families", lambda made: _grouped(made, lambda act: act.family)
    yield "sessions", lambda made: _grouped(made, lambda act: (act.family, act.session))
    if rate >= SELDOM:
        yield "requests", lambda made: [{act.number} for act in reversed(made.acts)]
        yield "requests", lambda made: [{act.number} for act in made.acts]


def _grouped(made: Round, of: Callable[[Act], object]) -> list[set[int]]:
    groups: dict[object, set[int]] = {}
    for act in made.acts:
        groups.setdefault(of(act), set()).add(act.number)
    return sorted(groups.values(), key=len, reverse=True)


def halved(made: Round) -> Round:
    """The same with texts of half the length, as far as they still hide their facts."""

    def half(stream: Stream) -> Stream:
        return replace(stream, tokens=max(SHORTEST, stream.tokens // 2))

    def shorter(act: Act) -> Act:
        path = []
        for turn in act.path:
            pieces = []
            for piece in turn.pieces:
                stream = half(piece.stream)
                share = piece.tokens / piece.stream.tokens
                pieces.append(replace(piece, stream=stream, tokens=round(share * stream.tokens)))
            asked = tuple(replace(fact, stream=half(fact.stream)) for fact in turn.asked)
            path.append(replace(turn, pieces=tuple(pieces), asked=asked, total=None))
        return replace(act, path=tuple(path))

    whole = all(
        fact.number in piece.stream.facts_within(piece.tokens)
        for act in map(shorter, made.acts)
        for turn in act.path
        for fact in turn.asked
        for piece in act.streams
        if piece.stream == fact.stream
    )
    return replace(made, acts=tuple(map(shorter, made.acts))) if whole else made
