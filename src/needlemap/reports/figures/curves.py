"""Score by length of several runs in one plot, with bands, labels at the lines' ends and
effective lengths.

A suite's lines are its families, and their mean; of several suites each family is a plot,
after their mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isfinite
from pathlib import Path

from needlemap.errors import NeedlemapError
from needlemap.records.families import Families
from needlemap.records.loaded import Loaded, load_run
from needlemap.reports.colours import LINES
from needlemap.reports.figures import (
    ALONE,
    EDGE,
    FAINT,
    SEVERAL,
    SOFT,
    TEXT,
    Drawing,
    Row,
    draw_rows,
    fitted,
    line,
    mark,
    rect,
    rows,
    rows_height,
    text,
    wide,
)
from needlemap.reports.figures.axis import Axis, make_axis
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
from needlemap.reports.figures.panels import PanelItem, draw_legend, facts, one_of
from needlemap.reports.labels import effective_label, length_range, typeset, unique_names
from needlemap.reports.report import Line
from needlemap.reports.run_notes import accuracy_by_length
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

# Of accuracy next to a score that forces answers.
DOTTED = "0.8 1.6"
DASHES = ("", "4 1.5", "1.2 1.2", "5 1.5 1 1.5")
SHAPES = ("circle", "square", "triangle", "diamond")
# Of more than MANY lines bands are light, of more than MOST there are none.
MANY, MOST = 4, 8
# Points between labels one under another.
NEAR = 1.15 * TEXT
# The name of the axis stands above its plot.
NAMED_ABOVE = replace(SCORE, name="")
# Lines of one plot.
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


# A run's name, and its families; '' of a plain one.
Group = tuple[str, Mapping[str, Loaded]]


def draw_curves(
    groups: Sequence[Group], *, title: str | None, rules: Sequence[str], width: float | None
) -> Drawing:
    """Draw scores by length of some runs.

    rules: of effective length, of which the first that gives a length is marked. width: of the
    paper in points, None for a screen's. Raises NeedlemapError if nothing was scored.
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
        plot_parts, bottom = _one(plots[0], axis, rule, total=total, top=top)
    else:
        plot_parts, bottom = _several(plots, axis, rule, total=total, top=top)
    return Drawing(
        parts=(*draw_rows(heading, EDGE, EDGE), *plot_parts),
        width=total,
        height=bottom + EDGE,
        printed=width is not None,
    )


def draw_lines(lines: Sequence[Line], axis_name: str, rule: Rule | None) -> Drawing:
    """Draw the lines of a report for a page, each with its name at its end.

    Of very many only the main one has a name: the table next to them has them all.
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
        signs.append(f"Triangles, numbers at names: effective length ({shown_rule.name}).")
    captions = [axis_name, " ".join(signs)] if signs else [axis_name]
    heading = rows("", captions, room=SHEET - 2 * EDGE)
    plot_parts, bottom = _one(
        Plot("", tuple(curves)),
        axis,
        shown_rule,
        total=SHEET,
        top=EDGE + rows_height(heading) + 6,
        scale=NAMED_ABOVE,
        high=0.42,
    )
    parts = (*draw_rows(heading, EDGE, EDGE), *plot_parts)
    return Drawing(parts, width=SHEET, height=bottom + EDGE)


def plots_of(groups: Sequence[Group], rule: Rule) -> list[Plot]:
    """Return the plots of some runs: which curves share axes."""
    plain = {name: families[""] for name, families in groups if "" in families}
    suites = {name: families for name, families in groups if "" not in families}
    if not suites:
        return [Plot("", _lines(plain, rule))]
    if plain:
        raise NeedlemapError("Curves of runs and of suites are different pictures. Draw one kind.")
    if len(suites) == 1:
        (families,) = suites.values()
        return [Plot("", (*_lines(families, rule), _mean("mean", families, rule, MEAN)))]
    first, *others = suites.values()
    shared = [family for family in first if all(family in families for families in others)]
    means = []
    for index, (name, families) in enumerate(suites.items()):
        of_shared = {family: families[family] for family in shared}
        means.append(_mean(name, of_shared, rule, look=stroke(index, len(suites))))
    plots = [Plot(f"mean over {len(shared)} families", tuple(means))]
    for family in shared:
        runs = {name: families[family] for name, families in suites.items()}
        plots.append(Plot(family, _lines(runs, rule)))
    return plots


def _lines(runs: Mapping[str, Loaded], rule: Rule) -> tuple[Curve, ...]:
    """Return a line a run.

    Below the line of a scorer that forces answers lies its accuracy, dotted and without a name.
    """
    curves: list[Curve] = []
    for index, (name, run) in enumerate(runs.items()):
        look = stroke(index, len(runs))
        curves.append(Curve(name, run.map.margins, effective_length(run.cube, rule), look))
        if accuracy := accuracy_by_length(run):
            curves.append(Curve("", accuracy, None, replace(look, dash=DOTTED, opacity=0.0)))
    return tuple(curves)


def stroke(index: int, count: int) -> Stroke:
    """Return the look of a line by its number.

    Colour, dash and shape differ, so that grey prints show it too. of: how many lines there are;
    the bands of many are lighter, of more than `MOST` there are none.
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


def _mean(name: str, families: Mapping[str, Loaded], rule: Rule, look: Stroke) -> Curve:
    scores = FamilyScores([run.cube for run in families.values()])
    return Curve(name, scores.means(), scores.effective(rule), look)


def _captions(groups: Sequence[Group], plots: Sequence[Plot], rule: Rule) -> list[str]:
    """Return what all runs have in common, and what bands and marks are."""
    maps = [run.map for _, families in groups for run in families.values()]
    common = [
        one_of({map.task for map in maps}),
        one_of({length_range(map.lengths) for map in maps}),
        *(one_of(set(values)) for values in zip(*map(facts, maps), strict=True)),
    ]
    counts = sorted({map.n for map in maps})
    prompts = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    curves = [curve for plot in plots for curve in plot.curves]
    signs = []
    if any(curve.stroke.dash == DOTTED for curve in curves):
        signs.append("Dotted: accuracy.")
    if any(curve.banded for curve in curves):
        signs.append("Bands: 95 % intervals.")
    if rule.kind == "absolute":
        signs.append(f"Dashed: {100 * rule.threshold:g} %.")
    signs.append(f"Triangles, numbers at names: effective length ({rule.name}).")
    caption = ", ".join([*filter(None, common), f"n = {prompts} prompts a line"])
    return [caption, " ".join(signs)]


def _one(
    plot: Plot,
    axis: Axis,
    rule: Rule | None,
    total: float,
    top: float,
    scale: Scale = SCORE,
    high: float = 0.6,
) -> tuple[list[str], float]:
    """Return one plot with its labels at the lines' ends, and where it ends.

    high: its height as a share of its width.
    """
    names = [_ending(curve) for curve in plot.curves if curve.name]
    aside = min(0.4 * total, 12 + max((wide(name, bold=True) for name in names), default=0.0))
    left = EDGE + scale.room
    box = Box(
        x=left,
        y=top,
        width=total - EDGE - left - aside,
        height=max(min(high * (total - aside), 260.0), NEAR * len(names)),
    )
    parts = draw_plot(plot, axis, rule, box, scale) + endings(plot, axis, box, room=aside - 10)
    return parts, below(box)


def _several(
    plots: Sequence[Plot], axis: Axis, rule: Rule, total: float, top: float
) -> tuple[list[str], float]:
    """Return plots in filled rows on the same axes, with one legend, and where they end."""
    columns = columns_of(len(plots), total)
    gap = 12.0
    left = EDGE + SCORE.room
    width = (total - EDGE - left - gap * (columns - 1) - 4) / columns
    parts: list[str] = []
    y = top
    for first in range(0, len(plots), columns):
        for column, plot in enumerate(plots[first : first + columns]):
            box = Box(left + column * (width + gap), y + 12, width, 0.62 * width)
            head: list[Row] = [(fitted(plot.title, width, bold=True), TEXT, True)]
            is_lowest = first + column + columns >= len(plots)
            parts += draw_rows(head, box.x, y)
            parts += draw_plot(plot, axis, rule, box, left=column == 0, low=is_lowest)
        is_last = first + columns >= len(plots)
        y = below(box) + 4 if is_last else box.y + box.height + 8
    keys = [_key(curve) for curve in plots[0].curves if curve.name]
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
    """Return axes, lines and marks."""
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
        parts += _effective(curve, axis, plane)
    return parts


def _means(curve: Curve, axis: Axis) -> list[DrawnMean]:
    return [
        DrawnMean.of(axis.position(length), curve.means[length]) for length in sorted(curve.means)
    ]


def _effective(curve: Curve, axis: Axis, plane: Plane) -> list[str]:
    """Return a triangle on the axis below, and a hair up to the line.

    They stand where the line falls below the rule's threshold.
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
    ends = [plane.at(place, _at(curve, axis, place)), (x, base)]
    colour = curve.stroke.colour
    hair = line(ends, colour, width=0.5, stroke_dasharray="1 1.5")
    triangle = mark(x, base - 1.5, size=2.2, shape="down", fill=colour, stroke=colour)
    return [hair, triangle]


def _at(curve: Curve, axis: Axis, place: float) -> float:
    """Return a line's height at a place, between its means."""
    points = [(mean.place, mean.value) for mean in _means(curve, axis) if mean.value is not None]
    for (left, low), (right, high) in pairwise(points):
        if left <= place <= right:
            return low + (high - low) * (place - left) / (right - left)
    return points[-1][1] if points else 0.0


def _ending(curve: Curve) -> str:
    """Return a line's name and how far it holds."""
    if curve.effective is None or curve.effective.value is None:
        return curve.name
    value = effective_label(curve.effective).partition(" ")[0]
    return f"{curve.name} · {typeset(value)}"


def endings(plot: Plot, axis: Axis, box: Box, room: float) -> list[str]:
    """Return names next to the ends of their lines, moved apart where they would touch."""
    plane = Plane(box, SCORE)
    ends = []
    for curve in plot.curves:
        means = [mean for mean in _means(curve, axis) if mean.value is not None]
        if means and curve.name:
            ends.append((curve, plane.at(means[-1].place, means[-1].value or 0.0)))
    ends.sort(key=lambda end: end[1][1])
    places = spread([y for _, (_, y) in ends], NEAR, box.y + 2, box.y + box.height)
    right = box.x + box.width
    parts = []
    for (curve, (x, y)), place in zip(ends, places, strict=True):
        colour = curve.stroke.colour
        leader = [(x + 1.5, y), (right + 2, place), (right + 5, place)]
        parts.append(line(leader, colour, width=0.4))
        words = fitted(_ending(curve), room, bold=True)
        parts.append(text(right + 7, place + 0.35 * TEXT, words, bold=True, fill=colour))
    return parts


def spread(places: Sequence[float], distance: float, top: float, bottom: float) -> list[float]:
    """Move ascending places as little as keeps them apart and above the bottom: down, then up.

    >>> spread([1, 2, 9], 2, 0, 10)
    [1, 3, 9]
    >>> spread([8, 9, 10], 2, 0, 10)
    [6, 8, 10]
    """
    moved: list[float] = []
    for place in places:
        moved.append(max(place, top, moved[-1] + distance if moved else top))
    limit = bottom
    for index in range(len(moved) - 1, -1, -1):
        moved[index] = min(moved[index], limit)
        limit = moved[index] - distance
    return moved


def _key(curve: Curve) -> PanelItem:
    """Return a line's look and its name."""
    look = curve.stroke
    dash = {"stroke_dasharray": look.dash} if look.dash else {}
    sample = line([(0, 3.5), (14, 3.5)], look.colour, look.width, **dash)
    sample += mark(7, 3.5, size=1.5, shape=look.shape, fill="white", stroke=look.colour)
    return PanelItem(17 + wide(curve.name), sample + text(17, 6, curve.name))


def groups_of(runs: Sequence[Loaded], suites: Sequence[Families]) -> list[Group]:
    """Return plain runs each for itself, then suites with their families among the runs."""
    plain = {Path(run.path): run for run in runs}
    suite_groups = []
    suite_paths = []
    for suite in suites:
        families = {
            name: plain.pop(suite.folder(name))
            for name in suite.started_names
            if suite.folder(name) in plain
        }
        if families:
            suite_groups.append(families)
            suite_paths.append(suite.path)
    groups = [*({"": run} for run in plain.values()), *suite_groups]
    models = [next(iter(group.values())).map.model for group in groups]
    return list(zip(unique_names(models, [*plain, *suite_paths]), groups, strict=True))


def draw_families(
    families: Sequence[Families], *, title: str | None, width: float | None
) -> Drawing:
    """Draw scores by length of all families of some runs, read anew."""
    loaded = [load_run(folder) for suite in families for folder in suite.folders]
    groups = groups_of(loaded, [suite for suite in families if not suite.is_plain])
    return draw_curves(groups, title=title, rules=RULES, width=width)
