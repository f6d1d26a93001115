"""Two runs compared: each family counts the same, and the interval of their mean holds what it
says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from needlemap.stats import Array, cube_of
from needlemap.stats.comparison import compare_families, compare_pairs
from needlemap.stats.difference import holm
from needlemap.stats.pairs import Pairs


def pairs(first: Array, second: Array) -> Pairs:
    """Of scores (repeats, trials), NaN where missing, at one length."""
    cubes = []
    for scores in (first, second):
        places = {
            (row, 1000, at / 100): float(value) for (row, at), value in np.ndenumerate(scores)
        }
        known = {place: value for place, value in places.items() if not np.isnan(value)}
        cubes.append(cube_of(known, set(places)))
    return Pairs(cubes[0], cubes[1], 0, 0, (), graded=False, counted=True)


def losing(repeats: int, trials: int, lost: int) -> Pairs:
    """All right at first, and so many wrong at second, spread over the repeats."""
    second = np.ones((repeats, trials))
    for at in range(lost):
        second[at % repeats, at // repeats] = 0
    return pairs(np.ones((repeats, trials)), second)


def test_of_one_family_it_says_what_is_said_of_the_run():
    one = losing(6, 9, 7)
    found, alone = compare_families({"one": one}, 0.02), compare_pairs(one, 0.02)
    assert (found.overall, found.paired) == (alone.overall, alone.paired)
    twice = compare_families({"one": one, "again": one}, 0.02).overall
    assert (twice.value, twice.clusters) == (
        pytest.approx(alone.overall.value),
        alone.overall.clusters,
    )


def test_every_family_counts_the_same_however_many_pairs_it_has():
    found = compare_families({"large": losing(6, 40, 0), "small": losing(6, 2, 6)}, 0.02)
    assert found.overall.value == pytest.approx(-0.25)  # 0 and -50 points; of 252 pairs 6 were lost
    assert (found.overall.first, found.overall.second) == (1.0, pytest.approx(0.75))
    assert (found.overall.n, found.overall.lost, found.overall.gained) == (252, 6, 0)


def test_p_is_of_the_mean_over_families_and_not_of_all_pairs_in_one_pot():
    first = np.ones((6, 250))
    first[0, :30] = 0  # 30 of 1,500 pairs gained, in one haystack
    found = compare_families(
        {"large": pairs(first, np.ones((6, 250))), "small": losing(6, 5, 15)}, 0.02
    ).overall
    assert (found.lost, found.gained) == (15, 30)
    assert found.value == pytest.approx((0.02 - 0.5) / 2)
    assert found.p == pytest.approx(2 / 2**6)  # all six haystacks lost: sign flips of their sums
    one = compare_families({"small": losing(6, 5, 15)}, 0.02).overall
    assert one.p == pytest.approx(2 / 2**15)  # McNemar, as in a single run


def test_what_a_small_family_leaves_open_is_not_hidden_by_a_large_one():
    """Nothing changed, but of 12 pairs that proves little, and they are half of the mean."""
    alone = compare_families({"small": losing(6, 2, 0)}, 0.02).overall
    both = compare_families({"large": losing(6, 100, 0), "small": losing(6, 2, 0)}, 0.02).overall
    assert both.high > 0.4 * alone.high


def test_the_verdict_is_that_on_the_mean_and_families_are_corrected_for_their_number():
    families = {"same": losing(6, 9, 0), "better": losing(6, 9, 1), "worse": losing(6, 9, 12)}
    found = compare_families(families, 0.02)
    assert list(found.families) == list(families)
    words = [each.paired.word for each in found.families.values()]
    assert words == ["NOT ENOUGH DATA", "NOT ENOUGH DATA", "FAIL"]
    assert found.paired.word == "FAIL"
    assert list(found.adjusted_p.values()) == list(
        holm([each.overall.p for each in found.families.values()])
    )


def test_haystacks_that_turn_together_in_all_families_widen_the_interval():
    """The same losses, in two repeats of each family or spread over all."""
    spread = losing(6, 9, 18)
    second = np.ones((6, 9))
    second[:2] = 0
    together = pairs(np.ones((6, 9)), second)
    wide, narrow = (
        compare_families({"a": one, "b": one}, 0.02).overall for one in (together, spread)
    )
    assert wide.value == pytest.approx(narrow.value)
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)


def test_families_of_one_haystack_are_one_cluster():
    listed = [
        replace(cube, one_haystack=True) for cube in (losing(6, 9, 5).first, losing(6, 9, 5).second)
    ]
    one = replace(losing(6, 9, 5), first=listed[0], second=listed[1])
    assert compare_families({"a": one, "b": one}, 0.02).overall.clusters == 1
    mixed = compare_families({"a": one, "b": losing(6, 9, 5)}, 0.02).overall
    assert (mixed.clusters, mixed.n) == (6, 108)


def test_haystacks_that_agree_are_no_certainty_of_graded_scores():
    first, second = np.ones((6, 3)), np.ones((6, 3))
    second[:, 0] = 0.25
    losing_some = pairs(first, second)
    overall = compare_families({"a": losing_some, "b": losing_some}, 0.02).overall
    assert overall.low < overall.value - 0.02
    assert overall.high > overall.value + 0.02


def test_missing_scores_are_left_out_of_means_and_widen_the_interval():
    holed = np.ones((6, 3))
    holed[0, 0] = np.nan
    found = compare_families(
        {"whole": losing(6, 3, 0), "holed": pairs(np.ones((6, 3)), holed)}, 0.02
    )
    assert found.overall.n == 35
    whole = compare_families({"whole": losing(6, 3, 0), "again": losing(6, 3, 0)}, 0.02)
    assert found.paired.loss.value == whole.paired.loss.value == 0.0
    assert found.paired.loss.high == pytest.approx(whole.paired.loss.high + 1 / 36, abs=0.01)


def test_means_of_nobody_knows_how_many_answers_tell_nothing():
    both = {"a": losing(6, 9, 20), "b": replace(losing(6, 9, 20), counted=False)}
    found = compare_families(both, 0.02)
    assert (found.paired.word, found.paired.loss) == ("NOT ENOUGH DATA", None)


def test_families_with_other_repeats_are_put_side_by_side():
    found = compare_families({"a": losing(6, 9, 6), "b": losing(3, 9, 3)}, 0.02).overall
    assert (found.clusters, found.value) == (6, pytest.approx(-1 / 9))


@pytest.mark.long
def test_an_interval_holds_the_truth_about_as_often_as_it_says(random):
    """Families of 1 to 12 trials a repeat that lose at other rates, and haystacks that move all of
    them."""
    rates, sizes, hits, runs = (0.02, 0.1, 0.2, 0.3), (12, 6, 3, 1), 0, 120
    for _ in range(runs):
        common = random.normal(0, 0.05, 10)
        made = {}
        for at, (rate, trials) in enumerate(zip(rates, sizes, strict=True)):
            chance = (
                np.clip(rate + common, 0, 1)[:, None] if rate > 0.05 else np.full((10, 1), rate)
            )
            lost = random.random((10, trials)) < chance
            made[str(at)] = pairs(np.ones((10, trials)), 1.0 - lost)
        overall = compare_families(made, 0.02).overall
        hits += overall.low <= -np.mean(rates) <= overall.high
    assert hits / runs > 0.93
