"""The probe that needs a reference: the same prompts, asked of the same weights elsewhere."""

from __future__ import annotations

from needlemap.maps.intervals import wilson
from needlemap.probes import known
from needlemap.probes.base import (
    BESIDE,
    NOISE,
    Answers,
    Finding,
    State,
    hit,
    lost_tail,
    prompt,
    upper_tail,
    worst_of,
)
from needlemap.probes.within import TIMES, TOLD_NATS

_MOVED = 0.2  # share of answers whose log-probability an honest copy of the weights may give otherwise


def reference(answers: Answers) -> Finding:
    """What the reference finds and the server loses; and answers that both give, and hold less likely.

    Engines differ in the last digits. How much is usual is seen where the server is asked twice.
    """
    pairs = [row for kind in ("grid", "comb") for row in answers.pairs(f"{BESIDE}{kind}", kind, prompt)]
    lost = [(way, there) for way, here, there in pairs if hit(here) and not hit(there)]
    gained = sum(hit(there) and not hit(here) for _, here, there in pairs)
    n, p = len(pairs), lost_tail(len(lost), gained)
    low, high = wilson(len(lost), n) or (None, None) if n else (None, None)
    said = f"{len(lost)} of {n} answers that the reference gets right are lost, {gained} gained"
    effect = (len(lost) - gained) / n if n else None
    if lost and p <= answers.level / 2:
        worst = worst_of(lost)
        return Finding("reference", "fail", n, said, effect, low, high, p, worst, known.REFERENCE)
    moved = [
        (here.logprobs.mean - there.logprobs.mean, (way, there))
        for way, here, there in pairs
        if here.logprobs and there.logprobs and here.answer == there.answer
    ]
    told = max(TOLD_NATS, TIMES * _usual(answers))
    beyond = [row for apart, row in moved if abs(apart) > told]
    p_moved = upper_tail(len(beyond), len(moved), _MOVED) if moved else 1.0
    if moved:
        said += f"; {len(beyond)} of {len(moved)} equal answers move by over {told:.2g} nats a token"
    if p_moved <= answers.level / 2:
        worst = worst_of(beyond)
        return Finding("reference", "fail", n, said, effect, low, high, p_moved, worst, known.REFERENCE)
    state: State = "pass" if (n and any(hit(here) for _, here, _ in pairs)) or moved else "undecided"
    return Finding("reference", state, n, said, effect, low, high, min(p, p_moved))


def _usual(answers: Answers) -> float:
    """The largest difference between two equal askings of the server, of all but the odd one in twenty."""
    apart = sorted(
        abs(one.logprobs.mean - other.logprobs.mean)
        for _, one, other in answers.pairs("grid", "again", prompt)
        if one.logprobs and other.logprobs and one.answer == other.answer
    )
    return apart[int((1 - NOISE) * (len(apart) - 1))] if apart else 0.0
