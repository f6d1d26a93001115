"""Score by length of several runs in one plot, with bands, labels at the lines' ends and
effective lengths.

A suite's lines are its families, and their score as the terminal has it; of several suites each
family is a plot, after that of their scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf, isfinite
from pathlib import Path

from needlemap.errors import NeedlemapError
from needlemap.records.families import Families
from needlemap.records.loaded import Loaded, load_run
from needlemap.reports.colours import FAINT, LINES, SOFT
from needlemap.reports.figures.axis import Axis, make_axis
from needlemap.reports.figures.drawing import Drawing
from needlemap.reports.figures.figure import columns_of
from needlemap.reports.figures.heat import (
    SCORE,
    Box,
    DrawnMean,
    Plane,
    Scale,
    Stroke,
    below,
    draw_bands,
    draw_line,
    length_axis,
)
from needlemap.reports.figures.panels import PanelItem, common_value, draw_legend, map_facts
from needlemap.reports.figures.shapes import (
    ALONE,
    EDGE,
    FONT_SLACK,
    SEVERAL,
    TEXT,
    Row,
    cut_text,
    draw_rows,
    line,
    mark,
    rect,
    rows,
    rows_height,
    text,
    text_width,
)
from needlemap.reports.labels import effective_label, length_range, typeset, unique_names
from needlemap.reports.report import Line
from needlemap.reports.run_notes import accuracy_by_length
from needlemap.reports.summary import score_name, scores_of
from needlemap.stats.effective import (
    RULES,
    Effective,
    FamilyScores,
    Rule,
    effective_length,
    parse_rule,
)
from needlemap.stats.effective import Mean as FamilyMean
from needlemap.stats.intervals import ClusterMean

# The dash of accuracy, next to a score that forces answers.
DOTTED = "0.8 1.6"
DASHES = ("", "4 1.5", "1.2 1.2", "5 1.5 1 1.5")
SHAPES = ("circle", "square", "triangle", "diamond")
# If a plot has more than MANY lines, bands are light; with more than MOST there are none.
MANY, MOST = 4, 8
# Points between labels one under another.
NEAR = 1.15 * TEXT
# On a page the name of the axis is above its plot.
NAMED_ABOVE = replace(SCORE, name="")
# If a plot has more lines, only the main one has its name.
MOST_NAMED = 24
# Points across on a page, where it is as wide as a phone or twice that.
SHEET = 360.0
MEAN = Stroke("#000000", "#000000", "circle", 1.6, "", 0.12)


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of scores.

    means: by length in tokens, with intervals. effective: how far it holds, by the figure's rule.
    """

    name: str
    means: Mapping[int, ClusterMean | FamilyMean | None]
    effective: Effective | None
    stroke: Stroke

    @property
    def banded(self) -> bool:
        """Return True if its intervals are shown."""
        lower_ends = (mean.low for mean in self.means.values() if mean is not None)
        return self.stroke.opacity > 0 and any(low is not None for low in lower_ends)


@dataclass(frozen=True, slots=True)
class Plot:
    """Curves on one pair of axes."""

    title: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A run, with its name and its families.

    runs: those of its families that were started; '' is the name of a plain run's only one.
    """

    name: str
    families: Families
    runs: Mapping[str, Loaded]


def draw_curves(
    groups: Sequence[Group], *, title: str | None, rules: Sequence[str], width: float | None
) -> Drawing:
    """Draw scores by length of some runs, or raise NeedlemapError if nothing was scored.

    rules: of effective length; the first that gives a length is marked. width: of the paper in
    points; None for a screen.
    """
    lengths_rules = (rule for rule in map(parse_rule, rules) if rule.kind != "auc")
    rule = next(lengths_rules, parse_rule("absolute:85"))
    plots = plots_of(groups, rule)
    lengths = sorted({length for plot in plots for curve in plot.curves for length in curve.means})
    if not lengths:
        raise NeedlemapError("No trial was scored, so there is no curve. Finish the runs first.")

    axis = make_axis(lengths, ("linear", "log"))
    total = width or (ALONE if len(plots) == 1 else SEVERAL)
    heading = rows(title or "", _captions(groups, plots, rule), room=total - 2 * EDGE)
    top = EDGE + rows_height(heading) + 6
    if len(plots) == 1:
        plot_parts, bottom = _single_plot(plots[0], axis, rule, total=total, top=top)
    else:
        plot_parts, bottom = _plot_grid(plots, axis, rule, total=total, top=top)
    return Drawing(
        parts=(*draw_rows(heading, EDGE, EDGE), *plot_parts),
        width=total,
        height=bottom + EDGE,
        printed=width is not None,
    )


def draw_lines(lines: Sequence[Line], axis_name: str, rule: Rule | None) -> Drawing:
    """Draw the lines of a report for a page, each with its name at its end.

    If there are more than MOST_NAMED lines, only the main one has its name, because the table next
    to the plot names them all.
    """
    named_lines = [line for line in lines if line.name and not line.dotted]
    is_crowded = len(named_lines) > MOST_NAMED
    curves: list[Curve] = []
    for line_ in lines:
        look = stroke(sum(bool(curve.name) for curve in curves), len(named_lines))
        if line_.main:
            look = MEAN
        elif line_.dotted and curves:
            look = replace(curves[-1].stroke, dash=DOTTED, opacity=0.0)
        elif is_crowded:
            look = Stroke(FAINT, FAINT, "circle", 0.6, "", 0.0)
        name = "" if line_.dotted or (is_crowded and not line_.main) else line_.name
        curves.append(Curve(name, line_.means, line_.effective, look))
    shown_rule = rule if any(curve.effective is not None for curve in curves) else None
    lengths = sorted({length for curve in curves for length in curve.means})
    axis = make_axis(lengths, ("linear", "log"))
    signs = ["Bands: 95 % intervals."] if any(curve.banded for curve in curves) else []
    if shown_rule is not None:
        signs.append(f"Triangles and numbers at names: effective length ({shown_rule.name}).")
    captions = [axis_name, " ".join(signs)] if signs else [axis_name]
    heading = rows("", captions, room=SHEET - 2 * EDGE)
    plot_parts, bottom = _single_plot(
        Plot("", tuple(curves)),
        axis,
        shown_rule,
        total=SHEET,
        top=EDGE + rows_height(heading) + 6,
        scale=NAMED_ABOVE,
        height_share=0.42,
        font_slack=FONT_SLACK,
    )
    parts = (*draw_rows(heading, EDGE, EDGE), *plot_parts)
    return Drawing(parts, width=SHEET, height=bottom + EDGE)


def plots_of(groups: Sequence[Group], rule: Rule) -> list[Plot]:
    """Return the plots of some runs. Curves of one plot share axes."""
    plain_runs = {group.name: group.runs[""] for group in groups if group.families.is_plain}
    suites = [group for group in groups if not group.families.is_plain]
    if not suites:
        return [Plot("", _lines(plain_runs, rule))]
    if plain_runs:
        raise NeedlemapError("Curves of runs and of suites are different pictures. Draw one kind.")
    if len(suites) == 1:
        (suite,) = suites
        lines = _lines(suite.runs, rule)
        mean = _mean(score_name(suite.families), scores_of(suite.families, suite.runs), rule, MEAN)
        return [Plot("", (*lines, mean) if mean.means else lines)]

    plots = []
    common_families = [
        family
        for family in suites[0].families.names
        if all(family in suite.families.names for suite in suites)
    ]
    means = []
    for index, suite in enumerate(suites):
        scores = scores_of(suite.families, suite.runs, common_families)
        means.append(_mean(suite.name, scores, rule, look=stroke(index, len(suites))))
    if any(mean.means for mean in means):
        score = common_value({score_name(suite.families) for suite in suites}) or "score"
        plots.append(Plot(f"{score} over {len(common_families)} families", tuple(means)))
    for family in common_families:
        if all(family in suite.runs for suite in suites):
            runs = {suite.name: suite.runs[family] for suite in suites}
            plots.append(Plot(family, _lines(runs, rule)))
    return plots


def _lines(runs: Mapping[str, Loaded], rule: Rule) -> tuple[Curve, ...]:
    """Return a curve for each run.

    If its scorer forces answers, the run has a second, dotted curve of accuracy without a name.
    """
    curves: list[Curve] = []
    for index, (name, run) in enumerate(runs.items()):
        look = stroke(index, len(runs))
        curves.append(Curve(name, run.map.margins, effective_length(run.cube, rule), look))
        if accuracy := accuracy_by_length(run):
            curves.append(Curve("", accuracy, None, replace(look, dash=DOTTED, opacity=0.0)))
    return tuple(curves)


def stroke(index: int, count: int) -> Stroke:
    """Return the look of a line by its number among `count` lines.

    Colour, dash and shape differ, so that lines differ on a grey print too. If there are more than
    `MANY` lines their bands are lighter, and with more than `MOST` they have none.
    """
    colour = LINES[index % len(LINES)]
    opacity = 0.0
    if count <= MANY:
        opacity = 0.15
    elif count <= MOST:
        opacity = 0.06
    return Stroke(
        colour=colour,
        band=colour,
        shape=SHAPES[index % len(SHAPES)],
        width=1.0,
        dash=DASHES[(index // len(LINES)) % len(DASHES)],
        opacity=opacity,
    )


def _mean(name: str, scores: FamilyScores, rule: Rule, look: Stroke) -> Curve:
    return Curve(name, scores.means(), scores.effective(rule), look)


def _captions(groups: Sequence[Group], plots: Sequence[Plot], rule: Rule) -> list[str]:
    """Return a line of the facts that all runs share, and a line that explains the signs."""
    maps = [run.map for group in groups for run in group.runs.values()]
    # Lines of plain runs are named by their models, those of suites by families.
    is_plain = all(group.families.is_plain for group in groups)
    common_facts = [
        "" if is_plain else common_value({map.model for map in maps}),
        common_value({map.task for map in maps}),
        common_value({length_range(map.lengths) for map in maps}),
        *(common_value(set(values)) for values in zip(*map(map_facts, maps), strict=True)),
    ]
    counts = sorted({map.n for map in maps})
    amount = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    are_counted = all(map.counted for map in maps)
    prompts = f"n = {amount} prompts" if are_counted else f"n unknown, {amount} means"
    curves = [curve for plot in plots for curve in plot.curves]
    signs = []
    if any(curve.stroke.dash == DOTTED for curve in curves):
        signs.append("Dotted: accuracy.")
    if any(curve.banded for curve in curves):
        signs.append("Bands: 95 % intervals.")
    if rule.kind == "absolute":
        signs.append(f"Dashed: {100 * rule.threshold:g} %.")
    signs.append(f"Triangles and numbers at names: effective length ({rule.name}).")
    caption = ", ".join([*filter(None, common_facts), f"{prompts} a line"])
    return [caption, " ".join(signs)]


def _single_plot(
    plot: Plot,
    axis: Axis,
    rule: Rule | None,
    total: float,
    top: float,
    scale: Scale = SCORE,
    height_share: float = 0.6,
    font_slack: float = 1.0,
) -> tuple[list[str], float]:
    """Return one plot with labels at the ends of its lines, and the y of its lower end.

    height_share: its height as a share of its width. font_slack: the width of letters as a
    multiple of that of ours.
    """
    names = [_end_label(curve) for curve in plot.curves if curve.name]
    widest = max((text_width(name, bold=True) for name in names), default=0.0)
    name_room = min(0.4 * font_slack * total, 12 + font_slack * widest)
    left = EDGE + scale.room
    box = Box(
        x=left,
        y=top,
        width=total - EDGE - left - name_room,
        height=max(min(height_share * (total - name_room), 260.0), NEAR * len(names)),
    )
    parts = draw_plot(plot, axis, rule, box, scale) + end_labels(
        plot, axis, box, room=(name_room - 10) / font_slack
    )
    return parts, below(box)


def _plot_grid(
    plots: Sequence[Plot], axis: Axis, rule: Rule, total: float, top: float
) -> tuple[list[str], float]:
    """Return plots in rows on the same axes with one legend, and the y of their lower end."""
    columns = columns_of(len(plots), total)
    gap = 12.0
    left = EDGE + SCORE.room
    width = (total - EDGE - left - gap * (columns - 1) - 4) / columns
    parts: list[str] = []
    y = top
    for first in range(0, len(plots), columns):
        for column, plot in enumerate(plots[first : first + columns]):
            box = Box(left + column * (width + gap), y + 12, width, 0.62 * width)
            head: list[Row] = [(cut_text(plot.title, width, bold=True), TEXT, True)]
            is_lowest = first + column + columns >= len(plots)
            parts += draw_rows(head, box.x, y)
            parts += draw_plot(plot, axis, rule, box, left=column == 0, low=is_lowest)
        is_last = first + columns >= len(plots)
        y = below(box) + 4 if is_last else box.y + box.height + 8
    keys = [_legend_item(curve) for curve in plots[0].curves if curve.name]
    legend, height = draw_legend(keys, left, y, room=total - EDGE - left)
    return [*parts, *legend], y + height


def draw_plot(
    plot: Plot,
    axis: Axis,
    rule: Rule | None,
    box: Box,
    scale: Scale = SCORE,
    *,
    left: bool = True,
    low: bool = True,
) -> list[str]:
    """Return the axes, lines and marks of a plot."""
    plane = Plane(box, scale)
    parts = [*plane.grid(), rect(*box, "none", stroke=FAINT, stroke_width=0.5)]
    if left:
        parts += plane.labels()
    if low:
        parts += length_axis(axis, box)
    if rule is not None and rule.kind == "absolute":
        ends = [plane.at(share, 100 * rule.threshold) for share in (0, 1)]
        parts.append(line(ends, SOFT, 0.5, stroke_dasharray="3 2"))
    joined = axis.kind != "even"
    # No line lies under a band.
    for curve in plot.curves:
        if curve.banded:
            parts += draw_bands(_means(curve, axis), plane, curve.stroke, joined=joined)
    for curve in plot.curves:
        parts += draw_line(_means(curve, axis), plane, curve.stroke, joined=joined)
    for curve in plot.curves:
        parts += _effective_mark(curve, axis, plane)
    return parts


def _means(curve: Curve, axis: Axis) -> list[DrawnMean]:
    return [
        DrawnMean.of(axis.position(length), curve.means[length]) for length in sorted(curve.means)
    ]


def _effective_mark(curve: Curve, axis: Axis, plane: Plane) -> list[str]:
    """Return a triangle on the axis at a curve's effective length, and a hair up to the curve.

    If the effective length is not a point on the axis, nothing is returned.
    """
    effective = curve.effective
    if (
        effective is None
        or effective.value is None
        or not isfinite(effective.value)
        or not effective.value
    ):
        return []
    if axis.kind == "even":
        return []

    place = axis.position(effective.value)
    x, base = plane.at(place, 0)
    ends = [plane.at(place, _height_at(curve, axis, place)), (x, base)]
    colour = curve.stroke.colour
    hair = line(ends, colour, width=0.5, stroke_dasharray="1 1.5")
    triangle = mark(x, base - 1.5, size=2.2, shape="down", fill=colour, stroke=colour)
    return [hair, triangle]


def _height_at(curve: Curve, axis: Axis, place: float) -> float:
    """Return a line's height at a place, between its means."""
    points = [(mean.place, mean.value) for mean in _means(curve, axis) if mean.value is not None]
    for (left, low), (right, high) in pairwise(points):
        if left <= place <= right:
            return low + (high - low) * (place - left) / (right - left)
    return points[-1][1] if points else 0.0


def _end_label(curve: Curve, room: float = inf) -> str:
    """Return a curve's name, cut to a room, with its effective length if there is room for all."""
    if curve.effective is not None and curve.effective.value is not None:
        value = effective_label(curve.effective).partition(" ")[0]
        label = f"{curve.name} · {typeset(value)}"
        if text_width(label, bold=True) <= room:
            return label
    return cut_text(curve.name, room, bold=True)


def end_labels(plot: Plot, axis: Axis, box: Box, room: float) -> list[str]:
    """Return the names at the ends of their lines, moved apart if they would touch."""
    plane = Plane(box, SCORE)
    ends = []
    for curve in plot.curves:
        means = [mean for mean in _means(curve, axis) if mean.value is not None]
        if means and curve.name:
            ends.append((curve, plane.at(means[-1].place, means[-1].value or 0.0)))
    ends.sort(key=lambda end: end[1][1])
    places = move_apart([y for _, (_, y) in ends], NEAR, box.y + 2, box.y + box.height)
    right = box.x + box.width
    parts = []
    for (curve, (x, y)), place in zip(ends, places, strict=True):
        colour = curve.stroke.colour
        leader = [(x + 1.5, y), (right + 2, place), (right + 5, place)]
        parts.append(line(leader, colour, width=0.4))
        words = _end_label(curve, room)
        parts.append(text(right + 7, place + 0.35 * TEXT, words, bold=True, fill=colour))
    return parts


def move_apart(places: Sequence[float], distance: float, top: float, bottom: float) -> list[float]:
    """Move ascending places until they are `distance` apart, first down, then up from the bottom.

    >>> move_apart([1, 2, 9], 2, 0, 10)
    [1, 3, 9]
    >>> move_apart([8, 9, 10], 2, 0, 10)
    [6, 8, 10]
    """
    moved_places: list[float] = []
    for place in places:
        moved_places.append(max(place, top, moved_places[-1] + distance if moved_places else top))
    limit = bottom
    for index in range(len(moved_places) - 1, -1, -1):
        moved_places[index] = min(moved_places[index], limit)
        limit = moved_places[index] - distance
    return moved_places


def _legend_item(curve: Curve) -> PanelItem:
    """Return the item of a legend with a curve's look and its name."""
    look = curve.stroke
    dash = {"stroke_dasharray": look.dash} if look.dash else {}
    sample = line([(0, 3.5), (14, 3.5)], look.colour, look.width, **dash)
    sample += mark(7, 3.5, size=1.5, shape=look.shape, fill="white", stroke=look.colour)
    return PanelItem(17 + text_width(curve.name), sample + text(17, 6, curve.name))


def groups_of(runs: Sequence[Loaded], suites: Sequence[Families]) -> list[Group]:
    """Return a group for each plain run, then one for each suite with its families."""
    runs_by_path = {Path(run.path): run for run in runs}
    suite_groups = []
    for suite in suites:
        runs_by_family = {
            name: runs_by_path.pop(suite.folder(name))
            for name in suite.started_names
            if suite.folder(name) in runs_by_path
        }
        if runs_by_family:
            suite_groups.append(Group("", suite, runs_by_family))
    plain_groups = [Group("", Families(path), {"": run}) for path, run in runs_by_path.items()]
    groups = [*plain_groups, *suite_groups]
    models = [next(iter(group.runs.values())).map.model for group in groups]
    names = unique_names(models, [group.families.path for group in groups])
    return [replace(group, name=name) for group, name in zip(groups, names, strict=True)]


def draw_families(
    families: Sequence[Families], *, title: str | None, width: float | None
) -> Drawing:
    """Draw scores by length of all families of some runs, read anew."""
    runs = [load_run(folder) for suite in families for folder in suite.folders]
    groups = groups_of(runs, [suite for suite in families if not suite.is_plain])
    return draw_curves(groups, title=title, rules=RULES, width=width)
