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
    all_failures,
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
    """Scores of 0 to 100, never stretched to the data. Raises SettingsError for an unknown
    palette."""
    ends = ("lost", "found")
    return Scale("Score", "Score", "%", (0, 100), (0, 50, 100), palette_colours(palette), ends)


def changes(comparison: FamilyComparison) -> Scale:
    """Losses in points, as far to both sides as a round number above the largest.
    Intervals may go beyond."""
    most = max((abs(100 * cell.loss) for cell in comparison.cells), default=0.0)
    end = next((round_ for round_ in (5, 10, 20, 50) if most <= round_), 100)
    ends = ("lost", "gained")
    return Scale("Loss", "Loss, points", "", (end, -end), (end, 0, -end), CHANGES, ends)


def map_title(map: Map) -> str:
    """Model, task and lengths."""
    return f"{map.model} · {map.task} · {length_range(map.lengths)}"


def map_panel(map: Map, title: str, lines: Sequence[str], scale: Scale) -> MapPanel:
    """A run's map."""
    lengths, depths, bands = axes_of(map)
    bins = dict(zip(map.depths, bin_edges(map.depths), strict=True)) if map.mode == "bins" else {}
    return MapPanel(
        title,
        tuple(lines),
        lengths,
        depths,
        _depth_labels(map, depths),
        tuple(_cell(map, cell, bands, bins) for cell in map.cells),
        tuple(
            DrawnMean.of(lengths.position(length), map.margins.get(length))
            for length in map.lengths
        ),
        tuple(_depth_means(map, depths)),
        scale,
        map.depthless,
    )


def _depth_labels(map: Map, depths: Axis) -> dict[float, str]:
    return {depth: typeset(label) for depth, label in row_labels(map, depths.values).items()}


def axes_of(map: Map) -> tuple[Axis, Axis, Bands]:
    """Its lengths, its depths, and where each cell lies between them."""
    lengths = make_axis(map.lengths, ("linear", "log"))
    if map.ragged:
        whole = Axis("linear", QUARTERS, tuple((at, at) for at in QUARTERS), QUARTERS)
        return lengths, whole, ragged_bands(map)
    depths = make_axis(map.depths, ("linear",))
    return lengths, depths, {
        (cell.length_tokens, cell.depth): depths.edge(cell.depth) for cell in map.cells
    }  # fmt: skip


def _cell(
    map: Map, cell: CellScore, bands: Bands, bins: Mapping[float, tuple[float, float]]
) -> DrawnCell:
    top, bottom = bands[cell.length_tokens, cell.depth]
    needle = None
    if cell.depth in bins and cell.score is not None:
        low, high = bins[cell.depth]
        share = min(1.0, max(0.0, (cell.realised - low) / (high - low))) if high > low else 0.5
        needle = top + share * (bottom - top)
    value, partial = percent_of(cell.score), bool(cell.score is not None and cell.missing)
    tip, thought = _tip(map, cell), cell.thought > 0
    unsent = value is None and not any(kind != SKIPPED for kind in cell.failures)
    return DrawnCell(cell.length_tokens, top, bottom, value, partial, needle, tip, thought, unsent)


def _tip(map: Map, cell: CellScore) -> str:
    """A cell in words."""
    depth = f"depth {percent(cell.depth):.4g} %, realised {percent(cell.realised):.4g} %"
    shown = "not measured" if cell.score is None else f"score {score_label(cell.score)} %"
    missing = f", missing {missing_label(cell.missing, cell.failures)}" if cell.missing else ""
    missing += f", {cell.thought} {THINKING_SPENT}" if cell.thought else ""
    place = f"{cell.length_tokens:,} tokens, {WHOLE if map.depthless else depth}"
    return f"{place}: {shown}{interval_behind(cell)}, n={cell.n}{missing}"


def _depth_means(map: Map, depths: Axis) -> list[DrawnMean]:
    if map.ragged:
        return [DrawnMean.of((row.depth + row.end) / 2, row.mean) for row in map.by_depth]
    known = {row.depth: row.mean for row in map.by_depth}
    return [DrawnMean.of(depths.position(depth), known.get(depth)) for depth in map.depths if known]


def one_of(found: set[str]) -> str:
    """What all have in common, empty if they have not."""
    return next(iter(found)) if len(found) == 1 else ""


def caption(map: Map) -> list[str]:
    """What a reader must know to believe the map: n, repeats, what is missing. How it was asked
    and scored stands below it."""
    return [f"{overall(map)}, {repeats(map)}", *missing_line(map)]


def overall(map: Map) -> str:
    """The score of all prompts and their number."""
    shown = f"overall {score_label(map.overall)} %{interval_behind(map.total)}, {count(map)}"
    return shown + withheld_label(map)


def count(map: Map) -> str:
    """How many prompts it rests on."""
    return f"n = {map.n:,} prompts" if map.counted else f"n not told ({map.n:,} cells, each a mean)"


def overall_short(map: Map) -> str:
    """The same in few letters, of one map of several."""
    return overall(map).removeprefix("overall ").removesuffix(" prompts")


def repeats(map: Map) -> str:
    """How many trials a cell has."""
    found = {cell.n + cell.missing for cell in map.cells}
    if not map.counted or not found:
        return "cells are means" if found else "no cells"
    low, high = min(found), max(found)
    if high == 1:
        return "one trial a cell"
    return f"{high} trials a cell" if low == high else f"{low} to {high} trials a cell"


def facts(map: Map) -> tuple[str, ...]:
    """How often a cell was asked, and how it was asked and scored: each is said once of
    several maps."""
    return repeats(map), f"mode {map.mode}", f"tokenizer {map.tokenizer}", f"scorer {map.scorer}"


def missing_line(map: Map) -> list[str]:
    """A line on missing trials; none if all are there."""
    return [f"Missing {missing_label(map.missing, all_failures(map.cells))}"] if map.missing else []


def change_panel(comparison: FamilyComparison, map: Map) -> MapPanel:
    """What B loses in each cell of the first run's map; hatched where no trial has both scores."""
    lengths, depths, bands = axes_of(map)
    changed = {(cell.length_tokens, cell.depth): cell for cell in comparison.cells}
    found = {row.length_tokens: row for row in comparison.lengths}
    cells = []
    for place, (top, bottom) in bands.items():
        change = changed.get(place)
        value = None if change is None else percent_of(change.loss)
        tip = "no pair"
        if change is not None:
            tip = typeset(f"loss {loss_label(change.loss)} points, n={change.n} pairs")
        cells.append(DrawnCell(place[0], top, bottom, value, tip=tip))
    return MapPanel(
        "Loss of B",
        change_caption(comparison),
        lengths,
        depths,
        _depth_labels(map, depths),
        tuple(cells),
        tuple(_loss(lengths.position(length), found.get(length)) for length in map.lengths),
        (),
        changes(comparison),
        map.depthless,
    )


def _loss(place: float, found: LengthDifference | None) -> DrawnMean:
    """A length's loss, with its interval where it has one."""
    if found is None:
        return DrawnMean(place)
    if found.loss is None:
        return DrawnMean(place, percent_of(-found.difference.value))
    value, low, high = map(percent_of, (found.loss.value, found.loss.high, found.loss.low))
    return DrawnMean(place, value, low, high)


def change_caption(comparison: FamilyComparison) -> tuple[str, ...]:
    """Loss and interval, n, what was left out."""
    whole, loss = comparison.overall, comparison.paired.loss
    shown = loss_label(-whole.value) if loss is None else interval_of(loss)
    left = f", {comparison.dropped} without both scores" if comparison.dropped else ""
    count = (
        f"n = {whole.n:,} pairs"
        if comparison.counted
        else f"n not told ({whole.n:,} pairs of means)"
    )
    return (typeset(f"{shown}, {count}{left}"),)


BAR, THICK = 78.0, 6.0
BETWEEN = 12.0
HEIGHT = 17.0  # of a line of the legend


@dataclass(frozen=True, slots=True)
class PanelItem:
    """width: points that it takes. drawn: its parts, its left end and its top at 0."""

    width: float
    drawn: str


def legend_items(panels: Sequence[MapPanel], width: float, height: float) -> list[PanelItem]:
    """Of colours, then of signs that occur. width, height: of each map."""
    cells = [cell for panel in panels for cell in panel.cells]
    means = [mean for panel in panels for mean in (*panel.by_length, *panel.by_depth)]
    shade, scales = panels[0].scale.colour(90), dict.fromkeys(panel.scale for panel in panels)
    filled, band, hatched = (rect(0, 0, 8, 8, fill) for fill in (shade, BAND, HATCHED))
    dashed = any(panel.scale.signed and not panel.in_figures(width, height) for panel in panels)
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
        ("dash: lost", dashed, rect(0, 0, 8, 8, CHANGES[1]) + _stroke(1.5, 6.5, INK)),
    ]
    return [*map(_bar, scales), *(_key(words, sign) for words, shown, sign in signs if shown)]


_FRAME = rect(0, 0, 8, 8, "none", stroke=FAINT, stroke_width=0.5)


def _stroke(left: float, right: float, colour: str) -> str:
    return line([(left, 4), (right, 4)], colour, 0.8)


def _key(words: str, sign: str) -> PanelItem:
    """A sign of 8 points and its words."""
    return PanelItem(
        11 + wide(words),
        f'<g transform="translate(0 -1)">{sign}</g>' + text(11, 6, words, fill=SOFT),
    )


def gradient(colours: Sequence[str], box: Box, *, upright: bool = False) -> str:
    """A bar of a palette, the lowest score left, or at the bottom."""
    name = f"ramp{crc32(repr((colours, upright)).encode()):x}"
    way = ' x1="0" x2="0" y1="1" y2="0"' if upright else ""
    shares = [at / (len(colours) - 1) for at in range(len(colours))]
    stops = (
        f'<stop offset="{share:.3f}" stop-color="{at}"/>'
        for share, at in zip(shares, colours, strict=True)
    )
    shades = f'<defs><linearGradient id="{name}"{way}>{"".join(stops)}</linearGradient></defs>'
    return shades + rect(*box, f"url(#{name})")


def _bar(scale: Scale) -> PanelItem:
    """A scale's colours, with its ticks."""
    low, high = scale.ends
    begin = wide(scale.words) + 8 + (wide(low) + 4 if low else 0)
    ticks = (
        text(begin + scale.share(value) * BAR, THICK + TEXT, scale.label(value), anchor="middle")
        for value in scale.ticks
    )
    drawn = (
        text(0, 6, scale.words)
        + (text(begin - 4, 6, low, anchor="end", fill=SOFT) if low else "")
        + (text(begin + BAR + 4, 6, high, fill=SOFT) if high else "")
        + gradient(scale.colours, Box(begin, 0, BAR, THICK))
        + "".join(ticks)
    )
    after = max(wide(scale.label(scale.domain[1])) / 2, 4 + wide(high) if high else 0)
    return PanelItem(begin + BAR + after, drawn)


def draw_legend(
    items: Sequence[PanelItem], x: float, y: float, room: float
) -> tuple[list[str], float]:
    """All items from x on, no line further right than x + room; and the height that they
    take."""
    parts: list[str] = []
    at, top = x, y
    for item in items:
        if at > x and at + item.width > x + room:
            at, top = x, top + HEIGHT
        parts.append(f'<g transform="translate({number(at)} {number(top)})">{item.drawn}</g>')
        at += item.width + BETWEEN
    return parts, top + HEIGHT - y
