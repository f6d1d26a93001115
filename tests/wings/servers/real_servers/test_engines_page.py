"""The recipe of docs/engines.md on real llama-servers: a random model, equal answers, a cache of 8
bits."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest

from needlemap.models.started import started

PAGE = (Path(__file__).parents[4] / "docs" / "engines.md").read_text("utf-8")
CONVERT = Path(__file__).with_name("convert.py")
SERVE = (
    "{} -m random.gguf --alias random -c 2048 -np 1 -t 1 -tb 1 --host 127.0.0.1 --port {{port}} {}"
)
EIGHT_BITS = "-fa on --cache-type-k q8_0 --cache-type-v q8_0"


@pytest.fixture
def _random_model(needlemap):
    """The page's model, in llama.cpp's format too."""
    (program,) = re.findall(r"^```python\n(# random_model.py\n.*?)^```$", PAGE, re.M | re.S)
    with chdir(needlemap.folder):
        exec(compile(program, "random_model.py", "exec"), {})
        command = [sys.executable, str(CONVERT), os.environ["NEEDLEMAP_GGUF_CONVERTER"]]
        subprocess.run([*command, "random", "random.gguf"], check=True, capture_output=True)


@pytest.mark.usefixtures("gguf", "_random_model")  # gguf: says what is missing here
def test_the_same_server_twice_passes_and_a_cache_of_8_bits_fails(needlemap):
    before, after = re.findall(r"^needlemap (run --model openai/random .*)$", PAGE, re.M)
    server = os.environ.get("NEEDLEMAP_LLAMA_SERVER", "")
    for asked, out, options in (
        (before, "before", ""),
        (after, "after", ""),
        (after, "eight", EIGHT_BITS),
    ):
        with (
            chdir(needlemap.folder),
            started(SERVE.format(server, options), Path(f"{out}.log")) as url,
        ):
            asked = re.sub(
                r"http://127.0.0.1:800\d/v1", url, asked.replace("-o after", f"-o {out}")
            )
            needlemap(*asked.split())
    (compare,) = re.findall(r"^needlemap (compare before after --answers .*)$", PAGE, re.M)
    assert "0 differ" in needlemap(*compare.split()).stdout
    told = needlemap(*compare.replace("after", "eight").split(), "--json", code=1).stdout
    assert json.loads(told)["answers"]["differing"] > 0


@pytest.mark.usefixtures("gguf", "_random_model")
def test_beside_random_weights_elsewhere_a_check_blames_nobody(needlemap):
    pytest.importorskip("torch", reason="needs torch: python3 -m pip install '.[hf]'")
    server = os.environ.get("NEEDLEMAP_LLAMA_SERVER", "")
    with chdir(needlemap.folder), started(SERVE.format(server, ""), Path("honest.log")) as url:
        model = ("--model", "openai/random", "--base-url", url, "--tokenizer", "./random")
        small = (
            "--template",
            "text-en",
            "--max-length",
            "600",
            "--max-answer-tokens",
            "16",
            "--json",
        )
        beside = ("--reference", "hf/./random", "--probe", "reference", "-o", "c")
        (found,) = json.loads(needlemap("check", *model, *small, *beside, code=5).stdout)["probes"]
    assert found["state"] == "undecided"
    assert "found in either way" in found["said"]
