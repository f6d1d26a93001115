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


def event_of(event: Any) -> str:
    """An event of a stream: an object, a word such as [DONE], or a comment as it stands."""
    if isinstance(event, str) and event.startswith(":"):
        return event
    return f"data: {event if isinstance(event, str) else json.dumps(event)}"


def fault_of(row: dict[str, Any]) -> str:
    """What has the wire server send a row's reply."""
    if "stream" in row:
        text = "".join(f"{event_of(event)}\n\n" for event in row["stream"])
    else:
        text = row["body"] if isinstance(row["body"], str) else json.dumps(row["body"])
    reply = {"status": row.get("status", 200), "headers": row.get("headers", {}), "body": text}
    return f"reply:{json.dumps(reply)}"
