"""`needlemap storm` against a server over HTTP: the plan, the verdict, the folder, its reports."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from time import sleep

import pytest

from needlemap.errors import SettingsError
from needlemap.servers.check import known_by_answer
from needlemap.servers.check.known_by_answer import ITS_ANSWER
from needlemap.servers.flags import StormFlags
from needlemap.servers.gauge.checkpoint import REFERENCE
from needlemap.servers.storm.command import options_of
from needlemap.servers.storm.file import STORM, StormFile

ENGINE = Path(__file__).parent / "boxed_engine.py"
SIDE = ("--model", "openai/wire", "--tokenizer", "cl100k_base", "--max-length", "2k")
SIZES = ("--max-answer-tokens", "60", "--load", "4", "--kv-tokens", "8k", "--quiet")


def test_a_sound_server_is_stormed_reported_and_gone_on_with(needlemap, wire):
    to = ("--base-url", wire.base_url, "-o", "s")
    asked = ("storm", *SIDE, *SIZES, *to, "--limit-tokens", "60k")
    shown = needlemap(*asked, code=4)
    last = shown.stdout.splitlines()[-1]
    assert last.startswith("NOT ENOUGH DATA storm: faulty families: 0 of ")
    assert "tested: " in last
    assert "787 families without a fault bring the rate below 0.5 %" in shown.stderr
    before = len(wire.log())
    found = json.loads(needlemap(*asked, "--json", code=4).stdout)
    assert len(wire.log()) <= before + 8, "asked twice"
    assert (found["result"]["word"], found["result"]["code"]) == ("NOT ENOUGH DATA", 4)
    assert found["counts"]["right"] == found["requests"]
    assert {row["operation"] for row in found["operations"]} >= {"fresh", "turn", "fork"}
    report = needlemap("report", "s").stdout
    assert report.splitlines()[-1] == found["result"]["line"]
    needlemap("report", "s", "-o", "s.md")
    needlemap("report", "s", "-o", "s.html")
    before = len(wire.log())
    shrunk = needlemap("storm", "s", "--shrink", code=4)
    assert "'s' holds no fault that a replay may show" in shrunk.stderr
    assert len(wire.log()) == before


def test_a_storm_that_was_killed_goes_on_and_ends_as_one_that_was_not(needlemap, wire):
    """Nobody goes away in the first five rounds, where both end: so each asks the same."""
    to = ("storm", *SIDE, *SIZES, "--base-url", wire.base_url, "--until", "rate<20%", "-o")
    wire.reset()
    needlemap(*to, "whole")
    wanted = wire.prompt_counts()
    whole = STORM.read(needlemap.folder / "whole")
    broken = needlemap.folder / "broken"
    broken.mkdir()
    start = StormFile(seed=whole.seed, model=whole.model, max_length=2_000, load=4)
    STORM.write(broken, start.model_copy(update={"kv_tokens": 8_000, "wanted": 0.2}))
    wire.reset()
    command = [sys.executable, "-c", "from needlemap.cli import main; main()", *to, "broken"]
    with subprocess.Popen(command, cwd=needlemap.folder, stderr=subprocess.PIPE) as killed:
        while sum(wire.prompt_counts().values()) < sum(wanted.values()) // 2:
            assert killed.poll() is None, killed.stderr and killed.stderr.read()
            sleep(0.05)
        killed.kill()
    assert not STORM.read(broken).sequence
    needlemap(*to, "broken")
    twice = wire.prompt_counts() - wanted
    # Each start asks one question, whose answer tells the gauge.
    assert sum(twice.values()) <= 4 + 1, "more than was in flight"
    assert not wanted - wire.prompt_counts()
    found = STORM.read(broken)
    assert (found.verdict, found.said, found.counts) == (whole.verdict, whole.said, whole.counts)
    assert [each.key for each in found.sequence] == [each.key for each in whole.sequence]


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (("--limit-tokens", "20k"), "20,000 tokens"),
        (
            ("--limit-usd", "0.02", "--prices", "input=1", "--prices", "output=1"),
            "of 0.02 US dollars",
        ),
        (("--minutes", "0.05"), "as long as --minutes allows"),
    ],
)
def test_a_limit_ends_a_storm_with_what_was_seen(needlemap, wire, limit, said):
    shown = needlemap("storm", *SIDE, *SIZES, "--base-url", wire.base_url, *limit, code=4)
    assert said in shown.stderr


def test_a_plan_says_what_it_takes_and_asks_nothing(needlemap, wire):
    wire.reset()
    asked = ("storm", *SIDE, *SIZES, "--base-url", wire.base_url, "--plan")
    said = needlemap(*asked).stderr
    assert "787 families" in said
    assert "$" not in said
    assert ", about $" in needlemap(*asked, "--prices", "input=2", "--prices", "output=8").stderr
    assert not wire.log()


def test_a_plan_stays_within_the_context_of_the_server_that_lists_its_model(needlemap, wires):
    wire = wires("--models", "m", "--lists", "4000")
    typed = ("storm", "--base-url", wire.base_url, "--tokenizer", "cl100k_base", "--plan")
    assert "the server's context is 4,000 tokens" in needlemap(*typed).stderr
    assert wire.log() == []
    wire.stop()
    named = needlemap(*typed, "--model", "openai/m").stderr
    assert "planned to 64,000 tokens, as the context is not known" in named


def test_another_providers_clients_do_not_go_away_unless_it_is_allowed(needlemap):
    away = ("--base-url", "https://models.example/v1", "--plan")
    assert "no client goes away" in needlemap("storm", *SIDE, *SIZES, *away).stderr
    own = needlemap("storm", *SIDE, *SIZES, *away, "--own").stderr
    assert "no client goes away" not in own


def test_the_gauge_under_another_name_is_known_by_its_answer(wire, monkeypatch):
    """check and ab knew it so, and storm by its name alone, in spite of the help of --gauge."""

    def answer_to(question, *_):
        return ITS_ANSWER if question.endswith("?") else "Nobody."

    monkeypatch.setattr(known_by_answer, "answer_to", answer_to)
    flags = {"model": "openai/mine", "base_url": wire.base_url}
    options = options_of(StormFlags(), flags)
    assert (options.gauge, options.reference) == (True, REFERENCE)
    options = options_of(StormFlags(gauge=False), flags)
    assert (options.gauge, options.reference) == (False, "")


def test_a_rate_that_is_none_is_refused(needlemap):
    ended = needlemap("storm", *SIDE, "--base-url", "http://127.0.0.1:1", "--until", "1%", code=2)
    assert "Give one as 'rate<0.2%'" in ended.stderr


@pytest.mark.long
def test_a_fault_over_http_is_found_and_its_servers_command_shrunk_to_a_script(needlemap):
    command = [sys.executable, str(ENGINE), "--fault", "turn", "--pages", "300"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            url = f"http://127.0.0.1:{port}/v1"
            shown = needlemap("storm", *SIDE, *SIZES, "--base-url", url, "-o", "t", code=1)
            assert "faults of state" in shown.stdout
            assert "needlemap storm t --shrink" in shown.stderr
            again = shlex.join([*command, "--port", str(port)])
            twice = needlemap("storm", "t", "--shrink", "--command", again, code=2)
            assert f"A server answers at {url} already" in twice.stderr
        finally:
            server.kill()
    shrunk = needlemap("storm", "t", "--shrink", "--command", again).stdout
    assert (needlemap.folder / "t" / "server.log").is_file()
    assert re.match(r"[2-6] requests of \d+ show it: wrong in 20 of 20 replays, and in 0", shrunk)
    written = {each.name for each in (needlemap.folder / "t").iterdir()}
    assert {"repro.py", "repro.json.gz", "issue.md"} <= written


def test_a_servers_address_where_a_folder_is_meant_says_what_to_type(needlemap):
    ended = needlemap("storm", "http://127.0.0.1:1/v1", code=2)
    assert "A server's address is given as --base-url" in ended.stderr


def test_a_folder_without_shrink_says_what_to_type(needlemap):
    ended = needlemap("storm", "nowhere", code=2)
    assert "needlemap storm FOLDER --shrink" in ended.stderr


def test_shrinking_refuses_a_flag_that_it_does_not_read(needlemap):
    """It ignored them: the folder says how its storm was asked."""
    ended = needlemap("storm", "s", "--shrink", "--junit", "storm.xml", code=2)
    assert "leave --junit out" in " ".join(ended.stderr.split())
    assert "needlemap storm FOLDER --shrink" in " ".join(ended.stderr.split())


def test_a_command_without_shrink_says_what_to_type(needlemap):
    ended = needlemap("storm", *SIDE, "--base-url", "http://127.0.0.1:1", "--command", "x", code=2)
    assert "--shrink --command '...'" in " ".join(ended.stderr.split())


def test_every_flag_of_a_storm_is_read_or_refused_by_shrinking():
    for each in fields(StormFlags):
        if each.name not in ("shrink", "minutes", "own", "command", "trust_run"):
            flag = f"--{each.name.replace('_', '-')}"
            with pytest.raises(SettingsError, match=f"--shrink replays FOLDER.* leave {flag} out"):
                StormFlags(shrink=True, **{each.name: "typed"})
    assert StormFlags(shrink=True, minutes=5, trust_run=True).minutes == 5
