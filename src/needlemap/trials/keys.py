"""A trial's key: a hash of everything that can change its answer or its score, and of nothing else.

The haystack enters by a hash of just the part that the prompt holds, so that a longer grid, which needs more
haystack, leaves the keys of shorter prompts as they are. A key has two parts: what can change the answer, and
how it is scored, so that answers can be scored anew without being asked for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from needlemap.prompts.placement import Frame
from needlemap.prompts.prompt import Prompt
from needlemap.scorers.base import FIRST_RULE, Scorer, rule_of
from needlemap.settings.grid import Cell
from needlemap.settings.settings import Settings, with_role
from needlemap.tasks.base import Item
from needlemap.text.tokens import TokenText

# By the roles that settings have where they are defined: each is in exactly one of ASKED, BUILT and FREE.
ASKED, BUILT = with_role("asked"), with_role("built", "scored")
FREE = frozenset(with_role("grid", "free"))
SCORING = with_role("scored")
_HOMES = {"openai": "api.openai.com", "anthropic": "api.anthropic.com"}
_OWN = "own server"
_LOCAL = (".local", ".internal", ".lan", ".localdomain", ".localhost")


def asked_alone(shared: str, item: Item) -> str:
    """Hash of what can change the answer to a question that is asked without a haystack."""
    reference = [item.reference.answer, list(item.reference.keywords), list(item.reference.decoys)]
    reference += filter(None, [item.reference.like, item.reference.owners])
    return _hash([shared, "closed book", item.question, reference])[:32]


def asked_whole(shared: str, prompt: Prompt, item: Item, number: int, cell: Cell) -> str:
    """Hash of what can change the answer to a prompt that exists already, and of what is right."""
    reference = [item.reference.answer, list(item.reference.keywords), list(item.reference.decoys)]
    place = [number, cell.length_tokens, cell.depth]
    return _hash([shared, prompt.sha256, prompt.answer_prefix, reference, place])[:32]


def prefix_hashes(text: TokenText, stops: Iterable[int]) -> dict[int, str]:
    """sha256 of a text's bytes up to each of the token indices: one pass over the text."""
    digest, hashes, at = hashlib.sha256(), {}, 0
    for stop in sorted(set(stops)):
        digest.update(text.span(at, stop).data)
        hashes[stop] = digest.hexdigest()
        at = stop
    return hashes


def place(backend: str, base_url: str | None) -> str:
    """Whose an address is: '' the provider's own, a host's name, or 'own server' for any of one's own.

    The same model on another port or node is the same model; at another provider it may be another one.

    >>> place("openai", "http://127.0.0.1:8000/v1") == place("openai", "http://node7:30000/v1")
    True
    >>> place("openai", "https://openrouter.ai/api/v1"), place("openai", "https://api.openai.com/v1")
    ('openrouter.ai', '')
    """
    host = (urlsplit(base_url).hostname or "").rstrip(".") if base_url else ""
    if not host or host == _HOMES.get(backend):
        return ""
    return _OWN if _is_own(host) else host


def settings_hash(settings: Settings, tokenizer: str, weights: str) -> str:
    """Hash of what all trials of a run share, but the scorer."""
    shared = {name: getattr(settings, name) for name in ASKED}
    shared["base_url"] = place(settings.backend, settings.base_url)
    return _hash([shared, tokenizer, weights])


def run_hash(settings: Settings) -> str:
    """Hash of what makes a run this one and no other, however it is scored and whatever its grid. Settings as
    they are by default do not enter, so that a version that has more of them reads its runs as before."""
    named = settings.model_dump(mode="json", exclude_defaults=True, exclude={*FREE, *SCORING})
    return _hash({**named, "base_url": place(settings.backend, settings.base_url)})[:16]


def scored_key(asked: str, scorer: Scorer) -> str:
    """The key of an answer (its `asked`) by a scorer and its rule."""
    numbered = [rule_of(scorer)] if rule_of(scorer) != FIRST_RULE else []  # keys of before had no number
    return _hash([asked, scorer.name, dict(scorer.options), *numbered])[:32]


def asked_hash(
    shared: str,
    haystack: str,
    frame: Frame,
    item: Item,
    prompt: Prompt,
    repeat: int,
    asked: tuple[int, float],
) -> str:
    """Hash of what can change one trial's answer, and of what is right. asked: its length and depth."""
    texts = [[message.role, message.content] for message in frame.messages]
    around = [b"".join([span.data for span in spans]).decode() for spans in (frame.before, frame.after)]
    needles = [[needle.text, needle.depth] for needle in item.needles]
    wanted = item.reference
    known = filter(None, [wanted.decoys, wanted.like, wanted.owners])
    reference = [wanted.answer, list(wanted.keywords), *known]
    place = [prompt.positions, prompt.haystack_tokens, prompt.pad]
    return _hash([shared, haystack, texts, around, needles, reference, place, repeat, asked])[:32]


def _is_own(host: str) -> bool:
    """Whether a host is on this machine or in a network of one's own."""
    try:
        address = ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(_LOCAL)
    return address.is_private or address.is_loopback or address.is_link_local


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
