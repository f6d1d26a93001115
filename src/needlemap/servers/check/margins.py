"""Margins: by how many nats each token of an answer is likelier than the likeliest other one.

Unlike a probability, a margin moves also where a model is all but sure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from needlemap.records.record import Record

Margins = tuple[tuple[str, float], ...]  # tokens of an answer, and the margin of each
LEAST_NATS = 0.02  # a token: margins that move by less are no finding
TIMES_USUAL = 2  # what equal askings differ by is no finding below so many times as much


def margins_of(record: Record) -> Margins | None:
    """Those of a record's answer; None where its server gave no log-probabilities."""
    if record.logprobs is None:
        return None
    kept = record.logprobs
    rows = zip(kept.tokens, kept.nats, kept.other_nats, strict=True)
    return tuple((token, nats - (other or 0.0)) for token, nats, other in rows)


def nats_apart(one: Margins | None, other: Margins | None) -> float | None:
    """By how many nats a token the margins of two answers differ, as far as they say the same;
    None where they are not known.

    >>> nats_apart((("1", 12.0), ("2", 11.0)), (("1", 12.5), ("3", 9.0)))
    0.5
    """
    apart = [abs(left - right) for left, right in alike_margins(one, other)]
    return sum(apart) / len(apart) if apart else None


def alike_margins(one: Margins | None, other: Margins | None) -> list[tuple[float, float]]:
    """The margins of both, token by token, as far as they say the same."""
    if one is None or other is None:
        return []
    both = zip(one, other, strict=False)
    alike = takewhile(lambda pair: pair[0][0] == pair[1][0], both)
    return [(left, right) for (_, left), (_, right) in alike]


def finest_type(moves: Sequence[tuple[str, float]], most: float) -> tuple[str, float] | None:
    """The finest data type that explains a move of margins, with its limit; None where none is
    known to. moves: from the finest on. most: the largest move of a prompt, nats a token.

    >>> finest_type((("float32", 0.00003), ("float16", 0.03)), 0.004)
    ('float16', 0.03)
    """
    return next((each for each in moves if most <= each[1]), None)
