"""What a map and a comparison show: their panels, the words of a caption, and the legend under
all panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from needlemap.grid import percent
from needlemap.plan.bins import bin_edges
from needlemap.records.record import SKIPPED, THINKING_SPENT
from needlemap.reports.colours import BAND, CHANGES, FAINT, INK, NOT_MEASURED, SOFT, palette_colours
from needlemap.reports.figures.axis import Axis, make_axis
from needlemap.reports.figures.heat import Box, DrawnCell, DrawnMean, MapPanel, Scale
from needlemap.reports.figures.shapes import (
    HATCHED,
    TEXT,
    area,
    line,
    mark,
    number,
    rect,
    text,
    text_width,
)
from needlemap.reports.labels import (
    WHOLE,
    Bands,
    interval_behind,
    length_range,
    loss_label,
    missing_label,
    n_label,
    percent_of,
    ragged_bands,
    row_labels,
    score_label,
    typeset,
    withheld_label,
)
from needlemap.reports.loss import NO_PAIR, interval_of
from needlemap.stats.cell_score import CellScore
from needlemap.stats.comparison import FamilyComparison, LengthDifference
from needlemap.stats.means import Map

QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)


def score_scale(palette: str | None) -> Scale:
    """Return scores of 0 to 100, never stretched to the data.

    Raises SettingsError for an unknown palette.
    """
    ends = ("lost", "found")
    return Scale("Score", "Score", "%", (0, 100), (0, 50, 100), palette_colours(palette), ends)


def change_scale(comparison: FamilyComparison) -> Scale:
    """Return the scale of losses in points, to a round number above the largest on both sides.

    Intervals may go beyond.
    """
    largest_loss = max((abs(100 * cell.loss) for cell in comparison.cells), default=0.0)
    end = next((limit for limit in (5, 10, 20, 50) if largest_loss <= limit), 100)
    ends = ("lost", "gained")
    return Scale("Loss", "Loss, points", "", (end, -end), (end, 0, -end), CHANGES, ends)


def map_title(score_map: Map) -> str:
    """Return the title of a map: model, task and lengths."""
    return f"{score_map.model} · {score_map.task} · {length_range(score_map.lengths)}"


def map_panel(score_map: Map, title: str, lines: Sequence[str], scale: Scale) -> MapPanel:
    """Return a run's map as a panel."""
    lengths, depths, bands = axes_of(score_map)
    bins = (
        dict(zip(score_map.depths, bin_edges(score_map.depths), strict=True))
        if score_map.mode == "bins"
        else {}
    )
    return MapPanel(
        title=title,
        lines=tuple(lines),
        lengths=lengths,
        depths=depths,
        depth_labels=_depth_labels(score_map, depths),
        cells=tuple(_drawn_cell(score_map, cell, bands, bins) for cell in score_map.cells),
        by_length=tuple(
            DrawnMean.of(lengths.position(length), score_map.margins.get(length))
            for length in score_map.lengths
        ),
        by_depth=tuple(_depth_means(score_map, depths)),
        scale=scale,
        depthless=score_map.depthless,
    )


def _depth_labels(score_map: Map, depths: Axis) -> dict[float, str]:
    return {depth: typeset(label) for depth, label in row_labels(score_map, depths.values).items()}


def axes_of(score_map: Map) -> tuple[Axis, Axis, Bands]:
    """Return a map's axis of lengths, its axis of depths, and the band of each cell."""
    lengths = make_axis(score_map.lengths, ("linear", "log"))
    if score_map.ragged:
        quarters = Axis("linear", QUARTERS, tuple((share, share) for share in QUARTERS), QUARTERS)
        return lengths, quarters, ragged_bands(score_map)
    depths = make_axis(score_map.depths, ("linear",))
    bands = {(cell.length_tokens, cell.depth): depths.edge(cell.depth) for cell in score_map.cells}
    return lengths, depths, bands


def _drawn_cell(
    score_map: Map, cell: CellScore, bands: Bands, bins: Mapping[float, tuple[float, float]]
) -> DrawnCell:
    top, bottom = bands[cell.length_tokens, cell.depth]

    needle = None
    if cell.depth in bins and cell.score is not None:
        bin_start, bin_end = bins[cell.depth]
        # In a bin without width every place is the middle.
        share = 0.5
        if bin_end > bin_start:
            share = (cell.realised - bin_start) / (bin_end - bin_start)
            share = min(1.0, max(0.0, share))
        needle = top + share * (bottom - top)

    is_sent = cell.score is not None or any(kind != SKIPPED for kind in cell.failures)
    return DrawnCell(
        length=cell.length_tokens,
        top=top,
        bottom=bottom,
        value=percent_of(cell.score),
        partial=cell.score is not None and cell.missing > 0,
        needle=needle,
        tip=_cell_tip(score_map, cell),
        thought=cell.thought > 0,
        unsent=not is_sent,
    )


def _cell_tip(score_map: Map, cell: CellScore) -> str:
    """Return the tooltip of a cell: its place, score, n and missing trials."""
    depth = f"depth {percent(cell.depth):.4g} %, realised {percent(cell.realised):.4g} %"
    score = "not measured" if cell.score is None else f"score {score_label(cell.score)} %"
    missing_words = (
        f", missing {missing_label(cell.missing, cell.failures)}" if cell.missing else ""
    )
    missing_words += f", {cell.thought} {THINKING_SPENT}" if cell.thought else ""
    place = f"{cell.length_tokens:,} tokens, {WHOLE if score_map.depthless else depth}"
    n = n_label(cell.n, counted=score_map.counted)
    return f"{place}: {score}{interval_behind(cell)}, {n}{missing_words}"


def _depth_means(score_map: Map, depths: Axis) -> list[DrawnMean]:
    if score_map.ragged:
        return [DrawnMean.of((row.depth + row.end) / 2, row.mean) for row in score_map.by_depth]
    means = {row.depth: row.mean for row in score_map.by_depth}
    return [
        DrawnMean.of(depths.position(depth), means.get(depth))
        for depth in score_map.depths
        if means
    ]


def common_value(values: set[str]) -> str:
    """Return the value that all have in common, or '' if they differ."""
    return next(iter(values)) if len(values) == 1 else ""


def caption(score_map: Map) -> list[str]:
    """Return the caption over a map: mean, n, trials a cell, and missing trials.

    Its mode, tokenizer and scorer are below the map.
    """
    return [f"{overall_line(score_map)}, {trials_a_cell(score_map)}", *missing_line(score_map)]


def overall_line(score_map: Map) -> str:
    """Return the mean score of a map with its interval and the number of prompts."""
    interval = interval_behind(score_map.total)
    score = f"overall {score_label(score_map.overall)} %{interval}, {prompt_count(score_map)}"
    return score + withheld_label(score_map)


def prompt_count(score_map: Map) -> str:
    """Return the number of prompts of a map, or that it is not known."""
    return (
        f"n = {score_map.n:,} prompts"
        if score_map.counted
        else f"n unknown ({score_map.n:,} cells, each a mean)"
    )


def short_overall_line(score_map: Map) -> str:
    """Return `overall_line` in fewer letters, for one map of several."""
    return overall_line(score_map).removeprefix("overall ").removesuffix(" prompts")


def trials_a_cell(score_map: Map) -> str:
    """Return the number of trials of a cell, or its range, in words."""
    counts = {cell.n + cell.missing for cell in score_map.cells}
    if not score_map.counted or not counts:
        return "cells are means" if counts else "no cells"
    fewest, most = min(counts), max(counts)
    if most == 1:
        return "one trial a cell"
    return f"{most} trials a cell" if fewest == most else f"{fewest} to {most} trials a cell"


def map_facts(score_map: Map) -> tuple[str, ...]:
    """Return trials a cell, mode, tokenizer and scorer. Maps that share one state it once."""
    return (
        trials_a_cell(score_map),
        f"mode {score_map.mode}",
        f"tokenizer {score_map.tokenizer}",
        f"scorer {score_map.scorer}",
    )


def missing_line(score_map: Map) -> list[str]:
    """Return a line on missing trials, or no line if no trial is missing."""
    return (
        [f"Missing {missing_label(score_map.missing, score_map.failures)}"]
        if score_map.missing
        else []
    )


def change_panel(comparison: FamilyComparison, score_map: Map) -> MapPanel:
    """Return the panel of B's losses, in the cells of the first run's map.

    If no trial of a cell has both scores, the cell is hatched.
    """
    lengths, depths, bands = axes_of(score_map)
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
        depth_labels=_depth_labels(score_map, depths),
        cells=tuple(cells),
        by_length=tuple(
            _drawn_loss(lengths.position(length), differences.get(length))
            for length in score_map.lengths
        ),
        by_depth=(),
        scale=change_scale(comparison),
        depthless=score_map.depthless,
    )


def _drawn_loss(place: float, difference: LengthDifference | None) -> DrawnMean:
    """Return the loss of one length, with its interval if it has one."""
    if difference is None:
        return DrawnMean(place)
    if difference.loss is None:
        return DrawnMean(place, percent_of(-difference.difference.value))
    value, low, high = map(
        percent_of, (difference.loss.value, difference.loss.high, difference.loss.low)
    )
    return DrawnMean(place, value, low, high)


def change_caption(comparison: FamilyComparison) -> tuple[str, ...]:
    """Return a line of the loss with its interval, n, and the number of pairs left out."""
    overall, loss = comparison.overall, comparison.paired.loss
    loss_words = NO_PAIR
    if loss is not None:
        loss_words = interval_of(loss)
    elif overall.n:
        # Means of unknown numbers of answers have no interval.
        loss_words = loss_label(-overall.value)
    left_out = f", {comparison.dropped} without both scores" if comparison.dropped else ""
    count = f"n = {overall.n:,} pairs"
    if not comparison.counted:
        count = f"n unknown ({overall.n:,} pairs of means)"
    return (typeset(f"{loss_words}, {count}{left_out}"),)


BAR, THICK = 78.0, 6.0
ITEM_GAP = 12.0
# The height of a line of the legend.
LEGEND_LINE = 17.0


@dataclass(frozen=True, slots=True)
class PanelItem:
    """An item of a legend.

    width: points that it takes. drawn: its parts, its left end and its top at 0.
    """

    width: float
    drawn: str


def legend_items(panels: Sequence[MapPanel], width: float, height: float) -> list[PanelItem]:
    """Return the items of the colour scales, then of the signs that occur in some panel.

    width, height: of each map.
    """
    cells = [cell for panel in panels for cell in panel.cells]
    means = [mean for panel in panels for mean in (*panel.by_length, *panel.by_depth)]
    scales = dict.fromkeys(panel.scale for panel in panels)
    filled_square = rect(0, 0, 8, 8, panels[0].scale.colour(90))
    band = rect(0, 0, 8, 8, BAND)
    hatched_square = rect(0, 0, 8, 8, HATCHED)
    has_dashes = any(panel.scale.signed and not panel.in_figures(width, height) for panel in panels)
    signs = [
        ("95 % interval", any(mean.low is not None for mean in means), band + _stroke(0, 8, INK)),
        (
            "not measured",
            any(cell.value is None and not cell.unsent for cell in cells),
            hatched_square + _SIGN_FRAME,
        ),
        (
            "not sent",
            any(cell.unsent for cell in cells),
            rect(0, 0, 8, 8, NOT_MEASURED[0])
            + mark(4, 4, 0.8, "square", FAINT, FAINT)
            + _SIGN_FRAME,
        ),
        (
            "part is missing",
            any(cell.partial for cell in cells),
            filled_square + area([(4, 0), (8, 0), (8, 4)], INK),
        ),
        (
            THINKING_SPENT,
            any(cell.thought for cell in cells),
            filled_square + mark(2.5, 5.5, 1.6, "circle", "white", INK),
        ),
        (
            "needle's depth",
            any(cell.needle is not None for cell in cells),
            filled_square + _stroke(1.5, 6.5, INK),
        ),
        ("dash: lost", has_dashes, rect(0, 0, 8, 8, CHANGES[1]) + _stroke(1.5, 6.5, INK)),
    ]
    return [*map(_bar, scales), *(_key(words, sign) for words, occurs, sign in signs if occurs)]


_SIGN_FRAME = rect(0, 0, 8, 8, "none", stroke=FAINT, stroke_width=0.5)


def _stroke(left: float, right: float, colour: str) -> str:
    return line([(left, 4), (right, 4)], colour, 0.8)


def _key(words: str, sign: str) -> PanelItem:
    """Return the item of a sign, which is 8 points wide, and its words."""
    return PanelItem(
        11 + text_width(words),
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
    """Return the item of a scale: its colours with ticks."""
    low, high = scale.ends
    bar_x = text_width(scale.words) + 8 + (text_width(low) + 4 if low else 0)
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
    overhang = max(
        text_width(scale.label(scale.domain[1])) / 2, 4 + text_width(high) if high else 0
    )
    return PanelItem(bar_x + BAR + overhang, parts)


def draw_legend(
    items: Sequence[PanelItem], x: float, y: float, room: float
) -> tuple[list[str], float]:
    """Return all items from x on, and the height that they take.

    No line reaches further right than x + room.
    """
    parts: list[str] = []
    item_x, item_y = x, y
    for item in items:
        if item_x > x and item_x + item.width > x + room:
            item_x, item_y = x, item_y + LEGEND_LINE
        parts.append(
            f'<g transform="translate({number(item_x)} {number(item_y)})">{item.drawn}</g>'
        )
        item_x += item.width + ITEM_GAP
    return parts, item_y + LEGEND_LINE - y
