"""Runs and their comparisons, for Python: what `report` and `compare` print, as values, tables, pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needlemap.interop.imported import load_any
from needlemap.maps.comparison import Comparison
from needlemap.records.families import families_of
from needlemap.records.loaded import Loaded
from needlemap.reports.answers import answers_counts
from needlemap.reports.comparison import answers_text, comparison_json, comparison_text
from needlemap.reports.paired import MARGIN, Names, compare_runs
from needlemap.reports.verdict import verdict_word
from needlemap.text import printable

if TYPE_CHECKING:
    from needlemap.reports.figures.canvas import Drawing


@dataclass(frozen=True)
class Compared:
    """B against A, on the trials that both scored. Scores are in percent, differences in points.

    Of runs with several families verdict, difference, interval and p are of the mean over families, each
    counting the same. runs: A's and B's families, by turns.
    """

    comparison: Comparison = field(repr=False)
    names: Names
    runs: tuple[Loaded, ...] = field(repr=False)

    @property
    def verdict(self) -> str:
        """One of 'better', 'no worse than 2 points', 'worse', 'cannot tell'."""
        return verdict_word(self.comparison.verdict, self.comparison.margin)

    @property
    def warning(self) -> str:
        """Why the comparison proves little; empty when it does."""
        return self.comparison.verdict.warning

    @property
    def difference(self) -> float:
        """B - A over all pairs."""
        return 100 * self.comparison.overall.value

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95 % interval."""
        return 100 * self.comparison.overall.low, 100 * self.comparison.overall.high

    @property
    def p(self) -> float:
        """Of no difference: exact McNemar for pass and fail, sign flips for graded scores."""
        return self.comparison.overall.p

    @property
    def n(self) -> int:
        """Pairs."""
        return self.comparison.overall.n

    @property
    def lengths(self) -> list[dict[str, Any]]:
        """A row a length: length_tokens, score_a, score_b, difference, low, high, p, p_holm, n, ...; empty of
        runs with several families."""
        return list(self.to_json().get("lengths", []))

    @property
    def families(self) -> list[dict[str, Any]]:
        """A row a family: family, verdict, score_a, score_b, difference, low, high, p, p_holm, n, ...; empty
        of runs with one."""
        rows = self.to_json().get("families", {})
        return [
            {"family": name, "verdict": row["verdict"], **row["overall"], "p_holm": row["p_holm"]}
            for name, row in rows.items()
        ]

    @property
    def answers(self) -> dict[str, int]:
        """n pairs, and how many are identical, differing, unanswered by B; which: `answers_text`, JSON."""
        return answers_counts(self.comparison.answers)

    @property
    def answers_text(self) -> str:
        """What `needlemap compare --answers` prints of them."""
        return printable("\n".join(answers_text(self.comparison, whole=True)))

    @property
    def text(self) -> str:
        """What `needlemap compare` prints."""
        return comparison_text(self.comparison, self.names)

    def to_json(self) -> dict[str, Any]:
        """What `needlemap compare --answers --json` prints; every family, length, cell and changed answer."""
        return comparison_json(self.comparison, self.names, answers=True)

    def to_pandas(self) -> Any:
        """One row a length, or a family where there are several. Raises NeedlemapError without pandas."""
        from needlemap.maps.columns import plain_frame

        return plain_frame(self.families or self.lengths)

    def plot(self, *, palette: str | None = None) -> Drawing:
        """All maps; of runs with one family that of the difference too. Raises SettingsError."""
        from needlemap.reports.figures.figure import draw, figure_of

        return draw(figure_of(self.runs, palette=palette)[0])

    def save(
        self,
        path: str | Path,
        *,
        title: str | None = None,
        palette: str | None = None,
        width: str | None = None,
    ) -> Path:
        """These maps as .png, .svg or .pdf. width: as --width takes it. Raises SettingsError."""
        from needlemap.reports.figures.figure import draw, figure_of
        from needlemap.reports.style import parse_width

        figure, _ = figure_of(self.runs, title=title, palette=palette)
        return draw(figure, parse_width(width) if width else None).save(path)

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Any:
        """What a notebook shows: the maps and the words."""
        return self.plot().with_text(self.text)


def compared(
    first: str | Path,
    second: str | Path,
    margin: float = MARGIN,
    labels: Sequence[str] = (),
    metric: str = "",
) -> Compared:
    """Compare two run folders, or logs of other tools. margin: in points. labels: other names of the two.
    metric: of logs with several. Raises NeedlemapError when they cannot be paired."""
    both = families_of(first), families_of(second)
    read = load_any(*both, labels, metric)
    comparison, names = compare_runs(*both, read, margin)
    return Compared(comparison, names, tuple(run for two in read.values() for run in two))
