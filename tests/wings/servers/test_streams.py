"""`check`, `storm` and `ab`: --stream streams what they ask and times it, and Ctrl-C ends them."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

SIDE = ("--model", "openai/wire", "--tokenizer", "cl100k_base", "--max-answer-tokens", "60")

COMMANDS = pytest.mark.parametrize(
    "command",
    [
        ("check", *SIDE, "--max-length", "400", "--probe", "mates", "--limit-tokens", "20k"),
        ("storm", *SIDE, "--max-length", "2k", "--load", "4", "--limit-tokens", "20k"),
        ("ab", "demo", *SIDE, "--lengths", "200", "--until", "4", "--arm", "new=baseline/bm25"),
    ],
    ids=lambda command: command[0],
)


def here(command: tuple[str, ...], wire: Any) -> tuple[str, ...]:
    """The command, of a server of this machine."""
    flag = "--arm=ref=" if command[0] == "ab" else "--base-url="
    return command[0], f"{flag}{wire.base_url}", *command[1:]


@COMMANDS
def test_check_storm_and_ab_stream(needlemap, wire, command):
    needlemap(*here(command, wire), "--stream", "--quiet", "-o", "r", code=None)
    log = wire.log()
    assert len(log) >= 4
    assert sum("stream" not in row["fields"] for row in log) <= 2, "of its own, to know the server"
    families = sorted({file.parent.name for file in needlemap.folder.rglob("records-*.jsonl")})
    asked = [
        row for name in families if "new" not in name for row in needlemap.records(f"r/{name}")
    ]
    assert all(row["first_token_s"] > 0 for row in asked if row["answer"])
    assert any(row["answer"] for row in asked)


@COMMANDS
def test_an_interrupted_command_says_in_json_with_which_code_it_ends(needlemap, wire, command):
    """It said the code of its verdict, 4, and ended with 130."""
    wire.schedule("slow:0.1", cycle=True)
    process = needlemap.start(*here(command, wire), "--json", "--quiet", "-o", "r")
    wait_for_a_record(needlemap.folder)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=250)
    assert "needlemap: interrupted." in err
    assert (process.returncode, json.loads(out)["exit_code"]) == (130, 130)


def wait_for_a_record(folder: Path) -> None:
    until = time.monotonic() + 250
    while not any(file.stat().st_size for file in folder.rglob("records-*.jsonl")):
        assert time.monotonic() < until
        time.sleep(0.02)
