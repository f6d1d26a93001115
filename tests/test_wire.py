"""The test server keeps its promises: other tests, and benchmarks, stand on it."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen


def ask(
    wire: Any, model: str = "m", text: str = "Dogs bark. Who barks?", **headers: str
) -> dict[str, Any]:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": text}]}).encode()
    with urlopen(Request(f"{wire.base_url}/chat/completions", body, headers), timeout=10) as reply:
        answer: dict[str, Any] = json.load(reply)
    return answer


def status(wire: Any, model: str) -> int:
    try:
        ask(wire, model)
    except HTTPError as error:
        with error:
            return error.code
    return 200


def answer_in(reply: dict[str, Any]) -> Any:
    return reply["choices"][0]["message"]["content"]


def test_a_model_named_after_a_fault_meets_it_so_many_times(wire):
    assert [status(wire, "fault-429-after:1x2") for _ in range(3)] == [429, 429, 200]
    assert [status(wire, "fault-503") for _ in range(3)] == [503, 503, 503]


def test_a_schedule_is_met_in_turn_and_may_begin_again(wire):
    wire.schedule("500", "ok")
    assert [status(wire, "m") for _ in range(4)] == [500, 200, 200, 200]
    wire.schedule("500", "ok", cycle=True)
    assert [status(wire, "m") for _ in range(4)] == [500, 200, 500, 200]


def test_it_says_what_it_is_told_to(wire, wires):
    assert answer_in(ask(wire, "say-Score: 7")) == "Score: 7"
    assert answer_in(ask(wires("--answer", "forty-two"))) == "forty-two"


def test_it_finds_needles_in_any_wording_and_script(wire):
    filler = "There is much to say about the weather. " * 50
    assert (
        answer_in(ask(wire, text=f"{filler}Jack keeps bees. {filler}\nWhat does Jack keep?"))
        == "Jack keeps bees."
    )
    chinese = "今天天气很好。小明在上海实习。我们讨论发展。\n小明在哪里实习？"
    assert answer_in(ask(wire, text=chinese)) == "小明在上海实习。"


def test_an_instruction_is_no_answer_to_what(wire):
    """It was, of one prompt in 5,000: the word stands in few other sentences."""
    codes = [f"The code for {name} is {n}." for n, name in enumerate(("Cork", "Oslo", "Porto"))]
    sentences = "Porto is old. I like Porto. Porto, then. " + " ".join(codes * 4)
    text = f"{sentences} Use what the text says.\nWhat is the code for Porto?"
    assert answer_in(ask(wire, text=text)) == "The code for Porto is 2."


def test_cached_tokens_are_the_words_shared_with_an_earlier_prompt(wire):
    ask(wire, text="one two three four")
    usage = ask(wire, text="one two three five")["usage"]
    assert usage["prompt_tokens"] == 4
    assert usage["prompt_tokens_details"]["cached_tokens"] == 3


def test_the_log_knows_of_a_key_but_not_the_key(wire):
    ask(wire, authorization="Bearer sk-very-secret")
    ask(wire)
    first, second = wire.log()
    assert (first["had_key"], second["had_key"]) == (True, False)
    assert "very-secret" not in json.dumps(wire.log())


def test_an_instant_server_answers_any_body_on_one_connection(wires):
    server = wires("--instant")
    connection = HTTPConnection("127.0.0.1", int(server.root.rsplit(":", 1)[1]), timeout=10)
    for _ in range(3):
        connection.request("POST", "/v1/chat/completions", body=b"x" * 500_000)
        assert json.load(connection.getresponse())["usage"]["prompt_tokens"] == 1
    connection.close()
