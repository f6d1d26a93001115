"""The page as a reader sees it: which parts are shown, where they stand beside each other, and in
which colours. Letters, whose fonts differ from machine to machine, are not compared."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import pytest

pytestmark = pytest.mark.long
PHONE = {"viewport": {"width": 400, "height": 800}}
DARK = {"color_scheme": "dark"}
PARTS = (
    *("title", "subtitle", "tabs", "answer", "sheet", "readings", "chart", "grid"),
    *("pane", "verdict", "effective", "lines", "notes", "footer"),
)
EACH = {"title", "subtitle", "notes", "footer"}
MAP = EACH | {"answer", "readings", "chart", "grid", "pane"}
RUN = MAP | {"effective", "lines"}
CHANGE = MAP | {"tabs", "verdict"}
STATES = {
    "one": ("plain", {}, RUN),
    "one-dark": ("plain", DARK, RUN),
    "one-phone": ("plain", PHONE, RUN),
    "two": ("two", {}, CHANGE),
    "two-dark": ("two", DARK, CHANGE),
    "three": ("three", {}, EACH | {"tabs", "sheet"}),
    "suite": ("suite", {}, EACH | {"answer", "sheet"}),
    "faulty": ("faulty", {}, RUN),
    "check": ("check", {}, EACH | {"answer", "sheet"}),
    "check-phone": ("check", PHONE, EACH | {"answer", "sheet"}),
    "ab": ("ab", {}, EACH | {"tabs", "answer", "sheet"}),
    "storm": ("storm", {}, EACH | {"tabs", "answer", "sheet"}),
}
SHOWN = """names => Object.fromEntries(names.flatMap(name => {
    const part = document.getElementById(name), box = part?.getBoundingClientRect();
    const seen = part?.checkVisibility() && box.width > 1 && box.height > 1;
    return seen ? [[name, [box.left, box.top + scrollY, box.right, box.bottom + scrollY]]] : [];
}))"""
CELLS = """() => [...document.querySelectorAll("#grid [role=gridcell]")].map(cell => {
    const box = cell.getBoundingClientRect(), style = getComputedStyle(cell);
    return [[box.left, box.top, box.right, box.bottom], cell.getAttribute("aria-label"),
            style.fill.startsWith("url(") ? "hatched" : style.fill];
})"""


@dataclass(frozen=True)
class Box:
    """Where a part stands on the page, in pixels."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        across = min(self.right, other.right) - max(self.left, other.left)
        down = min(self.bottom, other.bottom) - max(self.top, other.top)
        return across > 1 and down > 1


def parts(page: Any) -> dict[str, Box]:
    """The parts that are shown."""
    page.emulate_media(reduced_motion="reduce")
    return {name: Box(*box) for name, box in page.evaluate(SHOWN, [*PARTS]).items()}


@pytest.mark.parametrize("state", STATES)
def test_its_parts_are_shown_within_the_page_and_none_lies_on_another(
    visit: Any, state: str, request: pytest.FixtureRequest
) -> None:
    report, options, wanted = STATES[state]
    page = visit(request.getfixturevalue(report), **options)
    found = parts(page)
    assert found.keys() == wanted
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    wide = page.viewport_size["width"]
    for name, box in found.items():
        assert 0 <= box.left < box.right <= wide, name
    for one, other in combinations(found.keys() - {"grid"}, 2):  # the grid is a part of the chart
        assert not found[one].overlaps(found[other]), (one, other)
    rows = [found[name] for name in ("title", "subtitle", "notes", "footer")]
    assert all(above.bottom <= below.top + 1 for above, below in pairwise(rows))
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", ground)[:3])) / 3
    assert brightness < 40 if "dark" in state else brightness > 230


@pytest.mark.parametrize("state", ["one", "one-phone", "two", "faulty"])
def test_curves_stand_beside_their_map_and_trials_beside_or_below(
    visit: Any, state: str, request: pytest.FixtureRequest
) -> None:
    report, options, _ = STATES[state]
    found = parts(visit(request.getfixturevalue(report), **options))
    grid, chart, pane = found["grid"], found["chart"], found["pane"]
    assert chart.left <= grid.left < grid.right <= chart.right
    assert chart.top + 20 < grid.top < grid.bottom < chart.bottom - 20
    assert pane.top >= chart.bottom if "phone" in state else pane.left >= chart.right


@pytest.mark.parametrize("state", ["one", "one-dark", "faulty"])
def test_cells_fill_the_map_by_length_and_depth_in_the_colours_of_their_scores(
    visit: Any, state: str, request: pytest.FixtureRequest
) -> None:
    report, options, _ = STATES[state]
    page = visit(request.getfixturevalue(report), **options)
    grid = parts(page)["grid"]
    cells = [(Box(*box), said, colour) for box, said, colour in page.evaluate(CELLS)]
    assert len(cells) == 20
    assert len({round(box.left) for box, _, _ in cells}) == 4
    assert len({round(box.top) for box, _, _ in cells}) == 5
    for one, other in combinations([box for box, _, _ in cells], 2):
        assert not one.overlaps(other)
    area = sum((box.right - box.left) * (box.bottom - box.top) for box, _, _ in cells)
    assert area > 0.9 * (grid.right - grid.left) * (grid.bottom - grid.top)
    first = min(cells, key=lambda cell: (round(cell[0].top), cell[0].left))
    assert first[1].startswith("300 tokens at 0 %")
    colours: dict[str, set[str]] = {}
    for _, said, colour in cells:
        score = re.search(r": (score [\d.]+ %|not measured|[^,]+)", said)
        assert score is not None
        colours.setdefault(score[1], set()).add(colour)
    assert all(len(same) == 1 for same in colours.values()), colours
    assert len(set().union(*colours.values())) == len(colours)
    if state != "faulty":
        page.select_option("#palette", "amber")
        amber = [colour for _, _, colour in page.evaluate(CELLS)]
        assert all(one != cell[2] for one, cell in zip(amber, cells, strict=True))
