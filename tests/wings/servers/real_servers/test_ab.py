"""Two real llama-servers as arms, started by ab: keys and values of 16 bits against 4 bits."""

from __future__ import annotations

import json
import os
import shlex

import pytest

TASK = """\
needle: The magic number for {{city}} is {{number}}.
question: What is the magic number for {{city}}?
keywords: ['{{number}}']
draw: {{city: [Berlin, Oslo, Paris, Madrid], number: '1000:9999'}}
haystack: folder
haystack_path: {essays}
template: chat.yaml
lengths: [160, 220]
depths: [10, 60]
"""


@pytest.fixture
def arms(gguf, asking, shared):
    """arms(flags, kind): the command's flags, with a second server that keeps its cache in some
    type."""
    folder = asking._command.folder
    (folder / "magic.yaml").write_text(TASK.format(essays=shared / "data" / "PaulGrahamEssays"))
    binary = os.environ["NEEDLEMAP_LLAMA_SERVER"]
    words = (
        f"{binary} -m {shlex.quote(str(gguf))} -c 4096 -np 2 -t 1 -tb 1 -fa on --jinja --port "
        f"{{port}}"
    )

    def flags(kind: str) -> tuple[str, ...]:
        commands = ("--arm-command", f"f16={words}", "--arm-command")
        cache = f"{words} --cache-type-k {kind} --cache-type-v {kind}"
        tokens = ("--tokenizer", str(asking.checkpoint), "--max-answer-tokens", "20", "--quiet")
        return (
            "magic.yaml",
            *commands,
            f"new={cache}",
            *tokens,
            "--until",
            "12",
            "--json",
            "-o",
            "ab",
        )

    return flags


@pytest.mark.parametrize(("kind", "moved"), [("q4_0", True), ("f16", False)])
def test_four_bit_keys_move_log_probabilities_and_the_same_ones_do_not(
    arms, needlemap, kind, moved
):
    found = json.loads(needlemap("ab", *arms(kind), code=4).stdout)
    told = found["log_probabilities"]
    assert (found["asked"], told["ways"], told["again_beyond"]) == (12, ["generated"], 0)
    # Two prompts at a time move each other by some 1e-4 nats.
    assert (told["median"] > 1e-3) is moved
    for name in ("f16", "new"):
        assert (needlemap.folder / "ab" / f"server-{name}.log").stat().st_size
        assert all(record["score"] == 1 for record in needlemap.records(f"ab/{name}-single"))
