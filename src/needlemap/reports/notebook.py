"""What a notebook shows of a chart: by the renderer that Altair was told to use, with words beside it."""

from __future__ import annotations

from typing import Any


def with_text(chart: Any, text: str, include: object = None, exclude: object = None) -> Any:
    """A chart's bundle of representations (and its metadata, if any) with a text for plain consoles."""
    shown = chart._repr_mimebundle_(include, exclude)
    bundle, *metadata = shown if isinstance(shown, tuple) else (shown or {},)
    whole = {**bundle, "text/plain": text}
    return (whole, *metadata) if metadata else whole
