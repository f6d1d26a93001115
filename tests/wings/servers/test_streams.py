"""`check`, `storm` and `ab` take --stream: what they ask is streamed, and timed."""

from __future__ import annotations

import pytest

SIDE = ("--model", "openai/wire", "--tokenizer", "cl100k_base", "--max-answer-tokens", "60")


@pytest.mark.parametrize(
    "command",
    [
        ("check", *SIDE, "--max-length", "400", "--probe", "mates", "--limit-tokens", "20k"),
        ("storm", *SIDE, "--max-length", "2k", "--load", "4", "--limit-tokens", "20k"),
        ("ab", "demo", *SIDE, "--lengths", "200", "--until", "4", "--arm", "new=baseline/bm25"),
    ],
    ids=lambda command: command[0],
)
def test_check_storm_and_ab_stream(needlemap, wire, command):
    here = f"--arm=ref={wire.base_url}" if command[0] == "ab" else f"--base-url={wire.base_url}"
    needlemap(*command[:1], here, *command[1:], "--stream", "--quiet", "-o", "r", code=None)
    log = wire.log()
    assert len(log) >= 4
    assert sum("stream" not in row["fields"] for row in log) <= 2, "of its own, to know the server"
    families = sorted({file.parent.name for file in needlemap.folder.rglob("records-*.jsonl")})
    asked = [
        row for name in families if "new" not in name for row in needlemap.records(f"r/{name}")
    ]
    assert all(row["first_token_s"] > 0 for row in asked if row["answer"])
    assert any(row["answer"] for row in asked)
