"""Two arms of an `ab`, prompt by prompt: the loss of the answers, what log-probabilities
moved, the worst.

The loss is that of `judging.py`: one look at what was asked, or where a verdict ends the
asking, looks after each haystack. Log-probabilities are a tripwire: they say where to look.
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
    shared,
    tokens_of,
)
from needlemap.stats.rows import JudgedPrompt, Rows

if TYPE_CHECKING:
    from needlemap.models import Logprobs, LogprobSource
    from needlemap.records.record import Record

USUAL = 0.95  # share of the reference's own differences that are usual
LEAST_NATS = 1e-5  # nats a token: less is rounding
TRIP_ALPHA = 1e-4  # of each of the tripwire's two tests
WORST = 10
THIRDS = 6  # haystacks of a third, at least, to be compared with another
DRIFT_ALPHA = 0.01
BLOCKS = (16, 64, 128)


@dataclass(frozen=True, slots=True)
class ArmTrial:
    """One prompt: the reference's record, the other arm's, and the reference's second one;
    None where it was not asked. weighed: in the same order what each thinks of the reference's
    answer, where it was given."""

    family: str
    place: Place
    first: Record | None
    second: Record | None
    again: Record | None = None
    weighed: tuple[Record | None, ...] = (None, None, None)

    @property
    def scores(self) -> tuple[float | None, float | None]:
        """The scores of the reference and of the other arm. An answer that does not stop where
        the other's does is wrong."""
        return scores_of(self.first, self.second)

    @property
    def is_pair(self) -> bool:
        """Whether both were asked, and one at least answered."""
        return self.first is not None and self.second is not None and self.scores != (None, None)

    @property
    def lost(self) -> float:
        """How much less the other arm scored; who did not answer is wrong."""
        first, second = self.scores
        return (first or 0.0) - (second or 0.0)

    @property
    def difference(self) -> FirstDifference | None:
        """Where the two answers part."""
        one, other = self.first, self.second
        if one is None or other is None or one.answer is None or other.answer is None:
            return None
        return first_difference(
            one.answer, other.answer, (tokens_of(one.logprobs), tokens_of(other.logprobs))
        )

    @property
    def nats(self) -> float | None:
        """How much likelier the other arm finds the reference's answer, in nats a token."""
        return self._moved(self.second, self.weighed[1])

    @property
    def own_nats(self) -> float | None:
        """How much likelier the reference finds it when it is asked again."""
        return self._moved(self.again, self.weighed[2])

    @property
    def way(self) -> LogprobSource | None:
        """How the other arm's log-probabilities came about; None without any."""
        told = [each.logprobs for each in (self.weighed[1], self.second) if each and each.logprobs]
        return told[0].way if told and self.nats is not None else None

    def _moved(self, record: Record | None, weighed: Record | None) -> float | None:
        one, other = (each and each.logprobs for each in (self.weighed[0], weighed))
        if one and other and one.tokens == other.tokens:
            moves = _leads_moved(one, other, len(one.tokens))
            return sum(moves) / len(moves)
        return moved(self.first, record)

    @property
    def position(self) -> int | None:
        """Tokens before the first other one, the prompt's included; None where unknown."""
        found, told = self.difference, self.first and self.first.logprobs
        if found is None or found.token is None or not told or told.start is None:
            return None
        return told.start + found.token


def moved(first: Record | None, second: Record | None) -> float | None:
    """How much likelier a second arm finds a first one's answer, in nats a token, as far as
    both say: by the lead over the runner-up, which moves also where a model is all but sure.

    That is to the first other token, and of that one the second's word for it: its runner-up,
    or, where it is none of the two best, what is at most as likely as that. The token that
    ends both is the same, though a server may spell it as ''.
    """
    one, other = first and first.logprobs, second and second.logprobs
    if not one or not other:
        return None
    same = shared(one.tokens, other.tokens)
    if same + 1 == len(one.tokens) == len(other.tokens):
        same += "" in (one.tokens[same], other.tokens[same])
    found = _leads_moved(one, other, same)
    if (
        same < min(len(one.tokens), len(other.tokens))
        and (least := other.other_nats[same]) is not None
    ):
        before = _lead(one, same)
        change = least - (one.nats[same] if before is None else other.nats[same] + before)
        is_next = other.others[same] == one.tokens[same]
        found.append(change if is_next else min(0.0, change))
    return sum(found) / len(found) if found else None


def _lead(logprobs: Logprobs, at: int) -> float | None:
    """By how many nats a token was likelier than the runner-up; None without one."""
    other = logprobs.other_nats[at]
    return None if other is None else logprobs.nats[at] - other


def _leads_moved(one: Logprobs, other: Logprobs, count: int) -> list[float]:
    """How far the leads of the first tokens moved; their log-probabilities if a side has no
    runner-up."""
    moves = []
    for at in range(count):
        leads = _lead(one, at), _lead(other, at)
        if leads[0] is None or leads[1] is None:
            moves.append(other.nats[at] - one.nats[at])
        else:
            moves.append(leads[1] - leads[0])
    return moves


def trios(families: Mapping[str, Sequence[Iterable[Record]]]) -> list[ArmTrial]:
    """All prompts in the order of the haystacks. families: by name the records of the
    reference, of the other arm, and of the reference's second asking, and then the same of
    weighed answers, if any."""
    made = []
    for rank, (name, arms) in enumerate(families.items()):
        found = [{place_of(each): each for each in latest_records(records)} for records in arms]
        for place in set().union(*found[:3]):
            first, second, again, *weighed = (each.get(place) for each in found)
            told = tuple(weighed) or (None, None, None)
            made.append((place[0], rank, ArmTrial(name, place, first, second, again, told)))
    return [trio for *_, trio in sorted(made, key=lambda row: (row[0], row[1], row[2].place))]


@dataclass(frozen=True, slots=True)
class FamilyChange:
    """One family's pairs: means of both arms as shares, pairs lost and gained, exact McNemar's
    p of these."""

    n: int
    first: float
    second: float
    lost: int
    gained: int
    p: float

    @classmethod
    def of(cls, pairs: Sequence[ArmTrial]) -> FamilyChange:
        """Of at least one pair."""
        lost, gained = sum(each.lost > 0 for each in pairs), sum(each.lost < 0 for each in pairs)
        means = [sum(each.scores[at] or 0.0 for each in pairs) / len(pairs) for at in (0, 1)]
        return cls(len(pairs), means[0], means[1], lost, gained, mcnemar(lost, gained))


@dataclass(frozen=True, slots=True)
class Drift:
    """The mean losses of the first and the last third of the haystacks, shares, where these
    differ by more than chance."""

    first: float
    last: float


@dataclass(frozen=True, slots=True)
class ArmsLoss:
    """What two arms' answers come to. failed: pairs that the other arm failed to answer, and
    that the reference did. prompts: asked of both, also those that both failed."""

    judged: PairedLoss
    failed: tuple[int, int]
    prompts: int
    drift: Drift | None = None


def judge_arms(
    found: Iterable[ArmTrial], margin: float, *, wanted: Scope = "these", stops: bool = False
) -> ArmsLoss:
    """What is lost. margin: a share. wanted: the scope that the word is to hold for. stops:
    whether a verdict ends the asking, so that there were looks after each haystack."""
    found = list(found)
    ranks = {name: at for at, name in enumerate(dict.fromkeys(each.family for each in found))}
    rows = []
    moments = sorted(
        record.finished_at
        for each in found
        for record in (each.first, each.second)
        if record is not None and record.finished_at
    )
    for each in found:
        both = each.first is not None and each.second is not None
        number = each.place[0] * len(ranks) + ranks[each.family]  # a text of its own
        if both or stops:
            rows.append(JudgedPrompt(each.family, each.place, number, *each.scores, both))
    flat = Rows.of(rows)
    looks = endless_looks if stops else None
    measured = (moments[0], moments[-1]) if moments else ("", "")
    judged = judge(flat, margin, wanted=wanted, looks=looks, measured=measured)
    pairs = [each.scores for each in found if each.is_pair]
    failed = sum(other is None for _, other in pairs), sum(one is None for one, _ in pairs)
    tried = sum(each.first is not None and each.second is not None for each in found)
    return ArmsLoss(judged, failed, tried, _drift(flat))


def _drift(rows: Rows) -> Drift | None:
    """A change of the loss between the first and the last third of the haystacks, in the order
    in which they were asked: Welch's test of their means, two-sided."""
    known = rows.where(~np.isnan(rows.losses))
    numbers, at, n = np.unique(known.haystack, return_inverse=True, return_counts=True)
    size = len(numbers) // 3
    if size < THIRDS:
        return None
    means = np.bincount(at, known.losses, minlength=len(numbers)) / n
    first, last = means[:size], means[-size:]
    apart = float(last.mean() - first.mean())
    error = float(np.sqrt((first.var(ddof=1) + last.var(ddof=1)) / size))
    if abs(apart) <= 1e-9 + t_quantile(1 - DRIFT_ALPHA / 2, size - 1) * error:
        return None
    return Drift(float(first.mean()), float(last.mean()))


@dataclass(frozen=True, slots=True)
class LogprobShift:
    """What log-probabilities say. n, again_n: prompts that show how far the other arm moved
    the reference's answer, and how far its own second asking did. usual: nats a token that the
    reference's own differences rarely exceed. beyond, again_beyond: how many moved farther.
    median, again_median: of the differences either way; mean: of the other arm's. p_share,
    p_median: that equal arms differ so often by more than is usual, and by more than the
    median."""

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
        """Whether the other arm moves answers more than the reference moves its own."""
        return min(self.p_share, self.p_median) <= TRIP_ALPHA

    @classmethod
    def of(cls, found: Sequence[float], own: Sequence[float]) -> LogprobShift | None:
        """From differences in nats a token, of the other arm and of the reference itself; None
        without."""
        if not found or not own:
            return None
        theirs, ours = np.abs(found), np.abs(own)
        usual = max(LEAST_NATS, float(np.quantile(ours, USUAL, method="higher")))
        middle = max(LEAST_NATS, float(np.median(ours)))
        beyond, again = int((theirs > usual).sum()), int((ours > usual).sum())
        sizes = len(theirs), len(ours)
        tails = [
            more_often(int((theirs > line).sum()), sizes[0], int((ours > line).sum()), sizes[1])
            for line in (usual, middle)
        ]
        middles = median(theirs.tolist()), median(ours.tolist())
        return cls(
            *sizes, usual, beyond, again, *middles, sum(found) / len(found), tails[0], tails[1]
        )


def tripwire(found: Iterable[ArmTrial]) -> LogprobShift | None:
    """The tripwire of some prompts; None where log-probabilities are not there."""
    found = list(found)
    theirs = [nats for each in found if (nats := each.nats) is not None]
    own = [nats for each in found if (nats := each.own_nats) is not None]
    return LogprobShift.of(theirs, own)


def worst_of(found: Iterable[ArmTrial], usual: float) -> list[ArmTrial]:
    """The prompts that changed most: first the lost ones, then less likely answers, then other
    texts. usual: nats a token; an answer that moved by no more than these did not change."""
    ranked = [
        each
        for each in found
        if each.is_pair and (each.lost > 0 or each.difference or abs(each.nats or 0.0) > usual)
    ]
    return sorted(ranked, key=lambda each: (-each.lost, each.nats or 0.0, each.place[1]))[:WORST]


def changes_by_cell(
    found: Iterable[ArmTrial],
) -> dict[tuple[str, int, float], tuple[FamilyChange, float | None]]:
    """By family, length and depth: the change of its pairs, and the mean change in nats a
    token."""
    cells = defaultdict[tuple[str, int, float], list[ArmTrial]](list)
    for each in found:
        if each.is_pair:
            cells[each.family, *each.place[1:]].append(each)
    return {at: (FamilyChange.of(cells[at]), _mean_nats(cells[at])) for at in sorted(cells)}


def _mean_nats(pairs: Iterable[ArmTrial]) -> float | None:
    found = [nats for each in pairs if (nats := each.nats) is not None]
    return sum(found) / len(found) if found else None
