"""Score by depth and by length, and pairs of repeats."""

from __future__ import annotations

import pytest

from needlemap.maps.noise import noise_floor, repeat_pairs
from needlemap.maps.position import depth_scores, length_scores, position_gap

LENGTHS = (1_000, 2_000)


def test_depths_are_means_over_all_lengths_and_haystacks(cube):
    map = cube([[[1.0, 0.0, 1.0], [1.0, 0.0, None]]] * 6, LENGTHS)
    found = depth_scores(map)
    assert [(each.depth, each.mean.score, each.mean.n) for each in found] == [
        (0.0, 1.0, 12),
        (0.25, 0.0, 12),
        (0.5, 1.0, 6),
    ]
    worst, best = position_gap(map)
    assert (worst.depth, best.depth) == (0.25, 0.0)
    assert worst.mean.high < best.mean.low


def test_lengths_likewise_and_nothing_measured_is_left_out(cube):
    map = cube([[[1.0, 0.0], [None, None]]] * 5, LENGTHS)
    assert {length: mean.score for length, mean in length_scores(map).items()} == {1_000: 0.5}
    assert position_gap(cube([[[1.0], [None]]], LENGTHS)) is None


def test_cells_asked_twice_make_pairs(cube):
    map = cube([[[1.0, 1.0, 0.5], [0.0, None, 1.0]], [[1.0, None, 0.0], [1.0, 1.0, None]]], LENGTHS)
    assert repeat_pairs(map) == [(1.0, 1.0), (0.5, 0.0), (0.0, 1.0)]
    assert noise_floor(repeat_pairs(map)).differing == 2
    assert noise_floor(repeat_pairs(map)).mean_change == pytest.approx(0.5)
