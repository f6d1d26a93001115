"""A report: what was found out, before it is drawn anywhere.

A finding (a check, an ab, a comparison) becomes a `Report` once. Each renderer of `renderers/`
(text, JSON, page, Markdown, JUnit, pandas) draws any report and knows no finding, so that a
fact that is added to a finding's report is on all of its faces.

A fact or a row of a table has two sides: a key and a value for programs, and words for people.
What has no key is for people alone; what has no words is for programs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from needlemap.grid import percent
from needlemap.reports.labels import ends_label, length_labels, loss_label, p_label, score_label
from needlemap.stats.effective import Effective, Mean
from needlemap.stats.intervals import ClusterMean
from needlemap.stats.means import Map
from needlemap.stats.verdicts import Verdict, Word


def _unchanged(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Unit:
    """How a value is written.

    Attributes:
        text: Its text for people.
        data: Its value for programs.
        number: Whether columns of it are set to the right.
        none: What people see of None.
    """

    text: Callable[[Any], str] = str
    data: Callable[[Any], Any] = _unchanged
    number: bool = True
    none: str = ""

    def labels(self, values: Sequence[Any]) -> list[str]:
        """Return the texts of some values of one column. The text of None is `none`."""
        if self is LENGTH:
            labels = length_labels(sorted({value for value in values if value is not None}))
            return ["" if value is None else labels[value] for value in values]
        return [self.none if value is None else self.text(value) for value in values]

    def plain(self, value: Any) -> Any:
        """Return a value for programs. None stays None."""
        return None if value is None else self.data(value)


WORDS = Unit(number=False)
# Longer words, which are broken into lines.
SENTENCE = Unit(number=False)
COUNT = Unit("{:,}".format)
# Numbers that are written already.
FIGURES = Unit(none="-")
# Tokens. The labels of a column are kept apart.
LENGTH = Unit()
DEPTH = Unit(lambda share: f"{percent(share):g}", percent)
# Of a share.
PERCENT = Unit(score_label, percent)
# A score that may be missing.
SCORE = Unit(score_label, percent, none=score_label(None))
# Of shares; positive is worse.
LOSS = Unit(loss_label, percent)
# The ends of a loss.
ENDS = Unit(lambda ends: ends_label(*ends))
P = Unit(p_label)
NATS = Unit("{:+.2g}".format, lambda nats: round(nats, 6))


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that was found out.

    Attributes:
        key, value: The fact for programs; value may be a function that makes it on demand.
        said: A sentence, or several lines, for people.
        head, note: Its name and an addition if it is shown at a glance, with its value.
    """

    key: str = ""
    value: Any = None
    said: str = ""
    head: str = ""
    note: str = ""


def keyed(values: Mapping[str, Any]) -> Iterator[Fact]:
    """Return facts for programs alone."""
    return (Fact(key, value) for key, value in values.items())


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        head: Its head; '' if it is for programs alone.
        of: Makes what people see of the whole row; by default it is what stands under the key.
        wide: Whether it is on the page and in frames alone.
    """

    key: str
    head: str = ""
    unit: Unit = WORDS
    of: Callable[[Mapping[str, Any]], Any] | None = None
    wide: bool = False

    def value(self, row: Row) -> Any:
        """Return the value of a row that people see in this column."""
        return self.of(row.values) if self.of else row.values.get(self.key)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table.

    Attributes:
        values: Its values by key; what no column names is for programs alone.
        details: What more there is to report of it, each one or several lines.
        to: The family whose line and map show more.
        shown: Whether people see it.
    """

    values: Mapping[str, Any]
    details: tuple[str, ...] = ()
    to: str = ""
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns.

    Attributes:
        title: The line above it.
        after: The line below it.
        folded: The words under which the page folds it.

    A table without heads is shown by its rows' details.
    """

    key: str
    columns: tuple[Column, ...] = ()
    rows: tuple[Row, ...] = ()
    title: str = ""
    after: str = ""
    folded: str = ""

    @property
    def heads(self) -> list[Column]:
        """Return the columns that people see."""
        return [column for column in self.columns if column.head]

    @property
    def shown(self) -> list[Row]:
        """Return the rows that people see."""
        return [row for row in self.rows if row.shown]

    def labels(self, columns: Sequence[Column]) -> list[tuple[str, ...]]:
        """Return the texts of the rows that people see, in some columns."""
        columns_of_labels = (
            column.unit.labels([column.value(row) for row in self.shown]) for column in columns
        )
        return list(zip(*columns_of_labels, strict=True))

    def plain(self) -> list[dict[str, Any]]:
        """Return the rows for programs."""
        units = {column.key: column.unit for column in self.columns if column.of is None}
        return [
            {key: units.get(key, WORDS).plain(value) for key, value in row.values.items()}
            for row in self.rows
        ]


@dataclass(frozen=True, slots=True)
class Parts:
    """Reports of parts of what was found, by name."""

    key: str
    reports: Mapping[str, Report]


@dataclass(frozen=True, slots=True)
class Line:
    """Scores by length, under a name.

    Attributes:
        effective: How far they hold.
        main: Whether it is of all the others.
        dotted: Whether it goes with the line before it, of which it shows another score.
    """

    name: str
    means: Mapping[int, ClusterMean | Mean | None]
    effective: Effective | None = None
    main: bool = False
    dotted: bool = False


@dataclass(frozen=True, slots=True)
class Heat:
    """Scores by length and depth, a picture.

    anywhere: whether it is drawn without a terminal, too.
    """

    map: Map
    palette: str | None = None
    anywhere: bool = False


@dataclass(frozen=True, slots=True)
class Square:
    """A request in a picture.

    Attributes:
        kind: 'right', 'fault', 'gone' or 'other'.
        says: What it is, in words.
        marked: Whether it is what the picture is about, or shares a beginning with that.
    """

    column: int
    kind: str
    letter: str
    says: str
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Squares:
    """Rows of squares by time, under a name each: what a session asked, and what came of it.

    key: kinds, and what they mean.
    """

    title: str
    rows: tuple[tuple[str, tuple[Square, ...]], ...]
    key: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that passes or not, a test case in CI.

    Attributes:
        said: What came of it, in a line; the verdict's if not given.
        text: All that is known; the whole report if not given.
    """

    name: str
    word: Word
    said: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What a command found.

    Attributes:
        kind: The command.
        title: What was asked.
        parts: Its parts, in the order in which people read them.
        verdict: None if none was asked for.
        chart: Its lines, under an axis' name.
        brief: What a tab of the page shows without a verdict.
        heat: The map that people see first.
        answer: The sentence with which a page opens without a verdict.
        squares: Pictures of requests.
        ends: The last line without a verdict.
        command: The command as the last line names it, if not as its kind.
    """

    kind: str
    title: str
    parts: tuple[Fact | Table | Parts, ...] = ()
    verdict: Verdict | None = None
    claims: tuple[Claim, ...] = ()
    chart: tuple[Line, ...] = ()
    brief: str = ""
    heat: Heat | None = None
    answer: str = ""
    axis: str = "Score by length, %"
    squares: tuple[Squares, ...] = ()
    ends: str = ""
    command: str = ""

    @property
    def last_line(self) -> str:
        """Return the last line: that of the verdict or, without a verdict, `ends`."""
        return self.verdict.line(self.command or self.kind) if self.verdict else self.ends

    @property
    def facts(self) -> list[Fact]:
        """Return all facts."""
        return [part for part in self.parts if isinstance(part, Fact)]

    def sentences(self, without: Sequence[Table] = ()) -> Iterator[str]:
        """Yield all sentences but the verdict and the cells of tables, a line each.

        without: tables whose sentences are shown elsewhere.
        """
        for fact in self.facts:
            yield from fact.said.splitlines()
        for table in self.all_tables:
            if table in without:
                continue
            if table.title and table.shown and not table.heads:
                yield table.title
            for row in table.shown:
                yield from (
                    " · ".join(map(str.strip, detail.splitlines())) for detail in row.details
                )

    @property
    def all_tables(self) -> list[Table]:
        """Return all tables."""
        return [part for part in self.parts if isinstance(part, Table)]

    @property
    def tables(self) -> list[Table]:
        """Return the tables that people see."""
        return [table for table in self.all_tables if table.heads and table.shown]
