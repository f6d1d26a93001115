"""Define a trial, which is one prompt to ask, and its key.

A key is a hash of everything that can change the answer or its score, and of nothing else. It has
two parts: what the model is asked, which can change the answer; and what is right and how it is
scored. So answers can be scored again without a request. Of the text only the prompt is hashed:
a longer grid needs more haystack, and leaves the keys of shorter prompts as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from needlemap.grid import Cell
from needlemap.models import backend_or_default
from needlemap.prompts import Prompt
from needlemap.scorers import Pass, Scorer, rule_of
from needlemap.settings import Settings, with_role
from needlemap.tasks import Item, Reference

_OWN_SERVER = "own server"
_LOCAL = (".local", ".internal", ".lan", ".localdomain", ".localhost")
# Hexadecimal digits of a key.
_KEY_DIGITS = 32


@dataclass(frozen=True, slots=True)
class Keys:
    """Makes the keys of a run's trials.

    Attributes:
        shared: Hash of what all of them share, except the scorer.
        scorer: The scorer.
        ids: Whether the model is fed ids that say more than the prompt's bytes.
        drawn: Whether answers are drawn at random, so that each repeat has its own.
        stops: Texts that end an answer, by the template of the prompts.
    """

    shared: str
    scorer: Scorer
    ids: bool = False
    drawn: bool = False
    stops: tuple[str, ...] = ()

    def asked_hash(
        self, prompt: Prompt, length_tokens: int, repeat: int, second: bool = False
    ) -> str:
        """Return the hash of what the model is asked: everything that can change its answer.

        second: for the second answer to the same prompt.
        """
        parts = [
            self.shared,
            prompt.sha256,
            prompt.answer_prefix,
            prompt.ids_sha256 if self.ids else "",
            length_tokens,
            repeat if self.drawn else None,
            second,
            *self._stopping,
        ]
        return _hash(parts)[:_KEY_DIGITS]

    @property
    def _stopping(self) -> list[tuple[str, ...]]:
        """Return the texts that end an answer, if there are any and the model writes it."""
        if not self.stops or self.scorer.passes:
            return []
        return [self.stops]

    def beside_hash(self, prompt: Prompt, answer: str) -> str:
        """Return the hash of a given answer after another of an item's prompts.

        Items that share it are asked once.
        """
        return _hash([self.shared, prompt.sha256, prompt.answer_prefix, prompt.ids_sha256, answer])

    def asked_alone(self, question: str) -> str:
        """Return the hash of a question without a haystack."""
        return _hash([self.shared, "closed book", question, *self._stopping])[:_KEY_DIGITS]

    def key(self, asked: str, reference: Reference, beside: Iterable[str] = ()) -> str:
        """Return the key of a scored answer.

        asked: the hash of what the model is asked. reference: what is right. beside: hashes of what
        else is asked to score it.
        """
        scorer = self.scorer
        parts = [
            asked,
            reference.digest(),
            scorer.name,
            dict(scorer.options),
            rule_of(scorer),
            *beside,
        ]
        return _hash(parts)[:_KEY_DIGITS]


@dataclass(frozen=True, slots=True)
class Trial:
    """One prompt to ask, for one cell and repeat, or for several that have the same prompt.

    Attributes:
        key: Its identity.
        asked: The identity of its answer, however that is scored.
        cell: The first cell that it stands for.
        repeat: The repeat of that cell.
        item: What is hidden, asked and right.
        prompt: The prompt.
        collisions: Texts that the haystack held already, before the needle was hidden.
        haystack_repeated: Whether documents occur more than once in its haystack.
        also: The repeats and cells that it stands for in addition.
        second: Whether the prompt is asked for the second time.
        shared_tokens: Tokens that the prompt has in common with the one before it in its lane;
            None if the run's mode shares nothing.
        beside: Requests with the item's other prompts that its scorer reads.
        role: Which of the item's prompts `prompt` is.
    """

    key: str
    asked: str
    cell: Cell
    repeat: int
    item: Item
    prompt: Prompt
    collisions: tuple[str, ...] = ()
    haystack_repeated: bool = False
    also: tuple[tuple[int, Cell], ...] = ()
    second: bool = False
    shared_tokens: int | None = None
    beside: tuple[Trial, ...] = ()
    role: Pass = "whole"

    @classmethod
    def of(
        cls,
        keys: Keys,
        cell: Cell,
        repeat: int,
        item: Item,
        prompt: Prompt,
        beside: Mapping[Pass, Prompt] | None = None,
    ) -> Trial:
        """Make a trial with its key.

        beside: the item's other prompts that the scorer reads.
        """
        if keys.stops:
            prompt = replace(prompt, stops=keys.stops)
        asked = keys.asked_hash(prompt, cell.length_tokens, repeat=repeat)
        hashes = {
            role: keys.beside_hash(other, item.reference.answer)
            for role, other in (beside or {}).items()
        }
        trial = cls(
            key=keys.key(asked, item.reference, beside=hashes.values()),
            asked=asked,
            cell=cell,
            repeat=repeat,
            item=item,
            prompt=prompt,
        )
        others = [
            replace(trial, asked=hashes[role], prompt=other, role=role)
            for role, other in (beside or {}).items()
        ]
        return replace(trial, beside=tuple(others))

    @property
    def places(self) -> tuple[tuple[int, Cell], ...]:
        """Return all repeats and cells that it stands for."""
        return (self.repeat, self.cell), *self.also

    def once_more(self, keys: Keys) -> Trial:
        """Return a trial that asks the same prompt for the second time."""
        asked = keys.asked_hash(
            self.prompt, self.cell.length_tokens, repeat=self.repeat, second=True
        )
        hashes = [trial.asked for trial in self.beside]
        key = keys.key(asked, self.item.reference, beside=hashes)
        return replace(self, asked=asked, key=key, second=True)


def requests(trials: Iterable[Trial]) -> list[Trial]:
    """Return every request that trials need: themselves, and once each other prompt of theirs."""
    trials = list(trials)
    beside = {other.asked: other for trial in trials for other in trial.beside}
    return [*trials, *beside.values()]


def share_prompts(trials: Iterable[Trial]) -> list[Trial]:
    """Return one trial for all cells and repeats with the same prompt, in the first one's place."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.key, []).append(trial)

    shared = []
    for first, *others in groups.values():
        if others:
            first = replace(first, also=tuple((other.repeat, other.cell) for other in others))
        shared.append(first)
    return shared


def ask_twice(trials: Sequence[Trial], count: int, keys: Keys) -> list[Trial]:
    """Return `count` of the trials for a second time.

    Their hashes choose them, so a higher count has all trials of a lower one.
    """
    by_hash = sorted(trials, key=lambda trial: trial.asked)
    return [trial.once_more(keys) for trial in by_hash[:count]]


def provider_host(backend: str, base_url: str | None) -> str:
    """Return the name of the host that answers.

    It is '' for the provider's own address, and 'own server' for an address of this machine or
    network: the same model on another port or node is the same model. At another provider it may
    be a different one.

    >>> hosts = ("127.0.0.1:8000", "node7:30000")
    >>> len({provider_host("openai", f"http://{host}/v1") for host in hosts}) == 1
    True
    >>> [provider_host("openai", f"https://{host}") for host in ("openrouter.ai", "api.openai.com")]
    ['openrouter.ai', '']
    """
    host = ""
    if base_url:
        host = (urlsplit(base_url).hostname or "").rstrip(".")
    if not host or host == backend_or_default(backend).host:
        return ""
    return _OWN_SERVER if is_own_host(host) else host


def settings_hash(settings: Settings, tokenizer: str, weights: str) -> str:
    """Return the hash of what all trials of a run share, except the scorer."""
    shared = {name: getattr(settings, name) for name in with_role("asked")}
    shared["base_url"] = provider_host(settings.backend, settings.base_url)
    return _hash([shared, tokenizer, weights])


def run_hash(settings: Settings) -> str:
    """Return the hash of what makes a run this one, however it is scored and whatever its grid.

    Settings at their defaults are left out, so that a version with more settings still reads the
    runs of older ones.
    """
    named = settings.model_dump(
        mode="json", exclude_defaults=True, exclude={*with_role("grid", "free", "scored")}
    )
    return _hash({**named, "base_url": provider_host(settings.backend, settings.base_url)})[:16]


def is_own_host(host: str) -> bool:
    """Return True if a host is on this machine or in a private network."""
    try:
        address = ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(_LOCAL)
    return address.is_private or address.is_loopback or address.is_link_local


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
