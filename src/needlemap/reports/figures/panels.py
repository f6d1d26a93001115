"""What a map and a comparison show: their panels, the words of a caption, and the legend under
all panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from needlemap.grid import percent
from needlemap.plan.bins import bin_edges
from needlemap.records.record import SKIPPED, THINKING_SPENT
from needlemap.reports.colours import BAND, CHANGES, NOT_MEASURED, palette_colours
from needlemap.reports.figures import (
    FAINT,
    HATCHED,
    INK,
    SOFT,
    TEXT,
    area,
    line,
    mark,
    number,
    rect,
    text,
    wide,
)
from needlemap.reports.figures.axis import Axis, make_axis
from needlemap.reports.figures.heat import Box, DrawnCell, DrawnMean, MapPanel, Scale
from needlemap.reports.labels import (
    WHOLE,
    Bands,
    interval_behind,
    length_range,
    loss_label,
    missing_label,
    percent_of,
    ragged_bands,
    row_labels,
    score_label,
    typeset,
    withheld_label,
)
from needlemap.reports.loss import interval_of
from needlemap.stats.cell_score import CellScore
from needlemap.stats.comparison import FamilyComparison, LengthDifference
from needlemap.stats.means import Map

QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)


def scores(palette: str | None) -> Scale:
    """Return scores of 0 to 100, never stretched to the data.

    Raises SettingsError for an unknown palette.
    """
    ends = ("lost", "found")
    return Scale("Score", "Score", "%", (0, 100), (0, 50, 100), palette_colours(palette), ends)


def changes(comparison: FamilyComparison) -> Scale:
    """Return losses in points, as far to both sides as a round number above the largest.

    Intervals may go beyond.
    """
    largest = max((abs(100 * cell.loss) for cell in comparison.cells), default=0.0)
    end = next((limit for limit in (5, 10, 20, 50) if largest <= limit), 100)
    ends = ("lost", "gained")
    return Scale("Loss", "Loss, points", "", (end, -end), (end, 0, -end), CHANGES, ends)


def map_title(map: Map) -> str:
    """Return model, task and lengths."""
    return f"{map.model} · {map.task} · {length_range(map.lengths)}"


def map_panel(map: Map, title: str, lines: Sequence[str], scale: Scale) -> MapPanel:
    """Return a run's map as a panel."""
    lengths, depths, bands = axes_of(map)
    bins = dict(zip(map.depths, bin_edges(map.depths), strict=True)) if map.mode == "bins" else {}
    return MapPanel(
        title=title,
        lines=tuple(lines),
        lengths=lengths,
        depths=depths,
        depth_labels=_depth_labels(map, depths),
        cells=tuple(_cell(map, cell, bands, bins) for cell in map.cells),
        by_length=tuple(
            DrawnMean.of(lengths.position(length), map.margins.get(length))
            for length in map.lengths
        ),
        by_depth=tuple(_depth_means(map, depths)),
        scale=scale,
        depthless=map.depthless,
    )


def _depth_labels(map: Map, depths: Axis) -> dict[float, str]:
    return {depth: typeset(label) for depth, label in row_labels(map, depths.values).items()}


def axes_of(map: Map) -> tuple[Axis, Axis, Bands]:
    """Return a map's lengths, its depths, and where each cell lies between them."""
    lengths = make_axis(map.lengths, ("linear", "log"))
    if map.ragged:
        quarters = Axis("linear", QUARTERS, tuple((share, share) for share in QUARTERS), QUARTERS)
        return lengths, quarters, ragged_bands(map)
    depths = make_axis(map.depths, ("linear",))
    bands = {(cell.length_tokens, cell.depth): depths.edge(cell.depth) for cell in map.cells}
    return lengths, depths, bands


def _cell(
    map: Map, cell: CellScore, bands: Bands, bins: Mapping[float, tuple[float, float]]
) -> DrawnCell:
    top, bottom = bands[cell.length_tokens, cell.depth]
    needle = None
    if cell.depth in bins and cell.score is not None:
        low, high = bins[cell.depth]
        share = min(1.0, max(0.0, (cell.realised - low) / (high - low))) if high > low else 0.5
        needle = top + share * (bottom - top)
    is_sent = cell.score is not None or any(kind != SKIPPED for kind in cell.failures)
    return DrawnCell(
        length=cell.length_tokens,
        top=top,
        bottom=bottom,
        value=percent_of(cell.score),
        partial=cell.score is not None and cell.missing > 0,
        needle=needle,
        tip=_tip(map, cell),
        thought=cell.thought > 0,
        unsent=not is_sent,
    )


def _tip(map: Map, cell: CellScore) -> str:
    """Return a cell in words."""
    depth = f"depth {percent(cell.depth):.4g} %, realised {percent(cell.realised):.4g} %"
    shown = "not measured" if cell.score is None else f"score {score_label(cell.score)} %"
    missing = f", missing {missing_label(cell.missing, cell.failures)}" if cell.missing else ""
    missing += f", {cell.thought} {THINKING_SPENT}" if cell.thought else ""
    place = f"{cell.length_tokens:,} tokens, {WHOLE if map.depthless else depth}"
    return f"{place}: {shown}{interval_behind(cell)}, n={cell.n}{missing}"


def _depth_means(map: Map, depths: Axis) -> list[DrawnMean]:
    if map.ragged:
        return [DrawnMean.of((row.depth + row.end) / 2, row.mean) for row in map.by_depth]
    means = {row.depth: row.mean for row in map.by_depth}
    return [DrawnMean.of(depths.position(depth), means.get(depth)) for depth in map.depths if means]


def one_of(values: set[str]) -> str:
    """Return what all have in common, '' if they differ."""
    return next(iter(values)) if len(values) == 1 else ""


def caption(map: Map) -> list[str]:
    """Return what a reader must know to believe the map: n, repeats, what is missing.

    How it was asked and scored stands below it.
    """
    return [f"{overall(map)}, {repeats(map)}", *missing_line(map)]


def overall(map: Map) -> str:
    """Return the score of all prompts and their number."""
    shown = f"overall {score_label(map.overall)} %{interval_behind(map.total)}, {count(map)}"
    return shown + withheld_label(map)


def count(map: Map) -> str:
    """Return how many prompts the map rests on."""
    return f"n = {map.n:,} prompts" if map.counted else f"n not told ({map.n:,} cells, each a mean)"


def overall_short(map: Map) -> str:
    """Return the same in few letters, for one map of several."""
    return overall(map).removeprefix("overall ").removesuffix(" prompts")


def repeats(map: Map) -> str:
    """Return how many trials a cell has."""
    counts = {cell.n + cell.missing for cell in map.cells}
    if not map.counted or not counts:
        return "cells are means" if counts else "no cells"
    low, high = min(counts), max(counts)
    if high == 1:
        return "one trial a cell"
    return f"{high} trials a cell" if low == high else f"{low} to {high} trials a cell"


def facts(map: Map) -> tuple[str, ...]:
    """Return how often a cell was asked, and how it was asked and scored.

    Each is stated once for several maps.
    """
    return repeats(map), f"mode {map.mode}", f"tokenizer {map.tokenizer}", f"scorer {map.scorer}"


def missing_line(map: Map) -> list[str]:
    """Return a line on missing trials; none if all are there."""
    return [f"Missing {missing_label(map.missing, map.failures)}"] if map.missing else []


def change_panel(comparison: FamilyComparison, map: Map) -> MapPanel:
    """Return what B loses in each cell of the first run's map.

    A cell is hatched if no trial of it has both scores.
    """
    lengths, depths, bands = axes_of(map)
    changes_by_place = {(cell.length_tokens, cell.depth): cell for cell in comparison.cells}
    differences = {row.length_tokens: row for row in comparison.lengths}
    cells = []
    for place, (top, bottom) in bands.items():
        change = changes_by_place.get(place)
        value = None if change is None else percent_of(change.loss)
        tip = "no pair"
        if change is not None:
            tip = typeset(f"loss {loss_label(change.loss)} points, n={change.n} pairs")
        cells.append(DrawnCell(place[0], top, bottom, value, tip=tip))
    return MapPanel(
        title="Loss of B",
        lines=change_caption(comparison),
        lengths=lengths,
        depths=depths,
        depth_labels=_depth_labels(map, depths),
        cells=tuple(cells),
        by_length=tuple(
            _loss(lengths.position(length), differences.get(length)) for length in map.lengths
        ),
        by_depth=(),
        scale=changes(comparison),
        depthless=map.depthless,
    )


def _loss(place: float, difference: LengthDifference | None) -> DrawnMean:
    """Return a length's loss, with its interval if it has one."""
    if difference is None:
        return DrawnMean(place)
    if difference.loss is None:
        return DrawnMean(place, percent_of(-difference.difference.value))
    value, low, high = map(
        percent_of, (difference.loss.value, difference.loss.high, difference.loss.low)
    )
    return DrawnMean(place, value, low, high)


def change_caption(comparison: FamilyComparison) -> tuple[str, ...]:
    """Return loss and interval, n, and what was left out."""
    overall, loss = comparison.overall, comparison.paired.loss
    shown = loss_label(-overall.value) if loss is None else interval_of(loss)
    left_out = f", {comparison.dropped} without both scores" if comparison.dropped else ""
    count = f"n = {overall.n:,} pairs"
    if not comparison.counted:
        count = f"n not told ({overall.n:,} pairs of means)"
    return (typeset(f"{shown}, {count}{left_out}"),)


BAR, THICK = 78.0, 6.0
BETWEEN = 12.0
# Of a line of the legend.
HEIGHT = 17.0


@dataclass(frozen=True, slots=True)
class PanelItem:
    """An item of a legend.

    width: points that it takes. drawn: its parts, its left end and its top at 0.
    """

    width: float
    drawn: str


def legend_items(panels: Sequence[MapPanel], width: float, height: float) -> list[PanelItem]:
    """Return the items of colours, then of signs that occur. width, height: of each map."""
    cells = [cell for panel in panels for cell in panel.cells]
    means = [mean for panel in panels for mean in (*panel.by_length, *panel.by_depth)]
    scales = dict.fromkeys(panel.scale for panel in panels)
    filled = rect(0, 0, 8, 8, panels[0].scale.colour(90))
    band = rect(0, 0, 8, 8, BAND)
    hatched = rect(0, 0, 8, 8, HATCHED)
    has_dashes = any(panel.scale.signed and not panel.in_figures(width, height) for panel in panels)
    signs = [
        ("95 % interval", any(mean.low is not None for mean in means), band + _stroke(0, 8, INK)),
        (
            "not measured",
            any(cell.value is None and not cell.unsent for cell in cells),
            hatched + _FRAME,
        ),
        (
            "not sent",
            any(cell.unsent for cell in cells),
            rect(0, 0, 8, 8, NOT_MEASURED[0]) + mark(4, 4, 0.8, "square", FAINT, FAINT) + _FRAME,
        ),
        (
            "part is missing",
            any(cell.partial for cell in cells),
            filled + area([(4, 0), (8, 0), (8, 4)], INK),
        ),
        (
            THINKING_SPENT,
            any(cell.thought for cell in cells),
            filled + mark(2.5, 5.5, 1.6, "circle", "white", INK),
        ),
        (
            "needle's depth",
            any(cell.needle is not None for cell in cells),
            filled + _stroke(1.5, 6.5, INK),
        ),
        ("dash: lost", has_dashes, rect(0, 0, 8, 8, CHANGES[1]) + _stroke(1.5, 6.5, INK)),
    ]
    return [*map(_bar, scales), *(_key(words, sign) for words, occurs, sign in signs if occurs)]


_FRAME = rect(0, 0, 8, 8, "none", stroke=FAINT, stroke_width=0.5)


def _stroke(left: float, right: float, colour: str) -> str:
    return line([(left, 4), (right, 4)], colour, 0.8)


def _key(words: str, sign: str) -> PanelItem:
    """Return a sign of 8 points and its words."""
    return PanelItem(
        11 + wide(words),
        f'<g transform="translate(0 -1)">{sign}</g>' + text(11, 6, words, fill=SOFT),
    )


def gradient(colours: Sequence[str], box: Box, *, upright: bool = False) -> str:
    """Return a bar of a palette, the lowest score left, or at the bottom."""
    name = f"ramp{crc32(repr((colours, upright)).encode()):x}"
    direction = ' x1="0" x2="0" y1="1" y2="0"' if upright else ""
    shares = [colour / (len(colours) - 1) for colour in range(len(colours))]
    stops = (
        f'<stop offset="{share:.3f}" stop-color="{colour}"/>'
        for share, colour in zip(shares, colours, strict=True)
    )
    shades = (
        f'<defs><linearGradient id="{name}"{direction}>{"".join(stops)}</linearGradient></defs>'
    )
    return shades + rect(*box, f"url(#{name})")


def _bar(scale: Scale) -> PanelItem:
    """Return a scale's colours, with its ticks."""
    low, high = scale.ends
    bar_x = wide(scale.words) + 8 + (wide(low) + 4 if low else 0)
    ticks = (
        text(bar_x + scale.share(value) * BAR, THICK + TEXT, scale.label(value), anchor="middle")
        for value in scale.ticks
    )
    parts = (
        text(0, 6, scale.words)
        + (text(bar_x - 4, 6, low, anchor="end", fill=SOFT) if low else "")
        + (text(bar_x + BAR + 4, 6, high, fill=SOFT) if high else "")
        + gradient(scale.colours, Box(bar_x, 0, BAR, THICK))
        + "".join(ticks)
    )
    overhang = max(wide(scale.label(scale.domain[1])) / 2, 4 + wide(high) if high else 0)
    return PanelItem(bar_x + BAR + overhang, parts)


def draw_legend(
    items: Sequence[PanelItem], x: float, y: float, room: float
) -> tuple[list[str], float]:
    """Return all items from x on, and the height that they take.

    No line reaches further right than x + room.
    """
    parts: list[str] = []
    left, top = x, y
    for item in items:
        if left > x and left + item.width > x + room:
            left, top = x, top + HEIGHT
        parts.append(f'<g transform="translate({number(left)} {number(top)})">{item.drawn}</g>')
        left += item.width + BETWEEN
    return parts, top + HEIGHT - y
