"""A run that ends as soon as its verdict is known: `run --until no-worse-than REFERENCE:2`.

It asks what the reference scored, in pieces of prompts that a seed drew (`stats/looks.py`), and
judges after each piece, however answers come in. So what stopped the run is what `compare
--sequential` finds in it. A verdict for new haystacks takes whole haystacks in a seeded order.
What the reference mostly gets wrong is not asked. What failed is asked again three times before
it ends.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from needlemap.asking.campaign import FullGrid
from needlemap.asking.resume import scorer_about
from needlemap.asking.session import Session
from needlemap.errors import SettingsError
from needlemap.plan.summary import WalkedTrials
from needlemap.records import phrase
from needlemap.records.folder import RunFolder
from needlemap.records.record import Record
from needlemap.stats import (
    Place,
    asks_same,
    by_place,
    latest_records,
    place_label,
    place_of,
    places_of,
    prompt_of,
    prompts_of,
)
from needlemap.stats.judging import PairedLoss, judge
from needlemap.stats.looks import Looks, Scope, planned_looks
from needlemap.stats.pairs import scores_of
from needlemap.stats.rows import JudgedPrompt, Rows
from needlemap.stats.tested import count_tested, drop_untested
from needlemap.text import counted, short
from needlemap.trials import Trial
from needlemap.trials.build import Experiment

_SPEC = re.compile(r"no-worse-than[ =:](?P<path>.+?)(?::(?P<margin>\d+(?:\.\d*)?))?")
# Points.
MARGIN = 2.0


@dataclass(frozen=True, slots=True)
class Goal:
    """A run's folder and a margin in points, by which a run is to be no worse.

    scope: what the verdict is to hold for.
    """

    path: str
    margin: float
    scope: Scope = "these"

    @property
    def label(self) -> str:
        """Return the goal in words."""
        addition = ", also on new haystacks" if self.scope == "new" else ""
        return f"no worse than {self.path} by {self.margin:g} points, or worse{addition}"

    @classmethod
    def of(cls, spec: str, scope: Scope = "these") -> Goal:
        """Parse a goal as typed.

        Raises SettingsError if the text is not a goal.

        >>> Goal.of("no-worse-than runs/base:2.5")
        Goal(path='runs/base', margin=2.5, scope='these')
        """
        match = _SPEC.fullmatch(spec.strip())
        margin = float(match["margin"] or MARGIN) if match else MARGIN
        if margin == 0:
            raise SettingsError(
                f"--until '{spec}': without a margin equal engines are never decided. Give a loss "
                f"in points that does not matter, as {spec.strip().rpartition(':')[0]}:2."
            )
        if match is None or not 0 < margin <= 100:
            raise SettingsError(
                f"--until '{spec}' is no goal. Give no-worse-than RUN:POINTS, as no-worse-than "
                f"runs/base:2."
            )
        return cls(match["path"], margin, scope)


# How often a run sends its failed trials again.
MOST_RETRY_ROUNDS = 3


@dataclass(frozen=True, slots=True, eq=False)
class PlannedPairs:
    """The prompts of an experiment that its goal's reference scored.

    Attributes:
        reference: Its records by their places.
        places: One place of each prompt.
        pieces: The places that are judged, as they are sent together; none of what the reference
            mostly gets wrong.
    """

    goal: Goal
    reference: Mapping[Place, Record]
    one_haystack: bool
    places: tuple[Place, ...]
    pieces: tuple[tuple[Place, ...], ...]

    @classmethod
    def of(cls, experiment: Experiment) -> PlannedPairs:
        """Read the reference.

        Raises NeedlemapError if there is none, if it cannot be paired, or if nothing that it
        answered could show a loss.
        """
        goal = Goal.of(experiment.settings.until, experiment.settings.scope)
        folder = RunFolder(goal.path)
        about = folder.about()
        reference = by_place(prompts_of(folder.records(), about.cells, about.shared))
        trials = {place: trial for trial in experiment.trials for place in _places(trial)}
        _check(goal, reference, experiment, trials)
        places: list[Place] = []
        seen_prompts: set[Hashable] = set()
        for place in sorted(scored_places(reference) & trials.keys()):
            prompt = prompt_of(reference[place])
            if prompt not in seen_prompts:
                seen_prompts.add(prompt)
                places.append(place)
        planned = cls(goal, reference, about.one_haystack, tuple(places), ())
        rows, untested = drop_untested(planned.rows({}), goal.margin / 100)
        if not count_tested(planned.rows({}), untested)[0]:
            raise SettingsError(
                f"'{goal.path}' got {untested[0].right:g} of {untested[0].n} prompts right: too "
                f"few to lose any. Give another reference, or a task that it can do."
            )
        return replace(planned, pieces=pieces_of(rows, planned_looks(rows, goal.scope)))

    def rows(self, records: Mapping[Place, Record]) -> Rows:
        """Return all pairs; those without a record are still to be sent."""
        return Rows.of(
            JudgedPrompt(
                "",
                place,
                0 if self.one_haystack else place[0],
                *scores_of(self.reference[place], records.get(place)),
                tried=place in records,
            )
            for place in self.places
        )

    def verdict(self, rows: Rows) -> PairedLoss:
        """Return the verdict on pairs, which is looked for after each piece."""
        looks = partial(planned_looks, wanted=self.goal.scope)
        return judge(rows, self.goal.margin / 100, wanted=self.goal.scope, looks=looks)

    def layers(self, trials: Iterable[Trial]) -> list[list[Trial]]:
        """Return the trials that are judged, piece by piece."""
        trial_at = {place: trial for trial in trials for place in _places(trial)}
        layers: list[list[Trial]] = []
        seen_keys: set[str] = set()
        for piece in self.pieces:
            layer = {trial_at[place].key: trial_at[place] for place in piece if place in trial_at}
            layers.append([trial for key, trial in layer.items() if key not in seen_keys])
            seen_keys |= layer.keys()
        return [layer for layer in layers if layer]

    def cost(self, experiment: Experiment) -> PiecesCost:
        """Return what sending random pieces costs and saves."""
        layers = self.layers(experiment.trials)
        rows = self.rows({})
        everything = np.ones(len(rows.first), dtype=bool)
        verdict = self.verdict(replace(rows, second=rows.first, tried=everything))
        return PiecesCost(
            pairs=sum(map(len, self.pieces)),
            pieces=len(self.pieces),
            unit=verdict.unit,
            units=verdict.planned or 0,
            least=verdict.after,
            whole_tokens=computed_tokens(
                experiment, [trial for layer in layers for trial in layer]
            ),
            pieces_tokens=sum(computed_tokens(experiment, layer) for layer in layers),
        )


class UntilDecided(FullGrid):
    """Sends the planned pairs piece by piece until the verdict is known.

    Raises NeedlemapError as `Session.open` and `PlannedPairs.of` do.
    """

    def __init__(self, experiment: Experiment, path: Path) -> None:
        session = Session.open(experiment, path)
        self.planned = PlannedPairs.of(experiment)
        self._retry_rounds = 0
        super().__init__(self._in_layers(session))

    def next_session(self, scored: int) -> Session | None:
        """Return a session that sends the failed trials again, or None at the end of the run.

        The run ends once the verdict is known, no trial has failed, or failed trials were sent
        again MOST_RETRY_ROUNDS times.

        scored: not used here. `FullGrid.ask` passes it to every kind of run.
        """
        folder = RunFolder(self.session.folder.path)
        has_failures = any(not record.scored for record in latest_records(folder.records()))
        if self.decided or not has_failures or self._retry_rounds == MOST_RETRY_ROUNDS:
            return None
        self._retry_rounds += 1
        return self._in_layers(Session.open(self.session.experiment, folder.path))

    def _in_layers(self, session: Session) -> Session:
        """Return a session whose open trials are sent in layers, one for each piece.

        The session stops at the verdict. It has no layers if the verdict is known already.
        """
        records = session.folder.records() if session.done else ()
        self._read_records(session.experiment, records, session.todo)
        layers = () if self.decided else self.planned.layers(session.todo)
        return session.in_layers(layers, self.hear)

    def _read_records(
        self, experiment: Experiment, earlier_records: Iterable[Record], todo: Iterable[Trial]
    ) -> None:
        """Read the records of earlier starts, and list the trials whose answers are awaited."""
        self._places_by_hash = {trial.asked: _places(trial) for trial in experiment.trials}
        self._waiting = {place for trial in todo for place in _places(trial)}
        self._records = {
            place: record
            for record in latest_records(earlier_records)
            for place in self._places(record)
        }
        self._whole_pieces = 0
        self.decided = False
        self._update_verdict()

    def hear(self, record: Record) -> bool:
        """Take the record of a trial. Return True once the verdict is known."""
        for place in self._places(record):
            self._records[place] = record
            self._waiting.discard(place)
        self._update_verdict()
        return self.decided

    def _places(self, record: Record) -> Sequence[Place]:
        return self._places_by_hash.get(record.asked, () if record.second else (place_of(record),))

    def _update_verdict(self) -> None:
        """Judge again if one more piece is whole, and note if the verdict is decided."""
        pieces = self.planned.pieces
        whole_pieces = self._whole_pieces
        while whole_pieces < len(pieces) and not self._waiting & set(pieces[whole_pieces]):
            whole_pieces += 1
        if whole_pieces == self._whole_pieces or self.decided:
            return

        self._whole_pieces = whole_pieces
        answered = {
            place: record for place, record in self._records.items() if place not in self._waiting
        }
        self.decided = self.planned.verdict(self.planned.rows(answered)).is_decided


def _check(
    goal: Goal,
    reference: Mapping[Place, Record],
    experiment: Experiment,
    trials: Mapping[Place, Trial],
) -> None:
    """Raise SettingsError if the reference asked something else, or scored it otherwise."""
    path = goal.path
    theirs = RunFolder(path).about().scorer
    ours = scorer_about(experiment.scorer)
    advice = f"Ask exactly its prompts: --prompts-of {path}"
    if theirs != ours:
        difference = phrase({"scorer": (theirs.model_dump(), ours.model_dump())})
        raise SettingsError(f"'{path}' is scored otherwise: {difference}. {advice}")
    shared = sorted(scored_places(reference) & trials.keys())
    if not shared:
        raise SettingsError(f"'{path}' scored none of this run's trials. {advice}")
    different = [
        place for place in shared if not asks_same(trials[place].prompt, reference[place].prompt)
    ]
    if different:
        raise SettingsError(
            f"'{path}' asked other prompts in {len(different)} trials "
            f"(first: {place_label(different[0])}), so they cannot be paired. {advice}"
        )


@dataclass(frozen=True, slots=True)
class PiecesCost:
    """Planned pairs in random pieces.

    Attributes:
        units: What the verdict counts, pairs or haystacks.
        least: How many of them decide if both runs score the same; None if not even all do.
        whole_tokens, pieces_tokens: Prompt tokens that a cache has to compute for all of them, sent
            haystack by haystack and piece by piece.
    """

    pairs: int
    pieces: int
    unit: str
    units: int
    least: int | None
    whole_tokens: int
    pieces_tokens: int

    @property
    def label(self) -> str:
        """Return in words what the pieces cost and save."""
        start = f"{counted(self.pairs, 'pair')} in {counted(self.pieces, 'piece')}"
        if self.least is None:
            return f"{start}; not even all of them decide if they are equal"
        times = self.pieces_tokens / max(1, self.whole_tokens)
        tokens = round(self.pieces_tokens * self.least / self.units)
        return (
            f"{start}; if all are equal, {counted(self.least, self.unit)} decide. Random pieces "
            f"compute {times:.2f} times the tokens a prompt of whole haystacks: {short(tokens)} "
            f"until then, and {short(self.whole_tokens)} for all pairs in whole haystacks"
        )


def computed_tokens(experiment: Experiment, trials: Sequence[Trial]) -> int:
    """Return the prompt tokens that one cache computes of some trials, sent in this order."""
    walked = WalkedTrials.of(replace(experiment, trials=tuple(trials)), 1)
    return sum(walked.sizes) - sum(walked.shared)


def pieces_of(rows: Rows, looks: Looks) -> tuple[tuple[Place, ...], ...]:
    """Return the places of planned prompts that are sent together, in the order of the looks."""
    pieces: dict[int, list[Place]] = {}
    for place, turn in zip(rows.places, looks.turns.tolist(), strict=True):
        pieces.setdefault(turn // looks.every, []).append(place)
    return tuple(tuple(pieces[number]) for number in sorted(pieces))


def scored_places(records: Mapping[Place, Record]) -> set[Place]:
    """Return the places of which a run has a score."""
    return {place for place, record in records.items() if record.scored}


def _places(trial: Trial) -> tuple[Place, ...]:
    """Return the places that a trial stands for, or () if it is asked for the second time.

    No verdict counts a second answer to the same prompt.
    """
    return () if trial.second else places_of(trial)
