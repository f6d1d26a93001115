"""Tokens counted by a server: both dialects over real HTTP, and servers that cannot."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from tokenizers import Tokenizer

from needlemap.deadline import TimeUp, limited_to
from needlemap.errors import SettingsError, VocabularyMissing
from needlemap.http import Sent
from needlemap.http.served import limits_of
from needlemap.settings import Settings
from needlemap.tokenizers.huggingface import HuggingFace
from needlemap.tokenizers.server import Server

TEXT = "Größe: 12.5 µm, 在上海的实验室。 🙂\n\n  She didn't say why."
Answer = Callable[[dict[str, Any]], Any]


class Handler(BaseHTTPRequestHandler):
    """Answers POST /tokenize with what the server's `answer` makes of the request; 404
    elsewhere."""

    protocol_version = "HTTP/1.1"
    answer: Answer
    asked: list[dict[str, Any]]
    keys: list[str | None]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append(body)
        self.keys.append(self.headers.get("authorization"))
        said = type(self).answer(body) if self.path == "/tokenize" else None
        if isinstance(said, str):
            self.send_response(307)
            self.send_header("Location", said)
            self.end_headers()
            return
        data = json.dumps(said if said is not None else {"error": "no"}).encode()
        self.send_response(200 if said is not None else 404)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], tuple[str, type[Handler]]]]:
    """Starts a server: serve(answer) -> its address and what it saw."""
    running = []

    def start(answer: Answer) -> tuple[str, type[Handler]]:
        kind = type("Seen", (Handler,), {"answer": staticmethod(answer), "asked": [], "keys": []})
        server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        running.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}", kind

    yield start
    for server, thread in running:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def vocabulary(vocabularies: Path) -> Path:
    return vocabularies / "byte-level.json"


def like_vllm(vocabulary: Path) -> Answer:
    tokenizer = Tokenizer.from_file(str(vocabulary))

    def answer(body: dict[str, Any]) -> Any:
        if "prompt" not in body:
            return {"object": "error", "message": "prompt: Field required"}
        found = tokenizer.encode(body["prompt"], add_special_tokens=body["add_special_tokens"])
        strings = found.tokens if body.get("return_token_strs") else None
        return {
            "count": len(found.ids),
            "max_model_len": 8,
            "tokens": found.ids,
            "token_strs": strings,
        }

    return answer


def like_llama(vocabulary: Path, before: str = "") -> Answer:
    ours = HuggingFace(vocabulary)

    def piece(data: bytes) -> Any:
        try:
            return data.decode()
        except UnicodeDecodeError:
            return list(data)

    def answer(body: dict[str, Any]) -> Any:
        text = body.get("content", "")
        found = ours.index((before + text if text else text).encode())
        if not body.get("with_pieces"):
            return {"tokens": found.ids.tolist()}
        cuts = zip(found.offsets[:-1].tolist(), found.offsets[1:].tolist(), strict=True)
        pieces = [piece(found.data[start:stop]) for start, stop in cuts]
        rows = zip(found.ids.tolist(), pieces, strict=True)
        return {"tokens": [{"id": number, "piece": shown} for number, shown in rows]}

    return answer


@pytest.mark.parametrize("dialect", [like_vllm, like_llama])
def test_its_tokens_are_those_of_the_vocabulary(serve, vocabulary, dialect):
    address, _ = serve(dialect(vocabulary))
    theirs, ours = Server(f"{address}/v1"), HuggingFace(vocabulary)
    for text in (b"", b"x", TEXT.encode(), TEXT.encode() * 200):
        found, known = theirs.index(text), ours.index(text)
        assert found.data == text
        assert found.ids.tolist() == known.ids.tolist()
        assert found.offsets.tolist() == known.offsets.tolist()
        assert theirs.count(text) == theirs.count_inside(text) == len(known)
    assert theirs.additive
    assert theirs.name == f"server:{address}"
    assert theirs.fingerprint == Server(address).fingerprint
    assert theirs.fingerprint.startswith("server:")


def test_another_vocabulary_has_another_fingerprint(serve, vocabulary):
    one = like_llama(vocabulary)

    def moved(body: dict[str, Any]) -> Any:
        return {
            "tokens": [{"id": row["id"] + 1, "piece": row["piece"]} for row in one(body)["tokens"]]
        }

    assert Server(serve(one)[0]).fingerprint != Server(serve(moved)[0]).fingerprint


def test_a_space_put_before_a_text_is_not_the_texts(serve, vocabulary):
    """As SentencePiece vocabularies do; then counts do not simply add up."""
    server = Server(serve(like_llama(vocabulary, before=" "))[0])
    assert not server.additive
    assert server.index(b"plain words").data == b"plain words"
    whole, part = server.count(b"plain words"), server.count(b"plain")
    assert server.count_inside(b" words") == whole - part


def test_the_key_is_sent_where_there_is_one(serve, vocabulary, monkeypatch):
    address, seen = serve(like_vllm(vocabulary))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    Server(address)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    Server(address)
    assert seen.keys[0] is None
    assert seen.keys[-1] == "Bearer sk-test"


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: None,
        lambda _: [1, 2],
        lambda body: (
            {"tokens": [1, 2], "count": 2} if "prompt" in body else None
        ),  # as SGLang: no bytes
        lambda body: {"tokens": [1], "token_strs": ["▁Where"]} if "prompt" in body else None,
    ],
)
def test_a_server_that_shows_no_tokens_is_refused_with_what_to_type_instead(serve, answer):
    with pytest.raises(
        VocabularyMissing, match=r"has no tokenizer end point .* --tokenizer a path to"
    ):
        Server(serve(answer)[0])


def test_tokens_that_lose_bytes_are_refused(serve):
    with pytest.raises(VocabularyMissing, match="does not give back a text's bytes"):
        Server(serve(lambda _: {"tokens": [{"id": 0, "piece": "<unk>"}]})[0])


def wrong(**changed: Any) -> Answer:
    """A server of llama.cpp's kind that says something else."""
    return lambda _: {"tokens": [{"id": 0, "piece": "x", **changed}]}


@pytest.mark.parametrize(
    "answer",
    [
        wrong(id="0"),
        wrong(id=2**40),
        wrong(id=-1),
        wrong(id=None),
        wrong(piece=5),
        wrong(piece=None),
        wrong(piece=[1000]),
        wrong(piece="\ud800"),
        lambda _: {"tokens": [{"piece": "x"}]},
        lambda _: {"tokens": [1, 2], "token_strs": ["x"]},
        lambda _: {"tokens": [1], "token_strs": [5]},
        lambda _: {"tokens": [[1]], "token_strs": ["x"]},
        lambda _: json.loads("[" * 500 + "]" * 500),
    ],
)
def test_tokens_that_are_none_are_refused_in_words(serve, answer):
    """Some were tracebacks, and the number 5 was five bytes."""
    with pytest.raises(VocabularyMissing):
        Server(serve(answer)[0])


def test_a_server_that_goes_wrong_later_is_told_in_words(serve, vocabulary):
    sound = like_llama(vocabulary)
    server = Server(
        serve(lambda body: sound(body) if len(body.get("content", "")) > 3 else {"no": 1})[0]
    )
    with pytest.raises(VocabularyMissing, match="gave no tokens of a text"):
        server.count(b"abc")
    with pytest.raises(VocabularyMissing, match="does not give back"):
        server.index(b"abc")


def test_a_redirect_is_not_followed(serve, vocabulary):
    other, seen = serve(like_llama(vocabulary))
    with pytest.raises(VocabularyMissing, match=f"sends us on to {other}/tokenize, and") as caught:
        Server(serve(lambda _: f"{other}/tokenize?key=abc")[0])
    assert "abc" not in str(caught.value)
    assert seen.asked == []


def test_a_reply_that_goes_on_is_not_read_on(serve, monkeypatch):
    monkeypatch.setattr("needlemap.tokenizers.server.LARGEST_BYTES", 1_000_000)
    with pytest.raises(VocabularyMissing, match="The reply is too large"):
        Server(serve(lambda _: {"x": "y" * 2_000_000})[0])


def test_the_key_that_a_server_says_back_is_hidden(serve, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted/0123456789")
    with pytest.raises(VocabularyMissing) as caught:
        Server(
            serve(lambda _: {"sent": "sk-planted/0123456789", "again": "sk-planted%2F0123456789"})[
                0
            ]
        )
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["http://[::1/v1", "http://xn--ä", "http://me:secret0@a", "a:80"]
)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(SettingsError) as caught:
        Server(address)
    assert "secret0" not in str(caught.value)


def test_a_server_that_is_down_is_said_to_be():
    with pytest.raises(
        VocabularyMissing, match=r"server:http://127.0.0.1:9: No connection .* Is it up\?"
    ):
        Server("http://127.0.0.1:9/v1")


def test_the_setting_server_needs_an_address():
    from needlemap.models import Traits
    from needlemap.trials.resolve import load_tokenizer

    with pytest.raises(SettingsError, match="give --base-url"):
        load_tokenizer(Settings(model="openai/m", tokenizer="server"), Traits())


def test_auto_asks_the_server_only_where_no_vocabulary_is_known(serve, vocabulary):
    from needlemap.models import Traits
    from needlemap.trials.resolve import load_tokenizer

    address, seen = serve(like_llama(vocabulary))
    settings = Settings(model="openai/m", base_url=f"{address}/v1")
    assert load_tokenizer(settings, Traits(tokenizer="cl100k_base")).name == "cl100k_base"
    assert not seen.asked
    assert load_tokenizer(settings, Traits()).name == f"server:{address}"
    gone, _ = serve(lambda _: None)
    alone = settings.model_copy(update={"base_url": gone})
    assert load_tokenizer(alone, Traits()).name == "o200k_base"


@pytest.fixture
def dripping() -> Iterator[str]:
    """A server whose head never ends: a byte now and then."""
    done = Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        with suppress(OSError):
            while not done.is_set():
                asked, _ = listener.accept()
                with asked, suppress(OSError):
                    asked.sendall(b"HTTP/1.1 200 OK\r\nx: ")
                    while not done.wait(0.05):
                        asked.sendall(b"x")

    thread = Thread(target=drip, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    done.set()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(10)


def test_a_head_that_drips_has_an_end(dripping, monkeypatch):
    """Between two pieces of a body a clock was looked at, in a head nobody did."""
    monkeypatch.setattr("needlemap.tokenizers.server._SOON_S", 0.3)
    monkeypatch.setattr("needlemap.http.served._LONGEST_S", 0.3)
    with pytest.raises(VocabularyMissing, match="No answer within"):
        Server(dripping)
    assert limits_of(dripping, "m", Sent()) == (None, None)


def test_a_runs_time_holds_while_tokens_are_counted(dripping):
    with pytest.raises(TimeUp, match="--limit-time"), limited_to(0.3):
        Server(dripping)


def test_tokens_that_are_mostly_empty_are_refused(serve):
    """Where a text can be cut is then known nowhere: prompts were fitted without an end."""

    def answer(body: dict[str, Any]) -> Any:
        pieces = [{"id": 7, "piece": ""}] * 9
        return {"tokens": [{"id": 1, "piece": body["content"]}, *pieces]}

    with pytest.raises(VocabularyMissing, match="without a byte"):
        Server(serve(answer)[0])
