"""Servers that nothing is wrong with, drawn at random: models that are weak, answers that change by
themselves, kernels that round in another way when they are warm or loaded, counters of all habits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from sides.broken import Sizes
from sides.engines import Engine, Machine, Reply, Seen, chance, mangled

Change = Callable[["Sound", Seen, Reply, Engine], Reply]


@dataclass(frozen=True, slots=True)
class Sound:
    """One sound server. noise: share of answers that change by themselves. able: whether its model
    answers prompts of every size and place. numbers: the kind's own."""

    number: int
    kind: str
    machine: Machine
    numbers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def noise(self) -> float:
        """Share of answers that change by themselves."""
        return float(self.numbers.get("noise", 0.0))

    @property
    def able(self) -> bool:
        """Whether its model answers prompts of every size and place."""
        return KINDS[self.kind].able

    def __call__(self, seen: Seen, reply: Reply, engine: Engine) -> Reply:
        """What comes back."""
        return KINDS[self.kind].reply(self, seen, reply, engine)


def missed(seen: Seen, reply: Reply, random: Random) -> Reply:
    """A value that the model made up, or none."""
    value = seen.request.asked.value
    if random.random() < 0.3:
        return replace(reply, text="The text does not say.")
    return replace(reply, text=reply.text.replace(value, mangled(value, random)))


def right(_sound: Sound, _seen: Seen, reply: Reply, _engine: Engine) -> Reply:
    return reply


def noisy(sound: Sound, seen: Seen, reply: Reply, engine: Engine) -> Reply:
    """Wrong by chance, each time anew."""
    return missed(seen, reply, engine.random) if engine.random.random() < sound.noise else reply


def noisy_at_length(sound: Sound, seen: Seen, reply: Reply, engine: Engine) -> Reply:
    """Wrong by chance, and more often the longer a prompt is."""
    share = seen.request.tokens / sound.numbers["longest"]
    wrong = engine.random.random() < sound.noise * min(1.0, share)
    return missed(seen, reply, engine.random) if wrong else reply


def tied(sound: Sound, seen: Seen, reply: Reply, _engine: Engine) -> Reply:
    """A tie between two tokens tips one way cold, another way warm or in a batch, the same way each
    time."""
    key = (sound.number, seen.request.name)
    if chance(*key, seen.state) < sound.numbers["ties"]:
        return missed(seen, reply, Random(f"{key}"))
    return reply


def tied_at_places(sound: Sound, seen: Seen, reply: Reply, _engine: Engine) -> Reply:
    """The same, also by where the cache's share of a prompt ends."""
    key = (sound.number, seen.request.name)
    if chance(*key, seen.state, seen.hit) < sound.numbers["ties"]:
        return missed(seen, reply, Random(f"{key}"))
    return reply


def weak(sound: Sound, seen: Seen, reply: Reply, _engine: Engine) -> Reply:
    """A model that misses some prompts, always the same."""
    request, numbers = seen.request, sound.numbers
    share = request.tokens / numbers["longest"]
    place = request.asked.start / request.tokens
    miss = {
        "evenly": numbers["miss"],
        "length": numbers["miss"] * share**0.5,
        "dead": float(share > numbers["upto"]),
        "far": float(request.tokens - request.asked.start > numbers["upto"] * numbers["longest"]),
        "farther": min(1.0, 1.5 * numbers["miss"] * (1 - place) * share**0.5),
        "middle": numbers["miss"] * (0.25 < place < 0.75),
        "head": numbers["miss"] * (place < 0.1),
    }[numbers["where"]]
    if chance(sound.number, request.name) < miss:
        return missed(seen, reply, Random(f"{sound.number} {request.name}"))
    return reply


def confused(sound: Sound, seen: Seen, reply: Reply, _engine: Engine) -> Reply:
    """A model that takes another fact of the same prompt, always in the same prompts."""
    request = seen.request
    others = [each.value for each in request.facts if each.value != request.asked.value]
    if not others or chance(sound.number, request.name) >= sound.numbers["miss"]:
        return reply
    other = Random(f"{sound.number} {request.name}").choice(others)
    return replace(reply, text=reply.text.replace(request.asked.value, other))


def talks(sound: Sound, seen: Seen, reply: Reply, _engine: Engine) -> Reply:
    """A model that goes on and on in some answers, always the same."""
    if chance(sound.number, seen.request.name) < sound.numbers["talk"]:
        return replace(reply, text=f"{reply.text} Let me explain. " + "and " * 60, finish="length")
    return reply


def late(sound: Sound, _seen: Seen, reply: Reply, engine: Engine) -> Reply:
    """Some requests bring no answer, at random."""
    if engine.random.random() < sound.numbers["late"]:
        return replace(reply, error=sound.numbers["error"])
    return reply


def ends_within(sound: Sound, seen: Seen, reply: Reply, engine: Engine) -> Reply:
    """A model that finds nothing beyond a length within those of one size."""
    lost = seen.request.tokens > sound.numbers["upto"]
    return missed(seen, reply, engine.random) if lost else reply


def needs_room(sound: Sound, seen: Seen, reply: Reply, _engine: Engine) -> Reply:
    """A model that thinks longer behind long prompts than its answer's budget allows."""
    long = seen.request.tokens > sound.numbers["above"] and seen.request.room == 1
    if long and chance(sound.number, seen.request.name) < sound.numbers["long"]:
        return replace(reply, text="Let me think. " + "and " * 60, finish="length")
    return reply


@dataclass(frozen=True, slots=True)
class Kind:
    """What sound servers of a kind have in common. draw: its own numbers. able: see `Sound`.
    machine: what is not drawn of the server."""

    reply: Change
    draw: Callable[[Random, Sizes], dict[str, Any]] = lambda _random, _sizes: {}
    able: bool = True
    machine: Mapping[str, Any] = field(default_factory=dict)


def weakness(where: str) -> Kind:
    """A kind of weak model."""

    def draw(random: Random, sizes: Sizes) -> dict[str, Any]:
        miss, upto = random.uniform(0.03, 0.6), random.uniform(0.02, 1.0)
        return {"where": where, "miss": miss, "upto": upto, "longest": sizes[-1]}

    return Kind(weak, draw, able=False)


def noise(low: float, high: float, change: Change = noisy, able: bool = True) -> Kind:
    """A kind of noise."""

    def draw(random: Random, sizes: Sizes) -> dict[str, Any]:
        return {"noise": random.uniform(low, high), "longest": sizes[-1]}

    return Kind(change, draw, able)


def ties(change: Change) -> Kind:
    """A kind of honest kernel."""
    return Kind(change, lambda random, _sizes: {"ties": random.uniform(0.01, 0.03)})


KINDS: dict[str, Kind] = {
    "right": Kind(right),
    "right, no cache": Kind(right, machine={"cache": "none"}),
    "right, no usage": Kind(right, machine={"counters": "none"}),
    "right, cached left out": Kind(right, machine={"counters": "exclusive"}),
    "right, other vocabulary": Kind(right, machine={"counters": "scaled"}),
    "right, replicas by turn": Kind(right, machine={"replicas": 4, "routed": "turn"}),
    "ties": ties(tied),
    "ties by place": ties(tied_at_places),
    "noise to 1 %": noise(0.001, 0.01),
    "noise to 1 %, again": noise(0.001, 0.01),
    "noise 5 %": noise(0.05, 0.05),
    "noise 1 to 5 %": noise(0.01, 0.05),
    "noise 8 to 20 %": noise(0.08, 0.2, able=False),
    "noise with length": noise(0.01, 0.05, noisy_at_length),
    "weak evenly": weakness("evenly"),
    "weak with length": weakness("length"),
    "nothing beyond": weakness("dead"),
    "nothing far": weakness("far"),
    "weak far": weakness("farther"),
    "weak in the middle": weakness("middle"),
    "weak at the head": weakness("head"),
    "confused": Kind(
        confused, lambda random, _sizes: {"miss": random.uniform(0.02, 0.5)}, able=False
    ),
    "talks": Kind(talks, lambda random, _sizes: {"talk": random.uniform(0.01, 0.1)}, able=False),
    "ends within a size": Kind(
        ends_within,
        lambda random, sizes: {"upto": random.choice(sizes) - 300 - random.randint(0, 80)},
        able=False,
    ),
    "needs room": Kind(
        needs_room,
        lambda random, sizes: {
            "above": random.choice((0, *sizes[:2])),
            "long": random.uniform(0.05, 0.6),
        },
        able=False,
    ),
    "samples": noise(0.2, 0.6, able=False),
    "late": Kind(
        late,
        lambda random, _sizes: {
            "late": random.uniform(0.002, 0.02),
            "error": random.choice(("server", "late")),
        },
        able=False,
    ),
}


def drawn(number: int, seed: int, sizes: Sizes) -> Sound:
    """The sound server of this number: kinds go round, all else is drawn."""
    random = Random(f"sound {seed} {number}")
    names = list(KINDS)
    name = names[number % len(names)]
    kind, machine = KINDS[name], Machine.drawn(random)
    numbers = kind.draw(random, sizes)
    return Sound(number, name, replace(machine, **kind.machine), numbers)
