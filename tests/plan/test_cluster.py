"""The cluster on paper (benchmarks/sides/cluster.py): what its workers take is what their prompts cost."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from needlemap.plan.cost import Shape, prefill_flops
from needlemap.plan.lanes import make_lanes

FILE = Path(__file__).parents[2] / "benchmarks" / "sides" / "cluster.py"
SIZES, SHARED = [10, 14, 20, 22, 30], [0, 8, 12, 5, 21]
SHAPE = Shape(2, 8, 1000)


@pytest.fixture(scope="module")
def cluster() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cluster_on_paper", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


def test_a_piece_costs_what_its_operations_are(cluster):
    cost = cluster.Cost.of_shape(SHAPE)
    for start, stop in ((0, 1), (0, 40), (7, 40)):
        found = cost.first(stop) - cost.first(start)
        assert found == pytest.approx(prefill_flops(SHAPE, [(start, stop)]))


def test_one_worker_takes_the_whole_walk(cluster):
    for cost in (cluster.Cost(1.0), cluster.Cost.of_shape(SHAPE)):
        walk = cluster.Walk.of(SIZES, SHARED, cost)
        for takes in (cluster.lanes_take, cluster.costed_lanes_take, cluster.units_take):
            assert takes(walk, 1) == pytest.approx(walk.alone)
    assert cluster.Walk.of(SIZES, SHARED, cluster.Cost(1.0)).alone == sum(SIZES) - sum(SHARED)


def test_by_tokens_lanes_take_what_a_plan_says(cluster):
    walk = cluster.Walk.of(SIZES, SHARED, cluster.Cost(1.0))
    for workers in (2, 3, 5):
        assert cluster.lanes_take(walk, workers) == max(make_lanes(SIZES, SHARED, workers).tokens)
        assert cluster.lanes_take(walk, workers) >= walk.alone / workers / walk.most(workers)


def test_a_cache_holds_the_least_that_lies_between_two_prompts(cluster):
    walk = cluster.Walk.of(SIZES, SHARED, cluster.Cost(1.0))
    assert [walk.held(0, place) for place in (1, 2, 3, 4)] == [8, 8, 5, 5]
    assert walk.held(4, 2) == walk.held(2, 4) == 5


def test_no_worker_is_faster_than_the_longest_prompt_unless_a_cache_is_shared(cluster):
    walk = cluster.Walk.of(SIZES, SHARED, cluster.Cost(1.0))
    assert walk.most(100) == pytest.approx(walk.alone / 100 / 30)
    assert cluster.lanes_take(walk, 100) == 30
    assert cluster.shared_cache_takes(walk, 100) == pytest.approx(17)  # the largest part that is not shared
