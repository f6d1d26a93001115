"""The settings that `run`, `plan` and `prompts` are called with: the same arguments mean the same trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from needlemap.configure import configure
from needlemap.identity import FREE
from needlemap.settings import Settings

DEFAULT = "demo"


def settle(preset: str | None, flags: Mapping[str, Any]) -> Settings:
    """Settings from a preset and flags. With neither a preset nor a flag that changes answers: the demo."""
    return configure(preset or (DEFAULT if set(flags) <= FREE else None), flags)
