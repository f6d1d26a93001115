"""A comparison of two suites as text and as JSON: a row a family, and the mean of all, which decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from needlemap.maps.suite_comparison import FamilyComparison, SuiteComparison
from needlemap.reports.comparison import (
    Names,
    bounds_lines,
    comparison_json,
    haystacks_label,
    interval,
    means_label,
    p_label,
    points,
    tested_by,
    verdict_fields,
    verdict_label,
    verdict_word,
)
from needlemap.reports.labels import score_label
from needlemap.text.printable import printable


@dataclass(frozen=True, slots=True)
class SuiteNames:
    """How two suites are called. families: how each family's two runs are. only_first, only_second: families
    that one of them alone has begun."""

    first: str
    second: str
    families: dict[str, Names]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]

    @property
    def differ(self) -> str:
        """In what the settings differ, as a phrase; of families that say different things each."""
        said = {family: names.differ for family, names in self.families.items()}
        if len(set(said.values())) == 1:
            return next(iter(said.values()))
        return "; ".join(f"{family}: {differ}" for family, differ in said.items() if differ)

    @property
    def notes(self) -> tuple[str, ...]:
        """What else is to be said of the families."""
        return tuple(note for names in self.families.values() for note in names.notes)


def suite_comparison_text(comparison: SuiteComparison, names: SuiteNames) -> str:
    """All lines; the verdict on the mean over families last."""
    overall, count = comparison.overall, len(comparison.families)
    lines = [f"A  {names.first}", f"B  {names.second}"]
    lines += [f"differ in {names.differ}"] if names.differ else []
    lines += [f"note: {note}" for note in names.notes]
    lines += _alone("A", names.only_first) + _alone("B", names.only_second)
    lines.append(
        f"by family (p by Holm's correction over {count}; intervals and verdicts of one family each):"
    )
    lines += _rows(comparison)
    lines.append(f"mean over {count} families, each counting the same, however many pairs it has:")
    lines += _overall(comparison)
    warning = comparison.verdict.warning
    lines += [f"warning: {warning}"] if warning else []
    said = verdict_label(comparison.verdict, overall, comparison.margin)
    if count > 1:
        lines.append(f"{count} families' verdicts are {count} chances to err: go by the one on their mean")
    return printable("\n".join([*lines, f"verdict: {said}"])) + "\n"


def suite_comparison_json(comparison: SuiteComparison, names: SuiteNames) -> dict[str, Any]:
    """The same as a mapping that JSON can hold; a family's as `needlemap compare` prints that of two runs."""
    return {
        **verdict_fields(comparison, names),
        "only_a": list(names.only_first),
        "only_b": list(names.only_second),
        "families": {
            each.name: comparison_json(each.comparison, names.families[each.name])
            | {"p_holm": each.adjusted_p}
            for each in comparison.families
        },
    }


def _alone(which: str, families: Sequence[str]) -> list[str]:
    """Families that only one suite has begun."""
    return [f"left out, as only {which} has begun them: {', '.join(families)}"] if families else []


def _rows(comparison: SuiteComparison) -> list[str]:
    wide = max(len(each.name) for each in comparison.families)
    tests = [_test(each) for each in comparison.families]
    across = max(map(len, tests))
    return [
        f"  {each.name:<{wide}}  {_scores(each)}  {test:<{across}}  "
        f"{verdict_word(each.comparison.verdict, comparison.margin)}"
        for each, test in zip(comparison.families, tests, strict=True)
    ]


def _scores(each: FamilyComparison) -> str:
    overall = each.comparison.overall
    means = f"{score_label(overall.first):>5} {score_label(overall.second):>5}"
    return f"{means}  {points(overall.value):>6}"


def _test(each: FamilyComparison) -> str:
    """Interval, n and p; nothing of means of nobody knows how many answers."""
    if not each.comparison.counted:
        return ""
    overall = each.comparison.overall
    return f"{interval(overall)}  n={overall.n}  p={p_label(each.adjusted_p)}"


def _overall(comparison: SuiteComparison) -> list[str]:
    overall = comparison.overall
    if not comparison.counted:
        return [means_label(overall)]
    return [
        f"{means_label(overall)} {interval(overall)}",
        f"{overall.n} pairs, {haystacks_label(overall.clusters)}",
        f"B lost {overall.lost}, gained {overall.gained}; p={p_label(overall.p)} ({tested_by(overall)})",
        *bounds_lines(comparison.bounds),
    ]
