"""A map as a panel: what is drawn of it, and what is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from needlemap.errors import SettingsError
from needlemap.reports.colours import PALETTES
from needlemap.reports.figures.figure import Figure, Shown, draw, panels_of
from needlemap.reports.figures.heat import (
    BAND,
    Box,
    DrawnMean,
    MapPanel,
    Plane,
    Scale,
    Stroke,
    draw_bands,
)
from needlemap.reports.figures.shapes import HATCHED, text_width
from needlemap.stats.means import Map

SVG = "{http://www.w3.org/2000/svg}"


def figure(map: Map, **more: Any) -> Figure:
    return Figure((Shown(map),), **more)


def panel(map: Map, **more: Any) -> MapPanel:
    (only,), _ = panels_of(figure(map, **more))
    return only


def words(map: Map) -> str:
    """Title and caption as one text."""
    found = panel(map)
    return " ".join([found.title, *found.lines])


def root(map: Map, width: float | None = None, **more: Any) -> ElementTree.Element:
    return ElementTree.fromstring(draw(figure(map, **more), width).svg)


def boxes(map: Map, width: float | None = None) -> list[ElementTree.Element]:
    """Cells: the rectangles that say what they are."""
    return [
        box for box in root(map, width).iter(f"{SVG}rect") if box.find(f"{SVG}title") is not None
    ]


def texts(map: Map, width: float | None = None) -> list[str]:
    return [text.text or "" for text in root(map, width).iter(f"{SVG}text")]


def test_colours_stand_for_0_to_100_whatever_the_data(make_map: Any, make_cell: Any) -> None:
    found = panel(make_map([make_cell(1000, 0.0, 0.9)])).scale
    assert (found.domain, found.colours) == ((0, 100), PALETTES["viridis"])
    assert (found.colour(0), found.colour(100)) == ("#440154", "#FDE725")
    assert (
        panel(make_map([make_cell(1000, 0.0, 0.9)]), palette="amber").scale.colour(50) == "#EBB839"
    )


def test_depth_0_is_on_top(mixed: Map) -> None:
    bands = [(round(cell.top, 3), round(cell.bottom, 3)) for cell in panel(mixed).cells[:3]]
    assert bands == [(0, 0.333), (0.333, 0.667), (0.667, 1)]
    rows = [float(box.attrib["y"]) for box in boxes(mixed)[:3]]
    assert rows == sorted(rows)


def test_a_missing_cell_is_hatched_and_a_zero_is_coloured(mixed: Map) -> None:
    fills = {box.find(f"{SVG}title").text[:26]: box.attrib["fill"] for box in boxes(mixed)}  # type: ignore[union-attr, index]
    assert fills["4,000 tokens, depth 50 %, "] == "#440154"
    assert fills["4,000 tokens, depth 100 %,"] == HATCHED
    assert {"not measured", "part is missing"} <= set(texts(mixed))


def test_a_partly_missing_cell_keeps_its_score_and_gets_a_corner(mixed: Map) -> None:
    (cell,) = [cell for cell in panel(mixed).cells if cell.partial]
    assert cell.value == 50
    assert "n=2, missing 2 (2 rate limited)" in cell.tip


def test_a_cell_of_one_trial_is_a_full_cell(make_map: Any, make_cell: Any) -> None:
    """Cells of one trial were smaller: in GPT-4's map, where some have two, that drew a border
    which is not in the data."""
    lone, firm = make_cell(1000, 0.0, 1.0, n=1), make_cell(2000, 0.0, 1.0, n=10)
    found = boxes(make_map([lone, firm]))
    sizes = [(float(box.attrib["width"]), float(box.attrib["height"])) for box in found]
    assert sizes[0] == pytest.approx(sizes[1], abs=0.5)
    assert "one trial" not in texts(make_map([lone, firm]))


def test_the_name_of_the_depths_stands_left_of_their_labels(make_map: Any, make_cell: Any) -> None:
    """At column width "Depth" was printed over "70.7%"."""
    depths = (0.0, 0.1134, 0.3571, 0.7072, 0.9131, 1.0)
    map = make_map([make_cell(length, depth, 1.0) for length in (1000, 2000) for depth in depths])
    drawn = list(root(map, 234.0).iter(f"{SVG}text"))
    (name,) = [each for each in drawn if each.text == "Depth"]
    right = float(name.attrib["x"]) + 1  # turned about its baseline: below that is what hangs
    labels = [each for each in drawn if (each.text or "").endswith("%")]
    ends = [each for each in labels if each.attrib.get("text-anchor") == "end"]
    left = min(float(each.attrib["x"]) - text_width(each.text or "") for each in ends)
    assert right < left


def test_an_interval_beyond_the_axis_ends_at_its_edge_with_an_arrow() -> None:
    scale = Scale("B - A", "points", "", (-5, 5), (-5, 0, 5), PALETTES["viridis"])
    plane = Plane(Box(0, 0, 100, 50), scale)
    inside, beyond = DrawnMean(0.2, 0, -4, 4), DrawnMean(0.4, 0, -17.6, 4)
    assert plane.beyond(inside) == []
    (arrow,) = plane.beyond(beyond)
    assert "40 50" in arrow or "40,50" in arrow
    assert plane.at(0.4, -17.6) == (40, 50)


def test_intervals_as_wide_as_the_axis_are_bars_and_no_filled_rectangle() -> None:
    scale = Scale("B - A", "points", "", (-5, 5), (-5, 0, 5), PALETTES["viridis"])
    plane, look = Plane(Box(0, 0, 100, 50), scale), Stroke()
    known = [DrawnMean(at / 4, 0, -4, 4) for at in range(4)]
    unknown = [DrawnMean(at / 4, 0, -17, 17) for at in range(4)]
    assert sum(BAND in part for part in draw_bands(known, plane, look, joined=True)) == 1
    drawn = draw_bands(unknown, plane, look, joined=True)
    assert not any(BAND in part for part in drawn)
    assert len(drawn) == 4 + 8  # a bar and two arrows each


def test_score_by_length_and_by_depth_stand_beside_the_map_on_axes_of_their_own(mixed: Map) -> None:
    found, margins = panel(mixed), mixed.margins.values()
    assert [(mean.value, mean.low, mean.high) for mean in found.by_length] == [
        tuple(round(100 * (value or 0), 6) for value in (each.score, each.low, each.high))
        for each in margins
    ]
    depths = [row.mean.score for row in mixed.by_depth]
    assert [mean.value for mean in found.by_depth] == [round(100 * score, 6) for score in depths]
    cells = boxes(mixed)
    top, right = min(float(box.attrib["y"]) for box in cells), max(_right(box) for box in cells)
    marks = [
        (float(mark.attrib["cx"]), float(mark.attrib["cy"]))
        for mark in root(mixed).iter(f"{SVG}circle")
    ]
    assert len(marks) == len(found.by_length) + len(found.by_depth)
    assert all(x > right or y < top for x, y in marks)


def _right(box: ElementTree.Element) -> float:
    return float(box.attrib["x"]) + float(box.attrib["width"])


def test_a_cell_tells_n_interval_and_failures_by_kind(mixed: Map) -> None:
    tips = [cell.tip for cell in panel(mixed).cells]
    assert tips[5] == (
        "4,000 tokens, depth 100 %, realised 100 %: not measured, n=0, missing 4 (3 timed out, 1 "
        "not sent)"
    )
    assert tips[0] == "1,000 tokens, depth 0 %, realised 0 %: score 100.0 % [51.0, 100.0], n=4"


def test_title_and_caption_say_what_was_measured(mixed: Map) -> None:
    shown = words(mixed)
    assert shown.startswith("a-model · single · 1k–128k tokens overall 65.4 % [")
    assert "mode exact" not in shown
    assert texts(mixed)[-1] == "mode exact, tokenizer cl100k_base, scorer levenshtein"
    assert "overall 65.4 % [" in shown
    assert "n = 26 prompts" in shown
    assert "Missing 10 (2 rate limited, 3 timed out, 5 not sent)" in shown


@pytest.mark.parametrize(("n", "said"), [((1, 1), "one trial a cell"), ((3, 3), "3 trials a cell"),
                                         ((1, 4), "1 to 4 trials a cell")])  # fmt: skip
def test_the_caption_says_in_words_how_many_trials_a_cell_has(
    make_map: Any, make_cell: Any, n: tuple[int, int], said: str
) -> None:
    cells = [make_cell(1000 * (at + 1), 0.0, 1.0, n=trials) for at, trials in enumerate(n)]
    assert f"n = {sum(n)} prompts, {said}" in words(make_map(cells))


def test_nothing_missing_is_not_mentioned(make_grid: Any) -> None:
    assert "Missing" not in words(make_grid(2, 2))
    assert "not measured" not in texts(make_grid(2, 2))


def test_every_axis_has_a_unit(mixed: Map) -> None:
    shown = texts(mixed)
    assert {"Length (tokens, log scale)", "Depth", "Score"} <= set(shown)
    assert {"0 %", "50 %", "100 %"} <= set(shown)


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (0, 9)])
@pytest.mark.parametrize("width", [None, 234.0])
def test_any_shape_makes_a_picture(
    make_grid: Any, shape: tuple[int, int], width: float | None
) -> None:
    assert len(boxes(make_grid(*shape), width)) == shape[0] * shape[1]


def test_lattice_cells_reach_half_way_to_their_neighbours(make_map: Any, make_cell: Any) -> None:
    cells = [
        make_cell(length, place / length, 1.0)
        for length in range(10, 20)
        for place in range(0, length, 3)
    ]
    bands = [(cell.top, cell.bottom) for cell in panel(make_map(cells)).cells if cell.length == 10]
    assert [tuple(round(100 * edge) for edge in band) for band in bands] == [
        (0, 15), (15, 45), (45, 75), (75, 100),
    ]  # fmt: skip


def test_an_unknown_palette_is_an_error_that_lists_them(mixed: Map) -> None:
    with pytest.raises(SettingsError, match="Did you mean 'amber'"):
        panel(mixed, palette="ambr")


def test_ticks_of_realised_depths_are_in_bins_alone(make_map: Any, make_cell: Any) -> None:
    cells = [make_cell(1000, row / 10, 1.0) for row in range(11)]
    binned, exact = (make_map(cells, mode=mode) for mode in ("bins", "exact"))
    assert "needle's depth" in texts(binned)
    assert "needle's depth" not in texts(exact)
    assert panel(binned).cells[0].needle == pytest.approx(0.0)


def test_means_of_nobody_knows_how_many_answers_have_no_n_and_no_band(mixed: Map) -> None:
    margins = {length: replace(mean, low=None, high=None) for length, mean in mixed.margins.items()}
    depths = tuple(
        replace(row, mean=replace(row.mean, low=None, high=None)) for row in mixed.by_depth
    )
    total = replace(mixed.total, low=None, high=None)
    means = replace(mixed, counted=False, margins=margins, total=total, by_depth=depths)
    assert "n unknown (26 cells, each a mean)" in words(means)
    assert not any("n=" in cell.tip for cell in panel(means).cells)
    assert "95 % interval" in texts(mixed)
    assert "95 % interval" not in texts(means)
