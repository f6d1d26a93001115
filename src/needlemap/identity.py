"""A trial's key: a hash of everything that can change its answer or its score, and of nothing else.

The haystack enters by a hash of just the part that the prompt holds, so that a longer grid, which needs more
haystack, leaves the keys of shorter prompts as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from needlemap.placement import Frame
from needlemap.prompts import Prompt
from needlemap.settings import Settings
from needlemap.tasks.base import Item
from needlemap.tokens import TokenText

# Settings that say who is asked and how; texts and positions enter through the prompt itself.
ASKED = (
    "model",
    "base_url",
    "model_options",
    "max_answer_tokens",
    "temperature",
    "request",
    "mode",
    "seed",
    "task",
)


def prefix_hashes(text: TokenText, stops: Iterable[int]) -> dict[int, str]:
    """sha256 of a text's bytes up to each of the token indices: one pass over the text."""
    digest, hashes, at = hashlib.sha256(), {}, 0
    for stop in sorted(set(stops)):
        digest.update(text.span(at, stop).data)
        hashes[stop] = digest.hexdigest()
        at = stop
    return hashes


def settings_hash(
    settings: Settings, scorer: str, scorer_options: dict[str, Any], tokenizer: str, weights: str
) -> str:
    """Hash of what all trials of a run share."""
    shared = {name: getattr(settings, name) for name in ASKED}
    return _hash([shared, scorer, scorer_options, tokenizer, weights])


def trial_key(
    shared: str,
    haystack: str,
    frame: Frame,
    item: Item,
    prompt: Prompt,
    repeat: int,
    asked: tuple[int, float],
) -> str:
    """The key of one trial. asked: its length in tokens and its depth."""
    texts = [[message.role, message.content] for message in frame.messages]
    around = [b"".join([span.data for span in spans]).decode() for spans in (frame.before, frame.after)]
    needles = [[needle.text, needle.depth] for needle in item.needles]
    reference = [item.reference.answer, list(item.reference.keywords)]
    place = [prompt.positions, prompt.haystack_tokens, prompt.pad]
    return _hash([shared, haystack, texts, around, needles, reference, place, repeat, asked])[:32]


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
