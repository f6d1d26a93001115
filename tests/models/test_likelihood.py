"""How likely a server finds a text: against a real HTTP server around the model in the box.

It computes what it tells, in the two ways that real servers have: a prompt repeated with
log-probabilities
(vLLM, SGLang), and single tokens that a bias makes it say (llama.cpp).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

import numpy as np
import pytest
import tokenizers

import needlemap
from needlemap.errors import Failure, SettingsError, Unmeasured
from needlemap.models import MOST_ROWS, Answer, Decoding, Logprobs, clean_logprobs
from needlemap.models.demo import DATA, DemoModel, load_engine
from needlemap.models.likelihood import rows_of
from needlemap.models.openai import OpenAIModel, read
from needlemap.models.walk import logprobs
from needlemap.prompts import TEXT, Message, Prompt
from needlemap.records.loaded import load_run
from needlemap.records.record import Record
from needlemap.tokenizers import load
from needlemap.untrusted import LOWEST_NATS

GIVEN = "The locker code is 4711."
QUESTION = "The locker code for the red bag is 4711. The sky is blue.\n\nWhat is the locker code?\n"


class Box:
    """The model in the box behind HTTP. way: what it offers; faults: what it does wrong."""

    def __init__(self, way: str = "echo", *faults: str) -> None:
        self.way, self.faults, self.paths = way, set(faults), list[str]()
        self.vocabulary = tokenizers.Tokenizer.from_file(str(DATA / "tokenizer.json"))
        self._engine, self._turn = load_engine(DATA), Lock()
        handler = type("Handler", (_Handler,), {"box": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        Thread(target=self._server.serve_forever, daemon=True).start()
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def reply(self, path: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.paths.append(path)
        if "busy once" in self.faults:
            self.faults.remove("busy once")
            return 503, {"error": "busy"}
        if path == "/tokenize" and "no tokenizer" not in self.faults:
            field = "content" if self.way == "steps" else "prompt"
            return 200, {"tokens": self.ids(asked.get(field, ""))}
        if path == "/v1/completions":
            return 200, self.completion(asked)
        return 404, {"error": f"no {path} here"}

    def ids(self, text: str) -> list[int]:
        return list(self.vocabulary.encode(text, add_special_tokens=False).ids)

    def completion(self, asked: dict[str, Any]) -> dict[str, Any]:
        given = asked["prompt"] if isinstance(asked["prompt"], list) else self.ids(asked["prompt"])
        ids = np.array(given, np.int32)
        with self._turn:
            self._engine.crop(0)
            rows = self._engine.extend_all(ids)
        drawn = rows[-1].copy()
        for token, bias in (
            (asked.get("logit_bias") or {}).items() if "no bias" not in self.faults else ()
        ):
            drawn[int(token)] += bias
        tokens = np.append(ids[1:], np.int32(drawn.argmax()))
        if "biased" in self.faults:
            rows[-1] = drawn
        told = (
            self.columns(rows, tokens)
            if self.way == "echo"
            else self.content(rows[-1:], tokens[-1:])
        )
        if self.way == "echo" and not ("no echo" not in self.faults and asked.get("echo")):
            told = {name: column[-1:] for name, column in told.items()}
        elif self.way == "echo":
            first = {"tokens": self.text(ids[0]), "token_logprobs": None, "top_logprobs": None}
            told = {name: [first[name], *column] for name, column in told.items()}
        usage = {"prompt_tokens": len(ids), "completion_tokens": 1}
        choice = {"text": self.text(tokens[-1]), "finish_reason": "length", "logprobs": told}
        return {"model": "box", "choices": [choice], "usage": usage}

    def columns(self, rows: Any, tokens: Any) -> dict[str, list[Any]]:
        own = logprobs(rows, tokens).tolist() if "zeros" not in self.faults else [0.0] * len(tokens)
        top = [
            {self.text(token): value, **{self.text(each): nats for each, nats in best}}
            for token, value, best in zip(tokens, own, map(best_of, rows), strict=True)
        ]
        return {"tokens": list(map(self.text, tokens)), "token_logprobs": own, "top_logprobs": top}

    def content(self, rows: Any, tokens: Any) -> dict[str, list[Any]]:
        entries = [
            {
                "id": int(token),
                "token": self.text(token),
                "logprob": own,
                "top_logprobs": [
                    {"id": each, "token": self.text(each), "logprob": nats}
                    for each, nats in best_of(row)
                ],
            }
            for token, own, row in zip(tokens, logprobs(rows, tokens).tolist(), rows, strict=True)
        ]
        return {"content": entries}

    def text(self, token: Any) -> str:
        return str(self.vocabulary.decode([int(token)]))


def best_of(row: Any) -> list[tuple[int, float]]:
    two = np.argsort(-row)[:2]
    return list(zip(two.tolist(), logprobs(np.stack([row, row]), two).tolist(), strict=True))


class _Handler(BaseHTTPRequestHandler):
    box: Box

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status, said = self.box.reply(self.path, asked)
        data = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def boxes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    made: list[Box] = []

    def start(*given: str) -> Box:
        made.append(Box(*given))
        return made[-1]

    yield start
    for box in made:
        box.close()


def prompt() -> Prompt:
    text = load(str(DATA / "tokenizer.json")).index(QUESTION.encode())
    return Prompt((Message(TEXT, (text.span(),)),))


def forced(box: Box, *answers: str, api: str = "completions") -> list[Answer]:
    async def ask() -> list[Answer]:
        model = OpenAIModel("box", base_url=box.base_url, api=api)
        try:
            return [
                await model.force(prompt(), answer, Decoding(timeout_s=250)) for answer in answers
            ]
        finally:
            await model.close()

    return asyncio.run(ask())


def weighed_here(answer: str) -> Answer:
    model = DemoModel("retriever")
    return asyncio.run(model.force(prompt(), answer, Decoding()))


def told(answer: Answer) -> Logprobs:
    assert answer.logprobs is not None
    return answer.logprobs


@pytest.mark.parametrize("way", ["echo", "steps"])
def test_a_given_answer_is_weighed_as_the_model_itself_weighs_it(boxes, way):
    (answer,) = forced(boxes(way), f" {GIVEN}")
    there, here = told(answer), told(weighed_here(GIVEN))
    assert (there.way, here.way) == (way, "walk")
    assert (there.start, there.tokens) == (here.start, here.tokens)
    assert there.nats == pytest.approx(here.nats, abs=1e-4)
    assert there.other_nats == pytest.approx(here.other_nats, abs=1e-4)
    assert answer.forced is not None
    assert answer.forced.logprobs == there.nats
    assert answer.forced.greedy == weighed_here(GIVEN).forced.greedy
    assert (answer.text, answer.prompt_tokens, answer.completion_tokens) == ("", there.start, 0)


def test_what_token_by_token_costs_stands_in_its_usage(boxes):
    (answer,) = forced(boxes("steps"), f" {GIVEN}")
    count, start = len(told(answer).tokens), told(answer).start
    sent = sum(range(start, start + count))
    assert answer.usage == {"requests": count, "prompt_tokens": sent, "completion_tokens": count}


def test_the_way_is_found_out_once(boxes):
    box = boxes("echo")
    forced(box, " Oslo", " Rome")
    assert box.paths.count("/v1/completions") == 2 + 2, "two short texts, two answers"


@pytest.mark.parametrize(
    ("box", "said"),
    [
        (("echo", "no echo"), "echo: .*does not repeat its prompt"),
        (("echo", "zeros"), "echo: two different answers have probabilities of 1.00 and 1.00"),
        (("steps", "no bias"), "steps: .*does not show the token that was wanted"),
        (("steps", "biased"), "steps: two different answers have probabilities of 1.00 and 1.00"),
        (("echo", "no tokenizer"), "answered 404: no /tokenize here"),
    ],
)
def test_a_server_that_cannot_is_refused_in_words(boxes, box, said):
    with pytest.raises(SettingsError, match=said) as caught:
        forced(boxes(*box), " Oslo")
    assert "Or use --model hf/PATH, or another --scorer." in str(caught.value)


def test_a_server_that_cannot_now_is_asked_again(boxes):
    box = boxes("echo", "busy once")
    with pytest.raises(Unmeasured) as caught:
        forced(box, " Oslo")
    assert (caught.value.failure, caught.value.transient) == (Failure.SERVER, True)
    assert told(forced(box, " Oslo")[0]).way == "echo"


def test_a_chat_whose_template_nobody_tells_is_refused_in_words(boxes):
    with pytest.raises(Unmeasured, match="no /apply-template here"):
        forced(boxes("echo"), " Oslo", api="chat")


def prefilled(box: Box, answer: str) -> Answer:
    async def ask() -> Answer:
        model = OpenAIModel("box", base_url=box.base_url, api="completions")
        try:
            return await model.prefill(prompt(), answer, Decoding(timeout_s=250))
        finally:
            await model.close()

    return asyncio.run(ask())


@pytest.mark.parametrize(("offers", "way"), [("echo", "echo"), ("steps", "prompt")])
def test_the_last_token_of_an_answer_is_read_off_its_prefill(boxes, offers, way):
    answer = told(prefilled(boxes(offers), f" {GIVEN}"))
    here = told(weighed_here(GIVEN))
    assert (answer.way, answer.start) == (way, here.start + len(here.tokens) - 1)
    if way == "echo":  # the token itself; llama.cpp lists what would follow, likeliest first
        assert answer.tokens == here.tokens[-1:]
        assert answer.nats == pytest.approx(here.nats[-1:], abs=1e-4)


def test_an_echo_as_vllm_documents_it_is_read_by_column(boxes, monkeypatch):
    """A reply has the prompt's columns first, None for its first token, and fields of vLLM's own:
    text_offset, prompt_logprobs, token_ids."""
    completion = Box.completion

    def as_vllm(self: Box, asked: dict[str, Any]) -> dict[str, Any]:
        reply = completion(self, asked)
        choice = reply["choices"][0]
        assert choice["logprobs"]["token_logprobs"][0] is None
        choice["logprobs"]["text_offset"] = list(range(len(choice["logprobs"]["tokens"])))
        rows = zip(choice["logprobs"]["tokens"], choice["logprobs"]["token_logprobs"], strict=True)
        choice["prompt_logprobs"] = [
            nats and {"7": {"logprob": nats, "rank": 1, "decoded_token": token}}
            for token, nats in list(rows)[:-1]
        ]
        choice |= {"index": 0, "stop_reason": None, "token_ids": None, "prompt_token_ids": None}
        return reply | {"kv_transfer_params": None, "prompt_logprobs": None}

    monkeypatch.setattr(Box, "completion", as_vllm)
    answer = told(prefilled(boxes("echo"), f" {GIVEN}"))
    assert answer.tokens == told(weighed_here(GIVEN)).tokens[-1:]


def test_a_server_that_tells_nothing_of_prompts_has_no_prefill(boxes):
    with pytest.raises(Unmeasured, match="no /tokenize here"):
        prefilled(boxes("echo", "no tokenizer"), f" {GIVEN}")


A, B, C = ({"token": token, "logprob": nats} for token, nats in (("A", -0.1), ("B", -2), ("C", -3)))
D, E = ({"token": token, "logprob": nats} for token, nats in (("D", -0.2), ("E", -2)))
CHAT = {"content": [{**A, "top_logprobs": [A, B]}, {**C, "top_logprobs": [D, E]}]}
COLUMNS = {
    "tokens": ["A", "C"],
    "token_logprobs": [-0.1, -3],
    "top_logprobs": [{"A": -0.1, "B": -2}, {"C": -3, "D": -0.2, "E": -2}],
}


@pytest.mark.parametrize("form", [CHAT, COLUMNS])
def test_both_forms_give_each_token_and_the_likeliest_other(form):
    body = {"choices": [{"text": "AC", "logprobs": form}], "usage": {"prompt_tokens": 7}}
    assert rows_of(body) == [("A", -0.1, "B", -2), ("C", -3, "D", -0.2)]
    assert read(body).logprobs == Logprobs(
        ("A", "C"), (-0.1, -3.0), ("B", "D"), (-2.0, -0.2), "generated", 7
    )


def test_two_tokens_of_one_spelling_are_told_apart_by_their_bytes():
    half = [{"token": "\ufffd", "bytes": [byte], "logprob": -byte / 200} for byte in (0xC3, 0xE2)]
    body = {"choices": [{"logprobs": {"content": [{**half[0], "top_logprobs": half}]}}]}
    assert rows_of(body) == [("\ufffd", -0.975, "\ufffd", -1.13)]


@pytest.mark.parametrize(
    "form",
    [
        None,
        7,
        [],
        {},
        {"content": None},
        {"content": ["A"]},
        {"content": [{"token": "A", "logprob": "certain"}]},
        {"content": [{"token": "A", "logprob": float("nan")}]},
        {"content": [{"token": "A", "logprob": 2.5}]},
        {**COLUMNS, "tokens": ["A"]},
        {**COLUMNS, "token_logprobs": [None, -1]},
    ],
)
def test_what_is_no_log_probability_leaves_the_answer_as_it_is(form):
    answer = read({"choices": [{"text": "AC", "logprobs": form}]})
    assert (answer.text, answer.logprobs) == ("AC", None)


def test_what_is_kept_is_bounded():
    rows = [("x" * 1000, float("-inf"), "\ud800", -(10**400))] * (MOST_ROWS + 5)
    kept = Logprobs.of(rows, "generated", -3)
    assert kept is not None
    assert (len(kept.tokens), len(kept.tokens[0]), kept.start) == (MOST_ROWS, 200, None)
    assert (kept.nats[0], kept.others[0], kept.other_nats[0]) == (LOWEST_NATS, "?", LOWEST_NATS)
    json.dumps(kept.tokens).encode()


def test_a_record_keeps_them_and_reads_broken_ones_as_missing():
    kept = Logprobs(("A",), (-0.1,), (None,), (None,), "walk", 3)
    place = {
        "key": "k",
        "task": "t",
        "model": "m",
        "length_tokens": 1,
        "depth": 0,
        "repeat": 0,
        "seed": 0,
    }
    record = Record(**place, logprobs=kept)
    assert Record.model_validate_json(record.line()).logprobs == kept
    for broken in (
        3,
        {"tokens": ["A"]},
        {**json.loads(record.line())["logprobs"], "nats": [1e300]},
    ):
        assert Record(**place, logprobs=broken).logprobs is None
        assert clean_logprobs(broken) is None


@pytest.mark.parametrize("way", ["echo", "steps"])
def test_recovery_of_a_server_is_that_of_the_same_model_here(boxes, tmp_path, way):
    """All three passes of the items in a run; of those that come to the same text on both sides,
    since what is fed as ids merges nothing at its seams."""
    given = {
        "scorer": "recovery",
        "lengths": [128],
        "depths": [0, 100],
        "repeats": 4,
        "max_answer_tokens": 16,
        "template": "text-en",
        "tokenizer": str(DATA / "tokenizer.json"),
        "canary": False,
    }
    options = {"base_url": boxes(way).base_url, "model_options": {"api": "completions"}}
    there = needlemap.run(model="openai/box", **options, **given, out=tmp_path / "there")
    here = needlemap.run(model="demo/retriever", **given, out=tmp_path / "here")
    both = [
        {
            each.prompt.sha256: (each.scorer.ratio, [p.sha256 for p in each.beside])
            for each in load_run(run.path).records
        }
        for run in (there, here)
    ]
    same = [prompt for prompt, one in both[0].items() if both[1].get(prompt, "?")[-1] == one[-1]]
    assert len(same) > 1
    for prompt in same:
        assert both[0][prompt][0] == pytest.approx(both[1][prompt][0], abs=1e-3)
