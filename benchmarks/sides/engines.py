"""A fake inference engine: a prefix cache, replicas, requests in flight, counters; and a reader.

It finds every fact unless its reader is weak or its fault strikes. A fault (`broken.py`) and a
weakness (`sound.py`) look at what the engine knows of a request (`Seen`) and change the reply.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from random import Random
from typing import Any, Literal

LEAST_HIT = 64  # tokens of a prompt that are no hit: what all prompts begin with
# What a prefix cache keeps: nothing, tokens, whole blocks, or the last prompt alone.
Cache = Literal["none", "tokens", "16", "64", "last"]
Counters = Literal["openai", "uncached", "none", "exclusive", "template", "scaled"]


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact of a prompt. start: tokens before it."""

    value: str
    start: int


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One prompt as a server sees it. name: equal prompts have equal names. asked: the fact that
    the question is about. begin: its first tokens, or what tells them apart. source: what `Share`
    compares. text: all of it."""

    name: str
    tokens: int
    facts: tuple[Fact, ...]
    asked: Fact
    begin: str
    source: Any
    text: Callable[[], str]
    room: int = 1  # times the usual budget of an answer


Share = Callable[[Request, Request], int]  # tokens that two prompts of one beginning share


@dataclass(frozen=True, slots=True)
class Reply:
    """What comes back. error: 'too long', 'server' or 'late' where nothing does."""

    text: str
    finish: str = "stop"
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What an engine knows of a request. hit: tokens of it that the replica's cache holds. longer:
    whether they come from a longer prompt. flying: requests that are answered at the same time.
    count: of requests, this one included. before: the request before, None for the first. times:
    how often the very prompt was asked before. batched: whether what the cache holds was computed
    beside others."""

    request: Request
    hit: int
    longer: bool
    flying: Sequence[Request]
    count: int
    replica: int
    before: Request | None
    times: int
    batched: bool = False

    @property
    def state(self) -> str:
        """How it is computed: an honest kernel's rounding depends on it."""
        return f"{'warm' if self.hit else 'cold'}{' loaded' if self.flying else ''}"


@dataclass(frozen=True, slots=True)
class Machine:
    """How a server is built. replicas: of them `routed` by turn or by a prompt's beginning."""

    cache: Cache = "tokens"
    replicas: int = 1
    routed: Literal["turn", "head"] = "head"
    counters: Counters = "openai"
    framing: int = 0
    style: Literal["bare", "sentence", "quote"] = "sentence"

    @classmethod
    def drawn(cls, random: Random) -> Machine:
        """Any server; most cache prefixes."""
        return cls(
            random.choice(("tokens", "tokens", "16", "64", "last")),
            random.choice((1, 1, 1, 2, 4)),
            "head",
            random.choice(("openai", "openai", "openai", "uncached", "template")),
            random.randrange(12),
            random.choice(("bare", "sentence", "quote")),
        )


Change = Callable[[Seen, Reply, "Engine"], Reply]


@dataclass
class Engine:
    """A server. changes: what its reader and its fault do to a right reply, in turn."""

    share: Share
    machine: Machine
    changes: Sequence[Change]
    random: Random
    count: int = 0
    computed: int = 0  # tokens that no cache held
    changed: int = 0  # replies that are not what a right server says
    before: Request | None = None
    values: list[str] = field(default_factory=list)  # of requests before
    held: dict[tuple[int, str], list[Request]] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    replies: dict[str, list[tuple[Request, str]]] = field(default_factory=dict)  # a reply cache's
    batched: set[tuple[int, str]] = field(default_factory=set)  # prompts computed beside others

    def answer(self, request: Request, flying: Sequence[Request] = ()) -> Reply:
        """What it says; then it holds the prompt."""
        machine = self.machine
        self.count += 1
        turn = self.count if machine.routed == "turn" else int(chance(request.begin) * 2**20)
        replica = turn % machine.replicas
        hit, source = self._hit(request, replica)
        longer = source is not None and source.tokens > request.tokens
        batched = source is not None and (replica, source.name) in self.batched
        self.computed += request.tokens - hit
        times = self.times.get(request.name, 0)
        seen = Seen(request, hit, longer, flying, self.count, replica, self.before, times, batched)
        reply = Reply(worded_answer(machine.style, request.asked.value))
        right = reply
        for change in self.changes:
            reply = change(seen, reply, self)
        self.changed += (reply.text, reply.error) != (right.text, right.error)
        self._hold(request, replica)
        if flying and not hit:
            self.batched.add((replica, request.name))
        if not times:
            self.values.append(request.asked.value)
        self.times[request.name] = times + 1
        self.before = request
        return counted(machine, request, hit, reply)

    def _hold(self, request: Request, replica: int) -> None:
        """Keep a prompt; with one place only, instead of the one before."""
        if self.machine.cache == "last":
            for key in [key for key in self.held if key[0] == replica]:
                del self.held[key]
        held = self.held.setdefault((replica, request.begin), [])
        if all(each.name != request.name for each in held):
            held.append(request)

    def _hit(self, request: Request, replica: int) -> tuple[int, Request | None]:
        """Tokens of the prompt that the cache holds, all but the last at most; and the prompt that
        they come from."""
        held = self.held.get((replica, request.begin), [])
        if self.machine.cache == "none" or not held:
            return 0, None
        shared, source = max(
            ((self.share(request, each), each) for each in held), key=lambda row: row[0]
        )
        block = int(self.machine.cache) if self.machine.cache in ("16", "64") else 1
        most = min(shared, request.tokens - 1)
        hit = most - most % block
        return (hit, source) if hit >= LEAST_HIT else (0, source)


def worded_answer(style: str, value: str) -> str:
    """A value in the words of an answer."""
    return {
        "bare": value,
        "sentence": f"It is {value}.",
        "quote": f'The text says: "... is {value}." So the answer is {value}.',
    }[style]


def counted(machine: Machine, request: Request, hit: int, reply: Reply) -> Reply:
    """A reply with its counters, as its server's habit is; those that a fault wrote stay."""
    if reply.error or machine.counters == "none":
        return reply
    tokens = request.tokens if reply.prompt_tokens is None else reply.prompt_tokens
    if machine.counters == "template":
        tokens += machine.framing
    if machine.counters == "scaled":  # another vocabulary's
        tokens = round(0.9 * tokens) + machine.framing
    if machine.counters == "exclusive":  # cached tokens are counted elsewhere
        tokens -= hit
    cached = hit if machine.counters in ("openai", "template") else None
    return replace(reply, prompt_tokens=tokens, cached_tokens=cached)


def chance(*parts: object) -> float:
    """A number in [0, 1) that is the same for the same parts."""
    digest = blake2b("\0".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def mangled(value: str, random: Random) -> str:
    """Another value of the same form."""
    kinds = (string.digits, string.ascii_lowercase, string.ascii_uppercase)
    found = [next((kind for kind in kinds if mark in kind), mark) for mark in value]
    while True:
        other = "".join(random.choice(kind) for kind in found)
        if other != value:
            return other
