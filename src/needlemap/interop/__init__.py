"""Other tools: their prompts, scores and files, byte for byte, and their results as runs."""

from needlemap.interop.result_row import (
    FACTS,
    SCORERS,
    UNIT,
    Fields,
    ResultRow,
    context_title,
    native_mean,
    parse_json,
    parsed_scale,
    scale_of,
)

__all__ = [
    "FACTS",
    "SCORERS",
    "UNIT",
    "Fields",
    "ResultRow",
    "context_title",
    "native_mean",
    "parse_json",
    "parsed_scale",
    "scale_of",
]
