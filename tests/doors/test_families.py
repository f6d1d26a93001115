"""Our families in Inspect and lm-evaluation-harness: the same prompts byte for byte, the same
scores."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

GRID = {"lengths": "700,1k", "depths": "0,50,100", "repeats": 2}
FLAGS = [part for name, value in GRID.items() for part in (f"--{name}", str(value))]
TEXT = ("--model-options", "api=completions")


def hashes(texts: Iterable[Any]) -> set[str]:
    return {sha256(json.dumps(text).encode()).hexdigest() for text in texts}


@pytest.fixture
def by_command(needlemap: Any, tmp_path: Path) -> Any:
    """What `needlemap prompts` writes."""

    def lines(*more: str) -> list[dict[str, Any]]:
        asked = ("--model", "openai/x", "--tokenizer", "o200k_base", *FLAGS, *more)
        needlemap("prompts", *asked, "-o", str(tmp_path / "prompts.jsonl"))
        return [json.loads(line) for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]

    return lines


@pytest.fixture
def task_files(tmp_path: Path) -> str:
    """The folder of task files, as one types it."""
    command = [sys.executable, "-m", "needlemap.interop.hosted", str(tmp_path / "tasks")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def messages(line: dict[str, Any]) -> list[list[str]]:
    return [[each["role"], each["content"]] for each in line["messages"]]


def by_scorer(
    needlemap: Any, tmp_path: Path, lines: list[dict[str, Any]], answers: dict[str, str]
) -> list[float]:
    """Scores of the same answers by `needlemap score`."""
    said = [{**line, "answer": answers.get(line["question"], "no")} for line in lines]
    (tmp_path / "said.jsonl").write_text("".join(json.dumps(line) + "\n" for line in said))
    needlemap(
        "score",
        str(tmp_path / "said.jsonl"),
        "--scorer",
        "recall",
        "-o",
        str(tmp_path / "scored.jsonl"),
    )
    scored = [json.loads(line) for line in (tmp_path / "scored.jsonl").read_text().splitlines()]
    return [each["score"] for each in scored]


def some_right(lines: list[dict[str, Any]]) -> dict[str, str]:
    """Answers by question: one in two is right."""
    questions = {line["question"]: line["reference"] for line in lines}
    return {
        question: f"It is {right}." if place % 2 else "It is 7."
        for place, (question, right) in enumerate(sorted(questions.items()))
    }


def by_id(lines: list[dict[str, Any]], scores: list[float]) -> dict[str, float]:
    """Scores as shares by a sample's id."""
    ids = [f"{line['length']}-{line['depth']:g}-{line['repeat']}" for line in lines]
    return dict(zip(ids, [score / 100 for score in scores], strict=True))


def test_inspect_asks_the_bytes_that_the_command_writes_and_scores_as_it_does(
    host, by_command, needlemap, tmp_path
):
    lines = by_command("--task", "multikey")
    answers = some_right(lines)
    given = {"task": "needlemap/multikey", "args": GRID, "answers": answers, "folder": "logs"}
    traced = {
        "task": "needlemap/trace",
        "args": {**GRID, "depths": 50, "repeats": 5},
        "answers": {},
        "folder": "more",
    }
    found, other = host("in_inspect", given, traced)
    assert found["status"] == other["status"] == "success"
    assert hashes(found["asked"]) == hashes(map(messages, lines))
    assert len(found["asked"]) == len(lines)
    assert found["scores"] == by_id(lines, by_scorer(needlemap, tmp_path, lines, answers))
    assert 0 < sum(found["scores"].values()) < len(lines)
    more = by_command("--task", "trace", "--depths", "50", "--repeats", "5")
    assert hashes(other["asked"]) == hashes(map(messages, more))
    assert (found["metrics"], other["metrics"]) == (["mean"], ["mean", "stderr"])


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (("-T", "lenghts=1k,2k"), "Unknown setting 'lenghts'"),
        (("-T", "lengths=1k,2k", "-T", "scorer=logprob"), "Scorer 'logprob' asks a model"),
    ],
)
def test_what_is_typed_wrong_at_inspects_own_command_is_said_in_words(inspect, typed, words):
    shown = inspect(
        "eval", "needlemap/multikey", *typed, "--model", "mockllm/model", "--display", "plain"
    )
    assert words in " ".join(shown.split())
    assert "Traceback" not in shown


def test_a_log_of_inspect_holds_recipes_and_no_context_and_makes_a_map(
    host, by_command, needlemap, tmp_path
):
    lines = by_command("--task", "multikey")
    (found,) = host(
        "in_inspect", {"task": "needlemap/multikey", "args": GRID, "answers": {}, "folder": "logs"}
    )
    log = tmp_path / found["log"]
    import_module("zipfile_zstd")  # which Inspect brings, and teaches zipfile how it packs
    with zipfile.ZipFile(log) as packed:
        held = b"".join(packed.read(name) for name in packed.namelist()).decode()
    context = messages(lines[0])[-1][1]
    assert lines[0]["question"] in held
    for start in range(0, len(context) - 600, 100):
        assert json.dumps(context[start : start + 60])[1:-1] not in held
    assert len(held) < 40_000 * len(lines)
    shown = needlemap("report", str(log)).stdout
    assert "depth  50%" in shown
    assert "(n=12, 0 missing)" in shown


def test_the_harness_asks_the_bytes_that_the_command_writes_and_scores_as_it_does(
    host, by_command, needlemap, task_files, tmp_path
):
    text, chat = by_command("--task", "multikey", *TEXT), by_command("--task", "multikey")
    given = {
        "tasks": ["needlemap_multikey"],
        "include": task_files,
        "metadata": {"needlemap": GRID},
    }
    answers = [some_right(lines) for lines in (text, chat)]
    plain, talked = host(
        "in_lm_eval",
        {**given, "answers": answers[0], "chat": False},
        {**given, "answers": answers[1], "chat": True, "gen_kwargs": {"max_gen_toks": 50}},
    )
    greedy = {"do_sample": False, "temperature": 0.0}
    # A base model would go on with a question of its own.
    stops = ["\nQuestion:", "\nA question"]
    assert plain["how"][0] == {**greedy, "until": stops, "max_gen_toks": 300}
    assert talked["how"][0] == {**greedy, "until": [], "max_gen_toks": 50}
    with pytest.raises(
        AssertionError, match="max_length=900 would cut the beginning of prompts off"
    ):
        host(
            "in_lm_eval",
            {**given, "answers": {}, "metadata": {"needlemap": GRID, "max_length": 900}},
        )
    assert hashes(plain["asked"]) == hashes(line["prompt"] for line in text)
    assert hashes(map(json.loads, talked["asked"])) == hashes(map(messages, chat))
    for found, lines, said in ((plain, text, answers[0]), (talked, chat, answers[1])):
        ours = by_id(lines, by_scorer(needlemap, tmp_path, lines, said))
        assert found["scores"]["needlemap_multikey"] == ours
        assert 0 < sum(ours.values()) < len(lines)
        result = found["results"]["needlemap_multikey"]
        assert result["score,none"] == pytest.approx(sum(ours.values()) / len(lines))
        assert result["score_stderr,none"] == "N/A"


THINKING = [
    ("<think>It says {right}.</think>I do not know.", "stop", 0.0),
    ("<think>It says 7, no.</think>It is {right}.", "stop", 1.0),
    # The answer only quotes the mark, unless a budget ended it there.
    ("It is <think>{right}", "stop", 1.0),
    ("It is <think>{right}", "max_tokens", 0.0),
]


def thinking_answers(text: str, lines: list[dict[str, Any]]) -> dict[str, str]:
    """Answers by question, made of one text of THINKING."""
    return {line["question"]: text.format(right=line["reference"]) for line in lines}


def test_thinking_is_not_scored_in_inspect(host, by_command):
    lines = by_command("--task", "multikey")
    runs = [
        {
            "task": "needlemap/multikey",
            "args": GRID,
            "answers": thinking_answers(text, lines),
            "stop_reason": stop_reason,
            "folder": f"logs-{number}",
        }
        for number, (text, stop_reason, _) in enumerate(THINKING)
    ]
    found = [set(run["scores"].values()) for run in host("in_inspect", *runs)]
    assert found == [{score} for _, _, score in THINKING]


def test_thinking_is_not_scored_in_the_harness(host, by_command, task_files):
    lines = by_command("--task", "multikey", *TEXT)
    # That harness does not report why an answer ended.
    whole = [(text, score) for text, stop_reason, score in THINKING if stop_reason == "stop"]
    runs = [
        {
            "tasks": ["needlemap_multikey"],
            "include": task_files,
            "metadata": {"needlemap": GRID},
            "answers": thinking_answers(text, lines),
        }
        for text, _ in whole
    ]
    found = [set(run["scores"]["needlemap_multikey"].values()) for run in host("in_lm_eval", *runs)]
    assert found == [{score} for _, score in whole]


def test_every_family_has_a_task_file_that_the_harness_reads(task_files):
    from needlemap.interop.hosted import hosted_tasks

    written = {file.stem for file in Path(task_files).iterdir()}
    assert written == {f"needlemap_{name}" for name in hosted_tasks()}
    assert {"needlemap_multikey", "needlemap_passkey", "needlemap_preset"} <= written
