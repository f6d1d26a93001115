"""The control without a haystack: each distinct question alone. What a model knows anyway, no map can show.

Kept beside the records, in a file of its own, since none of it belongs to a cell.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

from needlemap.asking.budget import Budget
from needlemap.asking.resume import to_be_scored
from needlemap.asking.runner import Runner, Watcher
from needlemap.files import is_regular, open_inside
from needlemap.models.base import Model
from needlemap.plan.lanes import make_lanes
from needlemap.prompts.prompt import TEXT, Message, Prompt
from needlemap.records.folder import RunFolder, scorer_of
from needlemap.records.record import Record
from needlemap.records.run_file import ruled
from needlemap.settings.grid import Cell
from needlemap.text.printable import printable
from needlemap.trials.build import Experiment
from needlemap.trials.keys import asked_alone, scored_key
from needlemap.trials.repeat import Trial

FILE = "closed-book.jsonl"
RIGHT = 0.5  # of a score, from which an answer counts as right
_SHOWN = 3  # questions that are named


def questions(experiment: Experiment) -> list[Trial]:
    """Each distinct question and answer of an experiment as a trial without a haystack.

    But for those that no text answers, as with `absent`: who says so without one is right, and knows nothing.
    """
    shared = experiment.shared
    found: dict[str, Trial] = {}
    for trial in experiment.trials:
        if trial.item.reference.none and not trial.item.reference.keywords:
            continue
        asked = asked_alone(shared, trial.item)
        if asked not in found:
            key = scored_key(asked, experiment.scorer)
            item, prompt = replace(trial.item, needles=()), _prompt(experiment, trial)
            found[asked] = Trial(key, asked, Cell(0, 0.0), trial.repeat, item, prompt, (), False)
    return list(found.values())


def unasked(experiment: Experiment, folder: RunFolder) -> list[Trial]:
    """The questions that a folder has no score of; none where the settings want no such control."""
    if not experiment.settings.closed_book:
        return []
    done = {record.key for record in kept(folder) if record.scored}
    return [trial for trial in questions(experiment) if trial.key not in done]


async def ask(experiment: Experiment, folder: RunFolder, model: Model | None, budget: Budget) -> None:
    """Ask what is still to be asked. Raises as `Runner.run` does."""
    trials = unasked(experiment, folder)
    keeper = _Keeper(folder.path / FILE)
    answers = to_be_scored(every_record(folder))
    runner = Runner(
        model, experiment.scorer, experiment.settings, budget, keeper, Watcher(), len(trials), answers
    )
    sizes = [trial.prompt.tokens for trial in trials]
    await runner.run((trials, make_lanes(sizes, [0] * len(sizes), experiment.workers)))


def every_record(folder: RunFolder) -> Iterator[Record]:
    """All records, as they were written: for limits, since each was paid for."""
    if is_regular(file := folder.path / FILE):
        yield from folder.records_in(file, folder.about() if folder.exists else {})


def kept(folder: RunFolder) -> list[Record]:
    """The last record of each question, scored ones first."""
    found: dict[str, Record] = {}
    for record in every_record(folder):
        if record.scored or record.key not in found:
            found[record.key] = record
    return list(found.values())


def closed_book_lines(folder: RunFolder) -> list[str]:
    """What the control found, in a line; nothing where it was not asked for."""
    scorer = ruled(folder.about()["scorer"])
    return said([record for record in kept(folder) if scorer_of(record) == scorer])


def said(records: Iterable[Record]) -> list[str]:
    """How many questions were answered right without a haystack, and which."""
    rows = list(records)
    if not rows:
        return []
    known = [record for record in rows if (record.score or 0.0) >= RIGHT]
    scored = sum(record.scored for record in rows)
    missing = f", {len(rows) - scored} not measured" if scored < len(rows) else ""
    line = f"closed book: {len(known)}/{scored} right without a haystack{missing}"
    if not known:
        return [line]
    named = ", ".join(repr(printable(record.question, line=True)) for record in known[:_SHOWN])
    more = " ..." if len(known) > _SHOWN else ""
    return [f"{line}: {named}{more}. Hide something that nobody can know: their scores prove nothing."]


class _Keeper:
    """Appends records to one file."""

    def __init__(self, file: Path) -> None:
        self._file, self._lock = file, asyncio.Lock()

    async def append(self, record: Record) -> None:
        """Return when it is on the disk."""
        async with self._lock:
            await asyncio.to_thread(self._write, record.line())

    def _write(self, line: bytes) -> None:
        with open_inside(self._file, "a+b") as out:
            if out.seek(0, os.SEEK_END) and _last(out) != b"\n":
                out.write(b"\n")  # behind a line that a kill or a full disk tore
            out.write(line)
            out.flush()
            os.fsync(out.fileno())


def _last(file: IO[bytes]) -> bytes:
    """The last byte of a file that holds some."""
    file.seek(-1, os.SEEK_END)
    return file.read(1)


def _prompt(experiment: Experiment, trial: Trial) -> Prompt:
    """The question alone, as a message or as a text to go on with."""
    question = trial.item.question
    role, text = ("user", question) if trial.prompt.chat else (TEXT, f"Question: {question}\nAnswer:")
    tokens = experiment.tokenizer.index(text.encode())
    if experiment.traits.render is not None:  # ids with its chat template are made by the model itself
        prompt = Prompt.plain([("user", question) if experiment.traits.chat else (TEXT, text)])
    else:
        prompt = Prompt((Message(role, (tokens.span(),)),))
    return replace(prompt, question=question, tokens=len(tokens.ids))
