"""The lines under a map."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from needlemap.errors import SettingsError
from needlemap.reports.summary import summary_lines
from needlemap.stats import Cube, cube_of
from needlemap.stats.effective import RULES


def cube(repeats: int, wrong_from: int = 10**9, missing: int = 0) -> Cube:
    """Three lengths by two depths; wrong at wrong_from tokens and more, except in repeat 0 at depth
    0."""
    places = [(r, n, d) for r in range(repeats) for n in (1_000, 4_000, 16_000) for d in (0.0, 0.5)]
    scores = {
        place: float(place[1] < wrong_from or place == (0, place[1], 0.0))
        for place in places[missing:]
    }
    return cube_of(scores, set(places))


def line(lines: list[str], start: str) -> str:
    (found,) = [each for each in lines if each.startswith(start)]
    return found


def test_nothing_measured_says_nothing():
    assert summary_lines(cube_of({}, {(0, 1_000, 0.0)})) == []


def test_every_rule_has_its_value_and_interval():
    found = line(
        summary_lines(cube(8, wrong_from=16_000), (*RULES, "worst-depth:85")), "effective length:"
    )
    assert found.startswith("effective length: absolute:85 5k [<1k, 16k] ")
    assert "worst-depth:85 [<1k, 16k]" in found  # no point, of so few haystacks
    assert "auc 76.6 [" in found


def test_a_score_that_never_falls_is_a_lower_bound():
    found = line(summary_lines(cube(40)), "effective length:")
    assert "absolute:85 >=16k [>=16k, >=16k]" in found


def test_missing_trials_are_bounded_not_wrong():
    lines = summary_lines(cube(5, missing=3))
    assert line(lines, "all prompts:").startswith("all prompts: 100.0 [")
    assert "3 missing prompts: 90.0 if all were wrong, 100.0 if all were right" in lines
    assert "  by length, and how many: 1k 80.0 to 100.0 (2) · 4k 90.0 to 100.0 (1)" in lines


def test_what_is_missing_may_be_right_or_wrong_and_a_length_without_a_score_is_named():
    """All prompts of the longest length failed: `>=4k` was read as a pass."""
    known = cube(6)
    scores = known.scores.copy()
    scores[:, 2] = np.nan
    lines = summary_lines(replace(known, scores=scores, spread=scores))
    assert line(lines, "effective length:").endswith("; nothing was scored at 16k")
    assert line(lines, "effective length:").startswith("effective length: absolute:85 >=4k ")
    assert "  by length, and how many: 16k 0.0 to 100.0 (12)" in lines
    bounds = line(lines, "  if all missing trials were wrong, or right:")
    assert " absolute:85 4.9k to >=16k · auc " in bounds
    # A missing trial at the shortest length moves the threshold, too: neither end is a bound.
    assert "relative" not in bounds
    alone = summary_lines(replace(known, scores=scores, spread=scores), rules=("relative:85",))
    assert not [line for line in alone if "if all missing trials" in line]


def test_few_haystacks_say_so():
    lines = summary_lines(cube(2))
    assert lines[0] == (
        "With 2 repeats the variation between texts is unknown: intervals are wide, effective "
        "lengths have none, and a comparison holds for these texts only. For reliable intervals "
        "use --repeats 5 (18 more prompts, 126k tokens)."
    )
    assert "(n=12, 2 haystacks: prompts of one are taken to correlate by 0.05)" in lines[1]
    assert "  no intervals from fewer than 5 haystacks: --repeats 5 or more" in lines


def test_depths_show_the_lowest_and_the_highest():
    assert "by depth: 100.0 at every depth" in summary_lines(cube(6))
    assert line(summary_lines(cube(6, wrong_from=1_000)), "by depth:").startswith(
        "by depth: lowest at 50% 0.0 ["
    )


def test_an_unknown_rule_is_refused():
    with pytest.raises(SettingsError, match="Unknown rule 'best'"):
        summary_lines(cube(5), rules=("best",))


def test_rules_can_be_chosen():
    found = line(summary_lines(cube(8), rules=("absolute:90", "auc")), "effective length:")
    assert found.startswith("effective length: absolute:90 >=16k [")
    assert "relative" not in found


def test_prompts_asked_again_give_the_noise_floor():
    """GPT-4's published map: 25 of its 105 repeated cells scored otherwise."""
    noisy = replace(cube(8), again=((1.0, 1.0),) * 80 + ((1.0, 0.0),) * 15 + ((0.0, 1.0),) * 10)
    found = line(summary_lines(noisy), "asked again:")
    assert found.startswith(
        "asked again: 25 of 105 prompts scored otherwise the second time (23.8 % ["
    )
    assert (
        f"differ by up to {100 * 1.96 * (25 / 105 / 48) ** 0.5:.1f} points 95 times in 100" in found
    )  # a mean of 48
    part = line(
        summary_lines(replace(noisy, again_at=(4_000,) * 40 + (16_000,) * 65)), "asked again:"
    )
    assert part.endswith("; seen at 2 of 3 lengths, 4k to 16k: others may be more or less noisy")
    calm = replace(noisy, again=((1.0, 1.0),) * 3)
    silent = line(summary_lines(calm), "asked again:")
    assert (
        silent == "asked again: 0 of 3 prompts scored otherwise the second time (0.0 % [0.0, 56.1])"
    )


def test_repeats_of_one_haystack_say_so():
    lines = summary_lines(replace(cube(8), one_haystack=True))
    assert "all prompts: 100.0 [78.9, 100.0] (n=48, 1 haystack: " in lines[0]
    assert lines[1] == "  were all prompts independent: [92.6, 100.0]"
    assert "  intervals as if cells were independent: all repeats count as of one haystack" in lines


def test_means_of_nobody_knows_how_many_answers_have_no_interval_and_no_power():
    lines = summary_lines(replace(cube(8, wrong_from=16_000), counted=False, one_haystack=True))
    assert lines[0] == (
        "all cells: 68.8 (48 means of an unknown number of answers: no n, no interval)"
    )
    assert not [each for each in lines if "[" in each or "n=" in each or each.startswith("power:")]


def test_where_lengths_have_depths_of_their_own_the_lowest_is_a_part_of_the_haystack():
    """A depth that one length has alone holds one prompt: the lowest of many such is always
    wrong."""
    places = {
        (0, 1_000 * row, column / row): float(column != 3)
        for row in range(1, 9)
        for column in range(row)
    }
    found = line(summary_lines(cube_of(places, set(places))), "by depth:")
    assert found.startswith("by depth: lowest at 40–50% ")
