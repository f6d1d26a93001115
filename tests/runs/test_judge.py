"""A judge works beside the model: slow, unreadable or failing, it loses no answer and delays no request."""

from __future__ import annotations

from typing import Any

GRID = ("--lengths", "200,300", "--depths", "0:100:8")  # 16 trials


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
    assert "overall 100.0 (n=13, 0 missing)" in ended.stdout  # 16 trials, 13 different prompts
    asked = [request["time"] for request in wire.log()]
    verdicts = [request["time"] for request in judge.log()]
    assert len(asked) == len(verdicts) == 16
    assert asked[-1] - asked[0] < 1.5  # one after the other they would take 16 / 4 x 0.5 s
    assert max(request["open"] for request in judge.log()) > 4
    record = needlemap.records()[0]
    assert record["scorer"]["native"] == 10
    assert record["scorer"]["why"]["usage"]["prompt_tokens"] > 100


def test_an_unreadable_verdict_leaves_the_trial_unscored_and_the_run_goes_on(needlemap, wire, wires):
    judge = wires("--answer", "I would say it is fine.")
    flags = ("--lengths", "200", "--depths", "0,50,100")
    ended = needlemap.run(wire, *flags, *judged(judge, attempts=2), code=1)
    assert "not measured: 3 judge unreadable." in ended.stderr
    assert len(judge.log()) == 6
    for record in needlemap.records():
        assert record["answer"]
        assert (record["score"], record["failure"]) == (None, "judge unreadable")
        assert "asked 2 times and gave no whole number 1..10; it said: I would say" in record["error"]


def test_a_judge_whose_context_is_too_short_does_not_keep_the_model_from_long_prompts(needlemap, wire, wires):
    judge = wires("--max-context", "10")
    flags = ("--lengths", "200,300,400", "--depths", "0,100", "--concurrency", "1")
    ended = needlemap.run(wire, *flags, *judged(judge), code=1)
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
        "needlemap: Scorer 'keyword' needs a task with keywords. Type: --scorer levenshtein" in ended.stderr
    )
    assert wire.log() == []
