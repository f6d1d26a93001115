"""What a report says of a published set that does not tell where its answers stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from needlemap.runs.record import Record


def placeless_lines(about: Mapping[str, Any], records: Iterable[Record]) -> list[str]:
    """One line where all prompts of a set stand at depth 0, as `wholes.py` places those of unknown depth."""
    if about["settings"].get("task") != "published" or {record.depth for record in records} != {0.0}:
        return []
    return ["depth is unknown: the set does not tell where answers stand, so all its prompts are at depth 0"]
