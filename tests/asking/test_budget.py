"""Limits stop a run cleanly, passed by no more than what was in flight; a higher limit goes on."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from needlemap.asking import Outcome
from needlemap.asking.budget import Budget
from needlemap.asking.session import Session
from needlemap.errors import Failure, SettingsError, Unmeasured
from needlemap.models import Answer, Decoding, Model
from needlemap.prompts import Prompt
from needlemap.records.record import PromptRecord, Record, ScorerRecord
from needlemap.reports.live import LiveView
from needlemap.reports.run_notes import Tally
from needlemap.settings import Settings
from needlemap.settings.prices import Prices
from needlemap.settings.reading import configure
from needlemap.trials.build import prepare

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


def spent(records: list[dict]) -> int:
    return sum(
        (record["prompt_tokens"] or 0) + (record["completion_tokens"] or 0) for record in records
    )


def test_tokens_stop_a_run_and_a_higher_limit_goes_on(needlemap, wire):
    ended = needlemap.run(wire, *GRID, "--limit-tokens", "1k", "--concurrency", "3", code=3)
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("NO RESULT run: stopped by the budget: used ")
    assert " of 1,000 tokens, and the next request may take " in last
    assert last.endswith("; to go on: the same command with a higher limit and -o r.")
    assert "skipped by budget" in ended.stdout
    records = needlemap.records()
    assert 700 <= spent(records) <= 1000
    assert len(wire.log()) == len(records) < 15
    still = needlemap.run(wire, *GRID, "--limit-tokens", "1000", code=3)
    assert "stopped by the budget" in still.stderr
    assert len(wire.log()) == len(records)
    needlemap.run(wire, *GRID, "--limit-tokens", "0.1M")
    assert len(wire.log()) == 15


def test_a_limit_is_never_passed_however_many_requests_are_open_and_however_long_they_answer(
    needlemap, wire
):
    wire.schedule("slow:0.2", "say:" + "word " * 39, cycle=True)
    needlemap.run(wire, *GRID, "--limit-tokens", "1500", "--concurrency", "9", code=3)
    assert 1000 <= spent(needlemap.records()) <= 1500


class Scripted(Model):
    """A model in this process: what `script` makes of the number of a request, from 1 on."""

    name = "m"

    def __init__(self, script: Callable[[int], Awaitable[Answer]]) -> None:
        self.script, self.asked = script, 0

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        self.asked += 1
        return await self.script(self.asked)


def limited(folder: Path, **settings: Any) -> Session:
    """A run of 15 trials that has not begun, in this process."""
    grid = {"lengths": "200:400:5", "depths": "0,50,100", "max_answer_tokens": 40}
    return Session.open(prepare(configure(None, grid | settings)), folder / "r")


def asked(session: Session, script: Callable[[int], Awaitable[Answer]]) -> tuple[Scripted, Outcome]:
    model = Scripted(script)
    return model, asyncio.run(session.run(model, LiveView()))


def test_time_stops_a_run_and_the_same_command_goes_on(needlemap, wire):
    ended = needlemap.run(wire, *GRID, "--limit-time", "0.001", code=3)
    assert (
        "The time limit ended while prompts were built. Give a longer --limit-time" in ended.stderr
    )
    assert wire.log() == []
    needlemap.run(wire, *GRID, "--limit-time", "10m")
    assert len(wire.log()) == 15


def test_answers_that_came_when_the_time_was_up_are_scored_as_they_were_paid(tmp_path):
    session, all_out = limited(tmp_path, limit_time=3600, concurrency=4), asyncio.Event()

    async def script(number: int) -> Answer:
        if number == 4:
            session.budget.limit_time_s = 0  # the time is up now
            all_out.set()
        await all_out.wait()
        return Answer("7")

    model, outcome = asked(session, script)
    assert (model.asked, outcome.scored) == (4, 4)
    assert outcome.stopped == "ran for 0 s, as long as --limit-time allows"
    assert {record.outcome for record in session.folder.records()} == {"scored"}


def test_time_is_not_spent_waiting_for_a_rate_limit(tmp_path):
    session = limited(tmp_path, limit_time=3600, concurrency=1)

    async def script(number: int) -> Answer:
        if number == 1:
            return Answer("7")
        session.budget.limit_time_s = 3600 - session.budget.left_s() + 0.2
        raise Unmeasured(Failure.RATE_LIMITED, "busy", transient=True, retry_after_s=300)

    _, outcome = asked(session, script)
    assert outcome.stopped is not None
    assert [record.outcome for record in session.folder.records()] == ["scored"]
    assert outcome.failures == {}


def test_under_a_limit_short_lengths_are_asked_first_and_whole(needlemap, wire):
    ended = needlemap.run(wire, *GRID, "--limit-tokens", "2400", "--concurrency", "4", code=3)
    assert "fit for certain. Short lengths are asked first" in ended.stderr
    done = Counter(record["length_tokens"] for record in needlemap.records())
    assert [done[length] for length in (200, 250, 300)] == [
        3,
        3,
        3,
    ]  # the walk would begin with 400
    assert not done[400]


def test_what_a_run_may_cost_is_said_before_it_asks_and_how_much_of_it_a_limit_lets_pass(
    needlemap, wire
):
    small = ("--lengths", "200,400", "--depths", "0,50,100")
    unpriced = needlemap.run(wire, *small)
    assert (
        "at most 1,800 tokens, every answer using its whole budget; no price is known\n"
        in unpriced.stderr
    )
    prices = ("--prices", "input=1000", "--prices", "output=2000", "-o", "priced")
    ended = needlemap.run(wire, *small, *prices, "--limit-usd", "1", code=3)
    # 160 tokens and 40 of the answer, three times, and 360 and 40 three times
    assert (
        "at most 1,800 tokens, every answer using its whole budget; $2.0400 (your own"
        in ended.stderr
    )
    assert (
        "note: a limit may cut this short ($0.0000 of $1 used): 3 of 6 trials fit" in ended.stderr
    )
    again = needlemap.run(wire, *small, *prices)
    assert "a limit" not in again.stderr


def test_a_model_in_this_process_without_limits_has_no_cost_to_tell(needlemap):
    ended = needlemap(
        "run", "--model", "baseline/bm25", "--lengths", "1k", "--depths", "0", "-o", "r"
    )
    assert "at most" not in ended.stderr
    assert "1 length x 1 depth x 1 = 1 trial · " in ended.stderr


def test_what_is_said_at_the_end_counts_what_was_in_flight_when_the_limit_was_reached(
    needlemap, wire
):
    wire.schedule("slow:0.3", cycle=True)
    ended = needlemap.run(
        wire, *GRID, "--limit-tokens", "2000", "--concurrency", "9", "--no-canary", code=3
    )
    assert f"used {spent(needlemap.records()):,} of 2,000 tokens, and " in ended.stderr


def test_a_request_that_does_not_fit_is_left_out_and_one_that_fits_is_asked():
    budget = Budget(OWN, limit_tokens=100)

    async def reserved() -> list[bool]:
        return [await budget.reserve(size, 10) is not None for size in (200, 80, 300)]

    assert asyncio.run(reserved()) == [False, True, False]
    assert budget.stopped == "used 0 of 100 tokens, and the next request may take 210"


def test_a_report_says_which_trials_the_budget_skipped_until_they_are_asked(needlemap, wire):
    needlemap.run(wire, *GRID, "--limit-tokens", "1k", code=3)
    scored = len(needlemap.records())
    shown = needlemap("report", "r").stdout
    assert f"outcomes: {scored} scored · {15 - scored} skipped by budget" in shown
    needlemap.run(wire, *GRID)
    assert "outcomes" not in needlemap("report", "r").stdout


def test_dollars_stop_a_run_also_when_earlier_answers_had_no_price(needlemap, wire):
    needlemap.run(wire, "--lengths", "200", "--depths", "0,50,100")
    assert {record["usd"] for record in needlemap.records()} == {None}
    prices = ("--prices", "input=1000", "--prices", "output=1000")
    limited = needlemap.run(wire, *GRID, *prices, "--limit-usd", "0.2", code=3)
    assert "NO RESULT run: stopped by the budget: spent 0." in limited.stderr
    assert len(wire.log()) == 3
    needlemap.run(wire, *GRID, *prices, "--limit-usd", "1", "--concurrency", "2", code=3)
    asked = len(wire.log())
    assert 3 < asked < 15
    paid = [record["usd"] for record in needlemap.records() if record["usd"]]
    assert len(paid) == asked - 3
    needlemap.run(wire, *GRID, *prices, "--limit-usd", "100")
    assert len(wire.log()) == 15


def test_a_request_that_does_not_fit_is_not_sent(needlemap, wire):
    ended = needlemap.run(
        wire, "--lengths", "200", "--depths", "0", "--limit-tokens", "199", code=3
    )
    assert "used 0 of 199 tokens, and the next request may take 200" in ended.stderr
    assert wire.log() == []
    needlemap.run(wire, "--lengths", "200", "--depths", "0", "--limit-tokens", "200")


def test_a_limit_in_dollars_needs_a_price(needlemap, wire):
    ended = needlemap.run(wire, *GRID, "--limit-usd", "1", code=2)
    assert (
        "No price is known for 'openai/m', so --limit-usd cannot hold. Give --prices"
        in ended.stderr
    )
    assert not (needlemap.folder / "r").exists()
    ended = needlemap.run(wire, *GRID, "--prices", "inputs=1", code=2)
    assert "Unknown part 'inputs' in --prices. Did you mean 'input'?" in ended.stderr


def test_a_model_that_reports_no_usage_is_counted_by_our_own_tokens():
    budget = Budget(OWN, limit_tokens=100)
    budget.add(record(prompt=PromptRecord(sha256="", tokens=99, haystack_tokens=50)))
    assert budget.tokens == 99
    budget.add(record(prompt_tokens=1))
    assert (budget.tokens, budget.state()) == (100, "100 of 100 tokens")


def test_requests_that_timed_out_count_as_they_may_be_billed(needlemap, wire):
    wire.schedule("slow:60", cycle=True)
    slow = ("--timeout-s", "0.5", "--retries", "5", "--concurrency", "1", "--no-canary")
    ended = needlemap.run(wire, *GRID, *slow, "--limit-tokens", "850", code=3)
    assert "stopped by the budget: used 800 of 850 tokens" in ended.stderr
    assert len(wire.log()) == 5  # of 160 tokens each: a sixth might have been too many
    (only,) = needlemap.records()
    assert (only["outcome"], only["attempts"]) == ("timed out", 5)
    assert only["unread"] == {"attempts": 5, "prompt_tokens": 800, "answer_tokens": 0, "usd": None}
    wire.schedule()
    still = needlemap.run(wire, *GRID, "--limit-tokens", "850", code=3)
    assert "used 800 of 850 tokens" in still.stderr
    assert len(wire.log()) == 5


def test_an_answer_that_was_scored_anew_was_paid_once_and_each_verdict_for_itself():
    budget, verdict = Budget(OWN), ScorerRecord(name="judge", usd=0.25)
    budget.add(record(prompt_tokens=100, usd=0.5, scorer=verdict))
    budget.add(record(prompt_tokens=100, usd=0.5, scorer=verdict, rescored=True))
    assert (budget.tokens, budget.usd) == (100, 1.0)


@pytest.mark.parametrize(("typed", "seconds"), [("90s", 90), ("1h30m", 5400), ("2", 2), (0.5, 0.5)])
def test_durations_are_typed_as_people_say_them(typed, seconds):
    assert Settings(limit_time=typed).limit_time == seconds


def test_a_duration_that_is_none_is_refused_in_words(needlemap):
    ended = needlemap("run", "--limit-time", "soon", code=2)
    assert "'soon' is no duration. Write 90s, 30m or 1h30m." in ended.stderr


def test_a_failure_costs_nothing_and_a_recorded_price_stays():
    budget = Budget(OWN, limit_usd=1)
    budget.add(record(answer=None))
    budget.add(record(usd=0.25, prompt_tokens=1_000_000))
    budget.add(record(prompt_tokens=100_000, cached_tokens=100_000, completion_tokens=10_000))
    assert budget.usd == pytest.approx(0.25 + 0.1 + 0.1)


def test_prices_need_input_and_output():
    with pytest.raises(SettingsError, match="needs input=USD and output=USD"):
        Prices.of(Settings(prices={"input": 1.0}))


def test_the_line_that_shows_a_run_under_way_says_what_is_used_of_each_limit():
    budget = Budget(OWN, limit_usd=5, limit_tokens=100_000, limit_time_s=3600)
    budget.add(record(usd=0.25, prompt_tokens=1_000))
    line = Tally(3, 0, budget.state).line()
    assert line == "0/3 scored · $0.2500 of $5 · 1,000 of 100,000 tokens · 0 s of 1 h 00 min"


def billed(requests: list[dict[str, object]]) -> int:
    """What a server computed: its words of all prompts that it did not refuse."""
    return sum(int(str(request["prompt_words"])) for request in requests)


@pytest.mark.parametrize(
    "fault", ["null-content", "cut", "reset", "invalid-json", "slow:9", "wrong-shape"]
)
def test_requests_that_were_sent_and_could_not_be_read_count_over_all_starts(
    needlemap, wire, fault
):
    """They cost a limit nothing, were retried, and each start began at nothing again."""
    wire.schedule(fault, "ok", cycle=True)
    flags = ("--limit-tokens", "1300", "--retries", "3", "--concurrency", "4", "--timeout-s", "1")
    for _ in range(3):
        needlemap.run(wire, *GRID, *flags, "--no-canary", code=None)
    rows = needlemap.records()
    assert sum(row["unread"]["attempts"] for row in rows) >= 1
    assert spent(rows) + sum(row["unread"]["prompt_tokens"] for row in rows) <= 1300
    assert billed(wire.log()) <= 1300


def test_a_reply_that_cannot_be_read_counts_by_its_own_usage(needlemap, wire):
    usage = {"prompt_tokens": 300, "completion_tokens": 40}
    wire.schedule("ok", f"raw:{json.dumps({'choices': [], 'usage': usage})}")
    prices = ("--prices", "input=1000", "--prices", "output=2000", "--limit-usd", "10")
    needlemap.run(
        wire, "--lengths", "200", "--depths", "0,100", *prices, "--concurrency", "1", code=3
    )
    (failed,) = [row for row in needlemap.records() if row["failure"]]
    assert failed["unread"] == {
        "attempts": 1,
        "prompt_tokens": 300,
        "answer_tokens": 40,
        "usd": 0.38,
    }


@pytest.mark.parametrize("fault", ["500", "503", "429-quota", "401", "404", "unwritten"])
def test_requests_that_were_refused_cost_nothing(needlemap, wire, fault):
    wire.schedule("ok", *[fault] * 9)
    grid = ("--lengths", "200", "--depths", "0,100", "--retries", "0", "--concurrency", "1")
    needlemap.run(wire, *grid, code=None)
    (failed,) = [row for row in needlemap.records() if row["failure"]]
    assert failed["unread"] == {"attempts": 0, "prompt_tokens": 0, "answer_tokens": 0, "usd": 0.0}
