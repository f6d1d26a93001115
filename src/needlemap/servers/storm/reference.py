"""An answer beside the reference's: the same prompt, asked of a model of the same weights.

It asks nothing: `storming` does.
"""

from __future__ import annotations

from dataclasses import dataclass

from needlemap.asking.single import Step
from needlemap.deadline import without_limit
from needlemap.errors import SettingsError
from needlemap.prompts import Prompt
from needlemap.records.folder import RunFolder
from needlemap.records.record import Record
from needlemap.servers.check.margins import Margins, margins_of
from needlemap.servers.storm.act import Act, Round
from needlemap.servers.storm.outcome import RequestOutcome
from needlemap.servers.storm.storm import THERE, Answered, Storm


@dataclass(frozen=True, slots=True)
class SetBeside:
    """An answer that is set beside the reference's. step: how the reference is asked."""

    step: Step
    record: Record

    @classmethod
    @without_limit()
    def of(
        cls,
        storm: Storm,
        made: Round,
        act: Act,
        family: str,
        record: Record,
        outcome: RequestOutcome,
        answered: Answered,
    ) -> SetBeside | None:
        """A right answer; None where it cannot be set beside."""
        there = storm.reference
        if there is None or record.logprobs is None or outcome.word != "right":
            return None
        trial = storm.texts.trial(made.number, act, record.repeat, answered.of(act.family))
        try:
            trial = storm.there(there, trial)
        except SettingsError:  # the reference's template was too slow, or refuses the messages
            return None
        folder = RunFolder(storm.folder.folder(f"{THERE}{family}"))
        return cls(Step(f"{THERE}{family}", trial, there, folder, THERE), record)

    @property
    def key(self) -> tuple[str, int]:
        """Of the reference's record."""
        return self.step.family, self.record.repeat

    def suspect(self, there: Record) -> tuple[Prompt, str, Margins | None, Margins | None]:
        """As `Moves.suspect` keeps it. there: what the reference answered."""
        margins = margins_of(there), margins_of(self.record)
        return self.step.trial.prompt, self.record.answer or "", *margins
