"""One rule for all commands: what a failed request means for the next ones."""

from __future__ import annotations

from typing import Any

import pytest

from needlemap.asking import Outcome
from needlemap.asking.failures import ARM_GONE, FIRST, GONE, Failures, is_hopeless
from needlemap.errors import Failure, Unmeasured
from needlemap.records.record import Record


def record(failure: Failure | None = None, **more: Any) -> Record:
    named = {"key": "k", "task": "single", "model": "m", "seed": 0, "length_tokens": 100}
    answer = None if failure else "a"
    about = {"depth": 0.0, "repeat": 0, "answer": answer, "failure": failure and str(failure)}
    return Record.model_validate(named | about | more)


def take(failures: Failures, *kinds: Failure | None, answered: bool = False) -> str:
    """Return why the asking ended after some requests, None for one that was answered."""
    for kind in kinds:
        failures.take(record(kind), 100, None, answered=answered)
    return failures.ended


def test_the_first_three_of_any_kind_before_an_answer_end_what_asks_a_server():
    late = [Failure.TIMED_OUT] * (FIRST - 1)
    assert take(Failures(), *late) == ""
    assert take(Failures(), *late, Failure.TIMED_OUT) == "timed out"
    assert take(Failures(), *late, Failure.TIMED_OUT, answered=True) == ""


def test_a_run_may_be_late_for_long_prompts_and_go_on_to_shorter_ones():
    late = Unmeasured(Failure.TIMED_OUT, "late")
    assert not is_hopeless(late, FIRST, answered=False)
    assert is_hopeless(Unmeasured(Failure.SERVER, "500"), FIRST, answered=False)
    assert not is_hopeless(Unmeasured(Failure.SERVER, "500"), FIRST - 1, answered=False)
    assert not is_hopeless(Unmeasured(Failure.SERVER, "500"), FIRST, answered=True)


def test_a_refused_key_ends_everything_at_once():
    assert is_hopeless(Unmeasured(Failure.UNAUTHORISED, "401"), 1, answered=True)


@pytest.mark.parametrize("gone", [GONE, ARM_GONE])
def test_a_server_that_answers_no_more_is_gone_after_as_many_failures_in_a_row(gone):
    failures = Failures(gone=gone)
    assert take(failures, *[Failure.SERVER] * (gone - 1), None, answered=True) == ""
    ended = take(failures, *[Failure.SERVER] * gone, answered=True)
    assert ended.startswith(f"{gone} requests in a row had no answer")


def test_a_batch_without_an_answer_stands_in_a_row():
    failures = Failures(gone=4)
    failures.take_batch(Outcome(failures={"timed out": 3}))
    failures.take_batch(Outcome(scored=1, failures={"timed out": 3}))
    failures.take_batch(Outcome(failures={"timed out": 3}))
    assert failures.ended == ""
    failures.take_batch(Outcome(failures={"server error": 1}))
    assert failures.ended == "server error"


def test_too_long_is_no_failure_of_the_server_and_its_least_length_is_kept():
    failures = Failures()
    for length in (900, 400, 700):
        failures.take(
            record(Failure.TOO_LONG, error=f"{length} is too long"), length, None, answered=False
        )
    assert (failures.refused_from, failures.refusal, failures.ended) == (400, "400 is too long", "")
