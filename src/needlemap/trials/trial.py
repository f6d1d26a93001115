"""A trial, one prompt to ask, and its key: a hash of all that can change its answer or score,
and no more.

A key has two parts: what the model is asked, which can change the answer, and what is right
and how it is scored, so that answers can be scored anew without being asked for. Of the text
only the prompt enters, so that a longer grid, which needs more haystack, leaves the keys of
shorter prompts as they are.
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

_OWN = "own server"
_LOCAL = (".local", ".internal", ".lan", ".localdomain", ".localhost")


@dataclass(frozen=True, slots=True)
class Keys:
    """Makes the keys of a run's trials.

    shared: hash of what all of them share, but the scorer. ids: whether the model is fed ids
    that say more than the prompt's bytes. drawn: whether answers are drawn at random, so that
    each repeat has its own. stops: texts that end an answer, by the prompts' template.
    """

    shared: str
    scorer: Scorer
    ids: bool = False
    drawn: bool = False
    stops: tuple[str, ...] = ()

    def asked_hash(
        self, prompt: Prompt, length_tokens: int, repeat: int, second: bool = False
    ) -> str:
        """Hash of what the model is asked, all that can change its answer. second: for the
        second time."""
        said = [prompt.sha256, prompt.answer_prefix, prompt.ids_sha256 if self.ids else ""]
        draw = [length_tokens, repeat if self.drawn else None, second]
        return _hash([self.shared, *said, *draw, *self._stopping])[:32]

    @property
    def _stopping(self) -> list[tuple[str, ...]]:
        """What ends an answer, where the model writes it and something does."""
        return [self.stops] if self.stops and not self.scorer.passes else []

    def beside_hash(self, prompt: Prompt, answer: str) -> str:
        """Hash of a given answer behind another of an item's prompts: items that share it ask
        once."""
        return _hash([self.shared, prompt.sha256, prompt.answer_prefix, prompt.ids_sha256, answer])

    def asked_alone(self, question: str) -> str:
        """That of a question without a haystack."""
        return _hash([self.shared, "closed book", question, *self._stopping])[:32]

    def key(self, asked: str, reference: Reference, beside: Iterable[str] = ()) -> str:
        """The key of an answer (its `asked`) by what is right, the scorer and its rule.
        beside: what else was asked to score it."""
        scorer = self.scorer
        by = [scorer.name, dict(scorer.options), rule_of(scorer), *beside]
        return _hash([asked, reference.digest(), *by])[:32]


@dataclass(frozen=True, slots=True)
class Trial:
    """One prompt to ask, for one cell and repeat or several that come to it. key: its identity;
    asked: that of its answer, however it is scored. cell, repeat: the first that it stands for;
    also: the others. collisions: texts that the haystack already held before the needle was hidden.
    haystack_repeated: whether documents come more than once in it. second: whether it is asked a
    second time. shared_tokens:
    what the prompt has in common with the one before it in its lane; None where the run's mode
    shares
    nothing. beside: requests with the item's other prompts that its scorer reads. role: which of
    them `prompt` is."""

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
        """A trial with its key. beside: the item's other prompts that the scorer reads."""
        prompt = replace(prompt, stops=keys.stops) if keys.stops else prompt
        asked, answer = keys.asked_hash(prompt, cell.length_tokens, repeat), item.reference.answer
        others = [
            (keys.beside_hash(each, answer), role, each) for role, each in (beside or {}).items()
        ]
        key = keys.key(asked, item.reference, (other[0] for other in others))
        made = cls(key, asked, cell, repeat, item, prompt)
        requests = (replace(made, asked=at, prompt=each, role=role) for at, role, each in others)
        return replace(made, beside=tuple(requests))

    @property
    def places(self) -> tuple[tuple[int, Cell], ...]:
        """All repeats and cells that it stands for."""
        return (self.repeat, self.cell), *self.also

    def once_more(self, keys: Keys) -> Trial:
        """The same prompt, asked a second time."""
        asked = keys.asked_hash(self.prompt, self.cell.length_tokens, self.repeat, second=True)
        key = keys.key(asked, self.item.reference, (each.asked for each in self.beside))
        return replace(self, asked=asked, key=key, second=True)


def requests(trials: Iterable[Trial]) -> list[Trial]:
    """Every request that trials take: themselves, and each other prompt of their items
    once."""
    trials = list(trials)
    beside = {each.asked: each for trial in trials for each in trial.beside}
    return [*trials, *beside.values()]


def share_prompts(trials: Iterable[Trial]) -> list[Trial]:
    """One trial for all cells and repeats that come to the same prompt, in the place of the
    first."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.key, []).append(trial)
    return [
        replace(first, also=tuple((each.repeat, each.cell) for each in others)) if others else first
        for first, *others in groups.values()
    ]


def ask_twice(trials: Sequence[Trial], count: int, keys: Keys) -> list[Trial]:
    """So many of the trials for a second time, chosen by their hashes: more of them hold the
    fewer."""
    return [
        trial.once_more(keys) for trial in sorted(trials, key=lambda trial: trial.asked)[:count]
    ]


def provider_host(backend: str, base_url: str | None) -> str:
    """The host that answers: '' at the provider's own address, a host's name, or 'own server'
    for an address of this machine or network.

    The same model on another port or node is the same model; at another provider it may be
    another one.

    >>> hosts = ("127.0.0.1:8000", "node7:30000")
    >>> len({provider_host("openai", f"http://{host}/v1") for host in hosts}) == 1
    True
    >>> [provider_host("openai", f"https://{host}") for host in ("openrouter.ai", "api.openai.com")]
    ['openrouter.ai', '']
    """
    host = (urlsplit(base_url).hostname or "").rstrip(".") if base_url else ""
    if not host or host == backend_or_default(backend).host:
        return ""
    return _OWN if is_own_host(host) else host


def settings_hash(settings: Settings, tokenizer: str, weights: str) -> str:
    """Hash of what all trials of a run share, but the scorer."""
    shared = {name: getattr(settings, name) for name in with_role("asked")}
    shared["base_url"] = provider_host(settings.backend, settings.base_url)
    return _hash([shared, tokenizer, weights])


def run_hash(settings: Settings) -> str:
    """Hash of what makes a run this one and no other, however it is scored and whatever its grid.
    Settings as they are by default do not enter, so that a version that has more of them reads its
    runs as
    before."""
    named = settings.model_dump(
        mode="json", exclude_defaults=True, exclude={*with_role("grid", "free", "scored")}
    )
    return _hash({**named, "base_url": provider_host(settings.backend, settings.base_url)})[:16]


def is_own_host(host: str) -> bool:
    """Whether a host is on this machine or in a network of one's own."""
    try:
        address = ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(_LOCAL)
    return address.is_private or address.is_loopback or address.is_link_local


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
