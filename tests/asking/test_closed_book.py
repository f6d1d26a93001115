"""The control: each question once without a haystack. Who is right then proves nothing by a map."""

from __future__ import annotations

import json

from needlemap.asking import pacer_of as pacer

GRID = ("--lengths", "200,300", "--depths", "0,50,100")


def test_each_question_is_asked_once_without_a_haystack_and_the_known_ones_are_named(
    needlemap, wire
):
    wire.schedule("ok", "say:It is 51328.")
    ended = needlemap.run(wire, *GRID, "--repeats", "3", "--closed-book", "--concurrency", "1")
    assert (
        "closed book: 1/3 right without a haystack: 'What is the locker code for Turin?'."
        in ended.stderr
    )
    assert "(n=18, 0 missing)" in ended.stdout  # the control is no cell of the map
    alone = [request for request in wire.log() if request["prompt_words"] < 20]
    assert len(alone) == 3
    assert all(len(request["body"]["messages"]) == 1 for request in alone)
    assert len(wire.log()) == 18 + 3
    assert "closed book: 1/3 right" in needlemap("report", "r").stdout
    needlemap("report", "r", "-o", "r.html")
    page = (needlemap.folder / "r.html").read_text("utf-8")
    assert ">closed book: 1/3 right" in page  # the page said nothing of it


def test_it_is_asked_once_over_all_starts_also_of_a_finished_run(needlemap, wire):
    needlemap.run(wire, *GRID)
    assert "closed book" not in needlemap("report", "r").stdout
    ended = needlemap.run(wire, *GRID, "--closed-book")
    assert "closed book: 0/1 right without a haystack" in ended.stderr
    assert len(wire.log()) == 7
    needlemap.run(wire, *GRID, "--closed-book")
    assert len(wire.log()) == 7


def test_what_failed_is_asked_again_and_its_cost_counts(needlemap, wire):
    wire.schedule("ok", "500")
    flags = (*GRID, "--closed-book", "--retries", "0", "--concurrency", "1")
    ended = needlemap.run(wire, *flags)
    assert "closed book: 0/0 right without a haystack, 1 not measured" in ended.stderr
    ended = needlemap.run(wire, *flags)
    assert "closed book: 0/1 right" in ended.stderr
    assert len(wire.log()) == 6 + 2
    lines = (needlemap.folder / "r" / "closed-book.jsonl").read_text("utf-8").splitlines()
    used = [json.loads(line) for line in lines]
    spent = sum(
        row["prompt_tokens"] + row["completion_tokens"] for row in needlemap.records() + used[1:]
    )
    more = ("--lengths", "200,300,400", "--depths", "0,50,100", "--limit-tokens", str(spent + 1))
    assert f"used {spent:,} of" in needlemap.run(wire, *more, code=3).stderr


def test_the_model_in_the_box_knows_no_codes(needlemap):
    needlemap("run", "--lengths", "128", "--depths", "0", "--closed-book", "-o", "d")
    assert "closed book: 0/" in needlemap("report", "d").stdout


def test_a_line_torn_by_a_kill_takes_no_later_one_with_it(needlemap, wire):
    flags = (*GRID, "--closed-book")
    needlemap.run(wire, *flags)
    file = needlemap.folder / "r" / "closed-book.jsonl"
    file.write_bytes(file.read_bytes()[:-40])
    assert "closed book: 0/1 right" in needlemap.run(wire, *flags).stderr
    assert len(wire.log()) == 7 + 1
    needlemap.run(wire, *flags)
    assert len(wire.log()) == 7 + 1


def test_a_question_that_no_text_answers_is_not_asked_without_one(needlemap):
    """A model that always says "none" was once said to know half of the answers."""
    (needlemap.folder / "denier.py").write_text("def answer(messages):\n    return 'none'\n")
    asked = (
        "--task",
        "multikey",
        "--task-options",
        "absent=0.5",
        "--lengths",
        "600",
        "--depths",
        "0:100:11",
    )
    ended = needlemap("run", *asked, "--model", "python/denier:answer", "--closed-book", "-o", "r")
    answered = [row["scorer"]["why"]["present"] for row in needlemap.records()]
    assert 0 < answered.count(True) < len(answered) == 11
    assert f"closed book: 0/{answered.count(True)} right without a haystack" in ended.stderr


def test_it_keeps_to_the_limits_of_the_trials(needlemap, wire, monkeypatch):
    """It had requests a minute of its own, so that both together asked twice as often."""
    made = []
    monkeypatch.setattr(
        "needlemap.asking.runner.pacer_of",
        lambda *args, **kwargs: made.append(1) or pacer(*args, **kwargs),
    )
    needlemap.run(wire, *GRID, "--closed-book", "--requests-per-minute", "6000")
    assert made == [1]
