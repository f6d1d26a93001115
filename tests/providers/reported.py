"""The rows of replies.yaml, and each as the wire server is told to send it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

ROWS: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "replies.yaml").read_text("utf-8")
)


def row_named(name: str) -> dict[str, Any]:
    """The row of that name."""
    (row,) = (row for row in ROWS if row["name"] == name)
    return row


def fault_of(row: dict[str, Any]) -> str:
    """What has the wire server send a row's reply."""
    body = row["body"]
    text = body if isinstance(body, str) else json.dumps(body)
    reply = {"status": row.get("status", 200), "headers": row.get("headers", {}), "body": text}
    return f"reply:{json.dumps(reply)}"
