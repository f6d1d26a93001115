"""A gate that may be looked at any time: its bets, order, verdicts, and what is still to ask."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from needlemap.maps.sequential import (
    FARTHEST,
    Gate,
    interleaved,
    least_lost,
    log_bet,
    log_growth,
    log_worse,
    of_haystacks,
)


def fed(pairs: list[tuple[float, float | None]], margin: float = 0.02) -> Gate:
    gate = Gate(margin)
    for first, second in pairs:
        gate.add(first, second)
    return gate


def test_nine_pairs_lost_and_none_gained_are_worse_and_eight_are_not():
    assert log_worse(9, 0) >= log(100) > log_worse(8, 0)
    assert fed([(1, 0)] * 9).word == "worse"
    assert fed([(1, 0)] * 8).word == "undecided"


def test_the_bet_on_worse_is_the_integral_over_all_shares_above_one_half():
    shares = np.linspace(0.5, 1, 200_001)
    for lost, gained in ((0, 0), (5, 1), (30, 20), (3, 9)):
        mixed = np.trapezoid(2 * (2 * shares) ** lost * (2 * (1 - shares)) ** gained, shares)
        assert log_worse(lost, gained) == pytest.approx(np.log(mixed), abs=1e-3)


def test_a_fair_coin_wins_neither_bet_on_average():
    """The mean of each bet is at most 1 where its claim is false: what makes any look at any time
    valid."""
    n = 12
    ways = [np.exp(log_worse(k, n - k)) * np.exp(_log_choose(n, k)) / 2**n for k in range(n + 1)]
    assert sum(ways) == pytest.approx(1, abs=1e-9)
    margin, lost, gained = 0.05, 0.08, 0.03
    grown = np.exp(log_growth(np.array([-1.0, 0.0, 1.0]), margin))
    assert np.array([lost, 1 - lost - gained, gained]) @ grown == pytest.approx(
        np.ones(grown.shape[1])
    )


def test_equal_answers_are_no_worse_after_some_hundred_pairs_and_sooner_with_a_wider_margin():
    assert fed([(1, 1)] * 310).after == 301
    assert fed([(1, 1)] * 310, margin=0.1).after < 70


def test_what_was_decided_stays_decided_whatever_comes_later():
    gate = fed([(1, 0)] * 9 + [(0, 1)] * 50)
    assert (gate.word, gate.after, gate.n) == ("worse", 9, 59)


def test_an_answer_that_is_missing_counts_as_wrong():
    gate = fed([(1, None)] * 9)
    assert (gate.word, gate.missing, gate.lost) == ("worse", 9, 9)
    assert fed([(1, 1)] * 290 + [(1, None)] * 8).word != "no worse"


def test_a_reference_at_the_floor_proves_nothing():
    assert fed([(0, 0)] * 400).word == "undecided"


def test_graded_scores_bet_their_size_on_no_worse_and_their_sign_on_worse():
    small = fed([(1.0, 0.99)] * 5)
    assert small.worse == pytest.approx(log_worse(5, 0))
    assert small.no_worse > fed([(1.0, 0.0)] * 5).no_worse


def test_undecided_says_how_many_more_pairs_decide_with_even_odds():
    gate = fed([(1, 1)] * 100)
    more = gate.more()
    assert 150 <= more <= 700  # 201 if nothing ever changes, which a hundred pairs do not prove
    assert fed([(1, 1)] * 280).more() < more
    torn = fed([(1, 0), (0, 1)] * 300 + [(1, 0)] * 12)
    assert torn.more() is None or torn.more() > FARTHEST / 10


def test_even_odds_are_even():
    """Of gates that say N more pairs, about half are decided after N more."""
    random, kept = np.random.default_rng(4), []
    for _ in range(80):
        draws = random.random(1_600)
        scores = [
            (1.0, 0.0) if u < 0.01 else (0.0, 1.0) if u < 0.02 else (1.0, 1.0)
            for u in draws.tolist()
        ]
        gate = fed(scores[:150])
        more = gate.more() if gate.after is None else None
        if more is not None and more <= 1_450:
            for first, second in scores[150 : 150 + more]:
                gate.add(first, second)
            kept.append(gate.after is not None)
    assert 0.35 < np.mean(kept) < 0.75


def test_the_table_of_least_losses_is_what_the_gate_says():
    table = least_lost(200)
    assert table[:9].tolist() == list(range(1, 10))
    for n in (9, 40, 200):
        lost = int(table[n])
        assert log_worse(lost, n - lost) >= log(100) > log_worse(lost - 1, n - lost + 1)


def test_new_haystacks_take_a_bet_each_and_say_what_that_costs():
    equal = of_haystacks([0.0] * 6, 0.02)
    assert (equal.word, equal.n, equal.least) == ("undecided", 6, 301)
    assert equal.more == 295
    assert of_haystacks([0.0] * 301, 0.02).word == "no worse"
    assert of_haystacks([-0.2] * 60, 0.02).word == "worse"
    assert of_haystacks([], 0.02).more is None


def test_layers_take_each_length_once_and_depths_far_apart_first():
    places = [
        (repeat, length, depth)
        for repeat in (1, 0)
        for length in (20, 10)
        for depth in (0, 25, 50, 75, 100)
    ]
    layers = list(interleaved(places).values())
    assert [place[:2] for place in layers[0]] == [(0, 10), (0, 20)]
    assert [layer[0][2] for layer in layers[:5]] == [0, 100, 50, 25, 75]
    assert all(place[0] == 1 for layer in layers[5:] for place in layer)
    assert sorted(place for layer in layers for place in layer) == sorted(places)


def test_a_bet_is_the_mean_of_its_parts():
    assert log_bet(np.log(np.full(8, 3.0))) == pytest.approx(log(3))


def _log_choose(n: int, k: int) -> float:
    from math import lgamma

    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
