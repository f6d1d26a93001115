"""Tidy tables of one or several runs: a row per cell, or a row per trial. Scores and depths in percent.

In CSV, text that a spreadsheet would run as a formula gets a leading apostrophe (OWASP, CSV injection), and
text with a line break of any kind is quoted, so that it stays one field of one row in every reader.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from needlemap.maps.map import CellScore, Map
from needlemap.runs.loaded import Loaded
from needlemap.runs.record import Record
from needlemap.settings.grid import percent

Value = str | int | float | None


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, what its values are, and what they mean. An unknown value is None."""

    name: str
    kind: Literal["text", "whole number", "number"]
    meaning: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of values in the order of the columns."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]


_SAME = (
    Column("run", "text", "the run's folder, as it was given"),
    Column("model", "text", "its `label`, else as set: BACKEND/NAME"),
    Column("task", "text", "the task's name"),
    Column("length_tokens", "whole number", "the cell's length"),
    Column("depth_percent", "number", "the cell's depth; empty where a task asks about the whole text"),
)
CELLS = (
    *_SAME,
    Column("realised_depth_percent", "number", "mean of where the first needle was; empty as that"),
    Column("score", "number", "mean score in percent; empty if nothing was measured"),
    Column("n", "whole number", "different prompts scored; of an imported run, results"),
    Column(
        "low", "number", "95 % Wilson interval of the score, its lower end; empty for a mean of unknown size"
    ),
    Column("high", "number", "its upper end"),
    Column("missing", "whole number", "trials that could not be measured or were not asked yet"),
    Column("failures", "text", "why they could not be measured, with counts"),
    Column("repeated", "whole number", "prompts of n that a shallower cell of this length asked too"),
)
TRIALS = (
    *_SAME,
    Column("realised_depth_percent", "number", "where the first needle was; empty as that"),
    Column("repeat", "whole number", "number of the repeat, from 0"),
    Column("seed", "whole number", "the run's seed"),
    Column("score", "number", "in percent; empty if the trial could not be measured"),
    Column("native_score", "number", "the score on the scorer's own scale"),
    Column("scorer", "text", "the scorer"),
    Column("question", "text", "what was asked"),
    Column("reference", "text", "the reference answer"),
    Column("keywords", "text", "words that a right answer holds, with '; ' between them"),
    Column("answer", "text", "the answer, unchanged"),
    Column("finish", "text", "`stop`, `length`, or the provider's own word"),
    Column("outcome", "text", "what became of it: scored, refused by the model, ..."),
    Column("failure", "text", "why it could not be measured"),
    Column("error", "text", "the same in the server's or library's words"),
    Column("prompt_tokens", "whole number", "as the provider counted them; empty if it does not say"),
    Column("cached_tokens", "whole number", "of which it read from a cache"),
    Column("planned_tokens", "whole number", "of which the plan promised that a cache holds them"),
    Column("completion_tokens", "whole number", "tokens of the answer"),
    Column("thinking_tokens", "whole number", "of which a reasoning model thought with"),
    Column("mean_logprob", "number", "mean log-probability of the answer's tokens; empty without --logprobs"),
    Column("usd", "number", "price of this answer in US dollars; empty if no price is known"),
    Column("judge_usd", "number", "price of judging it; 0 without a judge"),
    Column("latency_s", "number", "seconds of the attempt that was answered"),
    Column("attempts", "whole number", "how often it was sent"),
    Column("answered_by", "text", "the model that the provider names in its reply"),
    Column("finished_at", "text", "UTC time"),
    Column("prompt_sha256", "text", "hash of the prompt: equal prompts count once in n"),
    Column("key", "text", "hash of all that can change the answer or its score"),
)
_BREAKS = "\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # what any reader takes for the end of a line
FORMULA_STARTS = tuple(f"=+-@\t＝＋－＠{_BREAKS}")


def cells_table(runs: Sequence[Loaded]) -> Table:
    """A row per cell of each run's map."""
    rows = [
        (run.path, run.map.model, run.map.task, *_cell(cell, run.map))
        for run in runs
        for cell in run.map.cells
    ]
    return Table(CELLS, tuple(rows))


def trials_table(runs: Sequence[Loaded]) -> Table:
    """A row per trial, answers included, by length, depth and repeat."""
    rows = [
        (run.path, run.about["settings"].get("label") or record.model, *_trial(record, run.map))
        for run in runs
        for record in sorted(run.records, key=_place)
    ]
    return Table(TRIALS, tuple(rows))


def csv_text(table: Table) -> str:
    """The table as CSV; unknown values are empty fields."""
    text = io.StringIO()
    plain, quoted = (
        csv.writer(text, lineterminator="\n", quoting=quoting)
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC)
    )
    plain.writerow(column.name for column in table.columns)
    for row in table.rows:
        fields = [safe(value) for value in row]
        broken = any(isinstance(field, str) and not set(field).isdisjoint(_BREAKS) for field in fields)
        (quoted if broken else plain).writerow(fields)
    return text.getvalue()


def safe(value: Value) -> Value:
    """A value that no spreadsheet runs as a formula; numbers stay as they are.

    >>> safe("=1+1"), safe("-5"), safe("plain")
    ("'=1+1", '-5', 'plain')
    """
    if not isinstance(value, str) or not value.startswith(FORMULA_STARTS) or _is_number(value):
        return value
    return f"'{value}"


def _place(record: Record) -> tuple[int, float, int]:
    return record.length_tokens, record.depth, record.repeat


def _cell(cell: CellScore, map: Map) -> tuple[Value, ...]:
    return (
        cell.length_tokens,
        *_depths(map, cell.depth, cell.realised),
        _share(cell.score),
        cell.n,
        _share(cell.low),
        _share(cell.high),
        cell.missing,
        "; ".join(f"{kind}: {count}" for kind, count in sorted(cell.failures.items())),
        cell.repeated,
    )


def _trial(record: Record, map: Map) -> tuple[Value, ...]:
    realised = record.needles[0].realised if record.needles else None
    scorer, prompt = record.scorer, record.prompt
    return (
        record.task, record.length_tokens, *_depths(map, record.depth, realised),
        record.repeat, record.seed, _share(record.score), scorer.native if scorer else None,
        scorer.name if scorer else None, record.question, record.reference, "; ".join(record.keywords),
        record.answer, record.finish, record.outcome, record.failure, record.error, record.prompt_tokens,
        record.cached_tokens, record.shared_tokens, record.completion_tokens, record.thinking_tokens,
        record.logprobs.mean if record.logprobs else None, record.usd, record.judge_usd,
        record.latency_s, record.attempts, record.answered_by,
        record.finished_at, prompt.sha256 if prompt else None, record.key,
    )  # fmt: skip


def _depths(map: Map, meant: float, realised: float | None) -> tuple[float | None, float | None]:
    """Meant and realised depth in percent, where there is one."""
    return (None, None) if map.depthless else (percent(meant), _share(realised))


def _share(value: float | None) -> float | None:
    return None if value is None else percent(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
