"""What the reference mostly gets wrong cannot show a loss: it is named and left out."""

from __future__ import annotations

import pytest

from needlemap.reports.loss import loss_json, verdict_of
from needlemap.stats import tested
from needlemap.stats.judging import judge
from needlemap.stats.looks import endless_looks, planned_looks
from needlemap.stats.rows import JudgedPrompt, Rows

LOOKS = (None, planned_looks, endless_looks)


def family(name: str, first: float, second: float, n: int = 60, length: int = 1_000) -> list:
    """Prompts of which the two runs get such shares right, the same ones as far as possible."""
    return [
        JudgedPrompt(name, (at, length, 0.5), at, float(at < first * n), float(at < second * n))
        for at in range(n)
    ]


def test_dead_families_do_not_hide_the_loss_of_the_one_that_works():
    """Three of four families of a weak model were dead: 49.6 points became 12.7."""
    dead = [pair for name in "bcd" for pair in family(name, 0.0, 0.0)]
    rows = Rows.of([*family("a", 1.0, 0.5), *dead])
    for looks in LOOKS:
        found = judge(rows, 0.2, looks=looks)
        assert found.loss.value == pytest.approx(0.5)
        assert (found.word, found.families) == ("FAIL", (1, 4))
        assert [group.family for group in found.untested] == ["b", "c", "d"]
        said = verdict_of(found).evidence
        assert said.startswith("not tested: b (the reference scores 0.0, n=60)")


def test_half_scores_are_not_told_as_right_prompts():
    """Of 24 prompts of which a quarter each was found, the reference \"got 6 of 24 right\"."""
    quarters = [JudgedPrompt("b", (at, 1_000, 0.5), at, 0.25, 0.25) for at in range(24)]
    found = judge(Rows.of([*family("a", 1.0, 1.0), *quarters]), 0.02)
    assert "not tested: b (the reference scores 25.0, n=24)" in verdict_of(found).evidence


def test_nothing_passes_if_fewer_than_half_of_the_families_are_left():
    two = [*family("a", 1.0, 1.0, 200), *family("b", 1.0, 1.0, 200)]
    dead = family("c", 0.4, 0.4), family("d", 0.1, 0.1), family("e", 0.0, 0.0)
    enough = Rows.of([*two, *dead[0], *dead[1]])
    few = Rows.of([*two, *dead[0], *dead[1], *dead[2]])
    assert [judge(rows, 0.1).word for rows in (enough, few)] == ["PASS", "NOT ENOUGH DATA"]
    assert judge(few, 0.1).floored
    assert judge(few, 0.1).more is None


def test_a_length_is_left_out_from_twenty_prompts_on():
    short, long = family("", 1.0, 1.0, 100), family("", 0.4, 0.4, 20, length=4_000)
    rows, untested = tested.drop_untested(Rows.of([*short, *long]), 0.02)
    assert untested == (tested.NotTested("", (4_000,), 20, 8.0),)
    assert set(rows.length.tolist()) == {1_000}
    assert tested.count_tested(Rows.of([*short, *long]), untested) == (1, 1)
    assert tested.drop_untested(Rows.of([*short, *long[:-1]]), 0.02)[1] == ()
    assert loss_json(judge(Rows.of([*short, *long]), 0.1))["not_tested"] == [
        {"family": "", "lengths": [4_000], "n": 20, "right": 8.0}
    ]


def test_a_length_that_is_never_right_is_left_out_from_six_prompts_on():
    """An ab passed after 18 prompts of a length that both arms always got wrong."""
    long = family("", 0.0, 0.0, 6, length=4_000)
    rows = Rows.of([*family("", 1.0, 1.0, 100), *long])
    assert [group.lengths for group in tested.drop_untested(rows, 0.02)[1]] == [(4_000,)]
    few = Rows.of([*family("", 1.0, 1.0, 100), *long[:5]])
    assert tested.drop_untested(few, 0.02)[1] == ()


def test_half_right_is_tested():
    assert tested.drop_untested(Rows.of(family("", 0.5, 0.5, 20)), 0.02)[1] == ()


def test_a_family_that_cannot_lose_the_margin_is_left_out_however_few_its_prompts():
    rows = Rows.of([*family("a", 1.0, 1.0), *family("b", 0.2, 0.0, 10)])
    assert [group.family for group in tested.drop_untested(rows, 0.3)[1]] == ["b"]
    assert tested.drop_untested(rows, 0.1)[1] == ()


def test_what_is_not_tested_and_surely_lost_never_passes():
    """A family of which the reference gets 40 % right, and the other nothing: no green."""
    rows = Rows.of([*family("a", 1.0, 1.0, 300), *family("b", 0.4, 0.0, 100)])
    for looks in LOOKS:
        found = judge(rows, 0.1, looks=looks)
        assert found.word == "SUSPECT"


def test_arms_that_answer_by_chance_are_not_worse_because_lengths_were_chosen(random):
    """Lengths are left out by the reference's luck: what is left looks better for it."""
    worse = 0
    for _ in range(100):
        first, second = random.random((2, 40, 20)) < 0.5
        rows = Rows.of(
            JudgedPrompt("", (at, 100 + length, 0.5), at, float(one), float(other))
            for length in range(40)
            for at, (one, other) in enumerate(zip(first[length], second[length], strict=True))
        )
        worse += judge(rows, 0.02).word == "FAIL"
    assert worse <= 3


def test_all_that_is_dead_is_shown_and_proves_nothing():
    found = judge(Rows.of(family("", 0.4, 0.4, 400)), 0.02)
    assert (found.word, found.n, found.floored) == ("NOT ENOUGH DATA", 400, True)
    lost = judge(Rows.of(family("", 0.4, 0.0, 400)), 0.02)
    assert lost.word == "FAIL"


def test_graded_scores_add_up():
    rows = Rows.of(JudgedPrompt("", (at, 1_000, 0.5), at, 0.45, 0.45) for at in range(40))
    assert tested.drop_untested(rows, 0.02)[1] == (
        tested.NotTested("", (), 40, pytest.approx(18.0)),
    )
