"""Several runs in one figure, and what changed between two."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from needlemap.records.record import PromptRecord, Record, ScorerRecord
from needlemap.reports.colours import CHANGES
from needlemap.reports.figures.figure import Figure, Shown, columns_of, draw, panels_of
from needlemap.reports.figures.panels import legend_items
from needlemap.stats import prompts_of
from needlemap.stats.comparison import FamilyComparison, compare_pairs
from needlemap.stats.means import Map
from needlemap.stats.pairs import pair_up

LENGTHS, DEPTHS = (1_000, 4_000), (0.0, 0.5)


def records(wrong: set[tuple[int, float]], **fields: Any) -> list[Record]:
    return [
        Record(
            key=f"{repeat} {length} {depth}", task="t", model="m", length_tokens=length, depth=depth,  # noqa: E501
            repeat=repeat, seed=0, score=float((length, depth) not in wrong),
            prompt=PromptRecord(sha256=f"{repeat} {length} {depth}", tokens=9, haystack_tokens=5), **fields,  # noqa: E501
        )
        for repeat in range(6) for length in LENGTHS for depth in DEPTHS
    ]  # fmt: skip


def compared(second: list[Record], **fields: Any) -> FamilyComparison:
    cells = [[length, depth, list(range(6))] for length in LENGTHS for depth in DEPTHS]
    found = compare_pairs(
        pair_up(prompts_of(records(set(), **fields), cells), prompts_of(second, cells)), 0.02
    )
    assert found is not None
    return found


@pytest.fixture
def shown(make_map: Any, make_cell: Any) -> Any:
    """shown(model): a run in a figure."""
    cells = [make_cell(length, depth, 1.0, n=6) for length in LENGTHS for depth in DEPTHS]
    return lambda model: Shown(make_map(cells, model=model))


def texts(figure: Figure, width: float | None = None) -> list[str]:
    root = ElementTree.fromstring(draw(figure, width).svg)
    return [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}text")]


def test_every_run_has_a_panel_with_its_model_n_and_mode_on_one_scale(
    shown: Any, mixed: Map
) -> None:
    panels, common = panels_of(Figure((shown("a"), shown("b"), Shown(mixed))))
    assert [panel.title.split(" ")[0] for panel in panels] == ["a", "b", "a-model"]
    assert "n = 26" in panels[2].lines[0]
    assert "Missing 10" in panels[2].lines[1]
    assert "mode exact" in common[0]
    assert len({panel.scale for panel in panels}) == 1


def test_what_all_runs_have_in_common_is_said_once(shown: Any, mixed: Map) -> None:
    _, common = panels_of(Figure((shown("a"), shown("b"))))
    assert common == [
        "single, 1k–4k tokens, 6 trials a cell, mode exact, tokenizer cl100k_base, scorer "
        "levenshtein"
    ]
    panels, common = panels_of(Figure((shown("a"), Shown(replace(mixed, mode="bins")))))
    assert common == ["single, tokenizer cl100k_base, scorer levenshtein"]
    assert "6 trials a cell, mode exact" in panels[0].lines[0]


@pytest.mark.parametrize(
    ("runs", "width", "side_by_side"),
    [
        (1, 234, 1),
        (3, 234, 1),
        (3, 486, 3),
        (4, 486, 4),
        (12, 486, 4),
        (5, 486, 3),
        (8, 900, 8),
        (6, 486, 3),
    ],
)
def test_panels_stand_side_by_side_where_there_is_room_and_fill_their_rows(
    runs: int, width: float, side_by_side: int
) -> None:
    assert columns_of(runs, width) == side_by_side


def test_one_legend_and_shared_axes_are_drawn_once(shown: Any, mixed: Map) -> None:
    same = texts(Figure((shown("a"),) * 4), 486.0)
    assert (same.count("Depth"), same.count("Length (tokens)"), same.count("95 % interval")) == (
        1,
        4,
        1,
    )
    other = texts(Figure((shown("a"), Shown(mixed))), 486.0)
    assert other.count("Depth") == 2


def test_what_changed_is_drawn_from_orange_for_lost_to_blue_for_gained(shown: Any) -> None:
    comparison = compared(records({(4_000, 0.5)}))
    figure = Figure((shown("a"), shown("b")), comparison)
    panels, _ = panels_of(figure)
    assert [panel.title for panel in panels] == ["A: a", "B: b", "Loss of B"]
    last = panels[-1]
    assert (last.scale.domain, last.scale.colours) == ((100, -100), CHANGES)
    assert last.lines[0].startswith("25.0 points (")
    assert "n = 24 pairs" in last.lines[0]
    assert [cell.value for cell in last.cells] == [0.0, 0.0, 0.0, 100.0]
    assert [mean.value for mean in last.by_length] == [0.0, 50.0]
    low, high = last.by_length[1].low, last.by_length[1].high
    assert low is not None
    assert high is not None
    assert high < 50 < low  # what is worse is drawn lower


def test_a_loss_is_told_from_a_gain_without_colours(shown: Any) -> None:
    figure = Figure((shown("a"), shown("b")), compared(records({(4_000, 0.5)})))
    assert "100" in texts(figure, 486.0)
    assert "dash: lost" not in texts(figure, 486.0)
    panels, _ = panels_of(figure)
    assert not panels[-1].in_figures(20, 20)
    small = [item.drawn for item in legend_items(panels, 20, 20)]
    assert ">dash: lost<" in "".join(small)


def test_small_differences_have_a_scale_of_their_own(shown: Any) -> None:
    second = [
        each.model_copy(update={"score": (each.score or 0) - 0.04}) for each in records(set())
    ]
    panels, _ = panels_of(Figure((shown("a"), shown("b")), compared(second)))
    assert panels[-1].scale.domain == (5, -5)


def test_a_cell_without_a_pair_is_hatched_and_said(shown: Any) -> None:
    second = [each for each in records(set()) if each.depth == 0]
    figure = Figure((shown("a"), shown("b")), compared(second))
    panels, _ = panels_of(figure)
    assert [cell.value for cell in panels[-1].cells] == [0.0, None] * 2
    assert "not measured" in texts(figure)


def test_a_difference_of_means_of_nobody_knows_how_many_has_no_bars(shown: Any) -> None:
    mean = ScorerRecord(name="OpenCompass", mean=True)
    comparison = compared(records(set(), scorer=mean), scorer=mean)
    panels, _ = panels_of(Figure((shown("a"), shown("b")), comparison))
    assert "n unknown (24 pairs of means)" in panels[-1].lines[0]
    assert {row.low for row in panels[-1].by_length} == {None}


@pytest.mark.parametrize("count", [2, 3, 4])
def test_several_panels_are_exactly_as_wide_as_asked(shown: Any, count: int) -> None:
    for width in (234.0, 238.11, 486.0):
        figure = Figure(tuple(shown(f"model-{at}") for at in range(count)))
        root = ElementTree.fromstring(draw(figure, width).as_file(".svg"))
        assert root.attrib["width"] == f"{width:g}pt"
        assert float(root.attrib["viewBox"].split()[2]) == pytest.approx(width)


def test_a_title_stands_over_several(shown: Any) -> None:
    figure = Figure((shown("a"), shown("b")), title="Both")
    assert texts(figure)[0] == "Both"
    assert "Both" not in texts(replace(figure, title=None))
