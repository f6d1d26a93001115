"""Compare two arms of an `ab`, prompt by prompt: the loss of the answers, what log-probabilities
moved, the worst.

The loss is that of `judging.py`: one look at what was asked, or looks after each haystack if a
verdict ends the asking. Log-probabilities are a tripwire: they say where to look.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from needlemap.stats import Place, latest_records, place_of
from needlemap.stats.exact import mcnemar, more_often
from needlemap.stats.intervals import t_quantile
from needlemap.stats.judging import PairedLoss, judge
from needlemap.stats.looks import Scope, endless_looks
from needlemap.stats.pairs import (
    FirstDifference,
    first_difference,
    scores_of,
    shared_prefix,
    tokens_of,
)
from needlemap.stats.rows import JudgedPrompt, Rows

if TYPE_CHECKING:
    from needlemap.models import Logprobs, LogprobSource
    from needlemap.records.record import Record

# Share of the reference's own differences that are usual.
USUAL = 0.95
# Nats a token: less is rounding.
LEAST_NATS = 1e-5
# Of each of the tripwire's two tests.
TRIP_ALPHA = 1e-4
WORST = 10
# Haystacks of a third, at least, to be compared with another.
THIRDS = 6
DRIFT_ALPHA = 0.01
BLOCKS = (16, 64, 128)


@dataclass(frozen=True, slots=True)
class ArmTrial:
    """One prompt of an ab; a record is None if it was not asked.

    Attributes:
        first: The reference's record.
        second: The other arm's.
        again: The reference's second one.
        weighed: In the same order, how likely each finds the reference's answer if that is given.
    """

    family: str
    place: Place
    first: Record | None
    second: Record | None
    again: Record | None = None
    weighed: tuple[Record | None, ...] = (None, None, None)

    @property
    def scores(self) -> tuple[float | None, float | None]:
        """Return the scores of the reference and of the other arm.

        An answer that does not stop where the other's does is wrong.
        """
        return scores_of(self.first, self.second)

    @property
    def is_pair(self) -> bool:
        """Return True if both were asked, and at least one answered."""
        return self.first is not None and self.second is not None and self.scores != (None, None)

    @property
    def lost(self) -> float:
        """Return how much less the other arm scored. An arm that did not answer is wrong."""
        first, second = self.scores
        return (first or 0.0) - (second or 0.0)

    @property
    def difference(self) -> FirstDifference | None:
        """Return where the two answers part."""
        first, second = self.first, self.second
        if first is None or second is None or first.answer is None or second.answer is None:
            return None
        tokens = tokens_of(first.logprobs), tokens_of(second.logprobs)
        return first_difference(first.answer, second.answer, tokens)

    @property
    def nats(self) -> float | None:
        """Return how much likelier the other arm finds the reference's answer, in nats a token."""
        return self._moved(self.second, self.weighed[1])

    @property
    def own_nats(self) -> float | None:
        """Return how much likelier the reference finds its answer when it is asked again."""
        return self._moved(self.again, self.weighed[2])

    @property
    def way(self) -> LogprobSource | None:
        """Return how the other arm's log-probabilities came about; None without any."""
        if self.nats is None:
            return None
        for record in (self.weighed[1], self.second):
            if record and record.logprobs:
                return record.logprobs.way
        return None

    def _moved(self, record: Record | None, weighed: Record | None) -> float | None:
        """Return how much likelier an arm finds the reference's answer.

        It is taken from the answer that was given, or else from those that were written.
        """
        reference = self.weighed[0]
        first = reference.logprobs if reference else None
        second = weighed.logprobs if weighed else None
        if first and second and first.tokens == second.tokens:
            moves = _leads_moved(first, second, len(first.tokens))
            return sum(moves) / len(moves)
        return moved(self.first, record)

    @property
    def position(self) -> int | None:
        """Return the tokens before the first other one, the prompt's included; None if unknown."""
        difference = self.difference
        logprobs = self.first.logprobs if self.first else None
        if difference is None or difference.token is None:
            return None
        if logprobs is None or logprobs.start is None:
            return None
        return logprobs.start + difference.token


def moved(first: Record | None, second: Record | None) -> float | None:
    """Return how much likelier a second arm finds a first one's answer, in nats a token.

    It is measured by the lead over the runner-up, which moves even if a model is almost sure, as
    far as both say the same. At the first other token it is the second's word for the first's
    token: its runner-up, or what is at most as likely as that if the token is none of the two best.
    The token that ends both is the same, though a server may spell it as ''.
    """
    one = first.logprobs if first else None
    other = second.logprobs if second else None
    if not one or not other:
        return None
    same = shared_prefix(one.tokens, other.tokens)
    is_last = same + 1 == len(one.tokens) == len(other.tokens)
    if is_last and "" in (one.tokens[same], other.tokens[same]):
        same += 1
    moves = _leads_moved(one, other, same)
    if same < min(len(one.tokens), len(other.tokens)):
        move = _moved_at_parting(one, other, same)
        if move is not None:
            moves.append(move)
    return sum(moves) / len(moves) if moves else None


def _moved_at_parting(one: Logprobs, other: Logprobs, at: int) -> float | None:
    """Return how much less likely the other finds one's token if it wrote another itself."""
    runner_up = other.other_nats[at]
    if runner_up is None:
        return None
    lead = _lead(one, at)
    expected = one.nats[at] if lead is None else other.nats[at] + lead
    change = runner_up - expected
    is_runner_up = other.others[at] == one.tokens[at]
    return change if is_runner_up else min(0.0, change)


def _lead(logprobs: Logprobs, at: int) -> float | None:
    """Return by how many nats a token was likelier than the runner-up; None without one."""
    other = logprobs.other_nats[at]
    return None if other is None else logprobs.nats[at] - other


def _leads_moved(one: Logprobs, other: Logprobs, count: int) -> list[float]:
    """Return how far the leads of the first tokens moved.

    It is their log-probabilities if a side has no runner-up.
    """
    moves = []
    for at in range(count):
        lead, other_lead = _lead(one, at), _lead(other, at)
        if lead is None or other_lead is None:
            moves.append(other.nats[at] - one.nats[at])
        else:
            moves.append(other_lead - lead)
    return moves


def trios(families: Mapping[str, Sequence[Iterable[Record]]]) -> list[ArmTrial]:
    """Return all prompts in the order of the haystacks.

    families: by name the records of the reference, of the other arm, and of the reference's second
    asking, and then the same of weighed answers, if any.
    """
    rows = []
    for rank, (name, arms) in enumerate(families.items()):
        by_place = [
            {place_of(record): record for record in latest_records(records)} for records in arms
        ]
        for place in set().union(*by_place[:3]):
            first, second, again, *weighed = (records.get(place) for records in by_place)
            trial = ArmTrial(
                name,
                place,
                first=first,
                second=second,
                again=again,
                weighed=tuple(weighed) or (None, None, None),
            )
            rows.append((place[0], rank, trial))
    rows.sort(key=lambda row: (row[0], row[1], row[2].place))
    return [trial for _, _, trial in rows]


@dataclass(frozen=True, slots=True)
class FamilyChange:
    """One family's pairs.

    Attributes:
        first, second: The means of both arms, shares.
        lost, gained: Pairs that the second arm lost and gained.
        p: Of these, by McNemar's exact test.
    """

    n: int
    first: float
    second: float
    lost: int
    gained: int
    p: float

    @classmethod
    def of(cls, pairs: Sequence[ArmTrial]) -> FamilyChange:
        """Return the change of at least one pair."""
        lost = sum(pair.lost > 0 for pair in pairs)
        gained = sum(pair.lost < 0 for pair in pairs)
        scores = [pair.scores for pair in pairs]
        return cls(
            n=len(pairs),
            first=sum(first or 0.0 for first, _ in scores) / len(pairs),
            second=sum(second or 0.0 for _, second in scores) / len(pairs),
            lost=lost,
            gained=gained,
            p=mcnemar(lost, gained),
        )


@dataclass(frozen=True, slots=True)
class Drift:
    """Mean losses of the first and the last third of the haystacks, shares, that differ by more
    than chance."""

    first: float
    last: float


@dataclass(frozen=True, slots=True)
class ArmsLoss:
    """What two arms' answers come to.

    Attributes:
        judged: The loss, with its verdict.
        failed: Pairs that the other arm failed to answer, and that the reference did.
        prompts: Prompts that both were sent, those that both failed included.
        drift: A change of the loss while it was asked; None if there was none.
    """

    judged: PairedLoss
    failed: tuple[int, int]
    prompts: int
    drift: Drift | None = None


def judge_arms(
    trials: Iterable[ArmTrial], margin: float, *, wanted: Scope = "these", stops: bool = False
) -> ArmsLoss:
    """Return what the other arm loses.

    margin: a share. wanted: the scope that the word is to hold for. stops: whether a verdict ends
    the asking, so that there were looks after each haystack.
    """
    trials = list(trials)
    ranks = {name: rank for rank, name in enumerate(dict.fromkeys(row.family for row in trials))}
    prompts = []
    for trial in trials:
        is_asked = trial.first is not None and trial.second is not None
        if not is_asked and not stops:
            continue
        # A haystack of one family is a text of its own.
        haystack = trial.place[0] * len(ranks) + ranks[trial.family]
        prompts.append(JudgedPrompt(trial.family, trial.place, haystack, *trial.scores, is_asked))
    rows = Rows.of(prompts)
    moments = sorted(
        record.finished_at
        for trial in trials
        for record in (trial.first, trial.second)
        if record is not None and record.finished_at
    )
    judged = judge(
        rows,
        margin,
        wanted=wanted,
        looks=endless_looks if stops else None,
        measured=(moments[0], moments[-1]) if moments else ("", ""),
    )
    scores = [trial.scores for trial in trials if trial.is_pair]
    return ArmsLoss(
        judged,
        failed=(
            sum(second is None for _, second in scores),
            sum(first is None for first, _ in scores),
        ),
        prompts=sum(trial.first is not None and trial.second is not None for trial in trials),
        drift=_drift(rows),
    )


def _drift(rows: Rows) -> Drift | None:
    """Return a change of the loss between the first and the last third of the haystacks.

    They stand in the order in which they were asked. Welch's test of their means, two-sided.
    """
    known = rows.where(~np.isnan(rows.losses))
    haystacks, index, n = np.unique(known.haystack, return_inverse=True, return_counts=True)
    size = len(haystacks) // 3
    if size < THIRDS:
        return None
    means = np.bincount(index, known.losses, minlength=len(haystacks)) / n
    first, last = means[:size], means[-size:]
    change = float(last.mean() - first.mean())
    error = float(np.sqrt((first.var(ddof=1) + last.var(ddof=1)) / size))
    if abs(change) <= 1e-9 + t_quantile(1 - DRIFT_ALPHA / 2, size - 1) * error:
        return None
    return Drift(first=float(first.mean()), last=float(last.mean()))


@dataclass(frozen=True, slots=True)
class LogprobShift:
    """What log-probabilities say.

    Attributes:
        n: Prompts that show how far the other arm moved the reference's answer.
        again_n: Prompts that show how far the reference's second asking did.
        usual: Nats a token that the reference's own differences rarely exceed.
        beyond, again_beyond: How many moved farther.
        median, again_median: The medians of the differences either way.
        mean: The mean of the other arm's differences.
        p_share: The chance that equal arms differ so often by more than is usual.
        p_median: The same for the median.
    """

    n: int
    again_n: int
    usual: float
    beyond: int
    again_beyond: int
    median: float
    again_median: float
    mean: float
    p_share: float
    p_median: float

    @property
    def tripped(self) -> bool:
        """Return True if the other arm moves answers more than the reference moves its own."""
        return min(self.p_share, self.p_median) <= TRIP_ALPHA

    @classmethod
    def of(cls, moves: Sequence[float], again_moves: Sequence[float]) -> LogprobShift | None:
        """Return the shift from differences in nats a token; None if there are none.

        moves: of the other arm. again_moves: of the reference's second asking.
        """
        if not moves or not again_moves:
            return None
        sizes, again_sizes = np.abs(moves), np.abs(again_moves)

        def beyond(line: float) -> tuple[int, int]:
            return int((sizes > line).sum()), int((again_sizes > line).sum())

        def chance(line: float) -> float:
            count, again_count = beyond(line)
            return more_often(count, len(sizes), again_count, len(again_sizes))

        usual = max(LEAST_NATS, float(np.quantile(again_sizes, USUAL, method="higher")))
        middle = max(LEAST_NATS, float(np.median(again_sizes)))
        count, again_count = beyond(usual)
        return cls(
            n=len(sizes),
            again_n=len(again_sizes),
            usual=usual,
            beyond=count,
            again_beyond=again_count,
            median=median(sizes.tolist()),
            again_median=median(again_sizes.tolist()),
            mean=sum(moves) / len(moves),
            p_share=chance(usual),
            p_median=chance(middle),
        )


def tripwire(trials: Iterable[ArmTrial]) -> LogprobShift | None:
    """Return the tripwire of some prompts; None without log-probabilities."""
    trials = list(trials)
    return LogprobShift.of(
        [nats for trial in trials if (nats := trial.nats) is not None],
        [nats for trial in trials if (nats := trial.own_nats) is not None],
    )


def worst_of(trials: Iterable[ArmTrial], usual: float) -> list[ArmTrial]:
    """Return the prompts that changed most.

    Lost ones come first, then less likely answers, then other texts. usual: nats a token by which
    an answer may move that did not change.
    """
    changed = [
        trial
        for trial in trials
        if trial.is_pair and (trial.lost > 0 or trial.difference or abs(trial.nats or 0.0) > usual)
    ]
    changed.sort(key=lambda trial: (-trial.lost, trial.nats or 0.0, trial.place[1]))
    return changed[:WORST]


def changes_by_cell(
    trials: Iterable[ArmTrial],
) -> dict[tuple[str, int, float], tuple[FamilyChange, float | None]]:
    """Return the change of the pairs of each cell, and the mean change in nats a token.

    The keys are family, length and depth.
    """
    cells = defaultdict[tuple[str, int, float], list[ArmTrial]](list)
    for trial in trials:
        if trial.is_pair:
            _, length, depth = trial.place
            cells[trial.family, length, depth].append(trial)
    return {
        cell: (FamilyChange.of(pairs), _mean_nats(pairs)) for cell, pairs in sorted(cells.items())
    }


def _mean_nats(pairs: Iterable[ArmTrial]) -> float | None:
    moves = [nats for pair in pairs if (nats := pair.nats) is not None]
    return sum(moves) / len(moves) if moves else None
