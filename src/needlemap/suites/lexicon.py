"""Read the words of this wing's tasks. They are in `data/*.yaml`, by language, and are ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from needlemap.tasks import Language, values


def lexicon(name: str, language: Language) -> Mapping[str, Any]:
    """Return a language's part of `data/NAME.yaml`."""
    return values.lexicon(name, language, package="needlemap.suites")
