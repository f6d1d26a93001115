"""Several runs in one figure, and what changed between two."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from needlemap.maps.comparison import FamilyComparison, compare_pairs
from needlemap.maps.map import Map
from needlemap.maps.pairs import pair_up
from needlemap.records.record import PromptRecord, Record, ScorerRecord
from needlemap.reports.figure import Figure, Shown, across, figure_bytes, figure_chart
from needlemap.reports.style import CHANGES

LENGTHS, DEPTHS = (1_000, 4_000), (0.0, 0.5)


def records(wrong: set[tuple[int, float]], **fields: Any) -> list[Record]:
    return [
        Record(
            key=f"{repeat} {length} {depth}", task="t", model="m", length_tokens=length, depth=depth,
            repeat=repeat, seed=0, score=float((length, depth) not in wrong),
            prompt=PromptRecord(sha256=f"{repeat} {length} {depth}", tokens=9, haystack_tokens=5), **fields,
        )
        for repeat in range(6) for length in LENGTHS for depth in DEPTHS
    ]  # fmt: skip


def compared(second: list[Record], **fields: Any) -> FamilyComparison:
    cells = [[length, depth, list(range(6))] for length in LENGTHS for depth in DEPTHS]
    found = compare_pairs(pair_up(records(set(), **fields), second, (cells, cells)), 0.02)
    assert found is not None
    return found


@pytest.fixture
def shown(make_map: Any, make_cell: Any) -> Any:
    """shown(model): a run in a figure."""
    cells = [make_cell(length, depth, 1.0, n=6) for length in LENGTHS for depth in DEPTHS]
    return lambda model: Shown(make_map(cells, model=model))


def test_every_run_has_a_panel_with_its_model_n_and_mode_on_one_scale(shown: Any, mixed: Map) -> None:
    spec = figure_chart(Figure((shown("a"), shown("b"), Shown(mixed))))
    titles = [" ".join([*each["title"]["text"], *each["title"]["subtitle"]]) for each in spec["concat"]]
    assert [title.split(" ")[0] for title in titles] == ["a", "b", "a-model"]
    assert all(part in titles[2] for part in ("n = 26 prompts", "mode exact", "Missing 10"))
    colours = [each["layer"][0]["layer"][0]["encoding"]["color"] for each in spec["concat"]]
    assert len({str(colour["scale"]) for colour in colours}) == 1


def test_data_of_runs_stay_apart(shown: Any, mixed: Map) -> None:
    spec = figure_chart(Figure((shown("a"), Shown(mixed))))
    assert [len(rows) for rows in spec["datasets"].values()] == [4, 2, 9, 3]


@pytest.mark.parametrize(
    ("runs", "width", "side_by_side"), [(1, 234, 1), (3, 234, 1), (3, 486, 2), (4, None, 2), (8, 900, 5)]
)
def test_panels_stand_side_by_side_where_there_is_room(
    shown: Any, runs: int, width: float | None, side_by_side: int
) -> None:
    assert across(Figure((shown("a"),) * runs), width) == side_by_side


def test_a_colour_bar_stands_under_the_last_map_of_each_column(shown: Any) -> None:
    spec = figure_chart(Figure((shown("a"),) * 3), 234.0, 150.0)
    bars = [each["layer"][0]["layer"][0]["encoding"]["color"]["legend"] for each in spec["concat"]]
    assert [bar is not None for bar in bars] == [False, False, True]


def test_what_changed_is_drawn_from_orange_for_lost_to_blue_for_gained(shown: Any) -> None:
    comparison = compared(records({(4_000, 0.5)}))
    spec = figure_chart(Figure((shown("a"), shown("b")), comparison))
    assert [each["title"]["text"][0].split(" ")[0] for each in spec["concat"]] == ["A:", "B:", "B"]
    last = spec["concat"][-1]
    colour = last["layer"][0]["layer"][0]["encoding"]["color"]
    assert colour["scale"]["domain"] == [-100, -50, 0, 50, 100]
    assert colour["scale"]["range"] == list(CHANGES)
    assert last["title"]["subtitle"][0].startswith("n = 24 pairs, difference -25.0 points [-")
    cells, means = spec["datasets"]["cells of changes"], spec["datasets"]["means of changes"]
    assert [row["score"] for row in cells] == [0.0, 0.0, 0.0, -100.0]
    assert [row["mean"] for row in means] == [0.0, -50.0]
    assert means[1]["low"] < -50 < means[1]["high"]


def test_a_cell_without_a_pair_is_hatched_and_said(shown: Any) -> None:
    second = [each for each in records(set()) if each.depth == 0]
    spec = figure_chart(Figure((shown("a"), shown("b")), compared(second)))
    assert [row["state"] for row in spec["datasets"]["cells of changes"]] == ["scored", "missing"] * 2
    assert "hatched: no pair" in " ".join(spec["concat"][-1]["title"]["subtitle"])


def test_a_difference_of_means_of_nobody_knows_how_many_has_no_bars(shown: Any) -> None:
    mean = ScorerRecord(name="OpenCompass", mean=True)
    spec = figure_chart(Figure((shown("a"), shown("b")), compared(records(set(), scorer=mean), scorer=mean)))
    assert spec["concat"][-1]["title"]["subtitle"][0].startswith("n not told (24 pairs of means)")
    assert {row["low"] for row in spec["datasets"]["means of changes"]} == {None}


@pytest.mark.parametrize("count", [2, 3, 4])
def test_several_panels_are_exactly_as_wide_as_asked(shown: Any, count: int) -> None:
    for width in (234.0, 238.11, 486.0):
        figure = Figure(tuple(shown(f"model-{at}") for at in range(count)))
        root = ElementTree.fromstring(figure_bytes(figure, ".svg", width=width))
        assert root.attrib["width"] == f"{width:g}pt"
        assert float(root.attrib["viewBox"].split()[2]) == pytest.approx(width)


def test_a_title_stands_over_several(shown: Any) -> None:
    figure = Figure((shown("a"), shown("b")), title="Both")
    assert figure_chart(figure)["title"]["text"] == ["Both"]
    assert "title" not in figure_chart(replace(figure, title=None))
