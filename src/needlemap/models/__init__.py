"""Back ends: the class that they derive from, and those that come with needlemap."""

from needlemap.models.model import (
    LANE,
    MARK,
    MOST_ROWS,
    Answer,
    Decoding,
    Forced,
    Logprobs,
    LogprobSource,
    Model,
    Render,
    Row,
    Traits,
    backend_or_default,
    clean_logprobs,
    find_backend,
)

__all__ = [
    "LANE",
    "MARK",
    "MOST_ROWS",
    "Answer",
    "Decoding",
    "Forced",
    "LogprobSource",
    "Logprobs",
    "Model",
    "Render",
    "Row",
    "Traits",
    "backend_or_default",
    "clean_logprobs",
    "find_backend",
]
