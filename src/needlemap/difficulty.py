"""How hard a task is: its dial, the setting at which a reference model errs now and then, and the file of it.

A task at which a model is always right, or always wrong, tells nothing about how it compares with others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from needlemap.errors import SettingsError
from needlemap.files import read_regular, read_yaml
from needlemap.settings.reading import checked
from needlemap.settings.registry import find, installed
from needlemap.settings.settings import Settings
from needlemap.tasks.base import Dialled

FILE = "difficulty.yaml"
AUTO = "auto"
LOWEST, HIGHEST = 0.60, 0.95  # of the reference model's score


class Reference(BaseModel):
    """On what a difficulty was found: score in percent, of n prompts."""

    model: str
    score: float
    n: int


class Difficulty(BaseModel):
    """A task's options as they were frozen."""

    model_config = ConfigDict(extra="forbid")
    task: str
    task_options: dict[str, Any]
    reference: Reference

    def text(self) -> str:
        """As a file, which other runs take with --difficulty."""
        return str(yaml.safe_dump(self.model_dump(), sort_keys=False, allow_unicode=True))

    def applied(self, settings: Settings) -> Settings:
        """Settings at this difficulty. Raises SettingsError for another task, and for other options of it."""
        if settings.task != self.task:
            raise SettingsError(f"The difficulty is of task '{self.task}', the run's is '{settings.task}'.")
        return at_step(settings, self.task_options)


def read_difficulty(path: Path) -> Difficulty:
    """A file that a run with `--difficulty auto` wrote. Raises SettingsError."""
    if not path.is_file():
        raise SettingsError(f"No file at '{path}'. Give the {FILE} of a run with --difficulty {AUTO}.")
    try:
        return Difficulty.model_validate(read_yaml(read_regular(path).decode("utf-8")))
    except (yaml.YAMLError, UnicodeDecodeError, ValidationError) as error:
        raise SettingsError(f"'{path}' is no difficulty: {' '.join(str(error).split())}") from None


def dial_of(task: str) -> Sequence[Mapping[str, Any]]:
    """A task's sets of options, ascending. Raises SettingsError for a task without a dial."""
    kind = find("tasks", task)
    if isinstance(kind, Dialled):
        return kind.dial
    dialled = [name for name in sorted(installed("tasks")) if isinstance(find("tasks", name), Dialled)]
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
    """The step to freeze: the last, whose score is no more than 95 %, or the one before, if the last is
    further from the range.

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
        return "no step is hard enough" if step == len(scores) - 1 else f"step {step + 2} is too hard"
    return f"step {step} is too easy" if step else "no step is easy enough"
