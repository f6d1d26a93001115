"""`needlemap prompts` writes what `run` would ask, and asks nothing."""

from __future__ import annotations

import json
from collections import Counter
from hashlib import sha256

GRID = ("--lengths", "200,300", "--depths", "0,50,100")


def test_the_prompts_are_those_that_a_run_sends(needlemap, wire):
    chosen = needlemap.asking(wire)[:-2]
    printed = needlemap("prompts", *chosen, *GRID)
    assert printed.stderr == ""
    assert wire.log() == []
    rows = [json.loads(line) for line in printed.stdout.splitlines()]
    for row in rows:
        digest = sha256()
        for message in row["messages"]:
            digest.update(f"{message['role']}\0{message['content']}\0".encode())
        assert digest.hexdigest() == row["sha256"]
        assert row["tokens"] == row["length"] - 40
        assert row["reference"] in row["messages"][-1]["content"]
        assert row["keywords"][0] in row["reference"]
        assert row["question"] in row["messages"][-1]["content"]
    needlemap.run(wire, *GRID, "--concurrency", "1")
    assert wire.prompt_counts() == Counter(row["sha256"] for row in rows)
    records = needlemap.records()
    assert [record["key"] for record in records] == [
        row["key"] for row in rows
    ]  # in the order of asking
    assert [100 * record["depth"] for record in records] == [row["depth"] for row in rows]


def test_prompts_of_base_models_are_one_text_and_files_are_counted(needlemap, wire):
    chosen = (*needlemap.asking(wire)[:-2], "--model-options", "api=completions")
    said = needlemap("prompts", *chosen, *GRID, "-o", "prompts.jsonl")
    assert said.stdout == ""
    assert said.stderr == "6 prompts, 1,260 tokens: prompts.jsonl\n"
    rows = [
        json.loads(line)
        for line in (needlemap.folder / "prompts.jsonl").read_text("utf-8").splitlines()
    ]
    needlemap.run(wire, *GRID, "--model-options", "api=completions", "--concurrency", "1")
    assert [row["prompt"] for row in rows] == [request["body"]["prompt"] for request in wire.log()]


def test_a_base_models_prompts_are_said_to_be_wrapped_where_they_are_sent_as_messages(
    needlemap, wire
):
    """A base model behind a chat address answered another prompt than in process, unsaid."""
    texts = ("--model-options", "api=completions")
    needlemap.run(wire, *GRID, *texts)
    again = ("--prompts-of", "r", "--base-url", wire.base_url)
    said = needlemap("run", *again, "--model", "openai/base", "-o", "chat").stderr
    assert "'openai/base' gets each as a user's message" in said
    assert "add --model-options api=completions" in said
    said = needlemap("run", *again, "--model", "openai/base", *texts, "-o", "text").stderr
    assert "a user's message" not in said


def test_the_same_settings_give_the_same_bytes(typed):
    flags = (
        "prompts",
        "--model",
        "baseline/bm25",
        "--lengths",
        "500",
        "--depths",
        "50",
        "--repeats",
        "2",
    )
    first = typed(*flags).stdout
    assert typed(*flags).stdout == first
    assert typed(*flags, "--seed", "1").stdout != first
    chosen = [json.loads(line)["question"] for line in first.splitlines()]
    assert len(set(chosen)) == 2  # each repeat draws afresh
