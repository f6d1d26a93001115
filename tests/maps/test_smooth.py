"""The smoothed layer: drawn where it foretells repeats better than raw cells do, else withheld."""

from __future__ import annotations

import numpy as np
import pytest

from needlemap.maps import Cube, cube_of
from needlemap.maps.smooth import DEPTH_CELLS, is_rough, smoothed

LENGTHS, DEPTHS = np.geomspace(1_000, 128_000, 8).round(), np.linspace(0, 1, 11)
FALL = np.repeat(1 / (1 + (LENGTHS / 20_000) ** 2)[:, None], 11, axis=1)  # smooth, half at 20k


def drawn(chances, repeats: int, seed: int = 0) -> Cube:
    """A run's scores, right or wrong by these chances."""
    hits = np.random.default_rng(seed).random((repeats, *chances.shape)) < chances
    scores = {
        (repeat, int(length), float(depth)): float(hits[repeat, row, column])
        for repeat in range(repeats)
        for row, length in enumerate(LENGTHS)
        for column, depth in enumerate(DEPTHS)
    }
    return cube_of(scores, set(scores))


@pytest.mark.parametrize("repeats", [2, 5])
def test_a_smooth_truth_is_missed_by_less_than_half(repeats):
    ratios = []
    for seed in range(8):
        cube = drawn(FALL, repeats, seed)
        if found := smoothed(cube).scores:
            smooth = np.array(list(found.values())).reshape(FALL.shape)
            ratios.append(
                np.linalg.norm(smooth - FALL) / np.linalg.norm(cube.scores.mean(axis=0) - FALL)
            )
    assert len(ratios) >= 6
    assert max(ratios) < 0.5


@pytest.mark.parametrize("seed", range(4))
def test_salt_and_pepper_is_withheld_as_smoothing_would_ruin_it(seed):
    texture = np.where(np.random.default_rng(seed + 9).random(FALL.shape) < 0.6, 0.97, 0.03)
    found = smoothed(drawn(texture, 3, seed))
    assert found.scores == {}
    assert found.line.startswith("no smoothed map: it foretells no better than raw cells")
    assert found.missed[0] > found.missed[1]


def test_one_repeat_cannot_tell_a_rough_map_from_chance_so_it_is_withheld():
    found = smoothed(drawn(FALL, 1))
    assert (found.scores, found.missed) == ({}, ())
    assert "--repeats 2" in found.line


def test_a_map_that_raw_cells_tell_already_is_left_as_it_is():
    assert smoothed(drawn(np.ones_like(FALL), 3)).scores == {}


def test_a_grid_of_two_lengths_has_nothing_to_smooth(cube):
    found = smoothed(cube([[[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]] * 3, (1_000, 2_000)))
    assert found.line == "no smoothed map: it takes a grid of 3 lengths and 3 depths"


def test_a_cell_without_a_score_gets_none():
    whole = drawn(FALL, 4)
    whole.spread[:, 2, 3] = np.nan
    found = smoothed(whole)
    assert (int(LENGTHS[2]), float(DEPTHS[3])) not in found.scores
    assert len(found.scores) == 87
    assert all(0 < chance < 1 for chance in found.scores.values())


def asked_cells(chance, random) -> tuple[np.ndarray, np.ndarray]:
    """Hits and trials of 40 haystacks at each of six lengths, eight whole percents of depth
    each."""
    hits, trials = np.zeros((2, 6, DEPTH_CELLS))
    for row in range(6):
        for _ in range(40):
            cells = np.round(12.5 * (np.arange(8) + random.random(8))).astype(int)
            np.add.at(trials, (row, cells), 1)
            np.add.at(hits, (row, cells), random.random(8) < chance[row, cells])
    return hits, trials


def test_hits_and_misses_that_repeat_cell_by_cell_are_told_from_chance_and_from_a_fall_over_depth(
    random,
):
    texture = np.where(random.random((6, DEPTH_CELLS)) < 0.85, 0.97, 0.03)
    same, edge = np.full_like(texture, 0.85), np.where(np.arange(DEPTH_CELLS) < 40, 0.02, 0.98)
    found = {
        name: bool(is_rough(*asked_cells(chance, random)))
        for name, chance in {
            "texture": texture,
            "same": same,
            "edge": np.tile(edge, (6, 1)),
        }.items()
    }
    assert found == {"texture": True, "same": False, "edge": False}


def test_little_that_was_asked_is_never_called_rough():
    nothing = np.zeros((6, DEPTH_CELLS))
    once = nothing.copy()
    once[0, ::12] = 1
    assert not is_rough(nothing, nothing)
    assert not is_rough(once, 2 * once)
