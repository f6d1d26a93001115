"""Run `needlemap replay`: rebuild a prompt of a run byte for byte, check it, and send it again."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from needlemap.asking import decoding_of
from needlemap.asking.resume import GRID_MODES
from needlemap.asking.session import make_model
from needlemap.commands.arguments import ReplayFlags
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.grid import Depths, Lengths, percent, setting, tokens
from needlemap.models import Answer
from needlemap.models.call import call_model
from needlemap.records.folder import RunFolder
from needlemap.records.loaded import load_run
from needlemap.records.origin import CheckedRun
from needlemap.records.record import Record
from needlemap.reports.labels import length_labels, score_label
from needlemap.secrets import check_key_names
from needlemap.settings import Settings
from needlemap.settings.trust import refuse_untyped_model
from needlemap.text import show_data, tell
from needlemap.trials import Trial
from needlemap.trials.build import prepare
from needlemap.trials.resolve import ready_prompts

# The largest difference, in percent, between a depth and the rounded depth that people type.
_NEAR = 1e-3

# The family's folder, the length as typed, the depth in percent, and the repeat.
Place = tuple[Path, str, float, int]


class PlaceFlags(Protocol):
    """Flags that another package adds to `replay`, which name the prompt to replay."""

    def find_place(self, folder: Path) -> Place | None:
        """Return which prompt to replay, or None if none of these flags is typed.

        Raise NeedlemapError if the folder has no such prompt.
        """


def replay_command(folder: Path, typed: ReplayFlags, added: Sequence[PlaceFlags] = ()) -> None:
    """Print a prompt's messages, whether its hash is the recorded one, and both answers.

    added: the flags of other packages. Raises NeedlemapError if the prompt cannot be rebuilt as it
    was, or if a model or a key is neither typed nor trusted.
    """
    folder, typed_length, depth, repeat = _find_place(folder, typed, added=added)
    run = CheckedRun.of(folder, typed.trust_run)
    cells = run.about.cells
    settings = run.settings()
    if typed.ask:
        settings = _askable(run, settings, typed=typed)
    length = _length_of(typed_length, cells)
    trial = _trial(settings, cells, length=length, depth=depth, repeat=repeat)
    record = _last_record(run.folder, trial)
    verdict = _verdict(trial, record)

    for message in trial.prompt.messages:
        show_data(f"[{message.role}]\n{message.content}\n\n")
    tell(verdict)
    if record is not None and record.answer is not None:
        score = "not scored" if record.score is None else f"score {score_label(record.score)} %"
        tell(f"recorded answer: {record.answer!r} ({score})")
    if typed.ask:
        answer = asyncio.run(_ask(settings, trial))
        tell(f"answer now: {answer.text!r} (finish {answer.finish})")


def _find_place(folder: Path, typed: ReplayFlags, added: Sequence[PlaceFlags]) -> Place:
    """Return which prompt to replay. Raises NeedlemapError if the flags do not name one."""
    for flags in added:
        place = flags.find_place(folder)
        if place is not None:
            return place
    if typed.length is None or typed.depth is None:
        raise SettingsError(
            "Which prompt? Give --length and --depth of a cell. Other ways: needlemap replay --help"
        )
    return folder, typed.length, typed.depth, typed.repeat


def _askable(run: CheckedRun, settings: Settings, typed: ReplayFlags) -> Settings:
    """Return settings whose model may receive a request.

    Raises NeedlemapError if the name of the model or of its key must be typed.
    """
    refuse_untyped_model(settings.model, typed.model)
    if typed.model not in (None, settings.model):
        raise NeedlemapError(
            f"'{run.folder.path}' asked {settings.model}, not {typed.model}. Leave --model out."
        )
    if typed.key_env is not None:
        options = {**settings.model_options, "key_env": typed.key_env}
        return settings.model_copy(update={"model_options": options})
    if not run.is_ours:
        check_key_names(
            settings.model_options, "To send it, type the same with --key-env and its name."
        )
    return settings


def _length_of(typed: str, cells: list[Any]) -> int:
    """Return a length in tokens. typed: the tokens, or the label in maps and tables."""
    typed_tokens = int(tokens(typed))
    lengths: list[int] = sorted({length for length, _, _ in cells})
    if typed_tokens in lengths:
        return typed_tokens

    labels = length_labels(lengths)
    for length in lengths:
        if labels[length].lower() == typed.lower():
            return length
    return typed_tokens


def _is_near(depth: float, percents: float) -> bool:
    """Return True if a depth, as a share, is the one that was typed in percent."""
    return abs(percent(depth) - percents) < _NEAR


def _trial(settings: Settings, cells: list[Any], length: int, depth: float, repeat: int) -> Trial:
    """Return one trial, rebuilt without the other lengths if they do not change it.

    cells: those of run.json, which may hold more than the grid of the run's last start.
    depth: in percent. Raises SettingsError if the run has no such cell.
    """
    depths = [
        cell_depth
        for cell_length, cell_depth, repeats in cells
        if cell_length == length and repeat in repeats and _is_near(cell_depth, depth)
    ]
    if depths:
        settings = with_cells(settings, [(length, depths[0], [repeat])])
        for trial in prepare(settings, asked=False).trials:
            for place_repeat, cell in trial.places:
                is_place = cell.length_tokens == length and place_repeat == repeat
                if is_place and _is_near(cell.depth, depth):
                    return replace(trial, cell=cell, repeat=place_repeat)
    raise SettingsError(
        f"This run has no cell of length {length}, depth {depth:g} and repeat {repeat}. "
        f"Lengths: {_join_numbers(row[0] for row in cells)}. Depths: "
        f"{_join_numbers(percent(row[1]) for row in cells)}. "
        f"Repeats: {_join_numbers(repeat for row in cells for repeat in row[2])}."
    )


def with_cells(settings: Settings, cells: Collection[Any]) -> Settings:
    """Return the settings of a run with a grid that holds some of its cells.

    cells: length in tokens, depth and repeats of each. They may be of several starts. If the whole
    grid decides where needles are inserted, the settings keep all lengths and depths.
    """
    if ready_prompts(settings):
        return settings
    repeats = [repeat for _, _, row in cells for repeat in row]
    grid: dict[str, Any] = {
        "first_repeat": min(repeats),
        "repeats": max(repeats) - min(repeats) + 1,
    }
    if settings.mode not in GRID_MODES:
        grid["lengths"] = Lengths.of(sorted({length for length, _, _ in cells}))
        grid["depths"] = Depths.of(sorted({setting(depth) for _, depth, _ in cells}))
        grid["depth_rounding"] = "none"
    return settings.model_copy(update=grid)


def _join_numbers(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.10g}" for value in sorted(set(values)))


def _last_record(run: RunFolder, trial: Trial) -> Record | None:
    """Return the last scored record of a trial's place in the grid, or the last if none is scored.

    Records of other keys count too. Return None if the place has no record.
    """
    trial_place = (trial.cell.length_tokens, percent(trial.cell.depth), trial.repeat)
    records = list[Record]()
    for prompt in load_run(run).prompts:
        places = [(length, percent(depth), repeat) for repeat, length, depth in prompt.places]
        if trial_place in places:
            records += prompt.records
    scored = [record for record in records if record.scored]
    if scored:
        return scored[-1]
    if records:
        return records[-1]
    return None


def _verdict(trial: Trial, record: Record | None) -> str:
    if record is None or record.prompt is None:
        return f"prompt {trial.prompt.sha256}: not asked yet in this run"
    if record.prompt.sha256 != trial.prompt.sha256:
        raise NeedlemapError(
            f"The rebuilt prompt differs from the recorded one (sha256 {trial.prompt.sha256} now, "
            f"{record.prompt.sha256} then): the haystack, the needlemap version or a library "
            f"changed."
        )
    return (
        f"prompt {trial.prompt.sha256}: the same bytes as recorded, {trial.prompt.tokens:,} tokens"
    )


async def _ask(settings: Settings, trial: Trial) -> Answer:
    model = make_model(settings)
    decoding = decoding_of(settings)
    try:
        return await call_model(model, trial.prompt, decoding)
    finally:
        await model.close()
