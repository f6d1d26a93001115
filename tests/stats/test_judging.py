"""The verdict of all commands, and the stories in which it was wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from needlemap.reports.loss import verdict_of
from needlemap.stats.judging import PairedLoss, judge
from needlemap.stats.looks import endless_looks, planned_looks
from needlemap.stats.rows import JudgedPrompt, Rows
from needlemap.stats.verdicts import OPEN

MISSING = np.nan


def rows(losses: np.ndarray, lengths: tuple[int, ...] = (1_000,)) -> Rows:
    """Pairs of haystacks (haystacks, prompts): 1 lost, -1 gained, 0 right in both; prompts take the
    lengths in turn."""
    found = []
    for (stack, at), lost in np.ndenumerate(losses):
        place = stack, lengths[at % len(lengths)], at / 1_000
        found.append(JudgedPrompt("", place, stack, float(lost >= 0), float(lost <= 0)))
    return Rows.of(found)


def at_length(found: Rows, length: int, first: float, second: float) -> Rows:
    """The same with other scores at one length."""
    here = found.length == length
    return replace(
        found,
        first=np.where(here, first, found.first),
        second=np.where(here, second, found.second),
    )


def each_way(found: Rows, margin: float) -> list[PairedLoss]:
    """One look, looks after pieces of planned prompts, and looks without an end."""
    return [judge(found, margin, looks=looks) for looks in (None, planned_looks, endless_looks)]


def test_two_hundred_equal_pairs_are_no_worse_than_two_points():
    found = judge(rows(np.zeros((100, 2))), 0.02)
    assert (found.word, found.scope) == ("PASS", "these")
    assert judge(rows(np.zeros((90, 2))), 0.02).word == "NOT ENOUGH DATA"


def test_a_reference_that_did_not_answer_its_longest_prompts_proves_nothing_of_them():
    """A raised at 800 tokens and B got all of them wrong: no worse than 10 points, exit code 0,
    also with --sequential."""
    found = at_length(rows(np.zeros((6, 12)), (200, 400, 800)), 800, MISSING, 0.0)
    for each in each_way(found, 0.1):
        assert each.word == "SUSPECT"
        assert (each.missing.first, each.missing.lengths) == (24, (800,))
        said = verdict_of(each).evidence
        assert "A did not answer 24 prompts that B answered (length 800; the first: " in said


def test_one_loss_has_one_word_in_every_command():
    """12 of 480 lost were worse by 5 points in compare and its gate, and no worse than 10 in ab."""
    losses = np.zeros((40, 12))
    losses[::4, 0], losses[::20, 1] = 1, 1
    for margin, word in ((0.05, "PASS"), (0.03, "SUSPECT")):
        found = judge(rows(losses), margin)
        assert found.word == word
    assert (
        verdict_of(judge(rows(losses), 0.03)).claim == "B loses 2.5 points (0.4 to 4.7), allowed 3"
    )


def test_a_loss_of_exactly_the_margin_decides_nothing(random):
    words = [
        judge(rows((random.random((40, 24)) < 0.02).astype(float)), 0.02).word for _ in range(40)
    ]
    assert sum(word in OPEN for word in words) >= 36


@pytest.mark.parametrize("part", [0.1, 0.5])
def test_haystacks_that_turn_by_a_coin_are_not_called_worse(random, part):
    """One haystack in ten moved half of its pairs, up or down: worse in 41 of 100 runs that looked
    after each pair."""
    said = 0
    for _ in range(60):
        moved = (random.random((12, 1)) < 0.1) & (random.random((12, 24)) < part)
        losses = moved * random.choice([-1.0, 1.0], (12, 1))
        said += any(each.word == "FAIL" for each in each_way(rows(losses), 0.02))
    assert said <= 1


def test_one_of_three_haystacks_does_not_make_it_worse():
    losses = np.zeros((3, 88))
    losses[1, :40] = 1
    assert judge(rows(losses), 0.02).word == "SUSPECT"
    losses[0, :40] = 1
    assert judge(rows(losses), 0.02).word == "FAIL"


def test_new_haystacks_take_seventy_two():
    """'From 5 on it is about all haystacks such as these', where one in twenty was dead: no worse
    in 72 of 100 runs."""
    few = judge(rows(np.zeros((71, 20))), 0.2, wanted="new")
    assert few.word == "NOT ENOUGH DATA"
    assert "71 haystacks, and new ones take 72 at least" in verdict_of(few).next
    enough = judge(rows(np.zeros((72, 20))), 0.2, wanted="new")
    assert (enough.word, enough.scope) == ("PASS", "new")
    assert judge(rows(np.zeros((72, 20))), 0.2).scope == "new"
    assert judge(rows(np.zeros((72, 20))), 0.02).scope == "these"


def test_random_time_outs_of_an_equal_arm_are_not_worse(random):
    """1.5 % at random, margin 2: worse in 11 to 23 of 100 runs."""
    for _ in range(40):
        found = rows(np.zeros((40, 12)))
        lost = random.random(len(found.second)) < 0.02
        found = replace(found, second=np.where(lost, MISSING, found.second))
        assert judge(found, 0.02).word != "FAIL"


def test_few_missing_answers_that_cannot_reach_the_margin_do_not_matter():
    found = rows(np.zeros((100, 5)))
    found.second[:2] = MISSING
    judged = judge(found, 0.02)
    assert (judged.word, judged.missing.second, judged.missing.reaches) == ("PASS", 2, False)


def test_a_prompt_that_neither_answered_is_not_lost():
    """SUSPECT of two equal runs that both failed one prompt: 'length 400: 0 of 20 lost'."""
    found = rows(np.zeros((40, 2)), (300, 400))
    failed = np.arange(80) == 5
    for is_missing, lengths in ((failed, (300, 400)), (found.length == 400, (300,))):
        neither = replace(
            found,
            first=np.where(is_missing, MISSING, found.first),
            second=np.where(is_missing, MISSING, found.second),
        )
        for each in each_way(neither, 0.2):
            assert (each.word, each.lengths, each.tried) == ("PASS", (), lengths)
            assert (each.n, each.missing) == (80 - is_missing.sum(), None)


def test_who_answers_nothing_is_not_called_no_worse():
    found = replace(rows(np.zeros((6, 10))), second=np.full(60, MISSING))
    assert [each.word for each in each_way(found, 0.05)] == ["SUSPECT"] * 3


def test_a_reference_that_is_wrong_where_the_other_failed_is_not_hardly_ever_wrong():
    """A was right in all pairs that both answered, and wrong in half of those that B failed."""
    equal = rows(np.zeros((6, 10)))
    right, failed = np.ones(60), np.zeros(60)
    right[:10], failed[:20] = 0.0, MISSING
    found = replace(equal, first=right, second=np.where(np.isnan(failed), MISSING, right))
    assert [each.saturated for each in each_way(found, 0.05)] == [False] * 3
    assert [each.saturated for each in each_way(equal, 0.05)] == [True] * 3


@pytest.mark.parametrize("lost", [3, 6])
def test_a_dead_length_is_named_and_never_green(lost):
    """1 of 40 lengths was always wrong: no worse than 10 points, in compare and in ab."""
    losses = np.zeros((6, 40))
    losses[:lost, 7] = 1
    found = rows(losses, tuple(range(100, 4_100, 100)))
    for each in each_way(found, 0.1):
        assert each.word == "SUSPECT"
        assert f"length 800: {lost} of 6 lost" in verdict_of(each).evidence


def test_a_dead_length_that_is_sure_is_worse():
    losses = np.zeros((20, 4))
    losses[:, 3] = 1
    found = judge(rows(losses, (100, 200, 300, 400)), 0.5)
    assert found.word == "FAIL"
    assert "length 400: 20 of 20 lost, surely some" in verdict_of(found).evidence


def test_lengths_with_few_pairs_are_joined_with_their_neighbours():
    losses = np.zeros((1, 40))
    losses[0, 7:10] = 1
    found = judge(rows(losses, tuple(range(100, 4_100, 100))), 0.3)
    assert (500, 600, 700) not in [each.lengths for each in found.lengths]
    assert (800, 900, 1_000) in [each.lengths for each in found.lengths]


def test_a_family_that_is_dead_at_a_length_is_named():
    found = [
        JudgedPrompt(
            family, (stack, length, 0.5), stack, 1.0, float((family, length) != ("b", 200))
        )
        for family in ("a", "b", "c")
        for stack in range(6)
        for length in (100, 200, 300)
    ]
    judged = judge(Rows.of(found), 0.3)
    assert judged.word == "SUSPECT"
    assert [(each.family, each.lengths, each.lost) for each in judged.lengths] == [("b", (200,), 6)]


def test_what_breaks_after_the_verdict_takes_it_back():
    """ab stopped at 300 haystacks, and a server that lost 6 points from 400 on was no worse."""
    losses = np.zeros((400, 2))
    losses[300:] = 1
    found = each_way(rows(losses), 0.02)[2]
    assert found.word == "SUSPECT"


def test_without_a_margin_only_a_gain_is_no_worse():
    equal = judge(rows(np.zeros((100, 5))), 0.0)
    assert equal.word == "NOT ENOUGH DATA"
    assert "without a margin equal engines stay open" in verdict_of(equal).next
    gained = np.zeros((100, 5))
    gained[:, 0] = -1
    assert judge(rows(gained), 0.0).word == "PASS"


def test_a_reference_at_the_floor_proves_nothing():
    wrong = replace(rows(np.zeros((100, 5))), first=np.zeros(500), second=np.zeros(500))
    found = judge(wrong, 0.02)
    assert found.word == "NOT ENOUGH DATA"
    said = "not tested: all prompts (the reference scores 0.0, n=500)"
    assert said in verdict_of(found).evidence


def test_graded_scores_are_judged_by_their_size(random):
    found = rows(np.zeros((40, 12)))
    loss = 0.3 + random.normal(0, 0.02, len(found.second))
    assert judge(replace(found, second=1 - loss), 0.1).word == "FAIL"
    assert judge(replace(found, second=1 - loss), 0.4).word == "PASS"


def test_the_last_line_says_what_holds_for_which_pairs_and_when_it_was_measured():
    moments = "2026-11-23T07:10:30+00:00", "2026-11-23T07:45:00+00:00"
    found = judge(rows(np.zeros((100, 2))), 0.02, measured=moments)
    assert verdict_of(found, ("old", "new")).line("ab") == (
        "PASS ab: new loses less than 2 points: 0.0 (-2.6 to 1.9), 200 pairs at 1k; "
        "these prompts, measured 2026-11-23 07:10 to 07:45 UTC."
    )


def test_prompts_that_were_never_sent_are_not_lost_and_keep_the_word_from_pass():
    """A run that its limit stopped 'lost' all prompts that it had not reached."""
    whole = rows(np.zeros((100, 4)), (100, 200, 300, 400))
    left = whole.length == 400
    sent = replace(whole, second=np.where(left, MISSING, whole.second), tried=~left)
    found = judge(sent, 0.02)
    assert (found.word, found.unsent, found.n) == ("NOT ENOUGH DATA", 100, 300)
    assert (found.missing, found.lengths, found.loss.value) == (None, (), 0.0)
    assert verdict_of(found).evidence == "300 pairs at 100, 200, 300, 100 prompts not sent to both"
    assert verdict_of(found).next == "resume both runs until all is sent"
    assert judge(replace(sent, second=np.zeros(400)), 0.02).word == "FAIL"


def test_planned_pairs_that_were_sent_out_of_turn_are_not_still_to_be_asked():
    """'45 of 48 planned pairs are still to be asked' of a run that had 14 left."""
    whole = rows(np.zeros((12, 4)), (100, 200))
    left = np.arange(48) >= 34
    sent = replace(whole, second=np.where(left, MISSING, whole.second), tried=~left)
    found = judge(sent, 0.1, looks=planned_looks)
    assert (found.seen < 34, found.unsent) == (True, 14)
    assert verdict_of(found).next == "14 of 48 planned pairs are still to be asked"


def test_an_interval_that_holds_a_loss_only_points_to_one():
    """Eleven of 54 pairs were lost and none was gained: the code was 4, which may be passed."""
    losses = np.zeros((6, 9))
    for stack, lost in enumerate((2, 1, 3, 2, 3, 0)):
        losses[stack, :lost] = 1
    found = judge(rows(losses), 0.02)
    assert found.word == "SUSPECT"
    assert judge(rows(np.zeros((6, 9))), 0.02).word == "NOT ENOUGH DATA"


@pytest.mark.parametrize("margin", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("lengths", [2, 4, 10])
def test_a_length_that_is_surely_lost_decides_in_looks_too(margin, lengths):
    """`ab --until decided` ended undecided at margin 30 with '222 of 222 lost, which is sure'; a
    planned run had to ask all."""
    losses = np.zeros((60 * lengths, 1))
    losses[::lengths] = 1
    found = Rows.of(
        JudgedPrompt("", (stack, 1_000 * (1 + stack % lengths), 0.5), stack, 1.0, 1.0 - lost[0])
        for stack, lost in enumerate(losses)
    )
    for judged in each_way(found, margin):
        assert judged.word == "FAIL"
        assert judged.after is None or judged.after <= 30 * lengths
        at = next(each for each in judged.lengths if not each.family)
        assert (at.lengths, at.lost, at.n, at.sure) == ((1_000,), 60, 60, True)


def test_a_family_that_is_surely_lost_decides_in_looks_too():
    """The mean over four families lost 25 points, which a margin of 30 allows."""
    found = Rows.of(
        JudgedPrompt(name, (stack, 1_000, 0.5), 4 * stack + at, 1.0, float(name != "c"))
        for stack in range(60)
        for at, name in enumerate("abcd")
    )
    for judged in each_way(found, 0.3):
        assert judged.word == "FAIL"
        assert "c: 60 of 60 lost, surely some" in verdict_of(judged).evidence


def test_half_of_a_length_is_lost_surely_some_of_it():
    """A loss above 0 is shown, not that half is lost: the truth may be 28 of 100."""
    losses = np.zeros((80, 1))
    losses[1:43:2] = 1
    found = judge(rows(losses.reshape(40, 2), (1_000, 4_000)), 0.3)
    assert "length 4k: 21 of 40 lost, surely some" in verdict_of(found).evidence


def test_sure_is_only_said_if_the_verdict_follows():
    """9 lost of 9 are sure in one look, and one look after each haystack is not one look."""
    losses = np.zeros((18, 1))
    losses[1::2] = 1
    found = Rows.of(
        JudgedPrompt("", (stack, 1_000 * (1 + stack % 2), 0.5), stack, 1.0, 1.0 - lost[0])
        for stack, lost in enumerate(losses)
    )
    one, _, endless = each_way(found, 0.6)
    assert one.word == "FAIL"
    assert endless.word == "SUSPECT"
    assert "surely" not in verdict_of(endless).line("ab")
    assert "more haystacks decide" not in verdict_of(endless).line("ab")


def test_equal_arms_are_not_worse_at_one_of_many_lengths(random):
    said = 0
    for _ in range(60):
        chance = random.random((120, 1))
        losses = (chance < 0.1).astype(float) - (chance > 0.9)
        found = Rows.of(
            JudgedPrompt(
                "",
                (stack, 100 * (1 + stack % 40), 0.5),
                stack,
                float(lost[0] >= 0),
                float(lost[0] <= 0),
            )
            for stack, lost in enumerate(losses)
        )
        said += any(judged.word == "FAIL" for judged in each_way(found, 0.3))
    assert said <= 1


def test_missing_answers_that_alone_keep_it_open_end_the_asking():
    """B never answers one length of ten, and margin 30 allows that: no number of haystacks
    decides."""
    found = Rows.of(
        JudgedPrompt(
            "",
            (stack, 1_000 * (1 + stack % 10), 0.5),
            stack,
            1.0,
            None if stack % 10 == 3 else 1.0,
        )
        for stack in range(400)
    )
    judged = judge(found, 0.3, looks=endless_looks)
    assert (judged.word, judged.settled) == ("SUSPECT", True)
    assert "more haystacks decide" not in verdict_of(judged).line("ab")
    few = judge(found.where(found.haystack < 12), 0.3, looks=endless_looks)
    assert not few.settled


def test_missing_answers_beyond_the_margin_end_the_asking():
    found = Rows.of(
        JudgedPrompt("", (stack, 1_000, 0.5), stack, 1.0, None if stack % 8 == 0 else 1.0)
        for stack in range(2_000)
    )
    judged = judge(found, 0.02, looks=endless_looks)
    assert (judged.word, judged.settled) == ("SUSPECT", True)
    assert judge(found, 0.3, looks=endless_looks).word == "PASS"
