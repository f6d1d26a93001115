"""`needlemap run --difficulty auto`: make a task harder until a reference model errs, then measure it there.

Each step of the dial is a run of one repeat, under RUN/pilots; the chosen one's answers begin the run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

from needlemap.commands.run import fresh, notes, show_result, verdict
from needlemap.commands.settle import settle
from needlemap.commands.suite import ask_session
from needlemap.commands.termination import terminable
from needlemap.difficulty import (
    AUTO,
    FILE,
    HIGHEST,
    Difficulty,
    Reference,
    at_step,
    chosen,
    dial_of,
    in_range,
    missed,
    read_difficulty,
)
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.files import make_folder, write_whole
from needlemap.maps.map import Map
from needlemap.models.base import Model
from needlemap.runs.families import budget_beside
from needlemap.runs.loaded import load_map
from needlemap.runs.session import Session, make_model
from needlemap.runs.store import RUN_FILE, RunFolder, records_files
from needlemap.settings.settings import Settings
from needlemap.suites import suite_name
from needlemap.text.printable import show
from needlemap.trials.build import prepare

_PILOTS = "pilots"


def with_difficulty(preset: str | None, flags: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Flags with a frozen difficulty's options. Raises SettingsError."""
    _refuse_suite(preset)
    if file == AUTO:
        raise SettingsError(
            f"--difficulty {AUTO} asks a model in this process: for needlemap run without workers. Here: "
            f"--difficulty FILE"
        )
    settings = settle(preset, flags)
    applied = read_difficulty(Path(file)).applied(settings)
    for name, value in flags.get("task_options", {}).items():
        if applied.task_options[name] != value:
            raise SettingsError(
                f"--difficulty {file} sets {name}={applied.task_options[name]}: leave it out."
            )
    return {**flags, "task_options": applied.task_options}


def auto_command(preset: str | None, out: Path | None, flags: Mapping[str, Any], live: bool) -> int:
    """Find a difficulty, freeze it, and measure the model at it; the exit code."""
    _refuse_suite(preset)
    settings = settle(preset, flags)
    if live or not settings.save:
        raise SettingsError(f"--difficulty {AUTO} is several runs: leave --live and --no-save out.")
    dial, path = dial_of(settings.task), out or fresh(settings)
    _check_folder(path, settings)
    model = make_model(settings)
    if not settings.quiet:
        notes(model)
    with terminable() as ending:
        try:
            code = ending.run(_measured(settings, dial, path, model))
        except KeyboardInterrupt:
            show(f"needlemap: interrupted. To go on: the same command with -o {path}", file=sys.stderr)
            return ending.code
    if RunFolder(path).exists:
        show_result(load_map(path), settings, path)
        if not settings.quiet:
            show(f"others at the same difficulty: --difficulty {path / FILE}", file=sys.stderr)
    return code


async def _measured(settings: Settings, dial: Sequence[Mapping[str, Any]], path: Path, model: Model) -> int:
    """Pilots until one is hard enough, then the run itself; the exit code."""
    started, scores = monotonic(), list[float]()
    pilots = [path / _PILOTS / str(step) for step in range(len(dial))]
    try:
        for step, options in enumerate(dial):
            pilot = at_step(settings.model_copy(update={"repeats": 1}), options)
            code = await _asked(pilot, pilots[step], [*pilots, path], model, started)
            score = _score(load_map(pilots[step]))
            if code or score is None:
                return code or 1
            scores.append(score)
            said = ", ".join(f"{name}={value}" for name, value in options.items())
            show(f"step {step + 1} of {len(dial)}: {said}: {100 * score:.1f}", file=sys.stderr)
            if score <= HIGHEST:
                break
        frozen = chosen(scores)
        _freeze(settings, dial[frozen], pilots[frozen], path, scores[frozen])
        if not in_range(scores[frozen]):
            found = f"{settings.model} scores {100 * scores[frozen]:.1f}, outside 60 to 95"
            show(f"warning: {found}: {missed(scores, frozen)}", file=sys.stderr)
        final = at_step(settings, dial[frozen])
        return await _asked(final, path, [each for each in pilots if each != pilots[frozen]], model, started)
    finally:
        await model.close()


async def _asked(
    settings: Settings, path: Path, others: Sequence[Path], model: Model, started_s: float
) -> int:
    """Ask what is left of one run, with what the others spent counted; the exit code."""
    session = Session.open(prepare(settings), path)
    if not session.wanted:
        return 0
    budget = budget_beside(settings, [other for other in others if other != path], started_s)
    outcome = await ask_session(replace(session, budget=budget), model)
    return verdict(outcome, session.experiment, path)


def _freeze(settings: Settings, options: Mapping[str, Any], pilot: Path, path: Path, score: float) -> None:
    """Write the difficulty's file, and let the run begin with the pilot's answers."""
    n = load_map(pilot).n
    reference = Reference(model=settings.model, score=round(100 * score, 2), n=n)
    made = Difficulty(task=settings.task, task_options=dict(options), reference=reference)
    make_folder(path)
    write_whole(path / FILE, made.text().encode())
    if not RunFolder(path).exists:
        for file in [*records_files(pilot), pilot / RUN_FILE]:
            write_whole(path / file.name, file.read_bytes())


def _score(map: Map) -> float | None:
    if map.missing:
        show(f"needlemap: {map.missing} prompts of a pilot were not measured", file=sys.stderr)
        return None
    return map.overall


def _check_folder(path: Path, settings: Settings) -> None:
    """Raises NeedlemapError for a run's folder that was begun in another way."""
    if RunFolder(path).exists and not (path / FILE).is_file():
        raise NeedlemapError(f"'{path}' holds a run without a difficulty. Give another folder with -o.")
    if (path / FILE).is_file() and (was := read_difficulty(path / FILE)).reference.model != settings.model:
        raise NeedlemapError(
            f"The difficulty of '{path}' was found with {was.reference.model}. To ask {settings.model} at "
            f"it: --difficulty {path / FILE} and another folder."
        )


def _refuse_suite(preset: str | None) -> None:
    if suite_name(preset) is not None:
        raise SettingsError("--difficulty is one task's. Give a preset, not a suite.")
