"""`needlemap replay`: rebuild one prompt of a run byte for byte, check it against its record, ask it again."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from needlemap.configure import checked
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.grid import percent, tokens
from needlemap.models.base import Answer, Decoding
from needlemap.runs.record import Record
from needlemap.runs.session import make_model
from needlemap.runs.store import RunFolder
from needlemap.settings import Settings
from needlemap.trials import Trial, prepare


def replay_command(folder: Path, length: str, depth: float, repeat: int, ask: bool) -> None:
    """Print the prompt's messages, whether its hash is the recorded one, and old and new answer."""
    run = RunFolder(folder)
    settings = checked(run.about()["settings"], str(folder / "run.json"))
    trial = _trial(settings, int(tokens(length)), depth, repeat)
    record = _recorded(run, trial)
    for message in trial.prompt.messages:
        print(f"[{message.role}]\n{message.content}\n")
    print(_verdict(trial, record), file=sys.stderr)
    if record is not None and record.answer is not None:
        print(f"recorded answer: {record.answer!r} (score {record.score})", file=sys.stderr)
    if ask:
        answer = asyncio.run(_ask(settings, trial))
        print(f"answer now: {answer.text!r} (finish {answer.finish})", file=sys.stderr)


def _trial(settings: Settings, length: int, depth: float, repeat: int) -> Trial:
    experiment = prepare(settings)
    for trial in experiment.trials:
        if (trial.cell.length_tokens, trial.repeat) == (length, repeat) and abs(
            percent(trial.cell.depth) - depth
        ) < 1e-3:
            return trial
    depths = ", ".join(f"{percent(depth):g}" for depth in experiment.grid.depths)
    raise SettingsError(
        f"This run has no cell of length {length}, depth {depth:g} and repeat {repeat}. Lengths: "
        f"{', '.join(map(str, experiment.grid.lengths))}. Depths: {depths}. Repeats: {settings.first_repeat} to "
        f"{settings.first_repeat + settings.repeats - 1}."
    )


def _recorded(run: RunFolder, trial: Trial) -> Record | None:
    found = [record for record in run.records() if record.key == trial.key]
    return next((record for record in found if record.scored), found[-1] if found else None)


def _verdict(trial: Trial, record: Record | None) -> str:
    if record is None or record.prompt is None:
        return f"prompt {trial.prompt.sha256}: not asked yet in this run"
    if record.prompt.sha256 != trial.prompt.sha256:
        raise NeedlemapError(
            f"The rebuilt prompt differs from the recorded one (sha256 {trial.prompt.sha256} now, "
            f"{record.prompt.sha256} then): the haystack, the needlemap version or a library changed."
        )
    return f"prompt {trial.prompt.sha256}: the same bytes as recorded, {trial.prompt.tokens:,} tokens"


async def _ask(settings: Settings, trial: Trial) -> Answer:
    model = make_model(settings)
    decoding = Decoding(
        settings.max_answer_tokens, settings.temperature, settings.timeout_s, settings.request
    )
    try:
        return await model.answer(trial.prompt, decoding)
    finally:
        await model.close()
