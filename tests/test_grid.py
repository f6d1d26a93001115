"""Lengths and depths in every form they may be written, and the cells they make."""

from __future__ import annotations

from typing import Any

import pytest

from needlemap.errors import SettingsError
from needlemap.grid import Cell, Depths, Grid, Lengths, make_grid, percent, sigmoid, spaced, tokens
from needlemap.interop.opencompass import script_depth_percents

DEPTHS = "0,50,100"


def grid_of(lengths: Any, depths: Any, **rounding: Any) -> Grid:
    return make_grid(Lengths.parse(lengths), Depths.parse(depths), **rounding)


@pytest.mark.parametrize(
    ("spec", "lengths"),
    [
        ([1000, "4k", 2e3], (1000, 2000, 4000)),
        ("1k, 4k,2000", (1000, 2000, 4000)),
        (4000, (4000,)),
        ("4k", (4000,)),
        ({"min": 1000, "max": 3000, "count": 3}, (1000, 2000, 3000)),
        ({"min": "1k", "max": "4k", "count": "3", "scale": "log"}, (1000, 2000, 4000)),
        ("1k:3k:3", (1000, 2000, 3000)),
        ("1k:4k:3:log", (1000, 2000, 4000)),
        ("1_000:1_000:1", (1000,)),
        ("1000:200000:35", tuple(round(1000 + k * 199000 / 34) for k in range(35))),
    ],
)
def test_lengths_in_every_form(spec, lengths):
    assert grid_of(spec, DEPTHS).lengths == lengths


@pytest.mark.parametrize(
    ("spec", "depths"),
    [
        ([0, 12.5, "100"], (0, 0.125, 1)),
        ("0,50", (0, 0.5)),
        (29, (0.29,)),
        ("0:100:5", (0, 0.25, 0.5, 0.75, 1)),
        ({"min": 0, "max": 100, "count": 3, "scale": "sigmoid"}, (0, 0.5, 1)),
        ("0:100:5:sigmoid", (0, 0.07586, 0.5, 0.92414, 1)),
    ],
)
def test_depths_in_every_form(spec, depths):
    assert grid_of(1000, spec).depths == depths


@pytest.mark.parametrize("spec", ["1k,4k", [1000, "4k"], (1000, 4000), {4000: 1, 1000: 1}.keys()])
def test_two_ways_to_write_an_axis_are_equal_and_each_is_kept(spec):
    axis = Lengths.parse(spec)
    assert sorted(axis.tokens) == [1000, 4000]
    assert axis.written == (spec if isinstance(spec, str) else list(spec))
    assert Lengths.parse("1000,4000") == Lengths.of([1000, 4000]) != Lengths.parse("4000,1000")


def test_an_axis_of_numbers_is_written_as_a_list_that_parses_to_the_last_bit():
    depths = Depths.of([0, 100 / 3, 100.0])
    assert depths.written == "0,33.333333333333336,100"
    assert Depths.parse(depths.written).values == depths.values


@pytest.mark.parametrize("axis", [Lengths, Depths])
@pytest.mark.parametrize("value", [-1, 10**9])
def test_an_axis_of_numbers_is_held_to_the_same_bounds(axis, value):
    with pytest.raises(SettingsError):
        axis.of([value])


@pytest.mark.parametrize(
    ("text", "number"),
    [("4k", 4000), ("1.5M", 1.5e6), ("1e5", 1e5), ("12_000", 12_000), (" 7 ", 7), (3, 3)],
)
def test_a_number_of_tokens_may_be_short(text, number):
    assert tokens(text) == number


def test_spaced_values_end_exactly_where_they_should():
    assert spaced(0, 100, 35)[-1] == 100.0
    assert spaced(5, 9, 1) == [5.0]


def test_both_sigmoids_of_the_older_tools():
    kept = grid_of(1000, "0:100:35:sigmoid").depths
    assert [percent(depth) for depth in kept[:3]] == [0, 0.896, 1.199]
    assert percent(kept[-1]) == 100
    squashed = grid_of(1000, "0:100:35:sigmoid", ends="squash", depth_digits=-1).depths
    assert [percent(depth) for depth in squashed] == sorted(
        {int(depth) for depth in script_depth_percents(35, "sigmoid")}
    )
    assert percent(squashed[-1]) == 99
    assert (sigmoid(100), sigmoid(100, ends="squash")) == (100, 99.331)


@pytest.mark.parametrize(
    ("digits", "depths"), [(None, (0.125, 0.335)), (0, (0.12, 0.34)), (-1, (0.12, 0.33))]
)
def test_depths_are_kept_rounded_half_to_even_or_cut(digits, depths):
    assert grid_of(1000, [12.5, 33.5], depth_digits=digits).depths == depths


def test_what_falls_together_is_asked_once_and_counted():
    grid = grid_of([1000, 1000.2, 2000], "0:2:9", depth_digits=0)
    assert (grid.lengths, grid.depths, grid.duplicates) == ((1000, 2000), (0, 0.01, 0.02), (1, 6))


def test_cells_have_lengths_in_the_outer_loop():
    assert grid_of("2k,1k", "100,0").cells == (
        *(Cell(1000, 0), Cell(1000, 1)),
        *(Cell(2000, 0), Cell(2000, 1)),
    )


def test_depths_for_people_have_no_binary_noise():
    assert (percent(0.29), percent(0.07586)) == (29.0, 7.586)


@pytest.mark.parametrize(
    ("lengths", "depths", "words"),
    [
        ("0", DEPTHS, "0 is not a number of tokens"),
        (-5, DEPTHS, "Lengths start at 1"),
        ("1k,101x", DEPTHS, "'101x' is not a number. Write 4000, 4k or 1M"),
        ("1k-4k", DEPTHS, "'1k-4k' is no list. Write 1k,4k, or min:max:count as 1k:4k:5"),
        ("1k", "0..100", "'0..100' is no list. Write 0,100, or min:max:count as 0:100:5"),
        ("4kk", DEPTHS, "'4kk' is not a number"),
        ("nan", DEPTHS, "'nan' is not a number"),
        ("inf", DEPTHS, "'inf' is not a number"),
        ([None], DEPTHS, "'None' is not a number"),
        ("", DEPTHS, "the list is empty"),
        ([], DEPTHS, "the list is empty"),
        ("1k:2k", DEPTHS, r"is not min:max:count\[:scale\]"),
        ("1k:2k:3:log:x", DEPTHS, "is not min:max:count"),
        ("1k:2k:3:sigmoid", DEPTHS, "unknown scale 'sigmoid'. Known: linear, log"),
        ("2k:1k:3", DEPTHS, "min 2000 is above max 1000"),
        ("1k:2k:0", DEPTHS, "count must be at least 1"),
        ("1k:2k:2.5", DEPTHS, "count must be a whole number, got 2.5"),
        ("0:2k:3:log", DEPTHS, "a log scale needs min above 0"),
        ({"min": 1, "max": 2}, DEPTHS, "count missing"),
        ({"min": 1, "max": 2, "cuont": 3}, DEPTHS, r"unknown key 'cuont'. Did you mean 'count'\?"),
        ("1k", "0,101", r"101 is outside 0..100"),
        ("1k", "-1", r"-1 is outside 0..100"),
        ("1k", "0:100:3:log", "unknown scale 'log'"),
    ],
)
def test_what_cannot_be_a_grid_is_said(lengths, depths, words):
    with pytest.raises(SettingsError, match=words):
        grid_of(lengths, depths)
