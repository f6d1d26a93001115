"""Hits and misses that repeat cell by cell, which no smooth curve tells, are found."""

from __future__ import annotations

import numpy as np

from needlemap.stats.gaussian import DEPTH_CELLS, is_rough


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
