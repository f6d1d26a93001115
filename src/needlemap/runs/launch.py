"""Looks after a launch: sees which workers live, gives the units of dead ones back, and starts new ones.

Everything it knows is on the disk, in the units' claims and the workers' presence files, and with the
launcher, so that another command can go on when this one is closed. Workers need nobody to look after them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from needlemap.errors import NeedlemapError
from needlemap.plan.units import Unit, rows, worth_taking
from needlemap.runs.claims import MOST_DEATHS, Claim, Ending, Standing
from needlemap.runs.launch_file import LaunchFile
from needlemap.runs.launcher import JobState, Launcher, Phase
from needlemap.runs.presence import Leaving, Worker, workers
from needlemap.runs.record import Record
from needlemap.runs.tail import Tail
from needlemap.runs.work import Work, unit_trials
from needlemap.trials.build import Experiment
from needlemap.trials.repeat import Trial

_STALE_S = 900.0  # a worker of whose job nobody knows anything is dead after so long without a sign of life
_LIVE = (Phase.PENDING, Phase.RUNNING, Phase.UNKNOWN)
_FIRST = 3  # units set aside before anything was scored: then the units are not to blame


@dataclass(frozen=True, slots=True)
class Overview:
    """How a launch stands. events: what happened since the last look. over: nothing is left to wait for."""

    states: Mapping[str, JobState]
    units: int
    done: int
    aside: Sequence[int]
    events: Sequence[str]
    over: bool

    @property
    def workers(self) -> str:
        """Jobs by what they do, and why some wait.

        >>> Overview({"1_0": JobState(Phase.PENDING, "PENDING", "Priority")}, 8, 2, (), (), False).workers
        'workers: 1 pending (Priority)'
        """
        counts = Counter(state.phase for state in self.states.values())
        reasons = {state.reason for state in self.states.values() if state.phase is Phase.PENDING} - {""}
        waiting = {Phase.PENDING: f" ({', '.join(sorted(reasons))})" if reasons else ""}
        parts = [f"{counts[phase]} {phase}{waiting.get(phase, '')}" for phase in Phase if counts[phase]]
        return f"workers: {', '.join(parts) or 'none'}"

    @property
    def progress(self) -> str:
        """Units that are done.

        >>> Overview({}, 8, 2, (), (), False).progress
        'units: 2/8 done'
        """
        aside = f", {len(self.aside)} set aside" if self.aside else ""
        return f"units: {self.done}/{self.units} done{aside}"


class Launch:
    """One launch of a run. file: what is known of it. experiment: as the workers prepare it."""

    def __init__(
        self, run: Path, file: LaunchFile, work: Work, launcher: Launcher, experiment: Experiment
    ) -> None:
        self._run, self.file, self._work, self._launcher = run, file, work, launcher
        self._units = unit_trials(work, experiment)
        self._tail = Tail(run)
        self._unseen: list[Record] = []
        self._scored = set[str]()
        self._failed: dict[str, str] = {}
        self._ended = set[str]()  # jobs and workers whose end was looked at
        self._beats: dict[str, tuple[int, float]] = {}
        self._losses = 0
        self._events: list[str] = []
        self._ending = False
        self.before = list(self.records())  # what was there before this command looked

    def records(self) -> Iterator[Record]:
        """Records that came since the last call."""
        self._pull()
        new, self._unseen = self._unseen, []
        yield from new

    def step(self) -> Overview:
        """Look at everything once, and do what is to be done."""
        shown = list(
            workers(self._work.folder)
        )  # before states: who is shown there is not one of a later start
        jobs = list(dict.fromkeys([*self.file.jobs, *(worker.job for worker, _ in shown)]))
        states = self._launcher.states(jobs)
        self._pull()
        dead = {worker.name for worker, beat in shown if self._dead(worker, beat, shown, states)}
        for claim in self._work.claims.held(self._work.claims.standing()):
            if claim.worker in dead:
                self._give_back(claim, shown, states)
        standing = self._set_aside()
        self._count_losses(shown, dead, states)
        live = [job for job in jobs if states[job].phase in _LIVE]
        refill = self._refill(standing, len(live), [worker for worker, _ in shown])
        if refill:
            self.submit(refill)
        elif not standing.free or self._stopped([worker for worker, _ in shown]):
            self._spare(live, states, standing)
        events, self._events = self._events, []
        over = not live and not refill
        return Overview(states, len(self._units), len(standing.done), sorted(standing.aside), events, over)

    def submit(self, count: int) -> None:
        """Start workers. Raises NeedlemapError in the scheduler's words.

        The launch is written down before, since workers read it, and so that a kill in between leaves no
        jobs that no other command would know of.
        """
        self.file.write(self._run)
        try:
            started = self._launcher.submit(count)
        except (NeedlemapError, OSError):
            if not self.file.jobs:
                self.close()
            raise
        self.file = replace(self.file, jobs=(*self.file.jobs, *started))
        self.file.write(self._run)
        noun = "worker" if len(started) == 1 else "workers"
        logs = f"logs: {self._launcher.log(started[0])}{', ...' * (len(started) > 1)}"
        self._events.append(f"started {len(started)} {noun}: {_brief(started)} ({logs})")

    def cancel(self) -> None:
        """End all jobs, and start no more; `step` says when they are gone."""
        self._ending = True
        self._launcher.cancel(self.file.jobs)

    def close(self) -> None:
        """Nothing is left of it."""
        self.file.close(self._run)

    def failures(self) -> dict[str, int]:
        """Trials that could not be measured, by kind."""
        return Counter(why for key, why in self._failed.items() if key not in self._scored)

    def errors(self) -> list[str]:
        """What workers found wrong with the settings, on their machines at least."""
        return list(dict.fromkeys(worker.why for worker in self.leavings() if worker.left is Leaving.ERROR))

    def leavings(self) -> list[Worker]:
        """The workers that ended by themselves, with how."""
        return [worker for worker, _ in workers(self._work.folder) if worker.left is not None]

    def aside(self) -> list[tuple[Unit, list[Trial], list[str]]]:
        """Units that were set aside, the trials of each that have no score, and the logs of its workers."""
        found = []
        for place in sorted(self._work.claims.standing().aside):
            left = [trial for trial in self._units[place] if trial.key not in self._scored]
            logs = [
                str(self._launcher.log(name.partition("-again-")[0]))
                for name, _ in self._work.claims.endings(place)
            ]
            found.append((self._work.units[place], left, list(dict.fromkeys(logs))))
        return found

    def unasked(self) -> int:
        """Trials of units that nobody did."""
        standing = self._work.claims.standing()
        units = [unit for unit in range(len(self._units)) if unit in standing.free or unit in standing.held]
        return sum(trial.key not in self._scored for unit in units for trial in self._units[unit])

    def _pull(self) -> None:
        for record in self._tail.new():
            self._unseen.append(record)
            if record.scored:
                self._scored.add(record.key)
            else:
                self._failed[record.key] = record.failure or "unknown"

    def _dead(
        self,
        worker: Worker,
        beat: int,
        shown: Sequence[tuple[Worker, int]],
        states: Mapping[str, JobState],
    ) -> bool:
        """Whether a worker will never do anything any more."""
        if worker.left is not None or any(
            other.job == worker.job and other.restart > worker.restart for other, _ in shown
        ):
            return True
        phase = states[worker.job].phase
        if phase is Phase.UNKNOWN:
            return self._stale(worker, beat)
        return phase is not Phase.RUNNING  # pending: it was requeued

    def _stale(self, worker: Worker, beat: int) -> bool:
        """Whether its file was not touched for long, by our own clock: clocks of machines differ."""
        now = time.monotonic()
        if self._beats.get(worker.name, (None,))[0] != beat:
            self._beats[worker.name] = (beat, now)
        return now - self._beats[worker.name][1] > _STALE_S

    def _give_back(
        self, claim: Claim, shown: Sequence[tuple[Worker, int]], states: Mapping[str, JobState]
    ) -> None:
        (worker,) = [worker for worker, _ in shown if worker.name == claim.worker]
        state = states[worker.job]
        left = sum(trial.key not in self._scored for trial in self._units[claim.unit])
        blameless = worker.left is not None or state.blameless or state.phase is not Phase.ENDED
        ending = Ending.RETURNED if blameless else Ending.DIED if left < claim.left else Ending.STUCK
        self._work.claims.end(claim, ending, state.word)

    def _set_aside(self) -> Standing:
        """Take units out that killed their worker too often."""
        claims = self._work.claims
        standing = claims.standing()
        for unit in standing.suspect:
            if standing.deaths[unit] >= MOST_DEATHS:
                why = f"its worker died {standing.deaths[unit]} times in a row"
                claims.set_aside(unit, why)
                self._events.append(f"unit {unit} is set aside: {why}")
        return claims.standing()

    def _count_losses(
        self, shown: Sequence[tuple[Worker, int]], dead: set[str], states: Mapping[str, JobState]
    ) -> None:
        """Tell of workers that ended before their time, and count those that did nothing."""
        named = {worker.job for worker, _ in shown}
        for worker, _ in shown:
            if worker.name in dead and worker.name not in self._ended:
                self._ended.add(worker.name)
                self._tell(worker, states[worker.job])
                worked = bool(worker.records) and (self._run / worker.records).exists()
                self._losses += worker.left in (None, Leaving.TOLD) and not worked
        for job, state in states.items():
            if state.phase is Phase.ENDED and job not in named and job not in self._ended:
                self._ended.add(job)
                self._losses += 1
                self._events.append(f"{job}: {state.word} before it began; log: {self._launcher.log(job)}")

    def _tell(self, worker: Worker, state: JobState) -> None:
        if worker.left is Leaving.DONE:
            return
        how = f"{worker.left}. {worker.why}".rstrip(". ") if worker.left else state.word
        again = " (it starts again)" if state.phase is Phase.PENDING else ""
        log = self._launcher.log(worker.job)
        self._events.append(f"{worker.name} on {worker.host}: {how}{again}; log: {log}")

    def _refill(self, standing: Standing, live: int, shown: Sequence[Worker]) -> int:
        """How many workers to start: as many as are missing and have something to do."""
        if self._ending or self._stopped(shown) or self._losses > self.file.retry * self.file.workers:
            return 0
        there = worth_taking(rows(self._work.units, standing.fresh, standing.held))
        return max(0, min(self.file.workers - live, len(there) + len(standing.suspect)))

    def _stopped(self, shown: Sequence[Worker]) -> bool:
        """Whether no worker could do better than those that ended."""
        standing = self._work.claims.standing()
        broken = len(standing.aside) >= _FIRST and not self._scored
        return broken or any(worker.left in (Leaving.LIMIT, Leaving.ERROR) for worker in shown)

    def _spare(self, live: Sequence[str], states: Mapping[str, JobState], standing: Standing) -> None:
        """Call off jobs that still wait though nothing is left for them."""
        waiting = [job for job in live if states[job].phase is Phase.PENDING]
        if waiting and not standing.held:
            self._events.append(f"{len(waiting)} waiting jobs are not needed any more and are cancelled")
            self._launcher.cancel(waiting)


def _brief(jobs: Sequence[str]) -> str:
    """Jobs by name, the first and the last where there are many.

    >>> _brief(["7_0", "7_1"]), _brief(["7_0", "7_1", "7_2"])
    ('7_0, 7_1', '7_0 ... 7_2')
    """
    return ", ".join(jobs) if len(jobs) < 3 else f"{jobs[0]} ... {jobs[-1]}"
