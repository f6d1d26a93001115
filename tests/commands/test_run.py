"""`needlemap run` as a user meets it: the real command against a real server."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from itertools import pairwise

import pytest

from needlemap.settings import Settings
from needlemap.settings.suites import choose

GRID = ("--lengths", "200,300", "--depths", "0,50,100")
NEEDLE = "The locker code for Turin is 51328."
PRINTED = """\
200  100.0  n=3 [41.5, 100.0]
300  100.0  n=3 [41.5, 100.0]
depth   0%  100.0  n=2 [33.1, 100.0]
depth  50%  100.0  n=2 [33.1, 100.0]
depth 100%  100.0  n=2 [33.1, 100.0]
overall 100.0 (n=6, 0 missing) [55.5, 100.0]
"""


def summary(out: str) -> str:
    """Standard output without its title."""
    return out.partition("\n")[2]


@pytest.mark.parametrize(
    ("flags", "path"),
    [
        ([], "/v1/chat/completions"),
        (["--model-options", "api=completions"], "/v1/completions"),
        (["--model", "anthropic/claude-x"], "/v1/messages"),
    ],
)
def test_every_wire_format_gives_a_map_and_whole_records(needlemap, wire, flags, path):
    ended = needlemap.run(wire, *GRID, *flags)
    assert summary(ended.stdout) == PRINTED
    assert "2 lengths x 3 depths x 1 = 6 trials · 1,260 prompt tokens (cl100k_base)" in ended.stderr
    assert "run: r\n" in ended.stderr
    assert [(request["path"], request["temperature"]) for request in wire.log()] == [(path, 0)] * 6

    records = needlemap.records()
    assert len({record["key"] for record in records}) == 6
    assert {(record["length_tokens"], record["depth"]) for record in records} == {
        (length, depth) for length in (200, 300) for depth in (0, 0.5, 1)
    }
    for record in records:
        assert record["score"] == 1
        assert record["reference"] == NEEDLE
        assert record["answer"].endswith(NEEDLE)
        assert record["question"] == "What is the locker code for Turin?"
        assert record["prompt"]["tokens"] == record["length_tokens"] - 40
        assert len(record["prompt"]["sha256"]) == 64
        assert abs(record["needles"][0]["realised"] - record["needles"][0]["meant"]) < 0.25
        assert record["usage"]
        assert record["prompt_tokens"] > 60
        assert record["completion_tokens"] >= 7
        assert record["cached_tokens"] is not None
        assert record["answered_by"] in ("m", "claude-x")
        assert record["finish"] == "stop"
        assert record["latency_s"] > 0
        assert record["attempts"] == 1
        assert record["scorer"] == {
            "name": "substring",
            "options": {"words": [], "anywhere": False},
            "scale": [0.0, 1.0],
            "native": 1.0,
            "why": {"found": ["51328"], "missing": []},
            "mean": False,
            "ratio": None,
            "unreadable": False,
            "usd": 0.0,
            "rule": record["scorer"]["rule"],  # which it is, tests/scorers tell
        }
        assert record["failure"] is None
        assert record["finished_at"].endswith("+00:00")

    about = json.loads((needlemap.folder / "r" / "run.json").read_text())
    assert about["schema"] == 2
    assert about["settings"]["lengths"] == "200,300"
    assert about["haystacks"][0]["name"].startswith("generated")
    assert len(about["haystacks"][0]["sha256"]) == 64
    assert about["tokenizer"]["name"] == "cl100k_base"
    assert about["cells"][0] == [200, 0.0, [0]]


def test_the_recorded_hash_is_that_of_what_was_sent(needlemap, wire):
    needlemap.run(wire, *GRID)
    assert wire.prompt_counts() == Counter(
        record["prompt"]["sha256"] for record in needlemap.records()
    )


def test_nothing_is_asked_twice_and_new_cells_and_repeats_are_asked_alone(needlemap, wire):
    needlemap.run(wire, *GRID)
    again = needlemap.run(wire, *GRID)
    assert "6 already scored, 0 to ask" in again.stderr
    assert summary(again.stdout) == PRINTED
    assert len(wire.log()) == 6
    wider = needlemap.run(wire, "--lengths", "200,300,400", "--depths", "0,50,100")
    assert "6 already scored, 3 to ask" in wider.stderr
    assert "400  100.0  n=3" in wider.stdout
    more = needlemap.run(wire, *GRID, "--first-repeat", "1")
    assert "6 trials" in more.stderr
    assert "200  100.0  n=6" in more.stdout
    assert "400  100.0  n=3" in more.stdout  # cells of earlier starts stay in the map
    assert set(wire.prompt_counts().values()) == {1}
    assert len(wire.log()) == 15


def test_quiet_prints_the_map_alone_and_without_saving_leaves_nothing(needlemap, wire):
    flags = [flag for flag in needlemap.asking(wire) if flag not in ("-o", "r")]
    ended = needlemap("run", *flags, *GRID, "--quiet", "--no-save")
    assert summary(ended.stdout) == PRINTED
    assert ended.stderr == ""
    assert list(needlemap.folder.iterdir()) == []


def test_contexts_are_saved_on_request(needlemap, wire):
    needlemap.run(wire, *GRID, "--save-contexts")
    files = sorted((needlemap.folder / "r" / "contexts").iterdir())
    assert len(files) == 6
    assert files[0].name == "len_200_depth_0_repeat_0.txt"
    asked = [request["body"]["messages"][-1]["content"] for request in wire.log()]
    for file in files:
        context = file.read_text("utf-8")
        assert NEEDLE in context
        assert any(context in text for text in asked)
    alone = (*GRID, "--save-contexts", "--no-save")
    needlemap("run", *needlemap.asking(wire)[:-2], *alone)  # as the older tool: the contexts alone
    assert sorted((needlemap.folder / "contexts").iterdir())[0].name == files[0].name


def test_a_pause_rests_after_each_answer(needlemap, wire):
    needlemap.run(wire, *GRID, "--pause-s", "0.2", "--concurrency", "1")
    times = [request["time"] for request in wire.log()]
    assert all(later - earlier >= 0.2 for earlier, later in pairwise(times))


def test_a_function_of_ones_own_is_a_model(needlemap):
    (needlemap.folder / "mine.py").write_text(
        "def answer(messages):\n"
        "    text = messages[-1]['content']\n"
        "    return text[text.find('The locker'):].split('.')[0] + '\\ud800 \\x1b[31m.'\n"
    )
    needlemap("run", "--model", "python/mine:answer", *GRID, "--max-answer-tokens", "40", "-o", "r")
    records = needlemap.records()
    assert {record["answer"] for record in records} == {
        "The locker code for Turin is 51328? \x1b[31m."
    }
    assert {record["prompt_tokens"] for record in records} == {None}


def test_a_function_that_never_returns_is_timed_out_and_does_not_hold_the_end_up(needlemap):
    (needlemap.folder / "mine.py").write_text(
        "import time\ndef answer(messages):\n    time.sleep(1000)\n"
    )
    start = time.monotonic()
    flags = ("--lengths", "400", "--depths", "0", "--timeout-s", "0.5", "--retries", "0")
    ended = needlemap("run", "--model", "python/mine:answer", *flags, "-o", "r", code=3)
    assert "not measured: 1 timed out;" in ended.stderr
    assert time.monotonic() - start < 110


def test_a_function_that_always_raises_ends_the_run_early(needlemap):
    (needlemap.folder / "mine.py").write_text(
        "async def answer(messages):\n    return messages['oops']\n"
    )
    ended = needlemap(
        "run", "--model", "python/mine:answer", "--depths", "0:100:21", "-o", "r", code=2
    )
    assert "stopped, every request would fail: mine:answer: TypeError" in ended.stderr
    assert 3 <= len(needlemap.records()) <= 7


def test_without_arguments_it_begins_a_real_map_in_an_empty_folder(needlemap, until):
    """That the model answers at every length of it: tests/models/test_demo.py."""
    process = needlemap.start("run")
    (run,) = until(lambda: list(needlemap.folder.glob("runs/*/records-*.jsonl")))
    until(lambda: run.stat().st_size > 2_000)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=250)
    assert "demo/retriever · single · 10 lengths x 11 depths x 6 in 511 trials" in said
    name = f"runs/{run.parent.name}"
    assert said.endswith(f"What was scored is kept; to go on: the same command with -o {name}\n")
    assert all(record["score"] is not None for record in needlemap.records(name))
    assert "overall " in needlemap("report", name).stdout


def test_flags_that_change_no_answer_leave_the_run_without_arguments_as_it_is():
    assert choose(None, {"quiet": True, "depths": "0"}) == choose(
        "demo", {"quiet": True, "depths": "0"}
    )
    assert choose(None, {"scorer": "exact"}).first.model == Settings().model
