"""Plan the rounds of a storm: its families, and what their sessions do, by seed and number.

Families of one round are sent side by side. They share no text, so what happens to one says nothing
about another: a family is the unit of a storm's rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from random import Random

from needlemap.servers.storm.act import ACTS, Act, Round, ordered
from needlemap.servers.storm.operation import FamilyPlan, Limits, Operation
from needlemap.servers.storm.operations import OPERATIONS

# Families of a round.
FAMILIES = (3, 4, 6)
# Operations of a family after its first prompt.
STEPS = (1, 1, 2, 2, 3, 4)
# Requests of a family from which on it has no further operation.
FULL = 8
# Rounds before the first client goes away: what fresh prompts lose is known by then.
CALM = 5
# Share of a storm's tokens that floods may take.
FLOOD_SHARE = 0.25


def make_round(
    seed: int, number: int, limits: Limits, operations: Sequence[Operation] = OPERATIONS
) -> Round:
    """Return the acts of one round, which follow from seed, number and limits alone."""
    random = Random(f"storm:{seed}:{number}")
    streams = count()
    limits = replace(limits, cancels=limits.cancels and number > CALM)
    fresh = next(operation for operation in operations if operation.name == "fresh")
    usable = [
        operation
        for operation in operations
        if operation.share and operation.applies(limits) and not operation.is_left_out(limits)
    ]
    rare_operations = [operation for operation in usable if operation.every]
    floods = [operation for operation in usable if operation.name == "flood"]
    drawn_operations = [
        operation for operation in usable if operation not in (*rare_operations, *floods)
    ]

    acts: list[Act] = []
    families = random.choice(FAMILIES)
    # Numbers of families of prompts that share nothing with the family that sends them.
    others = count(families)
    flooded_family = None
    if floods and number % flood_every(limits) == 0:
        flooded_family = random.randrange(families)
    for family in range(families):
        plan = FamilyPlan(family, random, limits, streams, others, random.randrange(3))
        fresh.plan(plan)
        for _ in range(random.choice(STEPS)):
            if len(plan.acts) >= FULL:
                break
            (operation,) = random.choices(
                drawn_operations, [operation.share for operation in drawn_operations]
            )
            operation.plan(plan)
        if family == flooded_family:
            floods[0].plan(plan)
        acts += plan.acts

    for operation in rare_operations:
        # In the middle of so many rounds, so that a short storm has it too.
        if number % operation.every == operation.every // 2:
            own_random = Random(f"{operation.name}:{seed}:{number}")
            plan = FamilyPlan(next(others), own_random, limits, streams, others)
            operation.plan(plan)
            acts += plan.acts
    return Round(number, ordered(in_waves(acts, limits.load))[:ACTS])


def flood_every(limits: Limits) -> int:
    """Return the number of rounds of which one has a flood, so that floods keep to their share."""
    # Tokens of a round without a flood, about.
    round_tokens = 4 * limits.room / 16 + 4_000
    return max(2, round((limits.kv_tokens or 0) / (FLOOD_SHARE * round_tokens)))


def in_waves(acts: Sequence[Act], load: int) -> list[Act]:
    """Return acts in waves of at most `load` acts.

    A wave that is larger becomes several. The order of the waves stays.
    """
    by_wave: dict[int, list[Act]] = {}
    for act in acts:
        by_wave.setdefault(act.wave, []).append(act)
    numbered = list[Act]()
    wave = 0
    for _, wave_acts in sorted(by_wave.items()):
        for start in range(0, len(wave_acts), load):
            numbered += [replace(act, wave=wave) for act in wave_acts[start : start + load]]
            wave += 1
    return numbered
