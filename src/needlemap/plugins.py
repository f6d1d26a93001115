"""Everything that an extension imports: a model, task, scorer, haystack, tokenizer or probe.

An extension needs this module alone. The modules that define its names may change; these names
stay.
"""

from __future__ import annotations

from typing import Any as _Any

from needlemap.errors import Failure, HaystackError, SettingsError, Unmeasured, VocabularyMissing
from needlemap.grid import Cell
from needlemap.haystacks import Document, Source
from needlemap.models import Answer, Decoding, Forced, Logprobs, Model, Traits
from needlemap.prompts import Prompt
from needlemap.registry import Checked
from needlemap.registry import find as _find
from needlemap.registry import installed as _installed
from needlemap.scorers import Score, Scorer
from needlemap.tasks import Background, Draw, Item, Needle, ReadyPrompt, Reference, Task
from needlemap.text.tokens import Tokenizer, TokenText


def __getattr__(name: str) -> _Any:
    """Return a wing's base class of extensions, by an entry point of group `needlemap.plugins`."""
    if name in _installed("plugins"):
        return _find("plugins", name)
    raise AttributeError(f"module 'needlemap.plugins' has no attribute '{name}'")


__all__ = [
    "Answer",
    "Background",
    "Cell",
    "Checked",
    "Decoding",
    "Document",
    "Draw",
    "Failure",
    "Forced",
    "HaystackError",
    "Item",
    "Logprobs",
    "Model",
    "Needle",
    "Prompt",
    "ReadyPrompt",
    "Reference",
    "Score",
    "Scorer",
    "SettingsError",
    "Source",
    "Task",
    "TokenText",
    "Tokenizer",
    "Traits",
    "Unmeasured",
    "VocabularyMissing",
]


def __dir__() -> list[str]:
    """Return the public names, with those of wings."""
    return sorted({*__all__, *_installed("plugins")})
