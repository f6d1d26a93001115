"""`needlemap run --slurm` on a real Slurm: whatever becomes of jobs, nothing scored is lost or
repeated."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from needlemap.cluster import Phase
from needlemap.cluster.slurm import ended_states, job_states

GRID = ("--lengths", "300:500:5", "--depths", "0:100:8")  # 40 trials
ON = ("--slurm", "-p", "main")


def scored_once(needlemap: Any, trials: int) -> None:
    assert len(needlemap.scored()) == trials
    assert set(needlemap.scored().values()) == {1}


def repeated(needlemap: Any, wire: Any) -> int:
    """How many requests were sent for nothing."""
    asked = wire.prompt_counts() - Counter(row["prompt"]["sha256"] for row in needlemap.records())
    return int(asked.total())


def started(needlemap: Any, wire: Any, until: Any, *flags: object, slow: float = 0.2) -> Any:
    """The asking command, once replicas have begun to answer."""
    wire.schedule(f"slow:{slow}", cycle=True)
    flags = ("--no-canary", "--concurrency", "2", *flags)
    process = needlemap.start("run", *needlemap.asking(wire), *GRID, *ON, *flags)
    until(lambda: len(needlemap.records()) >= 4 or process.poll() is not None)
    return process


def ended(process: Any, seconds: float = 90) -> str:
    """What it said, once it has ended well."""
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, out + err
    assert "overall 100.0 (n=40, 0 missing)" in out
    return str(err)


def tiny_transformer(folder: Path) -> Path:
    """A real Llama with random weights, as the tests of the contract make it."""
    pytest.importorskip("torch", reason="needs torch: python3 -m pip install '.[hf]'")
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    import tiny_models
    import torch

    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(tiny_models.config("llama")).save_pretrained(
        folder
    )
    (folder / "tokenizer.json").write_text(tiny_models.vocabulary())
    tokens = {"bos_token": "<s>", "eos_token": "<|im_end|>", "pad_token": "<pad>"}
    about = {"tokenizer_class": "PreTrainedTokenizerFast", **tokens}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    (folder / "chat_template.jinja").write_text(tiny_models.TEMPLATE)
    return folder


def test_four_replicas_of_which_one_is_killed_record_what_one_process_does(needlemap, typed, until):
    tiny_transformer(needlemap.folder / "tiny")
    grid = ("--lengths", "256:768:5", "--depths", "0:100:8", "--max-answer-tokens", "24")
    chosen = ("--model", "hf/./tiny", "--scorer", "levenshtein", *grid)
    typed("run", *chosen, "-o", "one")  # torch is here already
    process = needlemap.start(
        "run", *chosen, "-o", "r", *ON, "-q", "high", "--max-num-workers", "4"
    )
    until(lambda: len(needlemap.records()) > 4, 120)
    _, pid = needlemap.replicas().popitem()
    os.kill(pid, signal.SIGKILL)
    _, err = process.communicate(timeout=150)
    assert process.returncode == 0, err
    assert needlemap.answered("r") == needlemap.answered("one")
    scored_once(needlemap, len(needlemap.records("one")))
    assert len(list((needlemap.folder / "r").glob("records-*"))) == 1


@pytest.mark.parametrize("how", ["scancel", "kill"])
def test_a_replica_that_is_gone_is_asked_for_anew(needlemap, wire, slurm, until, how):
    process = started(needlemap, wire, until, "--max-num-workers", "2", slow=1)
    gone = slurm.running()[0]
    slurm("scancel", gone) if how == "scancel" else os.kill(
        needlemap.replicas()[gone], signal.SIGKILL
    )
    until(lambda: len(set(needlemap.replicas()) - {gone}) == 2)
    wire.schedule()
    err = ended(process)
    assert f"{gone}: {'CANCELLED' if how == 'scancel' else 'FAILED'}" in err
    scored_once(needlemap, 40)
    assert repeated(needlemap, wire) <= 2


def test_a_requeued_job_starts_again_and_goes_on(needlemap, wire, slurm, until):
    process = started(needlemap, wire, until, "--max-num-workers", "1", slow=0.5)
    (job,) = slurm.running()
    slurm("scontrol", "requeue", job)
    ended(process)
    scored_once(needlemap, 40)
    assert repeated(needlemap, wire) <= 2


def test_a_lost_node_costs_the_answers_in_flight(needlemap, wire, slurm, until):
    process = started(
        needlemap, wire, until, "--max-num-workers", "2", "--slurm-arg", "nodelist=n1", slow=0.5
    )
    slurm("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=test")
    until(lambda: "RUNNING" not in slurm.jobs().values())
    wire.schedule()
    ended(process)  # a node whose daemon answers comes back by itself
    scored_once(needlemap, 40)
    assert repeated(needlemap, wire) <= 4


def test_the_asking_process_killed_its_jobs_end_and_the_same_command_goes_on(
    needlemap, wire, slurm, until
):
    process = started(needlemap, wire, until, "--max-num-workers", "2", slow=1)
    process.kill()
    process.wait()
    until(lambda: not slurm.jobs(), 60)
    kept = len(needlemap.records())
    wire.schedule()
    again = needlemap.start("run", *needlemap.asking(wire), *GRID, *ON, "--max-num-workers", "2")
    assert f"{kept} already scored" in ended(again)
    scored_once(needlemap, 40)


def test_jobs_that_wait_are_told_in_slurms_words_and_an_interrupt_cancels_them(
    needlemap, wire, slurm
):
    chosen = ("--slurm", "-p", "closed", "--max-num-workers", "3")
    process = needlemap.start("run", *needlemap.asking(wire), *GRID, *chosen)
    read_until(process, "replicas: 3 pending (PartitionDown)")
    assert len(slurm.jobs()) == 3
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "needlemap: interrupted." in err
    assert slurm.jobs() == {}
    needlemap.run(wire, *GRID)  # the folder is free again


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ("-p", "nosuch"),
            "Invalid partition name specified. Partitions here: main (default), closed (down).",
        ),
        (("-q", "nosuch"), "Invalid qos specification. QOS that you may use: high, low, normal."),
        (
            ("-q", "forbidden"),
            "Invalid qos specification. QOS that you may use: high, low, normal.",
        ),
        (("--gpus-per-worker", "9"), "Requested node configuration is not available"),
        (("--time", "2:00:00"), "time limit"),
        (("--slurm-arg", "partitoin=main"), "Did you mean 'partition'?"),
        (("--slurm-arg", "=5"), "--slurm-arg takes KEY=VALUE, an option of sbatch, got '=5'."),
    ],
)
def test_what_slurm_refuses_is_said_in_its_words_with_what_there_is(
    needlemap, typed, wire, flags, words
):
    refused = typed("run", *needlemap.asking(wire), *GRID, "--slurm", *flags, code=2)
    assert words in refused.stderr.splitlines()[-1]
    assert not wire.log()
    assert not list((needlemap.folder / "r").glob("replicas/connect-*"))


def test_qos_auto_leaves_the_choice_to_the_site_and_any_other_is_kept(typed, slurm, until):
    def high() -> int:
        return slurm("sacct", "-n", "-X", "-P", "--format=QOS").split().count("high")

    before = high()
    grid = ("run", "demo", "--lengths", "96", "--depths", "0,100")
    assert "--qos" not in typed(*grid, *ON, "-q", "auto", "--dry-run").stdout
    typed(*grid, "-o", "r", *ON, "-q", "high", "--max-num-workers", "1")
    until(lambda: high() == before + 1)  # accounting hears of a job a little later


def test_a_dry_run_prints_a_script_that_slurm_takes_and_starts_nothing(needlemap, typed, slurm):
    chosen = ("--slurm", "-p", "main", "-q", "low", "--gpus-per-worker", "1", "--time", "30")
    more = (
        "--slurm-arg",
        "mem=1G",
        "--slurm-arg",
        "exclusive",
        "--max-num-workers",
        "3",
        "--dry-run",
    )
    dry = typed("run", "demo", "-o", "r", *chosen, *more)
    for name in (
        "array=0-2",
        "gpus-per-node=1",
        "mem=1G",
        "partition=main",
        "qos=low",
        "time=30",
        "exclusive",
    ):
        assert f"#SBATCH --{name}\n" in dry.stdout
    (needlemap.folder / "job.sh").write_text(dry.stdout)
    slurm("sbatch", "--test-only", needlemap.folder / "job.sh")
    assert not (needlemap.folder / "r").exists()


def test_each_replica_has_the_gpus_that_slurm_gave_it(needlemap):
    (needlemap.folder / "seen.py").write_text(
        "import os, time\n"
        "def answer(messages):\n"
        "    time.sleep(0.1)\n"
        "    return os.environ['CUDA_VISIBLE_DEVICES']\n"
    )
    model = (
        "--model",
        "python/seen:answer",
        "--tokenizer",
        "cl100k_base",
        "--max-answer-tokens",
        "40",
    )
    needlemap(
        "run", *model, *GRID, "-o", "r", *ON, "--max-num-workers", "2", "--gpus-per-worker", "1"
    )
    assert {row["answer"] for row in needlemap.records()} <= {"0", "1"}  # the node has both


def test_queue_and_accounting_agree_on_how_a_job_ended(slurm, until):
    job = slurm("sbatch", "--parsable", "-p", "main", "-o", "/dev/null", "--wrap", "true").strip()
    until(lambda: job_states([job])[job].word == "COMPLETED")
    listed = ("sacct", "-n", "-X", "-P", "--format=JobID,State", "-j", job)
    found = until(lambda: ended_states(slurm(*listed)))
    assert (found[job].phase, found[job].word) == (Phase.ENDED, "COMPLETED")
    assert job_states(["999999"])["999999"].phase is Phase.ENDED


def test_a_job_of_slurm_may_ask_itself_so_that_the_terminal_can_be_closed(needlemap, slurm, until):
    command = [str(Path(sys.executable).with_name("needlemap")), "run", "demo", "-o", "r", *ON]
    grid = ("--lengths", "96:256:3", "--depths", "0:100:4", "--max-num-workers", "1")
    wrapped = shlex.join([*command, *grid])
    where = ("-p", "main", "-D", needlemap.folder, "-o", needlemap.folder / "asked.log")
    slurm("sbatch", *where, "--wrap", wrapped)
    until(lambda: needlemap.records() and not slurm.jobs())
    assert "overall 100.0 (n=63, 0 missing)" in (needlemap.folder / "asked.log").read_text()
    assert len(needlemap.scored()) == 63


def test_a_suites_families_share_the_jobs_and_one_budget(needlemap, wire):
    (needlemap.folder / "two.yaml").write_text(
        "settings: {lengths: [300, 400, 500], depths: [0, 50, 100], max_answer_tokens: 40}\n"
        "families: {key: {task: passkey}, one: {task: magic}}\n"
    )
    model = ("--model", "openai/m", "--base-url", wire.base_url, "--tokenizer", "cl100k_base")
    chosen = ("run", "suite:two.yaml", *model, "-o", "s", *ON, "--max-num-workers", "2")
    stopped = needlemap(*chosen, "--limit-tokens", 5000, "--concurrency", 1, code=3)
    assert "stopped by the budget: used " in stopped.stderr
    assert stopped.stderr.count("replicas: 2 started") == 1
    assert len(needlemap.scored("s/key")) == 9
    assert 0 < len(needlemap.scored("s/one")) < 9
    done = needlemap(*chosen)
    assert "mean    100.0  100.0  100.0  100.0  -\n" in done.stdout
    assert all(len(needlemap.scored(f"s/{family}")) == 9 for family in ("key", "one"))


def read_until(process: Any, words: str) -> str:
    """What a command says on standard error, up to a line that holds the words."""
    said = ""
    for line in process.stderr:
        said += line
        if words in line:
            return said
    raise AssertionError(said)
