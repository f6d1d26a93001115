"""The words of a verdict on two runs: what it is, of which haystacks, why, and what would tell.

Also of a gate that may be looked at any time, as text and as JSON: `needlemap compare --sequential` prints
it, and `needlemap run --until` at its end. And any verdicts as a JUnit file, which CI systems show, a test
case each: what fails is a failure; what is undecided is an error of type 'undecided', since nobody knows,
and skipped where undecided is to pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree

from needlemap.files import write_report
from needlemap.maps import by_place
from needlemap.maps.difference import CEILING
from needlemap.maps.intervals import FEWEST, least_pairs
from needlemap.maps.sequential import (
    FARTHEST,
    NO_WORSE_ALPHA,
    WORSE_ALPHA,
    Gate,
    Haystacks,
    gate_pairs,
    of_haystacks,
    whole_haystacks,
)
from needlemap.records import one_haystack
from needlemap.reports.labels import p_label, score_label
from needlemap.text import counted, printable

if TYPE_CHECKING:
    from needlemap.maps.comparison import Comparison
    from needlemap.maps.difference import Difference, Unanswered, Verdict
    from needlemap.records.loaded import Loaded


_MOST_ODDS = 1e6


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
    needed = ceil(least * overall.n / overall.size - 1e-6)
    return [
        f"warning: {overall.n:,} pairs are never no worse than {margin_label(comparison.margin)} points, "
        f"even if all answers are equal: that takes about {needed:,}"
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


@dataclass(frozen=True, slots=True)
class Sequential:
    """gate: of the pairs. second: B's mean, a missing answer being wrong. haystacks: what the whole ones say
    of new ones; None of samples of a log, each of which is its own."""

    gate: Gate
    second: float
    haystacks: Haystacks | None

    @property
    def asked(self) -> str:
        """What is to be shown: 'no worse than 2 points'."""
        return f"no worse than {self._margin}"

    @property
    def word(self) -> str:
        """'no worse than 2 points', 'worse' or 'undecided'."""
        return self.asked if self.gate.word == "no worse" else self.gate.word

    @property
    def text(self) -> str:
        """All lines; the verdict last."""
        gate, found = self.gate, self.haystacks
        missing = f" ({gate.missing} of them not measured, counted as wrong)" if gate.missing else ""
        passed, failed = self.asked, "worse"
        wide = len(passed)
        lines = [
            f"{counted(gate.n, 'pair')} in the order of the plan, judged after each",
            f"A {score_label(gate.total / max(1, gate.n))}, B {score_label(self.second)}; "
            f"B lost {gate.lost}, gained {gate.gained}{missing}",
            f"{failed:<{wide}}  {_odds(gate.worse)} to 1; said from {1 / WORSE_ALPHA:.0f} to 1 on",
            f"{passed}  {_odds(gate.no_worse)} to 1; said from {1 / NO_WORSE_ALPHA:.0f} to 1 on",
        ]
        if found is not None:
            whole = counted(found.n, "whole haystack")
            lines.append(f"of new haystacks: {found.word} after {whole}{_cost(found)}")
        if gate.floored:
            lines.append(
                "warning: the reference is at the floor: nothing could be lost, so nothing is proved"
            )
        elif gate.total >= CEILING * gate.n:
            lines.append("warning: the reference is at the ceiling: trials so easy show only gross losses")
        return "\n".join([*lines, f"verdict: {self.verdict}"])

    @property
    def verdict(self) -> str:
        """The word, and when it was decided or what it would take."""
        gate = self.gate
        if gate.after is not None:
            after = counted(gate.after, "pair")
            return f"{self.word} (decided after {after}; holds however often it was looked at)"
        more = gate.more()
        often = (
            f"about {more:,} more pairs decide with even odds"
            if more
            else f"{FARTHEST:,} more pairs may not decide"
        )
        return f"undecided (margin {self._margin}; {often})"

    @property
    def code(self) -> int:
        """The exit code of who asked for a verdict: 0 no worse, 1 worse, 4 undecided."""
        return {"no worse": 0, "worse": 1, "undecided": 4}[self.gate.word]

    def plain(self) -> dict[str, Any]:
        """The same for programs; bets as what they turned 1 into."""
        gate, found = self.gate, self.haystacks
        return {
            "verdict": self.word,
            "margin": round(100 * gate.margin, 6),
            "pairs": gate.n,
            "decided_after": gate.after,
            "more_pairs": gate.more() if gate.after is None else None,
            "lost": gate.lost,
            "gained": gate.gained,
            "missing": gate.missing,
            "bet_worse": _won(gate.worse),
            "bet_no_worse": _won(gate.no_worse),
            "new_haystacks": found
            and {
                "verdict": found.word,
                "haystacks": found.n,
                "bet_no_worse": _won(found.bet),
                "more_haystacks": found.more,
            },
        }

    @property
    def _margin(self) -> str:
        return f"{100 * self.gate.margin:.6g} points"


def judge_runs(runs: Sequence[tuple[Loaded, Loaded]], margin: float) -> Sequential:
    """What the pairs of two runs' families say, in the order of a gate. margin: a share."""
    families = [(by_place(first.prompts), by_place(second.prompts)) for first, second in runs]
    pairs, gate = gate_pairs(families), Gate(margin)
    for pair in pairs:
        gate.add(pair.first, pair.second)
    second = sum(pair.second or 0.0 for pair in pairs) / max(1, len(pairs))
    lengths = {place[1] for first, _ in families for place in first}
    if lengths == {0}:  # samples of a log
        return Sequential(gate, second, None)
    unknown = any(record.prompt is None for first, _ in runs for record in first.records[:1])
    one = unknown or any(one_haystack(first.about) for first, _ in runs)
    return Sequential(gate, second, of_haystacks([] if one else whole_haystacks(families, pairs), margin))


def _cost(found: Haystacks) -> str:
    """What it takes to tell of new haystacks."""
    if found.word != "undecided":
        return ""
    more = f"about {found.more:,} more if these go on so" if found.more else f"{FARTHEST:,} more may not tell"
    return f" ({more}; `no worse` takes {found.least:,} at least, as each is one bet)"


def _won(log: float) -> float:
    return round(exp(min(log, 600)), 6)


def _odds(log: float) -> str:
    won = exp(min(log, 600))
    return f"over {_MOST_ODDS:,.0f}" if won > _MOST_ODDS else f"{won:,.0f}" if won >= 10 else f"{won:.2g}"


State = Literal["pass", "fail", "undecided", "skipped"]
_NO_XML = {0xFFFE: None, 0xFFFF: None}  # no characters, and not printable's to drop
_TAGS = {"fail": "failure", "undecided": "error", "skipped": "skipped"}
OF_CODE: dict[int, State] = {0: "pass", 1: "fail", 4: "undecided"}  # a verdict's exit code


@dataclass(frozen=True, slots=True)
class Case:
    """One verdict. name: what was tried. said: what came of it, in a line. text: all that is known."""

    name: str
    state: State
    said: str
    text: str = ""


def junit_xml(suite: str, cases: Sequence[Case]) -> bytes:
    """The file's bytes. suite: the command, which is every case's class."""
    counts = {
        tag: str(sum(_TAGS.get(each.state) == kind for each in cases))
        for tag, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    }
    name = f"needlemap {suite}"
    root = ElementTree.Element("testsuites")
    under = ElementTree.SubElement(root, "testsuite", {"name": name, "tests": str(len(cases)), **counts})
    for each in cases:
        about = {"classname": name.replace(" ", "."), "name": _text(each.name, line=True)}
        case = ElementTree.SubElement(under, "testcase", about)
        if each.state in _TAGS:
            said = {"message": _text(each.said, line=True), "type": each.state}
            ElementTree.SubElement(case, _TAGS[each.state], said).text = _text(each.text or each.said)
        elif each.text:
            ElementTree.SubElement(case, "system-out").text = _text(each.text)
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def write_junit(target: Path, suite: str, cases: Sequence[Case]) -> None:
    """Write the file; folders on its way are made. Raises NeedlemapError where it cannot be."""
    write_report(target, junit_xml(suite, cases))


def _text(text: str, *, line: bool = False) -> str:
    """A text as XML 1.0 may hold it."""
    return printable(text, line=line).translate(_NO_XML)
