"""The keyword arguments of the needlehaystack family's testers, with the fork's defaults;
cells and files.

Grids are lengths in tokens and depths in percent, rounded as numpy rounds. Files are
results/*.json, one object a cell, and contexts/*.txt, with the originals' names and keys. A
version above 1 ends in `_results_2.json`, as in their published results, where their code
would overwrite version 1. Each file is written beside its place and then moved there.
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
Cell = tuple[int, float]  # length in tokens, depth in percent
_KEYS = ("model", "context_length", "depth_percent", "needle", "score")
_UNSAFE = re.compile(r"[./\\:]")


def lengths(min: int, max: int, intervals: int) -> list[int]:
    """Evenly spaced, rounded half to even.

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
    """'linear': whole percents, rounded half to even. 'sigmoid': 3 decimals; exactly 0 and 100
    stay.

    variant 'seed': the curve rises, as in the original and prabha-git's fork. 'main': it
    falls, as in gkamradt's main branch, where a sign was lost.

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
SEED_TOKENIZER = "cl100k_base"  # gpt-4's, in whose tokens the originals count


_OWN_TOKENS = (("get_encoding", "get_decoding"), ("encode_text_to_tokens", "decode_tokens"))
KEYS = ("openai_api_key", "anthropic_api_key")


@dataclass(kw_only=True)
class Parameters:
    """Lengths in tokens, depths in percent.

    Of our own: base_url (any compatible server); judge_model ('backend/name') and
    judge_base_url, for evaluation_method 'gpt4'; tokenizer (a name or path; default: the
    model's own where it is bundled, else gpt-4's); template (a chat template's name);
    temperature (None: not sent). Keys are held in memory only.
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
        """Keyword arguments with their types. kind: whose, for the error. Raises
        SettingsError."""
        return checked(Parameters, {**options, **_keys(options)}, kind)

    def check(self) -> None:
        """Raises SettingsError for what cannot work."""
        self._check_values()
        self._check_words()
        self._check_cells()

    @property
    def own_tokens(self) -> tuple[Encode, Decode] | None:
        """To tokens and back, where a derived class has methods for it."""
        for names in _OWN_TOKENS:
            if self.defines(*names):
                return getattr(self, names[0]), getattr(self, names[1])
        return None

    def defines(self, *names: str) -> bool:
        """Whether a derived class has one of these methods of its own."""
        return False

    def logistic(self, x: float) -> float:
        """The depth of a sigmoid schedule that stands at `x` percent of a linear one."""
        return sigmoid(x)

    @property
    def judged(self) -> bool:
        """Scored by a judge from 1 to 10 (True), or by words: 0 or 1."""
        return self.evaluation_method == "gpt4"

    @property
    def tokenizer_name(self) -> str:
        """Whose tokens lengths count."""
        return self.tokenizer or bundled_for(self.model_name) or SEED_TOKENIZER

    @property
    def lengths(self) -> list[int]:
        """The context lengths to test."""
        spread = (
            self.context_lengths_min,
            self.context_lengths_max,
            self.context_lengths_num_intervals,
        )
        return lengths(*spread) if self.context_lengths is None else self.context_lengths

    @property
    def depths(self) -> list[float]:
        """The depths to test."""
        if self.document_depth_percents is not None:
            return self.document_depth_percents
        if self.document_depth_percent_interval_type is None:
            raise SettingsError(
                "Give document_depth_percents, or an interval type: 'linear' or 'sigmoid'."
            )
        spread = (
            self.document_depth_percent_min,
            self.document_depth_percent_max,
            self.document_depth_percent_intervals,
        )
        if self.document_depth_percent_interval_type == "sigmoid" and self.defines("logistic"):
            return [float(self.logistic(value)) for value in _spaced(*spread)]
        return depths(*spread, self.document_depth_percent_interval_type)

    @property
    def cells(self) -> list[Cell]:
        """Lengths in the outer loop, as in the originals; a cell that occurs twice is asked
        once."""
        return list(
            dict.fromkeys(
                (length, float(depth)) for length in self.lengths for depth in self.depths
            )
        )

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
        least = self.final_context_length_buffer + self._needle_tokens()
        for length, depth in self.cells:
            if not 0 <= depth <= 100:
                raise SettingsError(f"Depths must lie in 0..100 (percent), got {depth}.")
            if length <= least:
                raise SettingsError(
                    f"A context length of {length} leaves no room: buffer and needle need {least}."
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
            return len(self.own_tokens[0](self.needle))
        return len(load_tokenizer(self.tokenizer_name).index(self.needle.encode()))


def _keys(options: Mapping[str, Any]) -> dict[str, str | None]:
    """The keys as they are sent. Raises SettingsError, which never shows one."""
    found: dict[str, str | None] = {}
    for name in KEYS:
        key = options.get(name)
        if key is not None and not isinstance(key, str):
            raise SettingsError(f"{name} must be text, got {type(key).__name__}.")
        found[name] = (key or "").strip() or None
        if not (found[name] or "").isascii() or not (found[name] or "").isprintable():
            raise SettingsError(f"{name} holds a character that no key has. Copy it again.")
    return found


def stem(model: str, length: int, depth: float) -> str:
    """A cell's file name without its ending; depth in percent, kept to its second decimal.

    >>> stem("org/gpt-3.5", 1000, 12.5)
    'org_gpt-3_5_len_1000_depth_1250'
    """
    return f"{_UNSAFE.sub('_', model)}_len_{length}_depth_{int(depth * 100)}"


def result_file(name: str, version: int) -> Path:
    """Where a cell's result goes."""
    return RESULTS / f"{name}_results{'' if version == 1 else f'_{version}'}.json"


def context_file(name: str) -> Path:
    """Where a cell's context goes."""
    return CONTEXTS / f"{name}_context.txt"


def earlier(model: str, version: int) -> dict[Cell, Row]:
    """A model's results of a version by (length, depth): the folder is read once.

    Files that cannot be read are left out with a warning; those that are no results are passed
    over.
    """
    rows = [row for file in sorted(RESULTS.glob("*.json")) if (row := _row(file))]
    return {
        (row["context_length"], row["depth_percent"]): row
        for row in rows
        if (row["model"], row.get("version", 1)) == (model, version)
    }


def shared_names(model: str, cells: Iterable[Cell]) -> list[str]:
    """File names that more than one cell would have, which would leave only the last one's
    answer."""
    counted = Counter(stem(model, *cell) for cell in cells)
    return [name for name, count in counted.items() if count > 1]


def write(file: Path, text: str) -> None:
    """The whole file or none of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8", errors="replace", newline="")
    beside.replace(file)


def _row(file: Path) -> Row | None:
    try:
        row = read_json(read_regular(file))
    except (OSError, ValueError, NeedlemapError) as error:
        warnings.warn(f"{file} cannot be read and is left out: {error}", stacklevel=5)
        return None
    return row if isinstance(row, dict) and all(key in row for key in _KEYS) else None
