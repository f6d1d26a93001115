"""A run that ends as soon as its verdict is known: `run --until no-worse-than REFERENCE:2`.

It asks what the reference scored, haystack by haystack in a seeded order
(`stats/sequential.py`), and judges after each in that very order, however answers come in. So
what stopped the run is what `compare --sequential` finds in it. What failed is asked again
three times before it ends.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from needlemap.asking.campaign import FullGrid
from needlemap.asking.resume import first_at, scorer_about
from needlemap.asking.session import Session
from needlemap.errors import SettingsError
from needlemap.records import phrase
from needlemap.records.folder import RunFolder
from needlemap.records.record import Record
from needlemap.stats import (
    Place,
    asks_same,
    by_place,
    latest_records,
    place_of,
    places_of,
    prompt_of,
    prompts_of,
)
from needlemap.stats.judging import JudgedPrompt, Looks, Rows, Scope, judge
from needlemap.stats.pairs import scores_of
from needlemap.stats.sequential import haystack_order, interleaved
from needlemap.trials import Trial
from needlemap.trials.build import Experiment

_SPEC = re.compile(r"no-worse-than[ =:](?P<path>.+?)(?::(?P<margin>\d+(?:\.\d*)?))?")
MARGIN = 2.0  # points


@dataclass(frozen=True, slots=True)
class Goal:
    """What a run is to be no worse than: a run's folder, and a margin in points. scope: what
    the verdict is to hold for."""

    path: str
    margin: float
    scope: Scope = "these"

    @property
    def label(self) -> str:
        """In words."""
        on = ", also on new haystacks" if self.scope == "new" else ""
        return f"no worse than {self.path} by {self.margin:g} points, or worse{on}"

    @classmethod
    def of(cls, spec: str, scope: Scope = "these") -> Goal:
        """As typed. Raises SettingsError.

        >>> Goal.of("no-worse-than runs/base:2.5")
        Goal(path='runs/base', margin=2.5, scope='these')
        """
        found = _SPEC.fullmatch(spec.strip())
        margin = float(found["margin"] or MARGIN) if found else MARGIN
        if margin == 0:
            raise SettingsError(
                f"--until '{spec}': without a margin equal engines are never decided. Give a loss "
                f"in points that does not matter, as {spec.strip().rpartition(':')[0]}:2."
            )
        if found is None or not 0 < margin <= 100:
            raise SettingsError(
                f"--until '{spec}' is no goal. Give no-worse-than RUN:POINTS, as no-worse-than "
                f"runs/base:2."
            )
        return cls(found["path"], margin, scope)


AGAINS = 3  # times that a trial that failed is asked again


class UntilDecided(FullGrid):
    """Ends with a verdict, which is looked for after each whole haystack, in the order of
    `haystack_order`. reference: its records by their places. Raises NeedlemapError where there
    is none."""

    def __init__(self, experiment: Experiment, path: Path) -> None:
        session = Session.open(experiment, path)
        self.goal = Goal.of(experiment.settings.until, experiment.settings.scope)
        folder = RunFolder(self.goal.path)
        about = folder.about()
        self.reference = by_place(prompts_of(folder.records(), about.cells, about.shared))
        self._one = about.one_haystack
        self._rounds = 0
        super().__init__(self._in_layers(session))

    def next(self, scored: int) -> Session | None:
        """The same once more where answers are lost and nothing is decided."""
        experiment, folder = self.session.experiment, RunFolder(self.session.folder.path)
        lost = any(not each.scored for each in latest_records(folder.records()))
        if self.decided or not lost or self._rounds == AGAINS:
            return None
        self._rounds += 1
        return self._in_layers(Session.open(experiment, folder.path))

    def _in_layers(self, session: Session) -> Session:
        """The trials that are left, in layers, up to the verdict; none if it is known. Raises
        SettingsError as `check` does."""
        self.check(session.experiment)
        known = session.folder.records() if session.done else ()
        self._begin(session.experiment, known, session.todo)
        layers = () if self.decided else self.layers(session.todo)
        return session.in_layers(layers, self.hear)

    def check(self, experiment: Experiment) -> None:
        """Raises SettingsError where the reference asked something else, or scored it
        otherwise."""
        path, theirs = self.goal.path, RunFolder(self.goal.path).about().scorer
        ours, advice = (
            scorer_about(experiment.scorer),
            f"Ask exactly its prompts: --prompts-of {path}",
        )
        if theirs != ours:
            both = phrase({"scorer": (theirs.model_dump(), ours.model_dump())})
            raise SettingsError(f"'{path}' is scored otherwise: {both}. {advice}")
        trials = {place: trial for trial in experiment.trials for place in _places(trial)}
        shared = sorted(scored_places(self.reference) & trials.keys())
        if not shared:
            raise SettingsError(f"'{path}' scored none of this run's trials. {advice}")
        found = self.reference
        if unlike := [
            place for place in shared if not asks_same(trials[place].prompt, found[place].prompt)
        ]:
            raise SettingsError(
                f"'{path}' asked other prompts in {len(unlike)} trials ({first_at(unlike[0])}), so "
                f"they "
                f"cannot be paired. {advice}"
            )

    def layers(self, trials: Iterable[Trial]) -> list[list[Trial]]:
        """The trials that the reference scored, as they are asked: layer by layer, each where
        it first comes."""
        known = scored_places(self.reference)
        found = {place: trial for trial in trials for place in _places(trial) if place in known}
        made, seen = list[list[Trial]](), set[str]()
        for places in interleaved(known):
            here = {found[place].key: found[place] for place in places if place in found}
            made.append([trial for key, trial in here.items() if key not in seen])
            seen |= here.keys()
        return [layer for layer in made if layer]

    def _begin(
        self, experiment: Experiment, before: Iterable[Record], todo: Iterable[Trial]
    ) -> None:
        """Take up the records of earlier starts, and list the trials whose answers are
        awaited."""
        self._stands = {trial.asked: _places(trial) for trial in experiment.trials}
        self._waiting = {place for trial in todo for place in _places(trial)}
        self._found = {
            place: each for each in latest_records(before) for place in self._places(each)
        }
        wanted = set(chain.from_iterable(self._stands.values()))
        stacks, seen = defaultdict[int, list[Place]](list), set[Hashable]()
        for place in sorted(scored_places(self.reference) & wanted):
            prompt = prompt_of(self.reference[place])
            if prompt not in seen:
                seen.add(prompt)
                stacks[0 if self._one else place[0]].append(place)
        self._stacks = dict(stacks)
        self._order = haystack_order(stacks)
        self._known, self.decided = 0, False
        self._advance()

    def hear(self, record: Record) -> bool:
        """A trial ended; whether the verdict is known."""
        for place in self._places(record):
            self._found[place] = record
            self._waiting.discard(place)
        self._advance()
        return self.decided

    def _places(self, record: Record) -> Sequence[Place]:
        return self._stands.get(record.asked, () if record.second else (place_of(record),))

    def _advance(self) -> None:
        """Look again where one more haystack in the order is whole."""
        known = self._known
        while known < len(self._order) and not (
            self._waiting & set(self._stacks[self._order[known]])
        ):
            known += 1
        if known == self._known or self.decided:
            return
        self._known = known
        looks = Looks(self._order, len(self._order))
        rows = Rows.of(self._rows(self._order[:known]))
        judged = judge(rows, self.goal.margin / 100, wanted=self.goal.scope, looks=looks)
        self.decided = judged.is_decided

    def _rows(self, numbers: Iterable[int]) -> Iterator[JudgedPrompt]:
        for place in chain.from_iterable(self._stacks[number] for number in numbers):
            if place in self._found:
                yield JudgedPrompt(
                    "", place, place[0], *scores_of(self.reference[place], self._found[place])
                )


def scored_places(found: Mapping[Place, Record]) -> set[Place]:
    """Where a run has a score."""
    return {place for place, record in found.items() if record.scored}


def _places(trial: Trial) -> tuple[Place, ...]:
    """All that a trial stands for; nothing for one that is asked a second time, which no
    verdict counts."""
    return () if trial.second else places_of(trial)
