"""Faults of servers, drawn at random: kind, rate, the size at which they begin, all their numbers.

Each kind says when it strikes, what comes back then, and which probes name it. Its strength is the
share of answers that are lost where it is worst: in one way of asking, at one place, at one size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from sides.engines import Engine, Machine, Reply, Seen, chance, mangled

Sizes = tuple[int, int, int]
HOW = ("digits", "digits", "digits", "empty", "endless", "garbage")
NEEDLE, QUESTION = 24, 40  # tokens
BLOCK = 64  # tokens of a cache's largest block
MANY = ("tokens", "16", "64")  # caches that hold more than one prompt
IN_A_ROW = 16  # places of a fact that a check asks for at each size
MANY_REQUESTS = 10**9  # more than any check sends
TEETH = 64  # tokens by which the shortest prompts of a size are shorter than its longest


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. begin: which size is the first that it strikes; above, upto: tokens between which
    it does. rate: of requests or prompts that it strikes. sticky: whether a prompt that is struck
    once is struck always. how: what comes back. numbers: the kind's own. strength: see above.
    differs: whether the same prompt is answered right in another way of asking."""

    number: int
    kind: str
    begin: int
    above: int
    upto: int
    rate: float
    sticky: bool
    how: str
    machine: Machine
    numbers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def strength(self) -> float:
        """Share of answers that are lost where it is worst."""
        return self.rate * KINDS[self.kind].share(self)

    @property
    def differs(self) -> bool:
        """Whether another way of asking shows it."""
        return KINDS[self.kind].differs(self)

    @property
    def names(self) -> tuple[str, ...]:
        """The probes that name its kind."""
        return KINDS[self.kind].names

    def __call__(self, seen: Seen, reply: Reply, engine: Engine) -> Reply:
        """What comes back."""
        kind = KINDS[self.kind]
        if not self.above < kind.measure(self, seen) <= self.upto or not kind.strikes(self, seen):
            return reply
        key = (self.number, seen.request.name) if self.sticky else engine.random.random()
        if chance(key) >= kind.pace(self, seen):
            return reply
        return kind.reply(self, seen, reply, engine)


def wrong(fault: Fault, seen: Seen, reply: Reply, engine: Engine) -> Reply:
    """An answer that is lost."""
    value = seen.request.asked.value
    other = mangled(value, engine.random)
    return {
        "digits": replace(reply, text=reply.text.replace(value, other)),
        "empty": replace(reply, text=""),
        "endless": replace(reply, text="the the the the " * 12, finish="length"),
        "garbage": replace(reply, text="!!!!!!!!!!!!"),
    }[fault.how]


def foreign(_fault: Fault, seen: Seen, reply: Reply, engine: Engine) -> Reply:
    """The value of another request: of one in flight, or of one before."""
    others = [each.asked.value for each in seen.flying] or engine.values[-8:]
    others = [value for value in others if value != seen.request.asked.value]
    if not others:
        return reply
    value = engine.random.choice(others)
    return replace(reply, text=reply.text.replace(seen.request.asked.value, value))


def parrot(_fault: Fault, seen: Seen, reply: Reply, _engine: Engine) -> Reply:
    """The prompt."""
    return replace(reply, text=seen.request.text())


def refused(fault: Fault, _seen: Seen, reply: Reply, _engine: Engine) -> Reply:
    """Nothing."""
    return replace(reply, error=fault.numbers["error"])


def cut(fault: Fault, seen: Seen, reply: Reply, engine: Engine) -> Reply:
    """The answer from the part of a prompt that is left."""
    tokens, (start, stop) = seen.request.tokens, fault.numbers["gone"]
    if start * tokens - 12 < seen.request.asked.start < stop * tokens:
        reply = wrong(fault, seen, reply, engine)
    left = tokens - round((stop - start) * tokens)
    return replace(reply, prompt_tokens=left) if fault.numbers["counted"] else reply


def earlier(fault: Fault, seen: Seen, reply: Reply, engine: Engine) -> Reply:
    """The reply to the first prompt with the same beginning."""
    request, before = seen.request, engine.replies.setdefault(seen.request.begin, [])
    for other, text in before:
        if other.name != request.name and engine.share(request, other) >= fault.numbers["key"]:
            return replace(reply, text=text)
    before.append((request, reply.text))
    return reply


def tokens_of(_fault: Fault, seen: Seen) -> int:
    return seen.request.tokens


def extended(_fault: Fault, seen: Seen) -> int:
    return seen.request.tokens - seen.hit


def always(_fault: Fault, _seen: Seen) -> bool:
    return True


def rate_of(fault: Fault, _seen: Seen) -> float:
    return fault.rate


def nothing(_random: Random, _sizes: Sizes) -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Kind:
    """What faults of a kind have in common. names: probes that name it. draw: its own numbers.
    measure: what `above` and `upto` are about. pace: how often it strikes. share: of the answers of
    its worst way, place or size that are lost at rate 1. sticky: whether the same prompts are
    struck again, None for either. machine: what a server must be to have it."""

    names: tuple[str, ...]
    strikes: Callable[[Fault, Seen], bool]
    reply: Callable[[Fault, Seen, Reply, Engine], Reply] = wrong
    draw: Callable[[Random, Sizes], dict[str, Any]] = nothing
    measure: Callable[[Fault, Seen], int] = tokens_of
    pace: Callable[[Fault, Seen], float] = rate_of
    share: Callable[[Fault], float] = lambda _fault: 1.0
    differs: Callable[[Fault], bool] = lambda _fault: True
    sticky: bool | None = None
    machine: Mapping[str, Any] = field(default_factory=dict)


def no(_fault: Fault) -> bool:
    return False


def residue(random: Random, _sizes: Sizes) -> dict[str, Any]:
    by = random.choice((2, 3, 4, 8, 16, 32, 64, 64))
    return {
        "by": by,
        "rest": random.randrange(by),
        "of": random.choice(("length", "extend", "place")),
    }


def is_residue(fault: Fault, seen: Seen) -> bool:
    request = seen.request
    number = {
        "length": request.tokens,
        "extend": request.tokens - seen.hit,
        "place": request.asked.start,
    }[fault.numbers["of"]]
    return number % int(fault.numbers["by"]) == fault.numbers["rest"]


def is_chance(fault: Fault) -> bool:
    """Whether it depends on chance what meets the residue: the tokens behind a hit, and places,
    which are sentences' ends, except sixteen in a row."""
    rare = fault.numbers["of"] == "place" and fault.numbers["by"] > IN_A_ROW
    return bool(fault.numbers["of"] == "extend" or rare)


def head_cut(random: Random, _sizes: Sizes) -> dict[str, Any]:
    return {"gone": (0.0, random.uniform(0.05, 0.8)), "counted": True}


def quiet_cut(random: Random, _sizes: Sizes) -> dict[str, Any]:
    start, width = random.choice((0.0, random.uniform(0.1, 0.6))), random.uniform(0.1, 0.8)
    return {"gone": (start, min(0.97, start + width)), "counted": False}


def width_of(fault: Fault) -> float:
    start, stop = fault.numbers["gone"]
    return float(stop - start)


def is_stale(fault: Fault, seen: Seen) -> bool:
    """Whether the last block that was found in the cache holds the needle or the question."""
    first, start = seen.hit - fault.numbers["block"], seen.request.asked.start
    holds = first - NEEDLE < start < seen.hit or seen.hit > seen.request.tokens - QUESTION
    return seen.hit > 0 and holds


def is_before_last_chunk(fault: Fault, seen: Seen) -> bool:
    chunk, new = fault.numbers["chunk"], seen.request.tokens - seen.hit
    last = seen.hit + (new - 1) // chunk * chunk
    return bool(last > seen.hit) and last - chunk <= seen.request.asked.start < last


def is_first_extend(fault: Fault, seen: Seen) -> bool:
    """Whether more than a block is computed behind a hit: a prompt that is held whole is right."""
    block = int(fault.machine.cache) if fault.machine.cache in ("16", "64") else 1
    return seen.hit > 0 and extended(fault, seen) > block


def is_behind_a_batch(_fault: Fault, seen: Seen) -> bool:
    """Whether the hit's tokens were computed beside other prompts, which left wrong ones."""
    return seen.hit > 0 and seen.batched


def is_extended_beside(fault: Fault, seen: Seen) -> bool:
    return bool(seen.flying) and is_first_extend(fault, seen)


def bad_replica(_fault: Fault, seen: Seen) -> bool:
    return seen.replica == 0


def growing(fault: Fault, seen: Seen) -> float:
    return fault.rate * min(1.0, seen.count / fault.numbers["full"])


def any_size(fault: Fault, _seen: Seen) -> int:
    """A measure that every prompt meets."""
    return fault.upto


def one_window(random: Random, most: int) -> dict[str, Any]:
    """One time in which it strikes, of so many requests."""
    first = random.randint(0, 2_900 - most)
    return {"every": MANY_REQUESTS, "first": first, "most": most}


def bursts(random: Random, _sizes: Sizes) -> dict[str, Any]:
    """A twentieth to a tenth of the time, again and again."""
    every = random.choice((100, 200, 400))
    return {"every": every, "first": random.randrange(every // 2), "most": every // 10}


def in_time(fault: Fault, seen: Seen) -> bool:
    at = seen.count % fault.numbers["every"] - fault.numbers["first"]
    return 0 <= at < int(fault.numbers.get("most", MANY_REQUESTS))


def depth(random: Random, _sizes: Sizes) -> dict[str, Any]:
    start = random.uniform(0.02, 0.55)
    return {"start": start, "stop": start + random.uniform(0.15, 0.3)}


def at_depth(fault: Fault, seen: Seen) -> bool:
    at = seen.request.asked.start / seen.request.tokens
    return bool(fault.numbers["start"] < at < fault.numbers["stop"])


def band(random: Random, sizes: Sizes) -> dict[str, Any]:
    """Lengths between two sizes, of which none is one."""
    begin = random.randrange(2)
    low, high = sizes[begin] + TEETH, sizes[begin + 1] - 2 * TEETH
    times = (high / low) ** 0.5
    start = low * random.uniform(1, high / low / times)
    return {"start": start, "stop": start * times}


def in_band(fault: Fault, seen: Seen) -> bool:
    return bool(fault.numbers["start"] < seen.request.tokens < fault.numbers["stop"])


KINDS: dict[str, Kind] = {
    "lost": Kind(("length",), always, differs=no),
    "parrot": Kind(("length",), always, parrot, differs=no),
    "refused": Kind(
        ("window", "length"),
        always,
        refused,
        lambda random, _sizes: {"error": random.choice(("too long", "server", "late"))},
        differs=no,
        sticky=True,
    ),
    "cut": Kind(("cut",), always, cut, head_cut, sticky=True),
    "cut quietly": Kind(("cut",), always, cut, quiet_cut, share=width_of, differs=no, sticky=True),
    "foreign": Kind(("mates",), always, foreign, sticky=False),
    "foreign under load": Kind(
        ("mates", "load"), lambda _, seen: bool(seen.flying), foreign, sticky=False
    ),
    "foreign growing": Kind(
        ("mates",),
        always,
        foreign,
        lambda random, _sizes: {"full": random.randrange(300, 1500)},
        pace=growing,
        sticky=False,
    ),
    "tenant": Kind(("mates", "cache"), lambda _, seen: seen.hit > 0, foreign),
    "stale": Kind(
        ("cache", "mates", "pattern"),
        is_stale,
        draw=lambda random, _sizes: {"block": random.choice((16, 32, 64))},
    ),
    "position": Kind(("cache",), lambda _, seen: seen.hit > 0),
    "position cold": Kind(("cache", "onset"), lambda _, seen: seen.hit < 64),
    "onset": Kind(("onset", "cache"), always, measure=extended),
    "batch": Kind(("load",), lambda _, seen: bool(seen.flying)),
    "batch cold": Kind(("load",), lambda _, seen: bool(seen.flying), measure=extended),
    "rare": Kind(("same",), always, differs=no, sticky=False),
    "full hit": Kind(
        ("same", "cache"),
        lambda _, seen: seen.hit >= seen.request.tokens - BLOCK,
        machine={"cache": MANY},
    ),
    "first extend": Kind(("cache", "same", "load", "pattern"), is_first_extend),
    "behind a batch": Kind(("cache", "same"), is_behind_a_batch, machine={"cache": MANY}),
    "extend beside others": Kind(("load",), is_extended_beside, share=lambda _fault: 0.5),
    "reply cache": Kind(
        ("replies", "mates", "same", "cache"),
        always,
        earlier,
        lambda random, sizes: {"key": random.randrange(48, sizes[0] // 2)},
        sticky=False,
    ),
    "residue": Kind(
        ("pattern",),
        is_residue,
        draw=residue,
        share=lambda fault: 1 / fault.numbers["by"] if is_chance(fault) else 1.0,
        differs=lambda fault: not is_chance(fault),
        sticky=True,
    ),
    "last chunk": Kind(
        ("pattern", "cut"),
        is_before_last_chunk,
        draw=lambda random, _sizes: {"chunk": random.choice((64, 512, 2048, 8192))},
        share=lambda _fault: 0.0,
        differs=no,
        sticky=True,
    ),
    "replica": Kind(
        ("same", "cache", "load"),
        bad_replica,
        share=lambda fault: 1 / fault.machine.replicas,
        differs=no,
        machine={"replicas": (2, 3, 4, 8), "routed": ("turn", "head")},
    ),
    "run": Kind(
        ("pattern",),
        in_time,
        draw=lambda random, _sizes: one_window(random, random.randint(20, 400)),
        measure=any_size,
        differs=no,
    ),
    "dies": Kind(
        ("pattern",),
        in_time,
        draw=lambda random, _sizes: {"every": MANY_REQUESTS, "first": random.randint(50, 3_000)},
        measure=any_size,
        differs=no,
    ),
    "swap": Kind(
        ("pattern",),
        in_time,
        draw=lambda random, _sizes: one_window(random, random.randint(600, 1_600)),
        measure=any_size,
        differs=no,
        sticky=True,
    ),
    "bursts": Kind(
        ("pattern",),
        in_time,
        draw=bursts,
        measure=any_size,
        differs=no,
    ),
    "trend": Kind(
        ("pattern",),
        always,
        draw=lambda random, _sizes: {"full": random.randint(1_500, 3_000)},
        measure=any_size,
        pace=growing,
        share=lambda _fault: 0.75,
        differs=no,
        sticky=False,
    ),
    "replica of many": Kind(
        ("pattern",),
        bad_replica,
        measure=any_size,
        differs=no,
        machine={"replicas": (8, 12, 16, 20), "routed": ("head", "turn")},
    ),
    "depth": Kind(("pattern", "length"), at_depth, draw=depth, differs=no),
    "band": Kind(("pattern", "length"), in_band, draw=band, measure=any_size, differs=no),
    "dead back end": Kind(
        ("same", "cache", "load", "onset", "pattern"),
        bad_replica,
        machine={"replicas": (2,), "routed": ("turn",)},
        sticky=True,
    ),
}


def rate_drawn(random: Random) -> float:
    """All, more than half, a quarter to a half, or less."""
    stratum = random.random()
    if stratum < 0.4:
        return 1.0
    low, high = (0.5, 1.0) if stratum < 0.7 else (0.25, 0.5) if stratum < 0.85 else (0.01, 0.25)
    return random.uniform(low, high)


def drawn(number: int, seed: int, sizes: Sizes, short: int) -> Fault:
    """The fault of this number: its kind and the size at which it begins go round, all else is
    drawn. short: tokens of the shortest prompts, which it leaves alone."""
    random = Random(f"fault {seed} {number}")
    kinds = list(KINDS)
    name = kinds[number % len(kinds)]
    kind, begin = KINDS[name], number // len(kinds) % len(sizes)
    low = sizes[begin - 1] + 1 if begin else 0
    above = max(short, random.randrange(low, max(low + 1, sizes[begin] - 2 * TEETH)))
    band = begin < 2 and random.random() < 0.3
    upto = random.randrange(sizes[begin] + TEETH, sizes[begin + 1] - TEETH) if band else 10**9
    machine = Machine.drawn(random)
    machine = replace(machine, **{key: random.choice(of) for key, of in kind.machine.items()})
    sticky = random.random() < 0.5 if kind.sticky is None else kind.sticky
    numbers, how = kind.draw(random, sizes), random.choice(HOW)
    return Fault(
        number, name, begin, above, upto, rate_drawn(random), sticky, how, machine, numbers
    )
