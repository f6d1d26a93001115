"""Balanced accuracy: two rates, their mean and its interval, from records that say what was
there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from needlemap.records.loaded import Loaded
from needlemap.records.record import PromptRecord, Record, ScorerRecord
from needlemap.reports.run_notes import Balance, Rate, balance, balance_lines
from needlemap.stats import prompts_of
from needlemap.stats.intervals import cluster_mean, wilson


def record(
    number: int, score: float | None, why: dict[str, Any], prompt: str | None = None
) -> Record:
    return Record(
        key=f"k{number}",
        task="magic",
        model="m",
        length_tokens=1000,
        depth=number / 1000,
        repeat=0,
        seed=0,
        score=score,
        failure=None if score is not None else "timed out",
        prompt=PromptRecord(sha256=prompt or f"p{number}", tokens=900, haystack_tokens=800),
        scorer=ScorerRecord(name="only", why=why),
    )


def rows(found: int, there: int, rejected: int, not_there: int, named: int = 0) -> list[Record]:
    present = [
        record(at, float(at < found), {"present": True, "decoys": []}) for at in range(there)
    ]
    absent = [
        record(
            100 + at,
            float(at < rejected),
            {"present": False, "decoys": ["x"] if rejected <= at < rejected + named else []},
        )
        for at in range(not_there)
    ]
    return [*present, *absent]


def test_rates_of_haystacks_that_differ_have_wider_intervals_as_means_do():
    """Ten haystacks of eight: every answer of half of them right, or half of the answers of
    each."""
    half = [(repeat, float(repeat % 2)) for repeat in range(10) for _ in range(8)]
    alike = [(repeat, float(at % 2)) for repeat in range(10) for at in range(8)]
    clustered, single = Rate.of(half), Rate.of(alike)
    assert (clustered.share, single.share) == (0.5, 0.5)
    assert (single.low, single.high) == pytest.approx(wilson(40, 80))
    assert clustered.high - clustered.low > 2 * (single.high - single.low)
    made = cluster_mean(np.array([[float(repeat % 2)] * 8 for repeat in range(10)]))
    assert (clustered.low, clustered.high) == pytest.approx((made.low, made.high))


def test_few_haystacks_are_taken_to_agree_a_little():
    one = Rate.of([(0, 1.0)] * 15 + [(0, 0.0)] * 5)
    assert one.high - one.low > wilson(15, 20)[1] - wilson(15, 20)[0]


def test_a_run_names_the_reasons_that_its_scorers_gave(loaded: Loaded):
    """Notes that need a reason look through its records only then."""
    judged = replace(loaded, records=(*loaded.records, record(0, 1.0, {"present": True})))
    assert (loaded.reasons, judged.reasons) == (frozenset(), {"present"})


def balance_of(records: list[Record]) -> Balance | None:
    return balance(prompts_of(records))


def test_it_is_the_mean_of_both_rates_however_many_each_has():
    made = balance_of(rows(9, 10, 15, 20, named=3))
    assert made is not None
    assert made.accuracy[0] == pytest.approx((0.9 + 0.75) / 2)
    assert (made.false.hits, made.false.n, made.named) == (5, 20, 3)
    assert (made.false.low, made.false.high) == pytest.approx(
        (1 - made.rejected.high, 1 - made.rejected.low)
    )


def test_its_interval_adds_both_rates_distances_in_squares():
    made = balance_of(rows(9, 10, 15, 20))
    assert made is not None
    low1, high1, low2, high2 = (
        made.found.low,
        made.found.high,
        made.rejected.low,
        made.rejected.high,
    )
    share, low, high = made.accuracy
    assert low == pytest.approx(share - np.hypot(0.9 - low1, 0.75 - low2) / 2)
    assert high == pytest.approx(share + np.hypot(high1 - 0.9, high2 - 0.75) / 2)


def test_its_interval_holds_the_truth_as_often_as_it_says():
    """Simulated: 95 % of 2,000 draws, within what chance allows and a little on the safe side."""
    random = np.random.default_rng(1)
    for p, q, n, m in ((0.9, 0.6, 40, 60), (0.5, 0.95, 30, 30)):
        inside = 0
        for _ in range(2000):
            hits = int(random.binomial(n, p)), int(random.binomial(m, q))
            found, rejected = (Rate(h, k, *wilson(h, k)) for h, k in zip(hits, (n, m), strict=True))
            _, low, high = Balance(found, rejected, 0).accuracy
            inside += low <= (p + q) / 2 <= high
        assert 0.94 <= inside / 2000 <= 0.975


def test_an_answer_that_is_always_the_same_gets_one_half():
    assert balance_of(rows(0, 10, 20, 20)).accuracy[0] == 0.5  # always "none"
    assert balance_of(rows(10, 10, 0, 20)).accuracy[0] == 0.5  # always what is there


def test_graded_scores_count_as_they_are():
    half = record(0, 0.5, {"present": True}), record(100, 1.0, {"present": False})
    assert balance_of(half).found.share == 0.5


def test_a_prompt_that_was_asked_twice_counts_once_and_what_was_not_measured_does_not():
    twice = [record(at, 1.0, {"present": True}, prompt="same") for at in range(3)]
    failed = [record(50, None, {}), record(100, 1.0, {"present": False})]
    made = balance_of([*twice, *failed])
    assert (made.found.n, made.rejected.n) == (1, 1)


@pytest.mark.parametrize(
    "records",
    [
        [],
        [record(0, 1.0, {})],
        [record(0, 1.0, {"present": True})],
        [record(0, 1.0, {"present": False})],
    ],
)
def test_without_both_kinds_of_question_there_is_none(records):
    assert balance_of(records) is None
    assert balance_lines(prompts_of(records)) == []


def test_what_was_made_up_counts_apart_from_what_the_text_holds():
    there = record(0, 1.0, {"present": True})
    whys = [
        {"decoys": ["x"], "invented": []},
        {"decoys": [], "invented": ["y"]},
        {"decoys": [], "invented": []},
    ]
    made = balance_of(
        [there, *(record(100 + at, 0.0, {"present": False, **why}) for at, why in enumerate(whys))]
    )
    assert (made.false.hits, made.named, made.invented) == (3, 1, 1)


def test_the_lines_of_a_report():
    assert balance_lines(prompts_of(rows(9, 10, 15, 20, named=3))) == [
        "balanced accuracy: 82.5 [58.4, 91.9], the mean of two rates: found where it was there "
        "9/10 = 90.0 "
        "[52.7, 98.6], denied where it was not 15/20 = 75.0 [44.6, 91.8]",
        "false answers: 5/20 = 25.0 [8.2, 55.4]; 3 of them took what the text holds instead, 0 "
        "made a "
        "value up",
    ]
