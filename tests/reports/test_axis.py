"""Where values lie on an axis, and which of its labels are shown."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from needlemap.reports.figures.axis import MOST_TICKS, Axis, depth_ticks, length_ticks, make_axis
from needlemap.reports.labels import depth_labels

LINEAR, BOTH = ("linear",), ("linear", "log")


def room(share: float) -> Callable[[str], float]:
    """Labels that take so much of the axis."""
    return lambda _: share


def spaced(low: int, high: int, count: int) -> list[int]:
    return [round(low + (high - low) * at / (count - 1)) for at in range(count)]


def doubled(low: float, high: float, count: int) -> list[int]:
    return [round(low * (high / low) ** (at / (count - 1))) for at in range(count)]


@pytest.mark.parametrize(
    ("values", "kind"),
    [([1000, 2000, 4000, 8000], "log"), (spaced(1000, 200_000, 35), "linear"),
     (doubled(1000, 128_000, 15), "log"), ([1000, 100_000, 100_001], "even"), ([1000], "even"), ([], "even")],  # noqa: E501
)  # fmt: skip
def test_lengths_lie_as_they_are_spaced(values: list[int], kind: str) -> None:
    assert make_axis(values, BOTH).kind == kind


def test_a_cell_reaches_half_way_to_its_neighbours() -> None:
    axis = make_axis([0.0, 1.0, 3.0], LINEAR)
    assert [round(edge, 6) for pair in axis.edges for edge in pair] == [
        0,
        0.222222,
        0.222222,
        0.555556,
        0.555556,
        1,
    ]
    assert axis.position(1.0) == pytest.approx(axis.centres[1]) == pytest.approx(1 / 3)
    assert axis.position(2.0) == pytest.approx(5 / 9)


def test_cells_on_a_logarithmic_axis_are_as_wide_as_their_ratios() -> None:
    axis = make_axis([1000, 2000, 8000, 32_000], BOTH)
    widths = [high - low for low, high in axis.edges]
    assert [round(width / widths[0], 6) for width in widths] == [1, 1.5, 2, 2]


@pytest.mark.parametrize(
    "values",
    [spaced(1000, 32_000, 35), doubled(1000, 128_000, 35), spaced(1000, 9000, 200), [1000, 2000, 4000, 8000],  # noqa: E501
     doubled(128, 1_000_000, 40)],
)  # fmt: skip
@pytest.mark.parametrize("width", [0.02, 0.1, 0.3])
def test_first_and_last_length_are_labelled_and_at_most_eight(
    values: list[int], width: float
) -> None:
    ticks = length_ticks(make_axis(values, BOTH), room(width))
    assert 2 <= len(ticks) <= MOST_TICKS
    assert [ticks[0][1], ticks[-1][1]] == [_label(values[0]), _label(values[-1])]
    assert all(high[0] - low[0] >= width for low, high in pairwise(ticks))


def _label(length: int) -> str:
    return (
        f"{length / 1e6:g}M"
        if length >= 1e6
        else f"{length / 1000:g}k"
        if length >= 1000
        else str(length)
    )


def test_labels_between_are_round() -> None:
    linear = length_ticks(make_axis(spaced(1000, 32_000, 35), BOTH), room(0.05))
    assert [label for _, label in linear] == ["1k", "5k", "10k", "15k", "20k", "25k", "30k", "32k"]
    log = length_ticks(make_axis(doubled(1000, 128_000, 15), BOTH), room(0.05))
    assert [label for _, label in log] == ["1k", "2k", "4k", "8k", "16k", "32k", "64k", "128k"]


def test_where_lengths_fit_no_scale_they_lie_side_by_side_with_labels_of_their_own() -> None:
    axis = make_axis([1000, 100_000, 100_001, 100_002], BOTH)
    assert [label for _, label in length_ticks(axis, room(0.2))] == [
        "1k",
        "100k",
        "100.001k",
        "100.002k",
    ]


def shown(axis: Axis, width: float) -> list[str]:
    return [label for _, label in depth_ticks(axis, depth_labels(axis.values), room(width))]


def test_of_many_depths_the_grids_own_are_labelled_with_both_ends() -> None:
    """Ticks at 25, 50 and 75 % stood beside rows of 10 %."""
    tens = make_axis([at / 10 for at in range(11)], LINEAR)
    assert shown(tens, 0.05) == ["0%", "20%", "40%", "60%", "80%", "100%"]
    assert shown(tens, 0.3) == ["0%", "50%", "100%"]
    many = make_axis([at / 34 for at in range(35)], LINEAR)
    own = set(depth_labels(many.values).values())
    assert set(shown(many, 0.05)) < own
    assert len(shown(many, 0.05)) >= 5
    inner = make_axis([0.05 + 0.9 * at / 20 for at in range(21)], LINEAR)
    assert (shown(inner, 0.05)[0], shown(inner, 0.05)[-1]) == ("5%", "95%")


def test_few_depths_are_labelled_each() -> None:
    assert shown(make_axis([0, 0.1, 0.2, 0.5, 1], LINEAR), 0.05) == [
        "0%",
        "10%",
        "20%",
        "50%",
        "100%",
    ]


def test_depths_of_a_steep_curve_lie_side_by_side() -> None:
    steep = [0.00669, 0.018, 0.0474, 0.1192, 0.2689, 0.5, 0.7311, 0.8808, 0.9526, 0.982, 0.9933]
    axis = make_axis(steep, LINEAR)
    assert axis.kind == "even"
    assert (shown(axis, 0.1)[0], shown(axis, 0.1)[-1]) == ("1%", "99%")
