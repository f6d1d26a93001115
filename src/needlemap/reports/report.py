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


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Unit:
    """How a value is written. text: for people. data: for programs. number: whether columns of
    it are set to the right. none: what people see of None."""

    text: Callable[[Any], str] = str
    data: Callable[[Any], Any] = _same
    number: bool = True
    none: str = ""

    def labels(self, values: Sequence[Any]) -> list[str]:
        """Some values of one column for people; None is `none`."""
        if self is LENGTH:
            known = length_labels(sorted({value for value in values if value is not None}))
            return ["" if value is None else known[value] for value in values]
        return [self.none if value is None else self.text(value) for value in values]

    def plain(self, value: Any) -> Any:
        """A value for programs; None stays None."""
        return None if value is None else self.data(value)


WORDS = Unit(number=False)
SENTENCE = Unit(number=False)  # longer ones, which are broken into lines
COUNT = Unit("{:,}".format)
FIGURES = Unit(none="-")  # written already, and set to the right
LENGTH = Unit()  # tokens; labels of a column are told apart
DEPTH = Unit(lambda share: f"{percent(share):g}", percent)
PERCENT = Unit(score_label, percent)  # of a share
SCORE = Unit(score_label, percent, none=score_label(None))  # one that may be missing
LOSS = Unit(loss_label, percent)  # of shares; positive is worse
ENDS = Unit(lambda ends: ends_label(*ends))  # of a loss
P = Unit(p_label)
NATS = Unit("{:+.2g}".format, lambda nats: round(nats, 6))


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that was found out.

    key, value, unit: for programs. value: or what makes it, on demand. said: a sentence, or
    several lines, for people. warns: whether it is a warning. head, note: its name and an
    addition where it is shown at a glance, with its value.
    """

    key: str = ""
    value: Any = None
    said: str = ""
    unit: Unit = WORDS
    warns: bool = False
    head: str = ""
    note: str = ""


def keyed(values: Mapping[str, Any]) -> Iterator[Fact]:
    """Facts for programs alone."""
    return (Fact(key, value) for key, value in values.items())


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. head: '' where it is for programs alone. of: makes what people see
    of the whole row, by default what stands under the key. wide: on the page and in frames
    alone."""

    key: str
    head: str = ""
    unit: Unit = WORDS
    of: Callable[[Mapping[str, Any]], Any] | None = None
    wide: bool = False

    def value(self, row: Row) -> Any:
        """What people see of a row."""
        return self.of(row.values) if self.of else row.values.get(self.key)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table. values: by key; what no column names is for programs alone. details:
    what more is to be said of it, each one or several lines. to: the family whose line and map
    show more. shown: whether people see it."""

    values: Mapping[str, Any]
    details: tuple[str, ...] = ()
    to: str = ""
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns. title: above it. after: a line below it. A table without heads is
    shown by its rows' details. folded: the words under which the page folds it."""

    key: str
    columns: tuple[Column, ...] = ()
    rows: tuple[Row, ...] = ()
    title: str = ""
    after: str = ""
    folded: str = ""

    @property
    def heads(self) -> list[Column]:
        """The columns that people see."""
        return [column for column in self.columns if column.head]

    @property
    def shown(self) -> list[Row]:
        """The rows that people see."""
        return [row for row in self.rows if row.shown]

    def labels(self, columns: Sequence[Column]) -> list[tuple[str, ...]]:
        """The rows as people see them, in some columns."""
        across = (
            column.unit.labels([column.value(row) for row in self.shown]) for column in columns
        )
        return list(zip(*across, strict=True))

    def plain(self) -> list[dict[str, Any]]:
        """The rows for programs."""
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
    """Scores by length, under a name. effective: how far they hold. main: whether it is of all
    the others. dotted: whether it goes with the line before it, of which it shows another
    score."""

    name: str
    means: Mapping[int, ClusterMean | Mean | None]
    effective: Effective | None = None
    main: bool = False
    dotted: bool = False


@dataclass(frozen=True, slots=True)
class Heat:
    """Scores by length and depth, a picture. anywhere: drawn where there is no terminal,
    too."""

    map: Map
    palette: str | None = None
    anywhere: bool = False


@dataclass(frozen=True, slots=True)
class Square:
    """A request in a picture. kind: 'right', 'fault', 'gone' or 'other'. marked: whether it is
    what the picture is about, or shares a beginning with that. says: what it is, in words."""

    column: int
    kind: str
    letter: str
    says: str
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Squares:
    """Rows of squares by time, under a name each: what a session asked, and what came of it.
    key: kinds, and what they mean."""

    title: str
    rows: tuple[tuple[str, tuple[Square, ...]], ...]
    key: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that passes or not, a test case in CI. said: what came of it, in a line; the
    verdict's if not given. text: all that is known; the whole report if not given."""

    name: str
    word: Word
    said: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What a command found. kind: the command. title: what was asked. parts: in the order in
    which people read them. verdict: None where none was asked for. chart: its lines, under an
    axis' name. Without a verdict, brief: what a tab of the page says; answer: the sentence with
    which a page opens; ends: the last line. heat: the map that people see first. squares:
    pictures of requests. command: as the last line names it, if not as its kind."""

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
    def last(self) -> str:
        """The last line."""
        return self.verdict.line(self.command or self.kind) if self.verdict else self.ends

    @property
    def facts(self) -> list[Fact]:
        """All facts."""
        return [each for each in self.parts if isinstance(each, Fact)]

    def sentences(self, without: Sequence[Table] = ()) -> Iterator[str]:
        """What is said besides the verdict and the cells of tables, a line each. without:
        tables whose sentences are shown elsewhere."""
        for fact in self.facts:
            yield from fact.said.splitlines()
        for table in self.all_tables:
            if table in without:
                continue
            if table.title and table.shown and not table.heads:
                yield table.title
            for row in table.shown:
                yield from (" · ".join(map(str.strip, each.splitlines())) for each in row.details)

    @property
    def all_tables(self) -> list[Table]:
        """All tables."""
        return [each for each in self.parts if isinstance(each, Table)]

    @property
    def tables(self) -> list[Table]:
        """The tables that people see."""
        return [each for each in self.all_tables if each.heads and each.shown]

    @property
    def warnings(self) -> list[str]:
        """What makes it prove less."""
        return [each.said for each in self.facts if each.warns]
