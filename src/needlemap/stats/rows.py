"""Hold the pairs of two runs or two arms, prompt by prompt, as arrays for a verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from needlemap.stats import Array, Place

Integers = NDArray[np.int64]


class JudgedPrompt(NamedTuple):
    """One prompt with both scores.

    Attributes:
        family: its family's name.
        place: repeat, length and depth.
        haystack: the number of its haystack.
        first, second: the scores of A and B; None if the answer is missing.
        tried: True if the prompt was sent to both.
    """

    family: str
    place: Place
    haystack: int
    first: float | None
    second: float | None
    tried: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Pairs of two runs, in arrays of shape (pairs,).

    Attributes:
        names: of the families.
        family: an index into names.
        haystack: any number that the pairs of one haystack share.
        length: in tokens.
        first, second: the scores of A and B, NaN if missing.
        tried: True if the prompt was sent to both.
        places: of each pair; may be empty.
    """

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
        """Return prompts in any order as arrays."""
        prompts = list(rows)
        names = tuple(dict.fromkeys(prompt.family for prompt in prompts))
        scores = [(prompt.first, prompt.second) for prompt in prompts]
        # numpy turns None into NaN.
        pairs = np.array(scores, dtype=np.float64).reshape(-1, 2)
        return cls(
            names=names,
            family=np.array([names.index(prompt.family) for prompt in prompts], dtype=np.int64),
            haystack=np.array([prompt.haystack for prompt in prompts], dtype=np.int64),
            length=np.array([prompt.place[1] for prompt in prompts], dtype=np.int64),
            first=pairs[:, 0],
            second=pairs[:, 1],
            tried=np.array([prompt.tried for prompt in prompts], dtype=bool),
            places=tuple(prompt.place for prompt in prompts),
        )

    def where(self, mask: NDArray[np.bool_]) -> Rows:
        """Return the pairs that a mask keeps."""
        places = zip(self.places, mask.tolist(), strict=False)
        return Rows(
            names=self.names,
            family=self.family[mask],
            haystack=self.haystack[mask],
            length=self.length[mask],
            first=self.first[mask],
            second=self.second[mask],
            tried=self.tried[mask],
            places=tuple(place for place, is_kept in places if is_kept),
        )

    @property
    def missing_masks(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return a mask of the pairs in which only A's score is missing, and one for only B's."""
        first_missing, second_missing = np.isnan(self.first), np.isnan(self.second)
        return first_missing & ~second_missing, second_missing & ~first_missing

    def against(self) -> Rows:
        """Return the pairs with a score, with missing answers counted against B."""
        return self._filled(first=1.0, second=0.0)

    def in_favour(self) -> Rows:
        """Return the pairs with a score, with missing answers counted for B."""
        return self._filled(first=0.0, second=1.0)

    def _filled(self, first: float, second: float) -> Rows:
        rows = replace(
            self,
            first=np.nan_to_num(self.first, nan=first),
            second=np.nan_to_num(self.second, nan=second),
        )
        return rows.where(~(np.isnan(self.first) & np.isnan(self.second)))

    @property
    def losses(self) -> Array:
        """Return A - B, which is NaN if either is missing."""
        return self.first - self.second
