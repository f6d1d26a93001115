"""The loss of two runs or two arms: does B lose less than a margin?

One function, `judge`, for `compare`, `compare --sequential`, `run --until`, `ab`, suites and
the pytest fixture. It takes pairs prompt by prompt and looks at the mean over families, at
each length, at what is missing, and at whole haystacks. What the reference mostly gets wrong is
left out first (`tested.py`).

The mean: the ends of its loss come from pairs (Tango, or adjusted Wald of graded scores) and
from whole haystacks where these are wider. Missing answers move the upper end up, as if B's
were wrong and A's right, and the lower end down, as if it were the other way round.

Lengths and families: one that lost half or more of its pairs keeps the verdict from PASS, and
makes it FAIL if some of that is surely no chance (McNemar, one-sided; Holm over all of
them). With several of them the mean and they take half of the level of FAIL each. Looks one
after the other need bets too: one on the mean, and one for each length and family, at the level
of the lengths divided by their number.
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
from needlemap.stats.sequential import FEWEST_NEW, Bets, further, log_wealth
from needlemap.stats.tested import NotTested, families_left, keep_tested
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
HALF = 0.5  # of a length's pairs: so much lost is named
LEAST_PAIRS = 3  # of a length, or of it and its neighbours, to be looked at alone


@dataclass(frozen=True, slots=True)
class Loss:
    """How much less B scores than A, a share: its lower end at 99 % (99.5 % with several
    lengths) and its upper end at 97.5 %, each one-sided."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class LostLength:
    """A length, or neighbouring ones, at which half or more is lost; () of a whole family.
    family: '' where it is of all. missing: answers that one side did not give, counted as lost.
    sure: whether it decides, since some of the loss is surely no chance."""

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
    pairs that one side was not sent yet; tried: the lengths of the others. after: units at the
    look that decided; of one look, None. planned: how many units there are, seen: how many were
    sent in their turn. more: further pairs that would decide if the loss
    stays as it is. counted: False where scores are means of an unknown number of answers. untested:
    what the reference mostly gets wrong; it is in no other number. families: how many are tested,
    and how many there are. settled: whether missing answers alone keep it open, however many
    more prompts are sent."""

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
    seen: int = 0
    unit: str = "haystack"
    sequential: bool = False
    more: int | None = None
    counted: bool = True
    measured: tuple[str, str] = ("", "")
    untested: tuple[NotTested, ...] = ()
    families: tuple[int, int] = (1, 1)
    settled: bool = False

    @property
    def is_decided(self) -> bool:
        """Whether it passes or fails."""
        return self.word in (PASS, FAIL)

    @property
    def floored(self) -> bool:
        """Whether A is mostly wrong in more than half of the families, so that nothing proves a
        PASS."""
        return not _enough(self.families)

    @property
    def saturated(self) -> bool:
        """Whether A errs too rarely for its answers to show a quiet fault."""
        return self.n > 0 and self.first >= CEILING


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
    looks: Looking | None = None,
    measured: tuple[str, str] = ("", ""),
) -> PairedLoss:
    """The verdict. margin: a share. looks: in which order units were looked at, None for one
    look at all. measured: when the first and the last answer came.

    What was not sent to both is not judged. In one look it keeps the word from PASS.
    """
    all_rows = rows
    rows, untested = keep_tested(all_rows, margin)
    families = families_left(all_rows, untested)
    alpha = LOW_ALPHA / 2 if _has_parts(rows) else LOW_ALPHA
    level = _Level(
        margin, alpha, _enough(families), families[0] > 0, all_rows if untested else None
    )
    turns = whole_units(rows, looks(rows)) if looks else None
    seen = rows.where(_in_sight(rows, turns) if turns else rows.tried)
    last = _look(seen, level)
    word, suspect, after, settled = last.word, last.suspect, None, False
    unsent = int((~rows.tried).sum())
    if turns is not None:
        bets = _PartBets.of(rows, turns)
        word, after = _decided(rows, turns, bets, level, last)
        suspect = suspect or (after is not None and word == NOT_ENOUGH_DATA)
        settled = word == NOT_ENOUGH_DATA and _is_settled(rows, turns, margin, last)
        last = replace(last, lengths=tuple(bets.named(last.lengths, turns, word)))
    elif unsent and word == PASS:
        word = NOT_ENOUGH_DATA
    suspect = suspect or _lost_untested(all_rows, untested)
    if suspect and not last.suspect and word == PASS:
        word = NOT_ENOUGH_DATA
    whole = _whole(rows, turns)
    new = _of_new(_haystack_losses(rows, whole), margin, alpha, last)
    if wanted == "new":
        word = last.word if _agree(new.word, last.word) else NOT_ENOUGH_DATA
        after = None if word == NOT_ENOUGH_DATA else after
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
        planned=turns.planned if turns else None,
        seen=int(turns.turns.max(initial=-1)) + 1 if turns else 0,
        unit=turns.unit if turns else "haystack",
        sequential=looks is not None,
        measured=measured,
        untested=untested,
        families=families,
        settled=settled,
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


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """What a look is judged by. alpha: of the lower end. enough: whether enough families are
    tested for a PASS, some: whether any is. all_rows: what is not tested, too; None if
    nothing was left out."""

    margin: float
    alpha: float
    enough: bool
    some: bool
    all_rows: Rows | None


def _in_sight(rows: Rows, turns: Looks) -> NDArray[np.bool_]:
    """The pairs whose losses are shown: all that were sent, but for parts of haystacks that are
    judged whole."""
    return rows.tried if turns.unit == "pair" else rows.tried & (turns.turns > -2)


def _enough(families: tuple[int, int]) -> bool:
    return 2 * families[0] >= families[1] and (families[0] > 0 or not families[1])


def _has_parts(rows: Rows) -> bool:
    """Whether there are several lengths or families, each of which may decide."""
    return len(np.unique(rows.length)) > 1 or len(np.unique(rows.family)) > 1


def _lost_untested(rows: Rows, untested: tuple[NotTested, ...]) -> bool:
    """Whether what the reference mostly gets wrong was surely lost where it is right."""
    here = np.zeros(len(rows.first), dtype=bool)
    for group in untested:
        family = rows.names.index(group.family)
        here |= _at(rows, family, group.lengths or None)
    return _lost_by_chance(rows, here) <= LOW_ALPHA


def _decided(
    rows: Rows, turns: Looks, bets: _PartBets, level: _Level, last: _Look
) -> tuple[Word, int | None]:
    """The word of looks at units in their turn, and after how many it was known.

    A look decides if its bet has won and its own interval says the same, or if the bet of a
    length or family has won that it names as lost. All that was planned, once seen, is one
    look. What comes later may take a word back, and never turns it round.
    """
    against, in_favour, scale = unit_losses(rows, turns)
    count = len(against)
    losses = against.tolist(), in_favour.tolist()
    mean = Bets.of(losses, level.margin / scale, turns.planned, level.alpha)
    for at in range(turns.every, count + 1, turns.every):
        if at == turns.planned:
            break
        words, parts = mean.won(at), bets.won(at)
        if not words and not parts:
            continue
        look = _look(rows.where(rows.tried & (turns.turns > -2) & (turns.turns < at)), level)
        for word in words:
            if not (_agree(word, look.word) and _agree(word, look.mean)):
                continue
            if word == FAIL:
                return (NOT_ENOUGH_DATA if _agree(last.word, PASS) else FAIL), at
            return (last.word if _agree(last.word, word) else NOT_ENOUGH_DATA), at
        if any(length.sure and _key(length) in parts for length in look.lengths):
            return (NOT_ENOUGH_DATA if _agree(last.word, PASS) else FAIL), at
    if turns.planned is not None and count == turns.planned:
        return last.word, count if last.word != NOT_ENOUGH_DATA else None
    return NOT_ENOUGH_DATA, None


def _is_settled(rows: Rows, turns: Looks, margin: float, last: _Look) -> bool:
    """Whether missing answers alone keep it open: with them against B, more than the
    margin or half of a length is surely lost, and with them for B, less than the margin."""
    if last.missing is None:
        return False
    against, in_favour, scale = unit_losses(rows, turns)
    if not len(against):
        return False
    bound = margin / scale
    fine = Bets.of((in_favour.tolist(), against.tolist()), bound, turns.planned, LOW_ALPHA)
    words = fine.won(len(against))
    return PASS in words and (FAIL in words or bool(last.lengths))


@dataclass(frozen=True, slots=True)
class _PartBets:
    """A bet for each length, family, and length of a family that something is lost there, with
    missing answers for B. wins: by part, the turn from which on its bet has won."""

    wins: dict[tuple[str, tuple[int, ...]], int]
    planned: int | None

    @classmethod
    def of(cls, rows: Rows, turns: Looks) -> _PartBets:
        parts = list(_parts(rows)) if _has_parts(rows) else []
        wins = {}
        for family, lengths in parts:
            here = _at(rows, family, lengths)
            losses, numbers = group_losses(rows, turns, here)
            planned = None
            if turns.planned is not None:
                planned = len(np.unique(turns.turns[here & (turns.turns != -1)]))
            goal = -log(LOW_ALPHA / 2 / len(parts))
            won = np.flatnonzero(log_wealth((1 + losses) / 2, 0.5, planned) >= goal)
            if len(won):
                name = "" if family is None else rows.names[family]
                wins[name, lengths or ()] = int(numbers[won[0]]) + 1
        return cls(wins, turns.planned)

    def won(self, at: int) -> set[tuple[str, tuple[int, ...]]]:
        """The parts whose bets have won after so many units."""
        return {part for part, turn in self.wins.items() if turn <= at}

    def named(
        self, lengths: Sequence[LostLength], turns: Looks, word: Word
    ) -> Iterator[LostLength]:
        """Lost lengths, sure only if the verdict follows from it."""
        seen = int(turns.turns.max(initial=-1)) + 1
        for length in lengths:
            decides = seen == self.planned or _key(length) in self.wins
            yield replace(length, sure=length.sure and decides and word == FAIL)


def _key(length: LostLength) -> tuple[str, tuple[int, ...]]:
    return length.family, length.lengths


def _parts(rows: Rows) -> Iterator[tuple[int | None, tuple[int, ...] | None]]:
    """Each length of all families, and if there are several, each family and its lengths: the
    number of the family, None for all, and the lengths, None for all."""
    families = np.unique(rows.family).tolist()
    lengths = np.unique(rows.length).tolist()
    if rows.length.any() and len(lengths) > 1:
        yield from ((None, (length,)) for length in lengths)
    for family in families if len(families) > 1 else ():
        yield family, None
        own = np.unique(rows.length[rows.family == family]).tolist()
        if rows.length.any() and len(own) > 1:
            yield from ((family, (length,)) for length in own)


def _agree(one: Word, other: Word) -> bool:
    """Whether two words decide alike."""
    return one == other != NOT_ENOUGH_DATA


def _whole(rows: Rows, turns: Looks | None) -> list[int]:
    """The haystacks of which both tried everything, and one answered something, in the order
    in which they were looked at."""
    partly = set(rows.haystack[~rows.tried].tolist())
    answered = ~(np.isnan(rows.first) & np.isnan(rows.second))
    order = np.arange(len(rows.haystack)) if turns is None else turns.turns
    firsts = dict[int, tuple[int, int]]()
    pairs = zip(rows.haystack[answered].tolist(), order[answered].tolist(), strict=True)
    for number, turn in pairs:
        place = (0, number) if turns is None else (turn, number)
        firsts[number] = min(place, firsts.get(number, place))
    return sorted(firsts.keys() - partly, key=lambda number: firsts[number])


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


def _look(rows: Rows, level: _Level) -> _Look:
    """Judge some pairs at once."""
    margin, alpha = level.margin, level.alpha
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
    # A sure gain of all families needs no room to lose; one of a few left says little of the rest.
    if mean == PASS and not level.enough and (loss.high >= 0 or level.some):
        mean = NOT_ENOUGH_DATA
    if mean == FAIL and level.all_rows is not None:
        # What is left out hangs on the reference's own answers: of arms that answer by chance
        # those stay in which the reference was lucky. So all pairs together must show it too.
        together = _difference(level.all_rows, alpha)
        mean = mean if together is not None and together.high < 0 else NOT_ENOUGH_DATA
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
    """The lengths of all families, and of each where there are several, and such families, at
    which half or more is lost; no lengths of samples of a log, which have none. rows: with what
    misses counted against B; known: as they are."""
    groups = list(_length_groups(rows))
    if all(share < HALF - 1e-9 for *_, share in groups):
        return
    chances = [_lost_by_chance(known, _at(known, family, at)) for family, at, _ in groups]
    for (family, lengths, share), p in zip(groups, holm(chances), strict=True):
        if share < HALF - 1e-9:
            continue
        here, asked = _at(rows, family, lengths), _at(known, family, lengths)
        losses, (first, second) = rows.losses[here], known.failed
        missing = int(((first | second) & asked).sum())
        name = "" if family is None else rows.names[family]
        lost, gained = int((losses > 1e-12).sum()), int((losses < -1e-12).sum())
        sure = len(groups) > 1 and p <= LOW_ALPHA / 2
        yield LostLength(lengths or (), name, int(here.sum()), lost, gained, missing, sure)


def _at(rows: Rows, family: int | None, lengths: tuple[int, ...] | None) -> NDArray[np.bool_]:
    """Where a family's rows of some lengths are; None for all."""
    here = np.ones(len(rows.length), dtype=bool)
    if lengths is not None:
        here &= np.isin(rows.length, lengths)
    return here if family is None else here & (rows.family == family)


def _length_groups(rows: Rows) -> Iterator[tuple[int | None, tuple[int, ...] | None, float]]:
    """Lengths with enough pairs, each alone, and those with fewer joined with neighbours, and
    families with enough; the family and the lengths, None for all, and the mean loss there."""
    families = np.unique(rows.family).tolist()
    for family in [None, *(families if len(families) > 1 else ())]:
        part = rows if family is None else rows.where(rows.family == family)
        if family is not None and len(part.losses) >= LEAST_PAIRS:
            yield family, None, float(part.losses.mean())
        if not rows.length.any():
            continue
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


def _lost_by_chance(rows: Rows, here: NDArray[np.bool_]) -> float:
    """One-sided p of what some rows lost: by haystacks where there are six or more, else by
    pairs, without the haystack that lost most where there are several."""
    here = here & ~np.isnan(rows.losses)
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
    held = made.missing is not None and made.missing.reaches
    if made.floored or made.loss is None or made.lengths or held:
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
