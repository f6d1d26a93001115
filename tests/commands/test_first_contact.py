"""The first minute with a server: no model named, a wrong address, a wrong key, a wrong name.

Each ends at once, in one line with what to type.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from needlemap import run
from needlemap.asking.pacer import Pacer
from needlemap.errors import NeedlemapError

SMALL = ("--lengths", "200", "--depths", "50", "--max-answer-tokens", "40")
SIDE = ("--tokenizer", "cl100k_base")


@pytest.fixture
def closed() -> str:
    """The address of a port that nobody listens at."""
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        port = line.getsockname()[1]
    return f"http://127.0.0.1:{port}/v1"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits before asking again fails the test."""

    async def rest(_: Pacer, wait_s: float) -> bool:
        raise AssertionError(f"waited {wait_s} s")

    monkeypatch.setattr(Pacer, "rest", rest)


def last(ended: Any) -> str:
    return str(ended.stderr.splitlines()[-1])


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    "command",
    [
        ("run", *SIDE, *SMALL),
        ("run", *SIDE, *SMALL, "--no-canary"),
        ("run", *SIDE, *SMALL, "--quiet"),
        ("run", *SMALL),  # lengths would count the server's own tokens
        ("check", *SIDE, "--max-length", "400"),
        ("check", "--quiet"),
    ],
)
def test_a_closed_port_ends_at_once_in_one_line_with_what_to_type(typed, closed, command):
    """It was five and a half minutes, and with --quiet an empty terminal."""
    ended = typed(*command, "--model", "openai/m", "--base-url", closed, code=2)
    assert last(ended) == (
        f"needlemap: No connection to {closed}: Connection refused. Start the server or correct "
        f"its address (--base-url, or --arm of ab); to wait for one that is starting, add --wait 5m"
    )
    assert "undecided" not in ended.stdout


@pytest.mark.usefixtures("patient")
def test_a_closed_port_without_a_model_ends_in_the_same_line(typed, closed):
    for command in (("run",), ("plan", "passkey"), ("check",)):
        ended = typed(*command, "--base-url", closed, code=2)
        assert last(ended).startswith(f"needlemap: No connection to {closed}: Connection refused.")


@pytest.mark.usefixtures("patient")
def test_an_arm_that_is_not_there_is_named_and_nothing_is_asked(typed, wire, closed):
    arms = ("--arm", f"a={wire.base_url}", "--arm", f"b={closed}")
    ended = typed("ab", *arms, *SIDE, code=2)
    assert last(ended).startswith(f"needlemap: Arm 'b': No connection to {closed}: ")
    assert wire.log() == []
    ended = typed("ab", *arms, *SIDE, "--model", "openai/wire", "--until", "4", code=2)
    assert last(ended).startswith(f"needlemap: No connection to {closed}: ")


@pytest.mark.usefixtures("patient")
def test_python_and_a_host_that_no_machine_has(tmp_path, closed):
    settings = {"tokenizer": "cl100k_base", "lengths": "400", "depths": "50", "quiet": True}
    for url, why in (
        (closed, "Connection refused"),
        ("http://no-such-host.invalid/v1", "(?i)name"),
    ):
        with pytest.raises(NeedlemapError, match=why) as caught:
            run(model="openai/m", base_url=url, out=tmp_path / "r", **settings)
        assert "add wait 5m" in str(caught.value)


def test_a_server_that_is_starting_is_waited_for_where_that_is_asked(typed, closed):
    """Its model too, which only it knows."""
    server = Path(__file__).parent.parent / "servers" / "wire.py"
    port = closed.rpartition(":")[2].removesuffix("/v1")
    late = f"sleep 3; exec {sys.executable} {server} --port {port}"
    with subprocess.Popen(["sh", "-c", late], stdout=subprocess.DEVNULL) as process:
        try:
            ended = typed("run", *SIDE, *SMALL, "--base-url", closed, "--wait", "4m")
        finally:
            process.terminate()
    assert "waiting for it" in ended.stderr
    assert "(n=1, 0 missing)" in ended.stdout


def test_a_run_waits_for_a_server_that_is_starting(typed, closed):
    server = Path(__file__).parent.parent / "servers" / "wire.py"
    port = closed.rpartition(":")[2].removesuffix("/v1")
    late = f"sleep 3; exec {sys.executable} {server} --port {port}"
    named = ("--model", "openai/m", "--base-url", closed, "--wait", "4m")
    with subprocess.Popen(["sh", "-c", late], stdout=subprocess.DEVNULL) as process:
        try:
            ended = typed("run", *SIDE, *SMALL, *named)
        finally:
            process.terminate()
    assert "Connection refused; waiting up to 4 min" in ended.stderr
    assert "(n=1, 0 missing)" in ended.stdout


def test_a_server_that_was_there_and_is_gone_has_its_retries_as_before(needlemap, wires):
    """Refused connections of a server that is started again are no first contact."""
    wire = wires()
    wire.schedule("ok", "down:1")
    grid = ("--lengths", "200", "--depths", "0,50,100", "--concurrency", "1")
    ended = needlemap.run(wire, *grid, "--retries", "1")
    assert "(n=3, 0 missing)" in ended.stdout


def test_a_refused_key_names_its_variable(needlemap, wire):
    refused = needlemap.run(
        wire, *SMALL, "--model", "openai/fault-401", "--base-url", wire.base_url, code=2
    )
    assert "No key is in OPENAI_API_KEY. Type: export OPENAI_API_KEY=YOUR-KEY" in last(refused)
    needlemap.environment["OPENAI_API_KEY"] = "sk-wrong-0123456789"
    refused = needlemap.run(
        wire, *SMALL, "--model", "openai/fault-401", "--base-url", wire.base_url, code=2
    )
    assert "It refuses the key in OPENAI_API_KEY. Type: export" in last(refused)
    assert "0123456789" not in refused.stderr


@pytest.mark.parametrize("canary", [(), ("--no-canary",)])
def test_a_name_that_is_not_served_lists_those_that_are(needlemap, wires, canary):
    one, two = wires(), wires("--models", "a,b")
    wrong = ("--model", "openai/fault-404", *SMALL, "--repeats", "3", *canary)
    ended = needlemap.run(one, *wrong, "--base-url", one.base_url, code=2)
    said = "The model `fault-404` does not exist. The server lists wire. Type: --model openai/wire"
    assert said in last(ended)
    ended = needlemap.run(two, *wrong, "--base-url", two.root, "-o", "other", code=2)
    assert "The server lists a, b. Type: --model openai/NAME" in last(ended)


@pytest.mark.parametrize(
    "said",
    [
        "The model `m` does not exist.",  # vLLM, 404
        "Server is pinned to './tiny'; requested 'm'.",  # transformers serve
        "m is not a local folder and is not a valid model identifier listed on the hub",
        "model 'm' not found",  # SGLang, Ollama
    ],
)
def test_each_servers_words_for_an_unknown_name_are_known(needlemap, wire, said):
    body = json.dumps({"error": {"message": said}})
    wire.schedule(f"reply:{json.dumps({'status': 400, 'body': body})}", cycle=True)
    ended = needlemap.run(wire, *SMALL, code=2)
    assert "The server lists wire. Type: --model openai/wire" in last(ended)


def test_the_only_model_of_a_server_is_taken_and_told(typed, wires):
    wire = wires("--max-context", "100000")
    asked = ("--base-url", wire.root, *SIDE)  # without its /v1
    told = f"note: {wire.base_url} serves wire: --model openai/wire"
    ended = typed("run", *asked, *SMALL, "-o", "r")
    assert told in ended.stderr
    assert "overall 100.0" in ended.stdout
    assert {request["model"] for request in wire.log()} == {"wire"}
    assert told in typed("plan", *asked).stderr
    assert "openai/wire" in typed("plan", "passkey", *asked).stdout
    arms = ("--arm", f"a={wire.base_url}", "--arm", f"b={wire.root}")
    ended = typed("ab", *arms, *SIDE, "--plan")
    assert ended.stderr.count(told) == 2


def test_an_address_in_the_environment_is_enough_and_the_demo_stays_the_demo(typed, wire):
    known = {**os.environ, "OPENAI_BASE_URL": wire.base_url}
    ended = typed("run", "passkey", *SIDE, "--lengths", "300", "--depths", "50", environment=known)
    assert f"note: {wire.base_url} serves wire" in ended.stderr
    assert "demo/retriever" in typed("plan", environment=known).stdout


def test_several_models_are_listed_with_the_line_to_type(typed, wires):
    wire = wires("--models", "org/base,an adapter")
    for command in (("run",), ("check",), ("plan", "passkey")):
        ended = typed(*command, "--base-url", wire.base_url, code=2)
        assert ended.stderr.splitlines()[-3:] == [
            f"needlemap: {wire.base_url} serves 2 models. Type one of:",
            "  --model openai/org/base",
            "  --model 'openai/an adapter'",
        ]
    none = wires("--models", "")
    ended = typed("run", "--base-url", none.base_url, code=2)
    assert last(ended).endswith("lists no model. Name it: --model openai/NAME")


def test_a_check_of_nobody_is_refused(typed):
    """It checked a Python function, and passed."""
    for flags in ((), ("--plan",), ("--minutes", "5")):
        ended = typed("check", *flags, code=2)
        assert last(ended) == (
            "needlemap: check asks a server, and none is named. Type: needlemap check --model "
            "openai/NAME --base-url http://HOST:PORT/v1"
        )


def test_a_file_with_an_address_and_no_model_is_run_and_not_planned(typed, tmp_path, wire):
    file = tmp_path / "own.yaml"
    file.write_text(f"base_url: {wire.base_url}\nlengths: '200'\ndepths: '50'\n")
    ended = typed("plan", "own.yaml", *SIDE, code=2)
    assert "'own.yaml' has an address and no model, and nothing is asked here" in last(ended)
    ended = typed("run", "own.yaml", *SIDE, "--max-answer-tokens", "40")
    assert "serves wire" in ended.stderr


def test_lengths_of_an_unknown_vocabulary_count_a_named_one_in_every_command(typed, wire):
    """run and ab refused, and check went on: three rules for one question."""
    named = ("--model", "openai/m", "--base-url", wire.base_url)
    said = "lengths count o200k_base's tokens, and records keep the server's own count"
    ended = typed("run", *named, *SMALL, "-o", "r")
    assert said in ended.stderr
    assert "tokenizer o200k_base" in typed("report", "r", "--map").stdout
    assert said in " ".join(typed("plan", *named).stdout.split())
    assert said not in typed("run", *named, *SMALL, *SIDE, "-o", "other").stderr


def test_a_harness_counts_the_tokens_of_the_model_that_a_server_lists(wires):
    from needlemap.interop.hosted import hosted

    wire = wires("--models", "qwen3-8b")
    made = hosted("single", {"base_url": wire.base_url, "lengths": "500", "depths": "50"})
    assert made.settings.model == "openai/qwen3-8b"
    assert wire.log() == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("--base-url", "127.0.0.1:8123"),
            "'127.0.0.1:8123' is no base URL. Type one such as http://127.0.0.1:8123.",
        ),
        (
            ("--base-url", "http://127.0.0.1:8123/v1/chat/completions"),
            "is the address of one request. Type: --base-url http://127.0.0.1:8123/v1",
        ),
        (
            ("--model", "google/gemini-2.5-pro"),
            "Type: --model openai/gemini-2.5-pro --base-url "
            "https://generativelanguage.googleapis.com/v1beta/openai "
            "--model-options key_env=GEMINI_API_KEY",
        ),
        (
            ("--model", "nosuch/m"),
            "A server: --model openai/m --base-url http://HOST:PORT/v1",
        ),
        (("--haystack", "essays"), "A folder of yours: --haystack-path FOLDER"),
    ],
)
def test_a_first_line_that_is_nearly_right_ends_with_the_line_to_type(typed, words, line):
    assert last(typed("run", *words, "--lengths", "1k", code=2)).endswith(line)


def test_both_arms_that_refuse_a_model_say_once_which_one_there_is(typed, wire):
    """The same sentence stood there twice, of arms that `answer no more` and never did."""
    arms = ("--arm", f"a={wire.base_url}", "--arm", f"b={wire.base_url}")
    asked = ("ab", *arms, "--model", "openai/fault-404", *SIDE, "--lengths", "1k")
    line = last(typed(*asked, "-o", "ab", code=2))
    assert line.startswith("needlemap: No arm answers. a and b: ")
    assert line.count("Type: --model openai/wire") == 1


NAMED = "gpt-4-1106-preview"
OLDER = ("--lengths", "300", "--depths", "50", "--no-canary", "--tokenizer", "gpt-4")


def asked_for(wire: Any) -> set[str]:
    """The models that a server's requests named."""
    return {request["model"] for request in wire.log()}


@pytest.mark.parametrize("where", ["flag", "environment"])
def test_a_model_by_the_older_tools_name_is_the_one_that_an_address_is_asked_for(
    typed, wire, where
):
    """The server's own was taken too, and 'model' was then said to be given twice."""
    known = dict(os.environ)
    address = () if where == "environment" else ("--base-url", wire.base_url)
    if where == "environment":
        known["OPENAI_BASE_URL"] = wire.base_url
    for flags in (("--model_name", NAMED), ("--model-name", NAMED)):
        typed("run", "passkey", *flags, *address, *OLDER, environment=known)
    assert asked_for(wire) == {NAMED}
    plan = typed("plan", "passkey", "--model_name", NAMED, *address, environment=known)
    assert f"openai/{NAMED}" in plan.stdout


@pytest.mark.parametrize("suite", [False, True])
def test_a_file_that_names_its_model_by_the_older_name_is_asked_of_that_model(
    typed, wire, tmp_path, suite
):
    """The model that the server lists was asked, without a word."""
    own = f"model_name: {NAMED}\nlengths: '300'\ndepths: '50'\n"
    if suite:
        file = "families: {one: {preset: passkey}}\nsettings: " + json.dumps(
            {"model_name": NAMED, "print_ongoing_status": False}
        )
    else:
        file = f"{own}base_url: {wire.base_url}\n"
    (tmp_path / "own.yaml").write_text(file)
    named = "suite:own.yaml" if suite else "own.yaml"
    known = {**os.environ, "OPENAI_BASE_URL": wire.base_url}
    typed("run", named, "--no-canary", *SIDE, *SMALL, "-o", "r", environment=known)
    assert asked_for(wire) == {NAMED}


def test_python_takes_the_older_name_beside_an_address(wire, tmp_path):
    settings = {"lengths": "300", "depths": "50", "quiet": True, "canary": False}
    address = {"base_url": wire.base_url, "out": tmp_path / "r", "tokenizer": "gpt-4"}
    run("passkey", model_name=NAMED, **address, **settings)
    assert asked_for(wire) == {NAMED}


def test_a_harness_takes_the_older_names_in_the_place_of_its_own(wire):
    from needlemap.interop.hosted import hosted

    grid = {"lengths": "500", "depths": "50"}
    for address in ({}, {"base_url": wire.base_url}):
        made = hosted("single", {"model_name": "gpt-4", **address, **grid})
        assert made.settings.model == "openai/gpt-4"
    assert hosted("single", {"tokenizer_model": "qwen3", **grid}).settings.tokenizer == "qwen3"


def test_an_older_name_that_is_typed_stands_above_the_several_models_of_a_file(
    typed, wire, tmp_path
):
    (tmp_path / "own.yaml").write_text("model: [openai/a, openai/b]\n")
    typed(
        "run", "own.yaml", "--model_name", "c", "--base-url", wire.base_url, *SIDE, *SMALL,
        "--no-canary",
    )  # fmt: skip
    assert asked_for(wire) == {"c"}


@pytest.mark.parametrize(
    "command",
    [
        ("check", "--max-length", "400", "--limit-tokens", "2k"),
        # Otherwise it also tries the other model that the server lists.
        ("storm", "--max-length", "1k", "--limit-tokens", "8k", "--without", "models"),
    ],
)
def test_the_commands_that_judge_servers_take_older_names_too(typed, wire, command):
    older = ("--model_name", NAMED, "--max_out_len", "40", "--print_ongoing_status", "False")
    typed(*command, *older, "--base-url", wire.base_url, *SIDE, code=None)
    assert asked_for(wire) == {NAMED}


def test_an_arm_that_is_an_address_is_asked_for_the_model_by_its_older_name(typed, wire):
    arms = ("--arm", f"a={wire.base_url}", "--arm", f"b={wire.root}")
    shown = typed("ab", *arms, "--model_name", NAMED, *SIDE, "--context_lengths", "1000", "--plan")
    assert "serves" not in shown.stderr


def test_a_model_by_both_names_is_refused(typed, wire):
    both = ("--model", "openai/a", "--model_name", "b", "--base-url", wire.base_url)
    for command in ("run", "check", "storm", "plan"):
        ended = typed(command, *both, code=2)
        assert last(ended).endswith(
            "'model_name' and 'model' mean the same setting. Give one of them."
        )
    assert wire.log() == []


def test_a_suite_whose_families_have_their_own_depths_refuses_those_of_an_older_name(
    typed, tmp_path
):
    (tmp_path / "own.yaml").write_text(
        "families: {a: {preset: passkey, document_depth_percents: [50]}}\n"
    )
    flags = ("--model", "baseline/bm25", "--document_depth_percents", "10")
    ended = typed("plan", "suite:own.yaml", *flags, code=2)
    assert "has its own depths" in last(ended)


def test_one_model_by_the_older_name_is_one(typed):
    ended = typed("plan", "passkey", "--model_name", "[a, b]", code=2)
    assert "model_name is one model's name" in last(ended)
