"""Judge the loss between two runs or two arms: does B lose less than a margin?

`judge` is the one function behind `compare`, `compare --sequential`, `run --until`, `ab`, suites
and the pytest fixture. It takes one row per pair of answers and looks at four things: the mean
over families, each length, the missing answers, and whole haystacks. Prompts that the reference
mostly gets wrong are left out first (`tested.py`).

The mean. The interval of its loss comes from pairs (Tango's score interval, which counts parts of
a score by their squares), or from whole haystacks if theirs is wider. Missing answers raise the
upper end as if B's were wrong and A's right, and lower the lower end as if it were the other way
round.

Lengths and families. One that lost half of its pairs or more prevents PASS. It means FAIL if some
of the loss is surely not chance (one-sided McNemar test, Holm's correction over all of them).
With several lengths or families the mean and the parts get half of the level of FAIL each.
Sequential looks need bets: one on the mean, and one for each part, at the level of the parts
divided by their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, log

import numpy as np
from numpy.typing import NDArray

from needlemap.stats import Array, Place
from needlemap.stats.difference import (
    FLIPPED,
    ROUNDING,
    Difference,
    holm,
    paired_difference,
)
from needlemap.stats.exact import lost_by_chance
from needlemap.stats.intervals import FEWEST, least_pairs
from needlemap.stats.looks import (
    Looking,
    Looks,
    Scope,
    group_losses,
    unit_losses,
    whole_units,
)
from needlemap.stats.rows import Rows
from needlemap.stats.sequential import FEWEST_NEW, Bets, further_haystacks, log_wealth
from needlemap.stats.tested import NotTested, count_tested, drop_untested
from needlemap.stats.verdicts import (
    FAIL,
    HIGH_ALPHA,
    LOW_ALPHA,
    NOT_ENOUGH_DATA,
    PASS,
    SUSPECT,
    Word,
    decide,
)

# An A that is right more often than this hardly ever shows a quiet fault.
CEILING = 0.99
# A length that lost this share of its pairs is named.
HALF = 0.5
# A length with fewer pairs is joined with its neighbours.
LEAST_PAIRS = 3


@dataclass(frozen=True, slots=True)
class Loss:
    """How much less B scores than A, as shares.

    Attributes:
        value: the loss; positive if B is worse.
        low: its one-sided lower end at 99 %, or at 99.5 % with several lengths or families.
        high: its one-sided upper end at 97.5 %.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class LostLength:
    """A length, or neighbouring lengths, at which half of the pairs or more is lost.

    Attributes:
        lengths: in tokens; empty if the whole family is meant.
        family: empty if all families together are meant.
        n: pairs there.
        lost: pairs at which B scores less.
        gained: pairs at which B scores more.
        missing: answers that one side did not give. They count as lost.
        sure: True if the verdict follows from this loss, which is surely not chance.
    """

    lengths: tuple[int, ...]
    family: str
    n: int
    lost: int
    gained: int
    missing: int
    sure: bool


@dataclass(frozen=True, slots=True)
class Missing:
    """Answers that one side gave and the other did not.

    Attributes:
        second: how many of them B did not give.
        first: how many of them A did not give.
        lengths: where they are, in tokens.
        place: the first of them.
        share: what they can add to the loss, as a share of all pairs.
        reaches: True if they can carry the loss past the margin.
    """

    second: int
    first: int
    lengths: tuple[int, ...]
    place: Place | None
    share: float
    reaches: bool


@dataclass(frozen=True, slots=True)
class NewHaystacks:
    """What bets on whole haystacks show about new ones.

    Attributes:
        word: NOT ENOUGH DATA for fewer than FEWEST_NEW haystacks.
        n: whole haystacks.
        more: further haystacks that would decide, if their loss stays as it is.
    """

    word: Word
    n: int
    more: int | None


@dataclass(frozen=True, slots=True)
class PairedLoss:
    """What B loses compared with A, and the verdict on it.

    Attributes:
        word: the verdict for the scope.
        margin: the loss that is allowed, as a share.
        scope: the widest scope for which the word holds.
        wanted: the scope that was asked for.
        loss: None if no pair has both scores.
        n: pairs that both sides answered.
        haystacks: how many haystacks these pairs come from.
        first, second: the means of both over these pairs, each family having the same weight;
            None without a pair.
        p: the p of no difference, as in `Difference`; None without a pair.
        lost: pairs at which B scores less.
        gained: pairs at which B scores more.
        lengths: lengths and families of which half or more is lost.
        missing: answers that one side did not give.
        unsent: pairs of which one side was not sent yet.
        unjudged: pairs with both scores that were not judged, because their haystack or an
            earlier one is unfinished.
        tried: the lengths of the pairs that were sent to both, and that either answered.
        new: what holds for new haystacks.
        after: units seen at the look that decided; None if there was only one look.
        planned: how many units there are.
        seen: how many units were sent in their turn.
        unit: what is drawn at random: a pair or a haystack.
        sequential: True if there were several looks.
        more: further pairs that would decide, if the loss stays as it is.
        counted: False if scores are means of an unknown number of answers.
        measured: when the first and the last answer came.
        untested: what the reference mostly gets wrong. It is in no other number.
        families: how many families are tested, and how many there are.
        saturated: True if A is wrong so rarely that its answers cannot show a quiet fault.
        settled: True if only missing answers keep the verdict open, so that no number of
            further prompts would decide it.
    """

    word: Word
    margin: float
    scope: Scope = "these"
    wanted: Scope = "these"
    loss: Loss | None = None
    n: int = 0
    haystacks: int = 0
    first: float | None = None
    second: float | None = None
    p: float | None = None
    lost: int = 0
    gained: int = 0
    lengths: tuple[LostLength, ...] = ()
    missing: Missing | None = None
    unsent: int = 0
    unjudged: int = 0
    tried: tuple[int, ...] = ()
    new: NewHaystacks | None = None
    after: int | None = None
    planned: int | None = None
    seen: int = 0
    unit: str = "haystack"
    sequential: bool = False
    more: int | None = None
    counted: bool = True
    measured: tuple[str, str] = ("", "")
    untested: tuple[NotTested, ...] = ()
    families: tuple[int, int] = (1, 1)
    saturated: bool = False
    settled: bool = False

    @property
    def is_decided(self) -> bool:
        """Return True if the verdict is PASS or FAIL."""
        return self.word in (PASS, FAIL)

    @property
    def floored(self) -> bool:
        """Return True if A is mostly wrong in more than half of the families.

        In that case no answers can prove a PASS.
        """
        return not _enough_families(self.families)


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at some pairs.

    Attributes:
        mean: the word of the mean alone.
        word: the word with lengths and missing answers taken into account.
        suspect: True if something looks wrong.
    """

    mean: Word
    word: Word
    suspect: bool
    loss: Loss | None
    pairs: Difference | None
    lengths: tuple[LostLength, ...]
    missing: Missing | None


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """What a look is judged by.

    Attributes:
        margin: the loss that is allowed, as a share.
        alpha: error rate of the lower end.
        enough: True if enough families are tested for a PASS.
        some: True if any family is tested.
        all_rows: the rows with those that are not tested; None if nothing was left out.
    """

    margin: float
    alpha: float
    enough: bool
    some: bool
    all_rows: Rows | None


def judge(
    rows: Rows,
    margin: float,
    *,
    wanted: Scope = "these",
    looks: Looking | None = None,
    measured: tuple[str, str] = ("", ""),
) -> PairedLoss:
    """Return the verdict on paired answers.

    Pairs that were not sent to both sides are not judged. In a single look they prevent PASS.

    Args:
        rows: one row per pair.
        margin: the loss that is allowed, as a share.
        wanted: what the verdict is for: these prompts, or new haystacks.
        looks: gives the order in which units are judged; None for a single look at all pairs.
        measured: when the first and the last answer came.
    """
    all_rows = rows
    rows, untested = drop_untested(all_rows, margin)
    families = count_tested(all_rows, untested)
    level = _Level(
        margin=margin,
        alpha=LOW_ALPHA / 2 if _has_parts(rows) else LOW_ALPHA,
        enough=_enough_families(families),
        some=families[0] > 0,
        all_rows=all_rows if untested else None,
    )

    turns = whole_units(rows, looks(rows)) if looks else None
    is_visible = _visible(rows, turns) if turns else rows.tried
    visible_rows = rows.where(is_visible)
    last_look = _look(visible_rows, level)
    word, suspect, after, settled = last_look.word, last_look.suspect, None, False
    unsent = int((~rows.tried).sum())
    if turns is not None:
        bets = _PartBets.of(rows, turns)
        word, after = _judge_in_turn(rows, turns, bets, level, last_look)
        suspect = suspect or (after is not None and word == NOT_ENOUGH_DATA)
        settled = word == NOT_ENOUGH_DATA and _is_settled(rows, turns, margin, last_look)
        last_look = replace(
            last_look, lengths=tuple(bets.mark_sure(last_look.lengths, turns, word))
        )
    elif unsent and word == PASS:
        word = NOT_ENOUGH_DATA

    suspect = suspect or _lost_untested(all_rows, untested)
    if suspect and not last_look.suspect and word == PASS:
        word = NOT_ENOUGH_DATA

    new = _judge_new(_haystack_losses(rows, _whole_haystacks(rows, turns)), level, last_look)
    if wanted == "new":
        word = last_look.word if _is_same_decision(new.word, last_look.word) else NOT_ENOUGH_DATA
        after = None if word == NOT_ENOUGH_DATA else after

    paired = PairedLoss(
        word=SUSPECT if suspect and word == NOT_ENOUGH_DATA else word,
        margin=margin,
        scope="new" if _is_same_decision(new.word, word) else wanted,
        wanted=wanted,
        loss=last_look.loss,
        lengths=last_look.lengths,
        missing=last_look.missing,
        unsent=unsent,
        unjudged=int((rows.tried & ~is_visible & ~np.isnan(rows.losses)).sum()),
        tried=tuple(np.unique(visible_rows.against().length).tolist()),
        new=new,
        after=after,
        planned=turns.planned if turns else None,
        seen=int(turns.turns.max(initial=-1)) + 1 if turns else 0,
        unit=turns.unit if turns else "haystack",
        sequential=looks is not None,
        measured=measured,
        untested=untested,
        families=families,
        settled=settled,
    )
    pairs = last_look.pairs
    if pairs is None:
        return paired
    paired = replace(
        paired,
        n=pairs.n,
        haystacks=pairs.clusters,
        first=pairs.first,
        second=pairs.second,
        p=pairs.p,
        lost=pairs.lost,
        gained=pairs.gained,
        saturated=_is_saturated(rows),
    )
    return replace(paired, more=None if paired.is_decided else _further_pairs(paired, pairs))


def _visible(rows: Rows, turns: Looks) -> NDArray[np.bool_]:
    """Return a mask of the pairs whose losses are shown: (pairs,).

    These are all that were sent, without parts of haystacks if whole haystacks are judged.
    """
    return rows.tried if turns.unit == "pair" else rows.tried & (turns.turns > -2)


def _is_saturated(rows: Rows) -> bool:
    """Return True if A is hardly ever wrong, whether B answered or not."""
    scored = rows.where(~np.isnan(rows.first))
    return len(scored.first) > 0 and _mean(scored, scored.first) >= CEILING


def _enough_families(families: tuple[int, int]) -> bool:
    """Return True if at least half of the families are tested."""
    tested, count = families
    return 2 * tested >= count and (tested > 0 or not count)


def _has_parts(rows: Rows) -> bool:
    """Return True if there are several lengths or families, each of which may decide."""
    return len(np.unique(rows.length)) > 1 or len(np.unique(rows.family)) > 1


def _lost_untested(rows: Rows, untested: tuple[NotTested, ...]) -> bool:
    """Return True if B surely lost answers in the part that is not tested."""
    mask = np.zeros(len(rows.first), dtype=bool)
    for group in untested:
        mask |= _in_part(rows, rows.names.index(group.family), group.lengths or None)
    return _p_of_loss(rows, mask) <= LOW_ALPHA


def _judge_in_turn(
    rows: Rows, turns: Looks, bets: _PartBets, level: _Level, last_look: _Look
) -> tuple[Word, int | None]:
    """Judge units in their turn; return the word, and after how many units it was known.

    A look decides if its bet has won and its own interval says the same, or if the bet of a
    length or family that it names as lost has won. Once all planned units were seen, the last
    look decides alone. What comes later may take a word back, and never turns it into its
    opposite.
    """
    against, in_favour, scale = unit_losses(rows, turns)
    count = len(against)
    losses = against.tolist(), in_favour.tolist()
    mean = Bets.of(losses, level.margin / scale, turns.planned, level.alpha)
    for units_seen in range(turns.every, count + 1, turns.every):
        if units_seen == turns.planned:
            break
        words, parts = mean.won(units_seen), bets.won(units_seen)
        if not words and not parts:
            continue
        look = _look(
            rows.where(rows.tried & (turns.turns > -2) & (turns.turns < units_seen)), level
        )
        for word in words:
            if not (_is_same_decision(word, look.word) and _is_same_decision(word, look.mean)):
                continue
            if word == FAIL:
                return (NOT_ENOUGH_DATA if last_look.word == PASS else FAIL), units_seen
            return (PASS if last_look.word == PASS else NOT_ENOUGH_DATA), units_seen
        if any(length.sure and _key(length) in parts for length in look.lengths):
            return (NOT_ENOUGH_DATA if last_look.word == PASS else FAIL), units_seen

    if turns.planned is not None and count == turns.planned:
        return last_look.word, count if last_look.word != NOT_ENOUGH_DATA else None
    return NOT_ENOUGH_DATA, None


def _is_settled(rows: Rows, turns: Looks, margin: float, last_look: _Look) -> bool:
    """Return True if only missing answers keep the verdict open.

    Counted against B they surely make the loss larger than the margin, or half of a length;
    counted for B they surely leave it smaller.
    """
    if last_look.missing is None:
        return False
    against, in_favour, scale = unit_losses(rows, turns)
    if not len(against):
        return False
    # The order of the two is reversed: each bet gets the missing answers on its own side.
    losses = in_favour.tolist(), against.tolist()
    words = Bets.of(losses, margin / scale, turns.planned, LOW_ALPHA).won(len(against))
    return PASS in words and (FAIL in words or bool(last_look.lengths))


@dataclass(frozen=True, slots=True)
class _PartBets:
    """Bets that something is lost: one for each length, family, and length of a family.

    Missing answers count for B.

    Attributes:
        wins: by part, the turn from which on its bet has won.
        planned: how many units there are.
    """

    wins: dict[tuple[str, tuple[int, ...]], int]
    planned: int | None

    @classmethod
    def of(cls, rows: Rows, turns: Looks) -> _PartBets:
        parts = list(_parts(rows)) if _has_parts(rows) else []
        wins = {}
        for family, lengths in parts:
            in_part = _in_part(rows, family, lengths)
            losses, numbers = group_losses(rows, turns, in_part)
            planned = None
            if turns.planned is not None:
                planned = len(np.unique(turns.turns[in_part & (turns.turns != -1)]))
            goal = -log(LOW_ALPHA / 2 / len(parts))
            won = np.flatnonzero(log_wealth((1 + losses) / 2, 0.5, planned) >= goal)
            if len(won):
                name = "" if family is None else rows.names[family]
                wins[name, lengths or ()] = int(numbers[won[0]]) + 1
        return cls(wins, turns.planned)

    def won(self, at: int) -> set[tuple[str, tuple[int, ...]]]:
        """Return the parts whose bets have won after `at` units."""
        return {part for part, turn in self.wins.items() if turn <= at}

    def mark_sure(
        self, lengths: Sequence[LostLength], turns: Looks, word: Word
    ) -> Iterator[LostLength]:
        """Yield the lost lengths, marked as sure only if the verdict follows from them."""
        units_seen = int(turns.turns.max(initial=-1)) + 1
        for length in lengths:
            decides = units_seen == self.planned or _key(length) in self.wins
            yield replace(length, sure=length.sure and decides and word == FAIL)


def _key(length: LostLength) -> tuple[str, tuple[int, ...]]:
    return length.family, length.lengths


def _parts(rows: Rows) -> Iterator[tuple[int | None, tuple[int, ...] | None]]:
    """Yield the parts that may decide alone, each as a family's number and lengths.

    They are each length of all families together (family None) and, if there are several
    families, each of them whole (lengths None) and at each of its lengths.
    """
    families = np.unique(rows.family).tolist()
    lengths = np.unique(rows.length).tolist()
    if rows.length.any() and len(lengths) > 1:
        yield from ((None, (length,)) for length in lengths)
    if len(families) == 1:
        return
    for family in families:
        yield family, None
        family_lengths = np.unique(rows.length[rows.family == family]).tolist()
        if rows.length.any() and len(family_lengths) > 1:
            yield from ((family, (length,)) for length in family_lengths)


def _is_same_decision(word: Word, other_word: Word) -> bool:
    """Return True if two words are the same decision."""
    return word == other_word != NOT_ENOUGH_DATA


def _whole_haystacks(rows: Rows, turns: Looks | None) -> list[int]:
    """Return the haystacks whose prompts were all sent to both, in the order of their looks.

    At least one of their prompts has an answer.
    """
    incomplete = set(rows.haystack[~rows.tried].tolist())
    has_answer = ~(np.isnan(rows.first) & np.isnan(rows.second))
    order = np.arange(len(rows.haystack)) if turns is None else turns.turns
    first_looks = dict[int, tuple[int, int]]()
    pairs = zip(rows.haystack[has_answer].tolist(), order[has_answer].tolist(), strict=True)
    for haystack, turn in pairs:
        look = (0, haystack) if turns is None else (turn, haystack)
        first_looks[haystack] = min(look, first_looks.get(haystack, look))
    return sorted(first_looks.keys() - incomplete, key=lambda haystack: first_looks[haystack])


def _haystack_losses(rows: Rows, haystacks: Sequence[int]) -> tuple[list[float], list[float]]:
    """Return the mean losses of haystacks, with missing answers against B and for B.

    Each family of a haystack has the same weight.
    """
    against = _mean_losses(rows.against(), haystacks)
    in_favour = _mean_losses(rows.in_favour(), haystacks)
    return against, in_favour


def _mean_losses(rows: Rows, haystacks: Sequence[int]) -> list[float]:
    keys = rows.haystack * len(rows.names) + rows.family
    groups, indices, n = np.unique(keys, return_inverse=True, return_counts=True)
    # Linearised scores (`ratio.py`) may lie a little outside [0, 1]; bets must not.
    means = np.clip(np.bincount(indices, rows.losses, minlength=len(groups)) / n, -1.0, 1.0)
    numbers, number_indices, families = np.unique(
        groups // max(1, len(rows.names)), return_inverse=True, return_counts=True
    )
    losses = np.bincount(number_indices, means, minlength=len(numbers)) / families
    by_haystack = dict(zip(numbers.tolist(), losses.tolist(), strict=True))
    return [by_haystack[haystack] for haystack in haystacks]


def _judge_new(
    losses: tuple[list[float], list[float]], level: _Level, last_look: _Look
) -> NewHaystacks:
    """Return what the bets on whole haystacks show about new ones."""
    n = len(losses[0])
    word: Word = NOT_ENOUGH_DATA
    if n >= FEWEST_NEW:
        word = Bets.of(losses, level.margin, None, level.alpha).first[1]
    if not _is_same_decision(word, last_look.word):
        word = NOT_ENOUGH_DATA
    more = further_haystacks(losses[0], level.margin) if word == NOT_ENOUGH_DATA else None
    return NewHaystacks(word, n, more and max(more, FEWEST_NEW - n))


def _look(rows: Rows, level: _Level) -> _Look:
    """Judge some pairs in one look."""
    margin, alpha = level.margin, level.alpha
    first_missing, second_missing = rows.missing_masks
    has_missing = bool((first_missing | second_missing).any())
    against = rows.against()
    pairs = _difference(rows, alpha)
    lengths = tuple(_lost_lengths(against, rows))
    if pairs is None and not has_missing:
        return _Look(
            mean=NOT_ENOUGH_DATA,
            word=NOT_ENOUGH_DATA,
            suspect=False,
            loss=None,
            pairs=None,
            lengths=lengths,
            missing=None,
        )

    paired_only = Loss(0.0, -1.0, 1.0) if pairs is None else _loss(rows, pairs, alpha)
    loss = paired_only
    if has_missing:
        loss = Loss(
            value=paired_only.value,
            low=max(-1.0, paired_only.low - _mean(rows, _if_gained(rows))),
            high=min(1.0, paired_only.high + _mean(rows, _if_lost(rows))),
        )
    mean = _word_of_mean(loss, level)
    missing = _missing(rows, margin, paired_only, mean) if has_missing else None

    word: Word = mean
    if lengths and mean != FAIL:
        word = FAIL if any(length.sure for length in lengths) else NOT_ENOUGH_DATA
    interval = pairs
    if pairs and word == NOT_ENOUGH_DATA and pairs.value < 0 <= pairs.high:
        # A 95 % interval without zero hints at a loss that is not sure yet.
        interval = _difference(rows, HIGH_ALPHA)
    looks_worse = interval is not None and interval.high < 0
    reaches = missing is not None and missing.reaches
    return _Look(
        mean=mean,
        word=word,
        suspect=looks_worse or bool(lengths) or reaches,
        # Without a pair the bounds are those of missing answers alone.
        loss=loss if pairs else None,
        pairs=pairs,
        lengths=lengths,
        missing=missing,
    )


def _word_of_mean(loss: Loss, level: _Level) -> Word:
    """Judge the mean loss alone."""
    word = decide(loss.low, loss.high, level.margin)
    # A sure gain in all families leaves no room for a loss; in a few of them it says little
    # about the others.
    if word == PASS and not level.enough and (loss.high >= 0 or level.some):
        return NOT_ENOUGH_DATA
    if word == FAIL and level.all_rows is not None:
        # Rows are left out by the reference's own answers. If both sides guess, the rows that
        # stay are those in which the reference was lucky: all rows together must show it too.
        all_pairs = _difference(level.all_rows, level.alpha)
        if all_pairs is None or all_pairs.high >= 0:
            return NOT_ENOUGH_DATA
    return word


def _if_lost(rows: Rows) -> Array:
    """Return what each missing answer can add to the loss if B's is wrong, or A's is right."""
    first_missing, second_missing = rows.missing_masks
    by_second = np.nan_to_num(rows.first) * second_missing
    by_first = (1 - np.nan_to_num(rows.second)) * first_missing
    return np.asarray(by_second + by_first)


def _if_gained(rows: Rows) -> Array:
    """Return what each missing answer can take from the loss if B's is right, or A's is wrong."""
    first_missing, second_missing = rows.missing_masks
    by_second = (1 - np.nan_to_num(rows.first)) * second_missing
    by_first = np.nan_to_num(rows.second) * first_missing
    return np.asarray(by_second + by_first)


def _mean(rows: Rows, values: Array) -> float:
    """Return the mean over pairs with at least one answer; each family has the same weight."""
    has_answer = ~(np.isnan(rows.first) & np.isnan(rows.second))
    counts = np.bincount(rows.family[has_answer], minlength=len(rows.names))
    sums = np.bincount(rows.family[has_answer], values[has_answer], minlength=len(rows.names))
    return float((sums[counts > 0] / counts[counts > 0]).mean())


def _difference(rows: Rows, alpha: float) -> Difference | None:
    """Return B - A over the pairs that both answered, with ends at the levels of a verdict.

    Each family has the same weight. If both answered no pair, None is returned.
    """
    has_answer = ~np.isnan(rows.losses)
    if not has_answer.any():
        return None
    rows = rows if has_answer.all() else rows.where(has_answer)
    _, clusters, counts = np.unique(rows.haystack, return_inverse=True, return_counts=True)
    if counts.max() == 1:
        # With one prompt each, as in another tool's log, pairs are independent.
        clusters, counts = np.zeros_like(clusters), np.array([len(clusters)])

    # One line of each grid is a haystack; shorter haystacks are filled up with NaN.
    order = np.argsort(clusters, kind="stable")
    within = np.arange(len(clusters)) - np.repeat(np.cumsum(counts) - counts, counts)
    family_sizes = np.bincount(rows.family, minlength=len(rows.names)).astype(np.float64)
    grids = []
    for values in (rows.first, rows.second, 1 / family_sizes[rows.family]):
        grid = np.full((len(counts), int(counts.max())), np.nan)
        grid[clusters[order], within] = values[order]
        grids.append(grid)
    first, second, weights = grids
    return paired_difference(
        first,
        second,
        weights=np.nan_to_num(weights),
        tails=(HIGH_ALPHA, alpha),
    )


def _loss(rows: Rows, difference: Difference, alpha: float) -> Loss:
    """Return the loss of a difference B - A.

    Two to four haystacks are too few to show how they vary. Their loss is sure only if it is
    also sure without the haystacks that lost most.
    """
    low = -difference.high
    if 1 < difference.clusters < FEWEST and low > 0:
        others = _difference(_without_worst(rows, difference.clusters // 2), alpha)
        low_of_rest = -others.high if others else -1.0
        if low_of_rest <= 0:
            low = min(low, low_of_rest)
    return Loss(
        value=-difference.value,
        low=max(-1.0, low),
        high=min(1.0, -difference.low),
    )


def _without_worst(rows: Rows, count: int) -> Rows:
    """Return the rows without the `count` haystacks that lost most."""
    numbers = np.unique(rows.haystack)
    losses = [float(np.nansum(rows.losses[rows.haystack == number])) for number in numbers]
    worst_haystacks = numbers[np.argsort(losses)[len(numbers) - count :]]
    return rows.where(~np.isin(rows.haystack, worst_haystacks))


def _missing(rows: Rows, margin: float, paired_only: Loss, mean: Word) -> Missing:
    """Return what one side did not answer, and whether it can carry the loss past the margin."""
    first_missing, second_missing = rows.missing_masks
    pairs = np.flatnonzero(first_missing | second_missing)
    share = _mean(rows, _if_lost(rows))
    # They decide alone, or they keep answers open that would have passed.
    passes_without = decide(paired_only.low, paired_only.high, margin) == PASS
    return Missing(
        second=int(second_missing.sum()),
        first=int(first_missing.sum()),
        lengths=tuple(np.unique(rows.length[pairs]).tolist()),
        place=rows.places[int(pairs[0])] if rows.places else None,
        share=share,
        reaches=share >= margin or (mean == NOT_ENOUGH_DATA and passes_without),
    )


def _lost_lengths(filled_rows: Rows, rows: Rows) -> Iterator[LostLength]:
    """Yield the lengths and families at which half of the pairs or more is lost.

    Lengths are taken over all families and, if there are several, in each of them. Samples of
    another tool's log have no lengths.

    Args:
        filled: the rows with missing answers counted against B.
        rows: the same rows as they are.
    """
    groups = list(_length_groups(filled_rows))
    if all(share < HALF - 1e-9 for *_, share in groups):
        return
    ps = [_p_of_loss(rows, _in_part(rows, family, lengths)) for family, lengths, _ in groups]
    first_missing, second_missing = rows.missing_masks
    for (family, lengths, share), p in zip(groups, holm(ps), strict=True):
        if share < HALF - 1e-9:
            continue
        losses = filled_rows.losses[_in_part(filled_rows, family, lengths)]
        missing = (first_missing | second_missing) & _in_part(rows, family, lengths)
        yield LostLength(
            lengths=lengths or (),
            family="" if family is None else rows.names[family],
            n=len(losses),
            lost=int((losses > ROUNDING).sum()),
            gained=int((losses < -ROUNDING).sum()),
            missing=int(missing.sum()),
            sure=len(groups) > 1 and p <= LOW_ALPHA / 2,
        )


def _in_part(rows: Rows, family: int | None, lengths: tuple[int, ...] | None) -> NDArray[np.bool_]:
    """Return a mask of a family's rows of some lengths, (pairs,). None stands for all of them."""
    mask = np.ones(len(rows.length), dtype=bool)
    if lengths is not None:
        mask &= np.isin(rows.length, lengths)
    if family is not None:
        mask &= rows.family == family
    return mask


def _length_groups(rows: Rows) -> Iterator[tuple[int | None, tuple[int, ...] | None, float]]:
    """Yield the parts with enough pairs as a family's number, lengths, and the mean loss there.

    Lengths with too few pairs are joined with their neighbours. None stands for all families,
    or all lengths.
    """
    families = np.unique(rows.family).tolist()
    for family in [None, *(families if len(families) > 1 else ())]:
        part = rows if family is None else rows.where(rows.family == family)
        if family is not None and len(part.losses) >= LEAST_PAIRS:
            yield family, None, float(part.losses.mean())
        if not rows.length.any():
            continue
        lengths, indices, counts = np.unique(part.length, return_inverse=True, return_counts=True)
        sums = np.bincount(indices, part.losses, minlength=len(lengths)).tolist()
        n = counts.tolist()
        for low, high in sorted(set(_windows(n))):
            span = slice(low, high + 1)
            yield family, tuple(lengths[span].tolist()), sum(sums[span]) / sum(n[span])


def _windows(counts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield for each length the first and last index of the neighbours that it is joined with.

    Neighbours are added until there are LEAST_PAIRS pairs.

    >>> list(_windows([3, 1, 1, 5])), list(_windows([1, 1]))
    ([(0, 0), (0, 2), (2, 3), (3, 3)], [])
    """
    last_index = len(counts) - 1
    for index in range(len(counts)):
        start = stop = index
        while sum(counts[start : stop + 1]) < LEAST_PAIRS and (start > 0 or stop < last_index):
            if stop < last_index and (stop - index <= index - start or start == 0):
                stop += 1
            else:
                start -= 1
        if sum(counts[start : stop + 1]) >= LEAST_PAIRS:
            yield start, stop


def _p_of_loss(rows: Rows, mask: NDArray[np.bool_]) -> float:
    """Return the one-sided p of the loss in some rows.

    Six haystacks or more are compared whole. Fewer are compared pair by pair, without the
    haystack that lost most if there are several.
    """
    mask = mask & ~np.isnan(rows.losses)
    losses = rows.losses[mask]
    numbers, indices = np.unique(rows.haystack[mask], return_inverse=True)
    sums = np.asarray(np.bincount(indices, losses, minlength=len(numbers)), dtype=np.float64)
    if len(numbers) >= FLIPPED:
        losses = sums
    elif len(numbers) > 1:
        losses = losses[indices != sums.argmax()]
    return lost_by_chance(int((losses > ROUNDING).sum()), int((losses < -ROUNDING).sum()))


def _further_pairs(paired: PairedLoss, pairs: Difference) -> int | None:
    """Return the further pairs after which the verdict would be known, if the loss stays.

    The ends narrow with the square root of n. If no number of pairs would decide, None is
    returned.
    """
    reaches = paired.missing is not None and paired.missing.reaches
    if paired.floored or paired.loss is None or paired.lengths or reaches:
        return None
    if not pairs.lost + pairs.gained and pairs.size:
        pairs_needed = least_pairs(paired.margin) * pairs.n / pairs.size if paired.margin else 0.0
        return max(0, ceil(pairs_needed) - pairs.n) or None

    loss = paired.loss
    to_pass = paired.margin - loss.value, loss.high - loss.value
    to_fail = loss.value - paired.margin, loss.value - loss.low
    gap, half_width = max(to_pass, to_fail)
    if gap <= 1e-9 or half_width <= gap:
        return None
    return ceil(pairs.n * (half_width / gap) ** 2) - pairs.n
