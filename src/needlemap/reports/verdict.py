"""Verdicts on a run that end in an exit code: what `run --until` found, and a mean against a
threshold (`--fail-under`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from needlemap.errors import SettingsError
from needlemap.records.families import families_of
from needlemap.records.loaded import Loaded
from needlemap.reports.comparison import looks_line
from needlemap.reports.judgement import (
    judgement_json,
    margin_label,
    verdict_of,
    warnings_of,
)
from needlemap.reports.labels import interval_label, percent_of, score_label
from needlemap.reports.pairing import compare_loaded
from needlemap.reports.renderers.json import to_json
from needlemap.reports.renderers.text import to_text
from needlemap.reports.report import Claim, Fact, Report, Verdict, keyed
from needlemap.reports.summary import overall_of, read_families, score_weights
from needlemap.stats.judging import Judgement, Scope
from needlemap.stats.verdicts import NO_WORSE, UNDECIDED, WORSE
from needlemap.text import counted


@dataclass(frozen=True, slots=True)
class UntilVerdict:
    """What a run's `until` found beside its reference."""

    judged: Judgement

    @property
    def claim(self) -> str:
        """The claim to be shown: 'no worse than 2 points'."""
        return f"no worse than {margin_label(self.judged.margin)} points"

    @property
    def word(self) -> str:
        """The verdict's word."""
        return self.judged.word

    @property
    def code(self) -> int:
        """The exit code."""
        return self.judged.code

    def report(self, name: str = "", ends: int | None = None) -> Report:
        """The report. name: of its test case. ends: the exit code that the command ends with,
        the verdict's own if not given."""
        found, verdict = self.judged, verdict_of(self.judged, ends=ends)
        means = f"A {score_label(found.first)}, B {score_label(found.second)}"
        pairs = f"{counted(found.n, 'pair')}: {means}; B lost {found.lost}, gained {found.gained}"
        return Report(
            "run",
            self.claim,
            (
                *keyed(judgement_json(found)),
                *(Fact(said=line) for line in (pairs, *looks_line(found))),
                *(Fact(said=line, warns=True) for line in warnings_of(found)),
            ),
            verdict,
            (Claim(name or self.claim, found.code, verdict.last),),
        )

    def text(self, code: int | None = None) -> str:
        """All lines; the verdict last. code: that the command ends with, the verdict's own if
        not given."""
        return to_text(self.report(ends=code)).rstrip("\n")

    def plain(self) -> dict[str, Any]:
        """The same for programs."""
        return to_json(self.report())


def judge_goal(first: Loaded, second: Loaded, margin: float, wanted: Scope) -> UntilVerdict:
    """What a run found beside the reference that its `until` names. margin: in points. wanted:
    the scope that the verdict is to hold for. Raises NeedlemapError where they cannot be
    paired."""
    comparison, _ = compare_loaded(first, second, margin, wanted=wanted, sequential=True)
    return UntilVerdict(comparison.verdict)


@dataclass(frozen=True, slots=True)
class Judged:
    """A run's mean against a threshold, all in percent. low, high: its 95 % interval; None
    without one.

    word: 'at least' where the lower end is no lower than the threshold, even if all that is
    missing were wrong; 'below' where the upper end is below it; else 'undecided'. missing:
    trials without a score.
    """

    fail_under: float
    word: str
    score: float | None
    low: float | None
    high: float | None
    missing: int

    @property
    def claim(self) -> str:
        """What it is judged by."""
        return f"mean at least {self.fail_under:g}"

    @property
    def code(self) -> int:
        """The exit code."""
        return {"at least": NO_WORSE, "below": WORSE}.get(self.word, UNDECIDED)

    def report(self, name: str = "", ends: int | None = None) -> Report:
        """The report. name: of its test case. ends: the exit code that the command ends
        with."""
        shares = [
            None if each is None else each / 100 for each in (self.score, self.low, self.high)
        ]
        mean = f"mean {score_label(shares[0])} {interval_label(*shares[1:])}"
        said = f"verdict: {self.word} {self.fail_under:g}: {mean}"
        if self.word == "undecided":
            said = (
                f"verdict: undecided whether at least {self.fail_under:g}: {mean}. {self._advice}"
            )
        verdict = Verdict(self.word, said, self.code, ends)
        claims = (Claim(name or self.claim, self.code, said),)
        return Report("run", self.claim, tuple(keyed(asdict(self))), verdict, claims)

    @property
    def _advice(self) -> str:
        if self.missing:
            return f"{self.missing:,} trials have no score: the same command asks them again"
        if self.low is None:
            return "It has no interval yet: give 5 or more --repeats"
        return "More --repeats narrow the interval"


def check_threshold(threshold: float) -> float:
    """A threshold in percent. Raises SettingsError for one that no mean could miss or
    reach."""
    if not 0 < threshold <= 100:
        raise SettingsError(
            f"--fail-under is a mean in percent, above 0 and up to 100, got {threshold:g}."
        )
    return threshold


def judge(path: str | Path, threshold: float) -> Judged:
    """A run's mean, of several families their score, against a threshold in percent. Raises
    NeedlemapError."""
    families = families_of(path)
    read = read_families(families)
    mean = overall_of(families, read)
    missing = sum(run.map.missing for run in read.values() if run is not None)
    if mean is None or mean.low is None or mean.high is None:
        return Judged(
            threshold, "undecided", percent_of(mean.score if mean else None), None, None, missing
        )
    sure = 100 * (mean.low - _lost(score_weights(families), read))
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


def _lost(weights: Mapping[str, float], read: Mapping[str, Loaded | None]) -> float:
    """By how much the score would sink if every trial without one were wrong, a share.
    weights: of the families that count."""
    maps = {name: run.map for name in weights if (run := read.get(name)) is not None}
    lost = (
        weights[name] * map.missing / max(1, map.n + map.missing) * (map.overall or 0.0)
        for name, map in maps.items()
    )
    return sum(lost) / (sum(weights[name] for name in maps) or 1.0)
