"""`needlemap run --workers`, `--cluster`: copies of the model answer, one process asks and writes.
Whatever becomes of the copies, nothing scored is lost or asked twice."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from hashlib import sha256
from random import Random
from typing import Any

import pytest

from needlemap.extras import install_line

pytest.importorskip("distributed", reason="needs distributed: python3 -m pip install '.[cluster]'")

GRID = ("--lengths", "300:500:5", "--depths", "0:100:8")  # 40 trials
OWN = ("--tokenizer", "cl100k_base", "--max-answer-tokens", "40")
SUITE = (
    "settings: {lengths: [300, 400, 500], depths: [0, 50, 100], max_answer_tokens: 40}\n"
    "families: {key: {task: passkey}, one: {task: magic}}\n"
)
DEADLY = """
import os, signal
from hashlib import sha256
def answer(messages):
    if sha256(messages[-1]["content"].encode()).hexdigest() == os.environ.get("DEADLY"):
        os.kill(os.getpid(), signal.SIGKILL)
    return "I do not know."
"""


def scored_once(needlemap: Any, trials: int, run: str = "r") -> None:
    """Every trial was scored, and none twice."""
    assert len(needlemap.scored(run)) == trials
    assert set(needlemap.scored(run).values()) == {1}


def repeated(needlemap: Any, wire: Any) -> int:
    """How many requests were sent for nothing."""
    asked = wire.prompt_counts() - Counter(row["prompt"]["sha256"] for row in needlemap.records())
    return int(asked.total())


def test_two_replicas_record_what_one_process_does_and_are_started_once_for_all_families(needlemap):
    (needlemap.folder / "mine.yaml").write_text(SUITE)
    needlemap("run", "suite:mine.yaml", "-o", "one")
    done = needlemap("run", "suite:mine.yaml", "-o", "s", "--workers", "2")
    for family in ("key", "one"):
        assert needlemap.answered(f"s/{family}") == needlemap.answered(f"one/{family}")
        assert (
            len(list((needlemap.folder / "s" / family).glob("records-*"))) == 1
        )  # one process writes
    assert done.stderr.count("replicas: 2 started") == 1
    assert done.stdout == needlemap("report", "s").stdout
    left = list((needlemap.folder / "s/replicas").glob("*"))
    # Certificates go, and logs that say nothing.
    assert all(file.suffix == ".log" and file.stat().st_size for file in left), left
    assert not needlemap.replicas("s")
    again = needlemap("run", "suite:mine.yaml", "-o", "s", "--workers", "2")
    assert "18 already scored" in again.stderr
    assert "started" not in again.stderr


@pytest.mark.long
def test_a_prompt_that_kills_its_replica_three_times_is_set_aside_by_name_and_the_rest_goes_on(
    needlemap,
):
    (needlemap.folder / "deadly.py").write_text(DEADLY)
    model = ("--model", "python/deadly:answer", *OWN)
    needlemap("prompts", *model, *GRID, "-o", "prompts.jsonl")
    rows = [
        json.loads(line) for line in (needlemap.folder / "prompts.jsonl").read_text().splitlines()
    ]
    deadly = next(row for row in rows if row["length"] == 300 and row["depth"] == 0.0)
    text = deadly["messages"][-1]["content"]
    needlemap.environment["DEADLY"] = sha256(text.encode()).hexdigest()
    done = needlemap("run", *model, *GRID, "-o", "r", "--workers", "2", code=3)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("needlemap: set aside")]
    assert "300 tokens at depth 0 %, repeat 0: 3 replicas were lost while they answered it" in line
    assert done.stderr.splitlines()[-1].startswith("NO RESULT run: not measured: 1 replica lost; ")
    scored_once(needlemap, 39)
    del needlemap.environment["DEADLY"]
    needlemap("run", *model, *GRID, "-o", "r")
    scored_once(needlemap, 40)


@pytest.mark.long
def test_the_asking_process_killed_its_replicas_end_and_the_same_command_goes_on(
    needlemap, wire, until
):
    """By SIGHUP, as a closed terminal sends it, which nothing here catches: as sudden as
    SIGKILL."""
    wire.schedule("slow:0.5", cycle=True)
    command = ("run", *needlemap.asking(wire), *GRID, "--workers", "1", "--concurrency", "2")
    first = needlemap.start(*command)
    until(lambda: len(needlemap.records()) >= 2)
    first.send_signal(signal.SIGHUP)
    assert first.wait() == -signal.SIGHUP
    until(lambda: not needlemap.replicas(), 30)
    kept = len(needlemap.records())
    wire.schedule()
    again = needlemap(*command)
    assert f"{kept} already scored" in again.stderr
    scored_once(needlemap, 40)
    assert repeated(needlemap, wire) <= 2


@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_while_a_run_asks_its_folder_is_refused_to_others_and_an_interrupt_ends_its_replicas(
    needlemap, wire, how, until
):
    wire.schedule("slow:1", cycle=True)
    process = needlemap.start("run", *needlemap.asking(wire), *GRID, "--workers", "1")
    until(lambda: len(needlemap.records()) >= 2)
    refused = needlemap.run(wire, *GRID, "--workers", "1", code=2)
    assert "Another needlemap is writing to 'r'" in refused.stderr
    assert "started" not in refused.stderr
    process.send_signal(how)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + how
    kept = "What was scored is kept; to go on: the same command with -o r"
    assert err.splitlines()[-1] == f"needlemap: interrupted. {kept}"
    assert not needlemap.replicas()
    wire.schedule()
    needlemap.run(wire, *GRID)
    scored_once(needlemap, 40)


def test_a_limit_holds_over_all_replicas_as_it_does_for_one_process(needlemap, wire):
    flags = ("--concurrency", "2", "--limit-tokens", "5000")
    done = needlemap.run(wire, *GRID, *flags, "--workers", "2", code=3)
    assert "stopped by the budget: used " in done.stderr
    spent = sum(row["prompt_tokens"] + row["completion_tokens"] for row in needlemap.records())
    assert spent <= 5000
    needlemap.run(wire, *GRID)
    scored_once(needlemap, 40)


def test_waiting_for_replicas_does_not_count_as_the_runs_time(needlemap):
    (needlemap.folder / "late.py").write_text(
        "import sys, time\n"
        "if 'needlemap.cluster.replica' in sys.orig_argv:\n"
        "    time.sleep(6)\n"
        "def answer(messages):\n"
        "    return ''\n"
    )
    model = ("--model", "python/late:answer", *OWN, "--lengths", "300", "--depths", "0,100")
    needlemap("run", *model, "-o", "r", "--workers", "1", "--limit-time", "5s")
    scored_once(needlemap, 2)


@pytest.mark.long
def test_the_first_trial_and_the_closed_book_are_asked_by_replicas_as_by_one_process(
    needlemap, wire
):
    wire.schedule("404")
    stopped = needlemap.run(wire, *GRID, "--workers", "1", code=2)
    assert stopped.stderr.splitlines()[-1].startswith(
        "needlemap: stopped before spending more. The first trial"
    )
    assert len(wire.log()) == 1
    done = needlemap.run(wire, *GRID, "--workers", "1", "--closed-book")
    assert "closed book: 0/1 right without a haystack" in done.stderr
    assert len(wire.log()) == 1 + 40 + 1
    scored_once(needlemap, 40)


def test_a_run_scored_anew_needs_no_replica(needlemap):
    grid = ("demo", "--lengths", "96", "--depths", "0,100", "-o", "r")
    needlemap("run", *grid)
    again = needlemap("run", *grid, "--workers", "1", "--scorer", "exact", code=None)
    assert "started" not in again.stderr
    assert needlemap("score", "r", "--scorer", "exact")


def test_what_a_replica_finds_wrong_is_told_and_not_tried_again(needlemap):
    (needlemap.folder / "here.py").write_text(
        "import sys\n"
        "if 'needlemap.cluster.replica' in sys.orig_argv:\n"
        "    raise ImportError('no such device on this machine')\n"
        "def answer(messages):\n"
        "    return ''\n"
    )
    chosen = ("--model", "python/here:answer", *OWN, "--lengths", "400", "--depths", "0,50")
    done = needlemap("run", *chosen, "-o", "r", "--workers", "2", code=2)
    assert (
        "Module 'here' cannot be imported: ImportError: no such device"
        in done.stderr.splitlines()[-1]
    )
    assert not needlemap.replicas()


def test_each_replica_has_gpus_of_its_own(needlemap):
    (needlemap.folder / "seen.py").write_text(
        "import os\ndef answer(messages):\n    return os.environ['CUDA_VISIBLE_DEVICES']\n"
    )
    needlemap.environment["CUDA_VISIBLE_DEVICES"] = "4,5,6,7"
    chosen = ("--model", "python/seen:answer", *OWN, "--lengths", "300", "--depths", "0:100:8")
    flags = ("--workers", "2", "--gpus-per-worker", "2")
    needlemap("run", *chosen, "-o", "r", *flags)
    assert {row["answer"] for row in needlemap.records()} <= {"4,5", "6,7"}


def test_the_gpus_of_each_replica_stand_in_its_command(needlemap):
    needlemap.environment["CUDA_VISIBLE_DEVICES"] = "4,5,6,7"
    chosen = ("demo", "--lengths", "96", "--depths", "0:100:8")
    flags = ("--workers", "2", "--gpus-per-worker", "2")
    dry = needlemap("run", *chosen, *flags, "--dry-run", "-o", "other")
    assert re.search(
        r"CUDA_VISIBLE_DEVICES=6,7 \S+ -P -m needlemap.cluster.replica \S+", dry.stdout
    )
    assert not (needlemap.folder / "other").exists()
    none = needlemap(
        "run", *chosen, "--workers", "2", "--gpus-per-worker", "0", "--dry-run", "-o", "other"
    )
    assert none.stdout.count("CUDA_VISIBLE_DEVICES='' ") == 2


def test_no_more_replicas_are_started_than_there_are_trials(typed):
    one = ("--model", "baseline/bm25", "--lengths", "500", "--depths", "0")
    shown = typed("run", *one, "--workers", "8", "--dry-run", "-o", "r").stdout
    assert shown.count("needlemap.cluster.replica") == 1


def test_a_seek_among_families_may_keep_all_replicas_busy(needlemap):
    """How many prompts it sends is not known before: 32 replicas at most were shown."""
    families = "families: {key: {task: passkey}, up: {task: passkey, seek: 85}}\n"
    (needlemap.folder / "mine.yaml").write_text(SUITE.partition("families")[0] + families)
    typed = ("suite:mine.yaml", "--model", "baseline/bm25", "--workers", "40", "--dry-run")
    shown = needlemap("run", *typed, "-o", "r").stdout
    assert shown.count("needlemap.cluster.replica") == 40


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ("--workers", "2", "--slurm"),
            "--workers is for this machine. With --slurm: --max-num-workers.",
        ),
        (("-p", "gpu"), "-p goes with --slurm. On this machine: --workers N."),
        (("--max-num-workers", "8"), "--max-num-workers goes with --slurm"),
        (("--dry-run",), "--dry-run goes with --workers N or --slurm"),
        (("--cluster-trusted",), "--cluster-trusted goes with --cluster."),
        (
            ("--cluster", "tcp://h:1"),
            "anyone who reaches one of its ports can run code there.",
        ),
        (("--cluster", "here"), "--cluster takes tls://HOST:PORT or tcp://HOST:PORT, got 'here'."),
        (
            ("--cluster", "tls://h:1", "--workers", "2"),
            "that is there already: leave --workers",
        ),
        (("--slurm", "--no-save"), "--no-save keeps no run folder, and Slurm's jobs read theirs."),
        (("--max-num-worker", "2"), "--max-num-workers"),
    ],
)
def test_flags_that_do_not_fit_say_which_do(typed, flags, words):
    assert words in typed("run", *flags, code=2).stderr


def test_without_dask_one_line_says_what_to_install(typed, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    refused = typed(
        "run", "demo", "--lengths", "96", "--depths", "0", "-o", "r", "--workers", "2", code=2
    )
    said = f"Replicas need distributed and cryptography. Run: {install_line('cluster')}"
    assert refused.stderr.splitlines()[-1] == f"needlemap: {said}"


@pytest.mark.long
def test_a_cluster_that_is_there_answers_and_its_workers_stay(needlemap, until):
    """As people start one: `dask scheduler` and `dask worker`, in clear on a network of their
    own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    dask = [sys.executable, "-m", "distributed.cli.dask_"]
    scheduler = [f"{dask[2]}scheduler", "--host", "127.0.0.1", "--port", address.rpartition(":")[2]]
    worker = [f"{dask[2]}worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": needlemap.folder}
    run = [sys.executable, "-m"]
    commands = [*scheduler, "--no-dashboard"], worker
    servers = [subprocess.Popen([*run, *each], **quiet) for each in commands]
    try:
        grid = ("--lengths", "96:256:3", "--depths", "0:100:4")
        there = ("--cluster", address, "--cluster-trusted")
        until(lambda: _listens(address))
        done = needlemap("run", "demo", *grid, "-o", "r", *there)
        assert "replicas: 1 " in done.stderr
        needlemap("run", "demo", *grid, "-o", "one")
        assert needlemap.answered("r") == needlemap.answered("one")
        needlemap("run", "demo", *grid, "-o", "again", *there)
        assert all(each.poll() is None for each in servers)
    finally:
        for each in reversed(servers):
            each.kill()
            each.wait()


def _listens(address: str) -> bool:
    try:
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 1).close()
    except OSError:
        return False
    return True


@pytest.mark.long
def test_replicas_killed_at_random_are_named_and_replaced_and_lose_nothing_that_was_scored(
    needlemap, wire, until
):
    kills = int(os.environ.get("NEEDLEMAP_REPLICA_KILLS", "2"))  # with --long 30
    random = Random(kills)
    wire.schedule("slow:0.2", cycle=True)
    grid = ("--lengths", "400:600:5", "--depths", "0:100:8", "--repeats", str(3 + kills))
    flags = ("--workers", "2", "--concurrency", "2")
    process = needlemap.start("run", *needlemap.asking(wire), *grid, *flags)
    until(lambda: len(needlemap.records()) >= 2)
    killed: list[str] = []
    while len(killed) < kills and process.poll() is None:
        before = len(needlemap.records())
        until(lambda before=before: len(needlemap.records()) > before or process.poll() is not None)
        time.sleep(random.random())
        if alive := needlemap.replicas():
            name = random.choice(list(alive))
            os.kill(alive[name], signal.SIGKILL)
            killed.append(name)
        if len(killed) == 1:
            until(lambda: len(needlemap.replicas()) == 2 or process.poll() is not None)
            assert process.poll() is None, "no other took its place"
    out, err = process.communicate(timeout=200)
    assert len(killed) == kills, err
    for name in killed:
        assert re.search(
            rf"{re.escape(name)}: killed by SIGKILL; log: \S+{re.escape(name)}\.log", err
        )
    if (
        process.returncode
    ):  # three of the kills met one prompt, which was set aside: asked again it is scored
        assert {each["outcome"] for each in needlemap.records()} == {"scored", "replica lost"}, err
        out = needlemap("run", *needlemap.asking(wire), *grid, *flags).stdout
    assert f"overall 100.0 (n={40 * (3 + kills):,}, 0 missing)" in out
    scored_once(needlemap, 40 * (3 + kills))
    assert repeated(needlemap, wire) <= 2 * kills
    print(f"{kills} kills, {repeated(needlemap, wire)} asked twice", file=sys.stderr)
