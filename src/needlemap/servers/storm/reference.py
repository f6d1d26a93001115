"""The same prompt, sent to the reference: a model of the same weights, in this process.

It sends nothing: `weighing` does.
"""

from __future__ import annotations

from dataclasses import dataclass

from needlemap.asking.single import Step
from needlemap.deadline import without_limit
from needlemap.errors import SettingsError
from needlemap.records.folder import RunFolder
from needlemap.records.record import Record
from needlemap.servers.storm.act import Act, Round
from needlemap.servers.storm.outcome import RequestOutcome
from needlemap.servers.storm.storm import THERE, RoundAnswers, Storm


@dataclass(frozen=True, slots=True)
class ReferenceRequest:
    """A right answer of the server, and how the reference is sent the same prompt."""

    step: Step
    record: Record

    @classmethod
    @without_limit()
    def of(
        cls,
        storm: Storm,
        storm_round: Round,
        act: Act,
        *,
        family: str,
        record: Record,
        outcome: RequestOutcome,
        round_answers: RoundAnswers,
    ) -> ReferenceRequest | None:
        """Return the request, or None if the two cannot be compared.

        record, outcome: of the act on the server. round_answers: the answers that its prompt holds.
        """
        reference = storm.reference
        if reference is None or record.logprobs is None or outcome.word != "right":
            return None
        answers = round_answers.of(act.family)
        trial = storm.texts.trial(storm_round.number, act, record.repeat, answers)
        try:
            trial = storm.reference_trial(reference, trial)
        except SettingsError:
            # The reference's template was too slow, or refuses the messages.
            return None
        name = f"{THERE}{family}"
        step = Step(
            family=name,
            trial=trial,
            resolved=reference,
            folder=RunFolder(storm.folder.folder(name)),
            model=THERE,
        )
        return cls(step, record)

    @property
    def key(self) -> tuple[str, int]:
        """Return the family and the number of the reference's record."""
        return self.step.family, self.record.repeat
