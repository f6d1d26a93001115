"""Two suites compared, for Python: what `needlemap compare` prints of them, as values and table."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.maps.suite_comparison import SuiteComparison
from needlemap.reports.comparison import verdict_word
from needlemap.reports.paired import MARGIN
from needlemap.reports.paired_suites import compare_suites
from needlemap.reports.suite_comparison import SuiteNames, suite_comparison_json, suite_comparison_text
from needlemap.runs.suite_folder import is_suite, open_suite


@dataclass(frozen=True)
class ComparedSuites:
    """B against A: the mean over families, each counting the same. Scores are in percent, differences in
    points."""

    comparison: SuiteComparison = field(repr=False)
    names: SuiteNames

    @property
    def verdict(self) -> str:
        """On the mean over families: one of 'better', 'no worse than 2 points', 'worse', 'cannot tell'."""
        return verdict_word(self.comparison.verdict, self.comparison.margin)

    @property
    def difference(self) -> float:
        """B - A of the mean over families."""
        return 100 * self.comparison.overall.value

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95 % interval."""
        return 100 * self.comparison.overall.low, 100 * self.comparison.overall.high

    @property
    def families(self) -> list[dict[str, Any]]:
        """A row a family: family, verdict, score_a, score_b, difference, low, high, p, p_holm, n, ..."""
        rows = self.to_json()["families"]
        return [
            {"family": name, "verdict": row["verdict"], **row["overall"], "p_holm": row["p_holm"]}
            for name, row in rows.items()
        ]

    @property
    def text(self) -> str:
        """What `needlemap compare` prints."""
        return suite_comparison_text(self.comparison, self.names)

    def to_json(self) -> dict[str, Any]:
        """What `needlemap compare --json` prints; every family's lengths and cells too."""
        return suite_comparison_json(self.comparison, self.names)

    def to_pandas(self) -> Any:
        """One row a family, as `families`. Raises NeedlemapError when pandas is not installed."""
        from needlemap.maps.frame import plain_frame

        return plain_frame(self.families)

    def __repr__(self) -> str:
        return self.text


def compared_suites(first: Path, second: Path, margin: float = MARGIN) -> ComparedSuites:
    """Compare two suites' folders. margin: in points. Raises NeedlemapError when they cannot be paired."""
    for path in (first, second):
        if not is_suite(path):
            raise NeedlemapError(f"No suite at '{path}': it holds no suite.json. Runs: needlemap.compare")
    return ComparedSuites(*compare_suites(open_suite(first), open_suite(second), margin))
