"""Simulated scores for the statistics."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from needlemap.stats import Cube, cube_of


@pytest.fixture
def random() -> np.random.Generator:
    """Seeded."""
    return np.random.default_rng(7)


@pytest.fixture
def cube() -> Callable[..., Cube]:
    """A cube from nested lists: cube(scores, lengths), scores as repeat by length by depth, None
    missing."""
    return make


def make(scores: list[list[list[float | None]]], lengths: tuple[int, ...]) -> Cube:
    places = {
        (repeat, length, depth / 4): value
        for repeat, rows in enumerate(scores)
        for length, row in zip(lengths, rows, strict=True)
        for depth, value in enumerate(row)
    }
    return cube_of(
        {place: value for place, value in places.items() if value is not None}, set(places)
    )
