"""Declare the flag of `report` that shows the checkpoints of one training together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from needlemap.commands.arguments import MoreReportFlags, ReportFlags, flag
from needlemap.errors import SettingsError


@dataclass(frozen=True, slots=True)
class SeriesFlags(MoreReportFlags):
    """Flags of `report` for a series of checkpoints."""

    by: str = flag(
        "", "step: one table of a training's checkpoints, with -o a figure.", metavar="step"
    )

    @property
    def alone(self) -> str:
        """Return the flag that makes a report of its own of all runs, or '' if it is not typed."""
        return "--by" if self.by else ""

    def report(self, runs: Sequence[Path], typed: ReportFlags) -> None:
        """Print a series of checkpoints or write it to a file. Raises SettingsError."""
        from needlemap.commands.report import folders_of
        from needlemap.records.loaded import load_run
        from needlemap.reports import points_wide
        from needlemap.reports.figures.drawing import FIGURES
        from needlemap.reports.renderers import markdown
        from needlemap.reports.renderers.json import to_json
        from needlemap.reports.renderers.text import show_report
        from needlemap.reports.table import MARKDOWN
        from needlemap.text import show_json, tell
        from needlemap.training.figure import draw_series
        from needlemap.training.report import series_report

        if self.by != "step":
            raise SettingsError(f"Runs are reported --by step, got '{self.by}'.")
        report = series_report([load_run(path) for path in folders_of(runs)])
        out = typed.out
        if out is None:
            if typed.json:
                show_json(to_json(report))
            else:
                show_report(report)
        elif out.suffix.lower() == MARKDOWN:
            tell(str(markdown.write_markdown(report, out)))
        elif out.suffix.lower() in FIGURES:
            drawing = draw_series(report, title=typed.title, width=points_wide(typed.width))
            tell(str(drawing.save(out)))
        else:
            raise SettingsError(
                f"A series is a table or a figure, and {out.name} is neither. Give "
                f"{', '.join([*FIGURES, MARKDOWN])}, or leave -o out."
            )
