"""Two arms of an ab: what answers and log-probabilities of the same prompts come to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from needlemap.models import Logprobs
from needlemap.records.record import Record
from needlemap.reports.renderers.json import to_json
from needlemap.reports.renderers.text import to_text
from needlemap.servers.ab.arms import (
    ArmsChange,
    ArmTrial,
    LogprobShift,
    judge_arms,
    mean_move,
    trios,
    tripwire,
    worst_of,
)
from needlemap.servers.ab.report import ab_report


def record(
    score: float | None = 1.0, answer: str | None = "ab", repeat: int = 0, **more: Any
) -> Record:
    """A trial's record at length 100, depth 0."""
    named = {"key": f"{repeat}", "task": "single", "model": "m", "seed": 0, "failure": "timed out"}
    place = {"length_tokens": 100, "depth": more.pop("depth", 0.0), "repeat": repeat}
    return Record.model_validate(named | place | {"score": score, "answer": answer, **more})


def said(*rows: tuple[str, float, str, float], start: int = 100) -> Logprobs:
    """An answer's tokens with their log-probabilities, and the runners-up."""
    found = Logprobs.of(rows, "generated", start)
    assert found is not None
    return found


def trio(
    first: Record | None, second: Record | None, again: Record | None = None, number: int = 0
) -> ArmTrial:
    return ArmTrial("single", (number, 100, 0.0), first, second, again)


def test_the_token_that_ends_an_answer_is_the_same_however_a_server_spells_it():
    """llama-server spells it as '', so equal arms were 3 nats a token apart."""
    one, other = (
        record(logprobs=said(("7", -0.5, "1", -9.0), (end, 0.0, "1", -46.0)))
        for end in ("<|im_end|>", "")
    )
    assert mean_move(one, other) == mean_move(other, one) == 0
    goes_on = record(logprobs=said(("7", -0.5, "1", -9.0), ("8", 0.0, "1", -46.0)))
    assert mean_move(goes_on, record(logprobs=said(("7", -0.5, "1", -9.0)))) == 0
    assert mean_move(goes_on, one) == -46


def test_an_answer_that_never_ends_where_the_other_does_is_wrong():
    stops, runs_on = record(finish="stop"), record(finish="length")
    assert trio(stops, runs_on).scores == (1.0, 0.0)
    assert trio(runs_on, stops).scores == (0.0, 1.0)
    assert trio(runs_on, runs_on).scores == (1.0, 1.0)  # so with a base model
    assert trio(record(None), None).scores == (None, None)


def test_an_answer_that_is_missing_is_no_loss_and_makes_no_pair():
    """The tables counted it as wrong, next to a verdict that counted it as missing."""
    right, missing, pair = record(), record(None), trio(record(), record(0.0))
    trials = [trio(right, missing), trio(missing, right), trio(missing, missing)]
    assert [(trial.loss, trial.is_pair) for trial in trials] == [(None, False)] * 3
    assert not trio(right, None).is_pair
    change = ArmsChange.of([*trials, pair])
    assert (change.n, change.missing, change.lost, change.gained) == (1, 3, 1, 0)
    assert (change.loss, ArmsChange.of(trials).loss) == (1.0, None)


def test_the_same_answer_moves_by_its_mean_log_probability():
    one, other = (
        said(("a", -0.1, "x", -3), ("b", -0.3, "y", -2)),
        said(("a", -0.2, "x", -3), ("b", -0.6, "y", -2)),
    )
    assert mean_move(record(logprobs=one), record(logprobs=other)) == pytest.approx(-0.2)
    assert mean_move(record(), record(logprobs=other)) is None


def test_another_answer_counts_to_its_first_other_token_by_the_runner_up_there():
    one = said(("a", -0.1, "x", -3), ("b", -0.3, "y", -2), ("c", -0.1, "z", -4))
    runner_up = said(("a", -0.1, "x", -3), ("y", -0.5, "b", -1.3), ("d", -9.0, "e", -9.5))
    neither = said(("a", -0.1, "x", -3), ("q", -0.5, "y", -1.3))
    assert mean_move(record(logprobs=one), record(logprobs=runner_up)) == pytest.approx(
        (0 - 2.5) / 2
    )
    assert mean_move(record(logprobs=one), record(logprobs=neither)) == pytest.approx((0 - 2.5) / 2)


def test_a_model_that_is_all_but_sure_moves_by_its_lead_over_the_runner_up():
    """With the gauge nothing moved, where `check` saw 0.053 nats: its log-probabilities are 0."""
    one, other = said(("4", 0.0, "7", -12.1)), said(("4", 0.0, "7", -12.047))
    assert mean_move(record(logprobs=one), record(logprobs=other)) == pytest.approx(-0.053)
    bare = [Logprobs(("4",), (nats,), (None,), (None,), "generated", 100) for nats in (-0.1, -0.4)]
    assert mean_move(record(logprobs=bare[0]), record(logprobs=bare[1])) == pytest.approx(-0.3)
    assert mean_move(record(logprobs=one), record(logprobs=bare[1])) == pytest.approx(-0.4)


def test_an_answer_that_was_weighed_says_more_than_its_beginning():
    written, weighed = (
        said(("a", -0.1, "x", -3)),
        [said(("a", at, "x", -3)) for at in (-0.2, -0.9, -0.25)],
    )
    records = [record(logprobs=each) for each in weighed]
    found = ArmTrial(
        "single", (0, 100, 0.0), record(logprobs=written), record(), None, tuple(records)
    )
    assert (found.nats, found.own_nats) == (pytest.approx(-0.7), pytest.approx(-0.05))
    assert found.way == "generated"


def test_the_position_of_the_first_other_token_counts_the_prompt():
    one, other = (
        said(("a", -0.1, "x", -3), ("b", -1, "c", -1.1)),
        said(("a", -0.1, "x", -3), ("c", -1, "b", -1.1)),
    )
    found = trio(record(logprobs=one), record(answer="ac", logprobs=other))
    assert found.tokens_before_difference == 101
    assert found.difference is not None
    assert found.difference.second_token is not None
    assert (found.difference.second_token.text, found.difference.second_token.other) == ("c", "b")


def test_prompts_come_haystack_by_haystack_and_families_in_turn():
    arms = [[record(repeat=number, answer=arm) for number in (1, 0)] for arm in ("a", "b", "c")]
    found = trios({"keys": arms, "edges": arms})
    assert [(each.place[0], each.family) for each in found] == [
        (0, "keys"),
        (0, "edges"),
        (1, "keys"),
        (1, "edges"),
    ]
    assert found[0].repeat is not None
    assert found[0].repeat.answer == "c"


def judged(losses: list[float], margin: float = 0.02) -> Any:
    """Of haystacks of one prompt each; 1: lost, -1: gained."""
    pairs = [
        trio(record(float(lost >= 0)), record(float(lost <= 0)), number=at)
        for at, lost in enumerate(losses)
    ]
    return judge_arms(pairs, margin, stops=True)


def test_equal_answers_are_no_worse_after_as_many_haystacks_as_it_says():
    least = 1 + judged([0.0]).loss.new.more
    assert judged([0.0] * (least - 1)).loss.word == "NOT ENOUGH DATA"
    found = judged([0.0] * least).loss
    assert (found.word, found.scope, found.after) == ("PASS", "new", least)


def test_losses_beyond_the_margin_are_worse_and_a_few_are_not():
    assert judged([1.0] * 12).loss.word == "FAIL"
    assert judged([1.0] * 4).loss.word == "SUSPECT"


def test_a_loss_below_the_margin_is_no_worse_however_sure():
    random = Random(1)
    losses = [1.0 if random.random() < 0.035 else 0.0 for _ in range(5_000)]
    assert judged(losses, 0.05).loss.word == "PASS"
    assert judged(losses, 0.01).loss.word == "FAIL"


def test_a_haystack_is_one_bet_however_many_prompts_it_made():
    pairs = [
        ArmTrial(
            "single",
            (0, 100, depth / 100),
            record(depth=depth / 100),
            record(0.0, depth=depth / 100),
        )
        for depth in range(60)
    ]
    found = judge_arms(pairs, 0.02, stops=True).loss
    assert (found.word, found.new.n) == ("SUSPECT", 1)


def test_an_arm_that_answers_nothing_does_not_pass():
    lost = [trio(record(), record(None), number=at) for at in range(3)]
    found = judge_arms(lost, 0.02)
    assert found.loss.word == "SUSPECT"
    assert (found.loss.missing.second, found.failed) == (3, (3, 0))


def test_the_line_of_the_pairs_has_the_numbers_of_the_verdict():
    """It counted pairs of a family that is not tested, and large families for more: 'ref 62.5 %,
    new 52.5 %' next to a loss of 20 points."""
    many = [trio(record(), record(float(at % 5 > 0)), number=at) for at in range(40)]
    few = [trio(record(), record(), number=at) for at in range(10)]
    guesses = [trio(record(float(at % 4 == 0)), record(0.0), number=at) for at in range(20)]
    trials = [
        replace(trial, family=family)
        for family, family_trials in (("many", many), ("few", few), ("guesses", guesses))
        for trial in family_trials
    ]
    report = ab_report(Path("ab"), ("ref", "new"), trials, margin=20)
    text = to_text(report)
    assert "50 pairs of 50 haystacks: ref 100.0 %, new 90.0 %, 8 lost, 0 gained\n" in text
    assert "new loses 10.0 points (" in text
    found = to_json(report)
    assert (found["pairs"], found["lost"], found["loss"]["value"]) == (50, 8, 10.0)
    rows = [(row["family"], row["pairs"], row["loss"], row["lost"]) for row in found["families"]]
    assert rows == [("many", 40, 20.0, 8), ("few", 10, 0.0, 0), ("guesses", 20, 25.0, 5)]


def test_answers_that_count_as_wrong_since_they_did_not_stop_are_counted():
    """'100.0 to 0.0' of two equal answers, where report of the arm has 100 %, and no word why."""
    trials = [trio(record(finish="stop"), record(finish="length"), number=at) for at in range(3)]
    text = to_text(ab_report(Path("ab"), ("ref", "new"), trials, margin=20))
    assert (
        "note: 3 answers of new ran on to the end of the budget where ref stopped: counted as wrong"
    ) in text


def test_the_row_of_a_family_is_what_is_said_of_the_family_alone():
    """Parts of a score had McNemar's p, and a length that is not tested was in the means."""
    graded = [trio(record(1.0), record(0.75), number=at) for at in range(5)]
    graded.append(trio(record(0.0), record(1.0), number=5))
    halves = to_json(ab_report(Path("ab"), ("ref", "new"), graded, margin=20))["families"]
    # However the signs are turned, the sum is 0.25 or more: p is 1, where McNemar's was 0.22.
    assert [(row["lost"], row["gained"], row["p"]) for row in halves] == [(5, 1, 1.0)]
    long = [
        replace(trio(record(float(at == 0)), record(0.0), number=at), place=(at, 900, 0.0))
        for at in range(20)
    ]
    trials = [*(trio(record(), record(), number=20 + at) for at in range(20)), *long]
    found = to_json(ab_report(Path("ab"), ("ref", "new"), trials, margin=20))
    (row,) = found["families"]
    assert (row["pairs"], row["reference"], row["other"]) == (found["pairs"], 100.0, 100.0)


def test_a_change_between_the_first_and_the_last_third_is_marked():
    """A server that lost 6 points from haystack 400 on, and nothing in the words said so."""
    late = [1.0 if at >= 250 and at % 4 == 0 else 0.0 for at in range(300)]
    drift = judged(late, 0.05).drift
    assert (drift.first_loss, round(drift.last_loss, 2)) == (0.0, 0.12)
    assert judged([1.0 if at % 8 == 0 else 0.0 for at in range(300)]).drift is None


def test_nothing_is_proved_where_the_reference_is_never_right():
    pairs = [trio(record(0.0), record(0.0), number=at) for at in range(500)]
    found = judge_arms(pairs, 0.02)
    assert (found.loss.word, found.loss.floored) == ("NOT ENOUGH DATA", True)


def test_the_tripwire_heeds_a_small_shift_of_all_and_a_large_one_of_few():
    random = Random(2)
    own = [random.gauss(0, 0.02) for _ in range(200)]
    equal = [random.gauss(0, 0.02) for _ in range(200)]
    wires = [
        LogprobShift.of(found, own)
        for found in (equal, [each + 0.05 for each in equal], [*equal[:160], *[-0.4] * 40])
    ]
    assert [wire.tripped for wire in wires if wire is not None] == [False, True, True]


def test_the_tripwire_wants_log_probabilities_of_all():
    assert tripwire([trio(record(), record())]) is None
    kept = record(logprobs=said(("a", -0.1, "x", -3)))
    found = tripwire([trio(kept, kept, kept)])
    assert found is not None
    assert (found.n, found.again_n, found.tripped) == (1, 1, False)


def test_the_worst_prompts_are_lost_ones_then_those_that_became_less_likely():
    high, low = said(("a", -0.1, "x", -3)), said(("a", -0.9, "x", -3))
    lost = trio(record(), record(0.0, "c"), number=2)
    shifted = trio(record(logprobs=high), record(logprobs=low), number=1)
    same = trio(record(logprobs=high), record(logprobs=high), number=3)
    unanswered = trio(record(), record(None), number=4)
    assert worst_of([same, shifted, unanswered, lost], 0.1) == [lost, unanswered, shifted]


def test_a_prompt_that_moved_no_more_than_usual_is_none_of_the_worst():
    one, other = said(("a", -0.1, "x", -3)), said(("a", -0.2, "x", -3))
    assert worst_of([trio(record(logprobs=one), record(logprobs=other))], 0.5) == []
