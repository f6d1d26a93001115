"""The loss of two runs or two arms: does B lose less than a margin?

One function, `judge`, for `compare`, `compare --sequential`, `run --until`, `ab`, suites and
the pytest fixture. It takes pairs prompt by prompt and looks at the mean over families, at
each length, at what is missing, and at whole haystacks.

The mean: the ends of its loss come from pairs (Tango, or adjusted Wald of graded scores) and
from whole haystacks where these are wider. Missing answers move the upper end up, as if B's
were wrong and A's right, and the lower end down, as if it were the other way round. Lengths:
one at which half or more is lost keeps the verdict from PASS, and makes it FAIL where it is
sure (McNemar, one-sided; Holm over lengths). With several lengths the mean and the lengths take
half of the level of FAIL each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from needlemap.stats import Array, Place
from needlemap.stats.difference import (
    FLIPPED,
    Difference,
    holm,
    lost_by_chance,
    paired_difference,
)
from needlemap.stats.intervals import FEWEST, least_pairs
from needlemap.stats.sequential import FEWEST_NEW, Bets, further
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

CEILING = 0.99
FLOOR = 0.01
HALF = 0.5  # of a length's pairs: so much lost is named
LEAST_PAIRS = 3  # of a length, or of it and its neighbours, to be looked at alone
Scope = Literal["these", "new"]
Integers = NDArray[np.int64]


class JudgedPrompt(NamedTuple):
    """One prompt. haystack: whose it is. first, second: the scores of A and of B, None where
    it failed to answer. tried: whether both were asked."""

    family: str
    place: Place
    haystack: int
    first: float | None
    second: float | None
    tried: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Pairs of two runs as arrays (pairs,). family, haystack: numbers, of `names` and of one's
    own choice. first, second: scores, NaN where missing. places: of each pair."""

    names: tuple[str, ...]
    family: Integers
    haystack: Integers
    length: Integers
    first: Array
    second: Array
    tried: NDArray[np.bool_]
    places: tuple[Place, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[JudgedPrompt]) -> Rows:
        """From rows in any order."""
        found = list(rows)
        names = tuple(dict.fromkeys(row.family for row in found))
        scores = [[np.nan if s is None else s for s in (r.first, r.second)] for r in found]
        both = np.array(scores, dtype=np.float64).reshape(-1, 2)
        return cls(
            names,
            np.array([names.index(row.family) for row in found], dtype=np.int64),
            np.array([row.haystack for row in found], dtype=np.int64),
            np.array([row.place[1] for row in found], dtype=np.int64),
            both[:, 0],
            both[:, 1],
            np.array([row.tried for row in found], dtype=bool),
            tuple(row.place for row in found),
        )

    def where(self, kept: NDArray[np.bool_]) -> Rows:
        """Some of them."""
        places = tuple(p for p, keep in zip(self.places, kept.tolist(), strict=False) if keep)
        return Rows(
            self.names,
            self.family[kept],
            self.haystack[kept],
            self.length[kept],
            self.first[kept],
            self.second[kept],
            self.tried[kept],
            places,
        )

    @property
    def failed(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Where A failed and B has a score, and where B failed and A has one."""
        first, second = np.isnan(self.first), np.isnan(self.second)
        return first & ~second, second & ~first

    def against(self) -> Rows:
        """The pairs that one of both scored, what misses counted against B."""
        return self._filled(first=1.0, second=0.0)

    def in_favour(self) -> Rows:
        """The same, what misses counted for B."""
        return self._filled(first=0.0, second=1.0)

    def _filled(self, first: float, second: float) -> Rows:
        filled = replace(
            self,
            first=np.nan_to_num(self.first, nan=first),
            second=np.nan_to_num(self.second, nan=second),
        )
        return filled.where(~(np.isnan(self.first) & np.isnan(self.second)))

    @property
    def graded(self) -> bool:
        """Whether any score lies between wrong and right."""
        scores = np.concatenate([self.first, self.second])
        return not bool(np.isin(scores[~np.isnan(scores)], (0.0, 1.0)).all())

    @property
    def losses(self) -> Array:
        """A - B."""
        return self.first - self.second


@dataclass(frozen=True, slots=True)
class Loss:
    """How much less B scores than A, a share: its lower end at 99 % (99.5 % with several
    lengths) and its upper end at 97.5 %, each one-sided."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class LostLength:
    """A length, or neighbouring ones, at which half or more is lost. family: '' where it is of
    all. missing: answers that one side did not give, counted as lost. sure: whether chance is
    ruled out."""

    lengths: tuple[int, ...]
    family: str
    n: int
    lost: int
    gained: int
    missing: int
    sure: bool


@dataclass(frozen=True, slots=True)
class Missing:
    """Answers that one side gave and the other did not: how many B and A did not give, at
    which lengths, and where the first of them is. share: of all pairs, what they can add to
    the loss. reaches: whether they can carry it past the margin."""

    second: int
    first: int
    lengths: tuple[int, ...]
    place: Place | None
    share: float
    reaches: bool


@dataclass(frozen=True, slots=True)
class NewHaystacks:
    """What bets on whole haystacks say of new ones. word: NOT ENOUGH DATA below FEWEST_NEW."""

    word: Word
    n: int
    more: int | None


@dataclass(frozen=True, slots=True)
class PairedLoss:
    """What B loses beside A. word: for the scope. scope: the widest that the word holds for.
    wanted: the scope that was asked for. loss: None where nothing was paired. unsent:
    pairs that one side was not sent yet; tried: the lengths of the others. after: haystacks at
    the look that decided; of one look, None. more: further pairs that would decide if the loss
    stays as it is. counted: False where scores are means of an unknown number of answers."""

    word: Word
    margin: float
    scope: Scope = "these"
    wanted: Scope = "these"
    loss: Loss | None = None
    n: int = 0
    haystacks: int = 0
    first: float = 0.0
    second: float = 0.0
    lost: int = 0
    gained: int = 0
    lengths: tuple[LostLength, ...] = ()
    missing: Missing | None = None
    unsent: int = 0
    tried: tuple[int, ...] = ()
    new: NewHaystacks | None = None
    after: int | None = None
    planned: int | None = None
    sequential: bool = False
    more: int | None = None
    counted: bool = True
    measured: tuple[str, str] = ("", "")

    @property
    def is_decided(self) -> bool:
        """Whether it passes or fails."""
        return self.word in (PASS, FAIL)

    @property
    def floored(self) -> bool:
        """Whether A scores too little to lose the margin, so that nothing proves a PASS."""
        return self.n > 0 and self.first <= max(self.margin, FLOOR)

    @property
    def saturated(self) -> bool:
        """Whether A errs too rarely for its answers to show a quiet fault."""
        return self.n > 0 and self.first >= CEILING


@dataclass(frozen=True, slots=True)
class Looks:
    """Whole haystacks are judged one after the other, in this order. planned: how many there
    are, None where there is no end to them."""

    order: Sequence[int]
    planned: int | None = None


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at some pairs. mean: the word of the mean alone; word: with lengths and missing
    answers."""

    mean: Word
    word: Word
    suspect: bool
    loss: Loss | None
    pairs: Difference | None
    lengths: tuple[LostLength, ...]
    missing: Missing | None


def judge(
    rows: Rows,
    margin: float,
    *,
    wanted: Scope = "these",
    looks: Looks | None = None,
    measured: tuple[str, str] = ("", ""),
) -> PairedLoss:
    """The verdict. margin: a share. looks: in which order whole haystacks were looked at, None
    for one look at all. measured: when the first and the last answer came.

    What was not sent to both is not judged. In one look it keeps the word from PASS.
    """
    alpha = LOW_ALPHA / 2 if len(np.unique(rows.length)) > 1 else LOW_ALPHA
    order = looks.order if looks else sorted(set(rows.haystack.tolist()))
    whole = _whole(rows, order)
    seen = rows.where(np.isin(rows.haystack, whole) if looks else rows.tried)
    last = _look(seen, margin, alpha)
    losses = _haystack_losses(rows, whole)
    word, suspect, after, unsent = last.word, last.suspect, None, int((~rows.tried).sum())
    if looks is not None:
        word, after = _decided(rows, whole, losses, margin, alpha, looks, last)
        suspect = suspect or (after is not None and word == NOT_ENOUGH_DATA)
    elif unsent and word == PASS:
        word = NOT_ENOUGH_DATA
    new = _of_new(losses, margin, alpha, last)
    if wanted == "new":
        word = last.word if _agree(new.word, last.word) else NOT_ENOUGH_DATA
    scope: Scope = "new" if _agree(new.word, word) else wanted
    found = last.pairs
    made = PairedLoss(
        SUSPECT if suspect and word == NOT_ENOUGH_DATA else word,
        margin,
        scope,
        wanted,
        last.loss,
        lengths=last.lengths,
        missing=last.missing,
        unsent=unsent,
        tried=tuple(np.unique(seen.length).tolist()),
        new=new,
        after=after,
        planned=looks.planned if looks else None,
        sequential=looks is not None,
        measured=measured,
    )
    if found is None:
        return made
    made = replace(
        made,
        n=found.n,
        haystacks=found.clusters,
        first=found.first,
        second=found.second,
        lost=found.lost,
        gained=found.gained,
    )
    return replace(made, more=None if made.is_decided else _more(made, found))


def _decided(
    rows: Rows,
    whole: Sequence[int],
    losses: tuple[list[float], list[float]],
    margin: float,
    alpha: float,
    looks: Looks,
    last: _Look,
) -> tuple[Word, int | None]:
    """The word of looks after each whole haystack, and after how many it was known.

    A look decides where its bet has won and its own interval says the same. All that was
    planned, once seen, is one look. What comes later may take a word back, and never turns it
    round.
    """
    for at, word in Bets.of(losses, margin, looks.planned, alpha).looks:
        if at == looks.planned:
            break
        look = _look(rows.where(np.isin(rows.haystack, whole[:at])), margin, alpha)
        if not (_agree(word, look.word) and _agree(word, look.mean)):
            continue
        if word == FAIL:
            return (NOT_ENOUGH_DATA if last.word == PASS else FAIL), at
        return (PASS if last.word == PASS else NOT_ENOUGH_DATA), at
    if looks.planned is not None and len(whole) == looks.planned:
        return last.word, len(whole) if last.word != NOT_ENOUGH_DATA else None
    return NOT_ENOUGH_DATA, None


def _agree(one: Word, other: Word) -> bool:
    """Whether two words decide alike."""
    return one == other != NOT_ENOUGH_DATA


def _whole(rows: Rows, order: Sequence[int]) -> list[int]:
    """The haystacks of which both tried everything, and one answered something, in their
    order."""
    partly = set(rows.haystack[~rows.tried].tolist())
    answered = rows.haystack[~(np.isnan(rows.first) & np.isnan(rows.second))]
    found = set(answered.tolist()) - partly
    return [number for number in order if number in found]


def _haystack_losses(rows: Rows, whole: Sequence[int]) -> tuple[list[float], list[float]]:
    """Mean losses of haystacks, each family counting the same, with what misses counted
    against B, and for it."""
    found = []
    for side in (rows.against(), rows.in_favour()):
        keys = side.haystack * len(rows.names) + side.family
        each, at, n = np.unique(keys, return_inverse=True, return_counts=True)
        # Linearised scores (`ratio.py`) may lie a little beyond [0, 1], and bets do not.
        means = np.clip(np.bincount(at, side.losses, minlength=len(each)) / n, -1.0, 1.0)
        stacks, back, families = np.unique(
            each // max(1, len(rows.names)), return_inverse=True, return_counts=True
        )
        losses = np.bincount(back, means, minlength=len(stacks)) / families
        by_number = dict(zip(stacks.tolist(), losses.tolist(), strict=True))
        found.append([by_number[number] for number in whole])
    return found[0], found[1]


def _of_new(
    losses: tuple[list[float], list[float]], margin: float, alpha: float, last: _Look
) -> NewHaystacks:
    """What the bets say of new haystacks."""
    n = len(losses[0])
    word = Bets.of(losses, margin, None, alpha).first[1] if n >= FEWEST_NEW else NOT_ENOUGH_DATA
    word = word if _agree(word, last.word) else NOT_ENOUGH_DATA
    more = further(losses[0], margin) if word == NOT_ENOUGH_DATA else None
    return NewHaystacks(word, n, more and max(more, FEWEST_NEW - n))


def _look(rows: Rows, margin: float, alpha: float) -> _Look:
    """Judge some pairs at once."""
    first, second = rows.failed
    misses = bool((first | second).any())
    against = rows.against() if misses else rows
    pairs = _difference(rows, alpha)
    lengths = tuple(_lost_lengths(against, rows))
    if pairs is None and not misses:
        return _Look(NOT_ENOUGH_DATA, NOT_ENOUGH_DATA, False, None, None, lengths, None)
    loss = plain = Loss(0.0, -1.0, 1.0) if pairs is None else _loss(rows, pairs, alpha)
    if misses:
        more, less = _mean(rows, _if_lost(rows)), _mean(rows, _if_gained(rows))
        loss = Loss(plain.value, max(-1.0, plain.low - less), min(1.0, plain.high + more))
    mean = decide(loss.low, loss.high, margin)
    if mean == PASS and loss.high >= 0 and pairs and pairs.first <= max(margin, FLOOR):
        mean = NOT_ENOUGH_DATA
    missing = _missing(rows, margin, plain, mean) if misses else None
    word: Word = mean
    if lengths and mean != FAIL:
        word = FAIL if any(each.sure for each in lengths) else NOT_ENOUGH_DATA
    reaches = missing is not None and missing.reaches
    shown = pairs or _difference(against, alpha)
    wide = pairs
    if pairs and word == NOT_ENOUGH_DATA and pairs.value < 0 <= pairs.high:
        # An interval of 95 % without a zero points to a loss, though it makes none sure.
        wide = _difference(rows, HIGH_ALPHA)
    suspect = (wide is not None and wide.high < 0) or bool(lengths) or reaches
    return _Look(mean, word, suspect, loss, shown, lengths, missing)


def _if_lost(rows: Rows) -> Array:
    """What each missing answer can add to the loss: B's counts as wrong, A's as right."""
    first, second = rows.failed
    right = np.nan_to_num(rows.first) * second
    return np.asarray(right + (1 - np.nan_to_num(rows.second)) * first)


def _if_gained(rows: Rows) -> Array:
    """What each can take from it: B's counts as right, A's as wrong."""
    first, second = rows.failed
    return np.asarray((1 - np.nan_to_num(rows.first)) * second + np.nan_to_num(rows.second) * first)


def _mean(rows: Rows, values: Array) -> float:
    """Over the pairs that one side answered at least, each family counting the same."""
    any_known = ~(np.isnan(rows.first) & np.isnan(rows.second))
    sizes = np.bincount(rows.family[any_known], minlength=len(rows.names))
    sums = np.bincount(rows.family[any_known], values[any_known], minlength=len(rows.names))
    return float((sums[sizes > 0] / sizes[sizes > 0]).mean())


def _difference(rows: Rows, alpha: float) -> Difference | None:
    """B - A over the pairs that both scored, each family counting the same; ends at the levels
    of a verdict."""
    known = ~np.isnan(rows.losses)
    if not known.any():
        return None
    part = rows if known.all() else rows.where(known)
    _, at, counts = np.unique(part.haystack, return_inverse=True, return_counts=True)
    if counts.max() == 1:  # one prompt each: pairs are independent, as those of a log
        at, counts = np.zeros_like(at), np.array([len(at)])
    order = np.argsort(at, kind="stable")
    within = np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts)
    sizes = np.bincount(part.family, minlength=len(part.names)).astype(np.float64)
    grids = []
    for each in (part.first, part.second, 1 / sizes[part.family]):
        grid = np.full((len(counts), int(counts.max())), np.nan)
        grid[at[order], within] = each[order]
        grids.append(grid)
    weights, tails = np.nan_to_num(grids[2]), (HIGH_ALPHA, alpha)
    return paired_difference(*grids[:2], graded=rows.graded, weights=weights, tails=tails)


def _loss(rows: Rows, found: Difference, alpha: float) -> Loss:
    """A loss, of a difference B - A. Of two to four haystacks, too few to show how they
    spread, it is sure only where it also is without those that lost most."""
    low = -found.high
    if 1 < found.clusters < FEWEST and low > 0:
        left = _difference(_without_worst(rows, found.clusters // 2), alpha)
        rest = -left.high if left else -1.0
        low = low if rest > 0 else min(low, rest)
    return Loss(-found.value, max(-1.0, low), min(1.0, -found.low))


def _without_worst(rows: Rows, count: int) -> Rows:
    """Without the haystacks that lost most."""
    numbers = np.unique(rows.haystack)
    lost = [float(np.nansum(rows.losses[rows.haystack == number])) for number in numbers]
    worst = numbers[np.argsort(lost)[len(numbers) - count :]]
    return rows.where(~np.isin(rows.haystack, worst))


def _missing(rows: Rows, margin: float, plain: Loss, mean: Word) -> Missing:
    """What one side did not answer, and whether it can carry the loss past the margin."""
    first, second = rows.failed
    share = _mean(rows, _if_lost(rows))
    lengths = tuple(np.unique(rows.length[first | second]).tolist())
    at = int(np.flatnonzero(first | second)[0])
    # Alone, or with what was seen: the answers that both gave would have passed.
    passed = decide(plain.low, plain.high, margin) == PASS
    reaches = share >= margin or (mean == NOT_ENOUGH_DATA and passed)
    place = rows.places[at] if rows.places else None
    return Missing(int(second.sum()), int(first.sum()), lengths, place, share, reaches)


def _lost_lengths(rows: Rows, known: Rows) -> Iterator[LostLength]:
    """The lengths of all families, and of each where there are several, at which half or more
    is lost; none of samples of a log, which have no length. rows: with what misses counted
    against B; known: as they are."""
    if not rows.length.any():
        return
    groups = list(_length_groups(rows))
    if all(share < HALF - 1e-9 for *_, share in groups):
        return
    chances = [_lost_by_chance(known, family, lengths) for family, lengths, _ in groups]
    for (family, lengths, share), p in zip(groups, holm(chances), strict=True):
        if share < HALF - 1e-9:
            continue
        here, asked = _at(rows, family, lengths), _at(known, family, lengths)
        losses, (first, second) = rows.losses[here], known.failed
        missing = int(((first | second) & asked).sum())
        name = "" if family is None else rows.names[family]
        lost, gained = int((losses > 1e-12).sum()), int((losses < -1e-12).sum())
        sure = len(groups) > 1 and p <= LOW_ALPHA / 2
        yield LostLength(lengths, name, int(here.sum()), lost, gained, missing, sure)


def _at(rows: Rows, family: int | None, lengths: tuple[int, ...]) -> NDArray[np.bool_]:
    found = np.isin(rows.length, lengths)
    return found if family is None else found & (rows.family == family)


def _length_groups(rows: Rows) -> Iterator[tuple[int | None, tuple[int, ...], float]]:
    """Lengths with enough pairs, each alone, and those with fewer joined with neighbours; the
    family, None for all, and the mean loss there."""
    families = np.unique(rows.family).tolist()
    for family in [None, *(families if len(families) > 1 else ())]:
        part = rows if family is None else rows.where(rows.family == family)
        lengths, at, counts = np.unique(part.length, return_inverse=True, return_counts=True)
        sums, n = np.bincount(at, part.losses, minlength=len(lengths)).tolist(), counts.tolist()
        for low, high in sorted(set(_windows(n))):
            span = slice(low, high + 1)
            yield family, tuple(lengths[span].tolist()), sum(sums[span]) / sum(n[span])


def _windows(counts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last place of each length and as many neighbours as it needs for LEAST_PAIRS.

    >>> list(_windows([3, 1, 1, 5])), list(_windows([1, 1]))
    ([(0, 0), (0, 2), (2, 3), (3, 3)], [])
    """
    last = len(counts) - 1
    for at in range(len(counts)):
        low = high = at
        while sum(counts[low : high + 1]) < LEAST_PAIRS and (low > 0 or high < last):
            if high < last and (high - at <= at - low or low == 0):
                high += 1
            else:
                low -= 1
        if sum(counts[low : high + 1]) >= LEAST_PAIRS:
            yield low, high


def _lost_by_chance(rows: Rows, family: int | None, lengths: tuple[int, ...]) -> float:
    """One-sided p of what a length lost: by haystacks where there are six or more, else by
    pairs, without the haystack that lost most where there are several."""
    here = _at(rows, family, lengths) & ~np.isnan(rows.losses)
    losses = rows.losses[here]
    numbers, at = np.unique(rows.haystack[here], return_inverse=True)
    sums = np.asarray(np.bincount(at, losses, minlength=len(numbers)), dtype=np.float64)
    if len(numbers) >= FLIPPED:
        losses = sums
    elif len(numbers) > 1:
        losses = losses[at != sums.argmax()]
    return lost_by_chance(int((losses > 1e-12).sum()), int((losses < -1e-12).sum()))


def _more(made: PairedLoss, pairs: Difference) -> int | None:
    """Further pairs after which the verdict would be known if the loss stays: by how the ends
    narrow with the root of n. None where none would tell."""
    if made.floored or made.loss is None or made.lengths:
        return None
    if not pairs.lost + pairs.gained and pairs.size:
        needed = least_pairs(made.margin) * pairs.n / pairs.size if made.margin else 0.0
        return max(0, ceil(needed) - pairs.n) or None
    loss = made.loss
    gaps = made.margin - loss.value, loss.value - made.margin
    halves = loss.high - loss.value, loss.value - loss.low
    gap, half = max(zip(gaps, halves, strict=True))
    if gap <= 1e-9 or half <= gap:
        return None
    return ceil(pairs.n * (half / gap) ** 2) - pairs.n
