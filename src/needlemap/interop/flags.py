"""Define what this wing adds to `report`: trackers, and a figure's title as in OpenCompass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from needlemap.commands.arguments import (
    RARE_OPTIONS,
    MoreReportFlags,
    ReportFlags,
    flag,
    option,
    rare,
)

if TYPE_CHECKING:
    from needlemap.interop.trackers import Tracker
    from needlemap.records.loaded import Loaded

DatasetLength = Annotated[
    str,
    option(
        "Length in a figure's title as OpenCompass has it, e.g. 200K.",
        "--dataset-length",
        "--dataset_length",
        metavar="TEXT",
        rich_help_panel=RARE_OPTIONS,
    ),
]


@dataclass(frozen=True, slots=True)
class TrackerFlags(MoreReportFlags):
    """The flags of `report` that set where runs are logged."""

    log: list[str] | None = flag(
        None, "Log to wandb:PROJECT or tensorboard:FOLDER (repeatable).", metavar="WHERE"
    )
    step: int = rare(0, "With --log: training step of the model.")

    def __post_init__(self) -> None:
        """Raise SettingsError for an unknown tracker."""
        if self.log:
            self._trackers()

    @property
    def elsewhere(self) -> str:
        """Return the flag that sends runs to a tracker, or '' if it is not set."""
        return "--log" if self.log else ""

    def send(self, runs: Sequence[Loaded], typed: ReportFlags, rules: tuple[str, ...]) -> list[str]:
        """Log the runs, and return lines about where they are."""
        from needlemap.interop.trackers import log_runs

        lines: list[str] = []
        for tracker in self._trackers():
            lines += log_runs(
                runs,
                tracker,
                step=self.step,
                title=typed.title,
                palette=typed.palette,
                rules=rules,
            )
        return lines

    def _trackers(self) -> list[Tracker]:
        from needlemap.interop.trackers import parse_tracker

        return [parse_tracker(text) for text in self.log or ()]


@dataclass(frozen=True, slots=True)
class TitleFlags(MoreReportFlags):
    """The flag of `report` for the title of OpenCompass's plotting script."""

    dataset_length: DatasetLength = ""

    def titled(self, runs: Sequence[Loaded]) -> Sequence[Loaded]:
        """Return the runs under that title, if a length is given."""
        from needlemap.interop.result_row import context_title

        if not self.dataset_length:
            return runs
        titles = [context_title(run.map.model, self.dataset_length) for run in runs]
        return [
            replace(run, about=run.about.model_copy(update={"title": title}))
            for run, title in zip(runs, titles, strict=True)
        ]
