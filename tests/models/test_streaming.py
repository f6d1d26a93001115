"""Answers that a server sends as it writes them: asked for, wanted by the server, or unasked."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from needlemap.errors import Failure, Unmeasured
from needlemap.http import framing
from needlemap.models import Answer, Decoding, Model
from needlemap.models.anthropic import AnthropicModel
from needlemap.models.openai import OpenAIModel
from needlemap.models.streaming import ONLY_STREAMS
from needlemap.prompts import Prompt

PROMPT = Prompt.plain([("user", "It is 7. What is it?")])
STREAM, UNSTREAMED = Decoding(timeout_s=250, stream=True), Decoding(timeout_s=250)
KEY = "sk-test-0123456789abcdef"
EVENTS, JSON = "text/event-stream", "application/json"


def event(value: Any, name: str = "") -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return ((f"event: {name}\n" if name else "") + f"data: {text}\n\n").encode()


def chunk(text: str | None = None, finish: str | None = None) -> bytes:
    delta = {} if text is None else {"content": text}
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


LAST = b"0\r\n\r\n"  # the end of a chunked reply
DONE = event("[DONE]")
USAGE = event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}})
SEVEN = [chunk("It is "), chunk("7."), chunk(None, "stop"), USAGE, DONE]
WHOLE = {"choices": [{"index": 0, "message": {"content": "It is 7."}, "finish_reason": "stop"}]}


class Streamer:
    """A server that sends each connection the next of its replies, piece by piece: bytes as they
    are, numbers as seconds to wait. ends: whether a reply ends as its head says (chunked); else the
    connection is closed in mid-reply. hangs: whether it is left open without an end. at once: all
    is sent in one go, its end too, and the connection is left open."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.replies: list[tuple[int, str, Sequence[Any], str]] = []
        self.asked: list[dict[str, Any]] = []
        self.hung: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def reply(
        self, *pieces: Any, status: int = 200, kind: str = EVENTS, end: str = "ends"
    ) -> Streamer:
        self.replies.append((status, kind, pieces, end))
        return self

    def refuse(self, words: str, status: int = 400) -> Streamer:
        return self.reply(
            json.dumps({"error": {"message": words}}).encode(), status=status, kind=JSON
        )

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65_536)
        head, _, body = data.partition(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        while len(body) < size:
            body += connection.recv(65_536)
        self.asked.append(json.loads(body))
        status, kind, pieces, end = (
            self.replies.pop(0) if self.replies else (500, JSON, [b"{}"], "ends")
        )
        try:
            self._send(connection, status, kind, pieces, LAST if end == "at once" else b"")
            if end == "ends":
                connection.sendall(LAST)
        except OSError:
            pass  # the client went away
        if end in ("hangs", "at once"):
            self.hung.append(connection)
        else:
            connection.close()

    def _send(
        self, to: socket.socket, status: int, kind: str, pieces: Sequence[Any], behind: bytes
    ) -> None:
        head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n"
        to.sendall(head.encode())
        for piece in pieces:
            if isinstance(piece, bytes):
                to.sendall(b"%x\r\n%b\r\n%b" % (len(piece), piece, behind))
            else:
                time.sleep(piece)


@pytest.fixture
def server() -> Iterator[Streamer]:
    made = Streamer()
    yield made
    made.socket.close()
    for connection in made.hung:
        connection.close()


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", KEY)
        monkeypatch.delenv(f"{name}_BASE_URL", raising=False)


def ask(model: Model, *decodings: Decoding) -> list[Answer]:
    """Answers to one prompt, one after the other."""

    async def every() -> list[Answer]:
        try:
            return [await model.answer(PROMPT, decoding) for decoding in decodings]
        finally:
            await model.close()

    return asyncio.run(every())


def openai(server: Streamer, *decodings: Decoding, **options: Any) -> list[Answer]:
    return ask(OpenAIModel("m", base_url=f"{server.url}/v1", **options), *decodings)


def failure(server: Streamer, decoding: Decoding = STREAM) -> Unmeasured:
    with pytest.raises(Unmeasured) as caught:
        openai(server, decoding)
    return caught.value


def test_a_streamed_answer_has_its_usage_and_the_time_of_its_first_token(server):
    server.reply(chunk(""), 0.3, SEVEN[0], 0.3, *SEVEN[1:])
    (answer,) = openai(server, STREAM)
    assert (answer.text, answer.finish) == ("It is 7.", "stop")
    assert (answer.prompt_tokens, answer.completion_tokens) == (9, 2)
    assert answer.first_token_s >= 0.3
    assert answer.latency_s >= 0.6
    # A busy machine reads the first piece late, never early.
    assert answer.first_token_s < answer.latency_s - 0.1
    (asked,) = server.asked
    assert (asked["stream"], asked["stream_options"]) == (True, {"include_usage": True})


@pytest.mark.parametrize("end", [[], [DONE]], ids=["by its finish", "by its last event"])
def test_the_first_token_comes_no_later_than_the_answer_where_both_come_at_once(
    server, end, monkeypatch
):
    """A connection is listened to behind a reply before its last bytes are read."""
    monkeypatch.setattr(framing, "FIRST_LISTEN_S", 2.0)
    server.reply(0.1, b"".join([*SEVEN[:3], *end]), end="at once")
    (answer,) = openai(server, STREAM)
    assert 0.1 <= answer.first_token_s <= answer.latency_s < 2


def test_nothing_is_streamed_unless_it_is_asked_for(server):
    server.reply(json.dumps(WHOLE).encode(), kind=JSON)
    (answer,) = openai(server, UNSTREAMED)
    assert (answer.text, answer.first_token_s, answer.note) == ("It is 7.", None, "")
    assert not {"stream", "stream_options"} & server.asked[0].keys()


def test_a_server_that_answers_in_one_piece_all_the_same_is_understood(server):
    for kind in (JSON, EVENTS):
        server.reply(b" \n", json.dumps(WHOLE).encode(), kind=kind)
    for answer in openai(server, STREAM, STREAM):
        assert (answer.text, answer.first_token_s) == ("It is 7.", None)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_characters_and_lines_may_be_cut_anywhere(server, size):
    data = b": 1\r\n\r\n" + b"".join([chunk("杰克 🙂 é"), chunk("!", "stop"), DONE])
    server.reply(*(data[at : at + size] for at in range(0, len(data), size)))
    assert openai(server, STREAM)[0].text == "杰克 🙂 é!"


def test_the_field_that_asks_for_usage_is_dropped_once_it_is_refused(server):
    server.refuse(
        "[{'loc': ('body', 'stream_options'), 'msg': 'Extra inputs are not permitted'}]", 422
    )
    server.reply(*SEVEN).reply(*SEVEN)
    assert [answer.text for answer in openai(server, STREAM, STREAM)] == ["It is 7."] * 2
    fields = [asked.keys() & {"stream", "stream_options"} for asked in server.asked]
    assert fields == [{"stream", "stream_options"}, {"stream"}, {"stream"}]


WORDS = [
    "This model only support stream mode, please enable the stream parameter to access the model. ",
    "Stream must be set to true",
    "parameter.enable_thinking must be set to false for non-streaming calls",
    "This model only supports streaming.",
    "Only streaming requests are supported",
    "non-streaming requests are not supported for this model",
    "The `stream` parameter is required to be true.",
    "Streaming is required for operations that may take longer than 10 minutes.",
    "stream=false is not supported by this endpoint",
    "'stream': False is not allowed",
    "Please set stream=True",
    "this endpoint requires stream: true",
    "You must use streaming for this model",
    "currently only streaming output is available",
    "Unsupported: non stream mode",
    "该模型仅支持流式输出",
    "当前模型只支持流式调用，请设置stream为true",
    "stream必须为true",
]


@pytest.mark.parametrize("status", [400, 422, 500])
@pytest.mark.parametrize("words", WORDS[:3])
def test_a_server_that_says_that_it_only_streams_is_asked_to(server, words, status):
    server.refuse(words, status).reply(*SEVEN).reply(*SEVEN)
    assert [answer.text for answer in openai(server, UNSTREAMED, UNSTREAMED)] == ["It is 7."] * 2
    assert [asked.get("stream") for asked in server.asked] == [None, True, True]


def test_one_that_says_it_with_status_200_is_asked_to_as_well(server):
    server.refuse(WORDS[0], 200).reply(*SEVEN)
    assert openai(server, UNSTREAMED)[0].text == "It is 7."


@pytest.mark.parametrize("words", WORDS)
def test_words_for_it(words):
    assert ONLY_STREAMS.search(f"http://x/v1 answered 400: {words}")


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
        "only upstream errors must be retried",
        "Bitstream must be valid",
        "temperature must be 1",
        "'messages' must contain the word 'json'",
        "Downstream service requires authentication",
    ],
)
def test_words_for_other_things(words):
    assert not ONLY_STREAMS.search(f"http://x/v1 answered 400: {words}")


def test_a_server_that_wants_a_stream_and_no_report_of_usage(server):
    server.refuse("Stream must be set to true").refuse("unknown field stream_options").reply(*SEVEN)
    assert openai(server, UNSTREAMED)[0].text == "It is 7."
    assert len(server.asked) == 3


def test_a_refusal_of_something_else_is_no_reason_to_ask_again(server):
    server.refuse("temperature must be 1")
    assert failure(server, UNSTREAMED).failure is Failure.REJECTED
    server.refuse("streaming must be enabled by your organisation")
    assert failure(server).failure is Failure.REJECTED
    assert len(server.asked) == 2


@pytest.mark.parametrize("kind", [EVENTS, JSON, "text/plain"])
def test_a_server_that_streams_whatever_it_is_sent(server, kind):
    server.reply(*SEVEN, kind=kind).reply(*SEVEN, kind=kind)
    first, second = openai(server, UNSTREAMED, UNSTREAMED)
    assert (first.text, second.text) == ("It is 7.", "It is 7.")
    assert "/v1 streams its answers: asked as with --stream from now on" in first.note
    assert second.note == ""
    assert [asked.get("stream") for asked in server.asked] == [None, True]


def test_a_connection_that_stays_open_behind_the_last_event_is_not_waited_for(server):
    server.reply(*SEVEN, end="hangs")
    start = time.perf_counter()
    (answer,) = openai(server, STREAM)
    assert answer.text == "It is 7."
    assert time.perf_counter() - start < 100
    assert answer.latency_s < 100


def test_nor_is_what_drips_behind_it(server):
    server.reply(*SEVEN, *[0.1, b": still here\n\n"] * 600)
    start = time.perf_counter()
    assert openai(server, STREAM)[0].text == "It is 7."
    assert time.perf_counter() - start < 30


def test_keep_alives_do_not_hold_an_attempt_beyond_its_time(server):
    server.reply(*[b": ping\n\n", 0.05] * 400)
    late = failure(server, Decoding(timeout_s=1.0, stream=True))
    assert (late.failure, late.transient) == (Failure.TIMED_OUT, True)


def test_a_stream_that_goes_on_and_on_is_not_read_on(server):
    server.reply(*[chunk("x" * 2**20)] * 70)
    assert "too large: more than 64 MB" in str(failure(server))


@pytest.mark.parametrize("end", ["ends", "closes"])
def test_a_cut_stream_is_missing_and_worth_another_try(server, end):
    server.reply(chunk("It is "), chunk("8"), end=end)
    cut = failure(server)
    assert cut.failure is (Failure.UNREADABLE if end == "ends" else Failure.CONNECTION)
    assert cut.transient
    assert cut.spent is not None


@pytest.mark.parametrize(
    ("error", "kind", "transient"),
    [
        ({"error": {"code": 429, "message": "slow down"}}, Failure.RATE_LIMITED, True),
        ({"error": {"code": "503", "message": "gone"}}, Failure.SERVER, True),
        ({"error": {"type": "overloaded_error", "message": "Overloaded"}}, Failure.SERVER, True),
        ({"error": {"message": "engine died"}}, Failure.UNREADABLE, True),
        (
            {"error": {"code": 400, "message": "maximum context length is 100 tokens"}},
            Failure.TOO_LONG,
            False,
        ),
    ],
)
def test_an_error_in_mid_stream_is_missing(server, error, kind, transient):
    server.reply(chunk("It is 7"), event(error), DONE)
    broken = failure(server)
    assert (broken.failure, broken.transient) == (kind, transient)
    assert broken.spent is not None, "what was written before may be billed"


def test_a_refusal_that_comes_as_an_event_is_said_in_its_words(server):
    said = {"code": "InvalidParameter", "message": "Range of input length should be [1, 100]"}
    server.reply(b"id:1\nevent:error\n:HTTP_STATUS/400\n" + event(said), status=400)
    refused = failure(server)
    assert refused.failure is Failure.TOO_LONG
    assert str(refused).endswith("answered 400: Range of input length should be [1, 100]")


def test_no_key_comes_through_a_stream_even_in_pieces(server):
    server.reply(*map(chunk, f"Your key is {KEY}."), chunk(None, "stop"), DONE)
    assert KEY not in openai(server, STREAM)[0].text
    server.reply(event({"error": {"message": f"bad key {KEY}"}}))
    assert KEY not in str(failure(server))


def test_the_budgets_other_field_and_streams_are_learned_together(server):
    server.refuse("Stream must be set to true")
    server.refuse("Unsupported parameter: 'max_tokens' is not supported")
    server.reply(*SEVEN)
    assert openai(server, UNSTREAMED)[0].text == "It is 7."
    assert "max_completion_tokens" in server.asked[-1]


def test_completions_are_streamed_too(server):
    texts = [{"index": 0, "text": part, "finish_reason": None} for part in ("It", " is 7.")]
    last = {"index": 0, "text": "", "finish_reason": "stop"}
    server.reply(*(event({"choices": [row]}) for row in [*texts, last]), USAGE, DONE)
    (answer,) = openai(server, STREAM, api="completions")
    assert (answer.text, answer.prompt_tokens) == ("It is 7.", 9)
    assert answer.first_token_s > 0


def test_messages_are_streamed_and_asked_for_in_their_own_way(wire):
    answers = [
        ask(AnthropicModel("m", base_url=wire.root), decoding)[0]
        for decoding in (UNSTREAMED, STREAM)
    ]
    assert [answer.text for answer in answers] == ["It is 7."] * 2
    assert [answer.prompt_tokens for answer in answers] == [6, 6]
    assert [answer.completion_tokens for answer in answers] == [3, 3]
    assert answers[0].first_token_s is None
    assert answers[1].first_token_s > 0
    plain, streamed = (set(row["fields"]) for row in wire.log())
    assert streamed - plain == {"stream"}


RUN = ("--lengths", "200,400", "--depths", "0,100")


def test_a_streamed_run_has_the_records_of_any_other_and_the_time(needlemap, wire):
    needlemap.run(wire, *RUN)
    plain = needlemap.records()
    ended = needlemap.run(wire, *RUN, "--stream", "-o", "s")
    assert re.search(
        r"^first token: 0\.\d\d s at 200, 0\.\d\d s at 400 \(median\)$", ended.stderr, re.M
    )
    streamed = needlemap.records("s")
    assert [set(row["fields"]) & {"stream"} for row in wire.log()] == [set()] * 4 + [{"stream"}] * 4
    assert all("first_token_s" not in row for row in plain)
    assert all(0 < row["first_token_s"] <= row["latency_s"] for row in streamed)
    left = ("first_token_s", "latency_s", "finished_at", "usage", "cached_tokens", "shared_tokens")
    for row in (*plain, *streamed):
        for name in left:
            row.pop(name, None)
    assert sorted(plain, key=str) == sorted(streamed, key=str)


def test_a_run_may_be_resumed_with_or_without_streams(needlemap, wire):
    needlemap.run(wire, *RUN, "--stream")
    assert "stream" in json.loads((needlemap.folder / "r" / "run.json").read_text())["settings"]
    needlemap.run(wire, *RUN)
    assert len(wire.log()) == 4
    needlemap.run(wire, *RUN, "-o", "s")
    assert "stream" not in json.loads((needlemap.folder / "s" / "run.json").read_text())["settings"]


@pytest.mark.parametrize("way", ["only", "always"])
def test_a_run_on_a_server_that_only_streams_or_always_does(needlemap, wires, way):
    server = wires("--streams", way)
    needlemap.run(server, *RUN)
    assert [row["score"] for row in needlemap.records()] == [1.0] * 4
    assert all(row["first_token_s"] > 0 for row in needlemap.records())
    assert sum("stream" not in row["fields"] for row in server.log()) < 4


def test_the_score_of_a_streamed_run_is_made_anew_and_its_time_stays(needlemap, wire):
    needlemap.run(wire, *RUN, "--stream")
    before = needlemap.records()
    needlemap("score", "r", "--scorer", "exact")
    after = needlemap.records()[-4:]
    assert {row["first_token_s"] for row in before} == {row["first_token_s"] for row in after}
