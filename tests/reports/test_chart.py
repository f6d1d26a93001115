"""One chart specification for page, notebook and print."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from needlemap.errors import SettingsError
from needlemap.maps.map import Map
from needlemap.reports.chart import heat_map
from needlemap.reports.labels import length_margins
from needlemap.reports.layout import make_layout
from needlemap.reports.style import PALETTES, PRINT


def encodings(spec: Any) -> list[dict[str, Any]]:
    """Every encoding of every layer."""
    own = [spec["encoding"]] if "encoding" in spec else []
    return own + [found for layer in spec.get("layer", []) for found in encodings(layer)]


def rows(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Data rows that are cells."""
    return [row for data in spec["datasets"].values() for row in data if "state" in row]


def words(spec: dict[str, Any]) -> str:
    """Title and subtitle as one text."""
    return " ".join([*spec["title"]["text"], *spec["title"]["subtitle"]])


def test_colours_stand_for_0_to_100_whatever_the_data(make_map: Any, make_cell: Any) -> None:
    spec = heat_map(make_map([make_cell(1000, 0.0, 0.9)])).to_dict()
    (colour,) = [each["color"] for each in encodings(spec) if "color" in each]
    assert (colour["scale"]["domain"][0], colour["scale"]["domain"][-1]) == (0, 100)
    assert colour["scale"]["range"] == list(PALETTES["viridis"])
    assert colour["legend"]["title"] == "Score"


def test_depth_0_is_on_top(mixed: Map) -> None:
    spec = heat_map(mixed).to_dict()
    depth = next(each["y"] for each in encodings(spec) if each["y"]["field"] == "top")
    assert depth["scale"]["domain"] == [0, 3]
    assert depth["scale"]["reverse"] is True
    assert [(row["top"], row["bottom"]) for row in rows(spec)[:3]] == [(0, 1), (1, 2), (2, 3)]
    assert '"0.5": "0%", "1.5": "50%", "2.5": "100%"' in depth["axis"]["labelExpr"]


def test_lengths_have_compact_labels_in_order(mixed: Map) -> None:
    length = encodings(heat_map(mixed).to_dict())[0]["x"]
    assert length["scale"]["domain"] == [1000, 4000, 128000]
    assert '"1000": "1k", "4000": "4k", "128000": "128k"' in length["axis"]["labelExpr"]


def test_a_missing_cell_is_hatched_and_a_zero_is_coloured(mixed: Map) -> None:
    spec = heat_map(mixed).to_dict()
    states = {(row["length"], row["top"]): (row["state"], row["score"]) for row in rows(spec)}
    assert states[4000, 1.0] == ("scored", 0.0)
    assert states[4000, 2.0] == ("missing", None)
    scored, missing = spec["layer"][0]["layer"][:2]
    assert scored["transform"] == [{"filter": "datum.score !== null"}]
    assert missing["transform"] == [{"filter": "datum.state === 'missing'"}]
    assert missing["mark"]["fill"]["gradient"] == "linear"


def test_a_partly_missing_cell_keeps_its_score_and_gets_a_corner(mixed: Map) -> None:
    spec = heat_map(mixed).to_dict()
    row = next(row for row in rows(spec) if row["state"] == "partial")
    assert (row["score"], row["n"], row["missing"]) == (50.0, 2, "2 (2 rate limited)")
    assert spec["layer"][0]["layer"][2]["transform"] == [{"filter": "datum.state === 'partial'"}]


def test_the_line_of_means_has_its_own_axis_of_0_to_100_and_a_bar_for_each_interval(mixed: Map) -> None:
    spec = heat_map(mixed).to_dict()
    mean = next(each["y"] for each in encodings(spec) if each["y"].get("field") == "mean")
    assert mean["scale"]["domain"] == [0, 100]
    assert mean["axis"]["orient"] == "right"
    assert spec["resolve"] == {"scale": {"y": "independent"}}
    drawn = [row for data in spec["datasets"].values() for row in data if "mean" in row]
    margins = length_margins(mixed)
    assert [(row["mean"], row["low"], row["high"]) for row in drawn] == [
        tuple(round(100 * (value or 0), 4) for value in (each.score, each.low, each.high)) for each in margins
    ]
    assert any(each["y"].get("field") == "low" and each["y2"]["field"] == "high" for each in encodings(spec))


def test_tooltips_tell_n_interval_and_failures_by_kind(mixed: Map) -> None:
    row = next(row for row in rows(heat_map(mixed).to_dict()) if row["state"] == "missing")
    assert row["missing"] == "4 (3 timed out, 1 not asked)"
    assert (row["shown"], row["interval"]) == ("not measured", "-")
    assert row["depth"] == "100 %, realised 100 %"
    titles = [each["title"] for each in encodings(heat_map(mixed).to_dict())[0]["tooltip"]]
    assert titles == ["length", "depth", "score", "n", "interval", "missing"]


def test_title_and_subtitle_say_what_was_measured(mixed: Map) -> None:
    shown = words(heat_map(mixed).to_dict())
    for part in (
        "a-model · single · 1k–128k tokens",
        "cl100k_base",
        "levenshtein",
        "mode exact",
        "overall 65.4",
    ):
        assert part in shown
    assert "n = 26 prompts" in shown
    assert "Missing 10 (2 rate limited, 3 timed out, 5 not asked)" in shown


def test_nothing_missing_is_not_mentioned(make_grid: Any) -> None:
    assert "Missing" not in words(heat_map(make_grid(2, 2)).to_dict())


def test_a_long_name_is_wrapped(make_map: Any, make_cell: Any) -> None:
    lines = heat_map(make_map([make_cell(1000, 0, 1.0)], model="name/" * 40)).to_dict()["title"]["text"]
    assert len(lines) > 1
    assert max(map(len, lines)) <= 75


def test_200_columns_get_few_labels(make_grid: Any) -> None:
    spec = heat_map(make_grid(200, 20)).to_dict()
    assert len(encodings(spec)[0]["x"]["axis"]["values"]) <= 40
    assert spec["width"] <= 900


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (0, 9)])
def test_any_shape_makes_a_chart(make_grid: Any, shape: tuple[int, int]) -> None:
    assert len(rows(heat_map(make_grid(*shape)).to_dict())) == shape[0] * shape[1]


def test_lattice_cells_reach_half_way_to_their_neighbours(make_map: Any, make_cell: Any) -> None:
    cells = [
        make_cell(length, place / length, 1.0) for length in range(10, 20) for place in range(0, length, 3)
    ]
    spec = heat_map(make_map(cells)).to_dict()
    bands = [(row["top"], row["bottom"]) for row in rows(spec) if row["length"] == 10]
    assert [tuple(map(round, band)) for band in bands] == [(0, 15), (15, 45), (45, 75), (75, 100)]


def test_an_unknown_palette_is_an_error_that_lists_them(mixed: Map) -> None:
    with pytest.raises(SettingsError, match="Did you mean 'amber'"):
        heat_map(mixed, palette="ambr")


def test_what_is_an_expression_holds_nothing_of_the_user(make_map: Any, make_cell: Any) -> None:
    """Vega runs label expressions and filters: names must stay out of them."""
    spec = heat_map(make_map([make_cell(1000, 0.0, 1.0)], model="';alert(1)//", task="datum.x")).to_dict()
    assert "alert" not in json.dumps([spec["layer"], spec["datasets"]])
    assert spec["title"]["text"] == ["';alert(1)// · datum.x · 1k tokens"]


def test_ticks_of_realised_depths_need_rows_that_are_high_enough(make_map: Any, make_cell: Any) -> None:
    few, many = (
        make_map([make_cell(1000, row / 50, 1.0) for row in range(rows)], mode="bins") for rows in (11, 51)
    )
    assert [make_layout(map, PRINT, 150.0).realised for map in (few, many)] == [True, False]
    assert "white ticks" in words(heat_map(few).to_dict())


def test_a_narrow_map_has_fewer_labels_that_stay_level(make_grid: Any) -> None:
    layout = make_layout(make_grid(35, 35), PRINT, 170.0)
    assert 4 <= len(layout.length_ticks) <= 12
    assert 4 <= len(layout.depth_ticks) <= 12
    assert 150 < layout.width <= 170
    assert round(5 * layout.width / 35, 6) == round(5 * layout.width / 35)  # whole printed pixels a column


def test_means_of_nobody_knows_how_many_answers_have_no_n_and_no_bars(mixed: Map) -> None:
    margins = {length: replace(mean, low=None, high=None) for length, mean in mixed.margins.items()}
    total = replace(mixed.total, low=None, high=None)
    spec = heat_map(replace(mixed, counted=False, margins=margins, total=total)).to_dict()
    assert "n not told (26 cells, each a mean)" in words(spec)
    assert "95 %" not in words(spec)
    assert {row["low"] for data in spec["datasets"].values() for row in data if "mean" in row} == {None}
