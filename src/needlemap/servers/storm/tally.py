"""Count what a storm observed, and bet on what its server loses.

A foreign secret, another session's text and salad are faults each by themselves. Lost, endless and
empty answers are a weak model's own too. They are faults of state if one of these bets wins, each
of which is valid however often one looks:

* Replays of their sequence lose them more often than the same prompts cold.
* The storm loses more than the prompts sent cold in the same minutes.
* Prompts that share nothing lose more from some round on, up to one, or since the first client
  went away: the server is spoilt for all.
* The gauge loses what it never loses by itself. If much is lost when sent alone too, the server
  computes wrong, or is spoilt until it is started anew.

Margins that moved under a right text are faults of state if replays move them more often than
cold requests, and no coarse cache explains how.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, log

from needlemap.servers.check.probe import KNOWN_MISS_RATE
from needlemap.servers.storm.evidence import (
    Change,
    Evidence,
    Observation,
    OperationAnswers,
    Suspect,
)
from needlemap.servers.storm.outcome import UNCOMPARED
from needlemap.stats.bets import highest_rate, log_blocks, log_mixture, log_pairs

# Of any bet, until faults of state are confirmed.
GOAL = log(1_000)
# From which on a bet points to them: of sound servers one in 200 at most.
POINTS = log(200)
# Share of prompts that the gauge may miss by itself.
OF_GAUGE = 1e-4
# Share of lost answers that is bet on, against the share that the gauge may lose.
SPOILT = 0.25


@dataclass(frozen=True, slots=True)
class Bets:
    """The log of what each bet has won.

    Attributes:
        replays: Replays lose answers more often than cold requests.
        moved: Replays move margins more often than cold requests.
        pairs: The storm loses more prompts than the same ones cold in the same minutes.
        gauge: The gauge loses prompts that it answers right alone.
        change: Prompts that share nothing are lost more often since some round, or up to one.
        spoilt: The gauge loses many prompts, alone too.
    """

    replays: float
    moved: float
    pairs: float
    gauge: float
    change: float
    spoilt: float

    @property
    def best(self) -> float:
        """Return the log of what the most successful bet has won."""
        return max(self.replays, self.moved, self.pairs, self.gauge, self.change, self.spoilt)


@dataclass(frozen=True, slots=True)
class Tally:
    """What a storm's evidence comes to.

    Attributes:
        requests: All that were sent and not cancelled.
        compared: Of them, those of which it is known what came.
        certain: Faults by themselves, wherever they were seen.
        right: The share of right texts among the compared.
        missed: Requests that were lost, and right alone.
        missed_alone: Requests that were lost, alone too.
        change: When prompts that share nothing are lost more often.
        bets: What the bets have won.
        families: Families that were compared.
        hit: Of them, those with a faulty request.
        faulty: The sum of the families' shares of faulty requests.
        highest: The bound of the rate.
        operations: Answers by operation.
        untested: Of them, those that could show no fault and that the user asks about.
        tested: Names of those that could.
    """

    requests: tuple[Observation, ...]
    compared: tuple[Observation, ...]
    certain: tuple[Observation, ...]
    right: float
    missed: int
    missed_alone: int
    change: Change | None
    bets: Bets
    families: int
    hit: int
    faulty: float
    highest: float
    operations: Mapping[str, OperationAnswers]
    untested: Mapping[str, OperationAnswers]
    tested: tuple[str, ...]

    @property
    def leaks(self) -> bool:
        """Return True if an answer held another prompt's secret."""
        return any(request.outcome.word == "foreign" for request in self.certain)

    @property
    def counts(self) -> dict[str, int]:
        """Return how often each outcome came."""
        return dict(Counter(str(request.outcome.word) for request in self.requests))


def tally_of(evidence: Evidence, *, gauge: bool, left_out: Iterable[str] = ()) -> Tally:
    """Count the evidence and place the bets.

    gauge: whether the model is the gauge, which misses nothing by itself. left_out: operations
    that the user does not ask about.
    """
    requests = tuple(request for request in evidence.storm if request.outcome.word != "cancelled")
    compared = tuple(request for request in requests if request.outcome.word != UNCOMPARED)
    certain = tuple(
        request for request in (*compared, *evidence.other_faults) if request.outcome.is_certain
    )
    missed = sum(suspect.is_doubtful for suspect in evidence.lost_suspects)
    missed_alone = {
        suspect.request.key for suspect in evidence.lost_suspects if suspect.is_alone_too
    }
    change = evidence.change()
    bets = Bets(
        replays=wealth_of(evidence.lost_suspects),
        moved=wealth_of(evidence.moved_suspects),
        pairs=log_pairs(*evidence.discordant),
        gauge=log_mixture(missed, len(compared), OF_GAUGE) if gauge and compared else 0.0,
        change=change.wealth if change else -inf,
        spoilt=log_spoilt(len(missed_alone), len(compared)) if gauge else 0.0,
    )

    faulty_keys = _faulty_keys(evidence, compared)
    if change and bets.change >= POINTS:
        # Then what was lost cold too is no fault of the model's.
        faulty_keys |= {
            suspect.request.key
            for suspect in evidence.lost_suspects
            if change.is_in_worse_part(suspect.request.round)
        }
    if bets.spoilt >= POINTS:
        faulty_keys |= missed_alone
    families, faulty = shares(compared, faulty_keys)

    operations = evidence.operations()
    untested = {} if gauge else evidence.untested()
    right = sum(request.outcome.has_right_text for request in compared)
    return Tally(
        requests=requests,
        compared=compared,
        certain=certain,
        right=right / len(compared) if compared else 0.0,
        missed=missed,
        missed_alone=len(missed_alone),
        change=change,
        bets=bets,
        families=families,
        hit=len({request.unit for request in compared if request.key in faulty_keys}),
        faulty=faulty,
        highest=highest_rate(round(faulty, 6), families),
        operations=operations,
        tested=tuple(
            name
            for name, answers in operations.items()
            if gauge or (name not in untested and answers.able)
        ),
        untested={name: row for name, row in untested.items() if name not in set(left_out)},
    )


def _faulty_keys(evidence: Evidence, compared: Iterable[Observation]) -> set[int]:
    """Return the keys of the requests that count as faulty before the bets.

    A request in doubt counts unless the same prompt was wrong alone too.
    """
    alone_too = {key for key, suspect in evidence.suspects.items() if suspect.is_alone_too}
    keys = set[int]()
    for request in compared:
        outcome = request.outcome
        is_fault = outcome.is_certain or outcome.word == "refused"
        is_in_doubt = outcome.is_lost or evidence.is_moved(request)
        if is_fault or (is_in_doubt and request.key not in alone_too):
            keys.add(request.key)
    return keys


def wealth_of(suspects: Iterable[Suspect]) -> float:
    """Return the log of the bet that replays lose these suspects more often than cold requests."""
    return log_blocks(block for suspect in suspects for block in suspect.blocks)


def log_spoilt(lost: int, requests: int) -> float:
    """Return the log of the bet that the gauge's answers are lost more often than `check` allows.

    If as many are lost as `check` allows, the bet is fair. If fewer are, it loses.
    """
    lost_odds = log(SPOILT / KNOWN_MISS_RATE)
    right_odds = log((1 - SPOILT) / (1 - KNOWN_MISS_RATE))
    return lost * lost_odds + (requests - lost) * right_odds


def shares(requests: Iterable[Observation], faulty_keys: Iterable[int]) -> tuple[int, float]:
    """Return the number of families, and the sum of their shares of faulty requests."""
    keys = set(faulty_keys)
    sizes, faulty = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for request in requests:
        sizes[request.unit] += 1
        faulty[request.unit] += request.key in keys
    return len(sizes), sum(faulty[unit] / size for unit, size in sizes.items())
