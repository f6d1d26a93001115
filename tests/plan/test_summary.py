"""What a run would cost: every number of a summary, from the walk that it describes."""

from __future__ import annotations

import pytest

from needlemap.plan import make_lanes
from needlemap.plan.summary import Shape, Terms, WalkedTrials, any_order, prefill_flops, summarise

GRID = {"lengths": "1k:3k:5", "depths": "0:100:5"}
PRICED = {
    "model": "openai/m",
    "base_url": "http://127.0.0.1:9/v1",
    "prices": {"input": 2.0, "output": 10.0},
}


def test_computed_and_cached_add_up_to_what_is_asked(prepared):
    for mode in ("single", "exact", "bins"):
        experiment = prepared(**GRID, mode=mode)
        found = summarise(WalkedTrials.of(experiment, 1))
        assert found.mode == mode
        assert found.computed + found.cached == found.asked == experiment.tokens_asked
        assert found.prompts == len(experiment.trials)
        assert (found.lanes, found.cut_loss, found.idle) == (1, 0, 0)


def test_cold_computes_everything_the_grids_order_less_and_bins_least(prepared):
    factor = {
        mode: summarise(WalkedTrials.of(prepared(**GRID, mode=mode), 1)).factor
        for mode in ("single", "cold", "exact", "bins")
    }
    assert factor["cold"] == 1
    assert 1.3 < factor["single"] < factor["exact"] < factor["bins"]


def test_any_order_finds_all_but_the_distinct_tokens_where_there_is_room(prepared, nodes):
    plain = prepared(**GRID, mode="single")
    distinct = nodes(trial.prompt.ids for trial in plain.trials)
    found = any_order(WalkedTrials.of(plain, 1))
    assert found == pytest.approx(1 - distinct / plain.tokens_asked, rel=0.01)
    assert any_order(WalkedTrials.of(plain, 3)) == found


def test_gains_are_beside_a_server_that_caches_too(prepared):
    found = any_order(WalkedTrials.of(prepared(**GRID, mode="single"), 1))
    gain = {
        mode: summarise(WalkedTrials.of(prepared(**GRID, mode=mode), 1), any_order=found).gain
        for mode in ("single", "exact", "bins")
    }
    assert gain["exact"] == pytest.approx(1)
    assert gain["single"] < 1 < gain["bins"]


def test_with_a_small_cache_the_grids_order_finds_less_and_both_sides_have_it(prepared):
    plain, small = WalkedTrials.of(prepared(**GRID, mode="single"), 1), Terms(cache_tokens=4_000)
    found = any_order(plain, 4_000)
    assert found == summarise(plain, small).held_tokens / sum(plain.sizes)
    assert 0 < found < any_order(plain)
    exact = summarise(WalkedTrials.of(prepared(**GRID, mode="exact"), 1), small, found)
    assert exact.gain == pytest.approx(
        (1 - found) * exact.asked / (exact.asked - exact.held_tokens)
    )
    assert exact.gain > 1


def test_cells_count_once_however_often_they_are_repeated(prepared):
    found = summarise(WalkedTrials.of(prepared(**GRID, repeats=2), 1))
    assert (found.cells, found.prompts) == (25, 50)


def test_lanes_compute_their_first_prompt_whole(prepared):
    walked = WalkedTrials.of(prepared(**GRID), 3)
    found = summarise(walked, Terms(tokens_per_second=100))
    assert found.lanes == 3
    assert found.computed == sum(walked.lanes.tokens)
    assert (
        found.computed == summarise(WalkedTrials.of(prepared(**GRID), 1)).computed + found.cut_loss
    )
    assert found.seconds == max(walked.lanes.tokens) / 100


def test_lanes_are_worth_what_one_cache_would_take(prepared):
    walked = WalkedTrials.of(prepared(**GRID), 8)
    found = summarise(walked)
    alone = summarise(WalkedTrials.of(prepared(**GRID), 1))
    assert (alone.speed_up, alone.useful) == (1.0, 1)
    assert found.speed_up == alone.computed / max(walked.lanes.tokens)
    assert 1 <= found.useful < 8
    kept = summarise(WalkedTrials.of(prepared(**GRID), found.useful))
    assert kept.speed_up >= 0.9 * kept.lanes
    more = summarise(WalkedTrials.of(prepared(**GRID), found.useful + 1))
    assert more.speed_up < 0.9 * more.lanes


def test_with_a_shape_the_time_grows_with_the_context(prepared):
    walked, weights = WalkedTrials.of(prepared(**GRID, mode="bins"), 3), 1000
    flat, steep = Shape(2, 0, weights), Shape(2, 8, weights)
    assert summarise(walked, Terms(shape=flat, tokens_per_second=10)).seconds == pytest.approx(
        max(walked.lanes.tokens) / 10
    )
    seconds = []
    for start, stop in walked.lanes.bounds:
        pieces = list(zip(walked.shared, walked.sizes, strict=True))[start:stop]
        pieces[0] = (0, walked.sizes[start])
        seconds.append(prefill_flops(steep, pieces) / prefill_flops(steep, [(0, 1)]) / 10)
    assert summarise(walked, Terms(shape=steep, tokens_per_second=10)).seconds == pytest.approx(
        max(seconds)
    )


def test_dollars_with_and_without_the_cached_price(prepared):
    prices = {**PRICED, "prices": {"input": 2.0, "cached_input": 0.5, "output": 10.0}}
    walked = WalkedTrials.of(prepared(**GRID, **prices), 1)
    found = summarise(walked)
    answers = 25 * 20 * 10.0 / 1e6
    assert found.usd_plain == pytest.approx(found.asked * 2.0 / 1e6 + answers)
    # sold from 1,024 tokens on, in steps of 128
    sold = sum(common // 128 * 128 for common in walked.shared if common >= 1024)
    assert 0 < sold < found.cached
    assert found.usd_cached == pytest.approx(found.usd_plain - sold * 1.5 / 1e6)


def test_without_a_cached_price_caching_saves_nothing(prepared):
    found = summarise(WalkedTrials.of(prepared(**GRID, **PRICED), 1))
    assert found.usd_cached == found.usd_plain


def test_a_model_without_a_known_price_costs_none_not_nothing(prepared):
    known = {"model": "openai/m", "base_url": "http://127.0.0.1:9/v1"}
    found = summarise(WalkedTrials.of(prepared(**GRID, **known), 1))
    assert (found.usd_plain, found.usd_cached) == (None, None)


def test_operations_are_those_of_what_is_computed(prepared):
    walked, shape = WalkedTrials.of(prepared(**GRID, mode="bins"), 1), Shape(2, 8, 1000)
    found = summarise(walked, Terms(shape=shape))
    assert found.flops == prefill_flops(shape, zip(walked.shared, walked.sizes, strict=True))
    assert found.seconds is None
    assert summarise(walked).flops is None


def test_a_servers_cache_serves_less_the_smaller_it_is(prepared):
    walked = WalkedTrials.of(prepared(**GRID, mode="bins"), 4)
    held = [
        summarise(walked, Terms(cache_tokens=tokens)).held_tokens
        for tokens in (1_000, 4_000, 16_000, 10**6)
    ]
    assert held == sorted(held)
    assert held[0] < 0.5 * held[-1]
    alone = WalkedTrials.of(prepared(**GRID, mode="bins"), 1)
    whole = summarise(alone, Terms(cache_tokens=10**6, cache_block=1))
    assert whole.held_tokens == whole.cached


def test_no_prompts_cost_nothing(prepared):
    experiment = prepared(**GRID)
    found = summarise(
        WalkedTrials(experiment, (), (), (), make_lanes([], [], 1)), Terms(tokens_per_second=10)
    )
    assert (found.asked, found.factor, found.seconds) == (0, 1.0, 0.0)
