"""The probe that needs a reference: the same prompts, asked of the same weights elsewhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, median

from needlemap.probes import known
from needlemap.probes.base import (
    BESIDE,
    LEAST_HITS,
    Answers,
    Finding,
    hit,
    lost_rate,
    lost_tail,
    prompt,
    share_of,
    upper_tail,
    worst_of,
)
from needlemap.probes.within import ROUNDED_NATS, TIMES, margin_apart
from needlemap.records.record import Record

_MOVED = 0.2  # share of haystacks whose margins an honest copy of the weights may move by so much


def reference(answers: Answers) -> Finding:
    """What the reference finds and the server loses; and answers that both give, with other margins over the
    runners-up. Where a model finds little, as random weights do, margins differ between any two engines.

    Engines differ in the last digits. How much is usual is seen where the server is asked twice.
    """
    pairs = [row for kind in ("grid", "empty") for row in answers.pairs(f"{BESIDE}{kind}", kind, prompt)]
    lost = [(way, here) for way, there, here in pairs if hit(there) and not hit(here)]
    gained = sum(hit(here) and not hit(there) for _, there, here in pairs)
    n, p = len(pairs), lost_tail(len(lost), gained)
    said = f"{len(lost)} of {n} answers that the reference gets right are lost, {gained} gained"
    effect = lost_rate(len(lost), gained, n)
    told = max(ROUNDED_NATS, TIMES * _usual(answers))
    moved = _moved(pairs)
    far = [row for apart, row in moved.values() if apart > told]
    sure = share_of(there for _, there, _ in pairs) >= LEAST_HITS
    p_far = upper_tail(len(far), len(moved), _MOVED) if moved and sure else 1.0
    if moved:
        middle = median(apart for apart, _ in moved.values())
        said += (
            f"; margins move by {middle:.2g} nats a token, on {len(far)} of {len(moved)} haystacks by over "
        )
        said += f"{told:.2g}"
    if min(p, p_far) <= answers.level / 2:
        worst = worst_of(lost if p <= p_far else far)
        p = min(p, p_far)
        return Finding("reference", "fail", n, said, effect, p, worst, known.REFERENCE)
    if not sure:
        said += ": a model that finds so little there shows little here; docs/engines.md has what does"
    return Finding("reference", "pass" if sure else "undecided", n, said, effect, min(p, p_far))


def _moved(pairs: Sequence[tuple[str, Record, Record]]) -> dict[int, tuple[float, tuple[str, Record]]]:
    """By how many nats a token margins move on each haystack, and one of its answers here."""
    found: dict[int, list[tuple[float, tuple[str, Record]]]] = defaultdict(list)
    for way, there, here in pairs:
        if (apart := margin_apart(there, here)) is not None:
            found[here.repeat].append((apart, (way, here)))
    return {repeat: (fmean(apart for apart, _ in rows), rows[0][1]) for repeat, rows in found.items()}


def _usual(answers: Answers) -> float:
    """By how many nats a token margins move at most when the server is asked the same again."""
    pairs = [*answers.pairs("grid", "again", prompt), *answers.pairs("warm", "rewarm", prompt)]
    return max((margin_apart(one, other) or 0.0 for _, one, other in pairs), default=0.0)
