"""Answers of thousands of tokens: what the gauge of shape qwen3 copies, and how errors are told."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from needlemap.reports.renderers.text import to_text
from needlemap.servers.check import judge, report, schedule
from needlemap.servers.check.ask import LONG, Answers, Reply
from needlemap.servers.check.haystack import Options
from needlemap.servers.check.long_answers import LongAnswers, digits_of, long_item
from needlemap.servers.check.schedule import LONG_ANSWERS, Schedule
from needlemap.servers.gauge.copies import Copy, in_words, number_of
from needlemap.servers.gauge.model import chat
from needlemap.servers.gauge.shapes import engine_of

OPTIONS = Options(max_length=4_000, answer_tokens=24, around=120, holds=65_536, copies=4_000)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe as the package's metadata names it, whatever is installed."""
    known = {**schedule.probes(), LONG_ANSWERS: LongAnswers()}
    monkeypatch.setattr(schedule, "probes", lambda: known)
    monkeypatch.setattr(report, "probes", lambda: known)


def test_runs_of_six_digits_differ_in_two_places():
    number = number_of(2_000, Random(1))
    runs = {number[at : at + 6] for at in range(len(number) - 5)}
    blurred = {(place, run[:place] + run[place + 1 :]) for run in runs for place in range(6)}
    assert len(blurred) == 6 * len(runs) == 6 * 1_995


def test_qwen3_copies_a_number_and_goes_on_behind_a_stray_digit():
    number = number_of(300, Random(2))
    text = f"The locker code for Oslo is {number}. What is the locker code for Oslo?\nAnswer:"
    vocabulary, engine = chat().vocabulary, engine_of("qwen3")
    ids = vocabulary.encode(text, add_special_tokens=False).ids
    answer = vocabulary.encode(f"{number}.<|im_end|>", add_special_tokens=False).ids
    stray = 100
    changed = list(answer)
    changed[stray] = next(digit for digit in answer if digit != answer[stray])
    logits = engine.extend_all(np.array(ids + changed[:-1], np.int32))[-len(answer) :]
    wrong = np.flatnonzero(logits.argmax(axis=-1) != answer)
    assert len(wrong) <= 1
    assert all(stray < at <= stray + 6 for at in wrong)


def test_errors_are_told_with_their_bound_and_the_first_of_them():
    copies = [Copy.of("0123456789", "0123456789"), Copy.of("0123456789", "012345x789")]
    assert copies[1] == Copy(tokens=10, errors=1, first=7, stands="x789", wanted="6789")
    assert in_words(copies).startswith("1 error in 20 tokens (surely under ")
    assert in_words(copies).endswith("per 1,000); the first at 7: 'x789' for '6789'")


@pytest.mark.parametrize("stray", [None, 900])
def test_one_stray_digit_fails_the_row(stray):
    made = Schedule(OPTIONS, seed=3)
    probe = made.probes[LONG_ANSWERS]
    asks = [
        ask
        for haystack in made.first_round
        for batch in haystack.batches
        for ask in batch.asks
        if ask.way == LONG
    ]
    assert [ask.length for ask in asks] == [4_000, 4_000]
    right = f"{digits_of(made, asks[0])}."
    assert long_item(made, asks[0])["keywords"] == ["{number}"]
    said = right if stray is None else f"{right[:stray]}é{right[stray + 1 :]}"
    replies = [Reply(asks[0], right), Reply(asks[1], said)]
    (row,) = probe.judge(made, Answers(replies), 1).sizes
    assert (row.state, row.lost) == (("PASS", 0) if stray is None else ("FAIL", 1))
    assert ("the first at 901: 'é" in row.said) == (stray is not None)


@pytest.mark.parametrize("stray", [None, 900])
def test_the_report_has_tokens_and_bound_of_a_pass_too(stray):
    made, answers = Schedule(OPTIONS, seed=3), Answers()
    for ask in made.cells():
        right = f"{digits_of(made, ask)}." if ask.way == LONG else ask.secret
        answers.add(Reply.of(ask, right if stray is None else right[:stray]))
    shown = to_text(report.check_report(Path("c"), "m", judge(made, answers), ""), 200)
    (said,) = [line for line in shown.splitlines() if line.startswith("decode: ")]
    # Twice 1,872 digits and a full stop.
    errors, bound = (0, "1.37") if stray is None else (1_946, "")
    assert f"{errors:,} errors in 3,746 tokens (surely under {bound}" in said
    assert ("the first at 901" in said) == (stray is not None)
    assert not [line for line in shown.splitlines() if line.startswith("length: ")]


def test_no_other_model_is_asked():
    made = Schedule(Options(max_length=4_000, answer_tokens=24, around=120, holds=16_384))
    assert LONG_ANSWERS not in made.probes
    assert LONG_ANSWERS not in made.lacking
    named = Schedule(Options(max_length=4_000, answer_tokens=24, probes=(LONG_ANSWERS,)))
    assert named.lacking == {LONG_ANSWERS: "needs the gauge of shape qwen3"}
