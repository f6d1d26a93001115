"""Score of everything, by depth and by length."""

from __future__ import annotations

from dataclasses import replace

import pytest

from needlemap.stats import cube_of
from needlemap.stats.means import depth_scores, length_scores, position_gap, total_score

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


def test_every_prompt_counts_once_in_the_mean_however_many_its_cell_has(cube):
    map = cube([[[1.0, 0.0]]] * 5 + [[[1.0, None]]] * 5, LENGTHS[:1])
    total = total_score(map)
    assert (total.score, total.n, total.clusters) == (pytest.approx(10 / 15), 15, 10)
    assert length_scores(map)[1_000] == total


def test_repeats_of_one_haystack_are_one_cluster(cube):
    map = replace(cube([[[1.0], [0.0]]] * 6, LENGTHS), one_haystack=True)
    total = total_score(map)
    assert (total.n, total.clusters, total.standard_error) == (12, 1, None)
    assert [mean.clusters for mean in length_scores(map).values()] == [1, 1]
    assert [each.mean.clusters for each in depth_scores(map)] == [1]


def test_where_lengths_have_depths_of_their_own_a_row_is_a_part_of_the_haystack():
    """Each depth alone would hold a prompt or two, and its score would be noise."""
    places = {
        (repeat, 1_000 * row, column / row): float(column / row < 0.5)
        for repeat in range(6)
        for row in range(2, 9)
        for column in range(row)
    }
    map = cube_of(places, set(places))
    assert map.ragged
    found = depth_scores(map)
    assert [(each.depth, each.end) for each in found] == [
        (at / 10, (at + 1) / 10) for at in range(9)
    ]
    assert [each.mean.score for each in found] == [1.0] * 5 + [0.0] * 4
    assert sum(each.mean.n for each in found) == total_score(map).n == len(places)


def test_means_of_nobody_knows_how_many_answers_have_no_interval(cube):
    map = replace(cube([[[1.0], [0.5]]], LENGTHS), counted=False)
    found = [
        total_score(map),
        *length_scores(map).values(),
        *(each.mean for each in depth_scores(map)),
    ]
    assert {(mean.low, mean.high) for mean in found} == {(None, None)}
    assert found[0].score == 0.75
