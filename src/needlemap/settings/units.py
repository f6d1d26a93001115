"""Numbers as people write them, and what a setting is made of: its group, role in the key, and marks.

Tokens are written as 4k or 1M, durations as 90s, 30m, 1h30m. The settings are in `settings/__init__.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partialmethod
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field
from pydantic.config import JsonDict

from needlemap.errors import SettingsError

MOST = 2**53  # of a whole number: what JSON, tables and figures of any program hold exactly
MOST_TOKENS = 10**12  # of a length
_SHOWN = 60  # characters of what is no number
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PART = r"(\d+(?:\.\d+)?)\s*(?:({units})[a-z]*)\s*".format(units="|".join(_UNITS_S))
Role = Literal["asked", "built", "scored", "grid", "free"]
Mark = Literal["subject", "sampled", "shared", "opened", "older"]


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


def percents(text: object) -> float:
    """A number of percent: '30%' or 30. Raises SettingsError.

    >>> percents("30%"), percents(10)
    (30.0, 10.0)
    """
    try:
        return float(str(text).strip().removesuffix("%"))
    except ValueError:
        raise SettingsError(f"'{text}' is no percentage. Write 30%.") from None


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


@dataclass(frozen=True, slots=True)
class Group:
    """The settings that `--help` shows under one name."""

    name: str

    def _field(
        self, role: Role, default: Any, text: str, *marks: Mark, read: str | None = None, **limits: Any
    ) -> Any:
        """A setting: its default, one line of help, and all that is known of it.

        role, in a trial's key. 'asked': its value is in it. 'built': what it comes to is, texts, places and
        the tokenizer's own. 'scored': so, and `needlemap score` changes it. 'grid' and 'free': it is not, and
        may differ when a run is resumed; the grid says which cells there are.
        marks. 'subject': who is asked, which changes no prompt. 'sampled': read where an answer is generated.
        'shared': the same for all families of a suite. 'opened': may make this machine open or run something.
        'older': a way of the older tools, which `--help` leaves to docs/coming-from.md.
        read: the rule in `unread.py` that says where it is read; None: always.
        """
        known = {"role": role, "group": self.name, "read": read, "marks": list(marks)}
        return Field(default, description=text, json_schema_extra=cast(JsonDict, known), **limits)

    asked = partialmethod(_field, "asked")
    built = partialmethod(_field, "built")
    scored = partialmethod(_field, "scored")
    grid = partialmethod(_field, "grid")
    free = partialmethod(_field, "free")


def _read(read: Callable[[object], float], value: Any) -> Any:
    """A text as the number that it stands for. Raises ValueError, as pydantic wants it."""
    try:
        return read(value) if isinstance(value, str) else value
    except SettingsError as error:
        raise ValueError(str(error)) from None


Tokens = Annotated[int, BeforeValidator(lambda value: _read(tokens, value))]  # 2000000, '100k', '2M'
Percent = Annotated[float, BeforeValidator(lambda value: _read(percents, value))]  # 30, '30%'
Seconds = Annotated[float, BeforeValidator(lambda value: _read(duration_s, value))]  # 90, '90s', '1h30m'
