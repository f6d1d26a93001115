"""Numbers as people write them: tokens as 4k or 1M, durations as 90s, 30m, 1h30m."""

from __future__ import annotations

import math
import re

from needlemap.errors import SettingsError

_SHOWN = 60  # characters of what is no number
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PART = r"(\d+(?:\.\d+)?)\s*(?:({units})[a-z]*)\s*".format(units="|".join(_UNITS_S))


def tokens(text: object) -> float:
    """A number of tokens: '128k' -> 128000, '1M' -> 1000000, '1e5' -> 100000."""
    word = text.strip().lower().replace("_", "") if isinstance(text, str) else text
    if not isinstance(word, str):
        return _plain_number(word)
    factor = {"k": 1_000, "m": 1_000_000}.get(word[-1:], 1)
    try:
        value = float(word[:-1] if factor > 1 else word) * factor
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SettingsError(f"'{str(text)[:_SHOWN]}' is not a number. Write 4000, 4k or 1M.")
    return value


def _plain_number(value: object) -> float:
    """A number as YAML and Python give it. Raises SettingsError for anything else, and for too long ones."""
    try:
        found = float(value) if isinstance(value, int | float) else float(str(value))
    except (ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        kind = "a number of too many digits" if isinstance(value, int) else f"'{str(value)[:_SHOWN]}'"
        raise SettingsError(f"{kind} is not a number. Write 4000, 4k or 1M.")
    return found


def duration_s(text: object) -> float:
    """Seconds: of '1h30m', '90s', '2 min', or of a plain number of seconds. Raises SettingsError.

    >>> duration_s("1h30m"), duration_s("90s"), duration_s(20)
    (5400.0, 90.0, 20.0)
    """
    word = str(text).strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", word):
        return float(word)
    if not re.fullmatch(f"({_PART})+", word):
        raise SettingsError(f"'{text}' is no duration. Write 90s, 30m or 1h30m.")
    return sum(float(number) * _UNITS_S[unit] for number, unit in re.findall(_PART, word))


def duration_label(seconds: float) -> str:
    """A duration for people.

    >>> duration_label(59), duration_label(3700)
    ('59 s', '1 h 01 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = int(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
