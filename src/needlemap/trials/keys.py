"""A trial's key: a hash of everything that can change its answer or its score, and of nothing else.

A key has two parts: what the model is asked, which can change the answer, and what is right and how it is
scored, so that answers can be scored anew without being asked for. Of the text only the prompt enters, so
that a longer grid, which needs more haystack, leaves the keys of shorter prompts as they are.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from needlemap.prompts.prompt import Prompt
from needlemap.scorers import Scorer, rule_of
from needlemap.settings.settings import Settings, with_role
from needlemap.tasks import Reference

# By the roles that settings have where they are defined: each is in exactly one of ASKED, BUILT and FREE.
ASKED, BUILT = with_role("asked"), with_role("built", "scored")
FREE = frozenset(with_role("grid", "free"))
SCORING = with_role("scored")
_HOMES = {"openai": "api.openai.com", "anthropic": "api.anthropic.com"}
_OWN = "own server"
_LOCAL = (".local", ".internal", ".lan", ".localdomain", ".localhost")


@dataclass(frozen=True, slots=True)
class Keys:
    """Makes the keys of a run's trials.

    shared: hash of what all of them share, but the scorer. ids: whether the model is fed ids that say more
    than the prompt's bytes. drawn: whether answers are drawn at random, so that each repeat has its own.
    """

    shared: str
    scorer: Scorer
    ids: bool = False
    drawn: bool = False

    def asked(self, prompt: Prompt, length_tokens: int, repeat: int, second: bool = False) -> str:
        """Hash of what the model is asked, all that can change its answer. second: for the second time."""
        said = [prompt.sha256, prompt.answer_prefix, prompt.ids_sha256 if self.ids else ""]
        draw = [length_tokens, repeat if self.drawn else None, second]
        return _hash([self.shared, *said, *draw])[:32]

    def asked_alone(self, question: str) -> str:
        """That of a question without a haystack."""
        return _hash([self.shared, "closed book", question])[:32]

    def key(self, asked: str, reference: Reference) -> str:
        """The key of an answer (its `asked`) by what is right, the scorer and its rule."""
        scorer = self.scorer
        by = [scorer.name, dict(scorer.options), rule_of(scorer)]
        return _hash([asked, reference.digest(), *by])[:32]


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
