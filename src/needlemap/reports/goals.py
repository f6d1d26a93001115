"""The verdicts of a run: what `run --until` found, and a mean against a threshold
(`--fail-under`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from needlemap.errors import SettingsError
from needlemap.records.families import families_of
from needlemap.records.loaded import Loaded
from needlemap.reports.comparison import looks_line, means_label
from needlemap.reports.labels import length_labels, percent_of, score_label
from needlemap.reports.loss import loss_json, margin_label, verdict_of, warnings_of
from needlemap.reports.pairing import compare_loaded
from needlemap.reports.report import Claim, Fact, Report, keyed
from needlemap.reports.summary import means_of, overall_of, read_families, score_weights
from needlemap.stats.looks import Scope
from needlemap.stats.verdicts import NO_RESULT, Verdict, row_word
from needlemap.text import counted

SIDES = ("the reference", "this run")


def until_report(
    first: Loaded, second: Loaded, margin: float, wanted: Scope, name: str = ""
) -> Report:
    """Return the report of a run compared with the reference that its `until` names.

    margin: in points. wanted: the scope that the verdict is to hold for. name: of its test case.
    If the two cannot be paired, NeedlemapError is raised.
    """
    comparison, _ = compare_loaded(first, second, margin, wanted=wanted, sequential=True)
    paired, overall = comparison.paired, comparison.overall
    means = f"{means_label(overall)}; B lost {overall.lost}, gained {overall.gained}"
    claim = f"a loss below {margin_label(paired.margin)} points"
    return _report(
        claim,
        verdict_of(paired, SIDES),
        name,
        *keyed(loss_json(paired)),
        *(Fact(said=line) for line in (means, *looks_line(paired))),
        *(Fact(said=line, warns=True) for line in warnings_of(paired)),
    )


def _report(claim: str, verdict: Verdict, name: str, *facts: Fact) -> Report:
    """Return a report of a verdict on a run. name: of its test case, before the claim."""
    case = ": ".join(filter(None, (name, claim)))
    return Report("run", claim, facts, verdict, (Claim(case, verdict.word),))


@dataclass(frozen=True, slots=True)
class MeanScore:
    """A run's mean, in percent.

    Attributes:
        low, high: Its 95 % interval; None without one.
        missing: Trials without a score.
        lowest: low, if all that is missing were wrong.
        below: The lengths in tokens whose mean is below the threshold.
    """

    score: float | None
    low: float | None
    high: float | None
    missing: int
    lowest: float | None
    below: tuple[int, ...]


def check_threshold(threshold: float) -> float:
    """Return a threshold in percent, or raise SettingsError if no mean could miss or reach it."""
    if not 0 < threshold <= 100:
        raise SettingsError(
            f"--fail-under is a mean in percent, above 0 and up to 100, got {threshold:g}."
        )
    return threshold


def threshold_report(path: str | Path, threshold: float, name: str = "") -> Report:
    """Compare a run's mean or, if it has several families, their score with a threshold.

    threshold: in percent. name: of its test case. If the run cannot be read, NeedlemapError is
    raised.
    """
    mean = mean_of(path, threshold)
    facts = {
        "fail_under": threshold,
        "score": mean.score,
        "low": mean.low,
        "high": mean.high,
        "missing": mean.missing,
    }
    verdict = threshold_verdict(mean, threshold)
    return _report(f"mean at least {threshold:g}", verdict, name, *keyed(facts))


def threshold_verdict(mean: MeanScore, threshold: float) -> Verdict:
    """Return the verdict on a mean.

    PASS: the lower end is no lower than the threshold, even if all missing trials were wrong.
    FAIL: the upper end is below it. SUSPECT: the mean is below it, or a length is.
    """
    if mean.score is None:
        return Verdict(NO_RESULT, "no answer was scored", next=_missing_advice(mean.missing))
    word = row_word(
        fails=mean.high is not None and mean.high < threshold,
        passes=mean.lowest is not None and mean.lowest >= threshold - 1e-9,
        points=mean.score < threshold - 1e-9 or bool(mean.below),
    )
    ends = ""
    if mean.low is not None and mean.high is not None:
        ends = f" ({score_label(mean.low / 100)} to {score_label(mean.high / 100)})"
    labels = length_labels(list(mean.below)).values()
    evidence = f"below it at {', '.join(labels)}" if labels else ""
    advice = "more --repeats narrow the interval" if ends else "give 5 or more --repeats"
    return Verdict(
        word=word,
        claim=f"mean {score_label(mean.score / 100)} %{ends}, wanted {threshold:g}",
        evidence=evidence,
        scope="these prompts",
        next="" if word in ("PASS", "FAIL") else _missing_advice(mean.missing) or advice,
    )


def _missing_advice(count: int) -> str:
    """Return what to do about trials without a score, or '' if there are none."""
    if not count:
        return ""
    return f"{counted(count, 'trial')} without a score: the same command asks again"


def mean_of(path: str | Path, threshold: float) -> MeanScore:
    """Return the mean that a threshold judges, or raise NeedlemapError if it cannot be read."""
    families = families_of(path)
    runs = read_families(families)
    mean = overall_of(families, runs)
    missing_count = sum(run.map.missing for run in runs.values() if run is not None)
    if mean is None:
        return MeanScore(None, None, None, missing=missing_count, lowest=None, below=())

    by_length = means_of(families, runs)
    low_lengths = [
        length for length, row in by_length.items() if 100 * row.score < threshold - 1e-9
    ]
    lowest = None
    if mean.low is not None:
        lowest = 100 * (mean.low - _largest_drop(score_weights(families), runs))
    return MeanScore(
        score=percent_of(mean.score),
        low=percent_of(mean.low),
        high=percent_of(mean.high),
        missing=missing_count,
        lowest=lowest,
        below=tuple(sorted(low_lengths)),
    )


def _largest_drop(weights: Mapping[str, float], runs: Mapping[str, Loaded | None]) -> float:
    """Return by how much the score would fall if all trials without a score were wrong, a share.

    weights: of the families that count.
    """
    maps = {name: run.map for name in weights if (run := runs.get(name)) is not None}
    losses = (
        weights[name] * map.missing / max(1, map.n + map.missing) * (map.overall or 0.0)
        for name, map in maps.items()
    )
    return sum(losses) / (sum(weights[name] for name in maps) or 1.0)
