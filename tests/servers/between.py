"""A server between a client and another one, which alters what is asked or answered."""

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

Alter = Callable[[dict[str, Any]], dict[str, Any]]


def unaltered(told: dict[str, Any]) -> dict[str, Any]:
    return told


@contextmanager
def between(root: str, asked: Alter = unaltered, replied: Alter = unaltered) -> Iterator[str]:
    """Its address. asked, replied: make another body of that of a POST, and of its reply if it has
    status 200. Each is called in the thread of its request."""

    class Between(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.pass_on(None)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.pass_on(json.dumps(asked(body)).encode())

        def pass_on(self, data: bytes | None) -> None:
            request = Request(root + self.path, data, {"content-type": "application/json"})
            try:
                with urlopen(request, timeout=600) as reply:
                    status, body = reply.status, reply.read()
            except HTTPError as error:
                status, body = error.code, error.read()
            if data is not None and status == 200:
                body = json.dumps(replied(json.loads(body))).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            try:
                self.wfile.write(body)
            except ConnectionError:
                self.close_connection = True  # the client went away

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Between)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def swapped(said: str, before: list[str]) -> str:
    """The answer before it."""
    return before[-1] if before else said


def cut(said: str, before: list[str]) -> str:  # noqa: ARG001 - as the others
    """Its first half."""
    return said[: len(said) // 2]


def replayed(said: str, before: list[str]) -> str:
    """The first answer of all."""
    return before[0] if before else said


SPOILT = {each.__name__: each for each in (swapped, cut, replayed)}


class Spoiling:
    """Alters one chat answer in `every`, by what was answered before. An answer without a number,
    as to the question whether a model is the gauge, is let through and forgotten."""

    def __init__(self, name: str, every: int, seed: int = 1) -> None:
        self.spoil, self.every, self.random = SPOILT[name], every, Random(seed)
        self.before, self.lock = list[str](), Lock()

    def __call__(self, told: dict[str, Any]) -> dict[str, Any]:
        message = told["choices"][0]["message"]
        with self.lock:
            said = message["content"]
            if not any(character.isdigit() for character in said):
                return told
            if self.random.random() < 1 / self.every:
                message["content"] = self.spoil(said, self.before)
            self.before.append(said)
        return told


HIT = 64  # cached tokens from which on a prompt found more than its template


class Moving:
    """Alters margins of answers whose prompts were found in the cache, and no text: by so many
    nats."""

    def __init__(self, nats: float) -> None:
        self.nats = nats

    def __call__(self, told: dict[str, Any]) -> dict[str, Any]:
        details = told.get("usage", {}).get("prompt_tokens_details") or {}
        rows = (told["choices"][0].get("logprobs") or {}).get("content") or []
        if (details.get("cached_tokens") or 0) > HIT:
            for row in rows:
                for other in row["top_logprobs"]:
                    other["logprob"] -= self.nats * (other["token"] != row["token"])
        return told
