"""Define what tables hold of a cell and of a trial, each column once.

CSV, Parquet, pandas and the page take their columns from here. Scores and depths are percents, as
in settings. The page's data holds shares in [0, 1].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from needlemap.errors import NeedlemapError
from needlemap.grid import percent

if TYPE_CHECKING:
    from needlemap.records.record import Record
    from needlemap.stats.cell_score import CellScore

Value = str | int | float | None


@dataclass(frozen=True, slots=True)
class DataColumn:
    """One column of a table. An unknown value is None.

    Attributes:
        name: its heading.
        kind: what its values are.
        meaning: what they mean.
        of: returns the value of a cell or a record, or is the path to its attribute
            ('scorer.name'); by default the name.
        share: whether the value is shown in percent.
    """

    name: str
    kind: Literal["text", "whole number", "number"]
    meaning: str
    of: Callable[[Any], Value] | str = ""
    share: bool = False

    def value(self, row: Any) -> Value:
        """Return its value of a cell or a record; of a share, in [0, 1]."""
        if not isinstance(self.of, str):
            return self.of(row)
        for name in (self.of or self.name).split("."):
            row = None if row is None else getattr(row, name)
        return row  # type: ignore[no-any-return]

    def table_value(self, row: Any) -> Value:
        """Return the same as tables have it, with shares in percent."""
        value = self.value(row)
        if self.share and isinstance(value, int | float):
            return percent(value)
        return value


def _realised(record: Record) -> float | None:
    return record.needles[0].realised if record.needles else None


def _failures(cell: CellScore) -> str:
    return "; ".join(f"{kind}: {count}" for kind, count in sorted(cell.failures.items()))


RUN = (
    DataColumn("run", "text", "the run's folder, as it was given"),
    DataColumn("model", "text", "its `label`, else as set: BACKEND/NAME"),
    DataColumn("task", "text", "the task's name"),
)
_LENGTH = DataColumn("length_tokens", "whole number", "the cell's length")
_DEPTH = DataColumn(
    "depth_percent",
    "number",
    "the cell's depth; empty where a task asks about the whole text",
    "depth",
    share=True,
)
CELLS = (
    *RUN,
    _LENGTH,
    _DEPTH,
    DataColumn(
        "realised_depth_percent",
        "number",
        "mean of where the first needle was; empty as that",
        "realised",
        share=True,
    ),
    DataColumn(
        "score", "number", "mean score in percent; empty if nothing was measured", share=True
    ),
    DataColumn("n", "whole number", "different prompts scored; of an imported run, results"),
    DataColumn(
        "low",
        "number",
        "95 % Wilson interval of the score, its lower end; empty for a mean of unknown size",
        share=True,
    ),
    DataColumn("high", "number", "its upper end", share=True),
    DataColumn(
        "missing", "whole number", "trials that could not be measured or were not asked yet"
    ),
    DataColumn("failures", "text", "why they could not be measured, with counts", _failures),
)
TRIALS = (
    *RUN,
    _LENGTH,
    _DEPTH,
    DataColumn(
        "realised_depth_percent",
        "number",
        "where the first needle was; empty as that",
        _realised,
        share=True,
    ),
    DataColumn("repeat", "whole number", "number of the repeat, from 0"),
    DataColumn("seed", "whole number", "the run's seed"),
    DataColumn(
        "score", "number", "in percent; empty if the trial could not be measured", share=True
    ),
    DataColumn("native_score", "number", "the score on the scorer's own scale", "scorer.native"),
    DataColumn("scorer", "text", "the scorer", "scorer.name"),
    DataColumn("question", "text", "what was asked"),
    DataColumn("reference", "text", "the reference answer"),
    DataColumn(
        "keywords",
        "text",
        "words that a right answer holds, with '; ' between them",
        lambda record: "; ".join(record.keywords),
    ),
    DataColumn("answer", "text", "the answer, unchanged"),
    DataColumn("finish", "text", "`stop`, `length`, or the provider's own word"),
    DataColumn("outcome", "text", "what became of it: scored, refused by the model, ..."),
    DataColumn("failure", "text", "why it could not be measured"),
    DataColumn("error", "text", "the same in the server's or library's words"),
    DataColumn(
        "prompt_tokens", "whole number", "as the provider counted them; empty if it does not say"
    ),
    DataColumn("cached_tokens", "whole number", "of which it read from a cache"),
    DataColumn(
        "planned_tokens",
        "whole number",
        "of which the plan promised that a cache holds them",
        "shared_tokens",
    ),
    DataColumn("completion_tokens", "whole number", "tokens of the answer"),
    DataColumn("thinking_tokens", "whole number", "of which a reasoning model thought with"),
    DataColumn(
        "mean_logprob",
        "number",
        "mean log-probability of the answer's tokens; empty without --logprobs",
        "logprobs.mean",
    ),
    DataColumn("usd", "number", "price of this answer in US dollars; empty if no price is known"),
    DataColumn("judge_usd", "number", "price of judging it; 0 without a judge"),
    DataColumn("latency_s", "number", "seconds of the attempt that was answered"),
    DataColumn("attempts", "whole number", "how often it was sent"),
    DataColumn("answered_by", "text", "the model that the provider names in its reply"),
    DataColumn("finished_at", "text", "UTC time"),
    DataColumn("prompt_sha256", "text", "hash of the prompt", "prompt.sha256"),
    DataColumn("key", "text", "hash of all that can change the answer or its score"),
)


def cell_frame(cells: Iterable[CellScore]) -> Any:
    """Return one row a cell, with the columns of the CSV.

    Raises NeedlemapError when pandas is not installed.
    """
    return _frame(cells, CELLS[len(RUN) :])


def trial_frame(records: Iterable[Record]) -> Any:
    """Return one row a trial, with what its record holds.

    Raises NeedlemapError when pandas is not installed.
    """
    return _frame(records, TRIALS[1:])


def plain_frame(rows: list[dict[str, Any]]) -> Any:
    """Return rows as they are, a column a name.

    Raises NeedlemapError when pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise NeedlemapError("A table needs pandas. Run: python3 -m pip install pandas") from None
    return pandas.DataFrame(rows)


def _frame(rows: Iterable[Any], columns: tuple[DataColumn, ...]) -> Any:
    return value_frame(columns, ([column.table_value(row) for column in columns] for row in rows))


def value_frame(columns: Sequence[DataColumn], rows: Iterable[Sequence[Value]]) -> Any:
    """Return a table of values in the order of the columns, with NaN (or None for texts) where a
    value is not known. Raises NeedlemapError when pandas is not installed."""
    names = [column.name for column in columns]
    frame = plain_frame([dict(zip(names, row, strict=True)) for row in rows])
    types = {}
    for column in columns:
        if column.name.endswith("_tokens"):
            types[column.name] = "Int64"
        elif column.kind == "number":
            types[column.name] = "float64"
    return frame.reindex(columns=names).astype(types)
