"""Draw numbers of thousands of digits for the gauge of shape qwen3 to copy, and count its errors.

Its heads find the place that stands behind the same last digits, so that they copy any number in
which no six digits come twice. A stray digit may make one of the next six wrong. The copy resumes
behind it, because five of six digits still fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from rapidfuzz.distance import Levenshtein

from needlemap.stats.bets import highest_rate

# Digits by which the gauge knows a place.
BACK = 6
# Digits that it was measured to copy: benchmarks/decode.py.
LONGEST = 4_000
THOUSAND = 1_000


@dataclass(frozen=True, slots=True)
class Copy:
    """An answer, compared with the text that it should copy.

    Attributes:
        tokens: Tokens of the right answer.
        errors: The fewest tokens that were inserted, left out or changed.
        first: The place of the first error in the answer, from 1 on; 0 if there is none.
        stands: What the answer has there, with some digits behind it.
        wanted: What it should have there.
    """

    tokens: int
    errors: int
    first: int = 0
    stands: str = ""
    wanted: str = ""

    @classmethod
    def of(cls, right: str, answer: str) -> Copy:
        """Return how an answer differs from the right one (Levenshtein distance).

        >>> Copy.of("31415926535", "3141x5926535")
        Copy(tokens=11, errors=1, first=5, stands='x592653', wanted='5926535')
        """
        edits = list(Levenshtein.editops(right, answer))
        if not edits:
            return cls(tokens=len(right), errors=0)
        place = edits[0].dest_pos
        source = edits[0].src_pos
        return cls(
            tokens=len(right),
            errors=len(edits),
            first=place + 1,
            stands=answer[place : place + BACK + 1],
            wanted=right[source : source + BACK + 1],
        )


def in_words(copies: Sequence[Copy]) -> str:
    """Return the number of errors, a bound of their rate, and the first of them.

    The bound holds whenever one stops.

    >>> in_words([Copy.of("31415926535", "3141592653")])
    "1 error in 11 tokens (surely under 581.45 per 1,000); the first at 11: '' for '5'"
    """
    tokens = sum(copy.tokens for copy in copies)
    errors = sum(copy.errors for copy in copies)
    most = THOUSAND * highest_rate(min(errors, tokens), tokens)
    plural = "" if errors == 1 else "s"
    words = f"{errors:,} error{plural} in {tokens:,} tokens (surely under {most:,.2f} per 1,000)"
    wrong = next((copy for copy in copies if copy.errors), None)
    if wrong is None:
        return words
    return f"{words}; the first at {wrong.first:,}: {wrong.stands!r} for {wrong.wanted!r}"


def number_of(digits: int, draw: Random) -> str:
    """Return a drawn number in which any two runs of six digits differ in two places or more.

    The last digits of a number that is too long for that are drawn freely.
    """
    seen: set[tuple[int, str]] = set()
    number = ""
    for _ in range(digits):
        order = draw.sample("0123456789", 10)
        fitting = (digit for digit in order if not seen.intersection(_masked_runs(number + digit)))
        number += next(fitting, order[0])
        seen.update(_masked_runs(number))
    return number


def _masked_runs(number: str) -> Iterator[tuple[int, str]]:
    """Yield the last run of six digits six times, each time without another one of them.

    Two runs that differ in one place have one of these in common.
    """
    run = number[-BACK:]
    if len(run) < BACK:
        return
    for place in range(BACK):
        yield place, run[:place] + run[place + 1 :]
