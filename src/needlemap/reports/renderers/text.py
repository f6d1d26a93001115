"""A report for people, on a terminal or as text: rows under heads, sentences, the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table as Grid

from needlemap.reports.report import WORDS, Column, Fact, Report, Table
from needlemap.text import printable, show

WIDTH = 80  # at least
Block = str | Grid


def show_report(report: Report) -> None:
    """Print it."""
    console = Console()
    console.width = max(WIDTH, console.width)
    for block in _blocks(report):
        if isinstance(block, Grid):
            console.print(block)
        else:
            show(block)


def to_text(report: Report, width: int = WIDTH) -> str:
    """The same as text."""
    console = Console(file=(text := StringIO()), width=width, color_system=None, highlight=False)
    for block in _blocks(report):
        if isinstance(block, Grid):
            console.print(block)
        else:
            text.write(f"{block}\n")
    return printable(text.getvalue())


def show_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows, the first column on the left, numbers on the right."""
    console = Console()
    console.width = max(WIDTH, console.width)
    columns = [Column("", name, WORDS) for name in head]
    console.print(_grid([(column, at > 0) for at, column in enumerate(columns)], rows))


def _blocks(report: Report) -> Iterator[Block]:
    """What is printed one below the other."""
    verdict = report.verdict
    if verdict and verdict.leads and verdict.said:
        yield verdict.said
    for part in report.parts:
        if isinstance(part, Table):
            yield from _of_table(part)
        elif isinstance(part, Fact) and part.said:
            yield part.said
    if verdict:
        yield verdict.last


def _of_table(table: Table) -> Iterator[Block]:
    """Its title, its rows under their heads, what more is to be said of rows; then a
    blank line, if it has heads or a last line."""
    if not table.shown:
        return
    if table.title:
        yield table.title
    shown = [column for column in table.heads if not column.wide]
    if shown:
        yield _grid([(each, each.unit.number) for each in shown], table.labels(shown))
    for detail in (detail for row in table.shown for detail in row.details):
        yield f"\n{detail}" if shown else detail
    if table.after:
        yield table.after
    if shown or table.after:
        yield ""


def _grid(columns: Iterable[tuple[Column, bool]], rows: Iterable[Sequence[str]]) -> Grid:
    """Rows under heads. columns: and whether each is set to the right."""
    grid = Grid(box=None, pad_edge=False)
    for column, right in columns:
        grid.add_column(column.head, justify="right" if right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid
