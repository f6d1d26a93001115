"""Find the checkpoints of a series, which are named together as `hf/run/step-*`.

A series stands for several models, one for each folder that matches, in the order of their steps. A
checkpoint's step is read from its `trainer_state.json`, which transformers' Trainer writes, or else
from the last number in the folder's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from glob import glob
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.files import read_regular
from needlemap.untrusted import read_json

STATE = "trainer_state.json"
# A state has a line for each time that its training logged.
_MOST_BYTES = 64 << 20
_NUMBER = re.compile(r"\d+")


def expand_series(subjects: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield models, and in place of each series its checkpoints with their steps.

    Raises SettingsError for a series that no folder matches.
    """
    for subject in subjects:
        if not is_series(subject.get("model", "")):
            yield dict(subject)
            continue
        backend, _, pattern = str(subject["model"]).partition("/")
        for folder in checkpoints(backend, pattern):
            step = step_of(folder)
            step_setting = {} if step is None else {"step": step}
            yield {**subject, "model": f"{backend}/{folder}", **step_setting}


def is_series(model: str) -> bool:
    """Return True if a model's name stands for several folders."""
    return "*" in model


def is_several(model: Any) -> bool:
    """Return True if a setting `model` names several models: a list, or a series."""
    return isinstance(model, list) or (isinstance(model, str) and is_series(model))


def checkpoints(backend: str, pattern: str) -> list[str]:
    """Return the folders that match a pattern, in the order of their steps.

    If a step is unknown, they are in the order of their names. Raises SettingsError if no folder
    matches.
    """
    folders = [path for path in glob(pattern) if Path(path).is_dir()]
    if not folders:
        others = sorted(path for path in glob(f"{Path(pattern).parent}/*") if Path(path).is_dir())
        hint = f" There are: {', '.join(others[:5])}." if others else ""
        raise SettingsError(
            f"No folder matches '{pattern}'.{hint} Give the pattern of a training's checkpoints "
            f"in quotes, as --model '{backend}/FOLDER/checkpoint-*'."
        )

    steps = {folder: step_of(folder) for folder in folders}
    all_known = all(step is not None for step in steps.values())
    return sorted(
        folders,
        key=lambda folder: (steps[folder] if all_known else 0, natural_sort_key(folder)),
    )


def step_of(folder: str) -> int | None:
    """Return the training step of a checkpoint, from its state or else from its name.

    If neither has a step, the result is None.
    """
    try:
        state = read_json(read_regular(Path(folder) / STATE, _MOST_BYTES))
    except (OSError, ValueError, NeedlemapError):
        state = None
    step = state.get("global_step") if isinstance(state, dict) else None
    if isinstance(step, int) and not isinstance(step, bool) and step >= 0:
        return step
    numbers = _NUMBER.findall(Path(folder).name)
    return int(numbers[-1]) if numbers and len(numbers[-1]) < 16 else None


def natural_sort_key(text: str) -> list[tuple[int, str]]:
    """Return a sort key by which numbers in texts are sorted by their size.

    >>> sorted(["step-1000", "step-200", "last"], key=natural_sort_key)
    ['last', 'step-200', 'step-1000']
    """
    parts = re.split(r"(\d+)", text)
    return [
        (int(part), "") if part.isdecimal() and part.isascii() else (-1, part) for part in parts
    ]
