"""Read numbers as people write them, and make the grid of cells of lengths and depths.

Tokens are written as 4k or 1M, durations as 90s, 30m, 1h30m. Lengths are whole tokens. People give
depths in percent; inside they are shares in [0, 1].
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from needlemap.errors import SettingsError, did_you_mean

# Of a length, whoever wrote it.
MOST_TOKENS = 10**12
# Tokens that are asked for: ten times the longest context that is sold.
MOST_LENGTH = 100_000_000
# Of a run.
MOST_TRIALS = 1_000_000
# Of one axis: more are a typing error, not a grid.
MOST_VALUES = 100_000
DEPTH_SCALES = ("linear", "sigmoid")
_KEYS = ("min", "max", "count", "scale")
# How JSON may hold an axis.
_JSON_KINDS: tuple[dict[str, Any], ...] = (
    {"type": "string"},
    {"type": "integer"},
    {"type": "number"},
    {"items": {}, "type": "array"},
    {"additionalProperties": True, "type": "object"},
)
# Characters of a text that is not a number.
_SHOWN = 60
_RANGE = re.compile(r"(\d+(?:\.\d+)?[km]?)\s*(?:\.\.+|-|–|to)\s*(\d+(?:\.\d+)?[km]?)", re.I)
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PART = r"(\d+(?:\.\d+)?)\s*(?:({units})[a-z]*)\s*".format(units="|".join(_UNITS_S))


def tokens(text: object) -> float:
    """Return a number of tokens: '128k' -> 128000, '1M' -> 1000000, '1e5' -> 100000.

    A number stays as it is. Raises SettingsError for anything else.
    """
    word: Any = text
    factor = 1
    if isinstance(text, str):
        word = text.strip().lower().replace("_", "")
        factor = {"k": 1_000, "m": 1_000_000}.get(word[-1:], 1)
    try:
        value = float(word[:-1] if factor > 1 else word) * factor
    except (ValueError, TypeError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        kind = "a number of too many digits" if isinstance(text, int) else f"'{str(text)[:_SHOWN]}'"
        raise SettingsError(f"{kind} is not a number. Write 4000, 4k or 1M.")
    return value


def percents(text: object) -> float:
    """Return a number of percent, e.g. of '30%' or 30.

    Raises SettingsError if it is not a percentage.

    >>> percents("30%"), percents(10)
    (30.0, 10.0)
    """
    try:
        return float(str(text).strip().removesuffix("%"))
    except ValueError:
        raise SettingsError(f"'{text}' is no percentage. Write 30%.") from None


def duration_s(text: object) -> float:
    """Return the seconds of a duration, e.g. of '1h30m', '90s', '2 min', or 90.

    Raises SettingsError.

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
    """Return a duration for people.

    >>> duration_label(59), duration_label(3700)
    ('59 s', '1 h 01 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = int(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One place of the map.

    Attributes:
        length_tokens: The length of the whole prompt.
        depth: A share in [0, 1].
    """

    length_tokens: int
    depth: float


@dataclass(frozen=True, slots=True)
class Grid:
    """The lengths and depths of a run.

    Attributes:
        lengths: In tokens, ascending.
        depths: As shares, ascending.
        duplicates: How many lengths, and how many depths, were dropped as equal after rounding.
    """

    lengths: tuple[int, ...]
    depths: tuple[float, ...]
    duplicates: tuple[int, int] = (0, 0)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Return all cells, lengths in the outer loop."""
        return tuple(Cell(length, depth) for length in self.lengths for depth in self.depths)


def percent(depth: float) -> float:
    """Return a depth in percent for people: 0.29 -> 29.0, without binary noise."""
    return round(depth * 100, 6)


def setting(depth: float) -> float:
    """Return the depth in percent of which a grid makes this very share, to the last bit.

    A trial's key hashes the share.

    >>> shares = [percent / 34 / 100 for percent in range(0, 3401, 100)]
    >>> [setting(share) / 100 for share in shares] == shares, setting(0.29)
    (True, 29.0)
    """
    near = depth * 100
    neighbours = (math.nextafter(near, 0), math.nextafter(near, math.inf))
    for value in (percent(depth), near, *neighbours):
        if value / 100 == depth:
            return value
    return near


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a grid, parsed where it enters: `Lengths` or `Depths`.

    It is written as a list ('1k,4k'), as min:max:count[:scale], or as a mapping with these keys.
    Settings and run.json hold this type (pydantic parses it), so nothing behind them parses.
    Two axes are equal if they have the same values, however they are written.
    """

    values: tuple[float, ...]
    scale: str = "linear"
    # The specification as it was given, which is what run.json keeps.
    written: Any = field(default=None, compare=False)

    example: ClassVar[str]
    scales: ClassVar[tuple[str, ...]]

    @classmethod
    def parse(cls, spec: Any) -> Self:
        """Parse the specification of an axis.

        Raises SettingsError if it is not one, or if a value is out of bounds.
        """
        written = _json_spec(spec)
        if isinstance(written, str):
            values, scale = _values_of_text(written, cls.scales, cls.example)
        elif isinstance(written, dict):
            values, scale = _values_of_range(written, cls.scales)
        else:
            values = _values_of_list(written if isinstance(written, list) else [written])
            scale = "linear"
        axis = cls(tuple(values), scale, written)
        axis.check()
        return axis

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Return the axis of numbers, as if they were typed as a list."""
        values = tuple(values)
        written = ",".join(f"{value!r}".removesuffix(".0") for value in values)
        axis = cls(values, "linear", written)
        axis.check()
        return axis

    def check(self) -> None:
        """Raise SettingsError for a value that no prompt can have."""
        raise NotImplementedError

    def __str__(self) -> str:
        return str(self.written)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> Any:
        # Late: this module is needed where pydantic is not.
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            cls._validated,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda axis: axis.written
            ),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: object, _handler: object) -> dict[str, Any]:
        return {"anyOf": [dict(kind) for kind in _JSON_KINDS]}

    @classmethod
    def _validated(cls, value: Any) -> Self:
        if isinstance(value, cls):
            return value
        try:
            return cls.parse(value)
        except SettingsError as error:
            # Pydantic takes a ValueError for a wrong value. It refuses texts with half of a
            # character, so that is escaped.
            message = str(error).encode("utf-8", "backslashreplace").decode("utf-8")
            raise ValueError(message) from None


@dataclass(frozen=True, slots=True)
class Lengths(Axis):
    """Lengths of prompts in tokens.

    >>> Lengths.parse("1k,4k").tokens
    (1000, 4000)
    """

    example = "1k:128k:35:log"
    scales = ("linear", "log")

    @property
    def tokens(self) -> tuple[int, ...]:
        """Return whole tokens, as they were given: in any order, and more than once."""
        return tuple(round(value) for value in self.values)

    def check(self) -> None:
        """Raise SettingsError for a length below 1 or above MOST_LENGTH."""
        for length in self.tokens:
            if length < 1:
                raise SettingsError(f"{length} is not a number of tokens. Lengths start at 1.")
            if length > MOST_LENGTH:
                raise SettingsError(
                    f"{length:.6g} tokens are too many: a length is {MOST_LENGTH:,} at most."
                )


@dataclass(frozen=True, slots=True)
class Depths(Axis):
    """Depths in percent of the haystack; on a sigmoid scale, before the curve.

    >>> Depths.parse("0:100:3").percents()
    (0.0, 50.0, 100.0)
    """

    example = "0:100:11"
    scales = DEPTH_SCALES

    def percents(self, ends: str = "keep", digits: int | None = None) -> tuple[float, ...]:
        """Return percents, as they were given: in any order, and more than once.

        ends: on a sigmoid scale, 'keep' leaves 0 and 100 as they are, and 'squash' applies the
        curve to them. digits: decimals to keep (None: all of them; 0: rounded half to even; -1: cut
        to whole percents).
        """
        values = self.values
        if self.scale == "sigmoid":
            values = tuple(sigmoid(value, ends) for value in values)
        return tuple(_rounded(value, digits) for value in values)

    def check(self) -> None:
        """Raise SettingsError for a depth outside the haystack."""
        for depth in self.percents():
            if not 0 <= depth <= 100:
                raise SettingsError(f"{depth:g} is outside 0..100 (percent of the haystack).")


def make_grid(
    lengths: Lengths, depths: Depths, *, ends: str = "keep", depth_digits: int | None = None
) -> Grid:
    """Return the grid of two axes, each value once and in order.

    ends, depth_digits: as `Depths.percents` takes them. Raises SettingsError for more cells than a
    run may have.
    """
    given_tokens = lengths.tokens
    given_percents = depths.percents(ends, depth_digits)
    unique_tokens = sorted(set(given_tokens))
    unique_percents = sorted(set(given_percents))
    check_size(len(unique_tokens) * len(unique_percents))
    return Grid(
        lengths=tuple(unique_tokens),
        depths=tuple(value / 100 for value in unique_percents),
        duplicates=(
            len(given_tokens) - len(unique_tokens),
            len(given_percents) - len(unique_percents),
        ),
    )


def spaced(low: float, high: float, count: int) -> list[float]:
    """Return `count` values from low to high, evenly spaced.

    The last one is exactly high. A single one is low. Raises SettingsError if `count` is less than
    1 or too large.

    >>> spaced(0, 100, 3)
    [0.0, 50.0, 100.0]
    """
    if count < 1:
        raise SettingsError(f"count must be at least 1, got {count}.")
    if count > MOST_VALUES:
        raise SettingsError(f"count must be at most {MOST_VALUES:,}, got {count:,}.")
    if count == 1:
        return [float(low)]
    step = (high - low) / (count - 1)
    return [*(low + step * place for place in range(count - 1)), float(high)]


def sigmoid(value: float, ends: str = "keep") -> float:
    """Return a percentage on the logistic curve of both older tools, rounded to 3 decimals.

    100 / (1 + exp(-(x - 50) / 10)). ends 'keep': exactly 0 and 100 stay as they are.

    >>> sigmoid(25), sigmoid(0), sigmoid(0, ends="squash")
    (7.586, 0.0, 0.669)
    """
    if ends == "keep" and value in (0, 100):
        return float(value)
    return round(100 / (1 + math.exp(min(-0.1 * (value - 50), 700))), 3)


def check_size(trials: int) -> None:
    """Raise SettingsError for more trials than a run may have."""
    if trials > MOST_TRIALS:
        raise SettingsError(
            f"{trials:,} trials are too many: a run has {MOST_TRIALS:,} at most. Give fewer "
            f"lengths, depths or repeats."
        )


def _json_spec(spec: Any) -> Any:
    """Return a specification as JSON can hold it: a text, a number, a list or a dict."""
    if isinstance(spec, Mapping):
        return dict(spec)
    if isinstance(spec, Iterable) and not isinstance(spec, str | bytes):
        return list(spec)
    return spec


def _values_of_text(spec: str, scales: tuple[str, ...], example: str) -> tuple[list[float], str]:
    """Return the values and the scale that a text specifies. example: of a range, for an error."""
    span = _RANGE.fullmatch(spec.strip())
    if span:
        low, high = span.groups()
        raise SettingsError(
            f"'{spec}' is no list. Write {low},{high}, or min:max:count as {low}:{high}:5."
        )

    parts = spec.split(":")
    if len(parts) == 1:
        return _values_of_list([part for part in spec.split(",") if part.strip()]), "linear"
    if not 3 <= len(parts) <= 4:
        raise SettingsError(f"'{spec}' is not min:max:count[:scale], for instance {example}.")
    return _values_of_range(dict(zip(_KEYS, parts, strict=False)), scales)


def _values_of_list(values: Iterable[Any]) -> list[float]:
    listed = [tokens(value) for value in values]
    if not listed:
        raise SettingsError("the list is empty. Give at least one, for instance 1000,4000.")
    return listed


def _values_of_range(spec: dict[str, Any], scales: tuple[str, ...]) -> tuple[list[float], str]:
    """Return the values and the scale that a mapping specifies; a sigmoid's before the curve."""
    for key in spec:
        if key not in _KEYS:
            raise SettingsError(f"unknown key '{key}'. {did_you_mean(str(key), _KEYS)}")
    missing = [key for key in ("min", "max", "count") if spec.get(key) is None]
    if missing:
        raise SettingsError(f"{', '.join(missing)} missing. Give min, max and count, or a list.")
    scale = str(spec.get("scale") or "linear")
    if scale not in scales:
        raise SettingsError(f"unknown scale '{scale}'. {did_you_mean(scale, scales)}")

    low, high, count = (tokens(spec[key]) for key in ("min", "max", "count"))
    if count != int(count):
        raise SettingsError(f"count must be a whole number, got {count:g}.")
    if low > high:
        raise SettingsError(f"min {low:g} is above max {high:g}.")
    if not -MOST_TOKENS <= low <= high <= MOST_TOKENS:
        raise SettingsError(
            f"{low:g} to {high:g} is no range of anything. Give less than {MOST_TOKENS:g}."
        )
    if scale == "log":
        if low <= 0:
            raise SettingsError(f"a log scale needs min above 0, got {low:g}.")
        logs = spaced(math.log(low), math.log(high), int(count))
        return [math.exp(value) for value in logs], scale
    return spaced(low, high, int(count)), scale


def _rounded(value: float, digits: int | None) -> float:
    if digits is None:
        return value
    if digits < 0:
        return float(int(value))
    return float(round(value, digits))


def short_size(size: int) -> str:
    """Return a size as people type it.

    >>> short_size(8000), short_size(160), short_size(32768), short_size(4497)
    ('8k', '160', '32,768', '4,497')
    """
    if size >= 1000 and size % 1000 == 0:
        return f"{size // 1000}k"
    return f"{size:,}"
