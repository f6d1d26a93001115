"""A run's answers scored anew, by another scorer: nothing is asked again.

Prompts are rebuilt from run.json, for their references and to be sure that they are the ones that were asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from needlemap.asking.pacer import Pacer
from needlemap.asking.recording import RecordMaker, answer_of, scored_anew
from needlemap.asking.resume import GRID_MODES, check_same, scorer_about
from needlemap.asking.retry import Scoring
from needlemap.asking.runner import raised, whole_answer
from needlemap.asking.session import make_ready
from needlemap.errors import Failure, NeedlemapError, SettingsError, Unmeasured
from needlemap.records.folder import RunFolder, Writer
from needlemap.records.origin import signed
from needlemap.records.record import Record
from needlemap.records.run_file import ruled
from needlemap.scorers.base import Score, Scorer
from needlemap.settings.grid import percent, setting
from needlemap.settings.prices import Prices
from needlemap.settings.reading import checked
from needlemap.settings.settings import Settings
from needlemap.trials.build import Experiment, prepare
from needlemap.trials.keys import scored_key
from needlemap.trials.repeat import Trial
from needlemap.trials.resolve import ready_prompts


def with_scorer(folder: RunFolder, scorer: str, options: Mapping[str, Any]) -> Experiment:
    """All that a run asked, to be scored by another scorer. Raises NeedlemapError if it cannot be rebuilt."""
    about = folder.about()
    if "imported" in about:
        raise NeedlemapError(
            f"'{folder.path}' was imported: its prompts are not known, so none is scored anew."
        )
    named = {**about["settings"], "scorer": scorer, "scorer_options": dict(options)}
    whole = _whole(checked(named, str(folder.path / "run.json")), about["cells"])
    experiment = prepare(whole, asked=False)
    if experiment.scorer.weighs:
        raise SettingsError(f"Scorer '{scorer}' asks the model anew. Type: needlemap run --scorer {scorer}")
    return experiment


async def rescore(folder: RunFolder, experiment: Experiment, out: Path) -> list[Record]:
    """Score all answers that `out` (the same folder, or a new one) has no such score of; the new records.

    Raises NeedlemapError when `out` holds another run, or somebody writes to it.
    """
    target = RunFolder(out)
    if out.resolve() != folder.path.resolve() and target.exists:
        check_same(target, experiment)
    asked = latest_asked(folder.every_record(), experiment.trials, experiment.scorer)
    async with AsyncExitStack() as stack:
        writer = stack.enter_context(closing(Writer(target)))
        writer.describe(_about(folder, target, experiment))
        done = {record.key for record in target.records() if record.scored}
        todo = [(trial, record) for trial, record in asked if trial.key not in done]
        if not todo:
            return []
        await make_ready(experiment.scorer, todo[0][0], stack)
        pacer = Pacer(experiment.settings.concurrency)
        tasks = [_one(experiment, trial, record, writer, pacer) for trial, record in todo]
        return list(await asyncio.gather(*tasks))


def latest_asked(
    records: Iterable[Record], trials: Iterable[Trial], scorer: Scorer
) -> list[tuple[Trial, Record]]:
    """Each trial that was asked, with its last record that holds an answer, else its last.

    Records of earlier versions have no `asked`: they are told by their place and their prompt's hash.
    """
    trials = list(trials)
    by_asked = {trial.asked: trial for trial in trials}
    by_place = {(trial.cell.length_tokens, trial.cell.depth, trial.repeat): trial for trial in trials}
    found: dict[str, tuple[Trial, Record]] = {}
    for record in records:
        trial = by_asked.get(record.asked) or by_place.get(
            (record.length_tokens, record.depth, record.repeat)
        )
        if trial is None or record.prompt is None or record.prompt.sha256 != trial.prompt.sha256:
            raise NeedlemapError(
                f"The prompt of length {record.length_tokens}, depth {percent(record.depth):g} and repeat "
                f"{record.repeat} cannot be rebuilt as it was asked: the haystack, a template or needlemap "
                f"changed since."
            )
        if record.answer is not None or trial.key not in found or found[trial.key][1].answer is None:
            found[trial.key] = trial, record
    return [(_as_asked(trial, record, scorer), record) for trial, record in found.values()]


def _as_asked(trial: Trial, record: Record, scorer: Scorer) -> Trial:
    """A trial with the key that its answer has by a scorer: what was asked is what its record says."""
    if not record.asked:
        return trial
    key = scored_key(record.asked, scorer)
    return replace(trial, asked=record.asked, key=key)


async def _one(experiment: Experiment, trial: Trial, record: Record, writer: Writer, pacer: Pacer) -> Record:
    """Score one answer and keep its record; what has no answer keeps its failure."""
    settings, scorer = experiment.settings, experiment.scorer
    maker = RecordMaker(settings, scorer, Prices.of(settings))
    score: Score | Unmeasured = Unmeasured(Failure.MODEL, record.error or "")
    if record.answer is not None:
        said = whole_answer(trial.prompt.answer_prefix, record.answer)
        try:
            score = await Scoring(scorer, said, trial.item.reference).score(settings.retries, pacer)
        except Unmeasured as failure:
            score = failure
        except Exception as error:
            score = raised(error, Failure.SCORER)
    new = scored_anew(record, maker.make(trial, answer_of(record), score, record.attempts))
    if record.answer is None:
        new = new.model_copy(update={"failure": record.failure, "error": record.error})
    await writer.append(new)
    return new


def _whole(settings: Settings, cells: list[Any]) -> Settings:
    """Settings whose grid holds every cell and repeat that a run asked, over all its starts."""
    if settings.mode in GRID_MODES or ready_prompts(settings):
        return settings
    repeats = [repeat for _, _, row in cells for repeat in row]
    grid = {
        "lengths": sorted({length for length, _, _ in cells}),
        "depths": sorted({setting(depth) for _, depth, _ in cells}),
        "depth_rounding": "none",
        "first_repeat": min(repeats),
        "repeats": max(repeats) - min(repeats) + 1,
    }
    return settings.model_copy(update=grid)


def _about(folder: RunFolder, target: RunFolder, experiment: Experiment) -> dict[str, Any]:
    """What run.json says of the run once it is scored so. The folder's earlier scores stay, and are named."""
    before = folder.about()
    settings, scorer = experiment.settings, experiment.scorer
    now = scorer_about(scorer)
    chosen = {"scorer": settings.scorer, "scorer_options": settings.scorer_options}
    asked = {**before["settings"], **chosen}
    about = signed({**before, "settings": asked, "scorer": now}, asked)
    if target.path.resolve() != folder.path.resolve():
        about.pop("earlier_scorers", None)
        return about
    known = [ruled(each) for each in (*before.get("earlier_scorers", []), before["scorer"])]
    return about | {"earlier_scorers": [each for each in known if each != now]}
