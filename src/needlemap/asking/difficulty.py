"""`needlemap run --difficulty auto`: make a task harder until a reference model errs, then
measure it there.

A task at which a model is always right, or always wrong, tells nothing about how it compares
with others.

Each step of the dial is a run of one repeat, under RUN/pilots; the chosen one's answers begin
the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from needlemap.asking import Outcome
from needlemap.asking.campaign import Batches, FullGrid, RunObserver, Strategy
from needlemap.asking.session import Session
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.files import RUN_FILE, make_folder, read_regular, read_yaml, write_whole
from needlemap.records.folder import RunFolder, records_files
from needlemap.records.loaded import load_run
from needlemap.registry import find, find_kind, installed
from needlemap.settings import Settings
from needlemap.settings.reading import checked
from needlemap.settings.suites import Chosen
from needlemap.tasks import Task
from needlemap.trials.build import prepare

FILE = "difficulty.yaml"
AUTO = "auto"
LOWEST, HIGHEST = 0.60, 0.95  # of the reference model's score
_PILOTS = "pilots"


class TuningReference(BaseModel):
    """On what a difficulty was found: score in percent, of n prompts."""

    model: str
    score: float
    n: int


class Difficulty(BaseModel):
    """A task's options as they were frozen."""

    model_config = ConfigDict(extra="forbid")
    task: str
    task_options: dict[str, Any]
    reference: TuningReference

    def text(self) -> str:
        """As a file, which other runs take with --difficulty."""
        return str(yaml.safe_dump(self.model_dump(), sort_keys=False, allow_unicode=True))

    def applied(self, settings: Settings) -> Settings:
        """Settings at this difficulty. Raises SettingsError for another task, and for other
        options of it."""
        if settings.task != self.task:
            raise SettingsError(
                f"The difficulty is of task '{self.task}', the run's is '{settings.task}'."
            )
        return at_step(settings, self.task_options)


def read_difficulty(path: Path) -> Difficulty:
    """A file that a run with `--difficulty auto` wrote. Raises SettingsError."""
    if not path.is_file():
        raise SettingsError(
            f"No file at '{path}'. Give the {FILE} of a run with --difficulty {AUTO}."
        )
    try:
        return Difficulty.model_validate(read_yaml(read_regular(path).decode("utf-8")))
    except (yaml.YAMLError, UnicodeDecodeError, ValidationError) as error:
        raise SettingsError(f"'{path}' is no difficulty: {' '.join(str(error).split())}") from None


def dial_of(task: str) -> Sequence[Mapping[str, Any]]:
    """A task's sets of options, ascending. Raises SettingsError for a task without a dial."""
    if dial := find_kind("tasks", task, Task).dial:
        return dial
    dialled = [
        name for name in sorted(installed("tasks")) if getattr(find("tasks", name), "dial", ())
    ]
    raise SettingsError(
        f"Task '{task}' has no dial to be made harder by. Tasks that have: {', '.join(dialled)}."
    )


def at_step(settings: Settings, options: Mapping[str, Any]) -> Settings:
    """Settings with a step's options over the task's own."""
    merged = {**settings.task_options, **options}
    return checked({**settings.model_dump(), "task_options": merged}, "the task's dial")


def in_range(score: float) -> bool:
    """Whether a reference model's score leaves room both ways."""
    return LOWEST <= score <= HIGHEST


def chosen_step(scores: Sequence[float]) -> int:
    """The step to freeze: the last, whose score is no more than 95 %, or the one before, if
    the last is further from the range.

    >>> [chosen_step(scores) for scores in ([1.0, 0.8], [1.0, 0.96, 0.2], [0.3], [1.0, 1.0])]
    [1, 1, 0, 1]
    """
    last = len(scores) - 1
    if last and scores[-1] < LOWEST and scores[-2] - HIGHEST < LOWEST - scores[-1]:
        return last - 1
    return last


def missed(scores: Sequence[float], step: int) -> str:
    """Why the step that was chosen of those measured lies outside the range.

    >>> missed([1.0, 1.0], 1), missed([0.1], 0), missed([1.0, 0.2], 0), missed([0.97, 0.5], 1)
    ('no step is hard enough', 'no step is easy enough', 'step 2 is too hard', 'step 1 is too easy')
    """
    if scores[step] > HIGHEST:
        return (
            "no step is hard enough" if step == len(scores) - 1 else f"step {step + 2} is too hard"
        )
    return f"step {step} is too easy" if step else "no step is easy enough"


def at_difficulty(chosen: Chosen, flags: Mapping[str, Any], named: str) -> Chosen:
    """Families with the options of a frozen difficulty. named: its file, or the folder of a
    run with one of each family. Raises SettingsError."""
    if named == AUTO:
        raise SettingsError(
            f"--difficulty {AUTO} asks a model: for needlemap run. Here: --difficulty FILE"
        )
    found = {}
    for name, settings in chosen.families.items():
        file = Path(named) / name / FILE if Path(named).is_dir() else Path(named)
        found[name] = read_difficulty(file).applied(settings)
        for option, value in flags.get("task_options", {}).items():
            if found[name].task_options[option] != value:
                raise SettingsError(
                    f"--difficulty {named} sets {option}={found[name].task_options[option]}: leave "
                    f"it out."
                )
    return replace(chosen, families=found)


@dataclass(frozen=True, slots=True)
class Dialled:
    """A family to be measured. dial: its task's sets of options. path: its folder."""

    name: str
    settings: Settings
    dial: Sequence[Mapping[str, Any]]
    path: Path

    @property
    def pilots(self) -> list[Path]:
        """The folders of its steps."""
        return [self.path / _PILOTS / str(step) for step in range(len(self.dial))]

    def freeze(self, step: TriedStep) -> None:
        """Write the difficulty's file, and let the run begin with the pilot's answers."""
        pilot, score = self.pilots[step.number - 1], round(100 * step.score, 2)
        reference = TuningReference(model=self.settings.model, score=score, n=step.n)
        made = Difficulty(
            task=self.settings.task, task_options=dict(step.options), reference=reference
        )
        make_folder(self.path)
        write_whole(self.path / FILE, made.text().encode())
        if not RunFolder(self.path).exists:
            for file in [*records_files(pilot), pilot / RUN_FILE]:
                write_whole(self.path / file.name, file.read_bytes())

    def check_folder(self) -> None:
        """Raises NeedlemapError for a run's folder that was begun in another way."""
        file, model = self.path / FILE, self.settings.model
        if RunFolder(self.path).exists and not file.is_file():
            raise NeedlemapError(
                f"'{self.path}' holds a run without a difficulty. Give another folder with -o."
            )
        if file.is_file() and (was := read_difficulty(file)).reference.model != model:
            raise NeedlemapError(
                f"The difficulty of '{self.path}' was found with {was.reference.model}. To ask "
                f"{model} at "
                f"it: --difficulty {file} and another folder."
            )


@dataclass(frozen=True, slots=True)
class TriedStep:
    """A step that was measured. number: from 1. score: the share of n prompts."""

    number: int
    options: Mapping[str, Any]
    score: float
    n: int


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was found for a family. frozen: the number of the step that was taken; None where
    one could not be measured."""

    family: Dialled
    steps: Sequence[TriedStep]
    frozen: int | None = None

    @property
    def off(self) -> str:
        """Why the reference model's score at the frozen step lies outside the range; '' if it
        does not."""
        if self.frozen is None or in_range(self.steps[self.frozen - 1].score):
            return ""
        return missed([step.score for step in self.steps], self.frozen - 1)


class DialObserver(RunObserver):
    """Hears how the steps of a dial go, too; this one shows nothing."""

    def tried(self, family: Dialled, step: TriedStep) -> None:
        """A step was measured."""

    def unmeasured(self, missing: int) -> None:
        """A step was not measured whole, which ends the family. missing: prompts; 0 where
        nothing of it was asked, or a limit ended it."""


class StepsOfDials(Strategy[list[Tuned]]):
    """Each family's pilots until one is hard enough, then the family itself."""

    def __init__(self, wanted: Sequence[Dialled], observer: DialObserver) -> None:
        super().__init__(observer, [path for each in wanted for path in (each.path, *each.pilots)])
        self._wanted, self._dials = wanted, observer

    def batches(self) -> Batches[list[Tuned]]:
        """Family by family, as long as another can be asked."""
        found = list[Tuned]()
        for each in self._wanted:
            tuned, over = yield from self._measure(each)
            found.append(tuned)
            if over:
                break
        return found

    def _measure(self, each: Dialled) -> Batches[tuple[Tuned, bool]]:
        """What was found, and whether nothing more can be asked."""
        observer, steps = self._dials, list[TriedStep]()
        for number, (options, pilot) in enumerate(zip(each.dial, each.pilots, strict=True), 1):
            once = at_step(each.settings.model_copy(update={"repeats": 1}), options)
            outcome = yield from self._ask(each, once, pilot)
            map = load_run(pilot).map if RunFolder(pilot).exists else None
            cut = outcome is not None and bool(outcome.over or outcome.failures)
            if map is None or map.missing or map.overall is None or cut:
                observer.unmeasured(map.missing if map else 0)
                return Tuned(each, steps), outcome is not None and outcome.over
            steps.append(TriedStep(number, options, map.overall, map.n))
            observer.tried(each, steps[-1])
            if map.overall <= HIGHEST:
                break
        at = chosen_step([step.score for step in steps])
        each.freeze(steps[at])
        self.folders.remove(each.pilots[at])  # its answers are the family's first
        whole = at_step(each.settings, each.dial[at])
        outcome = yield from self._ask(each, whole, each.path)
        return Tuned(each, steps, at + 1), outcome is not None and outcome.over

    def _ask(self, each: Dialled, settings: Settings, path: Path) -> Batches[Outcome | None]:
        session = Session.open(prepare(settings), path)
        return (yield from FullGrid(session, self.observer, each.name).batches())
