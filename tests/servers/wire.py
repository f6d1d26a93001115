"""A real HTTP server process that speaks the OpenAI and Anthropic wire formats, for tests and
benchmarks.

    python tests/servers/wire.py --port 0        prints its port as its first line

It reads the prompt and answers with the sentence that best fits the last question. What can go
wrong, and how to ask for it, is in `wire_faults.py`. GET /log tells what was asked, POST /reset
forgets it, POST /schedule takes {"faults": [...], "cycle": false}. `--streams` says when it
streams: where it is asked to, always, or nothing else.
`--instant` answers POSTs without reading. `--limit` keeps rate limits (see `wire_limits.py`); POST
/limit takes such limits, {} for none.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import struct
import zlib
from base64 import b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from time import time
from typing import Any
from urllib.parse import quote

from wire_answers import Cache, find, words
from wire_dialects import (
    MESSAGES,
    ODD,
    Reply,
    anthropic_usage,
    body,
    budget,
    cut,
    odd,
    openai_usage,
    prompt_of,
    thoughts,
    unwanted,
)
from wire_faults import Schedule, refusal
from wire_http import Request, Response, as_json, head
from wire_limits import Limits
from wire_streams import ONLY, TYPE, events

from needlemap.tokenizers import load

SHOWN_BYTES = 20_000  # smaller request bodies are in the log as they are
FINISHES = {"filtered": "content_filter", "thinking": "length", "unwritten": "length"}


@dataclass
class State:
    """What the server remembers."""

    options: argparse.Namespace
    schedule: Schedule
    log: list[dict[str, Any]] = field(default_factory=list)
    cache: Cache = field(default_factory=Cache)
    open_now: list[Request] = field(default_factory=list)
    limits: Limits = field(default_factory=lambda: Limits({}))
    down: asyncio.Queue[float] = field(default_factory=asyncio.Queue)

    def forget(self) -> None:
        """As after a start without a schedule."""
        self.schedule, self.log, self.cache = Schedule(), [], Cache()
        self.limits = Limits({})
        self.open_now = []  # a client of before may be gone, and its slow answer still under way


async def respond(state: State, request: Request) -> Response:
    """Answer a request of any path."""
    if request.path == "/log":
        return as_json({"requests": state.log})
    if request.path == "/reset":
        state.forget()
        return as_json({})
    if request.path == "/schedule":
        asked = json.loads(request.data)
        state.schedule = Schedule(asked["faults"], asked.get("cycle", False))
        return as_json({})
    if request.path == "/limit":
        state.limits = Limits(json.loads(request.data))
        return as_json({})
    if request.path == "/v1/models":
        return as_json({"object": "list", "data": listed(state.options)})
    if request.path == "/props" and state.options.slots:
        each = {"n_ctx": state.options.slot_tokens} if state.options.slot_tokens else {}
        return as_json({"total_slots": state.options.slots, "default_generation_settings": each})
    if not request.path.startswith("/v1/"):
        return as_json({"detail": "Not Found"}, 404)
    return await model(state, request)


async def model(state: State, request: Request) -> Response:
    """Answer as a model, or fail as asked."""
    try:
        asked = json.loads(request.data)
        prompt = prompt_of(request.path, asked)
    except (ValueError, KeyError, TypeError) as error:
        return as_json({"error": {"message": f"unreadable request: {error!r}"}}, 400)
    taken, headers = state.limits.take(words(prompt) + budget(asked))
    fault = state.schedule.next(asked["model"], words(prompt)) if taken else "429"
    note(state, request, asked, prompt, fault, taken)
    if not taken:
        status, said, _ = refusal("429", asked["model"], request.key) or (429, {}, {})
        return as_json(said, status, headers)
    open_now = state.open_now
    open_now.append(request)
    try:
        if fault.startswith("slow:"):
            await asyncio.sleep(float(fault[5:]))
    finally:
        open_now.remove(request)
    fault = _unless_unwanted(fault, asked)
    if fault.startswith("echo:"):
        return echo(request, int(fault[5:]))
    if fault.startswith("spell:"):
        return spell(request, int(fault[6:]))
    wrong = _overflow(state, request, prompt) or unwanted(fault, asked)
    if fault.startswith("raw:"):
        return Response(200, fault[4:].encode("utf-8", "surrogatepass"))
    if fault.startswith("reply:"):
        return made(json.loads(fault[6:]))
    refused = refusal(wrong or fault, asked["model"], request.key)
    if refused:
        status, said, more = refused
        return as_json(said, status, headers | more)
    if fault == "reset" or fault.startswith("down:"):
        return Response(200, b"", reset=True, down_s=float(fault[5:]) if fault != "reset" else 0.0)
    whole = answer(state, request.path, asked, prompt, fault)
    whole.headers |= headers
    return streamed(state, request, asked, whole)


def streamed(state: State, request: Request, asked: dict[str, Any], whole: Response) -> Response:
    """A reply as events, where that is asked for or all that the server does."""
    when = state.options.streams
    if not asked.get("stream") and when == "only":
        return as_json({"error": {"message": ONLY, "type": "invalid_request_error"}}, 400)
    if asked.get("stream") or when == "always":
        whole.data = events(request.path, json.loads(whole.data), asked)
        whole.headers |= TYPE
    return whole


def listed(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The models that it says it serves, with their context where it has one."""
    told = options.lists or options.max_context
    context = {"max_model_len": told} if told else {}
    owner = {"owned_by": options.owner} if options.owner else {}
    names = options.models.split(",") if options.models else []
    return [{"id": name, "object": "model", **owner, **context} for name in names]


def made(reply: dict[str, Any]) -> Response:
    """A reply in all its parts: status, headers, body, and how many MB of blanks to pack behind it
    (gzip)."""
    data, headers = reply.get("body", "").encode(), reply.get("headers", {})
    if "packed_mb" in reply:
        packer = zlib.compressobj(9, wbits=31)
        pieces = [
            packer.compress(data),
            *(packer.compress(b" " * 2**20) for _ in range(reply["packed_mb"])),
        ]
        data, headers = b"".join([*pieces, packer.flush()]), headers | {"content-encoding": "gzip"}
    return Response(reply.get("status", 200), data, headers)


def echo(request: Request, status: int) -> Response:
    """Say all headers of a request back, in words and in headers, as a proxy's debug page does."""
    said = f"You sent {request.method} {request.path} with {json.dumps(request.headers)}"
    parts = {"type": "text", "text": said, "message": said, "content": said}
    whole = (
        {"error": parts} if status != 200 else {"choices": [{"message": parts}], "content": [parts]}
    )
    return as_json(
        whole, status, {f"x-sent-{name}": value for name, value in request.headers.items()}
    )


def spell(request: Request, status: int) -> Response:
    """Say all secrets of a request back, each in many spellings: in words, in usage and as the
    model."""
    ways = []
    for sent in {request.key, *request.headers.values()} - {""}:
        data = sent.encode()
        ways += [
            "".join(f"\\u{byte:04x}" for byte in data),
            "".join(f"\\u{byte:04X}" for byte in data),
        ]
        ways += [
            json.dumps(each)[1:-1] for each in (sent, quote(sent, safe=""), sent[:-5], sent[5:])
        ]
        ways += [sent.replace("/", "\\/").replace('"', ""), b64encode(data).decode()]
        ways += [b64encode(b"Bearer " + data).decode(), f"\\\\u0073{json.dumps(sent)[1:-1]}"]
    text = " ".join(ways)
    parts = f'{{"type": "text", "text": "{text}", "message": "{text}", "content": "{text}"}}'
    beside = (
        f'"model": "{text}", "usage": {{"{text}": "{text}", "prompt_tokens": 5, "input_tokens": 5}}'
    )
    whole = f'{{"choices": [{{"message": {parts}, "finish_reason": "{text}"}}], "content": [{parts}], {beside}}}'  # noqa: E501
    return as_json(whole if status == 200 else f'{{"error": {parts}}}', status)


def _unless_unwanted(fault: str, asked: dict[str, Any]) -> str:
    """`without-logprobs:FAULT` as the fault of requests that ask for log-probabilities, else ok."""
    name, _, refused = fault.partition(":")
    if name != "without-logprobs":
        return fault
    return refused if "logprobs" in asked else "ok"


def _overflow(state: State, request: Request, prompt: str) -> str:
    most = state.options.max_context
    dialect = "anthropic" if request.path == MESSAGES else "openai"
    return f"too-long:{dialect}" if most and counted(state, prompt) > most else ""


def counted(state: State, prompt: str) -> int:
    """Tokens of a prompt, in the server's vocabulary."""
    return (
        load(state.options.vocabulary).count(prompt.encode())
        if state.options.vocabulary
        else words(prompt)
    )


def answer(state: State, path: str, asked: dict[str, Any], prompt: str, fault: str) -> Response:
    """The reply to a readable request, with what a fault makes of it."""
    said = fault[4:] if fault.startswith("say:") else state.options.answer or read(state, prompt)
    text, finish = ("", "stop") if fault in ("empty-answer", "unwritten") else cut(said, asked)
    if path == MESSAGES:
        usage = anthropic_usage(state.cache, asked, prompt, text)
    else:
        usage = openai_usage(state.cache, prompt, text)
        usage["prompt_tokens"] = counted(state, prompt)
    if fault.startswith("large:"):
        text += " and so on" * (int(fault[6:]) // 10)
    nothing = fault in ("null-content", "refusal", "filtered", "thinking")
    reply = Reply(
        None if nothing else text,
        FINISHES.get(fault, finish),
        asked["model"],
        {} if fault == "no-usage" else usage,
        "I cannot help with that." if fault == "refusal" else None,
    )
    thoughts(fault, reply, asked)
    whole = body(path, reply)
    if fault == "no-usage":
        del whole["usage"]
    if fault == "half-character":
        return as_json(json.dumps(whole).replace(json.dumps(text), '"51328 \\ud83d"'))
    if fault == "invalid-json":
        return as_json(json.dumps(whole)[:-20])
    reply = as_json(odd(fault, whole) if fault.startswith(ODD) else whole, cut=fault == "cut")
    reply.wrong = int(fault[13:]) if fault.startswith("wrong-length:") else 0
    return reply


def read(state: State, prompt: str) -> str:
    """The sentence that answers; of some prompts, always the same, the server finds nothing."""
    options = state.options
    forgotten = sha256(prompt.encode()).digest()[0] < 256 * options.forgets
    forgotten &= words(prompt) >= options.forgets_from
    return "I do not know." if forgotten else find(prompt)


def note(
    state: State,
    request: Request,
    asked: dict[str, Any],
    prompt: str,
    fault: str,
    taken: bool = True,
) -> None:
    """Write down what was asked, without the key."""
    state.log.append(
        {
            "path": request.path,
            "time": time(),
            "open": len(state.open_now),
            "fault": fault,
            "had_key": bool(request.key) and request.key != "none",
            "key_sha256": sha256(request.key.encode()).hexdigest(),
            "user_agent": request.headers.get("user-agent"),
            "bytes": len(request.data),
            "sha256": sha256(request.data).hexdigest(),
            "fields": sorted(asked),
            "model": asked["model"],
            "temperature": asked.get("temperature"),
            "refused": not taken,
            "tokens": words(prompt) + budget(asked),
            "prompt_words": words(prompt),
            "prompt_sha256": sha256(prompt.encode()).hexdigest(),
            "body": asked if len(request.data) <= SHOWN_BYTES else None,
        }
    )


class Connection(asyncio.Protocol):
    """One client. Requests of a connection are answered one after the other; it stays open."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.received = bytearray()
        self.request: Request | None = None
        self.missing = 0
        self.tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by the loop with any piece of a request."""
        self.received += data
        if self.request is None:
            end = self.received.find(b"\r\n\r\n")
            if end < 0:
                return
            self.request = head(bytes(self.received[:end]))
            del self.received[: end + 4]
            self.missing = int(self.request.headers.get("content-length", 0))
        if len(self.received) >= self.missing:
            self.complete(self.request)

    def complete(self, request: Request) -> None:
        """A whole request is here."""
        self.request = None
        if self.state.options.instant and request.method == "POST":
            self.received.clear()
            self.transport.write(INSTANT)
            return
        request.data = bytes(self.received[: self.missing])
        del self.received[: self.missing]
        task = asyncio.ensure_future(self.send(request))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def send(self, request: Request) -> None:
        """Answer one request."""
        response = await respond(self.state, request)
        if response.reset:
            linger = struct.pack("ii", 1, 0)  # close with RST, as a crashed server does
            self.transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, linger
            )
            self.transport.abort()
            if response.down_s:
                self.state.down.put_nowait(response.down_s)
            return
        self.transport.write(response.bytes)
        if response.cut or response.wrong > 0:
            self.transport.close()


USAGE = {
    "prompt_tokens": 1,
    "completion_tokens": 1,
    "total_tokens": 2,
    "input_tokens": 1,
    "output_tokens": 1,
}
INSTANT = as_json(
    {
        "id": "x-1",
        "model": "wire",
        "choices": [
            {"index": 0, "message": {"content": "ok"}, "text": "ok", "finish_reason": "stop"}
        ],
        "content": [{"type": "text", "text": "ok"}],
        "stop_reason": "end_turn",
        "usage": USAGE,
    }
).bytes


async def serve(options: argparse.Namespace) -> None:
    """Listen on loopback until killed."""
    state = State(options, Schedule(json.loads(options.schedule), options.cycle))
    state.limits = Limits(json.loads(options.limit))
    loop, port = asyncio.get_running_loop(), options.port
    while True:
        server = await loop.create_server(
            lambda: Connection(state), "127.0.0.1", port, backlog=1024
        )
        if port != (port := server.sockets[0].getsockname()[1]):
            print(port, flush=True)
        down_s = await state.down.get()
        server.close()
        await asyncio.sleep(down_s)


def main() -> None:
    """Parse and serve."""
    parser = argparse.ArgumentParser(description="A test server for model clients.")
    parser.add_argument(
        "--port", type=int, default=0, help="0: any free port, printed as the first line"
    )
    parser.add_argument("--models", default="wire", help="names that it lists, with commas")
    parser.add_argument("--answer", help="answer everything with this text")
    parser.add_argument("--schedule", default="[]", help="JSON list of faults, one a request")
    parser.add_argument(
        "--cycle", action="store_true", help="begin the schedule again when it ends"
    )
    parser.add_argument(
        "--max-context", type=int, default=0, help="refuse longer prompts, in words"
    )
    parser.add_argument(
        "--forgets", type=float, default=0, help="share of prompts it finds nothing in"
    )
    parser.add_argument(
        "--forgets-from", type=int, default=0, help="words of a prompt from which on it does"
    )
    parser.add_argument(
        "--vocabulary", default="", help="that counts its tokens, as cl100k_base; else words"
    )
    parser.add_argument("--lists", type=int, default=0, help="a context that it lists, not its own")
    parser.add_argument("--owner", default="", help="whose its models are, as it says")
    parser.add_argument("--slot-tokens", type=int, default=0, help="of a slot, in its /props")
    parser.add_argument("--slots", type=int, default=0, help="what its /props says; 0: no /props")
    parser.add_argument("--streams", default="asked", choices=["asked", "always", "only"])
    parser.add_argument("--limit", default="{}", help="JSON: rate limits")
    parser.add_argument("--instant", action="store_true", help="answer without reading")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
