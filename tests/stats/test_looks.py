"""The order in which prompts are sent and judged, and what a unit of it loses."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from needlemap.stats.judging import judge
from needlemap.stats.looks import (
    Looks,
    endless_looks,
    in_random_order,
    planned_looks,
    unit_losses,
    whole_units,
)
from needlemap.stats.rows import JudgedPrompt, Rows
from needlemap.stats.sequential import log_wealth


def pairs(losses: np.ndarray, family: str = "", tried: np.ndarray | None = None) -> list:
    """Pairs of haystacks (haystacks, prompts): 1 lost, -1 gained, 0 right in both."""
    return [
        JudgedPrompt(
            family,
            (stack, 1_000, at / 1_000),
            stack,
            float(lost >= 0),
            float(lost <= 0),
            tried is None or bool(tried[stack, at]),
        )
        for (stack, at), lost in np.ndenumerate(losses)
    ]


def test_an_order_hangs_on_the_units_alone_and_mixes_them():
    assert in_random_order(range(40)) == in_random_order(reversed(range(40)))
    assert in_random_order(range(40)) != list(range(40))


def test_planned_prompts_are_looked_at_in_twelve_random_pieces():
    looks = planned_looks(Rows.of(pairs(np.zeros((100, 10)))))
    assert (looks.unit, looks.planned, looks.every) == ("pair", 1_000, 84)
    assert sorted(looks.turns.tolist()) == list(range(1_000))
    stacks = {turn // 10 for turn in np.flatnonzero(looks.turns < 84).tolist()}
    assert len(stacks) > 40  # a piece is drawn from all haystacks


def test_new_haystacks_are_looked_at_one_by_one():
    looks = planned_looks(Rows.of(pairs(np.zeros((6, 10)))), "new")
    assert (looks.unit, looks.planned, looks.every) == ("haystack", 6, 1)
    assert len(set(looks.turns[:10].tolist())) == 1


def test_what_was_sent_out_of_its_turn_is_no_random_draw():
    """A run that was stopped had asked its first haystacks: no piece of the random order."""
    rows = Rows.of(pairs(np.zeros((10, 10))))
    looks = planned_looks(rows)
    part = Rows(
        rows.names,
        rows.family,
        rows.haystack,
        rows.length,
        rows.first,
        rows.second,
        looks.turns != 7,
        rows.places,
    )
    turns = whole_units(part, looks).turns
    assert sorted(turns[turns >= 0].tolist()) == list(range(7))
    assert (turns == -2).sum() == 93
    haystacks = whole_units(part, endless_looks(part)).turns
    assert sorted(set(haystacks.tolist())) == [-2, *range(9)]


def test_losses_of_prompts_are_weighed_so_that_families_count_the_same():
    """Ten prompts of one family and thirty of another: the mean of units is that of families."""
    losses = np.zeros((10, 1)), np.zeros((30, 1))
    losses[0][:5], losses[1][:3] = 1, 1
    rows = Rows.of([*pairs(losses[0], "a"), *pairs(losses[1], "b")])
    against, in_favour, scale = unit_losses(rows, planned_looks(rows))
    assert float(against.mean()) * scale == pytest.approx((0.5 + 0.1) / 2)
    assert against.tolist() == in_favour.tolist()
    assert np.abs(against).max() <= 1


def test_a_bet_on_prompts_is_fair_however_their_losses_cluster():
    """Ville's inequality wants a mean of 1 where the claim is just false: over all orders of six
    prompts, of which one haystack of three lost two."""
    values = np.array([0.0, 0.0, 0.5, 0.5, 0.5, 0.5])
    bound = float(values.mean())
    wealth = [np.exp(log_wealth(np.array(order), bound, 6)) for order in permutations(values)]
    assert np.array(wealth).mean(axis=0)[:4] == pytest.approx(np.ones(4))


@pytest.mark.parametrize("clustered", [True, False])
def test_no_worse_is_rare_if_exactly_the_margin_is_lost(random, clustered):
    """20 of 1,000 lost, in two dead haystacks or anywhere: as often as promised at most."""
    words = []
    for _ in range(40):
        losses = np.zeros(1_000)
        stacks = random.choice(100, 2, replace=False)
        lost = [10 * stack + at for stack in stacks for at in range(10)]
        losses[lost if clustered else random.choice(1_000, 20, replace=False)] = 1
        rows = Rows.of(pairs(losses.reshape(100, 10)))
        words.append(judge(rows, 0.02, looks=planned_looks).word)
    assert words.count("PASS") <= 3
    assert "FAIL" not in words


@pytest.mark.parametrize(("loss", "word", "most"), [(0.0, "PASS", 300), (0.1, "FAIL", 350)])
def test_a_verdict_on_prompts_saves_most_of_a_thousand(random, loss, word, most):
    losses = (random.random((100, 10)) < loss).astype(float)
    found = judge(Rows.of(pairs(losses)), 0.02, looks=planned_looks)
    assert (found.word, found.unit, found.planned) == (word, "pair", 1_000)
    assert found.after <= most


def test_looks_keep_what_they_are_for_some_of_the_pairs():
    looks = Looks(np.arange(4), 4, 2, "pair").where(np.array([True, False, True, False]))
    assert (looks.turns.tolist(), looks.planned, looks.every) == ([0, 2], 4, 2)
