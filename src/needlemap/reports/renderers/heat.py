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
    all_failures,
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
from needlemap.stats.means import Map

T = TypeVar("T")
RAGGED_ROWS = 20


@dataclass(frozen=True, slots=True)
class Spot:
    """One place: the mean score in [0, 1] of its cells, or None and whether one of them
    failed.

    exists: False where the grid has no cell at all. thought: whether a thinking budget ended
    an answer before its first word.
    """

    score: float | None
    failed: bool = False
    exists: bool = True
    thought: bool = False


NOWHERE = Spot(None, exists=False)


@dataclass(frozen=True, slots=True)
class Raster:
    """columns: the lengths in each column. labels: where each row starts. spots: row by row.

    means: per column, the mean over its lengths of the mean over depths. most: cells merged in
    one spot.
    """

    columns: tuple[tuple[int, ...], ...]
    labels: tuple[str, ...]
    spots: tuple[tuple[Spot, ...], ...]
    means: tuple[Spot, ...]
    most: int


def make_raster(map: Map, max_columns: int, max_rows: int) -> Raster:
    """A raster of at most max_columns x max_rows places; adjoining lengths and depths share a
    place."""
    columns, (rows, labels) = _grouped(map.lengths, max_columns), depth_rows(map, max_rows)
    column_of = {length: place for place, group in enumerate(columns) for length in group}
    row_of = {depth: place for place, group in enumerate(rows) for depth in group}
    members: dict[tuple[int, int], list[CellScore]] = defaultdict(list)
    for cell in map.cells:
        members[row_of[cell.depth], column_of[cell.length_tokens]].append(cell)
    spots = tuple(
        tuple(_spot(members.get((row, column), [])) for column in range(len(columns)))
        for row in range(len(rows))
    )
    return Raster(
        columns,
        labels,
        spots,
        _means(map, columns),
        max((len(cells) for cells in members.values()), default=1),
    )


def depth_rows(map: Map, max_rows: int) -> tuple[tuple[tuple[float, ...], ...], tuple[str, ...]]:
    """The depths in each row, and the rows' labels: where each starts.

    Where every length has depths of its own, rows are equal parts of the haystack instead.
    """
    if not map.ragged:
        rows = _grouped(map.depths, max_rows)
        labels = row_labels(map, [row[0] for row in rows])
        return rows, tuple(labels.values())
    parts = min(max_rows, RAGGED_ROWS)
    rows = tuple(
        tuple(depth for depth in map.depths if min(int(depth * parts), parts - 1) == part)
        for part in range(parts)
    )
    return rows, tuple(depth_labels([part / parts for part in range(parts)]).values())


def _grouped(values: Sequence[T], most: int) -> tuple[tuple[T, ...], ...]:
    size = max(1, -(-len(values) // max(1, most)))
    return tuple(tuple(values[start : start + size]) for start in range(0, len(values), size))


def _spot(cells: Sequence[CellScore]) -> Spot:
    if not cells:
        return NOWHERE
    return Spot(
        _mean(cell.score for cell in cells),
        any(_failed(cell.failures) for cell in cells),
        thought=any(cell.thought for cell in cells),
    )


def _failed(failures: Mapping[str, int]) -> bool:
    """Whether something failed; what a limit skipped was only not asked."""
    return any(kind != SKIPPED for kind in failures)


def _means(map: Map, columns: Sequence[Sequence[int]]) -> tuple[Spot, ...]:
    """By column the mean over its lengths, and whether something failed in it."""
    scores = ([map.by_length.get(length) for length in column] for column in columns)
    failed = (
        any(_failed(cell.failures) for cell in map.cells if cell.length_tokens in each)
        for each in columns
    )
    return tuple(Spot(_mean(each), fails) for each, fails in zip(scores, failed, strict=True))


def _mean(scores: Iterable[float | None]) -> float | None:
    known = [score for score in scores if score is not None]
    return sum(known) / len(known) if known else None


NUMBER_WIDTH = 4  # up to three digits and a blank
MAX_CELL_WIDTH = 6
MAX_ROWS = 40
FAILED = Style.parse(f"{INK} on {NOT_MEASURED[0]}")
UNASKED = Style.parse("dim")


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Signs: full is a score of 100, unasked was not asked yet, failed could not be measured.
    thought stands behind a score where a thinking budget ended an answer."""

    full: str
    unasked: str
    failed: str
    thought: str


UNICODE = Glyphs("█", "·", "×", "…")
ASCII = Glyphs("#", ".", "x", "~")


@dataclass(frozen=True, slots=True)
class TerminalMap:
    """A map that fits the console it is printed on; rows beyond max_rows are merged. means:
    below it."""

    map: Map
    max_rows: int
    colours: tuple[str, ...]
    means: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Title, lengths, one row per depth, means, and what it comes to."""
        yield from self.lines(options.max_width, ASCII if options.ascii_only else UNICODE)

    def lines(self, width: int, glyphs: Glyphs = UNICODE) -> list[Text]:
        """All lines, none longer than width characters."""
        name = "" if self.map.depthless else "depth"
        labels = (*depth_rows(self.map, self.max_rows)[1], "mean", name)
        gutter = 1 + max(map(len, labels))
        raster = make_raster(self.map, max(1, width - gutter), self.max_rows)
        cell_width = max(1, min(MAX_CELL_WIDTH, (width - gutter) // max(1, len(raster.columns))))
        painter = Painter(cell_width, self.colours, glyphs)
        title = f"{self.map.model} · {self.map.task} · {length_range(self.map.lengths)}"
        below = [painter.row("mean", gutter, raster.means)]
        below += _footer(self.map, raster, cell_width, glyphs, width)
        lines = [
            *(Text(part, style="bold") for part in broken(title, width)),
            Text(_named(name.ljust(gutter) + _length_header(raster.columns, cell_width), width)),
            *(
                painter.row(label, gutter, spots)
                for label, spots in zip(raster.labels, raster.spots, strict=True)
            ),
            *(below if self.means else ()),
        ]
        return [_fitted(line, width, glyphs) for line in lines]


@dataclass(frozen=True, slots=True)
class Painter:
    """Draws spots, each cell_width characters wide."""

    cell_width: int
    colours: tuple[str, ...]
    glyphs: Glyphs

    def row(self, label: str, gutter: int, spots: Sequence[Spot]) -> Text:
        """A label and its spots."""
        return Text.assemble(label.rjust(gutter - 1) + " ", *(self.spot(spot) for spot in spots))

    def spot(self, spot: Spot) -> tuple[str, Style]:
        """Text and style of one spot."""
        if not spot.exists:
            return " " * self.cell_width, Style.null()
        if spot.score is None:
            glyph, style = (
                (self.glyphs.failed, FAILED) if spot.failed else (self.glyphs.unasked, UNASKED)
            )
            return self._placed(glyph), style
        colour = colour_of(spot.score, self.colours)
        back, ink = hex_of(colour), ink_on(colour)
        thought = self.glyphs.thought if spot.thought else ""
        if self.cell_width >= NUMBER_WIDTH:
            shown = f"{_whole(spot.score, 100):>3}{thought}"
            return self._placed(shown), Style.parse(f"{ink} on {back}")
        if thought and _whole(spot.score, 10) == 0:
            return self._placed(thought), Style.parse(f"{ink} on {back}")
        if spot.score >= 1:
            return self.glyphs.full * self.cell_width, Style.parse(f"{back} on {back}")
        return self._placed(str(_whole(spot.score, 10))), Style.parse(f"{ink} on {back}")

    def _placed(self, text: str) -> str:
        return (
            text.center(self.cell_width)
            if self.cell_width >= NUMBER_WIDTH
            else text.ljust(self.cell_width)
        )


def terminal_map(
    map: Map, *, max_rows: int = MAX_ROWS, palette: str | None = None, means: bool = True
) -> RenderableType:
    """A rich renderable of a map, finished or not. Raises SettingsError for an unknown
    palette.

    means: also these. max_rows: a live view gives the console's height less 7, the lines
    around them.
    """
    return TerminalMap(map, max(1, max_rows), palette_colours(palette), means)


def map_text(map: Map, width: int) -> str:
    """A map in letters, at most so many of them in a line."""
    text = StringIO()
    Console(file=text, width=width, color_system=None, highlight=False).print(terminal_map(map))
    return text.getvalue().rstrip()


def broken(line: str, width: int) -> list[str]:
    """A line in parts of at most so many letters, none within a word that has room; further
    ones indented."""
    begin = line[: len(line) - len(line.lstrip())]
    deeper = f"{begin}  " if width > len(begin) + 20 else ""
    return textwrap.wrap(line, max(1, width), subsequent_indent=deeper, break_on_hyphens=False) or [
        ""
    ]


def plain_summary(map: Map) -> str:
    """A line a length and one a depth, for logs and pipes: '4k  92.5  n=20 [83.1, 97.0]'; then the
    overall score."""
    labels = length_labels(map.lengths)
    wide = max((len(label) for label in labels.values()), default=0)
    lines = [
        f"{map.model} · {map.task} · tokenizer {map.tokenizer} · scorer {map.scorer} · mode "
        f"{map.mode}"
    ]
    lines += [f"{labels[length]:>{wide}}  {_length_line(map, length)}" for length in map.lengths]
    return "\n".join([*lines, *_depth_lines(map), *_totals(map)]) + "\n"


def _length_line(map: Map, length: int) -> str:
    cells = [cell for cell in map.cells if cell.length_tokens == length]
    missing = sum(cell.missing for cell in cells)
    why = f" missing {missing_label(missing, all_failures(cells))}" if missing else ""
    thought = sum(cell.thought for cell in cells)
    why += f" ({thought} thinking budget spent)" if thought else ""
    return f"{_mean_line(map.margins.get(length), counted=map.counted)}{why}"


def _depth_lines(map: Map) -> list[str]:
    """A line a depth; none where there are not two."""
    if len(map.by_depth) < 2:
        return []
    labels = depth_score_labels(map.by_depth, map.depths)
    wide = max(len(label) for label in labels)
    return [
        f"depth {label:>{wide}}  {_mean_line(row.mean, counted=map.counted)}"
        for label, row in zip(labels, map.by_depth, strict=True)
    ]


def _mean_line(mean: ClusterMean | None, *, counted: bool) -> str:
    """A score, how much it rests on, and its interval if it has one."""
    score, n = (mean.score, mean.n) if mean else (None, 0)
    return f"{score_label(score):>5}  {n_label(n, counted=counted)}{interval_behind(mean)}"


def _whole(score: float, full: int) -> int:
    """A score in whole parts of full, rounded; only a perfect score is full. Tens are cut, not
    rounded."""
    parts = int(in_percent(score, 0)) if full == 100 else int(score * full + 1e-9)
    return full if score >= 1 else min(parts, full - 1)


def _length_header(columns: Sequence[Sequence[int]], cell_width: int) -> str:
    """Labels above the columns they name, left to right, as many as do not touch."""
    labels = length_labels([column[0] for column in columns])
    line = ""
    for place, label in enumerate(labels.values()):
        text = (
            label.rjust(min(3, cell_width)).center(cell_width)
            if cell_width >= NUMBER_WIDTH
            else label
        )
        start = place * cell_width + len(text) - len(text.lstrip())
        if not line or len(line) < start:
            line = line.ljust(start) + text.strip()
    return line


def _named(header: str, width: int) -> str:
    """The labels of lengths with their unit, where it has room."""
    unit = f"{header}  tokens"
    return unit if len(unit) <= width else header


def _footer(map: Map, raster: Raster, cell_width: int, glyphs: Glyphs, width: int) -> list[Text]:
    overall, *missing = _totals(map)
    merged = [f"each place: the mean of up to {raster.most} cells"] if raster.most > 1 else []
    said = (*missing, _legend(map, cell_width, glyphs), *merged)
    notes = [Text(part, style="dim") for note in said if note for part in broken(note, width)]
    return [*(Text(part, style="bold") for part in broken(overall, width)), *notes]


def _totals(map: Map) -> list[str]:
    why = [f"missing {missing_label(map.missing, all_failures(map.cells))}"] if map.missing else []
    return [overall_label(map), *why]


def _legend(map: Map, cell_width: int, glyphs: Glyphs) -> str:
    """What signs mean, those of what is missing where something is."""
    failed = any(_failed(cell.failures) for cell in map.cells)
    unasked = any(cell.score is None and not _failed(cell.failures) for cell in map.cells)
    signs = [f"0-9 tens of percent  {glyphs.full} 100"] if cell_width < NUMBER_WIDTH else []
    signs += [f"{glyphs.unasked} not sent"] if unasked else []
    return "  ".join([*signs, *([f"{glyphs.failed} failed"] if failed else [])])


def _fitted(line: Text, width: int, glyphs: Glyphs) -> Text:
    """A line cut to a width, in letters that the console can write."""
    if glyphs is ASCII:
        spelt = line.plain.replace("·", "-").replace("–", "-").encode("ascii", "replace").decode()
        line = Text(spelt, style=line.style, spans=line.spans)
    line.no_wrap = True
    line.truncate(width, overflow="crop" if glyphs is ASCII else "ellipsis")
    return line
