"""A row: one result as another tool wrote it, with what is known of it. Nothing is filled in by guessing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from needlemap.errors import NeedlemapError, did_you_mean

Scale = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Row:
    """One result. place: where it was read ("FILE, line 3"). native: its score there, None if it has none.

    length: in the tokens of its tool. version: which repeat, from 1. series: what else tells tests apart (a
    run's name, a data set). scale: lowest and highest native score, None if the file does not say. realised:
    depth in percent where the needle really was. error: why there is no score. mean: whether the score is a
    mean of nobody knows how many answers.
    """

    place: str
    length: int
    depth_percent: float
    native: float | None
    model: str = ""
    version: int = 1
    series: str = ""
    task: str = "single"
    scorer: str = ""
    scale: Scale | None = None
    tokenizer: str = ""
    needle: str = ""
    question: str = ""
    reference: str = ""
    answer: str | None = None
    realised: float | None = None
    error: str = ""
    mean: bool = False
    answered_by: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    usd: float | None = None
    latency_s: float | None = None
    finished_at: str = ""


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one row in a file, read with words for what is wrong. CSV gives texts, JSON anything."""

    values: Mapping[str, Any]
    place: str

    def number(self, name: str) -> float:
        """Raises NeedlemapError when the field is missing or no finite number."""
        if name not in self.values:
            hint = did_you_mean(name, map(str, self.values)) if self.values else ""
            raise NeedlemapError(f"{self.place}: no field '{name}'. {hint}".rstrip())
        value = self.values[name]
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise NeedlemapError(f"{self.place}: field '{name}' must be a number, got {value!r:.80}.")
        return number

    def maybe(self, name: str) -> float | None:
        """A number, or None where there is none."""
        return None if self.values.get(name) in (None, "") else self.number(name)

    def whole(self, name: str, least: int) -> int:
        """Raises NeedlemapError when the field is no whole number of at least `least`."""
        number = self.number(name)
        if number != int(number) or number < least:
            raise NeedlemapError(
                f"{self.place}: field '{name}' must be a whole number from {least}, got {number:g}."
            )
        return int(number)

    def maybe_whole(self, name: str) -> int | None:
        """A whole number from 0, or None where there is none."""
        return None if self.values.get(name) in (None, "") else self.whole(name, 0)

    def depth(self, name: str) -> float:
        """Raises NeedlemapError when the field is no percentage."""
        number = self.number(name)
        if not 0 <= number <= 100:
            raise NeedlemapError(f"{self.place}: field '{name}' must lie in 0..100, got {number:g}.")
        return number

    def text(self, name: str) -> str:
        """A text; empty where there is none. Half characters, which no file can hold, become '?'."""
        value = self.values.get(name)
        return str("" if value is None else value).encode("utf-8", "replace").decode("utf-8")
