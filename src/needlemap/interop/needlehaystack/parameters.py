"""Define the keyword arguments of needlehaystack's testers, their cells and their files.

Defaults are those of the fork. Grids are lengths in tokens and depths in percent, rounded as numpy
rounds. Files are results/*.json, one object a cell, and contexts/*.txt, with the originals' names
and keys. A version above 1 ends in `_results_2.json`, as in their published results; their code
would overwrite version 1. Each file is written next to its place and then moved there, so a file is
never half written.
"""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from needlemap.errors import NeedlemapError, SettingsError, did_you_mean
from needlemap.files import read_regular
from needlemap.grid import DEPTH_SCALES, sigmoid, spaced
from needlemap.interop.needlehaystack.contexts import Decode, Encode
from needlemap.registry import checked
from needlemap.scorers.words import find_texts
from needlemap.tokenizers import bundled_for
from needlemap.tokenizers import load as load_tokenizer
from needlemap.untrusted import read_json

VARIANTS = ("seed", "main")
RESULTS, CONTEXTS = Path("results"), Path("contexts")
Row = dict[str, Any]
# Length in tokens, depth in percent.
Cell = tuple[int, float]
_KEYS = ("model", "context_length", "depth_percent", "needle", "score")
_UNSAFE = re.compile(r"[./\\:]")


def lengths(min: int, max: int, intervals: int) -> list[int]:
    """Return evenly spaced lengths, rounded half to even.

    Raises SettingsError if `intervals` is less than 1 or too large.

    >>> lengths(5, 7, 5)
    [5, 6, 6, 6, 7]
    """
    return [round(value) for value in _spaced(min, max, intervals)]


def depths(
    min: float,
    max: float,
    intervals: int,
    interval_type: str = "linear",
    variant: Literal["seed", "main"] = "seed",
) -> list[float]:
    """Return the depths of a schedule, in percent.

    Raises SettingsError if the type of the schedule is unknown, or if `intervals` is less than 1 or
    too large.

    interval_type: 'linear' for whole percents, rounded half to even; 'sigmoid' for a curve with 3
    decimals, on which exactly 0 and 100 stay. variant: 'seed' for a curve that rises, as in the
    original and prabha-git's fork; 'main' for one that falls, as in gkamradt's main branch, in
    which a sign was lost.

    >>> depths(0, 50, 3), depths(0, 50, 3, "sigmoid"), depths(0, 50, 3, "sigmoid", "main")
    ([0, 25, 50], [0.0, 7.586, 50.0], [0.0, 92.414, 50.0])
    """
    if interval_type not in DEPTH_SCALES:
        raise SettingsError(
            f"Unknown interval type '{interval_type}'. {did_you_mean(interval_type, DEPTH_SCALES)}"
        )
    if variant not in VARIANTS:
        raise SettingsError(f"Unknown variant '{variant}'. {did_you_mean(variant, VARIANTS)}")
    linear = _spaced(min, max, intervals)
    if interval_type == "linear":
        return [round(value) for value in linear]
    curve = sigmoid if variant == "seed" else _falling
    return [curve(value) for value in linear]


def _falling(value: float) -> float:
    return value if value in (0, 100) else sigmoid(100 - value)


def _spaced(low: float, high: float, count: int) -> list[float]:
    if count < 1:
        raise SettingsError(f"intervals must be at least 1, got {count}.")
    return spaced(low, high, count)


NEEDLE = (
    "\nThe best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny "
    "day.\n"
)
QUESTION = "What is the best thing to do in San Francisco?"
# The originals count tokens of gpt-4, whose tokenizer this is.
SEED_TOKENIZER = "cl100k_base"

_OWN_TOKENS = (("get_encoding", "get_decoding"), ("encode_text_to_tokens", "decode_tokens"))
KEYS = ("openai_api_key", "anthropic_api_key")


@dataclass(kw_only=True)
class Parameters:
    """The keyword arguments of a tester. Lengths are in tokens, depths in percent.

    Keys are held in memory only. The originals do not have these:

    Attributes:
        base_url: Any compatible server.
        judge_model: 'backend/name', for evaluation_method 'gpt4'.
        judge_base_url: The judge's server.
        tokenizer: A name or path; by default the model's own if it is bundled, else gpt-4's.
        template: A chat template's name.
        temperature: None if it is not sent.
    """

    model_name: str = ""
    needle: str = NEEDLE
    haystack_dir: str = "PaulGrahamEssays"
    retrieval_question: str = QUESTION
    results_version: int = 1
    context_lengths_min: int = 1000
    context_lengths_max: int = 200_000
    context_lengths_num_intervals: int = 35
    context_lengths: list[int] | None = None
    document_depth_percent_min: float = 0
    document_depth_percent_max: float = 100
    document_depth_percent_intervals: int = 35
    document_depth_percents: list[float] | None = None
    document_depth_percent_interval_type: Literal["linear", "sigmoid"] | None = "linear"
    num_concurrent_requests: int = 1
    save_results: bool = True
    save_contexts: bool = True
    final_context_length_buffer: int = 200
    seconds_to_sleep_between_completions: float | None = None
    print_ongoing_status: bool = True
    evaluation_method: Literal["gpt4", "substring_match", "substring_method"] = "gpt4"
    substr_validation_words: list[str] = field(default_factory=lambda: ["dolores", "sandwich"])
    openai_api_key: str | None = field(default=None, repr=False)
    anthropic_api_key: str | None = field(default=None, repr=False)
    base_url: str | None = None
    judge_model: str = "openai/gpt-4"
    judge_base_url: str | None = None
    tokenizer: str | None = None
    template: str = "chat-en"
    temperature: float | None = 0.0

    @classmethod
    def checked(cls, options: Mapping[str, Any], kind: str) -> dict[str, Any]:
        """Return keyword arguments, converted to the types of the parameters.

        Blanks around keys are removed. Raises SettingsError if an argument is unknown or cannot be
        converted, or if a key holds a character that no key has.

        kind: the class that takes them, which the error names.
        """
        return checked(Parameters, {**options, **_keys(options)}, kind)

    def check(self) -> None:
        """Raise SettingsError for values that cannot work."""
        self._check_values()
        self._check_words()
        self._check_cells()

    @property
    def own_tokens(self) -> tuple[Encode, Decode] | None:
        """Return functions from text to tokens and back, or None if no derived class has any."""
        for encode, decode in _OWN_TOKENS:
            if self.defines(encode, decode):
                return getattr(self, encode), getattr(self, decode)
        return None

    def defines(self, *names: str) -> bool:
        """Return True if a derived class defines one of these methods."""
        return False

    def logistic(self, x: float) -> float:
        """Return the depth of a sigmoid schedule for `x` percent of a linear one."""
        return sigmoid(x)

    @property
    def judged(self) -> bool:
        """Return True if a judge scores from 1 to 10, and False if words score 0 or 1."""
        return self.evaluation_method == "gpt4"

    @property
    def tokenizer_name(self) -> str:
        """Return the name or path of the tokenizer that lengths are counted with."""
        return self.tokenizer or bundled_for(self.model_name) or SEED_TOKENIZER

    @property
    def lengths(self) -> list[int]:
        """Return the context lengths to test."""
        if self.context_lengths is not None:
            return self.context_lengths
        return lengths(
            self.context_lengths_min,
            self.context_lengths_max,
            intervals=self.context_lengths_num_intervals,
        )

    @property
    def depths(self) -> list[float]:
        """Return the depths to test. Raises SettingsError if none are given."""
        if self.document_depth_percents is not None:
            return self.document_depth_percents

        interval_type = self.document_depth_percent_interval_type
        if interval_type is None:
            raise SettingsError(
                "Give document_depth_percents, or an interval type: 'linear' or 'sigmoid'."
            )
        low = self.document_depth_percent_min
        high = self.document_depth_percent_max
        intervals = self.document_depth_percent_intervals
        if interval_type == "sigmoid" and self.defines("logistic"):
            return [float(self.logistic(value)) for value in _spaced(low, high, intervals)]
        return depths(low, high, intervals=intervals, interval_type=interval_type)

    @property
    def cells(self) -> list[Cell]:
        """Return each cell once, with lengths in the outer loop, as in the originals."""
        cells = [(length, float(depth)) for length in self.lengths for depth in self.depths]
        return list(dict.fromkeys(cells))

    def _check_values(self) -> None:
        for name in ("model_name", "needle", "haystack_dir", "retrieval_question"):
            if not getattr(self, name).strip():
                raise SettingsError(f"{name} is missing.")
        for name in ("num_concurrent_requests", "results_version"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if (self.seconds_to_sleep_between_completions or 0) < 0:
            raise SettingsError("seconds_to_sleep_between_completions must not be negative.")

    def _check_words(self) -> None:
        if self.judged:
            return
        _, missing = find_texts(self.needle, self.substr_validation_words, rule="ruler")
        if missing or not self.substr_validation_words:
            raise SettingsError(
                f"substr_validation_words must occur in the needle; it lacks: "
                f"{', '.join(missing) or 'any'}."
            )

    def _check_cells(self) -> None:
        reserved = self.final_context_length_buffer + self._needle_tokens()
        for length, depth in self.cells:
            if not 0 <= depth <= 100:
                raise SettingsError(f"Depths must lie in 0..100 (percent), got {depth}.")
            if length <= reserved:
                raise SettingsError(
                    f"A context length of {length} leaves no room: buffer and needle need "
                    f"{reserved}."
                )
        if not self.cells:
            raise SettingsError(
                "context_lengths and document_depth_percents must each hold a value."
            )
        shared = shared_names(self.model_name, self.cells) if self.save_results else []
        if shared:
            raise SettingsError(
                f"Depths too near to each other share a result file: {shared[0]}. Spread them by "
                f"0.01."
            )

    def _needle_tokens(self) -> int:
        if self.own_tokens:
            encode, _ = self.own_tokens
            return len(encode(self.needle))
        return len(load_tokenizer(self.tokenizer_name).index(self.needle.encode()))


def _keys(options: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the keys as they are sent, or None if empty.

    Raises SettingsError, whose message never shows a key.
    """
    keys: dict[str, str | None] = {}
    for name in KEYS:
        value = options.get(name)
        if value is not None and not isinstance(value, str):
            raise SettingsError(f"{name} must be text, got {type(value).__name__}.")
        key = (value or "").strip()
        if not key.isascii() or not key.isprintable():
            raise SettingsError(f"{name} holds a character that no key has. Copy it again.")
        keys[name] = key or None
    return keys


def stem(model: str, length: int, depth: float) -> str:
    """Return a cell's file name without its ending.

    depth: in percent; the name keeps two decimals.

    >>> stem("org/gpt-3.5", 1000, 12.5)
    'org_gpt-3_5_len_1000_depth_1250'
    """
    return f"{_UNSAFE.sub('_', model)}_len_{length}_depth_{int(depth * 100)}"


def result_file(name: str, version: int) -> Path:
    """Return the path of a cell's result. name: its `stem`."""
    suffix = "" if version == 1 else f"_{version}"
    return RESULTS / f"{name}_results{suffix}.json"


def context_file(name: str) -> Path:
    """Return the path of a cell's context. name: its `stem`."""
    return CONTEXTS / f"{name}_context.txt"


def earlier(model: str, version: int) -> dict[Cell, Row]:
    """Return a model's results of a version, by length and depth.

    The folder is read once. Files that cannot be read are left out with a warning, and files that
    are not results without one.
    """
    rows = [_row(file) for file in sorted(RESULTS.glob("*.json"))]
    return {
        (row["context_length"], row["depth_percent"]): row
        for row in rows
        if row and row["model"] == model and row.get("version", 1) == version
    }


def shared_names(model: str, cells: Iterable[Cell]) -> list[str]:
    """Return the file names that several cells have: only the last one's answer would remain."""
    counts = Counter(stem(model, length, depth) for length, depth in cells)
    return [name for name, count in counts.items() if count > 1]


def write(file: Path, text: str) -> None:
    """Write a whole file or, if that fails, nothing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8", errors="replace", newline="")
    temporary.replace(file)


def _row(file: Path) -> Row | None:
    try:
        row = read_json(read_regular(file))
    except (OSError, ValueError, NeedlemapError) as error:
        warnings.warn(f"{file} cannot be read and is left out: {error}", stacklevel=5)
        return None
    if not isinstance(row, dict) or any(key not in row for key in _KEYS):
        return None
    return row
