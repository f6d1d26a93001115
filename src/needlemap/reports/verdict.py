"""Verdicts that end in an exit code, as text, as JSON and as JUnit.

A gate that may be looked at any time (`needlemap compare --sequential` and, at its end, `run
--until`), and a mean against a threshold (`--fail-under`). A JUnit file, which CI systems show, has
a test case a verdict:
what fails is a failure; what is undecided is an error of type 'undecided', since nobody knows, and
skipped where undecided is to pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

from needlemap.errors import SettingsError
from needlemap.files import write_report
from needlemap.maps import by_place
from needlemap.maps.difference import CEILING
from needlemap.maps.effective import Mean
from needlemap.maps.intervals import ClusterMean
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
from needlemap.records.families import families_of
from needlemap.records.loaded import Loaded
from needlemap.reports.changes import margin_label
from needlemap.reports.labels import interval_label, percent_of, score_label
from needlemap.reports.summary import read_families, scores_of
from needlemap.text import counted, printable

CODES = {"no worse": 0, "at least": 0, "worse": 1, "below": 1, "undecided": 4}  # exit codes by word
FLOORED = "warning: the reference is at the floor: nothing could be lost, so nothing is proved"
_MOST_ODDS = 1e6


@dataclass(frozen=True, slots=True)
class Sequential:
    """gate: of the pairs. second: B's mean, a missing answer being wrong. haystacks: what the whole
    ones say of new ones; None of samples of a log, each of which is its own."""

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
        missing = (
            f" ({gate.missing} of them not measured, counted as wrong)" if gate.missing else ""
        )
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
            lines.append(FLOORED)
        elif gate.total >= CEILING * gate.n:
            lines.append(
                "warning: the reference is at the ceiling: trials so easy show only gross losses"
            )
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
        return CODES[self.gate.word]

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
        return f"{margin_label(self.gate.margin)} points"


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
    return Sequential(
        gate, second, of_haystacks([] if one else whole_haystacks(families, pairs), margin)
    )


def _cost(found: Haystacks) -> str:
    """What it takes to tell of new haystacks."""
    if found.word != "undecided":
        return ""
    more = (
        f"about {found.more:,} more if these go on so"
        if found.more
        else f"{FARTHEST:,} more may not tell"
    )
    return f" ({more}; `no worse` takes {found.least:,} at least, as each is one bet)"


def _won(log: float) -> float:
    return round(exp(min(log, 600)), 6)


def _odds(log: float) -> str:
    won = exp(min(log, 600))
    return (
        f"over {_MOST_ODDS:,.0f}"
        if won > _MOST_ODDS
        else f"{won:,.0f}"
        if won >= 10
        else f"{won:.2g}"
    )


State = Literal["pass", "fail", "undecided", "skipped"]
_NO_XML = {0xFFFE: None, 0xFFFF: None}  # no characters, and not printable's to drop
_TAGS = {"fail": "failure", "undecided": "error", "skipped": "skipped"}
OF_CODE: dict[int, State] = {0: "pass", 1: "fail", 4: "undecided", 5: "undecided"}  # by exit code


@dataclass(frozen=True, slots=True)
class Case:
    """One verdict. name: what was tried. said: what came of it, in a line. text: all that is
    known."""

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
    under = ElementTree.SubElement(
        root, "testsuite", {"name": name, "tests": str(len(cases)), **counts}
    )
    for each in cases:
        about = {"classname": name.replace(" ", "."), "name": _text(each.name, line=True)}
        case = ElementTree.SubElement(under, "testcase", about)
        if each.state in _TAGS:
            said = {"message": _text(each.said, line=True), "type": each.state}
            ElementTree.SubElement(case, _TAGS[each.state], said).text = _text(
                each.text or each.said
            )
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


@dataclass(frozen=True, slots=True)
class Judged:
    """A run's mean against a threshold, all in percent. low, high: its 95 % interval; None without
    one.

    word: 'at least' where the lower end is no lower than the threshold, even if all that is missing
    were wrong; 'below' where the upper end is below it; else 'undecided'. missing: trials without a
    score.
    """

    fail_under: float
    word: str
    score: float | None
    low: float | None
    high: float | None
    missing: int

    @property
    def asked(self) -> str:
        """What it is judged by."""
        return f"mean at least {self.fail_under:g}"

    @property
    def code(self) -> int:
        """The exit code: 0 at least, 1 below, 4 undecided."""
        return CODES[self.word]

    @property
    def text(self) -> str:
        """The verdict in a line."""
        shares = [
            None if each is None else each / 100 for each in (self.score, self.low, self.high)
        ]
        mean = f"mean {score_label(shares[0])} {interval_label(*shares[1:])}"
        if self.word != "undecided":
            return f"verdict: {self.word} {self.fail_under:g}: {mean}"
        return f"verdict: undecided whether at least {self.fail_under:g}: {mean}. {self._advice}"

    @property
    def _advice(self) -> str:
        if self.missing:
            return f"{self.missing:,} trials have no score: the same command asks them again."
        if self.low is None:
            return "It has no interval yet: give 5 or more --repeats."
        return "More --repeats narrow the interval."

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def check_threshold(threshold: float) -> float:
    """A threshold in percent. Raises SettingsError for one that no mean could miss or reach."""
    if not 0 < threshold <= 100:
        raise SettingsError(
            f"--fail-under is a mean in percent, above 0 and up to 100, got {threshold:g}."
        )
    return threshold


def judge(path: str | Path, threshold: float) -> Judged:
    """A run's mean, of several families their mean, against a threshold in percent. Raises
    NeedlemapError."""
    read = read_families(families_of(path))
    only = read.get("")
    mean: ClusterMean | Mean | None = only.map.total if only else scores_of(read).overall()
    missing = sum(run.map.missing for run in read.values() if run is not None)
    if mean is None or mean.low is None or mean.high is None:
        return Judged(
            threshold, "undecided", percent_of(mean.score if mean else None), None, None, missing
        )
    sure = 100 * (mean.low - _lost(read))
    word = (
        "at least"
        if sure >= threshold - 1e-9
        else "below"
        if 100 * mean.high < threshold
        else "undecided"
    )
    return Judged(
        threshold,
        word,
        percent_of(mean.score),
        percent_of(mean.low),
        percent_of(mean.high),
        missing,
    )


def _lost(read: Mapping[str, Loaded | None]) -> float:
    """By how much the mean would sink if every trial without a score were wrong, a share."""
    maps = [run.map for run in read.values() if run is not None]
    shares = [map.missing / max(1, map.n + map.missing) * (map.overall or 0.0) for map in maps]
    return sum(shares) / max(1, len(shares))
