"""Replies of status 200 that hold no whole answer, from a real HTTP server to exit codes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

CODE = "51328"
ITEM = ("--needle", f"The code is {CODE}.", "--question", "What is the code?", "--answer", CODE)
GRID = ("--lengths", "1k,3k", "--depths", "0,100", "--max-answer-tokens", "40")
LONG = 8_000  # characters of a prompt, between those of the two lengths
GOOD = {"message": {"content": CODE}, "finish_reason": "stop"}
BROKEN = {
    "message": {"content": "The loc"},
    "finish_reason": "error",
    "error": {"code": 502, "message": "upstream died"},
}
Choose = Callable[[int, int], dict[str, Any]]


class Server:
    """Answers as `choose` says, of a prompt's characters and how often it was asked before."""

    def __init__(self, choose: Choose, **usage: int) -> None:
        self.choose, self.usage, self.asked = choose, usage, Counter[str]()
        handler = type("Handler", (_Handler,), {"server_of_test": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        Thread(target=self._server.serve_forever, daemon=True).start()
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def reply(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        prompt = json.dumps(asked["messages"])
        before = self.asked[prompt]
        self.asked[prompt] += 1
        choice = self.choose(len(prompt), before)
        if "status" in choice:
            return choice["status"], choice["body"]
        return 200, {"choices": [choice], "usage": self.usage}


class _Handler(BaseHTTPRequestHandler):
    server_of_test: Server

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status, body = self.server_of_test.reply(asked)
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def start(choose: Choose, **usage: int) -> Server:
        started.append(Server(choose, **usage))
        return started[-1]

    yield start
    for server in started:
        server.close()


def run(typed: Any, server: Server, out: str, *flags: str, code: int | None = 0) -> Any:
    model = ("--model", "openai/m", "--base-url", server.base_url, "--tokenizer", "cl100k_base")
    return typed("run", *model, *ITEM, *GRID, "--no-canary", *flags, "-o", out, code=code)


def records(typed: Any, out: str) -> list[dict[str, Any]]:
    files = (typed.folder / out).glob("records*.jsonl")
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


def at_length(choice: dict[str, Any]) -> Choose:
    """Right up to 1k, and this beyond."""
    return lambda size, _: choice if size > LONG else GOOD


def test_a_server_that_breaks_long_answers_off_has_no_map_there(typed, serve):
    """It was "3k 0.0, 0 missing" and exit code 0, and worse in a comparison."""
    flags = ("--retries", "0")
    ended = run(typed, serve(at_length(BROKEN)), "bad", *flags, code=3)
    assert "overall 100.0 (n=2, 2 missing)" in ended.stdout
    assert "missing 2 (2 server error)" in ended.stdout
    assert "upstream died" in ended.stdout + ended.stderr
    failed = [row for row in records(typed, "bad") if row["length_tokens"] > 2000]
    assert {(row["failure"], row["score"], row["answer"]) for row in failed} == {
        ("server error", None, None)
    }
    assert all("upstream died" in row["error"] for row in failed)

    run(typed, serve(lambda *_: GOOD), "good", *flags)
    found = typed("compare", "good", "bad", "--margin", "2", code=None)
    assert found.returncode != 1
    assert found.returncode in (4, 5)


def test_a_retry_that_succeeds_is_scored_once(typed, serve):
    server = serve(lambda size, before: BROKEN if size > LONG and not before else GOOD)
    ended = run(typed, server, "again")
    assert "overall 100.0 (n=4, 0 missing)" in ended.stdout
    rows = records(typed, "again")
    assert sorted(row["attempts"] for row in rows) == [1, 1, 2, 2]
    assert len(rows) == 4
    assert sorted(server.asked.values()) == [1, 1, 2, 2]


def test_the_next_start_asks_the_missing_ones_alone(typed, serve):
    down = True
    server = serve(lambda size, _: BROKEN if size > LONG and down else GOOD)
    run(typed, server, "r", "--retries", "0", code=3)
    down = False
    ended = run(typed, server, "r", "--retries", "0")
    assert "overall 100.0 (n=4, 0 missing)" in ended.stdout
    assert sorted(server.asked.values()) == [1, 1, 2, 2]


@pytest.mark.parametrize("finish", ["content_filter", "content_filter: RECITATION", "SAFETY"])
def test_filtered_answers_are_counted_next_to_the_mean(typed, serve, finish):
    choice = {"message": {"role": "assistant"}, "finish_reason": finish}
    ended = run(typed, serve(at_length(choice)), "r")
    assert "overall 50.0 (n=4, 0 missing, 2 refused or filtered)" in ended.stdout
    assert "outcomes: 2 scored · 2 filtered by the provider" in ended.stderr
    (told,) = json.loads(typed("report", "r", "--json").stdout)["runs"]
    assert (told["missing"], told["refused_or_filtered"]) == (0, 2)
    typed("report", "r", "-o", "r.html")
    page = (typed.folder / "r.html").read_text("utf-8")
    assert re.search(r">Refused or filtered<.{0,80}>2<", page, re.DOTALL)


FILTERS = {
    "azure": {
        "status": 400,
        "body": {"error": {"code": "content_filter", "message": "The response was filtered"}},
    },
    "moonshot": {
        "status": 400,
        "body": {"error": {"type": "content_filter", "message": "considered high risk"}},
    },
    "qwen": {"status": 400, "body": {"code": "data_inspection_failed", "message": "Input data"}},
    "deepseek": {"status": 400, "body": {"error": {"message": "Content Exists Risk"}}},
    "openrouter": {
        "status": 403,
        "body": {"error": {"code": 403, "metadata": {"flagged_input": "The code"}}},
    },
    "a gateway": {"status": 200, "body": {"error": {"code": "content_filter"}}},
}


@pytest.mark.parametrize("refusal", FILTERS.values(), ids=FILTERS)
def test_a_filter_that_refuses_the_request_counts_as_one_that_ends_the_answer(
    refusal, typed, serve
):
    ended = run(typed, serve(at_length(refusal)), "r")
    assert "overall 50.0 (n=4, 0 missing, 2 refused or filtered)" in ended.stdout
    rows = [row for row in records(typed, "r") if row["length_tokens"] > 2000]
    assert {(row["outcome"], row["score"], row["attempts"]) for row in rows} == {
        ("filtered by the provider", 0.0, 1)
    }


def test_another_refusal_is_missing(typed, serve):
    refusal = {"status": 400, "body": {"error": {"message": "content is no text"}}}
    ended = run(typed, serve(at_length(refusal)), "r", code=3)
    assert "overall 100.0 (n=2, 2 missing)" in ended.stdout


def test_a_server_that_says_null_of_every_answer_is_refused_with_what_to_type(typed, serve):
    server = serve(lambda *_: {**GOOD, "finish_reason": None})
    ended = run(typed, server, "r", "--retries", "0", code=2)
    assert "add --model-options null_finish=whole" in ended.stderr
    ended = run(typed, server, "r2", "--model-options", "null_finish=whole")
    assert "overall 100.0 (n=4, 0 missing)" in ended.stdout


def test_an_unknown_finish_reason_is_reported_in_one_line_and_its_text_scored(typed, serve):
    ended = run(typed, serve(lambda *_: {**GOOD, "finish_reason": "eol"}), "r")
    assert "overall 100.0 (n=4, 0 missing)" in ended.stdout
    lines = [line for line in (ended.stdout + ended.stderr).splitlines() if "'eol'" in line]
    assert lines == [
        "warning: finish reasons that are not known, of answers that are scored: 'eol' (4)"
    ]


def test_a_function_of_a_users_is_held_to_the_same(typed):
    (typed.folder / "broken.py").write_text(
        "from needlemap.plugins import Answer\n\n"
        "def f(messages):\n"
        f"    said = messages[-1]['content']\n"
        f"    return Answer('The loc', 'abort') if len(said) > {LONG} else '{CODE}'\n",
        "utf-8",
    )
    flags = ("--retries", "0", "-o", "r")
    ended = typed("run", "--model", "python/broken:f", *ITEM, *GRID, *flags, code=3)
    assert "overall 100.0 (n=2, 2 missing)" in ended.stdout


def test_replay_says_that_an_answer_was_broken_off(typed, serve):
    server = serve(at_length(BROKEN))
    run(typed, server, "r", "--retries", "0", code=3)
    where = ("--length", "3k", "--depth", "0", "--ask")
    ended = typed("replay", "r", *where, code=2)
    assert "upstream died" in ended.stderr


def test_a_closed_book_is_not_known_where_its_answer_was_broken_off(typed, serve):
    alone = 300  # characters of a question without a haystack
    server = serve(lambda size, _: BROKEN if size < alone else GOOD)
    ended = run(typed, server, "r", "--closed-book", "--retries", "0", code=None)
    assert "closed book: 0/0 right without a haystack, 1 not measured" in ended.stderr


THOUGHT = {"prompt_tokens": 1000, "completion_tokens": 0, "total_tokens": 1047}
UNSEEN = {"finish_reason": "length", "message": {"role": "assistant"}}


def test_unseen_thinking_that_took_the_budget_is_no_limit_of_the_map(typed, serve):
    ended = run(typed, serve(at_length(UNSEEN), **THOUGHT), "r")
    said = ended.stdout + ended.stderr
    assert "2 thinking budget spent" in said
    assert "give --thinking-tokens, or a larger --max-answer-tokens" in said
    assert "too long" not in said
    assert "--lengths up to" not in said


def test_the_first_trial_says_so_too(typed, serve):
    server = serve(lambda *_: UNSEEN, **THOUGHT)
    model = ("--model", "openai/m", "--base-url", server.base_url, "--tokenizer", "cl100k_base")
    ended = typed("run", *model, *ITEM, *GRID, "-o", "r", code=2)
    assert "It thought until its budget was spent: give --thinking-tokens" in ended.stderr


@pytest.mark.parametrize("error", ["upstream died", {"type": "overloaded"}, {"code": "502"}])
def test_an_error_with_status_200_is_asked_again(error, typed, serve):
    refusal = {"status": 200, "body": {"error": error}}
    server = serve(lambda size, before: refusal if size > LONG and not before else GOOD)
    ended = run(typed, server, "r")
    assert "overall 100.0 (n=4, 0 missing)" in ended.stdout
