"""How many trials it takes to see a drop."""

from __future__ import annotations

from math import ceil, sqrt

from needlemap.maps.student import NORMAL

LOST_TO_GAINED = 6.0  # of seven answers that change under a real drop, about one is a gain
POWER = 0.8


def trials_needed(
    drop: float, discordant: float | None = None, design_effect: float = 1.0, power: float = POWER
) -> int:
    """Paired trials that show a drop (a share) at the two-sided 5 % level with so much power.

    n = deff (z_a sqrt(D) + z_b sqrt(D - drop^2))^2 / drop^2, D being the share of pairs that differ
    (McNemar's test: Connor 1987, Biometrics 43:207; Miettinen 1968). D is at least the drop; not given, six
    answers are lost for each one gained.

    >>> trials_needed(0.05)
    218
    """
    if not 0 < drop <= 1:
        raise ValueError(f"drop must lie in (0, 1], got {drop}")
    share = drop * (LOST_TO_GAINED + 1) / (LOST_TO_GAINED - 1) if discordant is None else discordant
    share = min(1.0, max(share, drop))
    level, chance = NORMAL.inv_cdf(0.975), NORMAL.inv_cdf(power)
    root = level * sqrt(share) + chance * sqrt(max(0.0, share - drop**2))
    return ceil(design_effect * (root / drop) ** 2)
