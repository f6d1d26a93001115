"""`run --until no-worse-than REFERENCE:2`: a run that ends as soon as its verdict is known.

It asks what the reference scored, in the order of a gate (`maps/sequential.py`), and hands the pairs to it in
that very order, however answers come in. So what stopped the run is what `compare --sequential` finds in it.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from needlemap.asking.resume import scorer_about
from needlemap.errors import SettingsError
from needlemap.maps import Place, by_place, latest_records, place_of, prompts_of
from needlemap.maps.sequential import Found, Gate, interleaved, pair_at, scored_places
from needlemap.records import phrase, ruled
from needlemap.records.folder import RunFolder
from needlemap.records.record import Record
from needlemap.settings.grid import percent
from needlemap.trials import Trial
from needlemap.trials.build import Experiment

_SPEC = re.compile(r"no-worse-than[ =:](?P<path>.+?)(?::(?P<margin>\d+(?:\.\d*)?))?")
MARGIN = 2.0  # points


@dataclass(frozen=True, slots=True)
class Goal:
    """What a run is to be no worse than: a run's folder, and a margin in points."""

    path: str
    margin: float

    @property
    def label(self) -> str:
        """In words."""
        return f"no worse than {self.path} by {self.margin:g} points, or worse"

    @classmethod
    def of(cls, spec: str) -> Goal:
        """As typed. Raises SettingsError.

        >>> Goal.of("no-worse-than runs/base:2.5")
        Goal(path='runs/base', margin=2.5)
        """
        found = _SPEC.fullmatch(spec.strip())
        margin = float(found["margin"] or MARGIN) if found else 0.0
        if found is None or not 0 < margin <= 100:
            raise SettingsError(
                f"--until '{spec}' is no goal. Give no-worse-than RUN:POINTS, as no-worse-than runs/base:2."
            )
        return cls(found["path"], margin)


@dataclass(frozen=True, slots=True)
class Until:
    """The goal, and the reference's records by their places."""

    goal: Goal
    reference: Found

    @classmethod
    def read(cls, spec: str) -> Until:
        """Read the reference. Raises NeedlemapError where there is none."""
        goal = Goal.of(spec)
        folder = RunFolder(goal.path)
        about = folder.about()
        return cls(goal, by_place(prompts_of(folder.records(), about["cells"], about.get("shared"))))

    def check(self, experiment: Experiment) -> None:
        """Raises SettingsError where the reference asked something else, or scored it otherwise."""
        path, theirs = self.goal.path, ruled(RunFolder(self.goal.path).about()["scorer"])
        ours, advice = scorer_about(experiment.scorer), f"Ask exactly its prompts: --prompts-of {path}"
        if theirs != ours:
            raise SettingsError(
                f"'{path}' is scored otherwise: {phrase({'scorer': (theirs, ours)})}. {advice}"
            )
        trials = {place: trial for trial in experiment.trials for place in _places(trial)}
        shared = sorted(scored_places(self.reference) & trials.keys())
        if not shared:
            raise SettingsError(f"'{path}' scored none of this run's trials. {advice}")
        if unlike := [place for place in shared if not _asks(trials[place], self.reference[place])]:
            repeat, length, depth = unlike[0]
            raise SettingsError(
                f"'{path}' asked other prompts in {len(unlike)} trials (first: length {length}, depth "
                f"{percent(depth):g}, repeat {repeat}), so they cannot be paired. {advice}"
            )

    def layers(self, trials: Iterable[Trial]) -> list[list[Trial]]:
        """The trials that the reference scored, as they are asked: layer by layer, each where it first
        comes."""
        known = scored_places(self.reference)
        found = {place: trial for trial in trials for place in _places(trial) if place in known}
        made, seen = list[list[Trial]](), set[str]()
        for places in interleaved(known).values():
            here = {found[place].key: found[place] for place in places if place in found}
            made.append([trial for key, trial in here.items() if key not in seen])
            seen |= here.keys()
        return [layer for layer in made if layer]

    def judge(self, experiment: Experiment, before: Iterable[Record], todo: Iterable[Trial]) -> Judge:
        """A gate that knows what earlier starts recorded, and waits for what is to be asked."""
        stands = {trial.asked: _places(trial) for trial in experiment.trials}
        waiting = {place for trial in todo for place in _places(trial)}
        wanted = {place for places in stands.values() for place in places}
        layers = interleaved(scored_places(self.reference)).values()
        order = [place for layer in layers for place in layer if place in wanted]
        return Judge(self, iter(order), waiting, stands, before)


class Judge:
    """Hands pairs to a gate in its order, as far as all before them are known."""

    def __init__(
        self,
        until: Until,
        order: Iterator[Place],
        waiting: set[Place],
        stands: Mapping[str, Sequence[Place]],
        before: Iterable[Record],
    ) -> None:
        """order: of the pairs' places. waiting: those that are still to be asked. stands: by `asked` all
        places of a trial. before: records of earlier starts."""
        self.gate, self._until = Gate(until.goal.margin / 100), until
        self._order, self._waiting, self._stands = order, waiting, stands
        self._found = {place: each for each in latest_records(before) for place in self._places(each)}
        self._seen: set[Hashable] = set()
        self._next = next(order, None)
        self._advance()

    def hear(self, record: Record) -> bool:
        """A trial ended; whether the verdict is known."""
        for place in self._places(record):
            self._found[place] = record
            self._waiting.discard(place)
        self._advance()
        return self.decided

    @property
    def decided(self) -> bool:
        """Whether the gate has its verdict."""
        return self.gate.after is not None

    def _places(self, record: Record) -> Sequence[Place]:
        return self._stands.get(record.asked, () if record.second else (place_of(record),))

    def _advance(self) -> None:
        while self._next is not None and self._next not in self._waiting and not self.decided:
            pair = pair_at(self._next, self._until.reference, self._found, self._seen)
            if pair is not None:
                self.gate.add(pair.first, pair.second)
            self._next = next(self._order, None)


def _places(trial: Trial) -> tuple[Place, ...]:
    """All that a trial stands for; nothing for one that is asked a second time, which no gate counts."""
    places = () if trial.second else trial.places
    return tuple((repeat, cell.length_tokens, cell.depth) for repeat, cell in places)


def _asks(trial: Trial, record: Record) -> bool:
    """Whether a trial asks what a record asked: the same bytes, or token ids."""
    ours, theirs = trial.prompt, record.prompt
    if theirs is None:
        return False
    return ours.sha256 == theirs.sha256 or ("" != ours.ids_sha256 == theirs.ids_sha256)
