"""Several processes on one run: they share its units, and whatever becomes of them, nothing scored is lost or
asked twice."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import Counter
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest

GRID = ("--lengths", "200:400:5", "--depths", "0:100:8")  # 40 trials
DEADLY = """
import os, signal
from hashlib import sha256
def answer(messages):
    if sha256(messages[-1]["content"].encode()).hexdigest() == os.environ.get("DEADLY"):
        os.kill(os.getpid(), signal.SIGKILL)
    return "I do not know."
"""


def living(needlemap: Any, *, writing: bool = False) -> list[int]:
    """The process numbers of workers that run. (One that was killed and not waited for yet does not.)

    writing: of those that have recorded something.
    """
    found = []
    for row in needlemap.workers():
        if writing and not (needlemap.folder / "r" / (row["records"] or "nothing")).exists():
            continue
        try:
            stat = Path(f"/proc/{row['pid']}/stat").read_text()
        except OSError:
            continue
        found += [] if stat.rpartition(")")[2].split()[0] == "Z" else [row["pid"]]
    return found


def gone(needlemap: Any, pid: int) -> bool:
    return pid not in living(needlemap)


def scored_once(needlemap: Any, trials: int) -> None:
    """Every trial was scored, and none twice."""
    assert len(needlemap.scored()) == trials
    assert set(needlemap.scored().values()) == {1}


def test_two_workers_record_what_one_process_does(needlemap):
    grid = ("--lengths", "96:256:3", "--depths", "0:100:4", "--repeats", "2")
    needlemap("run", "demo", *grid, "-o", "one")
    done = needlemap("run", "demo", *grid, "-o", "two", "--workers", "2")
    assert needlemap.answered("two") == needlemap.answered("one")
    assert "workers: 2 ended · units: " in done.stderr
    both = [row["records"] for row in needlemap.workers("two")]
    assert {file.name for file in (needlemap.folder / "two").glob("records-*")} <= set(both)


def test_a_killed_worker_costs_the_answers_in_flight(needlemap, wire, until):
    wire.schedule("slow:0.2", cycle=True)
    process = needlemap.start("run", *needlemap.asking(wire), *GRID, "--workers", "2", "--concurrency", "2")
    os.kill(until(lambda: living(needlemap, writing=True))[0], signal.SIGKILL)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert "overall 100.0 (n=36, 0 missing)" in out
    assert re.search(r"process-(\d) on \S+: killed by SIGKILL; log: \S+process-\1\.log", err)
    scored_once(needlemap, 40)
    repeated = wire.asked() - Counter(row["prompt"]["sha256"] for row in needlemap.records())
    assert repeated.total() <= 2


def test_sigterm_ends_a_worker_which_gives_its_units_back(needlemap, wire, until):
    wire.schedule("slow:0.5", cycle=True)
    process = needlemap.start("run", *needlemap.asking(wire), *GRID, "--workers", "2")
    os.kill(until(lambda: living(needlemap, writing=True))[0], signal.SIGTERM)
    _, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert "told to stop" in err
    assert list((needlemap.folder / "r/launches/1").glob("*.returned"))
    assert not list((needlemap.folder / "r/launches/1").glob("*.died"))
    scored_once(needlemap, 40)


def test_a_unit_that_kills_its_worker_three_times_is_set_aside_and_the_rest_goes_on(needlemap):
    (needlemap.folder / "deadly.py").write_text(DEADLY)
    model = ("--model", "python/deadly:answer", "--tokenizer", "cl100k_base", "--max-answer-tokens", "40")
    grid = ("--lengths", "200:400:5", "--depths", "0:100:8")
    needlemap("prompts", *model, *grid, "-o", "prompts.jsonl")
    rows = [json.loads(line) for line in (needlemap.folder / "prompts.jsonl").read_text().splitlines()]
    deadly = next(row for row in rows if row["length"] == 300 and row["depth"] == 0.0)
    text = deadly["messages"][-1]["content"]
    needlemap.environment["DEADLY"] = sha256(text.encode()).hexdigest()
    done = needlemap("run", *model, *grid, "-o", "r", "--workers", "2", code=1)
    assert "is set aside: its worker died 3 times in a row" in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("needlemap: set aside")]
    assert re.search(r"unit of \d+ trials, \d+ of them not asked .* killed its worker 3 times\. Logs: ", line)
    lost = int(re.search(r"(\d+) of them not asked", line)[1])  # type: ignore[index]
    scored_once(needlemap, 40 - lost)
    (aside,) = (needlemap.folder / "r/launches/1").glob("*.set-aside")
    assert aside.name.startswith("unit-")
    del needlemap.environment["DEADLY"]
    needlemap("run", *model, *grid, "-o", "r", "--workers", "2")
    scored_once(needlemap, 40)


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGHUP])
def test_the_command_may_be_closed_and_another_attached(needlemap, wire, ending, until):
    wire.schedule("slow:2", cycle=True)
    first = needlemap.start("run", *needlemap.asking(wire), *GRID, "--workers", "2", "--concurrency", "1")
    until(lambda: len(needlemap.records()) >= 2)
    first.send_signal(ending)
    assert first.wait() == -ending
    before = len(needlemap.records())
    until(lambda: len(needlemap.records()) > before)
    at_work = "Workers of this machine are at work on 'r'. To look after them: needlemap run --attach r."
    assert at_work in needlemap.run(wire, *GRID, code=2).stderr
    assert at_work in needlemap.run(wire, *GRID, "--workers", "2", code=2).stderr
    os.kill(needlemap.workers()[0]["pid"], signal.SIGKILL)
    wire.schedule()
    attached = needlemap("run", "--attach", "r")
    assert "already scored" in attached.stderr
    assert "overall 100.0 (n=36, 0 missing)" in attached.stdout
    scored_once(needlemap, 40)
    again = needlemap("run", "--attach", "r", code=2)
    assert "No workers were left to work on 'r'. It ended at " in again.stderr


def test_two_commands_do_not_look_after_the_same_workers(needlemap, wire, until):
    wire.schedule("slow:3", cycle=True)
    first = needlemap.start("run", *needlemap.asking(wire), *GRID, "--workers", "2")
    until(lambda: len(wire.log()) >= 2)
    second = needlemap("run", "--attach", "r", code=2)
    assert "Another needlemap looks after the workers of" in second.stderr
    wire.schedule()
    first.communicate(timeout=180)
    assert first.returncode == 0


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_workers_of_this_machine(needlemap, wire, how, until):
    wire.schedule("slow:1", cycle=True)
    process = needlemap.start("run", *needlemap.asking(wire), *GRID, "--workers", "2")
    until(lambda: len(needlemap.records()) >= 2)
    process.send_signal(how)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + how
    assert err.splitlines()[-1] == (
        "needlemap: interrupted, workers ended. What was scored is kept; "
        "to go on: the same command with -o r."
    )
    assert not living(needlemap)
    wire.schedule()
    needlemap.run(wire, *GRID)
    scored_once(needlemap, 40)


def test_a_limit_holds_over_all_workers(needlemap, wire):
    wire.schedule("slow:0.05", cycle=True)
    done = needlemap.run(wire, *GRID, "--workers", "2", "--limit-tokens", "2000", code=3)
    assert "stopped by the budget: used " in done.stderr
    asked = len(wire.log())
    assert asked < 40
    wire.schedule()
    needlemap.run(wire, *GRID, "--workers", "2")
    scored_once(needlemap, 40)


def test_the_first_trial_is_asked_before_any_worker_is_started(needlemap, wire):
    wire.schedule("404")
    stopped = needlemap.run(wire, *GRID, "--workers", "2", code=2)
    assert stopped.stderr.splitlines()[-1].startswith(
        "needlemap: stopped before spending more. The first trial"
    )
    assert len(wire.log()) == 1
    assert not (needlemap.folder / "r/launch.json").exists()
    wire.schedule("say:No idea.", cycle=True)
    stopped = needlemap.run(wire, *GRID, "--workers", "2", code=2)
    assert "3 trials of up to 200 tokens all scored 0" in stopped.stderr
    assert len(wire.log()) == 4
    wire.schedule()
    needlemap.run(wire, *GRID, "--workers", "2", "--no-canary")
    scored_once(needlemap, 40)


def test_an_interrupt_of_the_first_trial_leaves_nothing_at_work(needlemap, wire, until):
    wire.schedule("slow:20", cycle=True)
    process = needlemap.start("run", *needlemap.asking(wire), *GRID, "--workers", "2")
    until(wire.log)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert err.splitlines()[-1].startswith("needlemap: interrupted. What was scored is kept; to go on: ")
    assert not (needlemap.folder / "r/launch.json").exists()


def test_questions_without_a_haystack_are_asked_once_and_before_the_workers_start(needlemap, wire):
    done = needlemap.run(wire, *GRID, "--workers", "2", "--closed-book")
    assert "closed book: 0/1 right without a haystack" in done.stderr
    assert len(wire.log()) == 40 + 1
    assert wire.log()[1]["prompt_words"] < 20
    assert "already scored" not in needlemap.run(wire, *GRID, "--workers", "2", "--closed-book").stdout
    assert len(wire.log()) == 40 + 1
    refused = needlemap("run", "demo", "-o", "d", "--workers", "2", "--closed-book", code=2)
    assert "the same command with --closed-book, without workers, and -o d" in refused.stderr
    assert not (needlemap.folder / "d").exists()


def test_a_limit_on_time_is_the_runs_and_not_each_workers(needlemap, wire, until):
    wire.schedule("slow:2", cycle=True)
    flags = ("--workers", "1", "--concurrency", "1", "--limit-time", "30s", "--no-canary")
    process = needlemap.start("run", *needlemap.asking(wire), *GRID, *flags)
    os.kill(until(lambda: living(needlemap, writing=True))[0], signal.SIGKILL)
    _, err = process.communicate(timeout=180)
    assert process.returncode == 3, err
    assert "stopped by the budget: ran for 30 s, as long as --limit-time allows" in err
    assert re.search(r"\d+ s of 30 s · ", err)  # shown while it runs
    _, second = needlemap.workers()
    assert second["outcome"]["stopped"]
    assert len(needlemap.records()) < 17


def test_what_a_worker_finds_wrong_is_told_and_not_tried_again(needlemap):
    (needlemap.folder / "here.py").write_text(
        "import sys\n"
        "if 'needlemap.runs.worker' in sys.orig_argv:\n"
        "    raise ImportError('no such device on this machine')\n"
        "def answer(messages):\n"
        "    return ''\n"
    )
    chosen = ("--model", "python/here:answer", "--tokenizer", "cl100k_base", "--max-answer-tokens", "40")
    done = needlemap(
        "run", *chosen, "--lengths", "400", "--depths", "0,50", "-o", "r", "--workers", "2", code=2
    )
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("needlemap: a worker ended: ")]
    assert "Module 'here' cannot be imported: ImportError: no such device on this machine" in line
    assert "2 trials were not asked" in done.stderr
    assert len(needlemap.workers()) == 2


def test_each_worker_has_gpus_of_its_own(needlemap):
    (needlemap.folder / "seen.py").write_text(
        "import os\ndef answer(messages):\n    return os.environ['CUDA_VISIBLE_DEVICES']\n"
    )
    needlemap.environment["CUDA_VISIBLE_DEVICES"] = "4,5,6,7"
    chosen = ("--model", "python/seen:answer", "--tokenizer", "cl100k_base", "--max-answer-tokens", "40")
    fleet = ("--workers", "2", "--gpus-per-worker", "2")
    needlemap("run", *chosen, "--lengths", "300", "--depths", "0:100:8", "-o", "r", *fleet)
    assert {row["answer"] for row in needlemap.records()} <= {"4,5", "6,7"}
    dry = needlemap("run", *chosen, *fleet, "--dry-run", "-o", "other")
    assert re.search(
        r"CUDA_VISIBLE_DEVICES=6,7 \S+ -P -m needlemap.runs.worker \S+other/launches/1 process-2 &",
        dry.stdout,
    )
    assert not (needlemap.folder / "other").exists()
    none = needlemap("run", *chosen, "--workers", "2", "--gpus-per-worker", "0", "--dry-run", "-o", "other")
    assert none.stdout.count("CUDA_VISIBLE_DEVICES='' ") == 2


def test_a_dry_run_shows_no_more_workers_than_there_are_units(typed):
    """One trial was shown with 32 tasks; the run itself starts one."""
    one = ("--model", "baseline/bm25", "--lengths", "500", "--depths", "0")
    shown = typed("run", *one, "--workers", "8", "--dry-run", "-o", "r").stdout
    assert shown.count("needlemap.runs.worker") == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--workers", "2", "--slurm"), "--workers is for this machine. With --slurm: --max-num-workers."),
        (("-p", "gpu"), "-p goes with --slurm. On this machine: --workers N."),
        (("--max-num-workers", "8"), "--max-num-workers goes with --slurm"),
        (("--dry-run",), "--dry-run goes with --workers N or --slurm"),
        (("--retry", "1"), "--retry goes with --workers N or --slurm"),
        (("--attach", "r", "--workers", "2"), "--attach takes no --workers"),
        (("--attach", "r", "--lengths", "300"), "--attach takes no preset, no settings"),
        (("--attach", "nowhere"), "No folder 'nowhere' here."),
        (("--workers", "2", "--no-save"), "--no-save keeps no run folder"),
        (("--max-num-worker", "2"), "--max-num-workers"),
    ],
)
def test_flags_that_do_not_fit_say_which_do(typed, flags, words):
    assert words in typed("run", *flags, code=2).stderr


def test_two_workers_killed_at_random_again_and_again_leave_every_line_whole(needlemap, wire, until):
    kills = int(os.environ.get("NEEDLEMAP_WORKER_KILLS", "4"))  # 30 take two minutes
    random = Random(kills)
    wire.schedule("slow:0.1", cycle=True)
    grid = ("--lengths", "200:400:5", "--depths", "0:100:8", "--repeats", str(1 + kills))
    trials = 40 * (1 + kills)
    fleet = ("--workers", "2", "--retry", "1000", "--concurrency", "2")
    process = needlemap.start("run", *needlemap.asking(wire), *grid, *fleet)
    for _ in range(kills):
        writing = until(lambda: living(needlemap, writing=True))
        time.sleep(random.random())
        victim = random.choice(writing)
        os.kill(victim, signal.SIGKILL)
        until(partial(gone, needlemap, victim))
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    for file in (needlemap.folder / "r").glob("records-*.jsonl"):
        whole, _, _ = file.read_bytes().rpartition(b"\n")
        assert all(json.loads(line)["key"] for line in whole.splitlines())
    scored_once(needlemap, trials)
    repeated = wire.asked() - Counter(row["prompt"]["sha256"] for row in needlemap.records())
    assert repeated.total() <= 2 * kills
