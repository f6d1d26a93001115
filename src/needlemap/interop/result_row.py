"""Define a row of another tool's results, its fields, and the scale of its score.

A score keeps its scale. As a share it is (native - lowest) / (highest - lowest), as our judge
counts it, so the worst verdict is 0. That is linear, so a mean of native scores is lowest +
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
    """Return the title of OpenCompass's plotting script.

    dataset_length: the script's --dataset_length, which changes nothing else.
    """
    return f'{model} {dataset_length} Context Performance\n{FACTS}("Needle In A Haystack")'


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One result of another tool.

    Attributes:
        place: Where it was read, e.g. "FILE, line 3".
        length: In the tokens of its tool.
        native: Its score there, or None if it has none.
        version: The repeat, from 1.
        series: What else keeps tests apart, e.g. a run's name or a data set.
        scale: Lowest and highest native score, or None if the file does not show them.
        realised: Depth of the needle in the prompt, in percent.
        error: Why there is no score.
        mean: True if the score is a mean of an unknown number of answers.
        repeat: The repeat, from 0, if the row is a sample of a log. Its versions are then the same
            prompt sent again.
        asked: A hash of the prompt, or '' if unknown.
        scores: All scores of a sample of a log, by metric; None if one is not a number.
        suite: The suite of ours of which the task is a family. Such a row is about the whole text.
        finish: Why the answer ended, or None if unknown.
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
    """The fields of one row of a file. Methods raise NeedlemapError, which names what is wrong.

    Attributes:
        values: Values by name. Those of CSV are texts, those of JSON anything.
        place: Where the row was read.
    """

    values: Mapping[str, Any]
    place: str

    def number(self, name: str) -> float:
        """Return the number in a field.

        Raises NeedlemapError if the field is missing, or is not a finite number.
        """
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
        """Return the number in a field, or None if the field is missing or empty.

        Raises NeedlemapError if the field holds anything else.
        """
        return None if self.values.get(name) in (None, "") else self.number(name)

    def whole_number(self, name: str, least: int) -> int:
        """Return the whole number in a field.

        Raises NeedlemapError if the field is missing, or does not hold a whole number of at least
        `least` and at most MOST_TOKENS.
        """
        number = self.number(name)
        if not least <= number <= MOST_TOKENS or number != int(number):
            raise NeedlemapError(
                f"{self.place}: field '{name}' must be a whole number from {least}, got {number:g}."
            )
        return int(number)

    def maybe_whole(self, name: str) -> int | None:
        """Return the whole number in a field, or None if the field is missing or empty.

        Raises NeedlemapError if the field holds anything else, or a number below 0.
        """
        return None if self.values.get(name) in (None, "") else self.whole_number(name, 0)

    def depth(self, name: str) -> float:
        """Return the percentage in a field.

        Raises NeedlemapError if the field is missing, or does not hold a number from 0 to 100.
        """
        number = self.number(name)
        if not 0 <= number <= 100:
            raise NeedlemapError(
                f"{self.place}: field '{name}' must lie in 0..100, got {number:g}."
            )
        return number

    def text(self, name: str) -> str:
        """Return the text in a field, or '' if the field is missing or empty.

        Half of a character, which a file cannot hold, becomes '?'.
        """
        value = self.values.get(name)
        return clean_text(str("" if value is None else value))


def parse_json(data: bytes | bytearray, place: str) -> Any:
    """Return the value of another tool's JSON.

    Raises NeedlemapError, which names the place, if it is not JSON.
    """
    try:
        return read_json(data)
    except ValueError as error:
        raise NeedlemapError(f"{place}: not readable as JSON ({error}).") from None


UNIT: Scale = (0.0, 1.0)
# The two scorers of needlehaystack 1, by scale.
SCORERS = {UNIT: "substring", VERDICTS: "judge"}


def parsed_scale(text: str) -> Scale:
    """Return a typed scale.

    Raises SettingsError if the text is not LOWEST:HIGHEST.

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
    """Return the scale of one run's rows: the given one, the tool's, or one that the scores show.

    The first of these that is known is taken. Raise NeedlemapError if none is.
    """
    scored = [row for row in rows if row.native is not None]
    stated = {row.scale for row in scored if row.scale is not None}
    if given is None and len(stated) > 1:
        raise NeedlemapError(
            f"Scores of one run on several scales: {stated}. Import the files one by one."
        )
    if given is not None:
        scale = given
    elif stated:
        scale = stated.pop()
    else:
        scale = _scale_from([row.native or 0.0 for row in scored])
    low, high = scale
    for row in scored:
        if not low <= (row.native or 0.0) <= high:
            raise NeedlemapError(
                f"{row.place}: score {row.native:g} is outside {_label(scale)}. Say the scale: "
                f"needlemap "
                f"import FILE --scale LOWEST:HIGHEST -o RUN"
            )
    return scale


def native_mean(mean_share: float, scale: Scale) -> float:
    """Return the mean native score of a mean share.

    >>> native_mean(0.5, (1.0, 10.0))
    5.5
    """
    low, high = scale
    return low + (high - low) * mean_share


def _scale_from(natives: list[float]) -> Scale:
    """Return the scale that scores show. Raises NeedlemapError if several are possible."""
    if not natives:
        return UNIT
    low = min(natives)
    high = max(natives)
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
    low, high = scale
    return f"{low:g}..{high:g}"
