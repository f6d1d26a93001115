"""The first trial alone: what would make a run worthless is seen before the rest is paid for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from needlemap.asking.canary import begins_twice
from needlemap.prompts import TEXT, Message, Prompt
from needlemap.text.tokens import TokenText, join

GRID = ("--lengths", "200,300", "--depths", "0,50,100")


def stopped(needlemap: Any, wire: Any, *flags: str, asked: int = 1) -> str:
    """The last line of a run that the canary stopped after so many requests."""
    ended = needlemap.run(wire, *GRID, *flags, code=2)
    assert len(wire.log()) == asked
    last: str = ended.stderr.splitlines()[-1]
    assert last.startswith("needlemap: stopped before spending more. ")
    elsewhere = (
        " Other settings want another folder than r: give one with -o."  # only where it is true
    )
    assert last.endswith(elsewhere) == any(
        record["answer"] is not None for record in needlemap.records()
    )
    assert last.removesuffix(elsewhere).endswith("To go on all the same: --no-canary.")
    return last


def test_the_first_trial_counts_as_one_of_the_runs(needlemap, wire):
    needlemap.run(wire, *GRID)
    records = needlemap.records()
    assert len(wire.log()) == len(records) == len({record["key"] for record in records}) == 6
    assert wire.log()[0]["prompt_words"] == min(request["prompt_words"] for request in wire.log())
    alone = [request for request in wire.log() if request["open"] == 0]
    assert len(alone) >= 2  # nothing was sent beside it, so that the next one found nobody either


@pytest.mark.parametrize(
    ("fault", "saw", "advice"),
    [
        ("404", "The model `m` does not exist", "The server lists wire. Type: --model openai/wire"),
        ("400", "Unsupported value: 'temperature' does not support 0", "Add --temperature none."),
        (
            "empty-answer",
            "got an empty answer (finish 'stop', 0 tokens written)",
            "api=completions",
        ),
        (
            "reasoning-spent",
            "got an empty answer (finish 'length', 40",
            "give --thinking-tokens 160 or more",
        ),
        ("thinking", "got an empty answer (finish 'length'", "--thinking-tokens 4000"),
        (
            "wrong-shape",
            "could not be measured: The reply holds no choice",
            "Check --model, --base-url",
        ),
    ],
)
def test_what_is_wrong_with_the_settings_stops_the_run_at_once_and_says_what_to_type(
    needlemap, wire, fault, saw, advice
):
    wire.schedule(fault)
    last = stopped(needlemap, wire)
    assert "The first trial (200 tokens, depth " in last
    assert saw in last
    assert advice in last


def test_a_context_refused_at_the_shortest_length_ends_the_run(needlemap, wires):
    wire = wires("--max-context", "50")
    ended = needlemap.run(wire, *GRID, code=2)
    assert "the model refused prompts of 200 tokens and more" in ended.stderr
    assert len(wire.log()) == 1


def test_three_small_trials_without_a_hit_stop_a_chat_model_also_when_it_is_started_again(
    needlemap, wire
):
    wire.schedule("say:No idea \x1b[2J.", cycle=True)
    last = stopped(needlemap, wire, asked=3)
    assert (
        "3 trials of up to 200 tokens all scored 0; to 'What is the locker code for Turin?'" in last
    )
    assert "it said 'No idea [2J.', by scorer 'substring'" in last
    assert "\x1b" not in last
    stopped(needlemap, wire, asked=3)
    needlemap.run(wire, *GRID, "--no-canary")
    assert len(wire.log()) == 6


def test_one_small_miss_is_no_reason_to_stop(needlemap, wire):
    wire.schedule("say:No idea.", "say:No idea.")
    ended = needlemap.run(wire, *GRID)
    assert "overall 66.7" in ended.stdout


def test_a_base_model_that_misses_is_warned_about_and_asked_on(needlemap, wire):
    wire.schedule("say:No idea.", cycle=True)
    ended = needlemap.run(wire, *GRID, "--model-options", "api=completions")
    assert "warning: 3 trials of up to 200 tokens all scored 0" in ended.stderr
    assert len(wire.log()) == 6


def test_a_refusal_is_scored_and_warned_about(needlemap, wire):
    wire.schedule("refusal")
    ended = needlemap.run(wire, *GRID)
    assert "was refused: 'I cannot help with that.'" in ended.stderr
    assert "outcomes: 5 scored · 1 refused by the model" in ended.stderr


def test_a_passing_failure_of_the_first_trial_stops_nothing(needlemap, wire):
    wire.schedule("500")
    needlemap.run(wire, *GRID, "--retries", "0", code=3)
    assert len(wire.log()) == 6


def test_a_template_that_spells_the_first_token_is_found_before_anything_is_sent(needlemap, wire):
    (needlemap.folder / "t.yaml").write_text(
        "text: '<s>{haystack} Q: {question} A:'", encoding="utf-8"
    )
    flags = ("--model-options", "api=completions", "--template", "t.yaml")
    assert "The template begins with <s>, which the server adds too" in stopped(
        needlemap, wire, *flags, asked=0
    )


def test_models_of_this_process_need_no_canary(needlemap):
    needlemap(
        "run", "--model", "baseline/random", "--lengths", "1k", "--depths", "0:100:5", "-o", "b"
    )


def test_ids_that_begin_with_one_token_twice_are_told():
    once, twice = (join([TokenText(b"a" * len(ids), np.array(ids, np.int32), np.arange(len(ids) + 1))])  # noqa: E501
                   for ids in ([1, 5, 5], [1, 1, 5]))  # fmt: skip
    assert not begins_twice(Prompt((Message(TEXT, (once.span(),)),)))
    assert begins_twice(Prompt((Message(TEXT, (twice.span(),)),)))
    assert not begins_twice(Prompt.plain([("user", "aa")]))
