"""Bets on whole haystacks or on prompts."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from needlemap.stats.sequential import Bets, further_haystacks, log_wealth


def first(losses: list[float], margin: float, planned: int | None = None) -> tuple[int, str]:
    return Bets.of((losses, losses), margin, planned).first


def test_a_bet_is_fair_where_the_claim_is_just_false():
    """Its mean is 1 there: what makes any look at any time valid. Exactly, over all orders of four
    values drawn without replacement, and of three drawn from a coin."""
    from itertools import permutations, product

    values = np.array([0.0, 1.0, 0.5, 0.1])
    bound = float(values.mean())
    orders = [log_wealth(np.array(order), bound, 4) for order in permutations(values)]
    assert np.exp(np.array(orders)).mean(axis=0)[:3] == pytest.approx(np.ones(3))
    coins = [log_wealth(np.array(each, dtype=float), 0.5) for each in product((0, 1), repeat=3)]
    assert np.exp(np.array(coins)).mean(axis=0) == pytest.approx(np.ones(3))


def test_all_that_was_planned_once_seen_is_known():
    """Six haystacks can end a run: no bet without an end to them could."""
    assert first([0.0] * 6, 0.02, 6) == (6, "PASS")
    assert first([0.1] * 6, 0.02, 6) == (6, "FAIL")
    assert first([1.0] * 6, 0.02, 6) == (4, "FAIL")  # whatever the last two are
    assert first([0.0] * 5, 0.02, 6) == (5, "NOT ENOUGH DATA")
    assert log_wealth(np.array([0.51]), 0.5, 1)[-1] == inf


def test_bets_without_an_end_take_a_haystack_each():
    assert further_haystacks([], 0.02) == 287
    assert first([0.0] * 286, 0.02)[1] == "NOT ENOUGH DATA"
    assert first([0.0] * 287, 0.02) == (287, "PASS")
    assert first([1.0] * 12, 0.02)[1] == "FAIL"
    assert further_haystacks([0.0] * 100, 0.02) == 187


def test_a_loss_of_exactly_the_margin_is_never_far_ahead(random):
    draws = [(random.random(400) < 0.05).astype(float).tolist() for _ in range(120)]
    words = [first(losses, 0.05)[1] for losses in draws]
    assert words.count("PASS") <= 8
    assert words.count("FAIL") <= 5
