"""Pictures as they looked when somebody last looked: a change of look is seen in review.

After a wanted change, look, then: NEEDLEMAP_PICTURES=write pytest tests/reports/test_pictures.py
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any

import pytest

from needlemap.maps.means import Map
from needlemap.reports.figures import Drawing
from needlemap.reports.figures.figure import Figure, Shown, draw

image = pytest.importorskip("PIL.Image", reason="pip install '.[test]'")
numpy = pytest.importorskip("numpy")
KEPT = Path(__file__).parent / "pictures"
ACROSS = 240  # pixels
TOLERANCE = (
    0.02  # of the distance from black to white, on the whole; an unlike palette is above 0.1
)
COLUMN, PAGE = 234.0, 486.0


def falling(
    make_map: Any, make_cell: Any, lengths: list[int], depths: int, n: int, **names: str
) -> Map:
    """Scores that fall with the length, sooner in the middle; every ninth cell is short of a
    trial."""
    cells = []
    for at, length in enumerate(lengths):
        for row in range(depths):
            depth = row / (depths - 1)
            share = 1 / (1 + exp(9 * (at / len(lengths) - 0.6) + 3 * depth * (1 - depth)))
            short = n > 1 and (at + row) % 9 == 4
            scored = {
                "n": n - short,
                "missing": int(short),
                "failures": {"timed out": 1} if short else {},
            }
            cells.append(make_cell(length, depth, round(share * n) / n, **scored))
    return make_map(cells, **names)


DOUBLED = [1000, 2000, 4000, 8000, 16_000, 32_000, 64_000]
MANY = [1000 + round(31_000 * at / 34) for at in range(35)]


@pytest.fixture
def drawn(make_map: Any, make_cell: Any) -> Callable[[str], Drawing]:
    """drawn(name): the figure of that name."""
    map = falling(make_map, make_cell, DOUBLED, 6, 4)
    kinds = {
        "map": (Figure((Shown(map),)), COLUMN),
        "one-trial": (Figure((Shown(falling(make_map, make_cell, MANY, 35, 1)),)), COLUMN),
        "three": (Figure(tuple(Shown(replace(map, model=name)) for name in "abc")), PAGE),
        "opencompass": (Figure((Shown(map),), style="opencompass"), COLUMN),
    }
    return lambda name: draw(*kinds[name])


def small(drawing: Drawing) -> Any:
    picture = image.open(io.BytesIO(drawing.png)).convert("RGB")
    return picture.resize(
        (ACROSS, round(ACROSS * picture.height / picture.width)), image.Resampling.BOX
    )


def apart(one: Any, other: Any) -> float:
    """The mean distance of two pictures, 1 where their sizes differ."""
    if one.size != other.size:
        return 1.0
    first, second = (numpy.asarray(each, dtype=float) / 255 for each in (one, other))
    return float(numpy.sqrt(((first - second) ** 2).mean()))


@pytest.mark.parametrize("name", ["map", "one-trial", "three", "opencompass"])
def test_a_figure_looks_as_it_did(drawn: Callable[[str], Drawing], name: str) -> None:
    shown, kept = small(drawn(name)), KEPT / f"{name}.png"
    if os.environ.get("NEEDLEMAP_PICTURES") == "write":
        KEPT.mkdir(exist_ok=True)
        shown.save(kept, optimize=True)
    assert apart(shown, image.open(kept).convert("RGB")) <= TOLERANCE


def test_another_palette_and_a_cell_more_are_seen(make_map: Any, make_cell: Any) -> None:
    map = falling(make_map, make_cell, DOUBLED, 6, 4)
    kept = image.open(KEPT / "map.png").convert("RGB")
    assert apart(small(draw(Figure((Shown(map),), palette="amber"), COLUMN)), kept) > 5 * TOLERANCE
    more = falling(make_map, make_cell, [*DOUBLED, 128_000], 6, 4)
    assert apart(small(draw(Figure((Shown(more),)), COLUMN)), kept) > 2 * TOLERANCE
