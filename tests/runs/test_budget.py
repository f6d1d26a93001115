"""Limits stop a run cleanly, passed by no more than what was in flight; a higher limit goes on."""

from __future__ import annotations

import pytest

from needlemap.errors import SettingsError
from needlemap.money import Prices
from needlemap.runs.budget import Budget
from needlemap.runs.record import PromptRecord, Record
from needlemap.settings import Settings

GRID = ("--lengths", "200:400:5", "--depths", "0,50,100")  # 15 trials of up to 360 tokens
OWN = Prices("openai", "m", {"input": 2.0, "cached_input": 1.0, "output": 10.0})


def record(**changed) -> Record:
    return Record(
        key="k",
        task="single",
        model="m",
        length_tokens=100,
        depth=0,
        repeat=0,
        seed=0,
        **{"answer": "a"} | changed,
    )


def test_tokens_stop_a_run_and_a_higher_limit_goes_on(needlemap, wire):
    ended = needlemap.run(wire, *GRID, "--limit-tokens", "1000", "--concurrency", "3", code=3)
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("needlemap: stopped by the budget: used 1,")
    assert last.endswith("To go on: the same command with a higher limit and -o r")
    assert "not asked" in ended.stdout
    records = needlemap.records()
    used = [record["prompt_tokens"] + record["completion_tokens"] for record in records]
    assert sum(used) >= 1000
    assert sum(used) - sum(sorted(used)[-3:]) < 1000
    assert len(wire.log()) == len(records) < 15
    still = needlemap.run(wire, *GRID, "--limit-tokens", "1000", code=3)
    assert "stopped by the budget" in still.stderr
    assert len(wire.log()) == len(records)
    needlemap.run(wire, *GRID, "--limit-tokens", "100000")
    assert len(wire.log()) == 15


def test_dollars_stop_a_run_also_when_earlier_answers_had_no_price(needlemap, wire):
    needlemap.run(wire, "--lengths", "200", "--depths", "0,50,100")
    assert {record["usd"] for record in needlemap.records()} == {None}
    prices = ("--prices", "input=1000", "--prices", "output=1000")
    limited = needlemap.run(wire, *GRID, *prices, "--limit-usd", "0.2", code=3)
    assert "needlemap: stopped by the budget: spent 0." in limited.stderr
    assert len(wire.log()) == 3
    needlemap.run(wire, *GRID, *prices, "--limit-usd", "1", "--concurrency", "2", code=3)
    asked = len(wire.log())
    assert 3 < asked < 15
    paid = [record["usd"] for record in needlemap.records() if record["usd"]]
    assert len(paid) == asked - 3
    needlemap.run(wire, *GRID, *prices, "--limit-usd", "100")
    assert len(wire.log()) == 15


def test_a_limit_reached_by_the_last_trial_stops_nothing(needlemap, wire):
    ended = needlemap.run(wire, "--lengths", "200", "--depths", "0", "--limit-tokens", "10")
    assert "stopped" not in ended.stderr


def test_a_limit_in_dollars_needs_a_price(needlemap, wire):
    ended = needlemap.run(wire, *GRID, "--limit-usd", "1", code=2)
    assert "No price is known for 'openai/m', so --limit-usd cannot hold. Give --prices" in ended.stderr
    assert not (needlemap.folder / "r").exists()
    ended = needlemap.run(wire, *GRID, "--prices", "inputs=1", code=2)
    assert "Unknown part 'inputs' in --prices. Did you mean 'input'?" in ended.stderr


def test_a_model_that_reports_no_usage_is_counted_by_our_own_tokens():
    budget = Budget(OWN, limit_tokens=100)
    budget.add(record(prompt=PromptRecord(sha256="", tokens=99, haystack_tokens=50)))
    assert (budget.tokens, budget.spent) == (99, None)
    budget.add(record(prompt_tokens=1))
    assert budget.spent == "used 100 of 100 tokens"


def test_a_failure_costs_nothing_and_a_recorded_price_stays():
    budget = Budget(OWN, limit_usd=1)
    budget.add(record(answer=None))
    budget.add(record(usd=0.25, prompt_tokens=1_000_000))
    budget.add(record(prompt_tokens=100_000, cached_tokens=100_000, completion_tokens=10_000))
    assert budget.usd == pytest.approx(0.25 + 0.1 + 0.1)


def test_prices_need_input_and_output():
    with pytest.raises(SettingsError, match="needs input=USD and output=USD"):
        Prices.of(Settings(prices={"input": 1.0}))
