"""Draws what recovery.py reads: twelve recipes, and what a third of the steps tells of the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log

from needlemap.reports.colours import FAINT, SOFT
from needlemap.reports.figures.drawing import Drawing
from needlemap.reports.figures.shapes import EDGE, SEVERAL, TEXT, area, line, mark, text
from recovery_scores import Snapshot

COLUMNS, GAP, LEFT = 4, 14.0, 22.0
HIGH, HEAD, FOOT = 62.0, 11.0, 16.0
BLUE, RED = "#1F5FA8", "#C2410C"
STEPS = (3, 10, 32, 100)  # that the axis names
TAU_ROW, TAU_LEFT = 12.0, 150.0


def draw(
    found: Mapping[str, Sequence[Snapshot]], tau: Mapping[str, tuple[float, float, float]]
) -> Drawing:
    """A panel a recipe: recovery with its band, accuracy dotted; below, Kendall's tau with its
    interval of three figures at a third of the steps with the last accuracy."""
    wide = (SEVERAL - 2 * EDGE - LEFT - (COLUMNS - 1) * GAP) / COLUMNS
    parts = [*legend(LEFT + EDGE, EDGE + TEXT)]
    top = EDGE + 2 * TEXT
    for at, (name, snapshots) in enumerate(found.items()):
        row, column = divmod(at, COLUMNS)
        left, upper = EDGE + LEFT + column * (wide + GAP), top + row * (HEAD + HIGH + FOOT)
        parts += panel(name, snapshots, left, upper + HEAD, wide, first=column == 0)
    rows = -(-len(found) // COLUMNS)
    lower = top + rows * (HEAD + HIGH + FOOT) + TEXT
    parts += intervals(tau, lower)
    height = lower + (len(tau) + 2) * TAU_ROW + EDGE
    return Drawing(tuple(parts), SEVERAL, height)


def legend(x: float, y: float) -> Iterator[str]:
    """What the lines are."""
    yield line([(x, y - 2.5), (x + 16, y - 2.5)], BLUE, 1.4)
    yield text(x + 20, y, "recovery at 512 tokens, 95 % interval over haystacks")
    yield line([(x + 230, y - 2.5), (x + 246, y - 2.5)], RED, 1.2, stroke_dasharray="1.5 1.5")
    yield text(x + 250, y, "accuracy on the same items; steps of training across")


def panel(
    name: str, snapshots: Sequence[Snapshot], left: float, top: float, wide: float, *, first: bool
) -> Iterator[str]:
    """A recipe."""
    begin, end = log(snapshots[0].step), log(snapshots[-1].step)

    def across(step: int) -> float:
        return left + wide * (log(step) - begin) / (end - begin)

    def down(share: float) -> float:
        return top + HIGH * (1 - min(1.0, max(0.0, share)))

    yield text(left, top - 3, name, bold=True)
    for share in (0.0, 0.5, 1.0):
        yield line([(left, down(share)), (left + wide, down(share))], FAINT, 0.4)
        if first:
            yield text(left - 4, down(share) + 2.5, f"{share:g}", anchor="end", fill=SOFT)
    for step in STEPS:
        yield text(across(step), top + HIGH + TEXT + 1, str(step), anchor="middle", fill=SOFT)
    known = [(each.step, each.recovery) for each in snapshots if each.recovery]
    upper = [(across(step), down(found[2])) for step, found in known]
    lower = [(across(step), down(found[1])) for step, found in known]
    yield area([*upper, *reversed(lower)], BLUE, fill_opacity="0.15")
    yield line([(across(step), down(found[0])) for step, found in known], BLUE, 1.4)
    dotted = [(across(each.step), down(each.accuracy)) for each in snapshots]
    yield line(dotted, RED, 1.2, stroke_dasharray="1.5 1.5")


def intervals(tau: Mapping[str, tuple[float, float, float]], top: float) -> Iterator[str]:
    """Kendall's tau with the last accuracy."""
    left, right = EDGE + LEFT + TAU_LEFT, SEVERAL - EDGE - 10

    def across(value: float) -> float:
        return left + (right - left) * (value + 1) / 2

    yield text(EDGE + LEFT, top, "What a third of the steps tells of the end:", bold=True)
    yield text(
        EDGE + LEFT + TAU_LEFT,
        top,
        "Kendall's tau with the last accuracy, over twelve recipes, and its 95 % interval",
    )
    bottom = top + (len(tau) + 0.6) * TAU_ROW
    for value in (-1.0, -0.5, 0.0, 0.5, 1.0):
        yield line([(across(value), top + 4), (across(value), bottom - 4)], FAINT, 0.4)
        yield text(across(value), bottom + 4, f"{value:g}", anchor="middle", fill=SOFT)
    for at, (name, (value, low, high)) in enumerate(tau.items(), 1):
        y = top + at * TAU_ROW
        shown = "loss, the lower the better" if name == "loss" else name
        yield text(EDGE + LEFT, y + 2.5, shown)
        colour = {"recovery": BLUE, "accuracy": RED}.get(name, SOFT)
        yield line([(across(low), y), (across(high), y)], colour, 1.4)
        yield mark(across(value), y, 2.4, "circle", colour)
