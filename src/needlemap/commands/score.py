"""`needlemap score`: score answers made elsewhere, line by line, or a run's answers anew.

Nothing is asked again. A run's prompts are rebuilt from run.json, for their references and to
be sure that they are the ones that were asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from needlemap.asking import raised
from needlemap.asking.pacer import Pacer
from needlemap.asking.recording import RecordMaker, answer_of, scored_anew, whole_answer
from needlemap.asking.resume import check_same, scorer_about
from needlemap.asking.retry import Scoring
from needlemap.asking.session import make_ready
from needlemap.commands.replay import with_cells
from needlemap.commands.run import show_result
from needlemap.deadline import TimeUp, cut_off, waits_s
from needlemap.errors import Failure, NeedlemapError, SettingsError, Unmeasured, did_you_mean
from needlemap.files import read_regular, write_report
from needlemap.grid import percent
from needlemap.models.thinking import parted
from needlemap.records import RunFile, how_to_score
from needlemap.records.folder import RunFolder, Writer
from needlemap.records.loaded import load_run
from needlemap.records.origin import CheckedRun, check_origin, signed
from needlemap.records.record import Record
from needlemap.reports.run_notes import judge_lines
from needlemap.scorers import Score, Scorer, find_scorer, rule_of
from needlemap.secrets import raised_by
from needlemap.settings.flags import mapping_of
from needlemap.settings.prices import Prices
from needlemap.stats.verdicts import NO_RESULT, PASS, exit_code
from needlemap.sync import together
from needlemap.tasks import Reference
from needlemap.text import counted, is_own_pattern, show_data, tell, whole_characters
from needlemap.trials import Keys, Trial
from needlemap.trials.build import Experiment, prepare
from needlemap.untrusted import read_json

_ANSWERS = ("answer", "prediction", "response")
_REFERENCES = ("reference", "needle")
_TEXTS, _LISTS = ("needle", "question", "none", "like"), ("decoys", "choices", "owners")
_MOST_TEXTS = 10_000  # of a list: scorers look for each in the answer
_MOST = 1 << 30  # bytes of a file of answers
_SCORING = "while answers were scored"
_RETRIES = 6  # of a judge's connection


def score_command(
    path: Path, scorer: str, options: list[str], out: Path | None, *, trusted: bool = False
) -> int:
    """Score a file or a run's folder; 1 if something could not be scored. trusted: follow a run
    that this machine did not begin."""
    chosen = mapping_of("scorer_options", options)
    if not path.is_dir():
        return _file(path, scorer, chosen, out)
    if out is not None:
        check_origin(out, trusted)
    return _run(CheckedRun.of(path, trusted), scorer, chosen, out)


def _run(run: CheckedRun, scorer: str, options: dict[str, Any], out: Path | None) -> int:
    """Score a run's answers anew, in its own folder or into a new one, and draw its map."""
    path, before = run.folder.path, run.about.scorer
    experiment = with_scorer(run, scorer, options)
    with cut_off(_SCORING):
        records = asyncio.run(rescore(run, experiment, out or path))
    scored = sum(record.scored for record in records)
    say = f"{counted(scored, 'answer')} scored anew" if records else "nothing is left to score"
    tell("\n".join([f"{say}, scorer {scorer}; nothing was asked", *judge_lines(records)]))
    if out is None and before != run.folder.about().scorer:
        now = f"report, compare and a resume of {path} go by these scores from now on."
        tell(f"{now} To go back: {how_to_score(str(path), before)}")
    show_result(experiment.settings, load_run(out or path))
    return exit_code(PASS if scored == len(records) else NO_RESULT)


def _file(file: Path, scorer: str, options: dict[str, Any], out: Path | None) -> int:
    """Write each line with its score, and the mean to standard error."""
    made = find_scorer(scorer)(**options)
    rows = _read(file)
    if not rows:
        raise SettingsError(f"'{file}' holds no line to score.")
    scored = list[dict[str, Any]]()
    with suppress(TimeUp), cut_off(_SCORING):
        asyncio.run(_score_all(made, rows, scored))
    scored += [_late(made, row) for row in rows[len(scored) :]]
    lines = whole_characters("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in scored))
    if out is None:
        show_data(lines)
    else:
        write_report(out, lines.encode())
    shares = [row["score"] for row in scored if row["score"] is not None]
    mean = f"{sum(shares) / len(shares):.2f}" if shares else "-"
    unread = sum(bool(row.get("unreadable")) for row in scored)
    also = f", {unread} unreadable" if unread else ""
    for kind, words in _first_failures(scored).items():
        tell(f"not scored: {kind}: {words}")
    tell(
        f"mean {mean} (n={len(shares)}, {len(scored) - len(shares)} not scored{also}), scorer "
        f"{scorer}"
    )
    return exit_code(PASS if len(shares) == len(scored) else NO_RESULT)


def _first_failures(scored: list[dict[str, Any]]) -> dict[str, str]:
    """Why lines have no score: of each kind the words of the first."""
    found = dict[str, str]()
    for row in scored:
        if row["score"] is None and row.get("failure"):
            found.setdefault(str(row["failure"]), str(row.get("error", "")))
    return found


async def _score_all(
    scorer: Scorer, rows: list[dict[str, Any]], scored: list[dict[str, Any]]
) -> None:
    """Append each line with its score. Raises TimeUp in the middle of one that never waits."""
    try:
        scorer.open()
        for row in rows:
            scored.append(await _scored(scorer, row))
    finally:
        await scorer.close()


def _late(scorer: Scorer, row: dict[str, Any]) -> dict[str, Any]:
    """A line that was not scored when the time was up."""
    words = "Not scored when the time was up."
    by = {"scorer": scorer.name, "rule": rule_of(scorer)}
    return {**row, "score": None, **by, "failure": Failure.SKIPPED, "error": words}


async def _scored(scorer: Scorer, row: dict[str, Any]) -> dict[str, Any]:
    """A line with score (0 to 100), native score and what decided it. Thinking is no part of
    its answer."""
    if waits_s() == 0:
        return _late(scorer, row)
    fields: dict[str, Any] = {name: str(row.get(name) or "") for name in _TEXTS}
    fields |= {name: tuple(map(str, row.get(name) or ())) for name in _LISTS}
    reference = Reference(_text(row, _REFERENCES), _keywords(row), **fields)
    answer = parted(_text(row, _ANSWERS)).answer  # as a run does, so that both score alike
    by = {"scorer": scorer.name, "rule": rule_of(scorer)}
    try:
        async with asyncio.timeout(waits_s()):
            score = await Scoring(scorer, answer, reference).score(_RETRIES)
    except TimeoutError:
        return _late(scorer, row)
    except Unmeasured as failure:
        return {**row, "score": None, **by, "failure": failure.failure, "error": str(failure)}
    except NeedlemapError:
        raise
    except Exception as error:  # of a scorer of somebody's own
        return {**row, "score": None, **by, "failure": Failure.SCORER, "error": raised_by(error)}
    said = {"native": score.native, **by, "why": dict(score.why), "unreadable": score.unreadable}
    return {**row, "score": score.share * 100, **said}


def _read(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        raise SettingsError(
            f"No file at '{file}'. Give JSON Lines with 'answer' and 'reference' in each line."
        )
    rows = []
    for number, line in enumerate(read_regular(file, _MOST).split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = read_json(line)
        except ValueError as error:
            raise NeedlemapError(f"{file}, line {number}: not JSON ({error}).") from None
        rows.append(_checked(row, file, number))
    return rows


def _checked(row: Any, file: Path, number: int) -> dict[str, Any]:
    for names in (_ANSWERS, _REFERENCES):
        if not isinstance(row, dict) or not any(isinstance(row.get(name), str) for name in names):
            keys = row if isinstance(row, dict) else ()
            hint = did_you_mean(names[0], map(str, keys)) if keys else ""
            held = next((name for name in names if isinstance(row, dict) and name in row), None)
            kind = f"field '{held}' holds no text. Write it in quotation marks." if held else None
            said = kind or f"no text in field '{names[0]}'. {hint}".rstrip()
            raise NeedlemapError(f"{file}, line {number}: {said}")
    if not all(isinstance(word, str) for word in _keywords(row)):
        raise NeedlemapError(f"{file}, line {number}: field 'keywords' must be a list of texts.")
    # It is a pattern, and a stranger's may try for ever.
    if row.get("like") and not is_own_pattern(str(row["like"])):
        raise NeedlemapError(
            f"{file}, line {number}: field 'like' is a pattern that none of needlemap's tasks "
            f"makes. Leave it out."
        )
    for name in ("keywords", *_LISTS):
        values = row.get(name) or ()
        if name != "keywords" and not isinstance(values, list | tuple):
            raise NeedlemapError(f"{file}, line {number}: field '{name}' must be a list of texts.")
        if isinstance(values, list | tuple) and len(values) > _MOST_TEXTS:
            raise NeedlemapError(
                f"{file}, line {number}: field '{name}' holds {len(values):,} texts, and at most "
                f"{_MOST_TEXTS:,} are looked for."
            )
    return dict(row)


def _keywords(row: dict[str, Any]) -> tuple[Any, ...]:
    """A line's keywords: a list, or one text."""
    words = row.get("keywords") or row.get("keyword") or ()
    return tuple(words) if isinstance(words, (list, tuple)) else (words,)


def _text(row: dict[str, Any], names: tuple[str, ...]) -> str:
    return next(str(row[name]) for name in names if isinstance(row.get(name), str))


def with_scorer(run: CheckedRun, scorer: str, options: Mapping[str, Any]) -> Experiment:
    """All that a run asked, to be scored by another scorer. Raises NeedlemapError if it cannot
    be rebuilt."""
    settings = run.settings(scorer=scorer, scorer_options=dict(options))
    whole = with_cells(settings, run.about.cells)
    experiment = prepare(whole, asked=False)
    if experiment.scorer.passes:
        raise SettingsError(
            f"Scorer '{scorer}' asks the model anew. Type: needlemap run --scorer {scorer}"
        )
    return experiment


async def rescore(run: CheckedRun, experiment: Experiment, out: Path) -> list[Record]:
    """Score all answers that have no such score in `out` (the same folder, or a new one).
    Returns the new records.

    Raises NeedlemapError when `out` holds another run or another process writes to it, TimeUp
    where time ended before all were scored.
    """
    folder, target = run.folder, RunFolder(out)
    if out.resolve() != folder.path.resolve() and target.exists:
        check_same(target, experiment)
    trials, keys = experiment.trials, experiment.keys
    kept = (
        each for each in folder.every_record() if each.answer is not None or not each.is_skipped
    )
    asked = latest_asked(kept, trials, keys)
    async with AsyncExitStack() as stack:
        writer = stack.enter_context(closing(Writer(target)))
        writer.describe(_about(run, target, experiment))
        scored = [record for record in target.records() if record.scored]
        done = {trial.key for trial, _ in latest_asked(scored, trials, keys)}
        todo = [(trial, record) for trial, record in asked if trial.key not in done]
        if not todo:
            return []
        await make_ready(experiment.scorer, todo[0][0], stack)
        pacer = Pacer(experiment.settings.concurrency)
        tasks = [_one(experiment, trial, record, writer, pacer) for trial, record in todo]
        made = [record for record in await together(tasks) if record is not None]
        if len(made) < len(todo):
            raise TimeUp(
                f"The time limit ended: {len(made):,} of {len(todo):,} answers were scored, and "
                "are kept. To go on: the same command, with a longer --limit-time."
            )
        return made


def latest_asked(
    records: Iterable[Record], trials: Iterable[Trial], keys: Keys
) -> list[tuple[Trial, Record]]:
    """Each trial that was asked, with its last record that holds an answer, else its last.
    Trials are identified by their place and their prompt's hash."""
    by_place = {
        (cell.length_tokens, cell.depth, repeat, trial.second): trial
        for trial in trials
        for repeat, cell in trial.places
    }
    found: dict[str, tuple[Trial, Record]] = {}
    for record in records:
        trial = by_place.get((record.length_tokens, record.depth, record.repeat, record.second))
        if trial is None or record.prompt is None or record.prompt.sha256 != trial.prompt.sha256:
            raise NeedlemapError(
                f"The prompt of length {record.length_tokens}, depth {percent(record.depth):g} and "
                f"repeat "
                f"{record.repeat} cannot be rebuilt as it was asked: the haystack, a template or "
                f"needlemap "
                f"changed since."
            )
        asked = record.asked
        if record.answer is not None or asked not in found or found[asked][1].answer is None:
            key = keys.key(asked, trial.item.reference)
            found[asked] = replace(trial, asked=asked, key=key), record
    return list(found.values())


async def _one(
    experiment: Experiment, trial: Trial, record: Record, writer: Writer, pacer: Pacer
) -> Record | None:
    """Score one answer and keep its record; what has no answer keeps its failure. None where
    time is up before."""
    settings, scorer = experiment.settings, experiment.scorer
    maker = RecordMaker(settings, scorer, Prices.of(settings))
    score: Score | Unmeasured = Unmeasured(Failure.MODEL, record.error or "")
    if waits_s() == 0:
        return None
    if record.answer is not None:
        said = whole_answer(trial.prompt.answer_prefix, record.answer)
        try:
            async with asyncio.timeout(waits_s()) as time:
                scoring = Scoring(scorer, said, trial.item.reference)
                score = await scoring.score(settings.retries, pacer)
        except TimeoutError as error:
            if time.expired():
                return None
            score = raised(error, Failure.SCORER)
        except TimeUp:
            return None
        except Unmeasured as failure:
            score = failure
        except Exception as error:
            score = raised(error, Failure.SCORER)
    new = scored_anew(record, maker.make(trial, answer_of(record), score, record.attempts))
    if record.answer is None:
        new = new.model_copy(update={"failure": record.failure, "error": record.error})
    await writer.append(new)
    return new


def _about(run: CheckedRun, target: RunFolder, experiment: Experiment) -> RunFile:
    """run.json of the run once it is scored so. The folder's earlier scores stay, and are
    named."""
    before, settings = run.about, experiment.settings
    now = scorer_about(experiment.scorer)
    chosen = {"scorer": settings.scorer, "scorer_options": settings.scorer_options}
    earlier = []
    if target.path.resolve() == run.folder.path.resolve():
        known = (*before.earlier_scorers, before.scorer)
        earlier = [each for each in known if each != now]
    changed = before.model_copy(update={"scorer": now, "earlier_scorers": earlier})
    return signed(changed.with_settings(chosen))
