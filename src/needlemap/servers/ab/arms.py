"""Compare two arms of an `ab`, prompt by prompt: the loss of the answers, the moves of the
log-probabilities, and the worst prompts.

The loss is that of `judging.py`, with one look at all answers, or with looks after each haystack if
a verdict ends the asking. Log-probabilities are a tripwire: they show where to look.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from needlemap.stats import Place, latest_records, place_of
from needlemap.stats.exact import chance_of_more
from needlemap.stats.intervals import t_quantile
from needlemap.stats.judging import PairedLoss, judge
from needlemap.stats.looks import Scope, endless_looks
from needlemap.stats.pairs import (
    FirstDifference,
    first_difference,
    leads_of,
    overruns,
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
# The alpha of each of the tripwire's two tests.
TRIP_ALPHA = 1e-4
WORST = 10
# The fewest haystacks of a third that is compared with another third.
THIRDS = 6
DRIFT_ALPHA = 0.01
# The report shows a position modulo each of these numbers of tokens.
BLOCKS = (16, 64, 128)


@dataclass(frozen=True, slots=True)
class ArmTrial:
    """One prompt of an ab, with its records; a record is None if the prompt was not sent.

    Attributes:
        reference: The reference's record.
        other: The other arm's record.
        repeat: The record of the second time that the reference was sent the prompt.
        weighed_records: In the same order, the records in which each arm was given the
            reference's answer, to be weighed.
    """

    family: str
    place: Place
    reference: Record | None
    other: Record | None
    repeat: Record | None = None
    weighed_records: tuple[Record | None, ...] = (None, None, None)

    @property
    def scores(self) -> tuple[float | None, float | None]:
        """Return the scores of the reference and of the other arm.

        If only one of two answers stops by itself, the other one is wrong.
        """
        return scores_of(self.reference, self.other)

    @property
    def is_pair(self) -> bool:
        """Return True if both arms answered the prompt."""
        return None not in self.scores

    @property
    def is_complete(self) -> bool:
        """Return True if both arms were sent the prompt."""
        return self.reference is not None and self.other is not None

    @property
    def loss(self) -> float | None:
        """Return the reference's score minus the other arm's, or None if either is missing."""
        reference_score, other_score = self.scores
        if reference_score is None or other_score is None:
            return None
        return reference_score - other_score

    @property
    def difference(self) -> FirstDifference | None:
        """Return the first difference of the two answers, or None if they are equal.

        If an arm did not answer, the result is None as well.
        """
        reference, other = self.reference, self.other
        if reference is None or other is None:
            return None
        if reference.answer is None or other.answer is None:
            return None
        tokens = tokens_of(reference.logprobs), tokens_of(other.logprobs)
        return first_difference(reference.answer, other.answer, tokens)

    @property
    def nats(self) -> float | None:
        """Return how much likelier the other arm finds the reference's answer, in nats a token."""
        return self._mean_move(self.other, self.weighed_records[1])

    @property
    def own_nats(self) -> float | None:
        """Return how much likelier the reference finds its own answer the second time."""
        return self._mean_move(self.repeat, self.weighed_records[2])

    @property
    def way(self) -> LogprobSource | None:
        """Return the source of the other arm's log-probabilities, or None if it has none."""
        if self.nats is None:
            return None
        for record in (self.weighed_records[1], self.other):
            if record and record.logprobs:
                return record.logprobs.way
        return None

    def _mean_move(self, record: Record | None, weighed_record: Record | None) -> float | None:
        """Return how much likelier an arm finds the reference's answer, in nats a token.

        If both arms weighed that answer, it is compared token by token. Otherwise the answers that
        they wrote are compared.
        """
        reference_record = self.weighed_records[0]
        reference = reference_record.logprobs if reference_record else None
        weighed = weighed_record.logprobs if weighed_record else None
        if reference and weighed and reference.tokens == weighed.tokens:
            moves = _lead_moves(reference, weighed, len(reference.tokens))
            return sum(moves) / len(moves)
        return mean_move(self.reference, record)

    @property
    def tokens_before_difference(self) -> int | None:
        """Return how many tokens, prompt included, precede the first differing token.

        If the answers do not differ, or if the server did not number its tokens, the result is
        None.
        """
        difference = self.difference
        logprobs = self.reference.logprobs if self.reference else None
        if difference is None or difference.token is None:
            return None
        if logprobs is None or logprobs.start is None:
            return None
        return logprobs.start + difference.token


def mean_move(reference: Record | None, other: Record | None) -> float | None:
    """Return how much likelier an arm finds the reference's answer, in nats a token.

    As far as both answers are equal, the move of a token is the change of its lead over the
    runner-up, which moves even if a model is almost sure. At the first difference it is the change
    of the reference's token: if that is the other arm's runner-up, it is compared with that; if
    not, the runner-up is an upper bound. The tokens that end both answers are equal, though a
    server may spell one as ''.

    If a record has no log-probabilities, the result is None.
    """
    reference_logprobs = reference.logprobs if reference else None
    other_logprobs = other.logprobs if other else None
    if not reference_logprobs or not other_logprobs:
        return None

    tokens, other_tokens = reference_logprobs.tokens, other_logprobs.tokens
    equal_count = shared_prefix(tokens, other_tokens)
    is_last = equal_count + 1 == len(tokens) == len(other_tokens)
    if is_last and "" in (tokens[equal_count], other_tokens[equal_count]):
        equal_count += 1

    moves = _lead_moves(reference_logprobs, other_logprobs, equal_count)
    if equal_count < min(len(tokens), len(other_tokens)):
        move = _move_at_difference(reference_logprobs, other_logprobs, equal_count)
        if move is not None:
            moves.append(move)
    return sum(moves) / len(moves) if moves else None


def _move_at_difference(reference: Logprobs, other: Logprobs, index: int) -> float | None:
    """Return how much likelier an arm that wrote another token finds the reference's token.

    If the arm has no runner-up, the result is None. If the token is not its runner-up, the result
    is at most 0.
    """
    runner_up = other.other_nats[index]
    if runner_up is None:
        return None

    lead = leads_of(reference)[index]
    expected = reference.nats[index] if lead is None else other.nats[index] + lead
    change = runner_up - expected
    is_runner_up = other.others[index] == reference.tokens[index]
    return change if is_runner_up else min(0.0, change)


def _lead_moves(reference: Logprobs, other: Logprobs, count: int) -> list[float]:
    """Return the changes of the first tokens' leads over their runners-up, in nats.

    If a token has no runner-up in one arm, its change is that of its log-probability.
    """
    moves = []
    leads = zip(leads_of(reference)[:count], leads_of(other)[:count], strict=True)
    for index, (lead, other_lead) in enumerate(leads):
        if lead is None or other_lead is None:
            moves.append(other.nats[index] - reference.nats[index])
        else:
            moves.append(other_lead - lead)
    return moves


def trios(families: Mapping[str, Sequence[Iterable[Record]]]) -> list[ArmTrial]:
    """Return all prompts with their records, in the order of the haystacks.

    families: by name, the records of the reference, those of the other arm, and those of the
        second time that the reference was asked; if answers were weighed, the same three of them.
    """
    rows = []
    for rank, (name, arms) in enumerate(families.items()):
        by_place = [
            {place_of(record): record for record in latest_records(records)} for records in arms
        ]
        for place in set().union(*by_place[:3]):
            reference, other, repeat, *weighed = (records.get(place) for records in by_place)
            trial = ArmTrial(
                name,
                place,
                reference=reference,
                other=other,
                repeat=repeat,
                weighed_records=tuple(weighed) or (None, None, None),
            )
            rows.append((place[0], rank, trial))
    rows.sort(key=lambda row: (row[0], row[1], row[2].place))
    return [trial for _, _, trial in rows]


@dataclass(frozen=True, slots=True)
class ArmsChange:
    """The change of a cell's prompts that both arms were sent.

    Attributes:
        n: The number of pairs, which both arms answered.
        missing: The number of prompts that an arm did not answer.
        loss: The mean loss of the pairs, as a share; None without a pair.
        lost, gained: The pairs that the other arm lost and gained.
        nats: The mean change in nats a token; None if no prompt shows it.
    """

    n: int
    missing: int
    loss: float | None
    lost: int
    gained: int
    nats: float | None

    @classmethod
    def of(cls, trials: Sequence[ArmTrial]) -> ArmsChange:
        """Return the change of some prompts that both arms were sent."""
        losses = [loss for trial in trials if (loss := trial.loss) is not None]
        return cls(
            n=len(losses),
            missing=len(trials) - len(losses),
            loss=_mean(losses),
            lost=sum(loss > 0 for loss in losses),
            gained=sum(loss < 0 for loss in losses),
            nats=_mean([nats for trial in trials if (nats := trial.nats) is not None]),
        )


@dataclass(frozen=True, slots=True)
class Drift:
    """The mean losses of the first and the last third of the haystacks, as shares.

    They differ by more than chance explains.
    """

    first_loss: float
    last_loss: float


@dataclass(frozen=True, slots=True)
class ArmsLoss:
    """The outcome of comparing two arms' answers.

    Attributes:
        loss: The loss of the other arm, with its verdict.
        failed: The number of prompts that the other arm and the reference failed to answer, of
            those that both were sent.
        prompts: The number of prompts that both were sent, those that both failed included.
        drift: A change of the loss during the ab; None if there was none.
        ran_on: The number of answers of the reference and of the other arm that alone ran on to
            the token limit, and so count as wrong.
    """

    loss: PairedLoss
    failed: tuple[int, int]
    prompts: int
    drift: Drift | None = None
    ran_on: tuple[int, int] = (0, 0)


def judge_arms(
    trials: Iterable[ArmTrial], margin: float, *, wanted: Scope = "these", stops: bool = False
) -> ArmsLoss:
    """Return the loss of the other arm.

    margin: the largest loss that is accepted, as a share. wanted: the scope that the verdict is to
        hold for. stops: whether a verdict ends the asking, so that there were looks after each
        haystack.
    """
    trials = list(trials)
    ranks = {name: rank for rank, name in enumerate(dict.fromkeys(row.family for row in trials))}
    prompts = []
    for trial in trials:
        if not trial.is_complete and not stops:
            continue
        # A haystack of one family is a text of its own.
        haystack = trial.place[0] * len(ranks) + ranks[trial.family]
        reference_score, other_score = trial.scores
        prompts.append(
            JudgedPrompt(
                trial.family,
                trial.place,
                haystack,
                reference_score,
                other_score,
                trial.is_complete,
            )
        )
    rows = Rows.of(prompts)

    moments = sorted(
        record.finished_at
        for trial in trials
        for record in (trial.reference, trial.other)
        if record is not None and record.finished_at
    )
    loss = judge(
        rows,
        margin,
        wanted=wanted,
        looks=endless_looks if stops else None,
        measured=(moments[0], moments[-1]) if moments else ("", ""),
    )
    scores = [trial.scores for trial in trials if trial.is_complete]
    ran_on = [overruns(trial.reference, trial.other) for trial in trials]
    return ArmsLoss(
        loss,
        failed=(
            sum(score is None for _, score in scores),
            sum(score is None for score, _ in scores),
        ),
        prompts=len(scores),
        drift=_drift(rows),
        ran_on=(sum(first for first, _ in ran_on), sum(second for _, second in ran_on)),
    )


def _drift(rows: Rows) -> Drift | None:
    """Return a change of the loss between the first and the last third of the haystacks.

    The haystacks have the order in which they were asked. If Welch's two-sided test of the two
    means finds no difference, or if a third has too few haystacks, the result is None.
    """
    judged_rows = rows.where(~np.isnan(rows.losses))
    haystacks, index, n = np.unique(judged_rows.haystack, return_inverse=True, return_counts=True)
    size = len(haystacks) // 3
    if size < THIRDS:
        return None

    means = np.bincount(index, judged_rows.losses, minlength=len(haystacks)) / n
    first_third, last_third = means[:size], means[-size:]
    change = float(last_third.mean() - first_third.mean())
    error = float(np.sqrt((first_third.var(ddof=1) + last_third.var(ddof=1)) / size))
    # If all haystacks lose the same, the error is 0, and rounding is no change.
    if abs(change) <= 1e-9 + t_quantile(1 - DRIFT_ALPHA / 2, size - 1) * error:
        return None
    return Drift(first_loss=float(first_third.mean()), last_loss=float(last_third.mean()))


@dataclass(frozen=True, slots=True)
class LogprobShift:
    """How far log-probabilities moved, compared with the reference's own moves.

    Attributes:
        n: The prompts that show how far the other arm moved the reference's answer.
        again_n: The prompts that show how far the reference's second answer moved.
        usual: The limit in nats a token that the reference's own moves rarely exceed.
        beyond, again_beyond: How many prompts moved beyond it.
        median, again_median: The medians of the moves, without their signs.
        mean: The mean of the other arm's moves.
        p_share: The chance that equal arms move so many prompts beyond the limit.
        p_median: The same for the reference's median as the limit.
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
        """Return the shift, or None if one of the arms has no moves.

        moves: the other arm's, in nats a token. again_moves: those of the reference's second
            answers.
        """
        if not moves or not again_moves:
            return None
        sizes, again_sizes = np.abs(moves), np.abs(again_moves)

        def counts_beyond(limit: float) -> tuple[int, int]:
            return int((sizes > limit).sum()), int((again_sizes > limit).sum())

        def chance(limit: float) -> float:
            count, again_count = counts_beyond(limit)
            return chance_of_more(count, len(sizes), again_count, len(again_sizes))

        usual = max(LEAST_NATS, float(np.quantile(again_sizes, USUAL, method="higher")))
        middle = max(LEAST_NATS, float(np.median(again_sizes)))
        count, again_count = counts_beyond(usual)
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
    """Return the tripwire of some prompts, or None if there are no log-probabilities."""
    trials = list(trials)
    return LogprobShift.of(
        [nats for trial in trials if (nats := trial.nats) is not None],
        [nats for trial in trials if (nats := trial.own_nats) is not None],
    )


def worst_of(trials: Iterable[ArmTrial], usual: float) -> list[ArmTrial]:
    """Return the WORST prompts that changed most.

    Lost ones come first, then those that the other arm alone did not answer, then less likely
    answers, then short prompts.

    usual: the limit in nats a token up to which a move is no change.
    """

    def has_changed(trial: ArmTrial) -> bool:
        if trial.loss is None:
            return trial.is_complete and trial.scores[0] is not None
        return trial.loss > 0 or bool(trial.difference) or abs(trial.nats or 0.0) > usual

    changed_trials = [trial for trial in trials if has_changed(trial)]
    changed_trials.sort(
        key=lambda trial: (
            -(trial.loss or 0.0),
            trial.is_pair,
            trial.nats or 0.0,
            trial.place[1],
        )
    )
    return changed_trials[:WORST]


def changes_by_cell(trials: Iterable[ArmTrial]) -> dict[tuple[str, int, float], ArmsChange]:
    """Return the change of each cell, by family, length and depth."""
    cells = defaultdict[tuple[str, int, float], list[ArmTrial]](list)
    for trial in trials:
        if trial.is_complete:
            _, length, depth = trial.place
            cells[trial.family, length, depth].append(trial)
    return {cell: ArmsChange.of(cell_trials) for cell, cell_trials in sorted(cells.items())}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
