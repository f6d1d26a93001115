"""A report for people, on a terminal or as text: rows under heads, sentences, the verdict."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table as Grid
from rich.text import Text

from needlemap.reports.renderers.heat import break_line, plain_summary, terminal_map
from needlemap.reports.report import SENTENCE, Column, Fact, Parts, Report, Table
from needlemap.stats.verdicts import Word
from needlemap.text import printable, show

# At least so many letters.
WIDTH = 80
Block = str | Grid


def show_report(report: Report) -> None:
    """Print a report.

    On a terminal sentences are broken between words: it would break them anywhere.
    """
    console = Console(highlight=False)
    is_terminal = sys.stdout.isatty()
    heat, width = report.heat, console.width
    if heat and (is_terminal or heat.anywhere):
        console.print(terminal_map(heat.map, palette=heat.palette))
    if heat and not is_terminal:
        show(plain_summary(heat.map), end="")
    console.width = max(WIDTH, width)
    for block in _blocks(report):
        if isinstance(block, Grid):
            _print(console, block)
            continue
        is_verdict = is_terminal and report.verdict is not None and block == report.last_line
        for line in block.split("\n"):
            text = "\n".join(break_line(line, width) if is_terminal else [line])
            if is_verdict and report.verdict:
                console.print(_colour_word(text, report.verdict.word), soft_wrap=True)
            else:
                show(text)


# Colours that are told apart on dark and light grounds; the words tell it without them.
STYLES: dict[Word, str] = {
    "PASS": "bold green",
    "FAIL": "bold red",
    "SUSPECT": "bold yellow",
    "NOT ENOUGH DATA": "bold cyan",
    "NO RESULT": "bold magenta",
}


def _colour_word(line: str, word: Word) -> Text:
    """Return a verdict's line with its word in colour."""
    text = Text(printable(line))
    if line.startswith(word):
        text.stylize(STYLES[word], 0, len(word))
    return text


def to_text(report: Report, width: int = WIDTH) -> str:
    """Return a report as text."""
    text = StringIO()
    console = Console(file=text, width=width, color_system=None, highlight=False)
    if report.heat:
        text.write(plain_summary(report.heat.map))
    for block in _blocks(report):
        if isinstance(block, Grid):
            _print(console, block)
        else:
            text.write(f"{block}\n")
    return printable(text.getvalue())


def _blocks(report: Report) -> Iterator[Block]:
    """Yield the blocks of the text, from top to bottom."""
    blocks = [block for part in report.parts for block in _part_blocks(part)]
    # Nothing comes behind the last table.
    if blocks and not report.last_line and blocks[-1] == "":
        del blocks[-1]
    yield from blocks
    if report.last_line:
        yield report.last_line


def _part_blocks(part: Fact | Table | Parts) -> Iterator[Block]:
    if isinstance(part, Table):
        yield from _table_blocks(part)
    elif isinstance(part, Fact) and part.said:
        yield part.said


def _table_blocks(table: Table) -> Iterator[Block]:
    """Yield a table's title, its rows under their heads, and their details.

    A blank line follows, if it has heads or a last line.
    """
    if not table.shown:
        return
    if table.title:
        yield table.title
    columns = [column for column in table.heads if not column.wide]
    if columns:
        is_whole = all(column.unit is not SENTENCE for column in columns)
        yield _grid(
            [(column, column.unit.number) for column in columns], table.labels(columns), is_whole
        )
    for detail in (detail for row in table.shown for detail in row.details):
        yield f"\n{detail}" if columns else detail
    if table.after:
        yield table.after
    if columns or table.after:
        yield ""


def _print(console: Console, grid: Grid) -> None:
    """Print rows. Those that may not be broken are printed whole, in a console of any width."""
    width = console.width
    if all(column.no_wrap for column in grid.columns):
        console.width = max(width, _row_width(grid))
    console.print(grid)
    console.width = width


def _row_width(grid: Grid) -> int:
    """Return the letters of a row."""
    return sum(
        2 + max(map(cell_len, [str(column.header), *map(str, column.cells)]), default=0)
        for column in grid.columns
    )


def _grid(
    columns: Iterable[tuple[Column, bool]], rows: Iterable[Sequence[str]], is_whole: bool = False
) -> Grid:
    """Return rows under heads.

    columns: each with whether it is set to the right. whole: whether no cell is broken into lines.
    """
    grid = Grid(box=None, pad_edge=False)
    for column, is_number in columns:
        justify: JustifyMethod = "right" if is_number else "left"
        grid.add_column(_cell(column.head), justify=justify, overflow="fold", no_wrap=is_whole)
    for row in rows:
        grid.add_row(*map(_cell, row))
    return grid


def _cell(text: str) -> Text:
    """Return a stranger's text as it is, in one line.

    Neither rich's markup nor control sequences have an effect in it.
    """
    return Text(printable(text, line=True))
