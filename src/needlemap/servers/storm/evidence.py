"""What a storm observed, before anything is made of it: requests, suspects, pairs.

Pure data. `tally` counts it and bets on it, `judge` gives the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import isfinite

from needlemap.records.record import Record
from needlemap.servers.storm.act import Act, key_of
from needlemap.servers.storm.counts import Counts
from needlemap.servers.storm.equal import Equal
from needlemap.servers.storm.moves import Moves
from needlemap.servers.storm.operations.fresh import Fresh
from needlemap.servers.storm.outcome import MOVED, UNCOMPARED, RequestOutcome, outcome_of_move
from needlemap.servers.ways import COARSEST, Move
from needlemap.stats.bets import Block, log_decrease, log_increase, mean_of_logs
from needlemap.stats.exact import binomial_tail

# Share of an operation's answers that the model must get right, in the storm or alone, for it to
# show a fault; and the requests after which that is known. With fewer it is known if so few right
# ones are rare for a model that gets half: none of six are in 1 of 64 cases. A storm of 61 families
# has 8 requests of an operation.
WEAK = 0.5
FEWEST_SENT = 20
RARE = 1 / 64
# Rounds that are tried as the one at which what is lost changes.
_SPLITS = 20


@dataclass(frozen=True, slots=True)
class Observation:
    """A request of the storm, and what came of it.

    Attributes:
        key: The number of its record.
        round: The number of its round.
        act: What was sent.
        outcome: What came of it.
        answer: The answer's text.
        at_s: When it was sent, in seconds since 1970 by its record; 0 if that is not known.
        seconds: How long its answer took.
        tokens: Prompt tokens that were sent.
        cached: Of them, those that the server says it took from a cache.
        nats: By how many nats a token its margins moved from the reference's; None if they were
            not compared.
    """

    key: int
    round: int
    act: Act
    outcome: RequestOutcome
    answer: str = ""
    at_s: float = 0.0
    seconds: float = 0.0
    tokens: int = 0
    cached: int | None = None
    nats: float | None = None

    @classmethod
    def of(
        cls, round_number: int, act: Act, record: Record, outcome: RequestOutcome
    ) -> Observation:
        """Return the observation of a request with its record and its outcome."""
        seconds = record.latency_s or 0.0
        sent_at_s = 0.0
        if record.finished_at:
            sent_at_s = datetime.fromisoformat(record.finished_at).timestamp() - seconds
        return cls(
            key=key_of(round_number, act.number),
            round=round_number,
            act=act,
            outcome=outcome,
            answer=record.answer or "",
            at_s=sent_at_s,
            seconds=seconds,
            tokens=record.sent_tokens or 0,
            cached=record.cached_tokens,
        )

    @property
    def unit(self) -> tuple[int, int]:
        """Return the family that it counts for."""
        return self.round, self.act.family

    def with_move(self, move: Move | None, limit: float) -> Observation:
        """Return the request with its move from the same prompt alone.

        If nothing was compared, return it unchanged. limit: nats beyond which it moved.
        """
        outcome = outcome_of_move(move, limit)
        if move is None or outcome is None:
            return self
        nats = round(move.nats, 6) if isfinite(move.nats) else None
        return replace(self, outcome=outcome, nats=nats)


@dataclass
class Suspect:
    """A request whose answer was lost, endless or empty, or whose margins moved.

    Attributes:
        request: The request.
        limit: Nats a token beyond which its margins moved; None if its text was wrong.
        repeat_outcome: The outcome of its prompt, sent again cold right afterwards; None until then
            or if there is none.
        blocks: Replays of its sequence, each with as many cold requests.
    """

    request: Observation
    limit: float | None = None
    repeat_outcome: RequestOutcome | None = None
    blocks: list[Block] = field(default_factory=list)

    @property
    def is_doubtful(self) -> bool:
        """Return True if the same prompt was answered right with nothing before it."""
        return self.repeat_outcome is not None and self.repeat_outcome.word == "right"

    @property
    def is_alone_too(self) -> bool:
        """Return True if the same prompt was not answered right with nothing before it either."""
        return self.repeat_outcome is not None and self.repeat_outcome.word != "right"

    @property
    def replays(self) -> Block:
        """Return how many replays lost it, how many cold requests did, and how many of each."""
        lost = sum(block[0] for block in self.blocks)
        lost_cold = sum(block[1] for block in self.blocks)
        count = sum(block[2] for block in self.blocks)
        return lost, lost_cold, count


@dataclass(frozen=True, slots=True)
class OperationAnswers:
    """How many answers there are to one operation.

    Attributes:
        sent: To all of its requests that were judged.
        able: Those that could show a fault, because the model gets their prompt right, in the
            storm or alone.
    """

    sent: int
    able: int

    @property
    def is_untested(self) -> bool:
        """Return True if the model gets under half of them right.

        >>> OperationAnswers(20, 9).is_untested, OperationAnswers(5, 0).is_untested
        (True, False)
        >>> OperationAnswers(6, 0).is_untested
        True
        """
        if self.sent >= FEWEST_SENT:
            return self.able < WEAK * self.sent
        return binomial_tail(self.sent - self.able, self.sent, 1 - WEAK) <= RARE


@dataclass(frozen=True, slots=True)
class Change:
    """Prompts that share nothing with others: how many were lost before a round and since.

    Attributes:
        start: The round.
        before: How many were lost before it, and of how many.
        since: The same from that round on.
        wealth: Log of the bet that more are lost on one side.
        event: What happened then, in words; '' if nothing did.
    """

    start: int
    before: tuple[int, int]
    since: tuple[int, int]
    wealth: float
    event: str = ""

    def is_in_worse_part(self, number: int) -> bool:
        """Return True if a round is on the side on which more is lost."""
        lost_before, n_before = self.before
        lost_since, n_since = self.since
        is_fall = lost_before * n_since > lost_since * n_before
        return (number < self.start) is is_fall


Bet = Callable[[tuple[int, int], tuple[int, int]], float]


@dataclass
class Evidence:
    """All that a storm observed.

    Attributes:
        storm: Its requests, in the order in which they were sent.
        pairs: Requests, each with what came of the same prompt sent cold in the same minutes.
        suspects: By key, the requests that are in doubt.
        other_faults: Faults in requests that are not part of the storm's sequence.
        moves: What is known of margins; None without a reference.
        counts: What is known of the tokens that the server counts.
        equal: What is known of log-probabilities compared with the same prompts alone.
    """

    storm: list[Observation] = field(default_factory=list)
    pairs: list[tuple[Observation, RequestOutcome]] = field(default_factory=list)
    suspects: dict[int, Suspect] = field(default_factory=dict)
    other_faults: list[Observation] = field(default_factory=list)
    moves: Moves | None = None
    counts: Counts = field(default_factory=Counts)
    equal: Equal = field(default_factory=lambda: Equal(COARSEST))

    @property
    def lost_suspects(self) -> list[Suspect]:
        """Return the suspects that were lost, endless or empty."""
        return [suspect for suspect in self.suspects.values() if suspect.request.outcome.is_lost]

    @property
    def moved_suspects(self) -> list[Suspect]:
        """Return the suspects whose margins moved, unless a coarse cache explains how."""
        return [suspect for suspect in self.suspects.values() if self.is_moved(suspect.request)]

    def is_moved(self, request: Observation) -> bool:
        """Return True if margins moved, and no coarse cache explains how."""
        is_explained = self.moves is not None and self.moves.is_choice
        return request.outcome.word == MOVED and not is_explained

    @property
    def discordant(self) -> tuple[int, int]:
        """Return how many pairs were lost only in the storm, and how many only cold."""
        lost = sum(request.outcome.is_lost and cold.has_right_text for request, cold in self.pairs)
        gained = sum(
            request.outcome.has_right_text and cold.is_lost for request, cold in self.pairs
        )
        return lost, gained

    @property
    def first_cancel(self) -> int | None:
        """Return the round in which the first client went away, or None if none did."""
        rounds = (request.round for request in self.storm if request.act.cancel is not None)
        return min(rounds, default=None)

    @property
    def fresh_prompts(self) -> list[tuple[int, bool]]:
        """Return the round of each first prompt of a session, and whether it was lost.

        Such prompts are drawn alike in every round.
        """
        return _lost_flags(
            (request.round, request.outcome)
            for request in self.storm
            if request.act.operation == Fresh.name
        )

    @property
    def lone_prompts(self) -> list[tuple[int, bool]]:
        """Return the round of each prompt without shared text, and whether it was lost.

        They are the first prompts of sessions and those that were sent cold.
        """
        return self.fresh_prompts + _lost_flags(
            (request.round, cold) for request, cold in self.pairs
        )

    def change(self) -> Change | None:
        """Return the clearest change in how often prompts that share nothing are lost.

        More may be lost since the first client went away, from some round on, or up to one. If
        there is only one round, return None. Only fresh prompts show a fall: of the others fewer
        are lost once an operation that the model cannot do is left out.
        """
        lone_prompts = self.lone_prompts
        candidates = list[Change]()
        start = self.first_cancel
        if start is not None:
            candidates.append(change_at(lone_prompts, start, event="the first client went away"))
        for rows, bet in ((lone_prompts, log_increase), (self.fresh_prompts, log_decrease)):
            over_time = change_over_time(rows, bet)
            if over_time is not None:
                candidates.append(over_time)
        return max(candidates, key=lambda change: change.wealth, default=None)

    def operations(self) -> dict[str, OperationAnswers]:
        """Return the answers to each operation, by its name."""
        able: dict[str, list[bool]] = {}
        for request in self.storm:
            if request.act.how == "other" or request.outcome.word in ("cancelled", "refused"):
                continue
            is_able = self._is_able(request)
            if is_able is not None:
                able.setdefault(request.act.operation, []).append(is_able)
        return {
            name: OperationAnswers(len(answers), sum(answers))
            for name, answers in sorted(able.items())
        }

    def _is_able(self, request: Observation) -> bool | None:
        """Return whether a request could show a fault.

        If its answer was lost and its prompt was not answered again yet, return None.
        """
        if request.outcome.is_lost:
            suspect = self.suspects.get(request.key)
            if suspect is None or suspect.repeat_outcome is None:
                return None
            return suspect.is_doubtful
        return request.outcome.word != UNCOMPARED

    def untested(self) -> dict[str, OperationAnswers]:
        """Return the operations that show no fault, as the model gets under half of them right."""
        return {name: answers for name, answers in self.operations().items() if answers.is_untested}


def change_at(
    lone_prompts: Sequence[tuple[int, bool]], start: int, bet: Bet = log_increase, event: str = ""
) -> Change:
    """Return how much was lost before a round and since then.

    lone_prompts: the round of each, and whether it was lost. bet: that more is lost on one side.
    """
    before = [is_lost for number, is_lost in lone_prompts if number < start]
    since = [is_lost for number, is_lost in lone_prompts if number >= start]
    counts_before = sum(before), len(before)
    counts_since = sum(since), len(since)
    return Change(
        start=start,
        before=counts_before,
        since=counts_since,
        wealth=bet(counts_before, counts_since),
        event=event,
    )


def change_over_time(lone_prompts: Sequence[tuple[int, bool]], bet: Bet) -> Change | None:
    """Return the split on one side of which most is lost, or None for a single round.

    Its bet is the mean over all splits, which pays for having tried several.
    """
    rounds = sorted({number for number, _ in lone_prompts})[1:]
    step = max(1, len(rounds) // _SPLITS)
    splits = [change_at(lone_prompts, start, bet) for start in rounds[::step]]
    if not splits:
        return None
    clearest = max(splits, key=lambda change: change.wealth)
    return replace(clearest, wealth=mean_of_logs([change.wealth for change in splits]))


def _lost_flags(outcomes: Iterable[tuple[int, RequestOutcome]]) -> list[tuple[int, bool]]:
    """Return the round of each answer that was right or lost, and whether it was lost."""
    return [
        (number, outcome.is_lost)
        for number, outcome in outcomes
        if outcome.has_right_text or outcome.is_lost
    ]
