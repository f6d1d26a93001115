"""What is made of a difference: power, noise floor, bounds."""

from __future__ import annotations

import numpy as np
import pytest

from needlemap.stats.difference import missing_bounds
from needlemap.stats.intervals import noise_floor, trials_needed
from needlemap.stats.judging import judge
from needlemap.stats.rows import Rows


def judged(random, clusters: int, n: int, rates: tuple[float, float], margin: float):
    """The loss of so many pairs at one length."""
    each = -(-n // clusters)
    turned = random.choice([1.0, -1.0, 0.0], p=(*rates, 1 - sum(rates)), size=clusters * each)
    first, second = np.where(turned < 0, 0.0, 1.0), np.where(turned > 0, 0.0, 1.0)
    zeros, ones = np.zeros(len(turned), dtype=np.int64), np.ones(len(turned), dtype=bool)
    stack = np.repeat(np.arange(clusters), each)
    return judge(Rows(("",), zeros, stack, zeros, first, second, ones), margin)


@pytest.mark.parametrize(
    "clusters",
    [1, 5, 10],
)
def test_power_is_that_of_the_verdict(random, clusters):
    """Of independent pairs. What promised 80 of 100 was for p, and gave FAIL in 50 from five
    haystacks."""
    known = clusters if clusters > 1 else None
    sure, worse = trials_needed(0.05, clusters=known), trials_needed(0.1, 0.14, 1.0, known, 0.05)
    losses = [judged(random, clusters, sure, (0.06, 0.01), 0.05) for _ in range(150)]
    assert sum(each.loss.low > 0 for each in losses) > 0.7 * 150
    beyond = [judged(random, clusters, worse, (0.12, 0.02), 0.05) for _ in range(150)]
    assert sum(each.word == "FAIL" for each in beyond) > 0.7 * 150


def test_smaller_drops_and_shared_haystacks_need_more_trials():
    assert trials_needed(0.02) > trials_needed(0.05) > trials_needed(0.1)
    assert trials_needed(0.05, design_effect=2.0) == pytest.approx(2 * trials_needed(0.05), abs=1)
    assert trials_needed(0.05, discordant=0.3) > trials_needed(0.05)
    with pytest.raises(ValueError, match="drop must lie in"):
        trials_needed(0.0)


def test_the_noise_floor_of_a_run_made_twice():
    floor = noise_floor([(1.0, 1.0)] * 80 + [(1.0, 0.0)] * 15 + [(0.0, 1.0)] * 10)
    assert (floor.n, floor.differing) == (
        105,
        25,
    )  # as GPT-4's published cells that were asked twice
    assert floor.low < 25 / 105 < floor.high
    assert floor.smallest(105) == pytest.approx(1.96 * 5 / 105, abs=1e-4)
    assert floor.smallest(4 * 105) == pytest.approx(floor.smallest(105) / 2)
    assert floor.mean_square == pytest.approx(25 / 105)
    assert noise_floor([]) is None


def test_bounds_hold_whatever_is_missing():
    assert missing_bounds(8, 10, 0) == (0.8, 0.8)
    assert missing_bounds(0, 0, 4) == (0.0, 1.0)
    assert missing_bounds(0, 0, 0) is None
