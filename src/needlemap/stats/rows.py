"""The pairs of two runs or two arms, prompt by prompt, as arrays that a verdict reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from needlemap.stats import Array, Place

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
