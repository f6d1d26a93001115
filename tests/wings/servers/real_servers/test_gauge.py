"""The gauge on a real llama-server, from the file that needlemap writes: the same tokens, every
needle found, and what is computed wrong seen beside the package's own engine."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator

import httpx
import numpy as np
import pytest
import tokenizers

from needlemap.servers.gauge.cache import eight_bits, four_bits
from needlemap.servers.gauge.checkpoint import DATA
from needlemap.servers.gauge.shapes import SHAPES

STRINGS = 10_000
# The shapes that differ most: norms of heads, a sliding window, experts.
UNLIKE = ("qwen3", "windows", "unequal-experts")
PIECES = (
    *(
        "The locker code for Oslo is",
        " 123456789012",
        ".",
        "?",
        " ",
        "  ",
        "\n",
        "\n\n",
        "\t",
        "\r\n",
    ),
    *(
        "上海",
        "储物柜密码是",
        "多少？",
        "é",
        "e\u0301",
        "ß",
        "Ⅷ",
        "½",
        "٣",
        "१२",
        "²",
        "🙂",
        "👩‍👩‍👧",
    ),
    *("<|im_start|>", "<|im_end|>", "<s>", "</s>", "<pad>", "<|im_", "assistant", "Answer:"),
    *(
        "don't",
        "I'LL",
        "'re",
        "x=1;",
        "{}",
        "\u00a0",
        "\u3000",
        "\u200b",
        "naïve",
        "Ελλάς",
        "ไทย",
        "0x1F",
    ),
)


def strings() -> Iterator[str]:
    draw = random.Random(27)
    for _ in range(STRINGS):
        yield "".join(draw.choice(PIECES) for _ in range(draw.randint(1, 8)))


def test_llama_cpp_splits_texts_as_the_gauges_own_tokenizer_does(gauge_server):
    own = tokenizers.Tokenizer.from_file(str(DATA / "tokenizer.json"))
    other = []
    with httpx.Client() as client:
        for text in strings():
            asked = {"content": text, "parse_special": True, "add_special": False}
            ids = client.post(f"{gauge_server.root}/tokenize", json=asked).json()["tokens"]
            if ids != own.encode(text, add_special_tokens=False).ids:
                other.append(text)
    assert other == []


@pytest.mark.parametrize("template", ["chat-en", "text-en"])
def test_every_needle_is_found(gauge_server, template, needlemap):
    address = ("--model", "openai/gauge", "--base-url", gauge_server.base_url)
    grid = ("--lengths", "128,1024,4k", "--depths", "0,50,100", "--repeats", 1)
    fact = ("--needle", "The locker code for {city} is {number}.", "--keywords", "{number}")
    asked = ("--question", "What is the locker code for {city}?", "--draw", "city=Oslo,Lima,Cairo")
    more = ("--draw", "number=100000000000:999999999999", "--template", template)
    sizes = ("--tokenizer", "server", "--max-answer-tokens", 20)
    needlemap("run", *address, *grid, *fact, *asked, *more, *sizes, "-o", "run")
    records = needlemap.records("run")
    assert {record["length_tokens"] for record in records} == {128, 1024, 4000}
    assert [record["score"] for record in records if record["score"] != 1] == []


COARSE = ("-fa", "on", "-ctk", "q4_0", "-ctv", "q4_0")


@pytest.mark.parametrize(
    ("options", "code", "state", "words"),
    [
        ((), 0, "PASS", "as float16 may (to 0.03)"),
        (("--rope-freq-base", 5e11), 1, "FAIL", "by over 0.22"),
        (COARSE, 5, "SUSPECT", "cache coarser than the weights by "),
    ],
    ids=["honest", "half the rotary base", "a cache of four bits"],
)
def test_check_knows_it_by_name_and_says_how_it_is_computed(
    gauge_served, options, code, state, words, needlemap
):
    served = gauge_served(*options)
    address = ("--model", "openai/gauge", "--base-url", served.base_url, "--max-length", "300")
    probes = ("--probe", "reference", "--require", "reference")
    ended = needlemap("check", *address, *probes, "-o", "c", code=code)
    (found,) = json.loads((needlemap.folder / "c" / "check.json").read_text())["findings"]
    assert (found["state"], words in found["said"]) == (state, True), found["said"]
    assert "'openai/gauge' is taken for needlemap's gauge" in ended.stderr


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(shape, marks=() if shape in UNLIKE else pytest.mark.long)
        for shape in sorted(set(SHAPES) - {"llama"})
    ],
)
def test_every_shape_is_computed_as_the_reference_is(gauge_served, shape, needlemap):
    served = gauge_served(shape=shape)
    # The shape qwen3 has weights, and so a name, of its own.
    name = "gauge-qwen3" if shape == "qwen3" else "gauge"
    address = ("--model", f"openai/{name}", "--base-url", served.base_url, "--max-length", "300")
    probes = ("--probe", "reference", "--require", "reference")
    needlemap("check", *address, *probes, "-o", "c")
    (finding,) = json.loads((needlemap.folder / "c" / "check.json").read_text())["findings"]
    assert (finding["state"], "as float16 may" in finding["said"]) == ("PASS", True), finding


@pytest.mark.parametrize("command", ["check", "ab"])
def test_it_is_known_by_its_answer_under_another_name(gauge_server, needlemap, command):
    """llama-server answers to any name."""
    server, out = gauge_server.base_url, ("--limit-tokens", "2k", "-o", "c")
    if command == "check":
        asked = ("--model", "openai/mine", "--base-url", server, "--max-length", "300")
        said = needlemap("check", *asked, *out, code=None).stderr
        assert "'openai/mine' is taken for needlemap's gauge" in said
    else:
        asked = ("--arm", f"mine={server}", "--model", "openai/mine", "--lengths", "256")
        said = needlemap("ab", *asked, *out, code=None).stderr
        assert "numpy and mine are taken for needlemap's gauge" in said


@pytest.mark.usefixtures("gauge_gguf")  # skips where the package gguf is missing
def test_caches_are_rounded_as_llama_cpp_rounds_them(monkeypatch):
    """Beside the arithmetic of llama.cpp's own Python package, bit by bit."""
    monkeypatch.syspath_prepend(os.environ["NEEDLEMAP_GGUF_CONVERTER"])
    from gguf import GGMLQuantizationType, quants

    values = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    kinds = GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q8_0
    for rounded, kind in zip((four_bits, eight_bits), kinds, strict=True):
        theirs = quants.dequantize(quants.quantize(values, kind), kind)
        assert np.array_equal(rounded(values), theirs), kind


def test_an_ab_of_one_arm_is_beside_the_packages_own_engine(gauge_server, needlemap):
    arm = f"mine={gauge_server.base_url}"
    asked = ("--until", 8, "--lengths", "256", "--on-undecided", "pass", "--json", "-o", "ab")
    found = json.loads(needlemap("ab", "--arm", arm, *asked).stdout)
    assert found["result"]["word"] != "FAIL"
    lost = [
        record["score"]
        for name in ("numpy-single", "mine-single")
        for record in needlemap.records(f"ab/{name}")
        if record["score"] != 1
    ]
    assert lost == []


TEST = """
def test_my_engine(needle_server):
    server = needle_server("openai/gauge", command={command!r})
    server.assert_checked(max_length="300", probes=("reference",))
"""


@pytest.mark.usefixtures("gauge_server")  # skips where there is no llama-server
def test_the_pytest_fixture_writes_the_gauge_for_the_engine(tmp_path):
    """`{gauge}` in a command is its folder, with llama.cpp's file where one is named."""
    binary = os.environ["NEEDLEMAP_LLAMA_SERVER"]
    command = f"{binary} -m {{gauge}}/gauge.gguf -c 4096 -t 1 -tb 1 --alias gauge --port {{port}}"
    (tmp_path / "test_it.py").write_text(TEST.format(command=command))
    plugin = ("-p", "needlemap.servers.pytest_plugin", "-p", "no:cacheprovider")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, "--basetemp", tmp_path / "kept"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTEST_ADDOPTS": "",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": os.environ["NEEDLEMAP_GGUF_CONVERTER"],
        },
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
