"""On which scale published scores are, and what they are as shares in [0, 1].

share = (native - lowest) / (highest - lowest), as our judge counts it: the worst verdict is 0. It is linear,
so a mean of native scores is lowest + (highest - lowest) x mean share, exactly. Pictures that were published
as "score times 10 percent" show a judge's lowest verdict, 1, as 10 %.
"""

from __future__ import annotations

from collections.abc import Iterable

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.interop.imports.row import Row, Scale

UNIT: Scale = (0.0, 1.0)
JUDGED: Scale = (1.0, 10.0)
SCORERS = {UNIT: "substring", JUDGED: "judge"}  # the two that needlehaystack 1 had


def parsed_scale(text: str) -> Scale:
    """A scale as typed. Raises SettingsError.

    >>> parsed_scale("1:10")
    (1.0, 10.0)
    """
    try:
        low, high = (float(part) for part in text.split(":"))
    except ValueError:
        low = high = 0.0
    if not -1e9 < low < high < 1e9:
        raise SettingsError(f"--scale '{text}' is not LOWEST:HIGHEST, for instance 1:10.")
    return low, high


def scale_of(rows: Iterable[Row], given: Scale | None) -> Scale:
    """The scale of one run's rows: given, told by their tool, or seen. Raises NeedlemapError if unclear."""
    scored = [row for row in rows if row.native is not None]
    told = {row.scale for row in scored if row.scale is not None}
    if given is None and len(told) > 1:
        raise NeedlemapError(f"Scores of one run on several scales: {told}. Import the files one by one.")
    scale = given or (told.pop() if told else _seen([row.native or 0.0 for row in scored]))
    for row in scored:
        if not scale[0] <= (row.native or 0.0) <= scale[1]:
            raise NeedlemapError(f"{row.place}: score {row.native:g} is outside {_label(scale)}.")
    return scale


def share(native: float, scale: Scale) -> float:
    """A native score as a share.

    >>> share(5.5, (1.0, 10.0))
    0.5
    """
    return (native - scale[0]) / (scale[1] - scale[0])


def native_mean(mean_share: float, scale: Scale) -> float:
    """The mean native score that a mean share stands for.

    >>> native_mean(0.5, (1.0, 10.0))
    5.5
    """
    return scale[0] + (scale[1] - scale[0]) * mean_share


def _seen(natives: list[float]) -> Scale:
    low, high = (min(natives), max(natives)) if natives else UNIT
    if low == high == 1:
        raise NeedlemapError(
            "All scores are 1: the best of 0..1, or the worst of a judge's 1..10? Say --scale 0:1 or 1:10."
        )
    if low >= 0 and high <= 1:
        return UNIT
    if low >= 1 and high <= JUDGED[1]:
        return JUDGED
    raise NeedlemapError(
        f"Scores from {low:g} to {high:g} are neither on 0..1 nor on 1..10. Say the scale: --scale 0:100"
    )


def _label(scale: Scale) -> str:
    return f"{scale[0]:g}..{scale[1]:g}"
