"""A gate is one file that needs only Python, and its verdict is that of `run --fail-under`."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import runpy
import subprocess
import sys
import threading
from collections import Counter
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

import numpy as np
import pytest

import needlemap
from needlemap.errors import Unmeasured
from needlemap.finishes import ENDINGS, ending_of, finish_of
from needlemap.models import Answer, Decoding
from needlemap.models.call import check_ended
from needlemap.models.thinking import MARKS, parted, split_thinking
from needlemap.reports.goals import mean_of, threshold_verdict
from needlemap.scorers.words import Substring
from needlemap.servers.gate.export import gate_source
from needlemap.servers.gate.gate_file import (
    cluster_interval,
    judge,
    make_prompt,
    say,
    score_answer,
)
from needlemap.stats.intervals import cluster_mean
from needlemap.tasks import Reference

NAMES = ("LENGTHS", "DEPTHS", "REPEATS", "FAIL_UNDER", "ANSWER_TOKENS")


class Answers(BaseHTTPRequestHandler):
    """A server that finds the fact, but for prompts that `is_lost` names."""

    is_lost = staticmethod(lambda _: False)
    fails = staticmethod(lambda _: False)

    def do_GET(self) -> None:
        self._send(200, {"data": [{"id": "tiny"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = body["messages"][0]["content"]
        if self.fails(text):
            self._send(400, {"error": "no"})
            return
        found = re.search(r"The locker code for \w+ is (\d+)", text)
        answer = "I do not know." if found is None or self.is_lost(text) else found[1]
        reply = {"choices": [{"message": {"content": answer}}]}
        self._send(200, {**reply, "usage": {"prompt_tokens": len(text) // 5}})

    def _send(self, status: int, content: object) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def serve():
    """Start a server whose prompts are lost, or refused, by a rule; return its address."""
    servers = []

    def start(is_lost=lambda _: False, fails=lambda _: False):
        rules = {"is_lost": staticmethod(is_lost), "fails": staticmethod(fails)}
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Answers,), rules))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}/v1"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def gate(typed, tmp_path):
    """Run an exported gate in a Python without site-packages; return code and last line."""
    file = tmp_path / "gate.py"
    typed("export", "gate", file, "--lengths", "500,1k", "--depths", "0,50,100")

    def run(address: str, *words: str) -> tuple[int, str]:
        command = [sys.executable, "-I", "-S", str(file), "--base-url", address, "--seed", "4"]
        done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()[-1]

    return run


def test_a_server_that_finds_all_passes(gate, serve):
    code, line = gate(serve())
    assert code == 4, "30 right answers do not show 90 %"
    assert line.startswith("NOT ENOUGH DATA gate: mean 100.0 % (88.6 to 100.0), wanted 90; ")
    code, line = gate(serve(), "--repeats", "12")
    assert (code, line) == (
        0,
        "PASS gate: mean 100.0 % (94.9 to 100.0), wanted 90; 72 prompts of 12 haystacks.",
    )


def test_a_server_that_loses_long_prompts_fails(gate, serve):
    code, line = gate(serve(is_lost=lambda text: len(text) > 3_000))
    assert code == 1
    assert line.startswith("FAIL gate: mean 50.0 % (")
    assert line.endswith("; below it at 1000 tokens.")


def test_refused_prompts_are_missing_and_never_right(gate, serve):
    code, line = gate(serve(fails=lambda text: len(text) > 3_000), "--repeats", "24")
    assert code == 4
    assert line.startswith("NOT ENOUGH DATA gate: mean 100.0 % (94.9 to 100.0), wanted 90; ")
    assert line.endswith("72 prompts of 24 haystacks, 72 missing.")


@pytest.mark.parametrize("body", ["<html>", "[1]", '{"choices": 5}', "[" * 100_000, "{}"])
def test_replies_of_another_shape_are_missing(gate, monkeypatch, serve, body):
    class Odd(Answers):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

    monkeypatch.setattr("tests.wings.servers.gate.test_gate.Answers", Odd)
    code, line = gate(serve(), "--repeats", "1")
    assert (code, line) == (3, "NO RESULT gate: no answer was scored; is the server running?")


def test_a_key_follows_no_redirect(gate, monkeypatch, serve):
    seen = []
    elsewhere = serve(is_lost=lambda _: False)

    class Redirecting(Answers):
        def do_POST(self) -> None:
            seen.append(self.headers["Authorization"])
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(302)
            self.send_header("Location", f"{elsewhere}/models")
            self.send_header("Content-Length", "0")
            self.end_headers()

    monkeypatch.setattr("tests.wings.servers.gate.test_gate.Answers", Redirecting)
    monkeypatch.setenv("GATE_KEY", "secret")
    code, _ = gate(serve(), "--repeats", "1", "--key-env", "GATE_KEY")
    assert (code, set(seen)) == (3, {"Bearer secret"})
    assert len(seen) == 7, "one of each prompt, and one to count characters"


def test_an_address_is_one_of_http(gate):
    code, line = gate("file:///etc")
    assert code == 3
    assert line.endswith("an address starts with http:// or https://")


def test_a_server_that_is_not_there_has_no_result(gate, typed, tmp_path):
    # One cell: a gate tries each prompt several times, and waits between.
    typed("export", "gate", tmp_path / "gate.py", "--lengths", "500", "--depths", "50")
    code, line = gate("http://127.0.0.1:9/v1", "--model", "tiny", "--repeats", "1")
    assert (code, line[:13]) == (3, "NO RESULT gat")


def test_what_a_server_says_does_nothing_to_a_terminal(capsys):
    say("HTTP Error 500: \x1b]0;owned\x07\x1b[2J")
    assert capsys.readouterr().out == "HTTP Error 500: ?]0;owned??[2J\n"


def test_the_same_seed_sends_the_same_prompts():
    one, same, other = (make_prompt(2_000, 50, 3, seed, 4.0) for seed in (1, 1, 2))
    assert one == same
    assert one.text != other.text
    assert one.text.startswith("Notes ")
    assert one.text.count(one.number) == 1
    place = one.text.index(one.number) / len(one.text)
    assert 0.4 < place < 0.6


@pytest.mark.parametrize(
    "answer",
    [
        "It is 417302.", "417,302", "It is 417 302", "9417302", "417302.5", "4 1 7 3 0 2",
        "417302,", "x417302x", "**417302**", "417.302", "\uff14\uff11\uff17\uff13\uff10\uff12",
        "417_302", "417\u202f302", "-417302", "4,17302", "417-302", "", "9,417,302", "417302.",
        "417'302", "417{,}302", "1.417302", "7 417302", "7,417302", "417,302.00", "x417 302",
    ],
)  # fmt: skip
def test_an_answer_scores_as_by_the_substring_scorer(answer):
    reference = Reference(answer="417302", keywords=("417302",))
    expected = asyncio.run(Substring().score(answer, reference)).share
    assert score_answer(answer, "417302") == expected


@pytest.mark.parametrize("seed", range(200))
def test_its_interval_is_that_of_the_core(seed):
    random = Random(seed)
    clusters, trials = random.randint(1, 12), random.randint(1, 9)
    rate = random.choice([0.0, 0.1, 0.5, 0.9, 1.0])
    scores = np.array(
        [[float(random.random() < rate) for _ in range(trials)] for _ in range(clusters)]
    )
    expected = cluster_mean(scores)
    rows = [(at, score) for at, row in enumerate(scores.tolist()) for score in row]
    assert cluster_interval(rows) == pytest.approx((expected.score, expected.low, expected.high))


@pytest.mark.parametrize(
    ("lost_of_100", "failed_of_100", "wanted", "word"),
    [
        (0, 0, 80, "PASS"),
        (0, 30, 80, "NOT ENOUGH DATA"),
        (0, 0, 90, "NOT ENOUGH DATA"),
        (12, 0, 90, "SUSPECT"),
        (60, 0, 90, "FAIL"),
        (60, 30, 90, "FAIL"),
        (60, 60, 90, "SUSPECT"),
    ],
)
def test_its_verdict_is_that_of_a_run_with_the_same_answers(
    tmp_path, lost_of_100, failed_of_100, wanted, word
):
    def answer(messages):
        text = messages[-1]["content"]
        digest = int(sha256(text.encode()).hexdigest(), 16)
        question = re.search(r"What is the locker code for (\w+)\?", text)[1]
        if digest // 100 % 100 < failed_of_100:
            raise RuntimeError("no answer")
        found = re.search(rf"The locker code for {question} is (\d+)", text)[1]
        return "unknown" if digest % 100 < lost_of_100 else found

    run = needlemap.run(
        model=answer, lengths="1k,2k", depths="0,50,100", repeats=5, out=str(tmp_path / "run")
    )
    records = run.records() if callable(run.records) else run.records
    rows = [(record.repeat, record.length_tokens, record.score) for record in records]
    mean = mean_of(tmp_path / "run", wanted)
    outcome = judge(rows, wanted)
    assert outcome.word == threshold_verdict(mean, wanted).word == word
    ends = outcome.score, outcome.low, outcome.high
    assert outcome.missing == mean.missing
    assert ends == pytest.approx((mean.score, mean.low, mean.high), abs=1e-5)


@pytest.mark.parametrize(
    ("content", "finish", "code", "line"),
    [
        ("Is it {}? No.</think>I do not know.", "stop", 1, "FAIL gate: mean 0.0 % ("),
        ("[THINK]Is it {}?[/THINK]I do not know.", "stop", 1, "FAIL gate: mean 0.0 % ("),
        ("Is it 7?</think>It is {}.", "stop", 4, "NOT ENOUGH DATA gate: mean 100.0 % ("),
        ("Sorry, so far <think>{}", "length", 1, "FAIL gate: mean 0.0 % ("),
        ("It is", "abort", 3, "NO RESULT gate: no answer was scored"),
        ("It is", "", 3, "NO RESULT gate: no answer was scored"),
        ("", "eol", 3, "NO RESULT gate: no answer was scored"),
        ("It is {}", "eol", 4, "NOT ENOUGH DATA gate: mean 100.0 % ("),
    ],
)
def test_it_judges_an_answer_as_a_run_does(gate, monkeypatch, serve, content, finish, code, line):
    """It knew <think> alone, with its opening tag, and read no finish reason."""

    class Ended(Answers):
        def _send(self, status: int, reply: dict) -> None:
            for choice in reply.get("choices", ()):
                number = choice["message"]["content"]
                choice["message"]["content"] = content.format(number)
                choice["finish_reason"] = finish
            super()._send(status, reply)

    monkeypatch.setattr("tests.wings.servers.gate.test_gate.Answers", Ended)
    address = serve()
    result = gate(address)
    assert (result[0], result[1][: len(line)]) == (code, line)

    answer = Answer(content.format(123_456), finish=finish_of(finish))
    try:
        check_ended(answer)
        text = split_thinking(answer, Decoding(64)).text
    except Unmeasured:
        assert code == 3
    else:
        assert ("123456" in text) == (code == 4)


def test_the_file_has_the_marks_and_the_words_of_a_run(typed, tmp_path):
    typed("export", "gate", tmp_path / "gate.py")
    judge_of = runpy.run_path(str(tmp_path / "gate.py"))
    assert judge_of["MARKS"] == MARKS
    for marks in MARKS:
        text = f"{marks.start[0]}Hm.{marks.end[0]}42"
        assert judge_of["parted"](text) == parted(text)
    assert judge_of["ENDINGS"] == ENDINGS
    words = [*ENDINGS, "FinishReason.STOP", "content_filter: x_error", "eol", None]
    assert [judge_of["ending_of"](word) for word in words] == [ending_of(word) for word in words]


def test_settings_stand_in_the_file(typed, tmp_path):
    file = tmp_path / "gate.py"
    typed(
        "export", "gate", file, "--lengths", "4k,32k", "--repeats", "7", "--fail-under", "95",
        "--max-answer-tokens", "512",
    )  # fmt: skip
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(file.read_text("utf-8")).body[:40]
        if isinstance(node, ast.Assign) and node.targets[0].id in NAMES
    }
    assert values["LENGTHS"] == (4_000, 32_000)
    assert values["DEPTHS"] == (0.0, 25.0, 50.0, 75.0, 100.0)
    assert (values["REPEATS"], values["FAIL_UNDER"], values["ANSWER_TOKENS"]) == (7, 95.0, 512)


def test_the_file_imports_the_standard_library_only():
    source = gate_source({})
    names = set(re.findall(r"^(?:import|from) (\w+)", source, re.MULTILINE))
    assert names <= sys.stdlib_module_names
    # Definitions of two modules stand in one.
    definitions = re.findall(r"^(?:(?:def|class) )?(\w+)(?:\(| = |:$)", source, re.MULTILINE)
    assert [name for name, count in Counter(definitions).items() if count > 1] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--lengths", "100"), "A gate's --lengths start at 320, got 100."),
        (("--repeats", "0"), "'repeats' in the command line: must be greater than or equal to 1"),
        (("--fail-under", "0"), "--fail-under is a mean in percent, above 0 and up to 100, got 0."),
    ],
)
def test_settings_that_no_gate_can_have_are_refused(typed, tmp_path, words, message):
    done = typed("export", "gate", tmp_path / "gate.py", *words, code=2)
    assert message in done.stderr
    assert not (tmp_path / "gate.py").exists()
