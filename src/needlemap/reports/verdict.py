"""The words of a verdict on two runs: what it is, of which haystacks, why, and what would tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from needlemap.maps.clusters import FEWEST
from needlemap.maps.intervals import least_pairs
from needlemap.reports.labels import p_label, score_label

if TYPE_CHECKING:
    from needlemap.maps.comparison import Comparison
    from needlemap.maps.difference import Difference, Unanswered, Verdict


def verdict_word(verdict: Verdict, margin: float) -> str:
    """One of 'better', 'no worse than 2 points', 'worse', 'cannot tell'."""
    return f"no worse than {margin_label(margin)} points" if verdict.word == "no worse" else verdict.word


def verdict_label(comparison: Comparison) -> str:
    """The verdict, of which haystacks where they are few, and why or what would tell."""
    verdict, margin = comparison.verdict, margin_label(comparison.margin)
    word = verdict_word(verdict, comparison.margin)
    if comparison.overall.of_these and comparison.counted:
        word = f"{word}, of {_these(comparison.overall.clusters)} only"
    why = _why(comparison, margin)
    return f"{word} ({why})" if why else word


def _why(comparison: Comparison, margin: str) -> str:
    verdict, overall = comparison.verdict, comparison.overall
    if verdict.unanswered and comparison.unanswered is not None:
        return _unanswered(verdict, comparison.unanswered, margin)
    if verdict.word == "better":
        return "the whole 95 % interval is a gain"
    if verdict.word == "worse":
        beyond = overall.high < -comparison.margin
        how = f" of more than {margin} points" if beyond else f", and it reaches {margin} points or more"
        return f"the whole 95 % interval is a loss{how}"
    if verdict.more is not None:
        more = f"about {verdict.more:,} more trials would tell, with even odds, if the difference stays"
        return f"margin {margin} points; {more}"
    return "" if verdict.word == "no worse" else f"margin {margin} points"


def _unanswered(verdict: Verdict, missing: Unanswered, margin: str) -> str:
    if verdict.word == "worse":
        more = f"B failed to answer {score_label(missing.excess)} % of the prompts more than A"
        return f"{more}, over the margin of {margin} points"
    answers = f"{missing.n} answer{'s' * (missing.n != 1)} that B did not give"
    return f"margin {margin} points; no worse only without the {answers}: ask again, needlemap run"


def _these(clusters: int) -> str:
    return "this haystack" if clusters == 1 else f"these {clusters} haystacks"


def out_of_reach(comparison: Comparison) -> list[str]:
    """Where so few pairs could never be no worse, whatever was answered."""
    overall, least = comparison.overall, least_pairs(comparison.margin, graded=comparison.graded)
    if comparison.verdict.word != "cannot tell" or not comparison.counted or overall.size >= least - 1e-6:
        return []
    pairs = f"{least:,} pairs" if len(comparison.families) == 1 else f"{least:,} pairs that count the same"
    return [
        f"warning: {overall.n:,} pairs are never no worse than {margin_label(comparison.margin)} points, "
        f"even if all answers are equal: that takes {pairs}"
    ]


def haystacks_label(clusters: int) -> str:
    """Of how many haystacks the pairs are."""
    if clusters == 1:
        return "1 haystack: what follows is about this one only"
    few = f": what follows is about these only, {FEWEST} tell about others" if clusters < FEWEST else ""
    return f"{clusters} haystacks{few}"


def p_text(overall: Difference) -> str:
    """p, of which test, and how small it could be at all."""
    least = (
        f"; least possible {p_label(overall.least_p)}" if overall.flipped and overall.least_p > 0.01 else ""
    )
    return f"p={p_label(overall.p)} ({tested_by(overall)}{least})"


def tested_by(overall: Difference) -> str:
    """Which test a p is of."""
    if not overall.flipped:
        return "exact McNemar, which takes prompts as independent"
    if overall.flipped == "prompts":
        return "sign flips of prompts, which takes them as independent"
    return "sign flips of whole haystacks"


def margin_label(margin: float) -> str:
    return f"{100 * margin:.6g}"
