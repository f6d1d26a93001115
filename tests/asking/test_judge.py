"""A judge works beside the model: slow, unreadable or failing, it loses no answer and delays no
request."""

from __future__ import annotations

import csv
import json
import re
from typing import Any

import pytest

GRID = ("--lengths", "300,400", "--depths", "0:100:8")  # 16 trials


def judged(wire: Any, model: str = "judge", **options: object) -> tuple[str, ...]:
    """The flags of a judge on a server."""
    chosen = ["--scorer", "judge", "--scorer-options", f"model=openai/{model}"]
    chosen += ["--scorer-options", f"judge_options={{base_url: '{wire.base_url}'}}"]
    for name, value in options.items():
        chosen += ["--scorer-options", f"{name}={value}"]
    return tuple(chosen)


def test_a_slow_judge_holds_no_request_back(needlemap, wire, wires):
    judge = wires("--schedule", '["slow:0.5"]', "--cycle", "--answer", "Score: 10")
    ended = needlemap.run(wire, *GRID, *judged(judge), "--concurrency", "4")
    assert "overall 100.0 (n=16, 0 missing)" in ended.stdout
    asked = [request["time"] for request in wire.log()]
    verdicts = [request["time"] for request in judge.log()]
    assert len(asked) == len(verdicts) == 16
    assert asked[-1] - asked[0] < 1.5  # one after the other they would take 16 / 4 x 0.5 s
    assert max(request["open"] for request in judge.log()) > 4
    record = needlemap.records()[0]
    assert record["scorer"]["native"] == 10
    assert record["scorer"]["why"]["usage"]["prompt_tokens"] > 100


PRICES = ("--prices", "input=1000", "--prices", "output=1000")
FREE = ("--prices", "input=0", "--prices", "output=0")


def test_what_a_judge_costs_counts_in_dollars_and_is_shown(needlemap, wire, wires):
    judge = wires("--answer", "Score: 10")
    flags = (
        *GRID,
        *FREE,
        *judged(judge, prices="{input: 100, output: 1000}"),
        "--concurrency",
        "1",
    )
    planned = needlemap("plan", *needlemap.asking(wire)[:-2], *flags)
    most = float(re.search(r"^judge: ([0-9.]+) dollars more, at most", planned.stdout, re.M)[1])
    ended = needlemap.run(wire, *flags, "--limit-usd", "0.1", code=3)
    assert "stopped by the budget: spent 0.1" in ended.stderr
    costs = [record["scorer"]["usd"] for record in needlemap.records()]
    used = [record["scorer"]["why"]["usage"] for record in needlemap.records()]
    assert costs == [
        pytest.approx((use["prompt_tokens"] * 100 + use["completion_tokens"] * 1000) / 1e6)
        for use in used
    ]
    assert 0.1 <= sum(costs) <= 0.1 + 5 * max(costs)  # with the verdicts that were in flight
    assert f"judge: ${sum(costs):.4f}" in ended.stderr
    whole = needlemap.run(wire, *flags, "--limit-usd", "9")
    assert "$" in whole.stderr
    assert sum(record["scorer"]["usd"] for record in needlemap.records()) < most
    needlemap("report", "r", "--format", "trials", "-o", "t.csv")
    rows = list(csv.DictReader((needlemap.folder / "t.csv").read_text("utf-8").splitlines()))
    assert float(rows[0]["judge_usd"]) == pytest.approx(costs[0])


def test_a_limit_in_dollars_needs_the_judges_price_too(needlemap, wire, wires):
    judge = wires("--answer", "Score: 10")
    flags = (*GRID, *PRICES, "--limit-usd", "5")
    refused = needlemap.run(wire, *flags, *judged(judge), code=2)
    assert "No price is known for the judge, so --limit-usd cannot hold." in refused.stderr
    assert "--scorer-options 'prices={input: USD, output: USD}'" in refused.stderr
    assert wire.log() == judge.log() == []
    wrong = needlemap.run(wire, *flags, *judged(judge, prices="{inputs: 1}"), code=2)
    assert (
        "Unknown part 'inputs' in option 'prices' of Judge. Did you mean 'input'?" in wrong.stderr
    )
    few = ("--lengths", "300", *flags[2:], *judged(judge, prices="{input: 0, output: 0}"))
    needlemap.run(wire, *few)
    needlemap.run(
        wire, *GRID, *judged(judge, prices="{input: 1, output: 1}")
    )  # prices change no score
    assert len(judge.log()) == len(wire.log()) == 16


def test_verdicts_that_cannot_be_read_cost_as_much(needlemap, wire, wires):
    judge = wires("--answer", "I would say it is fine.")
    flags = (
        "--lengths",
        "200",
        "--depths",
        "0",
        *judged(judge, attempts=2, prices="{input: 0, output: 1000}"),
    )
    needlemap.run(wire, *flags, code=3)
    (record,) = needlemap.records()
    assert record["scorer"]["usd"] == pytest.approx(2 * 6 * 1000 / 1e6)
    assert "judge: $0.0360" in needlemap.run(wire, *flags, "--repeats", "2", code=3).stderr


def test_what_a_verdict_cost_before_a_passing_failure_is_not_forgotten(needlemap, wire, wires):
    judge = wires("--schedule", '["say:I would rather not.", "500", "ok"]', "--answer", "Score: 10")
    flags = (
        "--lengths",
        "200",
        "--depths",
        "0",
        *judged(judge, prices="{input: 0, output: 1000000}"),
    )
    needlemap.run(wire, *flags)
    assert len(judge.log()) == 3
    (record,) = needlemap.records()
    readable = record["scorer"]["why"]["usage"]["completion_tokens"]
    assert record["scorer"]["usd"] > readable  # the first, unreadable one was paid for too


def test_an_unreadable_verdict_leaves_the_trial_unscored_and_the_run_goes_on(
    needlemap, wire, wires
):
    judge = wires("--answer", "I would say it is fine.")
    flags = ("--lengths", "200", "--depths", "0,50,100")
    ended = needlemap.run(wire, *flags, *judged(judge, attempts=2), code=3)
    assert "not measured: 3 judge unreadable;" in ended.stderr
    assert len(judge.log()) == 6
    for record in needlemap.records():
        assert record["answer"]
        assert (record["score"], record["failure"]) == (None, "judge unreadable")
        assert (
            "Asked 2 times. Judge 'openai/judge' gave no whole number 1..10; it said: I would say"
            in record["error"]
        )


def test_a_judge_whose_context_is_too_short_does_not_keep_the_model_from_long_prompts(
    needlemap, wire, wires
):
    judge = wires("--max-context", "10")
    flags = ("--lengths", "200,300,400", "--depths", "0,100", "--concurrency", "1")
    ended = needlemap.run(wire, *flags, *judged(judge), code=3)
    assert "not measured: 6 prompt too long" in ended.stderr
    assert len(wire.log()) == 6
    assert all("Judge 'openai/judge'" in record["error"] for record in needlemap.records())


def test_a_judge_without_a_key_is_found_before_anything_is_asked(needlemap, wire):
    ended = needlemap.run(wire, *GRID, "--scorer", "judge", code=2)
    assert ended.stderr.splitlines()[-1] == (
        "needlemap: No key for api.openai.com. Type: export OPENAI_API_KEY=YOUR-KEY"
    )
    assert wire.log() == []


def test_a_scorer_that_the_task_does_not_fit_is_found_before_anything_is_asked(needlemap, wire):
    item = ("--needle", "Ann eats figs.", "--question", "What does Ann eat?")
    ended = needlemap.run(wire, *GRID, *item, "--scorer", "keyword", code=2)
    assert (
        "needlemap: Scorer 'keyword' needs a task with keywords. Type: --scorer levenshtein"
        in ended.stderr
    )
    assert wire.log() == []


def test_the_judges_address_of_the_environment_is_in_the_key(needlemap, wires):
    """Another judge's verdicts went on under the same keys."""
    one, other = wires("--answer", "Score: 10"), wires("--answer", "Score: 1")
    typed = ("run", "bm25", "--lengths", "500", "--depths", "0,100", "-o", "r")
    typed += ("--scorer", "judge", "--scorer-options", "model=openai/judge")
    needlemap.environment |= {"OPENAI_BASE_URL": one.base_url, "OPENAI_API_KEY": "none"}
    needlemap(*typed)
    about = json.loads((needlemap.folder / "r" / "run.json").read_text())
    assert about["scorer"]["options"]["judge_options"] == {"base_url": one.base_url}
    needlemap.environment |= {"OPENAI_BASE_URL": other.base_url}
    judged = len(one.log())
    assert "other settings: scorer" in needlemap(*typed, code=2).stderr
    assert other.log() == []
    chosen = "--scorer-options", f"judge_options={{base_url: '{one.base_url}'}}"
    needlemap(*typed, *chosen)
    assert len(one.log()) == judged > 0
