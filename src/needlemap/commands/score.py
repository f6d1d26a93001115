"""Run `needlemap score`: score each line of a file of answers, or score a run's answers again.

No request is sent to the model. A run's prompts are rebuilt from run.json, for their references
and to be sure that they are the prompts that were sent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from needlemap.asking import failure_of
from needlemap.asking.pacer import Pacer
from needlemap.asking.recording import RecordMaker, answer_of, rescored_record, whole_answer
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
from needlemap.records.origin import CheckedRun, check_origin, sign
from needlemap.records.record import Record
from needlemap.reports.page.payload import value_text
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

# Fields that may hold a line's answer and its reference. The first that holds a text counts.
_ANSWERS = ("answer", "prediction", "response")
_REFERENCES = ("reference", "needle")
# Fields of a reference that hold a text, and those that hold a list of texts.
_TEXTS = ("needle", "question", "none", "like")
_LISTS = ("decoys", "choices", "owners")
# A list's largest length, because scorers look for each of its texts in the answer.
_MAX_TEXTS = 10_000
_MAX_FILE_BYTES = 1 << 30
# What a time limit cuts off, for its message.
_SCORING = "while answers were scored"
# How often a judge's failed request is sent again.
_RETRIES = 6


def score_command(
    path: Path, scorer: str, options: list[str], out: Path | None, *, trusted: bool = False
) -> int:
    """Score a file or a run's folder, and return the exit code.

    options: of the scorer, as NAME=VALUE. out: a file or a folder for the scores; None for
    standard output or the run's own folder. trusted: score a run that another machine started.
    """
    scorer_options = mapping_of("scorer_options", options)
    if not path.is_dir():
        return _score_file(path, scorer, options=scorer_options, out=out)
    if out is not None:
        check_origin(out, trusted)
    return _score_run(CheckedRun.of(path, trusted), scorer, options=scorer_options, out=out)


def _score_run(run: CheckedRun, scorer: str, options: dict[str, Any], out: Path | None) -> int:
    """Score a run's answers again, in its own folder or into a new one, and draw its map."""
    path = run.folder.path
    previous_scorer = run.about.scorer
    experiment = with_scorer(run, scorer, options=options)
    with cut_off(_SCORING):
        records = asyncio.run(rescore(run, experiment, out=out or path))

    scored = sum(record.scored for record in records)
    result = "nothing is left to score"
    if records:
        result = f"{counted(scored, 'answer')} scored anew"
    name = scorer
    kept_options = experiment.settings.scorer_options
    if kept_options and not options:
        texts = [f"{key}={value_text(key, value)}" for key, value in kept_options.items()]
        name = f"{scorer} with the run's options {', '.join(texts)}"
    tell("\n".join([f"{result}, scorer {name}; nothing was asked", *judge_lines(records)]))
    current_scorer = run.folder.about().scorer
    # A rule of an earlier version cannot be had again.
    is_one_scorer = previous_scorer.is_same(current_scorer)
    if out is None and not (is_one_scorer or previous_scorer.is_by_another_rule(current_scorer)):
        tell(
            f"report, compare and a resume of {path} go by these scores from now on. "
            f"To go back: {how_to_score(str(path), previous_scorer, now=current_scorer)}"
        )
    show_result(experiment.settings, load_run(out or path))
    return exit_code(PASS if scored == len(records) else NO_RESULT)


def _score_file(file: Path, scorer: str, options: dict[str, Any], out: Path | None) -> int:
    """Write each line with its score, and print the mean to standard error."""
    file_scorer = find_scorer(scorer)(**options)
    rows = _read(file)
    if not rows:
        raise SettingsError(f"'{file}' holds no line to score.")
    results = list[dict[str, Any]]()
    with suppress(TimeUp), cut_off(_SCORING):
        asyncio.run(_score_all(file_scorer, rows, results=results))
    results += [_row_out_of_time(file_scorer, row) for row in rows[len(results) :]]

    lines = whole_characters("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in results))
    if out is None:
        show_data(lines)
    else:
        write_report(out, lines.encode())

    scores = [row["score"] for row in results if row["score"] is not None]
    mean = f"{sum(scores) / len(scores):.2f}" if scores else "-"
    counts = f"n={len(scores)}, {len(results) - len(scores)} not scored"
    unreadable = sum(bool(row.get("unreadable")) for row in results)
    if unreadable:
        counts = f"{counts}, {unreadable} unreadable"
    for kind, reason in _first_failures(results).items():
        tell(f"not scored: {kind}: {reason}")
    tell(f"mean {mean} ({counts}), scorer {scorer}")
    return exit_code(PASS if len(scores) == len(results) else NO_RESULT)


def _first_failures(results: list[dict[str, Any]]) -> dict[str, str]:
    """Return the first reason of each kind of failure."""
    reasons = dict[str, str]()
    for row in results:
        if row["score"] is None and row.get("failure"):
            reasons.setdefault(str(row["failure"]), str(row.get("error", "")))
    return reasons


async def _score_all(
    scorer: Scorer, rows: list[dict[str, Any]], results: list[dict[str, Any]]
) -> None:
    """Append each line with its score to `results`.

    Raises TimeUp if the time ends within a scorer that never waits.
    """
    try:
        scorer.open()
        for row in rows:
            results.append(await _score_row(scorer, row))
    finally:
        await scorer.close()


def _unscored_row(
    scorer: Scorer, row: dict[str, Any], failure: Failure, error: str
) -> dict[str, Any]:
    """Return a line with the reason why it has no score."""
    return {
        **row,
        "score": None,
        "scorer": scorer.name,
        "rule": rule_of(scorer),
        "failure": failure,
        "error": error,
    }


def _row_out_of_time(scorer: Scorer, row: dict[str, Any]) -> dict[str, Any]:
    """Return a line with the reason that it was not scored when the time was up."""
    return _unscored_row(
        scorer, row, failure=Failure.SKIPPED, error="Not scored when the time was up."
    )


async def _score_row(scorer: Scorer, row: dict[str, Any]) -> dict[str, Any]:
    """Return a line with its score (0 to 100), its native score and what decided them.

    Thinking is not part of the answer.
    """
    if waits_s() == 0:
        return _row_out_of_time(scorer, row)

    texts = {name: str(row.get(name) or "") for name in _TEXTS}
    lists = {name: tuple(map(str, row.get(name) or ())) for name in _LISTS}
    fields: dict[str, Any] = {**texts, **lists}
    reference = Reference(_text(row, _REFERENCES), _keywords(row), **fields)
    # A run parts thinking from the answer in the same way, so that both score alike.
    answer = parted(_text(row, _ANSWERS)).answer
    try:
        async with asyncio.timeout(waits_s()):
            score = await Scoring(scorer, answer, reference=reference).score(_RETRIES)
    except TimeoutError:
        return _row_out_of_time(scorer, row)
    except Unmeasured as failure:
        return _unscored_row(scorer, row, failure=failure.failure, error=str(failure))
    except NeedlemapError:
        raise
    except Exception as error:
        # A scorer of another package can raise anything.
        return _unscored_row(scorer, row, failure=Failure.SCORER, error=raised_by(error))
    return {
        **row,
        "score": score.share * 100,
        "native": score.native,
        "scorer": scorer.name,
        "rule": rule_of(scorer),
        "why": dict(score.why),
        "unreadable": score.unreadable,
    }


def _read(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        raise SettingsError(
            f"No file at '{file}'. Give JSON Lines with 'answer' and 'reference' in each line."
        )
    rows = []
    for number, line in enumerate(read_regular(file, _MAX_FILE_BYTES).split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = read_json(line)
        except ValueError as error:
            raise NeedlemapError(f"{file}, line {number}: not JSON ({error}).") from None
        rows.append(_check_row(row, f"{file}, line {number}"))
    return rows


def _check_row(row: Any, place: str) -> dict[str, Any]:
    """Return a line's fields. Raises NeedlemapError for a field that cannot be scored.

    place: the file and the line, for messages.
    """
    for names in (_ANSWERS, _REFERENCES):
        if not isinstance(row, dict) or not any(isinstance(row.get(name), str) for name in names):
            raise NeedlemapError(f"{place}: {_missing_text(row, names)}")
    if not all(isinstance(word, str) for word in _keywords(row)):
        raise NeedlemapError(f"{place}: field 'keywords' must be a list of texts.")
    # A pattern of another program may take for ever to match.
    if row.get("like") and not is_own_pattern(str(row["like"])):
        raise NeedlemapError(
            f"{place}: field 'like' is a pattern that none of needlemap's tasks makes. Leave it "
            f"out."
        )
    for name in ("keywords", *_LISTS):
        values = row.get(name) or ()
        is_list = isinstance(values, list | tuple)
        # The only keyword may be a text.
        if name != "keywords" and not is_list:
            raise NeedlemapError(f"{place}: field '{name}' must be a list of texts.")
        if is_list and len(values) > _MAX_TEXTS:
            raise NeedlemapError(
                f"{place}: field '{name}' holds {len(values):,} texts, and at most "
                f"{_MAX_TEXTS:,} are looked for."
            )
    return dict(row)


def _missing_text(row: Any, names: tuple[str, ...]) -> str:
    """Return what is wrong with a line of which none of these fields holds a text."""
    if isinstance(row, dict):
        for name in names:
            if name in row:
                return f"field '{name}' holds no text. Write it in quotation marks."
    message = f"no text in field '{names[0]}'."
    if isinstance(row, dict) and row:
        message = f"{message} {did_you_mean(names[0], map(str, row))}".rstrip()
    return message


def _keywords(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return a line's keywords, which are a list or one text."""
    words = row.get("keywords") or row.get("keyword") or ()
    if isinstance(words, (list, tuple)):
        return tuple(words)
    return (words,)


def _text(row: dict[str, Any], names: tuple[str, ...]) -> str:
    return next(str(row[name]) for name in names if isinstance(row.get(name), str))


def with_scorer(run: CheckedRun, scorer: str, options: Mapping[str, Any]) -> Experiment:
    """Return a run's experiment with another scorer, or with its own by today's rule.

    options: of the scorer. If there are none, the run's own scorer keeps the run's.

    Raises NeedlemapError if the prompts cannot be rebuilt.
    """
    changes: dict[str, Any] = {"scorer": scorer, "scorer_options": dict(options)}
    if not options and scorer == run.about.scorer.name:
        del changes["scorer_options"]
    settings = run.settings(**changes)
    settings = with_cells(settings, run.about.cells)
    experiment = prepare(settings, asked=False)
    if experiment.scorer.passes:
        raise SettingsError(
            f"Scorer '{scorer}' asks the model anew. Type: needlemap run --scorer {scorer}"
        )
    return experiment


async def rescore(run: CheckedRun, experiment: Experiment, out: Path) -> list[Record]:
    """Score all answers that have no such score in `out`, and return the new records.

    out: the run's own folder, or a new one. Raises NeedlemapError if `out` holds another run or
    another process writes to it, and TimeUp if the time ends before all answers are scored.
    """
    folder = run.folder
    target = RunFolder(out)
    if out.resolve() != folder.path.resolve() and target.exists:
        check_same(target, experiment)
    sent_records = (
        record
        for record in folder.every_record()
        if record.answer is not None or not record.is_skipped
    )
    sent = latest_asked(sent_records, experiment.trials, keys=experiment.keys)

    async with AsyncExitStack() as stack:
        writer = stack.enter_context(closing(Writer(target)))
        writer.describe(_about(run, target, experiment=experiment))
        scored_records = [record for record in target.records() if record.scored]
        scored = latest_asked(scored_records, experiment.trials, keys=experiment.keys)
        scored_keys = {trial.key for trial, _ in scored}
        todo = [(trial, record) for trial, record in sent if trial.key not in scored_keys]
        if not todo:
            return []

        first_trial, _ = todo[0]
        await make_ready(experiment.scorer, first_trial, stack)
        pacer = Pacer(experiment.settings.concurrency)
        tasks = [
            _rescore_one(experiment, trial, record=record, writer=writer, pacer=pacer)
            for trial, record in todo
        ]
        new_records = [record for record in await together(tasks) if record is not None]
        if len(new_records) < len(todo):
            raise TimeUp(
                f"The time limit ended: {len(new_records):,} of {len(todo):,} answers were scored, "
                "and are kept. To go on: the same command, with a longer --limit-time."
            )
        return new_records


def latest_asked(
    records: Iterable[Record], trials: Iterable[Trial], keys: Keys
) -> list[tuple[Trial, Record]]:
    """Return each trial that was sent with its last record that holds an answer, or its last.

    Trials are identified by their place and their prompt's hash. Raises NeedlemapError if the
    prompt of a record cannot be rebuilt.
    """
    trial_by_place = {
        (cell.length_tokens, cell.depth, repeat, trial.second): trial
        for trial in trials
        for repeat, cell in trial.places
    }
    latest: dict[str, tuple[Trial, Record]] = {}
    for record in records:
        place = (record.length_tokens, record.depth, record.repeat, record.second)
        trial = trial_by_place.get(place)
        if trial is None or record.prompt is None or record.prompt.sha256 != trial.prompt.sha256:
            raise NeedlemapError(
                f"The prompt of length {record.length_tokens}, depth {percent(record.depth):g} and "
                f"repeat {record.repeat} cannot be rebuilt as it was asked: the haystack, a "
                f"template or needlemap changed since."
            )
        request = record.asked
        if record.answer is None and request in latest and latest[request][1].answer is not None:
            continue
        key = keys.key(request, trial.item.reference)
        latest[request] = (replace(trial, asked=request, key=key), record)
    return list(latest.values())


async def _rescore_one(
    experiment: Experiment, trial: Trial, record: Record, writer: Writer, pacer: Pacer
) -> Record | None:
    """Score one answer and write its record, or return None if the time is up before.

    A record without an answer keeps its failure.
    """
    if waits_s() == 0:
        return None
    settings = experiment.settings
    scorer = experiment.scorer
    score: Score | Unmeasured = Unmeasured(Failure.MODEL, record.error or "")
    if record.answer is not None:
        answer = whole_answer(trial.prompt.answer_prefix, record.answer)
        try:
            async with asyncio.timeout(waits_s()) as time:
                scoring = Scoring(scorer, answer, reference=trial.item.reference)
                score = await scoring.score(settings.retries, pacer)
        except TimeoutError as error:
            # The scorer's own time limit raises the same.
            if time.expired():
                return None
            score = failure_of(error, Failure.SCORER)
        except TimeUp:
            return None
        except Unmeasured as failure:
            score = failure
        except Exception as error:
            score = failure_of(error, Failure.SCORER)

    maker = RecordMaker(settings, scorer, Prices.of(settings))
    new_record = maker.make(trial, answer_of(record), score, record.attempts)
    new_record = rescored_record(record, new_record)
    if record.answer is None:
        failure_fields = {"failure": record.failure, "error": record.error}
        new_record = new_record.model_copy(update=failure_fields)
    await writer.append(new_record)
    return new_record


def _about(run: CheckedRun, target: RunFolder, experiment: Experiment) -> RunFile:
    """Return the run.json of a run with its new scorer.

    The run's own folder keeps its earlier scores, so run.json names their scorers.
    """
    scorer = scorer_about(experiment.scorer)
    earlier_scorers = []
    if target.path.resolve() == run.folder.path.resolve():
        earlier_scorers = [
            earlier
            for earlier in (*run.about.earlier_scorers, run.about.scorer)
            if earlier != scorer
        ]
    about = run.about.model_copy(update={"scorer": scorer, "earlier_scorers": earlier_scorers})
    settings = experiment.settings
    return sign(
        about.with_settings({"scorer": settings.scorer, "scorer_options": settings.scorer_options})
    )
