"""HTTP/1.1 requests and responses as bytes, those that are wrong included."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    429: "Too Many Requests",
}


@dataclass
class Request:
    """One HTTP request."""

    method: str
    path: str
    headers: dict[str, str]
    data: bytes

    @property
    def key(self) -> str:
        """The API key that came with it."""
        return self.headers.get("x-api-key") or self.headers.get("authorization", "").removeprefix(
            "Bearer "
        )


@dataclass
class Response:
    """One HTTP response. cut: send half of the body and hang up; reset: break the connection
    instead.

    wrong: bytes by which its content-length is wrong. down_s: for so long nobody can connect from
    now on.
    """

    status: int
    data: bytes
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    reset: bool = False
    wrong: int = 0
    down_s: float = 0.0

    @property
    def bytes(self) -> bytes:
        """As sent."""
        lines = [
            f"HTTP/1.1 {self.status} {REASONS.get(self.status, 'Error')}",
            *([] if "content-type" in self.headers else ["content-type: application/json"]),
        ]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        head = "\r\n".join(
            [*lines, f"content-length: {len(self.data) + self.wrong}", "", ""]
        ).encode()
        return head + (self.data[: len(self.data) // 2] if self.cut else self.data)


def as_json(
    value: Any, status: int = 200, headers: dict[str, str] | None = None, **how: bool
) -> Response:
    """A response that holds a value; text stays as it is."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Response(status, text.encode(), headers or {}, **how)


def head(data: bytes) -> Request:
    """A request's first lines."""
    first, *lines = data.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.split(":", 1) for line in lines)
    return Request(
        method, path, {name.strip().lower(): value.strip() for name, value in pairs}, b""
    )
