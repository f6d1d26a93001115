"""What a run asks next, and when it ends: all that is left, haystacks where they matter, or until a
verdict.

`run --seek 85`: effective length by asking where it matters. An ask is a repeat of its own: its
number fixes its documents, its needle and its depths, so that the same command goes on where
another start ended. Records are ordinary ones. What is known follows from them alone.

`run --until no-worse-than REFERENCE:2` ends as soon as its verdict is known. It asks what the
reference scored, haystack by haystack in a seeded order (`maps/sequential.py`), and judges after
each in that very order, however answers come in. So what stopped the run is what `compare
--sequential` finds in it. What failed is asked again three times before it ends.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from random import Random
from typing import Any

import numpy as np

from needlemap.asking.resume import first_at, is_unanswered, scorer_about
from needlemap.errors import SettingsError
from needlemap.grid import Grid
from needlemap.maps import (
    Place,
    asks_same,
    by_place,
    latest_records,
    place_of,
    places_of,
    prompt_of,
    prompts_of,
)
from needlemap.maps.judging import Looks, Row, Rows, Scope, judge
from needlemap.maps.pairs import scores_of
from needlemap.maps.rehearsal import tokens_by_kind
from needlemap.maps.seek import PLACES, asked_in, axis_of, batch_size, learn, next_batch
from needlemap.maps.sequential import haystack_order, interleaved
from needlemap.plan import by_length, ordered
from needlemap.records import phrase
from needlemap.records.folder import RunFolder
from needlemap.records.record import Record
from needlemap.settings import Settings, lender_of
from needlemap.trials import Trial
from needlemap.trials.build import Experiment, prepare_haystacks
from needlemap.trials.resolve import resolve


class Policy:
    """All that is left of an experiment, to its end, in the order that shares most."""

    goal: Goal | None = None  # what ends it early
    seeks = False  # whether it chooses what comes next by what is known
    asks_again = False  # whether what failed is asked again

    def todo(
        self, experiment: Experiment, left: Sequence[Trial], folder: RunFolder
    ) -> tuple[Trial, ...]:
        """What is to be asked of what is left, in its order."""
        return tuple(ordered(left, experiment.settings.mode, experiment.traits.side))

    def parts(self, walk: list[Trial], *, limited: bool) -> list[list[Trial]]:
        """A walk as it is asked: whole, or length by length where a limit may cut it short."""
        return by_length(walk) if limited else [walk]

    def decides(
        self, experiment: Experiment, folder: RunFolder, todo: Iterable[Trial]
    ) -> Callable[[Record], bool]:
        """Whether a record that was just made is the last that is needed."""
        return lambda _: False

    def next(self, folder: RunFolder) -> Experiment | None:
        """What comes behind all that was asked."""
        return None


class Whole(Policy):
    """All that is left in its order, whatever may end it."""

    def parts(self, walk: list[Trial], *, limited: bool) -> list[list[Trial]]:
        """One."""
        return [walk]


_SPEC = re.compile(r"no-worse-than[ =:](?P<path>.+?)(?::(?P<margin>\d+(?:\.\d*)?))?")
MARGIN = 2.0  # points


@dataclass(frozen=True, slots=True)
class Goal:
    """What a run is to be no worse than: a run's folder, and a margin in points. scope: what the
    verdict is to hold for."""

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


class Until(Policy):
    """Ends with a verdict, which is looked for after each whole haystack, in the order of
    `haystack_order`. reference: its records by their places. Raises NeedlemapError where there is
    none."""

    asks_again = True

    def __init__(self, goal: Goal) -> None:
        self.goal: Goal = goal
        folder = RunFolder(self.goal.path)
        about = folder.about()
        self.reference = by_place(prompts_of(folder.records(), about.cells, about.shared))
        self._one = about.one_haystack
        self._experiment: Experiment | None = None
        self._rounds = 0

    def check(self, experiment: Experiment) -> None:
        """Raises SettingsError where the reference asked something else, or scored it otherwise."""
        path, theirs = self.goal.path, RunFolder(self.goal.path).about().scorer.current
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
        """The trials that the reference scored, as they are asked: layer by layer, each where it
        first comes."""
        known = scored_places(self.reference)
        found = {place: trial for trial in trials for place in _places(trial) if place in known}
        made, seen = list[list[Trial]](), set[str]()
        for places in interleaved(known):
            here = {found[place].key: found[place] for place in places if place in found}
            made.append([trial for key, trial in here.items() if key not in seen])
            seen |= here.keys()
        return [layer for layer in made if layer]

    def todo(
        self, experiment: Experiment, left: Sequence[Trial], folder: RunFolder
    ) -> tuple[Trial, ...]:
        """Nothing where the verdict is known. Raises SettingsError as `check` does."""
        self.check(experiment)
        known = folder.records() if folder.exists and len(left) < len(experiment.trials) else ()
        self._experiment = experiment
        self._begin(experiment, known, left)
        return () if self.decided else tuple(chain.from_iterable(self.layers(left)))

    def next(self, folder: RunFolder) -> Experiment | None:
        """The same once more where answers are lost and nothing is decided."""
        lost = any(not each.scored for each in latest_records(folder.records()))
        if self.decided or not lost or self._rounds == AGAINS:
            return None
        self._rounds += 1
        return self._experiment

    def parts(self, walk: list[Trial], *, limited: bool) -> list[list[Trial]]:
        """Layer by layer."""
        return self.layers(walk)

    def decides(
        self, experiment: Experiment, folder: RunFolder, todo: Iterable[Trial]
    ) -> Callable[[Record], bool]:
        """Whether the verdict is known by then."""
        self._begin(experiment, folder.records(), todo)
        return self.hear

    def _begin(
        self, experiment: Experiment, before: Iterable[Record], todo: Iterable[Trial]
    ) -> None:
        """Take up what earlier starts recorded, and wait for what is to be asked."""
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
        self.decided = judged.word != "undecided"

    def _rows(self, numbers: Iterable[int]) -> Iterator[Row]:
        for place in chain.from_iterable(self._stacks[number] for number in numbers):
            if place in self._found:
                yield Row(
                    "", place, place[0], *scores_of(self.reference[place], self._found[place])
                )


def scored_places(found: Mapping[Place, Record]) -> set[Place]:
    """Where a run has a score."""
    return {place for place, record in found.items() if record.scored}


def _places(trial: Trial) -> tuple[Place, ...]:
    """All that a trial stands for; nothing for one that is asked a second time, which no verdict
    counts."""
    return () if trial.second else places_of(trial)


_STEPS = 100  # of the depths


class Seeker(Policy):
    """What a run that seeks is to ask, batch by batch. Raises SettingsError where it cannot."""

    seeks = True

    def __init__(self, settings: Settings) -> None:
        if settings.mode not in ("exact", "single"):
            raise SettingsError(
                f"--seek asks haystacks one by one: leave --mode {settings.mode} out."
            )
        if settings.until:
            raise SettingsError("--seek and --until both choose what is asked. Give one.")
        self.settings, self._resolved = settings, resolve(settings)
        if self._resolved.ready or lender_of(settings) is not None:
            raise SettingsError(
                "--seek makes its own prompts, and these exist already. Leave --seek out."
            )
        self.axis = axis_of(settings.lengths, settings.depths)
        self._resumed = False

    def next(self, folder: RunFolder) -> Experiment | None:
        """The next haystacks: first those that an earlier start left unfinished; None when it is
        known."""
        known = folder.exists and not is_unanswered(folder)
        records = latest_records(folder.records()) if known else []
        asks = _asks_of(folder.about().cells) if known else {}
        if not self._resumed:
            self._resumed = True
            scored = {place_of(each) for each in records if each.scored}
            left = {
                number: grid for number, grid in asks.items() if not _cells(number, grid) <= scored
            }
            if left:
                return self._experiment(left)
        return self._next(records, max(asks, default=-1) + 1)

    def _next(self, records: Sequence[Record], number: int) -> Experiment | None:
        """Of haystacks that nobody asked yet, from this number on."""
        asked, settings = asked_in(records, self.axis), self.settings
        counts = self.axis.first()
        if asked.asks.any():
            assert settings.seek is not None  # it seeks
            threshold = settings.seek / 100
            known = learn(self.axis, asked, threshold)
            size = np.array(batch_size(int(asked.asks.sum()), self._resolved.workers))
            counts = next_batch(known, asked, settings.within / 100, size, threshold)
        if not counts.any():
            return None
        lengths = np.repeat(self.axis.lengths, counts).tolist()
        return self._experiment(
            {at: self._grid(at, length) for at, length in enumerate(lengths, number)}
        )

    def finished(self, folder: RunFolder) -> Experiment:
        """Of a run that is known, its first haystack: all of it is scored."""
        asks = _asks_of(folder.about().cells)
        return self._experiment({min(asks): asks[min(asks)]})

    def _grid(self, number: int, length: int) -> Grid:
        """One depth in each part of the depths, whole hundredths of them: so cells come again, and
        it is seen whether their hits and misses do."""
        random, depths = Random(f"{self.settings.seed}:{number}"), self._resolved.grid.depths
        low, wide = depths[0], depths[-1] - depths[0]
        steps = [round((at + random.random()) * _STEPS / PLACES) for at in range(PLACES)]
        shares = (round(low + wide * step / _STEPS, 2) for step in steps)
        return Grid((length,), tuple(sorted(set(shares))))

    def _experiment(self, asks: Mapping[int, Grid]) -> Experiment:
        made = prepare_haystacks(self._resolved, list(asks.items()))
        return replace(made, grid=Grid(self.axis.lengths, self._resolved.grid.depths))


def _asks_of(cells: Iterable[Sequence[Any]]) -> dict[int, Grid]:
    """By repeat the length and the depths of its haystack, from run.json's cells."""
    depths: dict[tuple[int, int], list[float]] = defaultdict(list)
    for length, depth, repeats in cells:
        for number in repeats:
            depths[number, length].append(depth)
    return {
        number: Grid((length,), tuple(each)) for (number, length), each in sorted(depths.items())
    }


def _cells(number: int, grid: Grid) -> set[Place]:
    return {(number, cell.length_tokens, cell.depth) for cell in grid.cells}


def rehearsed(settings: Settings) -> dict[str, tuple[float, float, float]]:
    """What a seek would ask of made-up models, in prompt tokens: 10 %, median and 90 % by kind of
    model."""
    axis, threshold = Seeker(settings).axis, float(settings.seek or 0) / 100
    return tokens_by_kind(axis, threshold, settings.within / 100)
