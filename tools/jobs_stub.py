"""An OpenAI-compatible server for tools/jobs.py, which knows how to be wrong.

It answers with the sentence that shares the rarest words with the last question. `GET
/v1/models` lists one model, or two if the mode is `two`.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from needlemap.tokenizers import load

MODES = {
    "good": "finds every fact",
    "weak": "loses facts in the first 45 % of prompts above 1,500 tokens",
    "slow": "takes half a second for an answer",
    "streams": "answers as a stream only",
    "two": "lists two models",
    "html": "answers every request with a web page and 200",
    "empty": "answers with nothing",
    "missing": "answers every request with 404",
    "broken": "answers every request with 500",
    "busy": "answers every request with 429",
    "silent": "never answers",
    "bare": "has its API at /, not at /v1",
}
MODEL = "my-model"
CONTEXT = 16_384
BLIND = 0.45  # of the text, from its start
LONG = 1_500  # tokens
REFUSALS = {"missing": 404, "broken": 500, "busy": 429}
SENTENCES = re.compile(r"[^.!?。！？\n]+[.!?。！？]?")
WORDS = re.compile(r"[㐀-鿿]|[^\W_㐀-鿿]+")


def find(text: str) -> tuple[str, float]:
    """Return the sentence that answers the last question, and its place as a share of the text."""
    matches = [match for match in SENTENCES.finditer(text) if match[0].strip()]
    questions = [match[0] for match in matches if match[0].rstrip()[-1] in "?？"]
    question = set(WORDS.findall((questions or [matches[-1][0]])[-1].lower()))
    shared = [question.intersection(WORDS.findall(match[0].lower())) for match in matches]
    counts = Counter(word for words in shared for word in words)

    def weight(place: int) -> float:
        asks = matches[place][0].rstrip()[-1] in "?？"
        return 0.0 if asks else sum(1 / counts[word] for word in shared[place])

    best = max(range(len(matches)), key=weight)
    return matches[best][0].strip(), matches[best].start() / max(1, len(text))


class Handler(BaseHTTPRequestHandler):
    """Answers in the mode of its server."""

    protocol_version = "HTTP/1.1"
    mode = "good"
    tokenizer: Any = None

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        """List the models."""
        names = [MODEL, "other-model"] if self.mode == "two" else [MODEL]
        data = [{"id": name, "object": "model", "max_model_len": CONTEXT} for name in names]
        self._answer({"object": "list", "data": data}, "models")

    def do_POST(self) -> None:
        """Answer a chat."""
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        text = "\n\n".join(str(message["content"]) for message in body.get("messages", []))
        tokens = self.tokenizer.count(text)
        answer, place = find(text) if text.strip() else ("", 0.0)
        if "judge" in str(body.get("model")):
            answer = "Score: 10"
        if self.mode == "weak" and tokens > LONG and place < BLIND:
            answer = "I cannot find that."
        if self.mode == "empty":
            answer = ""
        if self.mode == "slow":
            time.sleep(0.5)
        written = self.tokenizer.count(answer)
        usage = {"prompt_tokens": tokens, "completion_tokens": written}
        usage["total_tokens"] = tokens + written
        reply = {"id": "1", "model": str(body.get("model")), "usage": usage}
        message = {"role": "assistant", "content": answer}
        if body.get("stream"):
            self._stream(reply, message)
        elif self.mode == "streams":
            self._send(400, b'{"error": {"message": "Stream must be set to true"}}')
        else:
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._answer(reply | {"object": "chat.completion", "choices": [choice]}, "chat")

    def _answer(self, document: dict[str, Any], what: str) -> None:
        if self.mode == "silent" and what == "chat":
            time.sleep(60)
        prefix = "" if self.mode == "bare" else "/v1"
        ways = {"models": "/models", "chat": "/chat/completions"}
        if self.mode == "html":
            self._send(200, b"<html><title>Welcome</title></html>", "text/html")
        elif self.mode in REFUSALS and (what == "chat" or self.mode == "missing"):
            self._send(REFUSALS[self.mode], b'{"error": {"message": "not today"}}')
        elif self.path.rstrip("/") != prefix + ways[what]:
            self._send(404, b'{"detail": "Not Found"}')
        else:
            self._send(200, json.dumps(document).encode())

    def _stream(self, reply: dict[str, Any], message: dict[str, str]) -> None:
        usage = reply.pop("usage")
        parts = (
            {"choices": [{"index": 0, "delta": message}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {"choices": [], "usage": usage},
        )
        lines = [f"data: {json.dumps(reply | part)}\n\n" for part in parts]
        self._send(200, "".join([*lines, "data: [DONE]\n\n"]).encode(), "text/event-stream")

    def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if status == 429:
            self.send_header("retry-after", "1")
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """A server that says nothing of clients that go away: a storm cancels, a run is interrupted."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print what is no lost connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def start() -> dict[str, str]:
    """Start a server of each mode. Returns their addresses by mode, with `/v1`."""
    tokenizer = load("o200k_base")
    addresses = {}
    for mode in MODES:
        handler = type(mode, (Handler,), {"mode": mode, "tokenizer": tokenizer})
        server = Server(("127.0.0.1", 0), handler)
        Thread(target=server.serve_forever, daemon=True).start()
        addresses[mode] = f"http://127.0.0.1:{server.server_port}/v1"
    return addresses
