"""Compare margins: by how many nats each token of an answer is likelier than the runner-up.

Unlike a probability, a margin moves even if a model is almost sure.
"""

from __future__ import annotations

from collections.abc import Sequence

from needlemap.records.record import Record
from needlemap.servers.ways import Step
from needlemap.stats.pairs import leads_of

# Tokens of an answer, and the margin of each; None if the server lists no runner-up.
Margins = tuple[tuple[str, float | None], ...]
# Nats a token: margins that move by less are no finding.
LEAST_NATS = 0.02
# Margins that move by less than so many times what equal prompts differ by are no finding.
TIMES_USUAL = 2


def margins_of(record: Record) -> Margins | None:
    """Return the margins of a record's answer, or None if it has no log-probabilities."""
    logprobs = record.logprobs
    if logprobs is None:
        return None
    return tuple(zip(logprobs.tokens, leads_of(logprobs), strict=True))


def steps_of(record: Record) -> tuple[Step, ...]:
    """Return the tokens of a record's answer, each with its log-probability and the runner-up's.

    If the record has no log-probabilities, the result is ().
    """
    logprobs = record.logprobs
    if logprobs is None:
        return ()
    steps = []
    for token, nats, other, other_nats in zip(
        logprobs.tokens,
        logprobs.nats,
        logprobs.others,
        logprobs.other_nats,
        strict=True,
    ):
        nats_by_token = {token: nats}
        if other is not None and other_nats is not None:
            nats_by_token.setdefault(other, other_nats)
        steps.append((token, nats_by_token))
    return tuple(steps)


def nats_apart(one: Margins | None, other: Margins | None) -> float | None:
    """Return by how many nats a token the margins of two answers differ.

    They are compared up to the first different token. A token without a runner-up in either answer
    is left out. If there is no margin to compare, the result is None.

    >>> nats_apart((("1", 12.0), ("2", 11.0)), (("1", 12.5), ("3", 9.0)))
    0.5
    >>> nats_apart((("1", 12.0), ("2", 11.0)), (("1", None), ("2", 11.5)))
    0.5
    """
    moves = [
        abs(margin - other_margin)
        for margin, other_margin in equal_token_margins(one, other)
        if margin is not None and other_margin is not None
    ]
    return sum(moves) / len(moves) if moves else None


def equal_token_margins(
    one: Margins | None, other: Margins | None
) -> list[tuple[float | None, float | None]]:
    """Return the margins of two answers, token by token, up to the first different token."""
    if one is None or other is None:
        return []
    margins = list[tuple[float | None, float | None]]()
    for (token, margin), (other_token, other_margin) in zip(one, other, strict=False):
        if token != other_token:
            break
        margins.append((margin, other_margin))
    return margins


def finest_type(moves: Sequence[tuple[str, float]], most: float) -> tuple[str, float] | None:
    """Return the finest data type that explains a move of margins, with its limit.

    If none explains it, the result is None.

    moves: the limits by data type, from the finest on. most: the largest move of a prompt, in nats
        a token.

    >>> finest_type((("float32", 0.00003), ("float16", 0.03)), 0.004)
    ('float16', 0.03)
    """
    for name, limit in moves:
        if most <= limit:
            return name, limit
    return None
