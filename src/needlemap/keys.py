"""Keys belong into the environment: a setting that holds one would be kept in run.json, and be shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from needlemap.errors import SettingsError
from needlemap.models.faults import hidden
from needlemap.settings import Settings

_NAMES = re.compile(
    r"(?i)(^|[_-])(api[_-]?key|secret|password|passwd|authorization|access[_-]?token|bearer)$"
)
_MAPPINGS = ("request", "model_options", "scorer_options", "task_options")


def refuse_keys(settings: Settings) -> None:
    """Raises SettingsError for the first setting that holds a key."""
    for name in _MAPPINGS:
        for part in _named_keys(getattr(settings, name)):
            raise SettingsError(
                f"Setting '{name}' holds a key ({part}), which run.json would keep. Keys are read from the "
                f"environment only. Type: export OPENAI_API_KEY=YOUR-KEY (another variable: --model-options "
                f"key_env=NAME)"
            )


def _named_keys(value: Any, name: str = "") -> Iterator[str]:
    """The names under which a value, or what is inside it, is a key."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _named_keys(part, str(key))
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _named_keys(part, name)
    elif isinstance(value, str) and value and (_NAMES.search(name) or hidden(value) != value):
        yield name
