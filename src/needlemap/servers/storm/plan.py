"""The rounds of a storm: which families there are, and what their sessions do, by seed and number.

Families of one round are asked side by side. They share no text, so what happens to one says
nothing of another: a family is the unit of a storm's rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from random import Random

from needlemap.servers.storm.act import ACTS, Act, Round, ordered
from needlemap.servers.storm.operation import FamilyPlan, Limits, Operation
from needlemap.servers.storm.operations import OPERATIONS

FAMILIES = (3, 4, 6)  # of a round
STEPS = (1, 1, 2, 2, 3, 4)  # operations of a family behind its first prompt
FULL = 8  # requests of a family, from which on it has no further operation
CALM = 5  # rounds before the first client goes away: what fresh prompts lose is known by then
FLOOD_SHARE = 0.25  # of a storm's tokens that floods may take


def make_round(
    seed: int, number: int, limits: Limits, operations: Sequence[Operation] = OPERATIONS
) -> Round:
    """The acts of one round: the same seed, number and limits give the same."""
    random, streams = Random(f"storm:{seed}:{number}"), count()
    limits = replace(limits, cancels=limits.cancels and number > CALM)
    fresh = next(each for each in operations if each.name == "fresh")
    drawn = [
        each
        for each in operations
        if each.share and each.applies(limits) and not each.is_left_out(limits)
    ]
    floods = [each for each in drawn if each.name == "flood"]
    drawn = [each for each in drawn if each.name != "flood"]
    acts: list[Act] = []
    families = random.choice(FAMILIES)
    others = count(families)  # of prompts that share nothing with the family that asks them
    flooded = random.randrange(families) if floods and number % flood_every(limits) == 0 else None
    for family in range(families):
        plan = FamilyPlan(family, random, limits, streams, others, random.randrange(3))
        fresh.plan(plan)
        for _ in range(random.choice(STEPS)):
            if len(plan.acts) >= FULL:
                break
            (operation,) = random.choices(drawn, [each.share for each in drawn])
            operation.plan(plan)
        if family == flooded:
            floods[0].plan(plan)
        acts += plan.acts
    return Round(number, ordered(in_waves(acts, limits.load))[:ACTS])


def flood_every(limits: Limits) -> int:
    """One round in so many has a flood, so that floods take no more than their share of
    tokens."""
    each = 4 * limits.room / 16 + 4_000  # of a round without one, about
    return max(2, round((limits.kv_tokens or 0) / (FLOOD_SHARE * each)))


def in_waves(acts: Sequence[Act], load: int) -> list[Act]:
    """Acts in waves of so many at most, in the order of their waves; a family's waves stay one
    behind the other."""
    found, wave = list[Act](), 0
    for number in sorted({act.wave for act in acts}):
        rows = [act for act in acts if act.wave == number]
        for start in range(0, len(rows), load):
            found += [replace(act, wave=wave) for act in rows[start : start + load]]
            wave += 1
    return found
