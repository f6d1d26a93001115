"""What only some servers offer: saved slots, a second model; long conversations; counts."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from boxed_reader import Reader, Unable

from needlemap.errors import Unmeasured
from needlemap.http import Sent
from needlemap.models import Answer, Decoding
from needlemap.prompts import Message, Prompt
from needlemap.servers.storm.counts import Counts
from needlemap.servers.storm.offered import Slotted, act_on_slot, saves_slots, second_model
from needlemap.servers.storm.operation import Limits
from needlemap.servers.storm.operations.talk import TURNS, Talk
from needlemap.servers.storm.plan import make_round
from needlemap.text.tokens import TokenText

ROOMY = Limits(16_000, 4, 24, None)
LONG = {"max_length": 16_000, "kv_tokens": None, "flags": {"max_answer_tokens": 24}}


class Served:
    """A server that lists models and saves slots, as far as it is told to."""

    def __init__(
        self,
        models: tuple[str, ...],
        *,
        saves: bool,
        answers: tuple[str, ...],
        has_slots: bool = True,
    ) -> None:
        self.models, self.saves, self.answers = models, saves, answers
        self.has_slots = has_slots
        self.asked = list[tuple[str, Any]]()
        handler = type("Handler", (_Handler,), {"served": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def reply(self, path: str, body: Any) -> tuple[int, Any]:
        self.asked.append((path, body))
        if path == "/v1/models":
            return 200, {"data": [{"id": name} for name in self.models]}
        if path == "/props":
            return 200, {"total_slots": 4} if self.has_slots else {}
        if path.startswith("/slots/0?action="):
            return (200, {"n_saved": 4}) if self.saves else (501, {"error": "not supported"})
        if path == "/v1/chat/completions" and body["model"] in self.answers:
            return 200, {"choices": [{"message": {"content": "a"}}]}
        return 404, {}


class _Handler(BaseHTTPRequestHandler):
    served: Served

    def do_GET(self) -> None:
        self.send(*self.served.reply(self.path, None))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send(*self.served.reply(self.path, body))

    def send(self, status: int, said: Any) -> None:
        data = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def serve() -> Iterator[Any]:
    servers = list[Served]()

    def start(*models: str, saves: bool = False, answers: tuple[str, ...] = ()) -> Served:
        servers.append(Served(models, saves=saves, answers=answers))
        return servers[-1]

    yield start
    for each in servers:
        each.server.shutdown()
        each.server.server_close()


@pytest.mark.parametrize("saves", [True, False])
def test_slots_are_saved_where_the_server_says_so(serve, saves):
    server = serve("m", saves=saves)
    assert saves_slots(server.url, Sent()) is saves
    asked = server.asked[-1]
    assert asked == ("/slots/0?action=save", {"filename": "needlemap-storm.bin"})


def test_a_server_without_slots_is_asked_to_save_none(serve):
    server = serve("m", saves=True)
    server.has_slots = False
    assert not saves_slots(server.url, Sent())
    assert [path for path, _ in server.asked] == ["/props"]


@pytest.mark.parametrize(
    ("models", "answers", "second"),
    [
        (("m", "lora"), ("m", "lora"), "lora"),
        (("m", "asleep"), ("m",), ""),
        (("m",), ("m",), ""),
        ((), (), ""),
    ],
)
def test_a_second_model_is_one_that_is_listed_and_answers(serve, models, answers, second):
    assert second_model(serve(*models, answers=answers).url, "m", Sent()) == second


def test_a_server_that_is_not_there_offers_nothing():
    nobody = "http://127.0.0.1:1/v1"
    assert not saves_slots(nobody, Sent())
    assert second_model(nobody, "m", Sent()) == ""


def asked_in(model: Slotted) -> Answer:
    said = TokenText.opaque(b"What is it?").span()
    return asyncio.run(model.answer(Prompt((Message("user", (said,)),)), Decoding()))


@pytest.mark.parametrize("how", ["slot", "save", "restore"])
def test_a_slot_is_saved_behind_an_answer_and_restored_before_a_request(serve, how):
    server, inner, order = serve("m", saves=True), Unable(), list[str]()

    def act(action: str) -> int:
        order.append(f"{action} with {inner.asked} asked")
        return act_on_slot(server.url, action, "f.bin", Sent())

    asked_in(Slotted("m", model=inner, how=how, act=act))
    assert inner.fields == {"id_slot": 0}
    expected = {"slot": [], "save": ["save with 1 asked"], "restore": ["restore with 0 asked"]}
    assert order == expected[how]


def test_a_slot_that_is_not_restored_is_no_answer(serve):
    server = serve("m", saves=False)
    model = Slotted(
        "m",
        model=Unable(),
        how="restore",
        act=lambda action: act_on_slot(server.url, action, "f.bin", Sent()),
    )
    with pytest.raises(Unmeasured, match="answers 501 to restore a slot"):
        asked_in(model)


def test_a_conversation_has_thirty_turns_and_more():
    for seed in range(3):
        acts = [act for act in make_round(seed, 4, ROOMY).acts if act.operation == "talk"]
        assert TURNS[0] <= len(acts) <= TURNS[1]
        assert [len(act.path) for act in acts] == list(range(1, len(acts) + 1))
        assert len({(act.family, act.session) for act in acts}) == 1
        assert acts[-1].tokens < ROOMY.room
        assert sum(not turn.pieces for turn in acts[-1].path) > 20


def test_it_is_left_out_where_there_is_no_room_and_moves_nothing_else():
    assert not Talk().applies(Limits(2_000, 4, 24))
    without = replace(ROOMY, without=frozenset({"talk"}))
    for number in range(1, 9):
        acts = make_round(1, number, ROOMY).acts
        others = [replace(act, number=0, wave=0) for act in acts if act.operation != "talk"]
        plain = [replace(act, number=0, wave=0) for act in make_round(1, number, without).acts]
        assert sorted(map(repr, others)) == sorted(map(repr, plain))


def test_a_model_finds_its_facts_in_a_conversation_of_thirty_turns(storming):
    asking, found = storming(Reader(), rounds=4, **LONG)
    turns = [seen for seen in asking.evidence.storm if seen.act.operation == "talk"]
    assert len(turns) >= TURNS[0]
    assert found.tally.counts == {"right": len(found.tally.requests)}
    assert any(line.endswith("flood, slot, models") for line in found.said)


def test_slots_and_a_second_model_are_used_where_the_server_has_them():
    limits = replace(ROOMY, slots=True, other=True)
    acts = make_round(1, 2, limits).acts
    hows = [act.how for act in acts if act.operation in ("slot", "restored")]
    assert (hows[0], set(hows[1:-1]), hows[-1]) == ("save", {"slot"}, "restore")
    models = [act.how for act in acts if act.operation == "models"]
    assert Counter(models)["other"] == Counter(models)[""] > 1
    plain = [act.how for number in range(1, 9) for act in make_round(1, number, ROOMY).acts]
    assert set(plain) == {""}


def test_what_a_second_model_finds_is_not_judged(storming):
    asking, found = storming(Reader(), rounds=2, other="second", kv_tokens=None)
    others = [seen for seen in asking.evidence.storm if seen.act.how == "other"]
    assert {seen.outcome.word for seen in others} == {"uncompared"}
    own = [seen for seen in asking.evidence.storm if seen.act.how == ""]
    assert found.tally.counts == {"right": len(own), "uncompared": len(others)}
    assert found.tally.operations["models"].able == found.tally.operations["models"].sent > 1


class Counting(Reader):
    """Counts the tokens of a prompt; of conversations that go on too many."""

    def __init__(self, more: int) -> None:
        super().__init__()
        self.more = more

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        said = await super().answer(prompt, decoding)
        texts = [each for each in prompt.messages if each.role == "user"]
        counted = prompt.tokens + 12 + (self.more if len(texts) > 1 else 0)
        return replace(said, prompt_tokens=counted)


def test_more_tokens_than_were_sent_are_suspect(storming):
    _, found = storming(Counting(600), rounds=4)
    assert found.verdict.word == "SUSPECT"
    (line,) = [line for line in found.said if line.startswith("prompt tokens exceed what was sent")]
    assert "are counted of at most" in line


def test_a_template_of_some_tokens_a_message_is_none(storming):
    _, found = storming(Counting(20), rounds=4)
    assert not any(line.startswith("prompt tokens exceed") for line in found.said)


def test_without_first_counts_nothing_is_too_many():
    counts = Counts()
    counts.check(1_001, 100, 9_000, 2)
    assert counts.over == []
