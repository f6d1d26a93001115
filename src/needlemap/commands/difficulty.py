"""`needlemap run --difficulty auto`: make a task harder until a reference model errs, then measure
it there.

A task at which a model is always right, or always wrong, tells nothing about how it compares with
others.

Each step of the dial is a run of one repeat, under RUN/pilots; the chosen one's answers begin the
run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from needlemap.asking import Outcome
from needlemap.asking.campaign import Batches, Campaign, FullGrid, Strategy
from needlemap.asking.session import Session
from needlemap.commands.announce import interrupted, notes, tell_rules, terminable, verdict
from needlemap.commands.arguments import ReplicaFlags, RunFlags
from needlemap.commands.run import Terminal, model_of, show_result, show_usage
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.files import RUN_FILE, make_folder, read_regular, read_yaml, write_whole
from needlemap.maps.means import Map
from needlemap.records.families import begin_families, fresh_folder
from needlemap.records.folder import RunFolder, records_files
from needlemap.records.loaded import load_run
from needlemap.records.lock import hold_folder
from needlemap.registry import find, find_kind, installed
from needlemap.reports.labels import score_label
from needlemap.settings import Settings
from needlemap.settings.reading import checked
from needlemap.settings.suites import Chosen, only_model
from needlemap.tasks import Task
from needlemap.text import tell
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
        """Settings at this difficulty. Raises SettingsError for another task, and for other options
        of it."""
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
    """The step to freeze: the last, whose score is no more than 95 %, or the one before, if the
    last is further from the range.

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
    """Families with the options of a frozen difficulty. named: its file, or the folder of a run
    with one of each family. Raises SettingsError."""
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


def auto_command(named: Mapping[str, Chosen], typed: RunFlags, replicas: ReplicaFlags) -> int:
    """Find a difficulty for each family, freeze it, and measure the model at it; the exit code."""
    chosen = only_model(named)
    settings = chosen.first
    shown = replace(typed, out=None, difficulty=None, trust_run=False)
    if shown != RunFlags() or not settings.save:
        out_of = "--live, --json, --fail-under and --no-save"
        raise SettingsError(f"--difficulty {AUTO} is several runs: leave {out_of} out.")
    if any(each.seek is not None or each.until for each in chosen.families.values()):
        raise SettingsError(f"--difficulty {AUTO} asks whole grids: leave --seek and --until out.")
    tell_rules(chosen)
    path = typed.out or fresh_folder(settings, chosen.suite)
    with hold_folder(path):
        return _ask_at_steps(chosen, path, typed, replicas)


def _ask_at_steps(chosen: Chosen, path: Path, typed: RunFlags, replicas: ReplicaFlags) -> int:
    settings = chosen.first
    wanted = [
        _Family(name, each, dial_of(each.task), path / name)
        for name, each in chosen.families.items()
    ]
    for each in wanted:
        each.check_folder()
    families = begin_families(path, chosen.suite, tuple(chosen.families))
    model = model_of(replicas, settings, path)
    if not settings.quiet:
        notes(model)
    face = _Steps({"": chosen}, path, typed)
    face.families = families
    with face, terminable() as ending:
        try:
            ending.run(Campaign(models={"": model}).run(StepsOfDials(wanted, face)))
        except KeyboardInterrupt:
            return interrupted(settings, path, ending.code)
        _end(face)
    return face.code


class _Steps(Terminal):
    """Shows the maps of the chosen steps alone, at the end."""

    def ended(self, name: str, session: Session, outcome: Outcome) -> None:
        """Say what it used, and what stopped it."""
        if not self.settings.quiet:
            show_usage(session, load_run(session.folder))
        self.code = max(self.code, verdict(outcome, session, self._home))

    def whole(self, name: str, session: Session) -> None:
        """Nothing: the end shows it."""


def _end(face: _Steps) -> None:
    """Show the map or the table, and how others are asked the same."""
    path, settings = face.families.path, face.settings
    if face.families.is_plain and RunFolder(path).exists:
        show_result(settings, load_run(path))
    face.end()
    if face.families.begun and not settings.quiet and RunFolder(face.families.folders[0]).exists:
        frozen = path / FILE if face.families.is_plain else path
        tell(f"others at the same difficulty: --difficulty {frozen}")


class StepsOfDials(Strategy[None]):
    """Each family's pilots until one is hard enough, then the family itself."""

    def __init__(self, wanted: Sequence[_Family], face: _Steps) -> None:
        super().__init__(face, [path for each in wanted for path in (each.path, *each.pilots)])
        self._wanted, self._steps = wanted, face

    def batches(self) -> Batches[None]:
        """Family by family, as long as another can be asked."""
        for each in self._wanted:
            if not (yield from self._measure(each)):
                break

    def _measure(self, each: _Family) -> Batches[bool]:
        """Whether to go on with the next family."""
        face, scores = self._steps, list[float]()
        for step, (options, pilot) in enumerate(zip(each.dial, each.pilots, strict=True), 1):
            once = at_step(each.settings.model_copy(update={"repeats": 1}), options)
            outcome = yield from self._ask(each, once, pilot)
            score = _score(load_run(pilot).map) if RunFolder(pilot).exists else None
            if score is None or (outcome and (outcome.over or outcome.failures)):
                face.code = face.code or 1
                return not (outcome and outcome.over)
            scores.append(score)
            said = ", ".join(f"{option}={value}" for option, value in options.items())
            tell(f"step {step} of {len(each.dial)}: {said}: {score_label(score)}")
            if score <= HIGHEST:
                break
        frozen = chosen_step(scores)
        each.freeze(frozen, scores[frozen])
        if not in_range(scores[frozen]):
            found = f"{each.settings.model} scores {score_label(scores[frozen])}, outside 60 to 95"
            tell(f"warning: {found}: {missed(scores, frozen)}")
        self.folders.remove(each.pilots[frozen])  # its answers are the family's first
        whole = at_step(each.settings, each.dial[frozen])
        outcome = yield from self._ask(each, whole, each.path)
        return not (outcome and outcome.over)

    def _ask(self, each: _Family, settings: Settings, path: Path) -> Batches[Outcome | None]:
        session = Session.open(prepare(settings), path)
        return (yield from FullGrid(session, self.face, each.name).batches())


@dataclass(frozen=True, slots=True)
class _Family:
    """One to be measured. dial: its task's sets of options. path: its folder."""

    name: str
    settings: Settings
    dial: Sequence[Mapping[str, Any]]
    path: Path

    @property
    def pilots(self) -> list[Path]:
        """The folders of its steps."""
        return [self.path / _PILOTS / str(step) for step in range(len(self.dial))]

    def freeze(self, step: int, score: float) -> None:
        """Write the difficulty's file, and let the run begin with the pilot's answers."""
        pilot, options = self.pilots[step], dict(self.dial[step])
        n = load_run(pilot).map.n
        reference = TuningReference(model=self.settings.model, score=round(100 * score, 2), n=n)
        made = Difficulty(task=self.settings.task, task_options=options, reference=reference)
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


def _score(map: Map) -> float | None:
    """What a pilot came to; None, which is said, where some of it was not measured."""
    if map.missing:
        tell(f"needlemap: {map.missing} prompts of a pilot were not measured")
        return None
    return map.overall
