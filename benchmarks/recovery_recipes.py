"""Twelve recipes that extend a small model's context from 48 to 512 tokens.

They were listed here before the first of them was trained, and each is counted, also one that
learns nothing. A recipe learns if it answers at least LEARNS of the items at its last snapshot.
recovery_snapshots.py trains them, recovery.py says what their snapshots tell.

Two trainings with 48 items had eight and seven of nine early: three right answers are 6 % of 48. So
REPEATS and SEEDS were fixed here before the third: three times as many items, and three trainings
with seeds of their own. What the first seed gives is kept and decides; the others tell how much
hangs on a training.
"""

from __future__ import annotations

from dataclasses import dataclass

LENGTH = 512  # tokens of the items that every snapshot is given
STEPS = 150
SNAPSHOTS = (3, 6, 10, 15, 20, 25, 32, 40, 50, 70, 100, 150)  # steps
THIRD = 50  # of the steps
TOKENS = 2_048  # of a step, whatever the lengths of its sequences
RATE, SEEDS = 5e-4, (41, 42, 43)
REPEATS = 48  # haystacks, each with the items of three depths
LEARNS = 0.25


@dataclass(frozen=True)
class Recipe:
    """theta: rotary base; window: tokens that a token sees, itself included, all where None;
    tokens: lengths of the sequences trained on; share: of them that hold needles."""

    name: str
    theta: float
    window: int | None
    tokens: tuple[int, ...]
    share: float


ALL = (512, 384, 256, 128)
RECIPES = (
    Recipe("long", 10_000, None, (512,), 1.0),
    Recipe("mixed", 10_000, None, ALL, 1.0),
    Recipe("half-length", 10_000, None, (256, 128), 1.0),
    Recipe("base-40k", 40_000, None, ALL, 1.0),
    Recipe("base-200k", 200_000, None, ALL, 1.0),
    Recipe("base-1M", 1_000_000, None, (512,), 1.0),
    Recipe("window-256", 10_000, 256, ALL, 1.0),
    Recipe("window-128", 40_000, 128, ALL, 1.0),
    Recipe("window-64", 10_000, 64, ALL, 1.0),
    Recipe("half-needles", 40_000, None, ALL, 0.5),
    Recipe("few-needles", 10_000, None, ALL, 0.15),
    Recipe("no-needles", 40_000, None, ALL, 0.0),
)
