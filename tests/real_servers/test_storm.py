"""Storms of a real llama-server that serves the gauge: it is not blamed; a proxy in front of it
that mixes up, cuts or replays answers is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from threading import Lock, Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

SIZES = ("--max-length", "1200", "--load", "4", "--minutes", "5", "--quiet")
EVERY = 15  # answers, one of which is spoilt: one in 200 takes many minutes


def swap(said: str, before: list[str]) -> str:
    return before[-1] if before else said


def cut(said: str, before: list[str]) -> str:  # noqa: ARG001 - as all faults
    return said[: len(said) // 2]


def replay(said: str, before: list[str]) -> str:
    return before[0] if before else said


@contextmanager
def proxied(root: str, spoil: Callable[[str, list[str]], str]) -> Iterator[str]:
    """A proxy's address. spoil: makes another answer of one in EVERY, from those of before."""
    random, before, lock = Random(1), list[str](), Lock()

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.forward(None)

        def do_POST(self) -> None:
            self.forward(self.rfile.read(int(self.headers["content-length"])))

        def forward(self, data: bytes | None) -> None:
            asked = Request(root + self.path, data, {"content-type": "application/json"})
            try:
                with urlopen(asked, timeout=60) as reply:
                    status, body = reply.status, reply.read()
            except HTTPError as error:
                status, body = error.code, error.read()
            if data is not None and status == 200:
                body = spoilt(body)
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    def spoilt(body: bytes) -> bytes:
        told = json.loads(body)
        message = told["choices"][0]["message"]
        with lock:
            said = message["content"]
            if random.random() < 1 / EVERY:
                message["content"] = spoil(said, before)
            before.append(said)
        return json.dumps(told).encode()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


def test_a_sound_server_is_not_blamed(gauge_server, needlemap):
    limit = ("--limit-tokens", "60k")
    asked = ("storm", "--base-url", gauge_server.base_url, *SIZES, *limit, "--json", "-o", "s")
    found = json.loads(needlemap(*asked, code=4).stdout)
    assert found["counts"]["right"] == found["requests"] > 0


@pytest.mark.parametrize("spoil", [swap, cut, replay])
def test_a_proxy_that_spoils_answers_is_found(gauge_server, needlemap, spoil):
    with proxied(gauge_server.root, spoil) as url:
        named = ("--model", "openai/gauge", "--base-url", url)
        found = json.loads(needlemap("storm", *named, *SIZES, "--json", "-o", "p", code=1).stdout)
    assert found["counts"].get("lost" if spoil is cut else "foreign")
