"""Figures as a reader sees them: texts, places, shapes and colours, in the SVG and in the PNG.

Nothing here hangs on the fonts of a machine: letters are compared as texts, and a PNG by its size
and by the colours in the middle of its cells.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp
from typing import Any
from xml.etree import ElementTree

import pytest

from needlemap.reports.colours import PALETTES
from needlemap.reports.figures.drawing import Drawing
from needlemap.reports.figures.figure import Figure, Shown, draw
from needlemap.stats.means import Map

SVG = "{http://www.w3.org/2000/svg}"
COLUMN, PAGE = 234.0, 486.0
TURBID = 0.7  # points by which cells may lie over each other, or apart
CELL = re.compile(r"([\d,]+) tokens, depth ([\d.]+) %.*?: score ([\d.]+) %")
DOUBLED = [1000, 2000, 4000, 8000, 16_000, 32_000, 64_000]
MANY = [1000 + round(31_000 * at / 34) for at in range(35)]


def falling(
    make_map: Any, make_cell: Any, lengths: list[int], depths: int, n: int, **names: str
) -> Map:
    """Scores that fall with the length, sooner in the middle; every ninth cell is short of a
    trial."""
    cells = []
    for at, length in enumerate(lengths):
        for row in range(depths):
            depth = row / (depths - 1)
            share = 1 / (1 + exp(9 * (at / len(lengths) - 0.6) + 3 * depth * (1 - depth)))
            short = n > 1 and (at + row) % 9 == 4
            scored = {
                "n": n - short,
                "missing": int(short),
                "failures": {"timed out": 1} if short else {},
            }
            cells.append(make_cell(length, depth, round(share * n) / n, **scored))
    return make_map(cells, **names)


@dataclass(frozen=True)
class Box:
    """A rectangle of a drawing, in points. says: its tip."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    says: str

    @property
    def middle(self) -> tuple[float, float]:
        return self.x + self.width / 2, self.y + self.height / 2

    @property
    def place(self) -> tuple[int, float, float]:
        """Length, depth and score that it says."""
        found = CELL.match(self.says)
        assert found is not None, self.says
        return int(found[1].replace(",", "")), float(found[2]), float(found[3])


class Picture:
    """What stands in a drawing's SVG."""

    def __init__(self, drawing: Drawing) -> None:
        self.drawing, self.root = drawing, ElementTree.fromstring(drawing.svg)

    @property
    def boxes(self) -> list[Box]:
        """The rectangles that stand in no group, which is the legend's."""
        found = []
        for rect in self.root.findall(f"{SVG}rect"):
            at = [float(rect.attrib[name]) for name in ("x", "y", "width", "height")]
            title = rect.find(f"{SVG}title")
            says = "" if title is None else title.text or ""
            found.append(Box(*at, rect.attrib["fill"], says))
        return found

    @property
    def cells(self) -> list[Box]:
        return [box for box in self.boxes if box.says]

    @property
    def texts(self) -> list[str]:
        return [text.text or "" for text in self.root.iter(f"{SVG}text")]

    def text_at(self, words: str) -> tuple[float, float]:
        """Where a text of no group stands, the first of several."""
        found = next(each for each in self.root.findall(f"{SVG}text") if each.text == words)
        return float(found.attrib["x"]), float(found.attrib["y"])

    @property
    def ramp(self) -> list[tuple[float, str]]:
        """The legend's colours, by their share of it."""
        stops = self.root.iter(f"{SVG}stop")
        return [(float(each.attrib["offset"]), each.attrib["stop-color"]) for each in stops]

    def legend_colour(self, score: float) -> tuple[int, ...]:
        """What the legend gives a score of so many percent."""
        for (low, first), (high, second) in pairwise(self.ramp):
            if score / 100 <= high:
                share = (score / 100 - low) / (high - low)
                both = zip(rgb(first), rgb(second), strict=True)
                return tuple(round(a + share * (b - a)) for a, b in both)
        raise AssertionError(score)


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour.removeprefix("#")))


def near(one: tuple[int, ...], other: tuple[int, ...], by: int = 2) -> bool:
    return all(abs(a - b) <= by for a, b in zip(one, other, strict=True))


NAMES = "map", "one-trial", "three", "opencompass"


@pytest.fixture
def drawn(make_map: Any, make_cell: Any) -> Callable[[str], Picture]:
    """drawn(name): the figure of that name."""
    map = falling(make_map, make_cell, DOUBLED, 6, 4)
    kinds = {
        "map": (Figure((Shown(map),)), COLUMN),
        "one-trial": (Figure((Shown(falling(make_map, make_cell, MANY, 35, 1)),)), COLUMN),
        "three": (Figure(tuple(Shown(replace(map, model=name)) for name in "abc")), PAGE),
        "opencompass": (Figure((Shown(map),), style="opencompass"), COLUMN),
    }
    return lambda name: Picture(draw(*kinds[name]))


def plane(picture: Picture, name: str) -> list[Box]:
    """The cells of a figure's first map."""
    if name == "opencompass":  # they say nothing
        return picture.boxes[1:43]
    return picture.cells[: 35 * 35 if name == "one-trial" else 42]


DEPTHS = ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %", "Depth"]
LABELS = ["1k", "2k", "4k", "8k", "16k", "32k", "64k", "Length (tokens, log scale)"]
BELOW = ["Score", "lost", "found", "0 %", "50 %", "100 %", "95 % interval", "part is missing"]
COUNTS = ["23", "23", "23", "23", "23", "24", "24"]
SETTINGS = "mode exact, tokenizer cl100k_base, scorer levenshtein"
PANEL = ["63.7 % [50.4, 75.1], n = 163", "Missing 5 (5 timed out)"]
TEXTS = {
    "map": [
        "a-model · single · 1k–64k tokens",
        "overall 63.7 % [50.4, 75.1], n = 163 prompts, 4 trials a cell",
        "Missing 5 (5 timed out)",
        *("0 %", "50 %", "100 %", "Score", *COUNTS, "n", "0 %", "100 %", "Score"),
        *(*DEPTHS, *LABELS, *BELOW, SETTINGS),
    ],
    "one-trial": [
        "a-model · single · 1k–32k tokens",
        "overall 56.2 % [35.2, 75.3], n = 1,225 prompts, one trial a cell",
        *("0 %", "50 %", "100 %", "Score", *["35"] * 9, "n", "0 %", "100 %", "Score"),
        *("0 %", "15 %", "29 %", "44 %", "59 %", "74 %", "88 %", "100 %", "Depth"),
        *("1k", "5k", "10k", "15k", "20k", "25k", "32k", "Length (tokens)"),
        *(*BELOW[:-1], SETTINGS),
    ],
    "three": [
        *("a", *PANEL, "0 %", "100 %", "Score", *DEPTHS, *LABELS),
        *("b", *PANEL, *LABELS),
        *("c", *PANEL, *LABELS, *BELOW),
        f"single, 1k–64k tokens, 4 trials a cell, {SETTINGS}",
    ],
    "opencompass": [
        "a-model 64K Context Performance",
        'Fact Retrieval Across Context Lengths ("Needle In A Haystack")',
        *("0", "20", "40", "60", "80", "100", "Depth Percent"),
        *("0", "20", "40", "60", "80", "100", "Score"),
        *(*LABELS[:-1], "Token Limit", "Average Depth Score"),
        "Overall Score for a-model: 64.29",
        "n = 163 prompts, 4 trials a cell. Missing 5 (5 timed out)",
    ],
}
SIZES = {"map": (234, 238.4), "one-trial": (234, 220.1), "three": (486, 199.7)}
SIZES["opencompass"] = (234, 149.1)


@pytest.mark.parametrize("name", NAMES)
def test_it_says_these_words_in_this_order(drawn: Callable[[str], Picture], name: str) -> None:
    picture = drawn(name)
    assert picture.texts == TEXTS[name]
    assert (picture.drawing.width, picture.drawing.height) == pytest.approx(SIZES[name], abs=0.1)


@pytest.mark.parametrize("name", NAMES)
def test_cells_tile_a_rectangle_by_length_and_depth(
    drawn: Callable[[str], Picture], name: str
) -> None:
    """One column a length, shortest first, and in it one row a depth, 0 on top."""
    picture = drawn(name)
    cells = plane(picture, name)
    rows = 35 if name == "one-trial" else 6
    columns = [cells[at : at + rows] for at in range(0, len(cells), rows)]
    assert len(columns) == (35 if name == "one-trial" else 7)
    for column in columns:
        assert len({(box.x, box.width) for box in column}) == 1
        for above, below in pairwise(column):
            assert below.y == pytest.approx(above.y + above.height, abs=TURBID)
    for left, right in pairwise(columns):
        assert right[0].x == pytest.approx(left[0].x + left[0].width, abs=TURBID)
        assert [box.y for box in left] == [box.y for box in right]
        assert right[0].width == pytest.approx(left[0].width, abs=TURBID)
    if name != "opencompass":
        places = [box.place[:2] for box in cells]
        assert places == sorted(places)
        assert len(set(places)) == len(cells)
    last = cells[-1]
    assert last.x + last.width <= picture.drawing.width
    assert last.y + last.height <= picture.drawing.height


@pytest.mark.parametrize("name", NAMES[:3])
def test_a_cell_has_the_colour_that_the_legend_gives_its_score(
    drawn: Callable[[str], Picture], name: str
) -> None:
    picture = drawn(name)
    assert tuple(colour for _, colour in picture.ramp)[:: len(picture.ramp) - 1] == (
        PALETTES["viridis"][0],
        PALETTES["viridis"][-1],
    )
    for box in picture.cells:
        assert near(rgb(box.fill), picture.legend_colour(box.place[2])), box


def test_scores_fall_with_the_length(drawn: Callable[[str], Picture]) -> None:
    scores = {box.place[:2]: box.place[2] for box in drawn("map").cells}
    assert [scores[length, 40.0] for length in DOUBLED] == [100, 100, 100, 75, 50, 25, 0]


def test_opencompass_has_its_three_colours(drawn: Callable[[str], Picture]) -> None:
    picture = drawn("opencompass")
    assert [colour for _, colour in picture.ramp] == ["#F0496E", "#EBB839", "#0CD79F"]
    fills = [box.fill for box in plane(picture, "opencompass")]
    assert fills[:6] == ["#0CD79F"] * 6
    assert len(set(fills)) >= 4


@pytest.mark.parametrize("name", ["map", "three", "opencompass"])
def test_a_length_stands_under_its_column_and_a_depth_left_of_its_row(
    drawn: Callable[[str], Picture], name: str
) -> None:
    picture = drawn(name)
    cells = plane(picture, name)
    for label, box in zip(LABELS, cells[::6], strict=False):
        x, y = picture.text_at(label)
        assert x == pytest.approx(box.middle[0], abs=3)
        assert y > cells[5].y + cells[5].height
    if name != "opencompass":  # its depths are ticks of an axis
        x, y = picture.text_at("20 %")
        assert x < cells[0].x
        assert cells[1].y < y < cells[1].y + cells[1].height


def test_what_misses_a_trial_has_a_corner(drawn: Callable[[str], Picture]) -> None:
    picture = drawn("map")
    short = [box for box in picture.cells if "missing 1" in box.says]
    corners = [
        [float(part) for part in re.findall(r"[\d.]+", path.attrib["d"])[2:4]]
        for path in picture.root.findall(f"{SVG}path")
        if path.attrib.get("fill") in ("#000000", "#FFFFFF") and path.attrib["d"].endswith("Z")
    ]
    assert len(short) == 5
    assert corners == [
        [pytest.approx(box.x + box.width, abs=0.5), pytest.approx(box.y, abs=0.5)] for box in short
    ]


@pytest.mark.parametrize("name", NAMES)
def test_the_png_shows_the_same_cells(drawn: Callable[[str], Picture], name: str) -> None:
    image = pytest.importorskip("PIL.Image", reason="pip install '.[test]'")
    picture = drawn(name)
    shown = image.open(io.BytesIO(picture.drawing.png)).convert("RGB")
    dots = shown.width / picture.drawing.width  # a point
    assert dots == pytest.approx(5, abs=0.01)  # 360 to the inch
    assert shown.height == pytest.approx(dots * picture.drawing.height, abs=1)
    assert shown.getpixel((1, 1)) == (255, 255, 255)
    cells = picture.cells or plane(picture, name)
    like = [
        near(shown.getpixel((round(dots * x), round(dots * y))), rgb(box.fill))
        for box in cells
        for x, y in [box.middle]
    ]
    # A line of means and the words of the whole score lie over some of OpenCompass's.
    assert sum(like) >= (30 if name == "opencompass" else len(cells))


def test_another_palette_is_seen(make_map: Any, make_cell: Any) -> None:
    map = falling(make_map, make_cell, DOUBLED, 6, 4)
    amber = Picture(draw(Figure((Shown(map),), palette="amber"), COLUMN))
    viridis = Picture(draw(Figure((Shown(map),)), COLUMN))
    assert amber.texts == viridis.texts
    assert all(
        one.fill != other.fill for one, other in zip(amber.cells, viridis.cells, strict=True)
    )
