"""The map in a terminal, and a line a length and a depth where there is no terminal.

Every place has a colour and a glyph, so the map can be read without colours too. It takes the
width it is given: numbers where there is room, else one glyph per cell, else one glyph for
several cells (their mean).
"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TypeVar

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import Style
from rich.text import Text

from needlemap.records.record import SKIPPED
from needlemap.reports.colours import (
    INK,
    NOT_MEASURED,
    colour_of,
    hex_of,
    ink_on,
    palette_colours,
)
from needlemap.reports.labels import (
    depth_labels,
    depth_score_labels,
    in_percent,
    interval_behind,
    length_labels,
    length_range,
    missing_label,
    n_label,
    overall_label,
    row_labels,
    score_label,
)
from needlemap.stats.cell_score import CellScore
from needlemap.stats.intervals import ClusterMean
from needlemap.stats.means import Map, Unanswered

T = TypeVar("T")
RAGGED_ROWS = 20


@dataclass(frozen=True, slots=True)
class Spot:
    """One place: the mean score in [0, 1] of its cells, or None.

    Attributes:
        failed: Whether one of the cells failed.
        exists: Whether the grid has a cell here.
        thought: Whether a thinking budget ended an answer before its first word.
    """

    score: float | None
    failed: bool = False
    exists: bool = True
    thought: bool = False


NOWHERE = Spot(None, exists=False)


@dataclass(frozen=True, slots=True)
class Raster:
    """A map in places.

    Attributes:
        columns: The lengths in each column.
        labels: Where each row starts.
        spots: The places, row by row.
        means: Per column, the mean over its lengths of the mean over depths.
        most: The most cells merged in one spot.
    """

    columns: tuple[tuple[int, ...], ...]
    labels: tuple[str, ...]
    spots: tuple[tuple[Spot, ...], ...]
    means: tuple[Spot, ...]
    most: int


def make_raster(score_map: Map, max_columns: int, max_rows: int) -> Raster:
    """Return a raster of at most max_columns x max_rows places.

    Adjoining lengths and depths share a place.
    """
    columns = _group(score_map.lengths, max_columns)
    rows, labels = depth_rows(score_map, max_rows)
    column_of = {length: index for index, group in enumerate(columns) for length in group}
    row_of = {depth: index for index, group in enumerate(rows) for depth in group}
    cells_at: dict[tuple[int, int], list[CellScore]] = defaultdict(list)
    for cell in score_map.cells:
        cells_at[row_of[cell.depth], column_of[cell.length_tokens]].append(cell)
    spots = tuple(
        tuple(_spot(cells_at.get((row, column), [])) for column in range(len(columns)))
        for row in range(len(rows))
    )
    return Raster(
        columns=columns,
        labels=labels,
        spots=spots,
        means=_means(score_map, columns),
        most=max((len(cells) for cells in cells_at.values()), default=1),
    )


def depth_rows(
    score_map: Map, max_rows: int
) -> tuple[tuple[tuple[float, ...], ...], tuple[str, ...]]:
    """Return the depths in each row, and the label of each row, which is its first depth.

    If every length has depths of its own, rows are equal parts of the haystack instead.
    """
    if not score_map.ragged:
        rows = _group(score_map.depths, max_rows)
        labels = row_labels(score_map, [row[0] for row in rows])
        return rows, tuple(labels.values())
    parts = min(max_rows, RAGGED_ROWS)
    rows = tuple(
        tuple(depth for depth in score_map.depths if min(int(depth * parts), parts - 1) == part)
        for part in range(parts)
    )
    return rows, tuple(depth_labels([part / parts for part in range(parts)]).values())


def _group(values: Sequence[T], most_groups: int) -> tuple[tuple[T, ...], ...]:
    size = max(1, -(-len(values) // max(1, most_groups)))
    return tuple(tuple(values[start : start + size]) for start in range(0, len(values), size))


def _spot(cells: Sequence[CellScore]) -> Spot:
    if not cells:
        return NOWHERE
    return Spot(
        _mean(cell.score for cell in cells),
        any(_has_failed(cell.failures) for cell in cells),
        thought=any(cell.thought for cell in cells),
    )


def _has_failed(failures: Mapping[str, int]) -> bool:
    """Return True if a trial failed. A trial that a limit skipped did not fail."""
    return any(kind != SKIPPED for kind in failures)


def _means(score_map: Map, columns: Sequence[Sequence[int]]) -> tuple[Spot, ...]:
    """Return the mean over the lengths of each column, and whether a trial in it failed."""
    spots = []
    for column in columns:
        score = _mean(score_map.by_length.get(length) for length in column)
        cells = [cell for cell in score_map.cells if cell.length_tokens in column]
        spots.append(Spot(score, failed=any(_has_failed(cell.failures) for cell in cells)))
    return tuple(spots)


def _mean(scores: Iterable[float | None]) -> float | None:
    numbers = [score for score in scores if score is not None]
    return sum(numbers) / len(numbers) if numbers else None


# Up to three digits and a blank.
NUMBER_WIDTH = 4
MAX_CELL_WIDTH = 6
MAX_ROWS = 40
FAILED = Style.parse(f"{INK} on {NOT_MEASURED[0]}")
UNASKED = Style.parse("dim")


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Signs of places.

    Attributes:
        full: A score of 100.
        unasked: Not sent yet.
        failed: Could not be measured.
        thought: Stands behind a score if a thinking budget ended an answer.
    """

    full: str
    unasked: str
    failed: str
    thought: str


UNICODE = Glyphs("█", "·", "×", "…")
ASCII = Glyphs("#", ".", "x", "~")


@dataclass(frozen=True, slots=True)
class TerminalMap:
    """A map that fits the console it is printed on; rows beyond max_rows are merged."""

    map: Map
    max_rows: int
    colours: tuple[str, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield title, lengths, one row per depth, means, and what it comes to."""
        yield from self.lines(options.max_width, ASCII if options.ascii_only else UNICODE)

    def lines(self, width: int, glyphs: Glyphs = UNICODE) -> list[Text]:
        """Return all lines, none longer than width characters."""
        name = "" if self.map.depthless else "depth"
        labels = (*depth_rows(self.map, self.max_rows)[1], "mean", name)
        gutter = 1 + max(map(len, labels))
        raster = make_raster(self.map, max(1, width - gutter), self.max_rows)
        cell_width = max(1, min(MAX_CELL_WIDTH, (width - gutter) // max(1, len(raster.columns))))
        painter = Painter(cell_width, self.colours, glyphs)
        title = f"{self.map.model} · {self.map.task} · {length_range(self.map.lengths)}"
        lines = [
            *(Text(part, style="bold") for part in break_line(title, width)),
            Text(
                _header_with_unit(
                    name.ljust(gutter) + _length_header(raster.columns, cell_width), width
                )
            ),
            *(
                painter.row(label, gutter, spots)
                for label, spots in zip(raster.labels, raster.spots, strict=True)
            ),
            painter.row("mean", gutter, raster.means),
            *_footer(self.map, raster, cell_width, glyphs, width),
        ]
        return [_fit_line(line, width, glyphs) for line in lines]


@dataclass(frozen=True, slots=True)
class Painter:
    """Draws spots, each cell_width characters wide."""

    cell_width: int
    colours: tuple[str, ...]
    glyphs: Glyphs

    def row(self, label: str, gutter: int, spots: Sequence[Spot]) -> Text:
        """Return a label and its spots."""
        return Text.assemble(label.rjust(gutter - 1) + " ", *(self.spot(spot) for spot in spots))

    def spot(self, spot: Spot) -> tuple[str, Style]:
        """Return text and style of one spot."""
        if not spot.exists:
            return " " * self.cell_width, Style.null()
        if spot.score is None:
            if spot.failed:
                return self._placed(self.glyphs.failed), FAILED
            return self._placed(self.glyphs.unasked), UNASKED
        colour = colour_of(spot.score, self.colours)
        fill, ink = hex_of(colour), ink_on(colour)
        thought_glyph = self.glyphs.thought if spot.thought else ""
        if self.cell_width >= NUMBER_WIDTH:
            text = f"{_score_parts(spot.score, 100):>3}{thought_glyph}"
            return self._placed(text), Style.parse(f"{ink} on {fill}")
        if thought_glyph and _score_parts(spot.score, 10) == 0:
            return self._placed(thought_glyph), Style.parse(f"{ink} on {fill}")
        if spot.score >= 1:
            return self.glyphs.full * self.cell_width, Style.parse(f"{fill} on {fill}")
        return self._placed(str(_score_parts(spot.score, 10))), Style.parse(f"{ink} on {fill}")

    def _placed(self, text: str) -> str:
        if self.cell_width >= NUMBER_WIDTH:
            return text.center(self.cell_width)
        return text.ljust(self.cell_width)


def terminal_map(
    score_map: Map, *, max_rows: int = MAX_ROWS, palette: str | None = None
) -> RenderableType:
    """Return a rich renderable of a map, finished or not.

    max_rows: a live view gives the console's height less 7, the
    lines around them. Raises SettingsError for an unknown palette.
    """
    return TerminalMap(score_map, max(1, max_rows), palette_colours(palette))


def map_text(score_map: Map, width: int) -> str:
    """Return a map as text. width: the most letters in a line."""
    text = StringIO()
    Console(file=text, width=width, color_system=None, highlight=False).print(
        terminal_map(score_map)
    )
    return text.getvalue().rstrip()


def break_line(line: str, width: int) -> list[str]:
    """Break a line into parts of at most `width` letters, of which all but the first are indented.

    A word is broken only if it is wider.
    """
    indent = line[: len(line) - len(line.lstrip())]
    further_indent = f"{indent}  " if width > len(indent) + 20 else ""
    parts = textwrap.wrap(
        line,
        width=max(1, width),
        subsequent_indent=further_indent,
        break_on_hyphens=False,
    )
    return parts or [""]


def plain_summary(score_map: Map) -> str:
    """Return a line a length and one a depth, for logs and pipes, then the overall score.

    For example '4k  92.5  n=20 [83.1, 97.0]'.
    """
    labels = length_labels(score_map.lengths)
    width = max((len(label) for label in labels.values()), default=0)
    lines = [
        f"{score_map.model} · {score_map.task} · tokenizer {score_map.tokenizer} · "
        f"scorer {score_map.scorer} · mode {score_map.mode}"
    ]
    lines += [
        f"{labels[length]:>{width}}  {_length_line(score_map, length)}"
        for length in score_map.lengths
    ]
    return "\n".join([*lines, *_depth_lines(score_map), *_totals(score_map)]) + "\n"


def _length_line(score_map: Map, length: int) -> str:
    row = score_map.unanswered.get(length, Unanswered())
    reasons = f" missing {missing_label(row.missing, row.failures)}" if row.missing else ""
    reasons += f" ({row.thought} thinking budget spent)" if row.thought else ""
    return f"{_mean_line(score_map.margins.get(length), counted=score_map.counted)}{reasons}"


def _depth_lines(score_map: Map) -> list[str]:
    """Return a line for each depth, or none if there are fewer than two depths."""
    if len(score_map.by_depth) < 2:
        return []
    labels = depth_score_labels(score_map.by_depth, score_map.depths)
    width = max(len(label) for label in labels)
    return [
        f"depth {label:>{width}}  {_mean_line(row.mean, counted=score_map.counted)}"
        for label, row in zip(labels, score_map.by_depth, strict=True)
    ]


def _mean_line(mean: ClusterMean | None, *, counted: bool) -> str:
    """Return a score with n and its interval, if it has one."""
    score, n = (mean.score, mean.n) if mean else (None, 0)
    return f"{score_label(score):>5}  {n_label(n, counted=counted)}{interval_behind(mean)}"


def _score_parts(score: float, parts_of_full: int) -> int:
    """Return a score in whole parts of 10 or 100, of which only a perfect score has all.

    Hundredths are rounded; tenths are cut, not rounded.
    """
    parts = int(in_percent(score, 0)) if parts_of_full == 100 else int(score * parts_of_full + 1e-9)
    return parts_of_full if score >= 1 else min(parts, parts_of_full - 1)


def _length_header(columns: Sequence[Sequence[int]], cell_width: int) -> str:
    """Return labels above their columns. A label that would touch the one before is left out."""
    labels = length_labels([column[0] for column in columns])
    line = ""
    for index, label in enumerate(labels.values()):
        text = label
        if cell_width >= NUMBER_WIDTH:
            text = label.rjust(min(3, cell_width)).center(cell_width)
        start = index * cell_width + len(text) - len(text.lstrip())
        if not line or len(line) < start:
            line = line.ljust(start) + text.strip()
    return line


def _header_with_unit(header: str, width: int) -> str:
    """Return the labels of lengths, with their unit if it has room."""
    with_unit = f"{header}  tokens"
    return with_unit if len(with_unit) <= width else header


def _footer(
    score_map: Map, raster: Raster, cell_width: int, glyphs: Glyphs, width: int
) -> list[Text]:
    """Return the lines below a map: the overall score, what is missing, and the legend."""
    overall, *missing = _totals(score_map)
    notes = [*missing, _legend(score_map, cell_width, glyphs)]
    if raster.most > 1:
        notes.append(f"each place: the mean of up to {raster.most} cells")

    lines = [Text(part, style="bold") for part in break_line(overall, width)]
    for note in filter(None, notes):
        lines += [Text(part, style="dim") for part in break_line(note, width)]
    return lines


def _totals(score_map: Map) -> list[str]:
    missing = (
        [f"missing {missing_label(score_map.missing, score_map.failures)}"]
        if score_map.missing
        else []
    )
    return [overall_label(score_map), *missing]


def _legend(score_map: Map, cell_width: int, glyphs: Glyphs) -> str:
    """Return the meaning of the signs that occur in the map."""
    has_failed = any(_has_failed(cell.failures) for cell in score_map.cells)
    has_unsent = any(
        cell.score is None and not _has_failed(cell.failures) for cell in score_map.cells
    )
    signs = [f"0-9 tens of percent  {glyphs.full} 100"] if cell_width < NUMBER_WIDTH else []
    signs += [f"{glyphs.unasked} not sent"] if has_unsent else []
    return "  ".join([*signs, *([f"{glyphs.failed} failed"] if has_failed else [])])


def _fit_line(line: Text, width: int, glyphs: Glyphs) -> Text:
    """Return a line cut to a width, in letters that the console can write."""
    if glyphs is ASCII:
        ascii_text = (
            line.plain.replace("·", "-").replace("–", "-").encode("ascii", "replace").decode()
        )
        line = Text(ascii_text, style=line.style, spans=line.spans)
    line.no_wrap = True
    line.truncate(width, overflow="crop" if glyphs is ASCII else "ellipsis")
    return line
