"""A series: checkpoints of one training, named together as `hf/run/step-*`.

It stands for several models, one a folder that matches, in the order of their steps. A checkpoint's
step is what its `trainer_state.json` says (transformers' Trainer writes it), else the last number
in the folder's name.
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
_MOST_BYTES = 64 << 20  # a state has a line for each time that its training logged
_NUMBER = re.compile(r"\d+")


def expanded(subjects: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Models, each series among them as its checkpoints, with their steps. Raises SettingsError
    for a series that no folder matches."""
    for subject in subjects:
        if not is_series(subject.get("model", "")):
            yield dict(subject)
            continue
        backend, _, pattern = str(subject["model"]).partition("/")
        for folder in checkpoints(backend, pattern):
            step = step_of(folder)
            known = {} if step is None else {"step": step}
            yield {**subject, "model": f"{backend}/{folder}", **known}


def is_series(model: str) -> bool:
    """Whether a model's name stands for several folders."""
    return "*" in model


def is_several(model: Any) -> bool:
    """Whether a setting `model` names several: a list, or a series."""
    return isinstance(model, list) or (isinstance(model, str) and is_series(model))


def checkpoints(backend: str, pattern: str) -> list[str]:
    """The folders that match, by step, and by name where a step is unknown. Raises
    SettingsError."""
    found = [each for each in glob(pattern) if Path(each).is_dir()]
    if not found:
        there = sorted(each for each in glob(f"{Path(pattern).parent}/*") if Path(each).is_dir())
        beside = f" There are: {', '.join(there[:5])}." if there else ""
        raise SettingsError(
            f"No folder matches '{pattern}'.{beside} Give the pattern of a training's checkpoints "
            f"in quotes, as --model '{backend}/FOLDER/checkpoint-*'."
        )
    steps = {each: step_of(each) for each in found}
    whole = all(step is not None for step in steps.values())
    return sorted(found, key=lambda each: (steps[each] if whole else 0, natural(each)))


def step_of(folder: str) -> int | None:
    """The training step of a checkpoint; None where neither its state nor its name says."""
    try:
        state = read_json(read_regular(Path(folder) / STATE, _MOST_BYTES))
    except (OSError, ValueError, NeedlemapError):
        state = None
    step = state.get("global_step") if isinstance(state, dict) else None
    if isinstance(step, int) and not isinstance(step, bool) and step >= 0:
        return step
    numbers = _NUMBER.findall(Path(folder).name)
    return int(numbers[-1]) if numbers and len(numbers[-1]) < 16 else None


def natural(text: str) -> list[tuple[int, str]]:
    """A key that sorts numbers in texts by their size.

    >>> sorted(["step-1000", "step-200", "last"], key=natural)
    ['last', 'step-200', 'step-1000']
    """
    parts = re.split(r"(\d+)", text)
    return [
        (int(each), "") if each.isdecimal() and each.isascii() else (-1, each) for each in parts
    ]
