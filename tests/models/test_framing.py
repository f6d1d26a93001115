"""A reply ends where it says so. What stands behind it is nobody's answer."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from needlemap.errors import Failure, Unmeasured
from needlemap.http import SyncJsonClient, framing
from needlemap.models import Answer, Decoding
from needlemap.models.openai import OpenAIModel
from needlemap.prompts import Prompt

PROMPT = Prompt.plain([("user", "It is 7. What is it?")])
RIGHT, STRAY = "7", "STRAY"
# As the package has it: read before any test runs.
FIRST_LISTEN_S = framing.FIRST_LISTEN_S


@pytest.fixture(autouse=True)
def _new_servers_are_listened_to_as_long_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "FIRST_LISTEN_S", FIRST_LISTEN_S)


def body(text: str) -> bytes:
    return json.dumps({"choices": [{"message": {"content": text}}]}).encode()


def head(status: str, *lines: str, version: str = "1.1") -> bytes:
    return "\r\n".join([f"HTTP/{version} {status}", *lines, "", ""]).encode()


def reply(text: str, *lines: str, status: str = "200 OK", version: str = "1.1") -> bytes:
    """A reply with its length, unless its head says one."""
    said = body(text)
    own = any(each.startswith("Content-Length") for each in lines)
    length = () if own else (f"Content-Length: {len(said)}",)
    return head(status, *lines, *length, version=version) + said


def chunked(text: str, *lines: str, end: bytes = b"0\r\n\r\n") -> bytes:
    said, top = body(text), head("200 OK", "Transfer-Encoding: chunked", *lines)
    return top + f"{len(said):x}\r\n".encode() + said + b"\r\n" + end


Pieces = tuple[bytes | float, ...]  # what is sent, and seconds between


class Raw:
    """A server that says what it is told to behind each request, and counts connections. clean:
    requests that get the first piece alone, before."""

    def __init__(
        self, *pieces: bytes | float, tls: ssl.SSLContext | None = None, clean: int = 0
    ) -> None:
        self.pieces, self.tls, self.clean = pieces, tls, clean
        self.connections = self.requests = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http{'s' if self.tls else ''}://localhost:{self.port}/v1"

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._talk, args=(line,), daemon=True).start()

    def _talk(self, line: socket.socket) -> None:
        try:
            with self.tls.wrap_socket(line, server_side=True) if self.tls else line as talk:
                while self._heard(talk):
                    self.requests += 1
                    for piece in self.pieces[: 1 if self.requests <= self.clean else None]:
                        if isinstance(piece, bytes):
                            talk.sendall(piece)
                        else:
                            time.sleep(piece)
                    if b"close" in b"".join(p for p in self.pieces if isinstance(p, bytes)):
                        return
        except OSError:
            return

    def _heard(self, line: socket.socket) -> bool:
        data = b""
        while b"\r\n\r\n" not in data:
            if not (more := line.recv(65_536)):
                return False
            data += more
        top, _, rest = data.partition(b"\r\n\r\n")
        sizes = [row for row in top.lower().split(b"\r\n") if row.startswith(b"content-length:")]
        left = int(sizes[0].split(b":")[1]) - len(rest) if sizes else 0
        while left > 0:
            left -= len(line.recv(65_536))
        return True

    def close(self) -> None:
        self._socket.close()


@contextmanager
def serving(
    *pieces: bytes | float, tls: ssl.SSLContext | None = None, clean: int = 0
) -> Iterator[Raw]:
    server = Raw(*pieces, tls=tls, clean=clean)
    try:
        yield server
    finally:
        server.close()


async def asked(address: str, times: int = 6) -> list[Answer | Unmeasured]:
    """Answers to so many prompts, one behind the other."""
    model = OpenAIModel("m", base_url=address)
    found: list[Answer | Unmeasured] = []
    try:
        for _ in range(times):
            try:
                found.append(await model.answer(PROMPT, Decoding(timeout_s=20)))
            except Unmeasured as failure:
                found.append(failure)
        return found
    finally:
        await model.close()


def texts(found: list[Answer | Unmeasured]) -> set[str]:
    return {each.text for each in found if isinstance(each, Answer)}


TWICE = {
    "in one segment": (reply(RIGHT) + reply(STRAY),),
    "in two": (reply(RIGHT), reply(STRAY)),
    "soon": (reply(RIGHT), 0.03, reply(STRAY)),
    "late": (reply(RIGHT), 0.15, reply(STRAY)),
    "chunked": (chunked(RIGHT) + reply(STRAY),),
    "behind the last chunk": (chunked(RIGHT, end=b"0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"),),
    "a longer body than it says": (reply(RIGHT) + b"more",),
    "of HTTP/1.0": (
        reply(RIGHT, "Connection: keep-alive", version="1.0")
        + reply(STRAY, "Connection: keep-alive", version="1.0"),
    ),
    "closed behind it": (reply(RIGHT, "Connection: close") + reply(STRAY),),
    "behind an interim reply": (b"HTTP/1.1 100 Continue\r\n\r\n" + reply(RIGHT) + reply(STRAY),),
    "a length beside chunks": (chunked(RIGHT, f"Content-Length: {len(body(RIGHT))}"),),
}


@pytest.mark.parametrize("pieces", TWICE.values(), ids=TWICE)
def test_a_reply_with_bytes_behind_it_and_the_next_are_no_answers(pieces: Pieces) -> None:
    """The bytes were the answer to the next prompt, and scored 0."""
    with serving(*pieces) as server:
        found = asyncio.run(asked(server.address))
    first = found[0]
    assert isinstance(first, Unmeasured)
    assert (first.failure, first.transient) == (Failure.UNREADABLE, True)
    assert "connection is closed" in str(first)
    assert texts(found) <= {RIGHT}
    assert server.connections == server.requests


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
@pytest.mark.parametrize("pause_s", [0, 0.1])
def test_a_body_where_none_may_stand_is_no_answer_to_the_next(status: str, pause_s: float) -> None:
    """The body of a 204 was the next prompt's reply: six of six."""
    with serving(head(status), float(pause_s), reply(STRAY)) as server:
        found = asyncio.run(asked(server.address))
    assert texts(found) == set()
    assert server.connections == server.requests


def test_two_lengths_that_differ_are_a_lost_connection() -> None:
    with serving(reply(RIGHT, "Content-Length: 3", "Content-Length: 9")) as server:
        found = asyncio.run(asked(server.address, 2))
    assert all(isinstance(each, Unmeasured) and each.transient for each in found)
    assert server.connections == 2


def test_an_empty_line_behind_a_reply_closes_its_connection_and_leaves_the_answer() -> None:
    with serving(reply(RIGHT) + b"\r\n") as server:
        found = asyncio.run(asked(server.address, 3))
    assert [each.text for each in found if isinstance(each, Answer)] == [RIGHT] * 3
    assert server.connections == 3


GOOD = {
    "with a length": reply(RIGHT),
    "chunked": chunked(RIGHT),
    "with trailers": chunked(RIGHT, end=b"0\r\nX-Sum: 1\r\n\r\n"),
    "its length twice": reply(RIGHT, *[f"Content-Length: {len(body(RIGHT))}"] * 2),
    "HTTP/1.0": reply(RIGHT, "Connection: keep-alive", version="1.0"),
    "behind an interim reply": b"HTTP/1.1 103 Early Hints\r\n\r\n" + reply(RIGHT),
}


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("said", GOOD.values(), ids=GOOD)
def test_under_tls_a_connection_with_sound_replies_is_used_for_all(
    said: bytes, secure: bool, tls: ssl.SSLContext
) -> None:
    with serving(said, tls=tls if secure else None) as server:
        found = asyncio.run(asked(server.address, 20))
    assert [each.text for each in found if isinstance(each, Answer)] == [RIGHT] * 20
    # The library closes those of HTTP/1.0.
    assert server.connections == (1 if secure and not said.startswith(b"HTTP/1.0") else 20)


@pytest.mark.parametrize("pause_s", [0.01, 0.05, 0.15])
def test_what_comes_late_behind_a_later_reply_answers_no_other_prompt(pause_s: float) -> None:
    """A stray reply that comes while the next request is under way looks like its answer."""
    with serving(reply(RIGHT), pause_s, reply(STRAY), clean=2) as server:
        found = asyncio.run(asked(server.address, 8))
    assert texts(found) == {RIGHT}


def test_a_reply_in_many_segments_is_one() -> None:
    said = chunked(RIGHT)
    with serving(*(said[at : at + 1] for at in range(len(said)))) as server:
        found = asyncio.run(asked(server.address, 3))
    assert len(texts(found)) == 1


def test_a_reply_that_ends_with_its_connection_is_an_answer() -> None:
    with serving(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body(RIGHT)) as server:
        assert texts(asyncio.run(asked(server.address, 2))) == {RIGHT}


def test_the_time_of_an_answer_is_that_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new server's connection is listened to for a while behind its first reply."""
    monkeypatch.setattr(framing, "FIRST_LISTEN_S", 2.0)
    with serving(reply(RIGHT)) as server:
        (first,) = asyncio.run(asked(server.address, 1))
    assert isinstance(first, Answer)
    assert first.latency_s < 2


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of localhost, with its key."""
    from datetime import datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    today = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    pem = serialization.Encoding.PEM
    path.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.public_bytes(pem)
    )
    return path


@pytest.fixture
def tls(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def test_under_tls_too(tls: ssl.SSLContext) -> None:
    """A record that came with the reply's own stands in the library's memory, not in a socket."""
    for pieces in (TWICE["in one segment"], TWICE["in two"], TWICE["late"]):
        with serving(*pieces, tls=tls) as server:
            found = asyncio.run(asked(server.address))
        assert isinstance(found[0], Unmeasured)
        assert texts(found) <= {RIGHT}
    with serving(reply(RIGHT), tls=tls) as server:
        assert texts(asyncio.run(asked(server.address, 10))) == {RIGHT}
        assert server.connections == 1


def count(client: SyncJsonClient) -> str:
    return client.ask("POST", "/tokenize", b"{}", 5, 10_000).text


def test_who_counts_tokens_is_not_answered_by_what_stands_behind_a_reply_either() -> None:
    with serving(reply(RIGHT) + reply(STRAY)) as server:
        client = SyncJsonClient(server.address, {})
        for _ in range(3):
            with pytest.raises(Unmeasured, match="connection is closed"):
                count(client)
        assert server.connections == 3
        client.close()
    with serving(reply(RIGHT)) as server:
        client = SyncJsonClient(server.address, {})
        assert [count(client) for _ in range(5)] == [body(RIGHT).decode()] * 5
        assert server.connections == 5
        client.close()


def pipe(upstream: int) -> tuple[socket.socket, Callable[[], None]]:
    """A proxy that connects whoever asks to a port of this machine."""
    door = socket.create_server(("127.0.0.1", 0))

    def move(source: socket.socket, to: socket.socket) -> None:
        try:
            while data := source.recv(65_536):
                to.sendall(data)
        except OSError:
            pass
        finally:
            to.close()

    def serve() -> None:
        while True:
            try:
                line, _ = door.accept()
            except OSError:
                return
            head = b""
            while b"\r\n\r\n" not in head:
                head += line.recv(1)
            there = socket.create_connection(("127.0.0.1", upstream))
            line.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            for one, other in ((line, there), (there, line)):
                threading.Thread(target=move, args=(one, other), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return door, door.close


def test_through_a_proxy_too(tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    import needlemap.http.client as http

    monkeypatch.setattr(http, "_THIS_MACHINE", ())
    for pieces, right in ((TWICE["in one segment"], False), ((reply(RIGHT),), True)):
        with serving(*pieces, tls=tls) as server:
            door, close = pipe(server.port)
            monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{door.getsockname()[1]}")
            monkeypatch.delenv("NO_PROXY", raising=False)
            found: list[Any] = asyncio.run(asked(server.address, 4))
            close()
        assert texts(found) <= {RIGHT}
        assert isinstance(found[0], Answer) is right
        assert server.connections == (1 if right else 4)
