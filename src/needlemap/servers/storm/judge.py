"""Judge a storm: a rate with its bound, what was confirmed, a word.

An operation that the model cannot do, alone either, is not tested, and no part of a pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from needlemap.servers.check.judge import FIND, rate_of
from needlemap.servers.storm.evidence import WEAK, Evidence, OperationAnswers
from needlemap.servers.storm.tally import GOAL, POINTS, Tally, tally_of
from needlemap.servers.storm.wording import bound_words, finding_lines
from needlemap.servers.ways import LEAST
from needlemap.stats.verdicts import Verdict, row_word
from needlemap.text import counted


@dataclass(frozen=True, slots=True)
class StormResult:
    """What a storm found.

    Attributes:
        verdict: The word, with its claim.
        said: What else there is to know, a line each.
        tally: What the verdict rests on.
        confirmed: Whether a fault is sure.
    """

    verdict: Verdict
    said: tuple[str, ...]
    tally: Tally
    confirmed: bool


def judge_storm(
    evidence: Evidence,
    wanted: float,
    *,
    gauge: bool = False,
    left_out: Sequence[str] = (),
    little: tuple[int, int] | None = None,
) -> StormResult:
    """Return the verdict by what was observed so far.

    wanted: the rate that is to be excluded, a share. gauge: whether the model is the gauge, which
    misses nothing by itself. left_out: operations that the user does not ask about. little: of a
    model that is judged by equal ways, how many facts it found, and of how many.
    """
    tally = tally_of(evidence, gauge=gauge, left_out=left_out)
    best = tally.bets.best
    is_too_few = little is not None and len(tally.compared) < LEAST
    confirmed = bool(tally.certain) or (best >= GOAL and not is_too_few)
    overcounts = bool(evidence.counts.over)

    is_below = tally.highest < wanted
    is_whole = not (tally.untested or is_too_few or overcounts)
    word = row_word(
        fails=tally.leaks or (confirmed and not is_below),
        passes=is_below and is_whole and tally.right >= WEAK,
        points=best >= POINTS or overcounts,
    )
    advice = _advice(tally.untested)
    if not advice and little is not None:
        advice = FIND
    verdict = Verdict(
        word,
        claim=f"faulty families: {bound_words(f'{tally.hit:,}', tally.families, tally.highest)}",
        evidence=f"allowed {100 * wanted:g} %, {_basis(tally, little)}",
        scope=_scope(tally),
        next=advice,
    )
    return StormResult(
        verdict=verdict,
        said=tuple(finding_lines(evidence, tally, is_by_ways=little is not None)),
        tally=tally,
        confirmed=confirmed,
    )


def _basis(tally: Tally, little: tuple[int, int] | None) -> str:
    """Return a phrase on how many requests were judged, and by what.

    little: if equal ways of asking judge, how many facts the model found, and of how many.
    """
    if little is None:
        return counted(len(tally.compared), "request")
    return (
        f"{len(tally.compared):,} of {counted(len(tally.requests), 'request')} compared, the "
        f"model found {rate_of(little)} facts, so equal ways of asking alone are judged"
    )


def _scope(tally: Tally) -> str:
    """Return the operations that could not show a fault, then those that could, in words.

    Operations that the user leaves out, and those with too few answers, could not show one.
    """
    parts = []
    tested = tally.tested
    names = [
        f"{name} ({answers.able} of {answers.sent} right, in the storm or alone)"
        for name, answers in tally.operations.items()
        if name not in tested
    ]
    if names:
        parts.append(f"not tested: {', '.join(names)}")
    if tested:
        parts.append(f"tested: {', '.join(tested)}")
    return "; ".join(parts)


def _advice(untested: Mapping[str, OperationAnswers]) -> str:
    """Return how to get a verdict if the model cannot do some operations, or '' if it can."""
    if not untested:
        return ""
    flags = " ".join(f"--without {name}" for name in untested)
    return f"serve a model that can, e.g. the gauge, or leave it out: {flags}"
