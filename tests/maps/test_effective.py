"""Effective length: what each rule says of known curves, and how sure it is."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from needlemap.errors import SettingsError
from needlemap.maps.clusters import expanded_interval, weights
from needlemap.maps.effective import effective_length, parse_rule, parse_rules, rule_values

LENGTHS = (1_000, 2_000, 4_000, 8_000)


def value(curve: list[float], rule: str) -> float:
    lengths = np.array(LENGTHS[: len(curve)], dtype=float)
    return float(rule_values(np.array([curve]), lengths, parse_rule(rule))[0])


@pytest.mark.parametrize(
    ("curve", "rule", "expected"),
    [
        ([1.0, 1.0, 1.0, 0.7], "absolute:85", 4_000 * 2**0.5),
        ([1.0, 0.8, 1.0, 1.0], "absolute:90", 1_000 * 2**0.5),  # the first fall counts
        ([0.85, 0.85, 0.85, 0.85], "absolute:85", inf),  # exactly at the threshold is not below it
        ([0.8, 0.9, 0.9, 0.9], "absolute:85", 0.0),
        ([0.8, 0.8, 0.4, 0.0], "relative:75", 4_000 / 2**0.5),
        ([0.8, 0.8, 0.7, 0.7], "relative:85", inf),
        ([0.0, 0.0, 0.0, 0.0], "relative:85", 0.0),  # a share of nothing is not held
        ([1.0, 1.0, 0.5, 0.5], "auc", 0.75),
        ([0.6], "auc", 0.6),
    ],
)
def test_what_a_rule_says_of_a_curve(curve, rule, expected):
    assert value(curve, rule) == pytest.approx(expected)


def test_a_share_of_what_a_model_hardly_knows_is_no_length(cube):
    """A model at 31.6 of 100 at the shortest length, and 35.8 at twice that, was said to hold for both."""
    weak, fair = (cube([[[share] * 10, [share] * 10]] * 6, LENGTHS[:2]) for share in (0.49, 0.5))
    rule = parse_rule("relative:85")
    assert effective_length(weak, rule).value is None
    assert effective_length(weak, rule).high is None
    assert effective_length(fair, rule).value == inf
    assert effective_length(weak, parse_rule("absolute:40")).value == inf


def test_worst_depth_goes_by_the_worst_depth(cube):
    map = cube([[[1.0, 1.0], [1.0, 0.0]]] * 6, (1_000, 2_000))
    assert effective_length(map, parse_rule("absolute:40")).value == inf
    assert effective_length(map, parse_rule("worst-depth:50")).value == pytest.approx(1_000 * 2**0.5)


def test_a_map_that_never_falls_is_only_as_sure_as_its_trials(cube):
    few = effective_length(cube([[[1.0], [1.0]]] * 5, LENGTHS[:2]), parse_rule("absolute:85"))
    many = effective_length(cube([[[1.0] * 20, [1.0] * 20]] * 6, LENGTHS[:2]), parse_rule("absolute:85"))
    assert (few.value, few.low, few.high) == (inf, 0.0, inf)
    assert (many.value, many.low, many.high) == (inf, inf, inf)


def test_missing_cells_are_left_out_and_never_wrong(cube):
    whole = cube([[[1.0, 1.0], [0.5, 0.5]]] * 5, LENGTHS[:2])
    holed = cube(
        [[[1.0, None], [0.5, 0.5]], [[None, 1.0], [None, None]], *[[[1.0, 1.0], [0.5, 0.5]]] * 3], LENGTHS[:2]
    )
    rule = parse_rule("absolute:85")
    assert effective_length(holed, rule).value == effective_length(whole, rule).value
    assert effective_length(cube([[[None], [None]]], LENGTHS[:2]), rule) is None


def test_the_interval_is_that_of_a_bootstrap_by_hand(cube, random):
    scores = (random.random((8, 2, 5)) < np.array([0.85, 0.5])[:, None]).astype(float)
    found = effective_length(cube(scores.tolist(), LENGTHS[:2]), parse_rule("absolute:70"))
    again = []
    for row in weights(8):
        drawn = np.repeat(scores, row.astype(int), axis=0)
        again.append(value(drawn.mean(axis=(0, 2)).tolist(), "absolute:70"))
    assert (found.low, found.high) == pytest.approx(expanded_interval(np.array(again), 8))
    assert found.low <= found.value <= found.high


def test_the_same_seed_gives_the_same_interval(cube, random):
    map = cube((random.random((6, 3, 4)) < 0.8).astype(float).tolist(), LENGTHS[:3])
    rule = parse_rule("relative:85")
    assert effective_length(map, rule) == effective_length(map, rule)
    assert effective_length(map, rule, seed=1) != effective_length(map, rule)


def test_fewer_than_five_haystacks_give_no_interval(cube):
    found = effective_length(cube([[[1.0], [0.0]]] * 4, LENGTHS[:2]), parse_rule("absolute:85"))
    assert (found.low, found.high, found.clusters) == (None, None, 4)
    assert found.value > 1_000


@pytest.mark.parametrize(
    "text", ["absolut:85", "absolute", "absolute:x", "absolute:0", "relative:101", "auc:5"]
)
def test_an_unknown_rule_is_told_how_to_be_written(text):
    with pytest.raises(SettingsError, match=f"Unknown rule '{text}'.*absolute:85, auc, relative:85"):
        parse_rule(text)


@pytest.mark.parametrize("rule", ["absolute:85", "relative:85", "worst-depth:85", "auc"])
def test_an_interval_holds_its_value(cube, random, rule):
    map = cube(
        (random.random((6, 4, 5)) < np.array([1, 0.95, 0.9, 0.7])[:, None]).astype(float).tolist(), LENGTHS
    )
    found = effective_length(map, parse_rule(rule))
    assert found.low <= found.value <= found.high


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("absolut:85", "absolute:85"),
        ("relative", "relative:85"),
        ("worst:85", "worst-depth:85"),
        ("au", "auc"),
    ],
)
def test_an_unknown_rule_names_the_nearest(text, near):
    with pytest.raises(SettingsError, match=f"Did you mean '{near}'"):
        parse_rule(text)


def test_rules_are_written_with_commas():
    assert parse_rules("absolute:90, auc") == ("absolute:90", "auc")
    with pytest.raises(SettingsError, match="Unknown rule 'best'"):
        parse_rules("auc,best")


def test_every_prompt_counts_once_in_the_curve(cube):
    """As in the line that is drawn: nine prompts of one depth outweigh one of another."""
    map = cube([[[1.0, 1.0], [1.0, None]]] * 9 + [[[1.0, 1.0], [None, 0.0]]], LENGTHS[:2])
    assert effective_length(map, parse_rule("auc")).value == pytest.approx((1.0 + 0.9) / 2)


def test_repeats_of_one_haystack_give_no_interval(cube):
    map = replace(cube([[[1.0], [0.0]]] * 8, LENGTHS[:2]), one_haystack=True)
    found = effective_length(map, parse_rule("absolute:85"))
    assert (found.clusters, found.low, found.high) == (1, None, None)


def test_the_interval_of_the_worst_depth_holds_the_truth(cube, random):
    """The least of many noisy cells lies far below the true one, and each bootstrap draw below that again.

    11 depths alike, 12 repeats: the true curve falls below 85 % at 4k, that of the least cells at 1k or 2k.
    """
    lengths, chances = (1_000, 2_000, 4_000, 8_000, 16_000), (0.97, 0.92, 0.85, 0.75, 0.6)
    held = []
    for _ in range(60):
        scores = random.random((12, 5, 11)) < np.array(chances)[None, :, None]
        found = effective_length(cube(scores.astype(float).tolist(), lengths), parse_rule("worst-depth:85"))
        held.append(found.low <= 4_000 <= found.high)
    assert np.mean(held) >= 0.9
