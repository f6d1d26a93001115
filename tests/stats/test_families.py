"""The mean over families: each counts the same, and repeats are drawn for all of them together."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from needlemap.stats import Cube, cube_of
from needlemap.stats.effective import (
    FamilyScores,
    Mean,
    effective_length,
    parse_rule,
    published_length,
)


def cube(scores: dict[int, float], depths: int = 4, repeats: int = 6) -> Cube:
    """Of a length's cells the first share are right, the others wrong."""
    places = {}
    for length, share in scores.items():
        cells = [
            (repeat, length, depth / depths) for repeat in range(repeats) for depth in range(depths)
        ]
        places |= {cell: float(at < round(share * len(cells))) for at, cell in enumerate(cells)}
    return cube_of(places, set(places))


def test_every_family_counts_the_same_however_many_prompts_it_has():
    large, small = cube({1000: 1.0, 2000: 0.5}, depths=8), cube({1000: 0.0, 2000: 1.0}, depths=1)
    means = FamilyScores([large, small]).means()
    assert [means[length].score for length in (1000, 2000)] == [0.5, 0.75]
    assert all(mean.low <= mean.score <= mean.high for mean in means.values())


def test_of_families_that_are_alike_it_says_what_is_said_of_one():
    one = cube({1000: 1.0, 2000: 0.9, 4000: 0.6, 8000: 0.2})
    for rule in map(parse_rule, ("absolute:85", "relative:85", "worst-depth:85", "auc")):
        assert FamilyScores([one, one]).effective(rule) == effective_length(one, rule)


def test_of_families_hardly_known_at_the_shortest_length_no_share_is_taken():
    weak = FamilyScores([cube({1000: 0.25, 2000: 0.25}), cube({1000: 0.5, 2000: 0.5})])
    assert weak.effective(parse_rule("relative:85")).value is None
    assert weak.effective(parse_rule("absolute:30")).value == inf


def test_lengths_at_which_a_family_has_no_score_are_left_out():
    both = FamilyScores([cube({1000: 1.0, 2000: 1.0}), cube({1000: 0.5})])
    assert list(both.means()) == [1000]
    assert FamilyScores([cube({1000: 1.0}), cube({2000: 0.5})]).means() == {}
    assert FamilyScores([]).means() == {}
    assert FamilyScores([]).effective(parse_rule("auc")) is None


def test_families_with_other_repeats_are_put_side_by_side():
    means = FamilyScores([cube({1000: 1.0}, repeats=6), cube({1000: 0.5}, repeats=3)]).means()
    assert means[1000].score == pytest.approx(0.75)


def test_few_repeats_have_no_interval():
    mean = FamilyScores([cube({1000: 0.5}, repeats=2)]).means()[1000]
    assert mean == Mean(0.5, None, None)


def test_means_of_nobody_knows_how_many_answers_have_no_interval():
    """As a suite of imported summaries has."""
    one = cube({1000: 1.0, 2000: 0.5})
    both = FamilyScores([one, replace(one, counted=False)])
    assert both.means()[2000] == Mean(0.5, None, None)
    effective = both.effective(parse_rule("auc"))
    assert (effective.low, effective.high) == (None, None)


def test_an_interval_covers_the_truth_about_as_often_as_it_says():
    random, hits, runs = np.random.default_rng(5), 0, 120
    for _ in range(runs):
        made = []
        common = random.normal(0, 0.1, 10)  # what a haystack does to all families
        for truth in (0.9, 0.7, 0.5):
            rates = np.clip(truth + common, 0, 1)
            places = {
                (repeat, 1000, depth / 8): float(random.random() < rates[repeat])
                for repeat in range(10)
                for depth in range(8)
            }
            made.append(cube_of(places, set(places)))
        mean = FamilyScores(made).means()[1000]
        hits += mean.low <= 0.7 <= mean.high
    assert hits / runs > 0.88


@pytest.mark.parametrize(
    ("scores", "found"),
    [
        ({1000: 0.9, 2000: 0.86, 4000: 0.856}, 2000),  # exceeds, not reaches
        ({1000: 0.9, 2000: 0.8, 4000: 0.9}, inf),  # the largest, whatever stands before it
        ({1000: 0.9, 2000: 0.8, 4000: 0.9, 8000: 0.1}, 4000),
        ({1000: 0.2}, 0),
        ({}, None),
    ],
)
def test_the_published_rule(scores, found):
    assert (
        published_length({length: Mean(score, None, None) for length, score in scores.items()})
        == found
    )
