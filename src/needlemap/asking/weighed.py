"""What an arm thinks of the reference arm's answers: they are given to it, and weighed by what it offers.

For servers that tell no log-probabilities of what they write, and for those who change the prefill: an answer
is weighed behind its prompt, whole, in one pass where the server repeats prompts with log-probabilities, else
token by token (`models/likelihood.py` tries which).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from needlemap.maps import place_of
from needlemap.records.record import Record
from needlemap.trials.build import Experiment
from needlemap.trials.resolve import Resolved, resolve

SCORER = "logprob"


def weighing_ways(ways: Mapping[str, Mapping[str, Resolved]]) -> dict[str, dict[str, Resolved]]:
    """The same arms and families, where answers are weighed. Raises SettingsError for a model that cannot."""
    own = {"scorer": SCORER, "scorer_options": {}}
    return {
        arm: {name: resolve(each.settings.model_copy(update=own)) for name, each in families.items()}
        for arm, families in ways.items()
    }


def with_answers(experiment: Experiment, said: Iterable[Record]) -> Experiment | None:
    """The trials that somebody answered, with that answer as the one to weigh; None where nobody did."""
    answers = {place_of(record): record.answer for record in said if record.answer}
    trials = []
    for trial in experiment.trials:
        answer = answers.get((trial.repeat, trial.cell.length_tokens, trial.cell.depth))
        if answer:
            reference = replace(trial.item.reference, answer=answer)
            key = experiment.keys.key(trial.asked, reference)
            trials.append(replace(trial, key=key, item=replace(trial.item, reference=reference)))
    return replace(experiment, trials=tuple(trials)) if trials else None
