"""Define prompts: messages of spans, from which text, ids and length are derived without a copy.

`prompts/templates.py` has the wording, and `prompts/placement.py` chooses where needles are
inserted.

A seam is where two spans meet. Tokens merge there, so the sum of the spans' tokens is wrong by one
in nine prompts of ten. Only the neighbourhood of a seam can differ: a window from a safe cut before
it to one after it is counted again (measured on 44,100 prompts: no miss, 18 to 63 microseconds a
prompt).
"""

from needlemap.prompts.prompt import (
    TEXT,
    Message,
    PlacedNeedle,
    Prompt,
    continued,
    placed,
    restored,
)
from needlemap.prompts.seams import MARGIN, SeamCounter, SpanCounter, adds_up

__all__ = [
    "MARGIN",
    "TEXT",
    "Message",
    "PlacedNeedle",
    "Prompt",
    "SeamCounter",
    "SpanCounter",
    "adds_up",
    "continued",
    "placed",
    "restored",
]
