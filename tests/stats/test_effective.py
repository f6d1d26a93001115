"""Effective length: what each rule says of known curves, and how sure it is."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from needlemap.errors import SettingsError
from needlemap.reports.labels import effective_label
from needlemap.reports.run_report import effective_fields
from needlemap.stats import cube_of, effective
from needlemap.stats.curves import fit_falling
from needlemap.stats.effective import effective_length, parse_rule, parse_rules, rule_values
from needlemap.stats.intervals import expanded_interval, move_outward, weights

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
    """A model at 31.6 of 100 at the shortest length, and 35.8 at twice that, was said to hold for
    both."""
    weak, fair = (cube([[[share] * 10, [share] * 10]] * 6, LENGTHS[:2]) for share in (0.49, 0.5))
    rule = parse_rule("relative:85")
    assert effective_length(weak, rule).value is None
    assert effective_length(weak, rule).high is None
    assert effective_length(fair, rule).value == inf
    assert effective_length(weak, parse_rule("absolute:40")).value == inf


def test_the_bootstrap_is_drawn_once_for_all_rules(cube, monkeypatch):
    drawn = list[int]()
    monkeypatch.setattr(effective, "weights", lambda *given: drawn.append(1) or weights(*given))
    held = cube([[[1.0, 1.0], [1.0, 0.0]]] * 8, (1_000, 2_000))
    found = [
        effective_length(held, parse_rule(rule)) for rule in ("absolute:85", "relative:85", "auc")
    ]
    assert all(each.low is not None for each in found)
    assert len(drawn) == 1


def test_worst_depth_goes_by_the_worst_depth(cube):
    few, many = (cube([[[1.0, 1.0], [1.0, 0.0]]] * repeats, (1_000, 2_000)) for repeats in (19, 20))
    assert effective_length(many, parse_rule("absolute:40")).value == inf
    rule = parse_rule("worst-depth:50")
    assert effective_length(many, rule).value == pytest.approx(1_000 * 2**0.5)
    found = effective_length(
        few, rule
    )  # the least of noisy cells is no point: a model right in 97 % had <1k
    assert (found.value, found.low, found.high) == (None, 1_000, 2_000)


def test_a_map_that_never_falls_is_only_as_sure_as_its_trials(cube):
    few = effective_length(cube([[[1.0], [1.0]]] * 5, LENGTHS[:2]), parse_rule("absolute:85"))
    many = effective_length(
        cube([[[1.0] * 20, [1.0] * 20]] * 6, LENGTHS[:2]), parse_rule("absolute:85")
    )
    assert (few.value, few.low, few.high) == (inf, 0.0, inf)
    assert (many.value, many.low, many.high) == (inf, inf, inf)


def test_missing_cells_are_left_out_and_never_wrong(cube):
    whole = cube([[[1.0, 1.0], [0.5, 0.5]]] * 5, LENGTHS[:2])
    holed = cube(
        [[[1.0, None], [0.5, 0.5]], [[None, 1.0], [None, None]], *[[[1.0, 1.0], [0.5, 0.5]]] * 3],
        LENGTHS[:2],
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
    ends = move_outward(*expanded_interval(np.array(again), 8), np.array(LENGTHS[:2]))
    assert (found.low, found.high) == ends == (1_000, 2_000)
    assert found.low <= found.value <= found.high


def test_the_same_seed_gives_the_same_interval(cube, random):
    map = cube(random.random((6, 3, 4)).tolist(), LENGTHS[:3])
    rule = parse_rule("auc")
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
    with pytest.raises(
        SettingsError, match=f"Unknown rule '{text}'.*absolute:85, auc, relative:85"
    ):
        parse_rule(text)


@pytest.mark.parametrize("rule", ["absolute:85", "relative:85", "worst-depth:85", "auc"])
def test_an_interval_holds_its_value(cube, random, rule):
    map = cube(
        (random.random((20, 4, 5)) < np.array([1, 0.95, 0.9, 0.7])[:, None]).astype(float).tolist(),
        LENGTHS,
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


def test_of_one_haystack_the_interval_is_as_if_cells_were_independent(cube, random):
    """Published maps have one haystack, and their lengths were told as if certain."""
    scores = (random.random((1, 4, 30)) < np.array([0.97, 0.93, 0.8, 0.5])[:, None]).astype(float)
    map = replace(cube(scores.tolist(), LENGTHS), one_haystack=True)
    found = effective_length(map, parse_rule("absolute:85"))
    assert (found.clusters, found.cells, found.low, found.high) == (1, True, 2_000, 8_000)
    assert effective_length(map, parse_rule("worst-depth:85")).high is None


def test_between_tested_lengths_nobody_looked_so_the_interval_reaches_to_them(cube, random):
    """A cliff at 2,600: the interval of the straight line between 2k and 4k left it out in 83 of
    100 maps."""
    lengths, held = (1_000, 2_000, 4_000, 8_000), 0
    for _ in range(30):
        scores = random.random((5, 4, 11)) < np.array([0.985, 0.985, 0.01, 0.01])[:, None]
        found = effective_length(
            cube(scores.astype(float).tolist(), lengths), parse_rule("absolute:85")
        )
        held += found.low <= 2_600 <= found.high
    assert held == 30


def test_noise_on_a_plateau_is_no_fall_and_a_clear_dip_is_one(cube, random):
    """90 % up to 16k, then a fall: the first noisy length below 85 was taken for it, 3k in the
    median."""
    lengths = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000)
    chances = {"plateau": [0.9] * 5 + [0.4], "dip": [0.97, 0.97, 0.97, 0.6, 0.97, 0.97]}
    points: dict[str, list[float]] = {name: [] for name in chances}
    for name, chance in chances.items():
        for _ in range(40):
            scores = (random.random((3, 6, 11)) < np.array(chance)[:, None]).astype(float)
            found = effective_length(cube(scores.tolist(), lengths), parse_rule("absolute:85"))
            points[name].append(found.value)
    assert 12_000 < np.median(points["plateau"]) < 24_000
    assert np.quantile(points["plateau"], 0.2) > 8_000
    assert 4_000 < np.median(points["dip"]) < 8_000


def test_a_falling_fit_pools_what_rises_and_leaves_what_falls():
    curve = np.array([[0.9, 0.8, 0.9, 0.4, 0.6], [0.9, 0.8, 0.7, 0.6, 0.5]])
    sizes, never, soon = np.array([10, 10, 30, 10, 10]), np.full(5, 9.0), np.full(5, 0.3)
    found = fit_falling(curve, sizes, never)
    assert found == pytest.approx(
        np.array([[0.9, 0.875, 0.875, 0.5, 0.5], [0.9, 0.8, 0.7, 0.6, 0.5]])
    )
    stopped = fit_falling(
        curve - 0.85, sizes, soon
    )  # clearly below at the fourth: what comes after is none of it
    assert stopped[0] == pytest.approx([0.05, 0.025, 0.025, -0.45, -1.0])


def test_a_curve_that_crawls_through_the_threshold_says_so(cube, random):
    lengths = tuple(1_000 * 2**at for at in range(8))
    scores = random.random((10, 8, 11)) < np.linspace(0.9, 0.8, 8)[:, None]
    found = effective_length(
        cube(scores.astype(float).tolist(), lengths), parse_rule("absolute:85")
    )
    assert (found.crawls, found.value) == (True, None)
    assert effective_label(found).startswith("crawls through 85 between ")
    fields = effective_fields(found)
    assert (fields["crawls"], fields["value"], "value" in fields["beyond"]) == (True, None, False)
    assert fields["low"] < fields["high"]
    share = effective_length(
        cube(scores.astype(float).tolist(), lengths), parse_rule("relative:95")
    )
    assert (share.crawls, share.value) == (True, None)
    assert effective_label(share).startswith("crawls through 95 % of the first between ")
    steep = random.random((10, 8, 11)) < np.array([0.98] * 4 + [0.2] * 4)[:, None]
    for other, rule in ((steep.astype(float), "absolute:85"), (np.ones((5, 8, 2)), "absolute:95")):
        assert not effective_length(cube(other.tolist(), lengths), parse_rule(rule)).crawls


def test_the_interval_of_the_worst_depth_holds_the_truth(cube, random):
    """The least of many noisy cells lies far below the true one, and each bootstrap draw below that
    again.

    11 depths alike, 12 repeats: the true curve falls below 85 % at 4k, that of the least cells at
    1k or 2k.
    """
    lengths, chances = (1_000, 2_000, 4_000, 8_000, 16_000), (0.97, 0.92, 0.85, 0.75, 0.6)
    held = []
    for _ in range(60):
        scores = random.random((12, 5, 11)) < np.array(chances)[None, :, None]
        found = effective_length(
            cube(scores.astype(float).tolist(), lengths), parse_rule("worst-depth:85")
        )
        held.append(found.low <= 4_000 <= found.high)
    assert np.mean(held) >= 0.9


def test_single_cells_that_agree_up_to_a_cliff_do_not_make_every_length_doubtful(random):
    """As of an imported map: 15 cells a length, all right up to 12k but for a miss here and
    there."""
    lengths = tuple(round(1000 * 2 ** (at / 2)) for at in range(15))
    low_ends = []
    for _ in range(10):
        places = {
            (0, length, at / 14): float(random.random() < (0.985 if length < 12_000 else 0.01))
            for length in lengths
            for at in range(15)
        }
        single = replace(cube_of(places, set(places)), one_haystack=True)
        found = effective_length(single, parse_rule("absolute:85"))
        assert found.low <= 12_000 <= found.high
        low_ends.append(found.low)
    assert min(low_ends) >= 5_600


def test_an_interval_beyond_the_longest_length_holds_a_point_within():
    """A page of a check ended in a traceback: of haystacks of drawn lengths, a single one was
    wrong, and most draws leave it out."""
    scores = {(repeat, 100 + repeat, 0.5): 1.0 for repeat in range(23)}
    scores |= {(repeat, 123, 0.5): 1.0 for repeat in range(18)}
    scores |= {(23, 117, 0.5): 0.0}
    found = effective_length(cube_of(scores, set(scores)), parse_rule("relative:85"))
    assert found is not None
    assert not found.crawls
    assert found.value is not None
    assert 100 < found.value < 124
    assert found.high == inf
