"""A gate that may be looked at any time: is B worse than A, or no worse than by a margin?

Two bets run side by side over the pairs of two runs. Each wins only where its claim is true, so
that it comes above 1 / alpha at any time at all with a chance of at most alpha where the claim is
false (Ville 1939, Etude critique de la notion de collectif, chapter V). Whoever stops when one of
them does needs no number of pairs fixed beforehand. The order of the pairs must not hang on their
scores:
`interleaved` gives one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import exp, inf, lgamma, log
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from needlemap.maps import Array, Place, prompt_of
from needlemap.maps.difference import FLOOR
from needlemap.records.record import Record

WORSE_ALPHA, NO_WORSE_ALPHA = 0.01, 0.02
BETS = np.array([0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9])
FARTHEST = 20_000  # further pairs that are looked ahead
_FUTURES, _STEPS = 400, 40
Word = Literal["worse", "no worse", "undecided"]


def log_worse(lost: int, gained: int) -> float:
    """Log of the bet that B loses more pairs than it gains, after so many of both.

    The likelihood of the losses under a share of them drawn evenly from (1/2, 1], over that under
    1/2
    (Robbins 1970, Annals of Mathematical Statistics 41:1397). Holds where pairs are
    as likely lost as gained.

    >>> round(log_worse(9, 0), 3)
    4.628
    """
    n = lost + gained
    logs = _log_factorials(n + 1)
    terms = logs[n + 1] - logs[: lost + 1] - logs[n + 1 - np.arange(lost + 1)]
    tail = float(np.logaddexp.reduce(terms)) - (n + 1) * log(2)  # that the share lies above 1/2
    return lgamma(1 + lost) + lgamma(1 + gained) - lgamma(2 + n) + log(2) + tail + n * log(2)


@lru_cache(maxsize=4)
def _logs_to(size: int) -> Array:
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, size + 1)))])


def _log_factorials(most: int) -> Array:
    """log k! for k up to at least `most`."""
    return _logs_to(1 << max(10, most.bit_length()))


@lru_cache(maxsize=2)
def least_lost(most: int) -> NDArray[np.int64]:
    """For 0..most pairs lost or gained, how many of them must be lost for `worse`; more than all:
    never."""
    logs, found = _log_factorials(most + 1).tolist(), np.zeros(most + 1, dtype=np.int64)
    lost, tail = (
        0,
        0.5,
    )  # tail: that of n + 1 fair coins at most so many are lost, as in `log_worse`
    for n in range(most + 1):
        all_ways = logs[n + 1] - (n + 1) * log(2)
        while lost <= n and logs[lost] + logs[n - lost] - all_ways + log(tail) < -log(WORSE_ALPHA):
            lost += 1
            tail += exp(all_ways - logs[lost] - logs[n + 1 - lost])
        found[n] = lost
        tail -= exp(all_ways - logs[lost] - logs[n + 1 - lost]) / 2  # one coin more
    return found


def log_growth(differences: Array, margin: float) -> Array:
    """What each of BETS wins by a difference B - A in [-1, 1], as logs: (..., bets).

    log(1 + g (d + m) / (1 - m)): fair where B loses the margin m, a share (Waudby-Smith and Ramdas
    2024, JRSS B 86:1, section 4).
    """
    return np.log1p(BETS * ((np.asarray(differences)[..., None] + margin) / (1 - margin)))


def log_bet(wins: Array) -> Array:
    """Log of the mean of bets whose logs are (..., bets): the bet that B is no worse than by the
    margin."""
    return np.asarray(np.logaddexp.reduce(wins, axis=-1) - log(len(BETS)))


@dataclass(slots=True)
class Gate:
    """Pairs so far, and what they come to. margin: a share. lost, gained: pairs where B scored
    less, or more.

    missing: pairs that B failed to answer, counted as wrong. after: pairs when it was decided, None
    before.
    """

    margin: float
    n: int = 0
    lost: int = 0
    gained: int = 0
    missing: int = 0
    word: Word = "undecided"
    after: int | None = None
    worse: float = 0.0  # log of the bet
    total: float = 0.0  # of A's scores
    _wins: Array = field(default_factory=lambda: np.zeros(len(BETS)))
    _differences: Counter[float] = field(default_factory=Counter)

    def add(self, first: float, second: float | None) -> None:
        """The next pair's scores; None where B has none."""
        apart = (second or 0.0) - first
        self.n += 1
        self.total += first
        self.missing += second is None
        self._wins += log_growth(np.array(apart), self.margin)
        self._differences[round(apart, 2)] += 1
        if abs(apart) > 1e-12:
            self.lost, self.gained = self.lost + (apart < 0), self.gained + (apart > 0)
            self.worse = log_worse(self.lost, self.gained)
        if self.after is None:
            self.word = self._look()
            self.after = None if self.word == "undecided" else self.n

    @property
    def no_worse(self) -> float:
        """Log of the bet that B is no worse than by the margin."""
        return float(log_bet(self._wins))

    @property
    def floored(self) -> bool:
        """Whether A scores too little to lose the margin, so that nothing proves `no worse`."""
        return self.total <= max(self.margin, FLOOR) * self.n

    def _look(self) -> Word:
        if self.worse >= -log(WORSE_ALPHA):
            return "worse"
        return (
            "no worse"
            if self.no_worse >= -log(NO_WORSE_ALPHA) and not self.floored
            else "undecided"
        )

    def more(self) -> int | None:
        """Further pairs after which half of all likely futures are decided; None beyond FARTHEST.

        Futures draw pairs as those so far, of which nobody knows the true shares: drawn too, half a
        pair of each kind more than was seen (Jeffreys 1946).
        """
        random = np.random.default_rng(0)
        seen = Counter(self._differences) + Counter({-1.0: 0.5, 0.0: 0.5, 1.0: 0.5})
        kinds = np.array(sorted(seen))
        shares = random.dirichlet([seen[kind] for kind in kinds.tolist()], _FUTURES)
        looks = np.unique(np.geomspace(1, FARTHEST, _STEPS).astype(int))
        steps = np.diff(looks, prepend=0)
        drawn = np.stack([random.multinomial(step, shares) for step in steps], axis=1).cumsum(
            axis=1
        )
        lost = self.lost + drawn[..., kinds < -1e-12].sum(axis=-1)
        apart = lost + self.gained + drawn[..., kinds > 1e-12].sum(axis=-1)
        passed = log_bet(self._wins + drawn @ log_growth(kinds, self.margin)) >= -log(
            NO_WORSE_ALPHA
        )
        table = least_lost(1 << int(apart.max()).bit_length())
        decided = ((lost >= table[apart]) | (passed & (not self.floored))).mean(axis=0) >= 0.5
        return int(looks[decided.argmax()]) if decided.any() else None


@dataclass(frozen=True, slots=True)
class Haystacks:
    """What n whole haystacks say of new ones, each one bet on its mean difference.

    bet: log of the bet that B is no worse than by the margin. more: further haystacks that would
    decide if they went on as these; None beyond FARTHEST. least: haystacks that it takes where all
    answers are equal. worse: log of the bet that B is worse. after: haystacks when it was decided;
    None before.
    """

    n: int
    bet: float
    word: Word
    more: int | None
    least: int
    worse: float = 0.0
    after: int | None = None


def of_haystacks(means: Iterable[float], margin: float, beyond: float = 0.0) -> Haystacks:
    """Bet on haystacks' mean differences B - A, in their order. margin: a share. beyond: the loss,
    a share, that `worse` says is exceeded."""
    found = np.array(list(means), dtype=np.float64)
    lost = log_growth(-found, -beyond)
    bets = (log_growth(found, margin), -log(NO_WORSE_ALPHA)), (lost, -log(WORSE_ALPHA))
    no_worse, worse = (_first_above(log_bet(wins.cumsum(axis=0)), goal) for wins, goal in bets)
    word: Word = "undecided" if no_worse == worse else "worse" if worse < no_worse else "no worse"
    further = [
        _further(wins.sum(axis=0), wins.mean(axis=0), goal) for wins, goal in bets if len(found)
    ]
    least = _further(np.zeros(len(BETS)), log_growth(np.array(0.0), margin), bets[0][1])
    more = min((each for each in further if each is not None), default=None)
    bet, against = (float(log_bet(wins.sum(axis=0))) for wins, _ in bets)
    after = None if word == "undecided" else int(min(no_worse, worse)) + 1
    more = more if after is None else None
    return Haystacks(len(found), bet, word, more, least or FARTHEST, against, after)


def _first_above(logs: Array, goal: float) -> float:
    """At which place a bet first comes above; infinite where it never does."""
    above = logs >= goal
    return float(above.argmax()) if above.any() else inf


def _further(wins: Array, each: Array, goal: float) -> int | None:
    """How often each bet must win that much more until their mean is above; None beyond
    FARTHEST."""
    counts = np.arange(1, FARTHEST + 1)
    place = _first_above(log_bet(wins + counts[:, None] * each), goal)
    return None if place == inf else int(place) + 1


def interleaved(places: Iterable[Place]) -> dict[tuple[int, int], list[Place]]:
    """Places in the order of a gate, in layers: repeat by repeat, and inside each length once a
    layer, at depths far apart first, so that any stop leaves a balanced map. By repeat and number
    of the layer.

    >>> list(interleaved([(0, 10, 0.0), (0, 10, 0.5), (0, 10, 1.0), (0, 20, 0.0)]).values())
    [[(0, 10, 0.0), (0, 20, 0.0)], [(0, 10, 1.0)], [(0, 10, 0.5)]]
    """
    rows: dict[tuple[int, int], list[Place]] = defaultdict(list)
    for place in sorted(set(places)):
        rows[place[:2]].append(place)
    layers: dict[tuple[int, int], list[Place]] = defaultdict(list)
    for (repeat, _), row in rows.items():
        for rank, at in enumerate(_spread(len(row))):
            layers[repeat, rank].append(row[at])
    return dict(sorted(layers.items()))


def _spread(count: int) -> list[int]:
    """0..count-1 with neighbours far apart: by their bits read backwards (van der Corput 1935)."""
    bits = max(1, (count - 1).bit_length())
    return sorted(range(count), key=lambda at: int(f"{at:0{bits}b}"[::-1], 2))


Found = Mapping[Place, Record]  # what a run asked: the last record of each trial, scored if any was


@dataclass(frozen=True, slots=True)
class Pair:
    """repeat: whose haystack it is of. first: A's score; second: B's, None where it failed to
    answer."""

    repeat: int
    first: float
    second: float | None


def gate_pairs(families: Sequence[tuple[Found, Found]]) -> list[Pair]:
    """The pairs that A scored and B tried, each prompt once, in the order of a gate; of several
    families their layers by turns."""
    layers: dict[tuple[int, int, int], list[Pair]] = {}
    for family, (first, second) in enumerate(families):
        seen: set[Hashable] = set()
        for (repeat, rank), places in interleaved(scored_places(first)).items():
            found = (pair_at(place, first, second, seen) for place in places)
            layers[repeat, rank, family] = [pair for pair in found if pair is not None]
    return [pair for key in sorted(layers) for pair in layers[key]]


def scored_places(found: Found) -> set[Place]:
    """Where a run has a score."""
    return {place for place, record in found.items() if record.scored}


def pair_at(place: Place, first: Found, second: Found, seen: set[Hashable]) -> Pair | None:
    """The pair at a place; None where B did not try it, or its prompt was seen elsewhere."""
    prompt = prompt_of(first[place])
    if place not in second or prompt in seen:
        return None
    seen.add(prompt)
    score = first[place].score
    assert score is not None  # it is one of `scored_places`
    return Pair(place[0], score, second[place].score)


def whole_haystacks(families: Sequence[tuple[Found, Found]], pairs: Iterable[Pair]) -> list[float]:
    """The mean differences of the repeats of which B tried all that A scored."""
    partly = {
        place[0] for first, second in families for place in scored_places(first) - second.keys()
    }
    found: dict[int, list[float]] = defaultdict(list)
    for pair in pairs:
        if pair.repeat not in partly:
            found[pair.repeat].append((pair.second or 0.0) - pair.first)
    return [sum(each) / len(each) for each in found.values()]
