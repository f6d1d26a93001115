"""A table of texts, each once: columns hold places in it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

_JSON = json.JSONEncoder(ensure_ascii=False, default=str)


class Strings:
    """Texts in the order in which they were first asked for."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def __call__(self, text: str | None) -> int | None:
        """The place of a text; None for none."""
        return None if text is None else self._places.setdefault(text, len(self._places))

    def all(self, texts: Sequence[str]) -> list[int] | None:
        """The places of several texts; None where there are none."""
        return [self._places.setdefault(text, len(self._places)) for text in texts] or None

    def json(self, value: Mapping[str, object]) -> int | None:
        """The place of a mapping's JSON text; None for an empty one."""
        return self(_JSON.encode(value)) if value else None

    @property
    def table(self) -> list[str]:
        """All texts."""
        return list(self._places)
