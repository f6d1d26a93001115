"""A proxy that counts: requests, and the SHA-256 of each prompt's text. It keeps no text.

    python counting_proxy.py http://127.0.0.1:8080 8090

`GET /counted` returns what it saw since it started, as JSON.
"""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

SENT_S = 3_600.0
PROMPTS: list[dict[str, Any]] = []


class Proxy(BaseHTTPRequestHandler):
    """Hand requests on to the server behind, and note their prompts."""

    server_behind = ""

    def do_GET(self) -> None:
        """Hand a question on, or answer what was counted."""
        if self.path == "/counted":
            self._reply(200, json.dumps(PROMPTS).encode())
            return
        self._hand_on(None)

    def do_POST(self) -> None:
        """Note a prompt, and hand it on."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "completion" in self.path:
            PROMPTS.append({"path": self.path, "sha256": prompt_hash(json.loads(body))})
        self._hand_on(body)

    def _hand_on(self, body: bytes | None) -> None:
        kind = {"Content-Type": "application/json"}
        request = Request(self.server_behind + self.path, data=body, headers=kind)
        try:
            with urlopen(request, timeout=SENT_S) as reply:
                self._reply(reply.status, reply.read())
        except HTTPError as error:
            self._reply(error.code, error.read())

    def _reply(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def prompt_hash(request: dict[str, Any]) -> str:
    """Return the hash of a request's text, of a conversation with its roles."""
    prompt = request.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    text = prompt if isinstance(prompt, str) else json.dumps(request.get("messages") or prompt)
    return sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    Proxy.server_behind, port = sys.argv[1], int(sys.argv[2])
    ThreadingHTTPServer(("127.0.0.1", port), Proxy).serve_forever()
