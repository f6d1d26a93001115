"""`needlemap score`: score answers made elsewhere, line by line, or a run's answers anew."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from needlemap.asking.rescoring import rescore, with_scorer
from needlemap.asking.resume import how_to_score
from needlemap.asking.retry import Scoring
from needlemap.commands.run import show_result
from needlemap.errors import NeedlemapError, SettingsError, Unmeasured, did_you_mean
from needlemap.files import write_report
from needlemap.models.thinking import parted
from needlemap.records.folder import RunFolder
from needlemap.records.loaded import load_map
from needlemap.reports.usage import judge_lines
from needlemap.scorers.base import Scorer, rule_of
from needlemap.settings.flags import parsed
from needlemap.settings.registry import find_kind
from needlemap.tasks.base import Reference
from needlemap.text.printable import show, show_data

_ANSWERS = ("answer", "prediction", "response")
_REFERENCES = ("reference", "needle")
_RETRIES = 6  # of a judge's connection


def score_command(path: Path, scorer: str, options: list[str], out: Path | None) -> int:
    """Score a file or a run's folder; 1 if something could not be scored."""
    chosen = parsed("scorer_options", options) if options else {}
    return _run(path, scorer, chosen, out) if path.is_dir() else _file(path, scorer, chosen, out)


def _run(path: Path, scorer: str, options: dict[str, Any], out: Path | None) -> int:
    """Score a run's answers anew, in its own folder or into a new one, and draw its map."""
    folder = RunFolder(path)
    experiment = with_scorer(folder, scorer, options)
    before = folder.about()["scorer"]
    records = asyncio.run(rescore(folder, experiment, out or path))
    scored = sum(record.scored for record in records)
    answers = "1 answer" if scored == 1 else f"{scored:,} answers"
    say = f"{answers} scored anew" if records else "nothing is left to score"
    show("\n".join([f"{say}, scorer {scorer}; nothing was asked", *judge_lines(records)]), file=sys.stderr)
    if out is None and before != folder.about()["scorer"]:
        show(_from_now_on(path, before), file=sys.stderr)
    show_result(load_map(out or path), experiment.settings, out or path)
    return 0 if scored == len(records) else 1


def _from_now_on(path: Path, before: dict[str, Any]) -> str:
    """What a run shows once it is scored otherwise, and how it was scored before."""
    back = how_to_score(str(path), before)
    return f"report, compare and a resume of {path} go by these scores from now on. To go back: {back}"


def _file(file: Path, scorer: str, options: dict[str, Any], out: Path | None) -> int:
    """Write each line with its score, and the mean to standard error."""
    made = find_kind("scorers", scorer, Scorer)(**options)
    rows = _read(file)
    if not rows:
        raise SettingsError(f"'{file}' holds no line to score.")
    scored = asyncio.run(_all(made, rows))
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in scored)
    if out is None:
        show_data(lines)
    else:
        write_report(out, lines.encode())
    shares = [row["score"] for row in scored if row["score"] is not None]
    mean = f"{sum(shares) / len(shares):.2f}" if shares else "-"
    unread = sum(bool(row.get("unreadable")) for row in scored)
    also = f", {unread} unreadable" if unread else ""
    show(
        f"mean {mean} (n={len(shares)}, {len(scored) - len(shares)} not scored{also}), scorer {scorer}",
        file=sys.stderr,
    )
    return 0 if len(shares) == len(scored) else 1


async def _all(scorer: Scorer, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    try:
        scorer.open()
        return [await _scored(scorer, row) for row in rows]
    finally:
        await scorer.close()


async def _scored(scorer: Scorer, row: dict[str, Any]) -> dict[str, Any]:
    """A line with score (0 to 100), native score and what decided it. Thinking is no part of its answer."""
    reference = Reference(
        _text(row, _REFERENCES),
        _keywords(row),
        str(row.get("needle", "")),
        str(row.get("question", "")),
        tuple(map(str, row.get("decoys") or ())),
        tuple(map(str, row.get("choices") or ())),
        str(row.get("none") or ""),
        str(row.get("like") or ""),
        tuple(map(str, row.get("owners") or ())),
    )
    answer = parted(_text(row, _ANSWERS)).answer  # as a run does, so that both score alike
    by = {"scorer": scorer.name, "rule": rule_of(scorer)}
    try:
        score = await Scoring(scorer, answer, reference).score(_RETRIES)
    except Unmeasured as failure:
        return {**row, "score": None, **by, "failure": failure.failure, "error": str(failure)}
    said = {"native": score.native, **by, "why": dict(score.why), "unreadable": score.unreadable}
    return {**row, "score": score.share * 100, **said}


def _read(file: Path) -> list[dict[str, Any]]:
    if not file.is_file():
        raise SettingsError(
            f"No file at '{file}'. Give JSON Lines with 'answer' and 'reference' in each line."
        )
    rows = []
    for number, line in enumerate(file.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
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
    return dict(row)


def _keywords(row: dict[str, Any]) -> tuple[Any, ...]:
    """A line's keywords: a list, or one text."""
    words = row.get("keywords") or row.get("keyword") or ()
    return tuple(words) if isinstance(words, (list, tuple)) else (words,)


def _text(row: dict[str, Any], names: tuple[str, ...]) -> str:
    return next(str(row[name]) for name in names if isinstance(row.get(name), str))
