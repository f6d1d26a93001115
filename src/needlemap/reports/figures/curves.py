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

DOTTED = "0.8 1.6"  # of accuracy beside a score that forces answers
DASHES = ("", "4 1.5", "1.2 1.2", "5 1.5 1 1.5")
SHAPES = ("circle", "square", "triangle", "diamond")
MANY, MOST = 4, 8  # lines whose bands are light, and that have bands
NEAR = 1.15 * TEXT  # labels one under another
NAMED_ABOVE = replace(SCORE, name="")  # what an axis is of stands above its plot
MOST_NAMED = 24  # lines of one plot
SHEET = 360.0  # points across on a page, where it is as wide as a phone or twice that
MEAN = Stroke("#000000", "#000000", "circle", 1.6, "", 0.12)


@dataclass(frozen=True, slots=True)
class Curve:
    """means: by length in tokens, with intervals. effective: how far it holds, by the figure's
    rule."""

    name: str
    means: Mapping[int, ClusterMean | FamilyMean | None]
    effective: Effective | None
    stroke: Stroke

    @property
    def banded(self) -> bool:
        """Whether its intervals are shown."""
        known = (mean.low for mean in self.means.values() if mean is not None)
        return self.stroke.opacity > 0 and any(low is not None for low in known)


@dataclass(frozen=True, slots=True)
class Plot:
    """Curves on one pair of axes."""

    title: str
    curves: tuple[Curve, ...]


Group = tuple[str, Mapping[str, Loaded]]  # a run's name, and its families; '' of a plain one


def draw_curves(
    groups: Sequence[Group], *, title: str | None, rules: Sequence[str], width: float | None
) -> Drawing:
    """All of it. rules: of effective length, of which the first that gives a length is marked.
    width: of the paper in points, None for a screen's. Raises NeedlemapError where nothing was
    scored."""
    rule = next(
        (each for each in map(parse_rule, rules) if each.kind != "auc"), parse_rule("absolute:85")
    )
    plots = plots_of(groups, rule)
    lengths = sorted({length for plot in plots for curve in plot.curves for length in curve.means})
    if not lengths:
        raise NeedlemapError("No trial was scored, so there is no curve. Finish the runs first.")
    axis, total = (
        make_axis(lengths, ("linear", "log")),
        width or (ALONE if len(plots) == 1 else SEVERAL),
    )
    heading = rows(title or "", _captions(groups, plots, rule), total - 2 * EDGE)
    top = EDGE + rows_height(heading) + 6
    drawn, bottom = (_one if len(plots) == 1 else _several)(plots, axis, rule, total, top)
    return Drawing(
        (*draw_rows(heading, EDGE, EDGE), *drawn), total, bottom + EDGE, width is not None
    )


def draw_lines(lines: Sequence[Line], axis_name: str, rule: Rule | None) -> Drawing:
    """Draw the lines of a report for a page, each with its name at its end. Of very many only the
    main one has a name: the table beside has them all."""
    named = [line for line in lines if line.name and not line.dotted]
    many = len(named) > MOST_NAMED
    curves = list[Curve]()
    for line_ in lines:
        look = stroke(sum(bool(curve.name) for curve in curves), len(named))
        if line_.main:
            look = MEAN
        elif line_.dotted and curves:
            look = replace(curves[-1].stroke, dash=DOTTED, opacity=0.0)
        elif many:
            look = Stroke(FAINT, FAINT, "circle", 0.6, "", 0.0)
        name = "" if line_.dotted or (many and not line_.main) else line_.name
        curves.append(Curve(name, line_.means, line_.effective, look))
    held = rule if any(curve.effective is not None for curve in curves) else None
    axis = make_axis(sorted({n for curve in curves for n in curve.means}), ("linear", "log"))
    signs = ["Bands: 95 % intervals."] if any(curve.banded for curve in curves) else []
    if held is not None:
        signs.append(f"Triangles, numbers at names: effective length ({held.name}).")
    heading = rows("", [axis_name, " ".join(signs)] if signs else [axis_name], SHEET - 2 * EDGE)
    top = EDGE + rows_height(heading) + 6
    drawn, bottom = _one([Plot("", tuple(curves))], axis, held, SHEET, top, NAMED_ABOVE, 0.42)
    return Drawing((*draw_rows(heading, EDGE, EDGE), *drawn), SHEET, bottom + EDGE)


def plots_of(groups: Sequence[Group], rule: Rule) -> list[Plot]:
    """What stands on which axes."""
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
    looks = [stroke(at, len(suites)) for at in range(len(suites))]
    means = [
        _mean(name, {family: suites[name][family] for family in shared}, rule, look)
        for name, look in zip(suites, looks, strict=True)
    ]
    each = ({name: families[family] for name, families in suites.items()} for family in shared)
    plots = [Plot(family, _lines(runs, rule)) for family, runs in zip(shared, each, strict=True)]
    return [Plot(f"mean over {len(shared)} families", tuple(means)), *plots]


def _lines(runs: Mapping[str, Loaded], rule: Rule) -> tuple[Curve, ...]:
    """A line a run, and dotted below it, without a name, the accuracy of one whose scorer
    forces answers."""
    curves = list[Curve]()
    for at, (name, run) in enumerate(runs.items()):
        look = stroke(at, len(runs))
        curves.append(Curve(name, run.map.margins, effective_length(run.cube, rule), look))
        if right := accuracy_by_length(run):
            curves.append(Curve("", right, None, replace(look, dash=DOTTED, opacity=0.0)))
    return tuple(curves)


def stroke(at: int, of: int) -> Stroke:
    """The look of a line by its number: colour, dash and shape, so that grey prints tell it
    too.

    of: how many there are; the bands of many are lighter, of more than `MOST` there are
    none."""
    colour, dash = LINES[at % len(LINES)], DASHES[(at // len(LINES)) % len(DASHES)]
    opacity = 0.15 if of <= MANY else 0.06 if of <= MOST else 0.0
    return Stroke(colour, colour, SHAPES[at % len(SHAPES)], 1.0, dash, opacity)


def _mean(name: str, families: Mapping[str, Loaded], rule: Rule, look: Stroke) -> Curve:
    scores = FamilyScores([run.cube for run in families.values()])
    return Curve(name, scores.means(), scores.effective(rule), look)


def _captions(groups: Sequence[Group], plots: Sequence[Plot], rule: Rule) -> list[str]:
    """What all runs have in common, and what bands and marks are."""
    maps = [run.map for _, families in groups for run in families.values()]
    common = [
        one_of({map.task for map in maps}),
        one_of({length_range(map.lengths) for map in maps}),
        *(one_of(set(said)) for said in zip(*map(facts, maps), strict=True)),
    ]
    n = sorted({map.n for map in maps})
    prompts = f"{n[0]:,}" if len(n) == 1 else f"{n[0]:,} to {n[-1]:,}"
    said = [*filter(None, common), f"n = {prompts} prompts a line"]
    signs = [
        "Dotted: accuracy."
        * any(curve.stroke.dash == DOTTED for plot in plots for curve in plot.curves),
        "Bands: 95 % intervals." * any(curve.banded for plot in plots for curve in plot.curves),
        f"Dashed: {100 * rule.threshold:g} %." * (rule.kind == "absolute"),
        f"Triangles, numbers at names: effective length ({rule.name}).",
    ]
    return [", ".join(said), " ".join(filter(None, signs))]


def _one(
    plots: Sequence[Plot],
    axis: Axis,
    rule: Rule | None,
    total: float,
    top: float,
    scale: Scale = SCORE,
    high: float = 0.6,
) -> tuple[list[str], float]:
    """One plot with its labels at the lines' ends; and where it ends. high: of its width."""
    (plot,) = plots
    names = [_ending(curve) for curve in plot.curves if curve.name]
    aside = min(0.4 * total, 12 + max((wide(name, bold=True) for name in names), default=0.0))
    left = EDGE + scale.room
    box = Box(left, top, total - EDGE - left - aside, min(high * (total - aside), 260.0))
    box = box._replace(height=max(box.height, NEAR * len(names)))
    return [*draw_plot(plot, axis, rule, box, scale), *endings(plot, axis, box, aside - 10)], below(
        box
    )


def _several(
    plots: Sequence[Plot], axis: Axis, rule: Rule, total: float, top: float
) -> tuple[list[str], float]:
    """Plots in filled rows, on the same axes, with one legend; and where they end."""
    columns = columns_of(len(plots), total)
    gap, left = 12.0, EDGE + SCORE.room
    width = (total - EDGE - left - gap * (columns - 1) - 4) / columns
    parts, y = [], top
    for first in range(0, len(plots), columns):
        for at, plot in enumerate(plots[first : first + columns]):
            box = Box(left + at * (width + gap), y + 12, width, 0.62 * width)
            head: list[Row] = [(fitted(plot.title, width, bold=True), TEXT, True)]
            low = first + at + columns >= len(plots)
            parts += draw_rows(head, box.x, y) + draw_plot(
                plot, axis, rule, box, left=at == 0, low=low
            )
        last = first + columns >= len(plots)
        y = below(box) + 4 if last else box.y + box.height + 8
    legend, height = draw_legend(
        [_key(curve) for curve in plots[0].curves if curve.name], left, y, total - EDGE - left
    )
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
    """Axes, lines and marks."""
    plane = Plane(box, scale)
    parts = [*plane.grid(), rect(*box, "none", stroke=FAINT, stroke_width=0.5)]
    parts += (plane.labels() if left else []) + (length_axis(axis, box) if low else [])
    if rule is not None and rule.kind == "absolute":
        ends = [plane.at(share, 100 * rule.threshold) for share in (0, 1)]
        parts.append(line(ends, SOFT, 0.5, stroke_dasharray="3 2"))
    joined = axis.kind != "even"
    for curve in plot.curves:  # no line lies under a band
        parts += (
            draw_bands(_means(curve, axis), plane, curve.stroke, joined=joined)
            if curve.banded
            else []
        )
    for curve in plot.curves:
        parts += draw_line(_means(curve, axis), plane, curve.stroke, joined=joined)
    return parts + [part for curve in plot.curves for part in _effective(curve, axis, plane)]


def _means(curve: Curve, axis: Axis) -> list[DrawnMean]:
    return [
        DrawnMean.of(axis.position(length), curve.means[length]) for length in sorted(curve.means)
    ]


def _effective(curve: Curve, axis: Axis, plane: Plane) -> list[str]:
    """A triangle on the axis below, and a hair up to where the line falls below the rule's
    threshold."""
    found = curve.effective
    if found is None or found.value is None or not isfinite(found.value) or not found.value:
        return []
    if axis.kind == "even":
        return []
    place = axis.position(found.value)
    x, base = plane.at(place, 0)
    hair = line(
        [plane.at(place, _at(curve, axis, place)), (x, base)],
        curve.stroke.colour,
        0.5,
        stroke_dasharray="1 1.5",
    )
    return [hair, mark(x, base - 1.5, 2.2, "down", curve.stroke.colour, curve.stroke.colour)]


def _at(curve: Curve, axis: Axis, place: float) -> float:
    """A line's height at a place, between its means."""
    known = [(mean.place, mean.value) for mean in _means(curve, axis) if mean.value is not None]
    for (left, low), (right, high) in pairwise(known):
        if left <= place <= right:
            return low + (high - low) * (place - left) / (right - left)
    return known[-1][1] if known else 0.0


def _ending(curve: Curve) -> str:
    """A line's name and how far it holds."""
    if curve.effective is None or curve.effective.value is None:
        return curve.name
    held = effective_label(curve.effective).partition(" ")[0]
    return f"{curve.name} · {typeset(held)}"


def endings(plot: Plot, axis: Axis, box: Box, room: float) -> list[str]:
    """Names beside the ends of their lines, moved apart where they would touch."""
    plane, ends = Plane(box, SCORE), []
    for curve in plot.curves:
        known = [mean for mean in _means(curve, axis) if mean.value is not None]
        if known and curve.name:
            ends.append((curve, plane.at(known[-1].place, known[-1].value or 0.0)))
    ends.sort(key=lambda end: end[1][1])
    places = spread([y for _, (_, y) in ends], NEAR, box.y + 2, box.y + box.height)
    right, parts = box.x + box.width, []
    for (curve, (x, y)), place in zip(ends, places, strict=True):
        parts.append(
            line([(x + 1.5, y), (right + 2, place), (right + 5, place)], curve.stroke.colour, 0.4)
        )
        words = fitted(_ending(curve), room, bold=True)
        parts.append(
            text(right + 7, place + 0.35 * TEXT, words, bold=True, fill=curve.stroke.colour)
        )
    return parts


def spread(places: Sequence[float], apart: float, top: float, bottom: float) -> list[float]:
    """Ascending places moved as little down, then up, as keeps them apart and above the
    bottom.

    >>> spread([1, 2, 9], 2, 0, 10)
    [1, 3, 9]
    >>> spread([8, 9, 10], 2, 0, 10)
    [6, 8, 10]
    """
    found: list[float] = []
    for place in places:
        found.append(max(place, top, found[-1] + apart if found else top))
    limit = bottom
    for at in range(len(found) - 1, -1, -1):
        found[at] = min(found[at], limit)
        limit = found[at] - apart
    return found


def _key(curve: Curve) -> PanelItem:
    """A line's look and its name."""
    look = curve.stroke
    dash = {"stroke_dasharray": look.dash} if look.dash else {}
    drawn = line([(0, 3.5), (14, 3.5)], look.colour, look.width, **dash) + mark(
        7, 3.5, 1.5, look.shape, "white", look.colour
    )
    return PanelItem(17 + wide(curve.name), drawn + text(17, 6, curve.name))


def groups_of(runs: Sequence[Loaded], suites: Sequence[Families]) -> list[Group]:
    """Plain runs each for itself, then suites with those families of theirs that are among the
    runs."""
    lies = {Path(run.path): run for run in runs}
    found = [
        {name: lies.pop(each.folder(name)) for name in each.begun if each.folder(name) in lies}
        for each in suites
    ]
    groups = [*({"": run} for run in lies.values()), *filter(None, found)]
    models = [next(iter(group.values())).map.model for group in groups]
    paths = [*lies, *(each.path for each, group in zip(suites, found, strict=True) if group)]
    return list(zip(unique_names(models, paths), groups, strict=True))


def draw_families(
    families: Sequence[Families], *, title: str | None, width: float | None
) -> Drawing:
    """Scores by length of all families of some runs, read anew."""
    loaded = [load_run(folder) for each in families for folder in each.folders]
    groups = groups_of(loaded, [each for each in families if not each.is_plain])
    return draw_curves(groups, title=title, rules=RULES, width=width)
