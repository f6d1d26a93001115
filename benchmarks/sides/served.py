"""An engine (`engines.py`) behind a real HTTP server of OpenAI's form, on 127.0.0.1.

Tokens are those of o200k_base. Facts are the sentences that hold a number of five digits or more;
the fact that is asked for has the longest row of words with the end of the prompt in common: words
that it shares here and there may stand in the text before another fact.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Any

import numpy as np

from needlemap.tokenizers import load
from sides.engines import Change, Engine, Fact, Machine, Reply, Request

SECRET = re.compile(r"[^.\n]*?(\d{5,})[^.\n]*")
WORD = re.compile(r"[A-Za-z]+")
BEGIN, END = 64, 400  # tokens that tell beginnings apart; characters that hold the question
TOGETHER_S = 0.02  # requests that come so soon after another are in flight with it
HEAD = b"HTTP/1.1 %d OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
STATUS = {"too long": 400, "server": 500, "late": 504}


def shared(left: Request, right: Request) -> int:
    """Tokens that two prompts begin with in common."""
    one, other = left.source, right.source
    size = min(len(one), len(other))
    apart = np.flatnonzero(one[:size] != other[:size])
    return int(apart[0]) if len(apart) else size


def row_in_common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many words in a row two texts have in common."""
    longest, before = 0, [0] * (len(other) + 1)
    for word in one:
        row = [0] * (len(other) + 1)
        for at, also in enumerate(other):
            if word == also:
                row[at + 1] = before[at] + 1
                longest = max(longest, row[at + 1])
        before = row
    return longest


class Reader:
    """Makes requests of prompts."""

    def __init__(self) -> None:
        self._vocabulary, self._known = load("o200k_base"), dict[str, Request]()

    def read(self, text: str) -> Request:
        """A prompt as the engine sees it."""
        if text not in self._known:
            self._known[text] = self._read(text)
        return self._known[text]

    def _read(self, text: str) -> Request:
        data = text.encode()
        tokens = self._vocabulary.index(data)
        ids, stops = tokens.ids, tokens.offsets[1:]
        found = [(match, match.group(1)) for match in SECRET.finditer(text)]
        places = np.searchsorted(
            stops, [len(text[: match.start(1)].encode()) for match, _ in found], "right"
        )
        facts = tuple(Fact(value, int(at)) for (_, value), at in zip(found, places, strict=True))
        asked = WORD.findall(text[-END:].rpartition("\n")[2].lower())
        common = [row_in_common(asked, WORD.findall(match.group().lower())) for match, _ in found]
        best = facts[common.index(max(common))] if facts else Fact("nothing", 0)
        begin = sha256(np.asarray(ids[:BEGIN]).tobytes()).hexdigest()[:12]
        name = sha256(data).hexdigest()[:16]
        return Request(name, len(ids), facts, best, begin, np.asarray(ids), lambda: text)


@dataclass
class Server:
    """One server at a time stands behind the address: `engine` is what answers."""

    context: int
    engine: Engine = field(init=False)
    reader: Reader = field(default_factory=Reader)
    flying: list[Request] = field(default_factory=list)
    port: int = 0

    def become(self, machine: Machine, changes: Sequence[Change], seed: object) -> None:
        """Another server, which holds nothing."""
        self.engine = Engine(shared, machine, changes, Random(f"served {seed}"))
        self.flying = []

    async def chat(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Answer one request; its status and body."""
        text = "\n".join(str(message["content"]) for message in body["messages"])
        request = self.reader.read(text)
        self.flying.append(request)
        come = 0
        while come < len(self.flying):  # a client on a busy machine sends its requests slowly
            come = len(self.flying)
            await asyncio.sleep(TOGETHER_S)
        others = [each for each in self.flying if each is not request]
        reply = self.engine.answer(request, others)
        await asyncio.sleep(TOGETHER_S / 2)
        self.flying.remove(request)
        return answered(reply)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until the client hangs up."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                lines = dict(
                    line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line
                )
                data = await reader.readexactly(int(lines.get("content-length", 0)))
                path = head.split(" ", 2)[1]
                if path.endswith("/chat/completions"):
                    status, body = await self.chat(json.loads(data))
                elif path.endswith("/models"):
                    model = {"id": "green", "object": "model", "max_model_len": self.context}
                    status, body = 200, {"object": "list", "data": [model]}
                else:
                    status, body = 404, {"error": {"message": "no such path"}}
                out = json.dumps(body).encode()
                writer.write(HEAD % (status, len(out)) + out)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def answered(reply: Reply) -> tuple[int, dict[str, Any]]:
    """A reply's status and body."""
    if reply.error:
        message = {"too long": "maximum context length exceeded: too many tokens"}
        said = message.get(reply.error, "internal error")
        code = "context_length_exceeded" if reply.error == "too long" else "error"
        return STATUS[reply.error], {"error": {"message": said, "code": code, "type": code}}
    body: dict[str, Any] = {
        "id": "green",
        "object": "chat.completion",
        "created": 0,
        "model": "green",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": reply.text},
                "finish_reason": reply.finish,
            }
        ],
    }
    if reply.prompt_tokens is not None:
        usage: dict[str, Any] = {"prompt_tokens": reply.prompt_tokens, "completion_tokens": 12}
        if reply.cached_tokens is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": reply.cached_tokens}
        body["usage"] = {**usage, "total_tokens": reply.prompt_tokens + 12}
    return 200, body


@contextmanager
def serving(context: int) -> Iterator[Server]:
    """A server in a thread of its own."""
    server, loop, ready = Server(context), asyncio.new_event_loop(), threading.Event()

    async def start() -> None:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=2**24)
        server.port = listening.sockets[0].getsockname()[1]
        ready.set()

    def run() -> None:
        loop.run_until_complete(start())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
