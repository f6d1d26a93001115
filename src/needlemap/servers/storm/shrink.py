"""Find the shortest sequence that shows a fault: delta debugging over families, sessions, requests
and lengths.

Faults are flaky, so a candidate is replayed until it has failed several times, or so often that it
would have failed in 95 of 100 cases if it were as bad as the whole sequence. One failure is no
proof: a server that earlier replays have half spoilt fails now and then, whatever it is sent.
After each failure the same prompt is sent alone. If that is missed too, an earlier replay has
spoilt the server, and the failure says nothing of the candidate, unless the server can be started
anew. From a sequence that fails seldom only families and sessions are taken out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import ceil, log

from needlemap.asking.campaign import MakeModel
from needlemap.asking.session import make_model
from needlemap.deadline import LimitReached
from needlemap.errors import NeedlemapError
from needlemap.servers.storm.act import ACTS, Act, Round, Stream, key_of
from needlemap.servers.storm.evidence import Evidence
from needlemap.servers.storm.file import STORM, StormFile, StormRequest
from needlemap.servers.storm.moves import Moves
from needlemap.servers.storm.operation import SHORTEST
from needlemap.servers.storm.outcome import CERTAIN, LOST, MOVED, RequestOutcome
from needlemap.servers.storm.reference import ReferenceRequest
from needlemap.servers.storm.sending import Sender
from needlemap.servers.storm.storm import SHRINK, RoundAnswers, Storm
from needlemap.servers.storm.weighing import Weigher
from needlemap.stats.exact import binomial_tail, lowest_rate

# Suspects that are replayed first.
TRIED = 6
# Replays of each of them; and if none failed in the first.
FIRST = 10
SELDOM_FIRST = 50
# Cold requests after a replay that failed.
CONTROLS = 2
# Replays whose cold requests failed too, more than others, after which the server is spoilt.
SPOILT = 10
# Replays of the shortest sequence; and if it failed in fewer than ENOUGH of them.
LAST = 20
MOST_LAST = 100
# Failures that show a rate: of the shortest sequence, and of a candidate if MOST allows it.
ENOUGH = 3
# Rate below which only families and sessions are taken out.
SELDOM = 1 / 20
# Replays of one candidate, at most.
MOST = 60
# Loops of the script, at most.
LOOPS = 3_000
# How often a candidate that shows the fault may be taken for one that does not.
_SURE = 0.05

Groups = Callable[[Round], list[set[int]]]


@dataclass(frozen=True)
class Shrunk:
    """The shortest sequence that was found.

    Attributes:
        sequence: Its requests.
        target: The number of the request that fails.
        failed: How often it failed.
        of: In how many replays.
        cold: How often the same prompt failed cold.
        cold_of: In how many cold requests.
        got: An answer that was wrong.
        was: How many requests the sequence had at first.
        limit: Nats a token beyond which margins of a right text moved; None if the text was wrong.
    """

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
        """Return the share of replays that fail."""
        return self.failed / self.of if self.of else 0.0

    @property
    def act(self) -> Act:
        """Return the request that fails."""
        return act_of(self.sequence, self.target)

    @property
    def loops(self) -> int:
        """Return the replays of which at least one fails in 95 of 100 cases.

        It is taken from the lower end of the rate's interval.
        """
        return tries_of(lowest_rate(self.failed, self.of), LOOPS)


@dataclass(frozen=True)
class Failing:
    """A sequence that fails in replays: how often, and in how many."""

    sequence: Round
    target: int
    failed: int
    of: int
    limit: float | None

    @property
    def rate(self) -> float:
        """Return the share of replays that fail."""
        return self.failed / self.of

    def is_better(self, other: Failing | None) -> bool:
        """Return True if it fails more often than another, or as often and is shorter."""
        if other is None:
            return True
        if self.failed != other.failed:
            return self.failed > other.failed
        return len(self.sequence.acts) < len(other.sequence.acts)


def act_of(sequence: Round, number: int) -> Act:
    """Return the request of that number."""
    return next(act for act in sequence.acts if act.number == number)


def requests_of(shrunk: Shrunk) -> list[StormRequest]:
    """Return the sequence as storm.json keeps it, without times: it is sent many times."""
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


def tries_of(rate: float, most: int = MOST) -> int:
    """Return the tries after which an event of a rate has come in 95 of 100 cases.

    >>> tries_of(1.0), tries_of(0.2), tries_of(0.05)
    (1, 14, 59)
    """
    if rate >= 1 - _SURE:
        return 1
    if rate <= 0:
        return most
    return min(most, ceil(log(_SURE) / log(1 - rate)))


def needed_failures(rate: float) -> tuple[int, int]:
    """Return how often a candidate is to fail, and in how many replays.

    A candidate of this rate does so in 95 of 100 cases. It is as many failures as MOST replays
    allow, at most three and at least one.

    >>> needed_failures(1.0), needed_failures(0.2)
    ((3, 3), (3, 30))
    >>> needed_failures(0.1), needed_failures(0.02)
    ((2, 46), (1, 60))
    """
    for failures in range(ENOUGH, 0, -1):
        for replays in range(failures, MOST + 1):
            if 1 - binomial_tail(failures, replays, rate) <= _SURE:
                return failures, replays
    return 1, MOST


class Shrinking:
    """Finds the shortest sequence of a storm's fault.

    Attributes:
        storm: The storm on disk, which has ended.
        shrunk: That sequence; None if no replay shows the fault.
        spoilt: Failed replays after which the prompt alone was missed too, less others.

    Args:
        say: Told what is known so far, in words.
        restart: Starts the server anew, if that can be done.
    """

    def __init__(
        self,
        storm: Storm,
        make: MakeModel = make_model,
        *,
        say: Callable[[str], object] = str,
        make_reference: MakeModel = make_model,
        restart: Callable[[], object] | None = None,
    ) -> None:
        evidence = Evidence(moves=Moves() if storm.reference else None)
        self.storm = storm
        self.sender = Sender(
            storm,
            evidence,
            make=make,
            make_reference=make_reference,
            on_wave=lambda: None,
        )
        self.weigher = Weigher(self.sender, evidence)
        self.say = say
        self.restart = restart
        self.shrunk: Shrunk | None = None
        self.spoilt = 0
        keys = (key for name, key in self.sender.stored if name == SHRINK)
        self._key = 1 + max(keys, default=0)
        # Nothing is taken from disk: each replay is sent.
        self.sender.stored = {}
        self._wrong_answer = ""
        self._limit: float | None = None
        # The request at whose end the server was first spoilt.
        self._spoiler: int | None = None

    @property
    def stopped(self) -> str:
        """Return why nothing more is replayed, or '' while more is."""
        return self.sender.stopped

    async def run(self) -> bool:
        """Find the shortest sequence, and return True if any replay fails.

        Raises NeedlemapError if the folder holds no storm.
        """
        async with self.sender.campaign:
            return await self._shrink()

    async def _shrink(self) -> bool:
        best = await self._find_failing()
        if best is None:
            return False
        sequence, target, rate = best.sequence, best.target, best.rate
        self.say(f"{len(sequence.acts)} requests fail in {best.failed} of {best.of} replays")
        for name, groups in _levels(rate):
            sequence = await self._remove_groups(sequence, target, groups, rate)
            self.say(f"without {name} that need not be: {len(sequence.acts)} requests")
            if self.stopped:
                break
        if rate >= SELDOM:
            sequence = await self._shorten_texts(sequence, target, rate)

        failed = replays = 0
        while not self.stopped and replays < (LAST if failed >= ENOUGH else MOST_LAST):
            failed += await self._shows(sequence, target)
            replays += 1
        if not failed:
            # The server was spoilt meanwhile, or a limit was met.
            failed, replays = best.failed, best.of

        cold = cold_of = 0
        self._start_anew()
        for _ in range(LAST // 2):
            alone = sequence.of([act_of(sequence, target)])
            outcome = await self._once(alone, target, cold=True)
            cold += _is_wrong(outcome)
            cold_of += outcome is not None
        self.shrunk = Shrunk(
            sequence=sequence,
            target=target,
            failed=failed,
            of=replays,
            cold=cold,
            cold_of=cold_of,
            got=self._wrong_answer,
            was=len(best.sequence.acts),
            limit=self._limit,
        )
        return True

    async def _find_failing(self) -> Failing | None:
        """Return the suspect's sequence that fails most often in replays, or None if none fails.

        Of several the shortest counts. If none fails in the first replays, each gets more of them.
        """
        file = STORM.read(self.storm.folder.path)
        moved = {suspect.key for suspect in file.suspects if suspect.outcome == MOVED}
        keys = to_replay(file)
        best: Failing | None = None
        limit = self._limit
        for replays in (FIRST, SELDOM_FIRST):
            for key in keys:
                sequence, target = self._sequence(key)
                self._limit = file.limit_nats if key in moved else None
                is_first = key == keys[0] and replays == FIRST
                if is_first and await self._is_spoilt_before(sequence, target):
                    return None
                failed = 0
                for _ in range(replays):
                    failed += await self._shows(sequence, target)
                candidate = Failing(
                    sequence=sequence,
                    target=target,
                    failed=failed,
                    of=replays,
                    limit=self._limit,
                )
                if failed and candidate.is_better(best):
                    best = candidate
                    limit = candidate.limit
                if self.stopped or failed == replays:
                    break
            if self.spoilt >= SPOILT:
                # What failed since then may be no fault of its sequence.
                return None
            self._limit = limit
            if best is not None or self.stopped:
                return best
        return None

    def _sequence(self, key: int) -> tuple[Round, int]:
        """Return what was sent up to a request, and the request's number in its round.

        Raises NeedlemapError if the storm's seed has no such request.
        """
        storm_round = self.storm.round(key // ACTS)
        for act in storm_round.acts:
            if act.number == key % ACTS:
                return storm_round.until(act), act.number
        raise NeedlemapError(
            f"'{self.storm.folder.path / STORM.file}' names request {key}, which its seed does not "
            "have. Give another folder."
        )

    async def _remove_groups(
        self, sequence: Round, target: int, groups: Groups, rate: float
    ) -> Round:
        """Return the sequence without the groups of requests that it does not need to fail.

        The group of the target stays.
        """
        for group in groups(sequence):
            if target in group or self.stopped:
                continue

            candidate = sequence.of(act for act in sequence.acts if act.number not in group)
            is_shorter = len(candidate.acts) < len(sequence.acts)
            if is_shorter and await self._fails(candidate, target, rate):
                sequence = candidate
        return sequence

    async def _shorten_texts(self, sequence: Round, target: int, rate: float) -> Round:
        """Return the sequence with texts halved as long as it still fails."""
        while not self.stopped:
            candidate = halved(sequence)
            if candidate == sequence or not await self._fails(candidate, target, rate):
                return sequence
            sequence = candidate
        return sequence

    async def _fails(self, candidate: Round, target: int, rate: float) -> bool:
        """Return True if a candidate fails as often as one of this rate does in 95 of 100 cases."""
        spoilt = self.spoilt
        failures, replays = needed_failures(rate)
        while 0 < failures <= replays:
            failures -= await self._shows(candidate, target)
            replays -= 1
            if self.stopped or self.spoilt > spoilt + 1:
                return False
        return failures == 0

    async def _shows(self, sequence: Round, target: int) -> bool:
        """Return True if one replay fails, and the same prompt sent alone afterwards is right.

        If an earlier replay has spoilt the server, it misses that prompt too, whatever the sequence
        is. Then a server that was started anew decides, if there is one.
        """
        if not _is_wrong(await self._once(sequence, target)):
            return False
        if await self._is_right_alone(sequence, target):
            self.spoilt = max(0, self.spoilt - 1)
            return True
        if self.restart is not None and not self.stopped:
            self._start_anew()
            is_right_alone = await self._is_right_alone(sequence, target)
            return is_right_alone and _is_wrong(await self._once(sequence, target))

        self.spoilt += 1
        self._spoiler = self._spoiler or key_of(sequence.number, target)
        if self.spoilt >= SPOILT and not self.stopped:
            self.sender.stopped = (
                "a replay has spoilt the server, which now misses the same prompt alone: give "
                "--command, which starts it, to shrink further. The first to do so ended in "
                f"request {self._spoiler} of {STORM.file}"
            )
        return False

    def _start_anew(self) -> None:
        """Start the server anew, if that can be done and there is time."""
        if self.restart is None or self.stopped:
            return
        try:
            self.restart()
        except LimitReached as error:
            self.sender.stopped = str(error)

    async def _is_spoilt_before(self, sequence: Round, target: int) -> bool:
        """Return True if the server misses the prompt alone before any replay.

        The storm, or somebody else, has spoilt it, and its replays would be blamed.
        """
        if self.restart is not None:
            return False
        for _ in range(ENOUGH):
            if await self._is_right_alone(sequence, target):
                return False
        if not self.stopped:
            self.sender.stopped = (
                "the server misses the prompt alone already, before any replay: start it anew and "
                "type the same, or give --command, which starts it"
            )
        return True

    async def _is_right_alone(self, sequence: Round, target: int) -> bool:
        """Return True if the prompt that fails is right cold and alone, each time."""
        alone = sequence.of([act_of(sequence, target)])
        for _ in range(CONTROLS):
            outcome = await self._once(alone, target, cold=True)
            if outcome is None or _is_wrong(outcome):
                return False
        return True

    async def _once(
        self, sequence: Round, target: int, *, cold: bool = False
    ) -> RequestOutcome | None:
        """Replay a sequence once, and return the outcome of the target, or None if there is none.

        cold: each request has a first line of its own, in place of each family.
        """
        round_answers = RoundAnswers()
        target_outcome: RequestOutcome | None = None
        self._key += 1
        salt = f"{SHRINK}{self._key}"
        for wave in sequence.waves:
            if self.stopped:
                return None
            acts = [
                replace(
                    act,
                    salt=self.sender.salt(salt, act.number if cold else act.family),
                )
                for act in wave
            ]
            try:
                rows = await self.sender.send(
                    sequence,
                    acts,
                    family=SHRINK,
                    round_answers=round_answers,
                    key=self._next_key,
                )
            except LimitReached as error:
                # While prompts were built.
                self.sender.stopped = str(error)
                return None
            for act, record in rows:
                if act.number != target or record is None:
                    continue
                target_outcome = outcome = self.sender.outcome_of(sequence, act, record)
                if self._limit is not None:
                    request = ReferenceRequest.of(
                        self.storm,
                        sequence,
                        act,
                        family=SHRINK,
                        record=record,
                        outcome=outcome,
                        round_answers=round_answers,
                    )
                    target_outcome = await self.weigher.outcome_again(self._limit, outcome, request)
                if _is_wrong(target_outcome):
                    self._wrong_answer = record.answer or ""
        return target_outcome

    def _next_key(self, _act: Act) -> int:
        self._key += 1
        return self._key


def to_replay(file: StormFile) -> list[int]:
    """Return the requests whose sequences may show a storm's fault again, the likeliest first."""
    certain = [request.key for request in file.sequence if request.outcome in CERTAIN]
    suspects = [suspect for suspect in file.suspects if suspect.lost > suspect.cold_lost]
    suspects.sort(
        key=lambda suspect: -(suspect.lost - suspect.cold_lost) / max(1, suspect.replayed)
    )
    lost = [suspect.key for suspect in suspects]
    keys = list(dict.fromkeys([*lost, *certain]))[:TRIED]
    return keys + [key for key in lost_with_first_cancel(file)[:1] if key not in keys]


def lost_with_first_cancel(file: StormFile) -> list[int]:
    """Return the requests lost in the round of the first cancelled one, in its wave or later.

    If that client spoilt the server for all, requests of later rounds are victims whose sequence
    shows nothing.
    """
    cancelled = next((request for request in file.sequence if request.outcome == "cancelled"), None)
    if cancelled is None:
        return []
    return [
        request.key
        for request in file.sequence
        if request.round == cancelled.round
        and request.outcome in LOST
        and request.wave >= cancelled.wave
    ]


def _is_wrong(outcome: RequestOutcome | None) -> bool:
    return outcome is not None and (outcome.is_certain or outcome.is_doubtful)


def _levels(rate: float) -> Iterable[tuple[str, Groups]]:
    """Yield the kinds of groups that are taken out, from large to small, with their names."""
    yield "families", lambda sequence: _group_requests(sequence, lambda act: act.family)
    yield (
        "sessions",
        lambda sequence: _group_requests(sequence, lambda act: (act.family, act.session)),
    )
    if rate >= SELDOM:
        yield "requests", lambda sequence: [{act.number} for act in reversed(sequence.acts)]
        yield "requests", lambda sequence: [{act.number} for act in sequence.acts]


def _group_requests(sequence: Round, group_of: Callable[[Act], object]) -> list[set[int]]:
    """Return the requests' numbers by group, the largest group first."""
    groups: dict[object, set[int]] = {}
    for act in sequence.acts:
        groups.setdefault(group_of(act), set()).add(act.number)
    return sorted(groups.values(), key=len, reverse=True)


def halved(sequence: Round) -> Round:
    """Return the sequence with texts of half the length.

    If these do not hold the facts that are asked for, return it unchanged.
    """
    acts = tuple(map(_halved_act, sequence.acts))
    for act in acts:
        for turn in act.path:
            for fact in turn.facts:
                for piece in act.pieces:
                    is_hidden = fact.number in piece.stream.facts_within(piece.tokens)
                    if piece.stream == fact.stream and not is_hidden:
                        return sequence
    return replace(sequence, acts=acts)


def _halved_act(act: Act) -> Act:
    path = []
    for turn in act.path:
        pieces = []
        for piece in turn.pieces:
            stream = _halved_stream(piece.stream)
            share = piece.tokens / piece.stream.tokens
            pieces.append(replace(piece, stream=stream, tokens=round(share * stream.tokens)))
        facts = tuple(replace(fact, stream=_halved_stream(fact.stream)) for fact in turn.facts)
        path.append(replace(turn, pieces=tuple(pieces), facts=facts, total=None))
    return replace(act, path=tuple(path))


def _halved_stream(stream: Stream) -> Stream:
    return replace(stream, tokens=max(SHORTEST, stream.tokens // 2))
