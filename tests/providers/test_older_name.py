"""The older tools' `model_name` goes together with an address, wherever it is written."""

from __future__ import annotations

from typing import Any

import needlemap as package

GRID = ("--context_lengths", "400", "--document_depth_percents", "50")


def test_a_model_name_and_an_address_in_flags_a_file_and_python(needlemap: Any, wire: Any) -> None:
    url = ("--base-url", wire.base_url, "--tokenizer", "cl100k_base", "--no-canary", "--quiet")
    short = ("--max-answer-tokens", "24")
    needlemap("run", "--model_name", "gpt-x", *GRID, *url, *short, "-o", "a")
    (needlemap.folder / "s.yaml").write_text(f"model_name: gpt-x\nbase_url: {wire.base_url}\n")
    flags = ("--lengths", "400", "--depths", "50", *url[2:], *short)
    needlemap("run", "s.yaml", *flags, "-o", "b")
    package.run(
        model_name="gpt-x",
        base_url=wire.base_url,
        tokenizer="cl100k_base",
        lengths="400",
        depths="50",
        max_answer_tokens=24,
        canary=False,
        quiet=True,
        out=needlemap.folder / "c",
    )
    assert [request["model"] for request in wire.log()] == ["gpt-x"] * 3
