"""`needlemap run --slurm` on a real Slurm: whatever becomes of jobs, nothing scored is lost or repeated."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from needlemap.runs import slurm_queue
from needlemap.runs.launch_file import refuse_launched
from needlemap.runs.launcher import Phase

GRID = ("--lengths", "200:400:5", "--depths", "0:100:8")  # 40 trials
ON = ("--slurm", "-p", "main")


def scored_once(needlemap: Any, trials: int) -> None:
    assert len(needlemap.scored()) == trials
    assert set(needlemap.scored().values()) == {1}


def repeated(needlemap: Any, wire: Any) -> int:
    """How many requests were sent for nothing."""
    asked = wire.asked() - Counter(row["prompt"]["sha256"] for row in needlemap.records())
    return int(asked.total())


def started(needlemap: Any, wire: Any, until: Any, *flags: object, slow: float = 0.1) -> Any:
    """The submitting command, once workers have begun to answer."""
    wire.schedule(f"slow:{slow}", cycle=True)
    flags = ("--no-canary", "--concurrency", "2", *flags)
    process = needlemap.start("run", *needlemap.asking(wire), *GRID, *ON, *flags)
    until(lambda: len(needlemap.records()) >= 4 or process.poll() is not None)
    return process


def ended(process: Any, seconds: float = 90) -> str:
    """What it said, once it has ended well."""
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, out + err
    assert "overall 100.0 (n=36, 0 missing)" in out  # 40 trials, 36 different prompts
    return str(err)


def tiny_transformer(folder: Path) -> Path:
    """A real Llama with random weights, as tests/contract makes it."""
    pytest.importorskip("torch", reason="needs torch: pip install 'needlemap[hf]'")
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    spec = importlib.util.spec_from_file_location(
        "contract", Path(__file__).parents[1] / "contract/conftest.py"
    )
    assert spec is not None
    assert spec.loader is not None
    contract = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(contract)
    import torch

    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(contract.config("llama")).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(contract.vocabulary())
    tokens = {"bos_token": "<s>", "eos_token": "<|im_end|>", "pad_token": "<pad>"}
    about = {"tokenizer_class": "PreTrainedTokenizerFast", **tokens}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    (folder / "chat_template.jinja").write_text(contract.TEMPLATE)
    return folder


def test_four_workers_of_which_one_is_killed_record_what_one_process_does(needlemap, typed, until):
    tiny_transformer(needlemap.folder / "tiny")
    grid = ("--lengths", "256:768:5", "--depths", "0:100:8", "--max-answer-tokens", "24")
    chosen = ("--model", "hf/./tiny", "--scorer", "levenshtein", *grid)
    typed("run", *chosen, "-o", "one")  # torch is here already
    process = needlemap.start("run", *chosen, "-o", "r", *ON, "-q", "high", "--max-num-workers", "4")
    until(lambda: len(needlemap.workers()) == 4 and len(needlemap.records()) > 4)
    victim = next(row for row in needlemap.workers() if (needlemap.folder / "r" / row["records"]).exists())
    os.kill(victim["pid"], signal.SIGKILL)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert f"{victim['name']} on " in err
    assert "FAILED" in err
    assert needlemap.answered("r") == needlemap.answered("one")
    scored_once(needlemap, 40)


def test_a_cancelled_task_is_replaced(needlemap, wire, slurm, until):
    # slow enough that there is work left for the one that comes instead
    process = started(needlemap, wire, until, "--max-num-workers", "2", slow=0.6)
    slurm("scancel", slurm.running(needlemap.folder / "r")[0])
    err = ended(process)
    assert "told to stop" in err
    assert len(needlemap.workers()) == 3
    scored_once(needlemap, 40)
    assert repeated(needlemap, wire) <= 2


def test_a_requeued_task_starts_again_and_goes_on(needlemap, wire, slurm, until):
    process = started(needlemap, wire, until, "--max-num-workers", "1")
    (task,) = slurm.running(needlemap.folder / "r")
    slurm("scontrol", "requeue", task)
    assert "told to stop (it starts again)" in ended(process)
    assert {row["name"] for row in needlemap.workers()} == {task, f"{task}-again-1"}
    scored_once(needlemap, 40)
    assert repeated(needlemap, wire) <= 2


def test_a_lost_node_costs_the_answers_in_flight(needlemap, wire, slurm, until):
    process = started(
        needlemap, wire, until, "--max-num-workers", "2", "--slurm-arg", "nodelist=n1", slow=0.3
    )
    slurm("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=test")
    until(lambda: "RUNNING" not in slurm.jobs(needlemap.folder / "r").values())
    wire.schedule()
    ended(process)  # a node whose daemon answers comes back by itself
    scored_once(needlemap, 40)
    assert repeated(needlemap, wire) <= 4


def test_the_command_may_be_closed_and_another_attached(needlemap, typed, wire, until):
    process = started(needlemap, wire, until, "--max-num-workers", "2", slow=3)
    process.kill()
    process.wait()
    again = ("run", *needlemap.asking(wire), *GRID)
    refused = typed(*again, code=2)
    assert "work on 'r', or wait to. To look after them: needlemap run --attach r." in refused.stderr
    assert "needlemap run --attach r" in typed(*again, *ON, code=2).stderr
    before = len(needlemap.records())
    until(lambda: len(needlemap.records()) > before)
    attached = needlemap.start("run", "--attach", "r")
    read_until(attached, "workers: 2 running")
    assert "Another needlemap looks after" in typed("run", "--attach", "r", code=2).stderr
    os.kill(needlemap.workers()[0]["pid"], signal.SIGKILL)
    wire.schedule()
    ended(attached)
    scored_once(needlemap, 40)
    assert "No workers were left to work on 'r'." in typed("run", "--attach", "r", code=2).stderr
    typed(*again)


def test_a_partition_that_is_down_says_so_and_two_interrupts_cancel(needlemap, wire, slurm):
    chosen = ("--slurm", "-p", "closed", "--max-num-workers", "3")
    process = needlemap.start("run", *needlemap.asking(wire), *GRID, *chosen)
    said = read_until(process, "workers: 3 pending (PartitionDown)")
    assert "started 3 workers: " in said
    process.send_signal(signal.SIGINT)
    read_until(process, "Ctrl-C again within 5 s cancels them.")
    assert len(slurm.jobs(needlemap.folder / "r")) == 3
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted, workers ended." in err
    assert slurm.jobs(needlemap.folder / "r") == {}
    wire.schedule()
    needlemap.run(wire, *GRID)  # the folder is free again


def test_one_interrupt_leaves_the_jobs_at_work(needlemap, wire, until):
    process = started(needlemap, wire, until, "--max-num-workers", "2", slow=3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "the jobs go on. To look after them again: needlemap run --attach r" in err
    before = len(needlemap.records())
    until(lambda: len(needlemap.records()) > before)
    wire.schedule()
    ended(needlemap.start("run", "--attach", "r"))
    scored_once(needlemap, 40)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ("-p", "nosuch"),
            "Invalid partition name specified. Partitions here: main (default), closed (down).",
        ),
        (("-q", "nosuch"), "Invalid qos specification. QOS that you may use: high, low, normal."),
        (("-q", "forbidden"), "Invalid qos specification. QOS that you may use: high, low, normal."),
        (("--gpus-per-worker", "9"), "Requested node configuration is not available"),
        (("--time", "2:00:00"), "time limit"),
        (("--slurm-arg", "partitoin=main"), "Did you mean 'partition'?"),
        (("--slurm-arg", "=5"), "--slurm-arg takes KEY=VALUE, an option of sbatch, got '=5'."),
    ],
)
def test_what_slurm_refuses_is_said_in_its_words_with_what_there_is(needlemap, typed, wire, flags, words):
    refused = typed("run", *needlemap.asking(wire), *GRID, "--slurm", *flags, code=2)
    assert words in refused.stderr.splitlines()[-1]
    assert len(wire.log()) == 1  # the first trial alone
    refuse_launched(needlemap.folder / "r")  # it does not


def test_qos_auto_leaves_the_choice_to_the_site(needlemap, typed):
    done = typed("run", "demo", "--lengths", "96", "--depths", "0,100", "-o", "r", *ON, "-q", "auto")
    assert "workers: " in done.stderr
    (script,) = (needlemap.folder / "r/slurm").glob("*_submission.sh")
    assert "--qos" not in script.read_text()


def test_a_dry_run_prints_a_script_that_slurm_takes_and_starts_nothing(needlemap, typed, slurm):
    chosen = ("--slurm", "-p", "main", "-q", "low", "--gpus-per-worker", "1", "--time", "30")
    more = ("--slurm-arg", "mem=1G", "--max-num-workers", "3", "--dry-run")
    dry = typed("run", "demo", "-o", "r", *chosen, *more)
    for name in ("array=0-2%3", "gpus-per-node=1", "mem=1G", "partition=main", "qos=low", "time=30"):
        assert f"#SBATCH --{name}\n" in dry.stdout
    (needlemap.folder / "job.sh").write_text(dry.stdout)
    slurm("sbatch", "--test-only", needlemap.folder / "job.sh")
    assert not (needlemap.folder / "r").exists()


def test_each_worker_has_the_gpus_that_slurm_gave_it(needlemap):
    (needlemap.folder / "seen.py").write_text(
        "import os, time\n"
        "def answer(messages):\n"
        "    time.sleep(0.1)\n"
        "    return os.environ['CUDA_VISIBLE_DEVICES']\n"
    )
    model = ("--model", "python/seen:answer", "--tokenizer", "cl100k_base", "--max-answer-tokens", "40")
    needlemap("run", *model, *GRID, "-o", "r", *ON, "--max-num-workers", "2", "--gpus-per-worker", "1")
    assert {row["answer"] for row in needlemap.records()} <= {"0", "1"}  # the node has both


def test_queue_and_accounting_agree_on_how_a_job_ended(needlemap, typed, slurm, until):
    typed("run", "demo", "--lengths", "96", "--depths", "0,100", "-o", "r", *ON, "--max-num-workers", "1")
    (job,) = [row["job"] for row in needlemap.workers()]
    assert slurm_queue.job_states([job])[job].word == "COMPLETED"
    listed = ("sacct", "-n", "-X", "-P", "--format=JobID,State", "-j", job)
    accounted = until(lambda: slurm_queue._accounted(slurm(*listed)))
    assert accounted[job].phase is Phase.ENDED
    assert accounted[job].word == "COMPLETED"
    assert slurm_queue.job_states(["999999"])["999999"].phase is Phase.ENDED


def read_until(process: Any, words: str) -> str:
    """What a command says on standard error, up to a line that holds the words."""
    said = ""
    for line in process.stderr:
        said += line
        if words in line:
            return said
    raise AssertionError(said)


def test_a_suites_families_are_arrays_one_after_the_other_from_one_budget(needlemap, wire, slurm):
    (needlemap.folder / "two.yaml").write_text(
        "settings: {lengths: [300, 400, 500], depths: [0, 50, 100], max_answer_tokens: 40}\n"
        "families: {key: {task: passkey}, one: {task: magic}}\n"
    )
    model = ("--model", "openai/m", "--base-url", wire.base_url, "--tokenizer", "cl100k_base")
    chosen = ("run", "suite:two.yaml", *model, "-o", "s", *ON, "--max-num-workers", "2")
    wire.schedule("slow:0.1", cycle=True)
    stopped = needlemap(*chosen, "--limit-tokens", 5000, "--concurrency", 1, code=3)
    assert "stopped by the budget: used " in stopped.stderr
    assert len(needlemap.scored("s/key")) == 9
    assert 0 < len(needlemap.scored("s/one")) < 9
    wire.schedule()
    done = needlemap(*chosen)
    assert done.stderr.count("started ") == 1  # the first family is whole
    assert "mean    100.0  100.0  100.0  100.0\n" in done.stdout
    assert all(len(needlemap.scored(f"s/{family}")) == 9 for family in ("key", "one"))
    assert slurm.jobs(needlemap.folder / "s/one") == {}
