"""Bounds of rare faults and bets on suspects hold however often one looks."""

from __future__ import annotations

from random import Random

import pytest

from needlemap.stats.bets import highest_rate, log_blocks, log_pairs, units_needed


def test_more_families_without_a_fault_bring_the_bound_down():
    bounds = [highest_rate(0, n) for n in (1, 10, 100, 1_000, 10_000)]
    assert bounds == sorted(bounds, reverse=True)
    assert highest_rate(0, units_needed(0.002)) < 0.002 <= highest_rate(0, units_needed(0.002) - 1)


@pytest.mark.parametrize("rate", [0.002, 0.01, 0.05])
@pytest.mark.parametrize("share", [1.0, 0.125])
def test_the_bound_covers_at_every_look_whether_faults_fill_a_family_or_an_eighth(rate, share):
    """200 storms each: the rate is the mean share of a family's faulty requests."""
    random, missed = Random(f"{rate}:{share}"), 0
    for _ in range(200):
        faulty, below = 0.0, False
        for n in range(1, 801):
            faulty += share * (random.random() < rate / share)
            below |= n % 10 == 0 and highest_rate(faulty, n) < rate
        missed += below
    assert missed <= 20  # 5 % of 200, and three standard deviations


def test_a_bet_on_replays_of_a_sound_server_seldom_wins():
    random, won = Random("replays"), 0
    for _ in range(300):
        blocks = []
        for _ in range(60):
            lost, cold = (sum(random.random() < 0.1 for _ in range(5)) for _ in range(2))
            blocks.append((lost, cold, 5))
            won += log_blocks(blocks) > 4.6  # 100 to 1
            if log_blocks(blocks) > 4.6:
                break
    assert won <= 6


def test_a_bet_on_pairs_wins_on_losses_and_not_on_noise():
    assert log_pairs(13, 0) > 6.9 > log_pairs(13, 8)
