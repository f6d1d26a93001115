"""Each prompt of a run once more, with the question in other words.

They are asked in the walk of the grid, each behind the prompt whose haystack it shares. Their
records are in a file of their own, since none of them belongs to a cell: maps, comparisons and
verdicts count the question itself.
"""

from __future__ import annotations

from needlemap.asking.canary import OneFile
from needlemap.asking.resume import to_be_scored
from needlemap.asking.runner import RecordSink, TrialObserver
from needlemap.records.folder import REWORDED, RunFolder
from needlemap.records.loaded import kept, reworded_records
from needlemap.records.record import Record
from needlemap.trials import Trial
from needlemap.trials.build import Experiment


def reworded_left(folder: RunFolder, experiment: Experiment) -> list[Trial]:
    """The trials in other words that a folder has no score of."""
    if not experiment.reworded:
        return []
    done = {record.key for record in kept(folder, REWORDED) if record.scored}
    return [trial for trial in experiment.reworded if trial.key not in done]


def answers_in(folder: RunFolder) -> dict[str, Record]:
    """By `asked`, the last record of each answer of a folder, also to questions in other words."""
    return to_be_scored([*folder.every_record(), *reworded_records(folder)])


class Sinks:
    """Keeps records of a question in other words in a file of their own, all others as usual."""

    def __init__(self, grid: RecordSink, folder: RunFolder) -> None:
        self._grid, self._reworded = grid, OneFile(folder.path / REWORDED)

    async def append(self, record: Record) -> None:
        """Return when it is on the disk."""
        await (self._reworded if record.wording else self._grid).append(record)


class MapOnly(TrialObserver):
    """Tells a watcher of the grid's trials alone."""

    def __init__(self, watcher: TrialObserver) -> None:
        self._watcher = watcher

    def trial_begins(self, trial: Trial) -> None:
        """Tell it."""
        if not trial.wording:
            self._watcher.trial_begins(trial)

    def recorded(self, record: Record) -> None:
        """Tell it."""
        if not record.wording:
            self._watcher.recorded(record)

    def show_event(self, event: str) -> None:
        """Tell it."""
        self._watcher.show_event(event)

    def show_standing(self, standing: str) -> None:
        """Tell it."""
        self._watcher.show_standing(standing)
