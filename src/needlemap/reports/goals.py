"""The verdicts of a run: what `run --until` found, and a mean against a threshold
(`--fail-under`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from needlemap.errors import SettingsError
from needlemap.records.families import Families, families_of
from needlemap.records.loaded import Loaded
from needlemap.reports.comparison import looks_line, means_label
from needlemap.reports.labels import length_labels, percent_of, score_label
from needlemap.reports.loss import loss_json, margin_label, verdict_of, warnings_of
from needlemap.reports.pairing import compare_loaded
from needlemap.reports.report import Claim, Fact, Report, keyed
from needlemap.reports.summary import means_of, overall_of, read_families, scores_of
from needlemap.stats.difference import missing_bounds
from needlemap.stats.effective import Mean
from needlemap.stats.intervals import ClusterMean
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
        *(Fact(said=line) for line in warnings_of(paired)),
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
        highest: high, if all that is missing were right.
        below: The lengths in tokens whose mean is below the threshold.
        left_out: The lengths at which a family has no score, so that the mean leaves them out.
    """

    score: float | None
    low: float | None
    high: float | None
    missing: int
    lowest: float | None
    highest: float | None
    below: tuple[int, ...] = ()
    left_out: tuple[int, ...] = ()


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
    FAIL: the upper end is below it, even if all missing trials were right. SUSPECT: the mean is
    below it, or a length is, or a length is left out.
    """
    unscored = f"{counted(mean.missing, 'trial')} without a score" if mean.missing else ""
    ask_again = "the same command asks them again" if mean.missing else ""
    if mean.score is None:
        return Verdict(NO_RESULT, "no answer was scored", unscored, next=ask_again)
    word = row_word(
        fails=mean.highest is not None and mean.highest < threshold,
        passes=mean.lowest is not None and mean.lowest >= threshold - 1e-9,
        points=mean.score < threshold - 1e-9 or bool(mean.below or mean.left_out),
    )
    ends = ""
    if mean.low is not None and mean.high is not None:
        ends = f" ({score_label(mean.low / 100)} to {score_label(mean.high / 100)})"
    parts = [
        f"{words} {', '.join(length_labels(list(lengths)).values())}"
        for words, lengths in (
            ("below it at", mean.below),
            ("not all families have a score at", mean.left_out),
        )
        if lengths
    ]
    advice = "more --repeats narrow the interval" if ends else "give 5 or more --repeats"
    return Verdict(
        word=word,
        claim=f"mean {score_label(mean.score / 100)} %{ends}, wanted {threshold:g}",
        evidence=", ".join(filter(None, (*parts, unscored))),
        scope="these prompts",
        next="" if word in ("PASS", "FAIL") else ask_again or advice,
    )


def mean_of(path: str | Path, threshold: float) -> MeanScore:
    """Return the mean that a threshold judges, or raise NeedlemapError if it cannot be read."""
    families = families_of(path)
    runs = read_families(families)
    mean = overall_of(families, runs)
    missing_count = sum(run.map.missing for run in runs.values() if run is not None)
    if mean is None:
        return MeanScore(None, None, None, missing_count, lowest=None, highest=None)

    by_length = means_of(families, runs)
    low_lengths = [
        length for length, row in by_length.items() if 100 * row.score < threshold - 1e-9
    ]
    (all_wrong, all_right), lengths = _bounds(families, runs, mean)
    lowest = highest = None
    if mean.low is not None and mean.high is not None:
        lowest = 100 * (mean.low - (mean.score - all_wrong))
        highest = 100 * (mean.high + (all_right - mean.score))
    return MeanScore(
        score=percent_of(mean.score),
        low=percent_of(mean.low),
        high=percent_of(mean.high),
        missing=missing_count,
        lowest=lowest,
        highest=highest,
        below=tuple(sorted(low_lengths)),
        left_out=tuple(sorted(lengths - by_length.keys())),
    )


def _bounds(
    families: Families, runs_by_family: Mapping[str, Loaded | None], mean: ClusterMean | Mean
) -> tuple[tuple[float, float], set[int]]:
    """Return the score if all that has none were wrong, and if it were right, as shares.

    Of several families also the lengths that then have a mean.
    """
    single_run = runs_by_family.get("")
    if single_run is not None:
        n, missing = single_run.map.n, single_run.map.missing
        return missing_bounds(mean.score * n, n, missing) or (0.0, 1.0), set()

    filled = [scores_of(families, runs_by_family, missing=score) for score in (0.0, 1.0)]
    all_wrong, all_right = (scores.overall() for scores in filled)
    # There is a mean without the missing scores, so there is one with them.
    assert all_wrong is not None
    assert all_right is not None
    return (all_wrong.score, all_right.score), set(filled[0].lengths)
