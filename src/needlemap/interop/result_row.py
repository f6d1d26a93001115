"""A row of another tool's results, its score, and the scale of that.

Its score keeps its scale; as a share it is (native - lowest) / (highest - lowest), as our
judge counts it: the worst verdict is 0. That is linear, so a mean of native scores is lowest +
(highest - lowest) x mean share, exactly. Pictures that were published as "score times 10
percent" show a judge's lowest verdict, 1, as 10 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from needlemap.errors import NeedlemapError, SettingsError, did_you_mean
from needlemap.grid import MOST_TOKENS
from needlemap.scorers import VERDICTS, Scale
from needlemap.untrusted import clean_text, read_json

FACTS = "Fact Retrieval Across Context Lengths "


def context_title(model: str, dataset_length: str) -> str:
    """The title that OpenCompass's plotting script gives, whose --dataset_length changes
    nothing else."""
    return f'{model} {dataset_length} Context Performance\n{FACTS}("Needle In A Haystack")'


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One result. place: where it was read ("FILE, line 3"). native: its score there, None if
    it has none.

    length: in the tokens of its tool. version: which repeat, from 1. series: what else tells
    tests apart (a run's name, a data set). scale: lowest and highest native score, None if the
    file does not say. realised: depth in percent where the needle really was. error: why there
    is no score. mean: whether the score is a mean of an unknown number of answers. repeat:
    which one, from 0, where the row is a sample of a log: its versions are then the same
    prompt asked again. asked: a hash of what was asked, '' where unknown. scores: of a sample
    of a log all that it has, by metric; None where it has no number. finish: why the answer
    ended, None where unknown. suite: of which suite of
    ours its task is a family; such a row is about the whole text.
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
    repeat: int | None = None
    asked: str = ""
    scores: Mapping[str, float | None] = field(default_factory=dict)
    suite: str = ""
    finish: str | None = None


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one row in a file, read with words for what is wrong. CSV gives texts,
    JSON anything."""

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
            raise NeedlemapError(
                f"{self.place}: field '{name}' must be a number, got {value!r:.80}."
            )
        return number

    def maybe(self, name: str) -> float | None:
        """A number, or None where there is none."""
        return None if self.values.get(name) in (None, "") else self.number(name)

    def whole(self, name: str, least: int) -> int:
        """Raises NeedlemapError when the field is no whole number of at least `least`."""
        number = self.number(name)
        if not least <= number <= MOST_TOKENS or number != int(number):
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
            raise NeedlemapError(
                f"{self.place}: field '{name}' must lie in 0..100, got {number:g}."
            )
        return number

    def text(self, name: str) -> str:
        """A text; empty where there is none. Half characters, which no file can hold, become
        '?'."""
        value = self.values.get(name)
        return clean_text(str("" if value is None else value))


def parse_json(data: bytes | bytearray, place: str) -> Any:
    """The value of a JSON text of another tool's. Raises NeedlemapError."""
    try:
        return read_json(data)
    except ValueError as error:
        raise NeedlemapError(f"{place}: not readable as JSON ({error}).") from None


UNIT: Scale = (0.0, 1.0)
SCORERS = {UNIT: "substring", VERDICTS: "judge"}  # the two that needlehaystack 1 had


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


def scale_of(rows: Iterable[ResultRow], given: Scale | None) -> Scale:
    """The scale of one run's rows: as given, as their tool states it, or as their values show
    it. Raises NeedlemapError if unclear."""
    scored = [row for row in rows if row.native is not None]
    told = {row.scale for row in scored if row.scale is not None}
    if given is None and len(told) > 1:
        raise NeedlemapError(
            f"Scores of one run on several scales: {told}. Import the files one by one."
        )
    scale = given or (told.pop() if told else _seen([row.native or 0.0 for row in scored]))
    for row in scored:
        if not scale[0] <= (row.native or 0.0) <= scale[1]:
            raise NeedlemapError(
                f"{row.place}: score {row.native:g} is outside {_label(scale)}. Say the scale: "
                f"needlemap "
                f"import FILE --scale LOWEST:HIGHEST -o RUN"
            )
    return scale


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
            "All scores are 1: the best of 0..1, or the worst of a judge's 1..10? Say --scale 0:1 "
            "or 1:10."
        )
    if low >= 0 and high <= 1:
        return UNIT
    if low >= 1 and high <= VERDICTS[1]:
        return VERDICTS
    raise NeedlemapError(
        f"Scores from {low:g} to {high:g} are neither on 0..1 nor on 1..10. Say the scale: --scale "
        f"0:100"
    )


def _label(scale: Scale) -> str:
    return f"{scale[0]:g}..{scale[1]:g}"
