"""`needlemap replay`: rebuild one prompt of a run byte for byte, check it by its record, ask
it again."""

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

_NEAR = 1e-3  # percent: what people leave out when they type a depth


Place = tuple[Path, str, float, int]


class PlaceFlags(Protocol):
    """Flags that another package adds to `replay`, which say what is to be replayed."""

    def find_place(self, folder: Path) -> Place | None:
        """Return the family's folder, length, depth in percent and repeat; None if nothing of
        these flags is typed. Raises NeedlemapError."""


def replay_command(folder: Path, typed: ReplayFlags, added: Sequence[PlaceFlags] = ()) -> None:
    """Print the prompt's messages, whether its hash is the recorded one, and old and new
    answer.

    Raises NeedlemapError when the prompt cannot be rebuilt as it was, and for what nobody
    typed or trusted.
    """
    folder, length, depth, repeat = _find_place(folder, typed, added)
    run = CheckedRun.of(folder, typed.trust_run)
    settings = run.settings()
    if typed.ask:
        settings = _askable(run, settings, typed)
    trial = _trial(settings, run.about.cells, _length_of(length, run.about.cells), depth, repeat)
    record = _recorded(run.folder, trial)
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
    """Return the folder, length, depth in percent and repeat of what is to be replayed. Raises
    NeedlemapError."""
    for flags in added:
        if (place := flags.find_place(folder)) is not None:
            return place
    if typed.length is None or typed.depth is None:
        raise SettingsError(
            "Which prompt? Give --length and --depth of a cell. Other ways: needlemap replay --help"
        )
    return folder, typed.length, typed.depth, typed.repeat


def _askable(run: CheckedRun, settings: Settings, typed: ReplayFlags) -> Settings:
    """Settings whose model may be asked. Raises NeedlemapError where its name or its key's
    must be typed."""
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
    """The length that is meant: in tokens, or as maps and tables label it."""
    length = int(tokens(typed))
    lengths = sorted({cell[0] for cell in cells})
    if length in lengths:
        return length
    labels = length_labels(lengths)
    return next((each for each in lengths if labels[each].lower() == typed.lower()), length)


def _trial(settings: Settings, cells: list[Any], length: int, depth: float, repeat: int) -> Trial:
    """One trial, rebuilt without other lengths where these play no part.

    cells: run.json's, which may go beyond the grid of the run's last start.
    """
    found = [
        share
        for tokens, share, repeats in cells
        if tokens == length and repeat in repeats and abs(percent(share) - depth) < _NEAR
    ]
    if found:
        for trial in prepare(
            with_cells(settings, [(length, found[0], [repeat])]), asked=False
        ).trials:
            for number, cell in trial.places:
                near = abs(percent(cell.depth) - depth) < _NEAR
                if (cell.length_tokens, number) == (length, repeat) and near:
                    return replace(trial, cell=cell, repeat=number)
    raise SettingsError(
        f"This run has no cell of length {length}, depth {depth:g} and repeat {repeat}. "
        f"Lengths: {_listed(row[0] for row in cells)}. Depths: "
        f"{_listed(percent(row[1]) for row in cells)}. "
        f"Repeats: {_listed(repeat for row in cells for repeat in row[2])}."
    )


def with_cells(settings: Settings, cells: Collection[Any]) -> Settings:
    """Settings of a run whose grid holds these of its cells, which may be of several starts.
    Where the whole grid decides where needles go, they have all lengths and depths."""
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


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.10g}" for value in sorted(set(values)))


def _recorded(run: RunFolder, trial: Trial) -> Record | None:
    """The record of what a trial's place in the grid came to, whatever its key: the last
    scored one, else the last."""
    place = (trial.cell.length_tokens, percent(trial.cell.depth), trial.repeat)
    found = [
        record
        for prompt in load_run(run).prompts
        if any((length, percent(depth), repeat) == place for repeat, length, depth in prompt.places)
        for record in prompt.records
    ]
    scored = [record for record in found if record.scored]
    return scored[-1] if scored else found[-1] if found else None


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
