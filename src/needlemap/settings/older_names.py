"""The older tools' names for our settings: the one table, also printed in docs/from-opencompass.md.

A name is translated before settings are checked, in YAML and on the command line alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from needlemap.errors import SettingsError, did_you_mean
from needlemap.registry import installed

Raw = dict[str, Any]
REFUSED = "environment"  # where the table sends what no setting may hold


@dataclass(frozen=True, slots=True)
class SeedName:
    """One older name: its tool, and our setting in words.

    carry: how a value is carried over (settings so far, value); None: `ours` has it as it is.
    partial: it sets a part of the setting only, so that others of its kind may stand beside
    it. words: behind its flag stand several.
    """

    name: str
    tool: str
    ours: str
    carry: Callable[[Raw, Any], Raw] | None = None
    partial: bool = False
    words: bool = False

    @property
    def setting(self) -> str:
        """The first of our settings that it gives; REFUSED for a key, which is none."""
        return re.split(r"\W", self.ours)[0]

    def carried(self, raw: Raw, value: Any) -> Raw:
        """Our settings of a value. Raises SettingsError."""
        return self.carry(raw, value) if self.carry else {self.ours: value}


def _part(ours: str, key: str) -> Callable[[Raw, Any], Raw]:
    """One key of a {min, max, count, scale}; the others stay as they are, or begin as the
    older tool's."""
    start = _STARTS[ours]
    return lambda raw, value: {
        ours: {**(raw[ours] if isinstance(raw.get(ours), dict) else start), key: value}
    }


def _scorer(raw: Raw, value: Any) -> Raw:
    methods = {"gpt4": "judge", "substring_match": "substring", "substring_method": "substring"}
    if str(value) not in methods:
        raise SettingsError(
            f"Unknown evaluation_method '{value}'. {did_you_mean(str(value), methods)}"
        )
    if value == "gpt4":
        return {"scorer": "judge"}
    own = _mapping(raw, "scorer_options") if raw.get("scorer", "substring") == "substring" else {}
    return {"scorer": "substring", "scorer_options": {**own, "anywhere": True}}


def _trim(raw: Raw, value: Any) -> Raw:
    return {"scorer_options": {**_mapping(raw, "scorer_options"), "trim": value}}


def _mapping(raw: Raw, setting: str) -> Raw:
    found = raw.get(setting, {})
    if not isinstance(found, dict):
        raise SettingsError(
            f"Setting '{setting}' takes a mapping of names to values, got {found!r}."
        )
    return found


def _source(kind: str) -> Callable[[Raw, Any], Raw]:
    return lambda _raw, value: {"haystack": kind, "haystack_path": value}


def _model(_raw: Raw, value: Any) -> Raw:
    if isinstance(value, list | tuple | dict):
        raise SettingsError(f"model_name is one model's name, got {value!r}. Several: 'model'.")
    name = str(value)
    if name.partition("/")[0] in installed("models"):  # it names its back end, as ours do
        return {"model": name}
    return {"model": f"anthropic/{name}" if "claude" in name.lower() else f"openai/{name}"}


def _position(_raw: Raw, value: Any) -> Raw:
    return {"question_position": str(value).lower()}


def _version(_raw: Raw, value: Any) -> Raw:
    try:
        return {"first_repeat": int(value) - 1}
    except (TypeError, ValueError):
        raise SettingsError(
            f"results_version is a whole number from 1 on, got {value!r}."
        ) from None


def _no_key(_raw: Raw, _value: Any) -> Raw:
    raise SettingsError(
        "API keys are read from the environment only: set OPENAI_API_KEY or ANTHROPIC_API_KEY, and "
        "leave "
        "the key out of settings and command lines, where others can read it."
    )


def _words(_raw: Raw, value: Any) -> Raw:
    return {"keywords": value if isinstance(value, list) else [str(value)]}


def _exact(raw: Raw, value: Any) -> Raw:
    """Depths that needlehaystack does not round to whole percents, as it does evenly spaced
    ones."""
    kept = {"depth_rounding": "none"} if raw.get("depth_rounding") == "round" else {}
    return {"depths": value, **kept}


def _scale(raw: Raw, value: Any) -> Raw:
    found = _part("depths", "scale")(raw, value)
    return {**_exact(raw, found["depths"]), **found} if value == "sigmoid" else found


_STARTS = {  # needlehaystack's own, where one key of them is given
    "lengths": {"min": 1000, "max": 200_000, "count": 35},
    "depths": {"min": 0, "max": 100, "count": 35},
}
_N, _O = "needlehaystack", "OpenCompass"
_BOTH = f"{_N}, {_O}"

# Without a preset, a tool's own names for lengths, depths or haystack bring the rules that these go
# by there.
_GRID, _HAYSTACK = ("lengths", "depths", "reserve_tokens"), ("haystack=",)
RULES: dict[str, dict[tuple[str, ...], Raw]] = {
    _N: {
        _GRID: {
            "counts": "context",
            "reserve_tokens": 200,
            "placement": "period",
            "depth_rounding": "round",
        },
        _HAYSTACK: {"order": "listed", "joined": "text", "haystack_repeat": True},
    },
    _O: {
        _GRID: {
            "tokenizer": "gpt-4",
            "counts": "context",
            "reserve_tokens": 200,
            "placement": "token",
            "depth_rounding": "truncate",
            "sigmoid_ends": "squash",
        },
        _HAYSTACK: {"order": "cumulative", "joined": "tokens"},
    },
}
PRESETS_OF = {_N: "'needlemap run needlehaystack'", _O: "'needlemap run cdme-8k'"}
PRESETS_OF[_BOTH] = " or ".join(PRESETS_OF.values())
_MISTYPED = {"length", "depth"}  # OpenCompass's, but alone they may be ours with a letter missing
# What stands in OpenCompass's configs and is no setting here: what to write instead.
ELSEWHERE = {
    "abbr": "a model's short name is 'label'; a data set's is made of length and depth",
    "type": (
        "a data set is 'task' and 'haystack'; a model's kind stands before the slash of 'model'"
    ),
    "reader_cfg": "leave it out: there are no columns to name",
    "infer_cfg": (
        "the prompt is 'template' (needlemap help templates), the budget 'max_answer_tokens'"
    ),
    "eval_cfg": "'scorer' and 'scorer_options' (needlemap help scorers)",
    "meta_template": "the model's chat template, or 'template' (needlemap help templates)",
    "max_seq_len": "'model_options: {session_len: N}' for lmdeploy (needlemap help models)",
    "model_kwargs": "'model_options', as device_map=auto (needlemap help models)",
    "engine_config": "'model_options' (needlemap help models)",
    "generation_kwargs": "'temperature', and 'request' for other fields (needlemap help models)",
    "gen_config": "'temperature', and 'request' for other fields (needlemap help models)",
    "tokenizer_path": "'tokenizer' (needlemap help tokenizers)",
    "tokenizer_kwargs": (
        "leave it out: a vocabulary is read from its file (needlemap help tokenizers)"
    ),
    "batch_padding": "leave it out: no prompt is padded",
    "batch_size": "'concurrency' (needlemap help models)",
    "end_str": "'request: {stop: [WORD]}' (needlemap help models)",
    "run_cfg": "the flag --gpus-per-worker (needlemap help cluster)",
    "datasets": "one file of settings, with 'lengths' and 'depths'",
    "models": "one file of settings for each model, with 'model'",
    "summarizer": "leave it out: 'needlemap report' shows any run (needlemap help report)",
    "work_dir": "the flag -o FOLDER",
}
# Flags of its scripts that are other things there, by the command that does the same here.
_SCRIPTS = {
    "report": {"path": "the files themselves, as in: needlemap report a.csv b.csv -o both.png"},
}

TABLE: tuple[SeedName, ...] = (
    SeedName("haystack_dir", _N, "haystack=txt, haystack_path", _source("txt")),
    SeedName("retrieval_question", _BOTH, "question"),
    SeedName("results_version", _N, "first_repeat (version 1 is repeat 0)", _version),
    SeedName("context_lengths_min", _N, "lengths (min)", _part("lengths", "min"), True),
    SeedName("context_lengths_max", _N, "lengths (max)", _part("lengths", "max"), True),
    SeedName(
        "context_lengths_num_intervals", _N, "lengths (count)", _part("lengths", "count"), True
    ),
    SeedName("context_lengths", _BOTH, "lengths", words=True),
    SeedName("document_depth_percent_min", _N, "depths (min)", _part("depths", "min"), True),
    SeedName("document_depth_percent_max", _N, "depths (max)", _part("depths", "max"), True),
    SeedName(
        "document_depth_percent_intervals",
        _BOTH,
        "depths (count)",
        _part("depths", "count"),
        True,
    ),
    SeedName("document_depth_percent_interval_type", _BOTH, "depths (scale)", _scale, True),
    SeedName("document_depth_percents", _N, "depths", _exact, words=True),
    SeedName("model_name", _N, "model", _model),
    SeedName("save_results", _N, "save"),
    SeedName("openai_api_key", _N, "environment variable OPENAI_API_KEY", _no_key),
    SeedName("anthropic_api_key", _N, "environment variable ANTHROPIC_API_KEY", _no_key),
    SeedName("num_concurrent_requests", _N, "concurrency"),
    SeedName("final_context_length_buffer", _N, "reserve_tokens"),
    SeedName(
        "seconds_to_sleep_between_completions", _N, "pause_s", lambda _, v: {"pause_s": v or 0}
    ),
    SeedName(
        "print_ongoing_status", _N, "quiet (the opposite)", lambda _, v: {"quiet": _negated(v)}
    ),
    SeedName("evaluation_method", _N, "scorer: judge, or substring anywhere=true", _scorer),
    SeedName("substr_validation_words", _N, "keywords", _words, words=True),
    SeedName("path", _O, "haystack=jsonl, haystack_path", _source("jsonl")),
    SeedName("length", _O, "lengths", words=True),
    SeedName("depth", _O, "depths", words=True),
    SeedName("tokenizer_model", _O, "tokenizer"),
    SeedName("num_repeats_per_file", _O, "repeats"),
    SeedName("num_records_per_file", _O, "repeats"),
    SeedName("length_buffer", _O, "reserve_tokens"),
    SeedName("guided", _O, "guide"),
    SeedName("keyword", _O, "keywords", _words, words=True),
    SeedName("position", _O, "question_position", _position),
    SeedName("use_trim", _O, "scorer_options trim", _trim, True),
    SeedName("max_out_len", _O, "max_answer_tokens"),
)
BY_NAME = {row.name: row for row in TABLE}


def explained(name: str, where: str, command: str = "") -> str:
    """What to say of a name that no setting and no flag has: '' where no older tool has it either.
    where: it stands there. command: whose flag it would be.

    >>> explained("abbr", "in x.yaml")[:48], explained("lenght", "in x.yaml")
    ("'abbr' in x.yaml is OpenCompass's. Here: a model", '')
    """
    ours = _SCRIPTS.get(command, {}).get(name) or ELSEWHERE.get(name)
    if ours:
        return (
            f"'{name}' {where} is OpenCompass's. Here: {ours}. See needlemap help from-opencompass."
        )
    row = BY_NAME.get(name)
    if row is None or not command:
        return ""
    tools = row.tool.replace(", ", " and ")
    return (
        f"'{name}' {where} is {tools}'s. Here: {row.ours}, of needlemap run and not of needlemap "
        f"{command}. See needlemap help from-opencompass."
    )


def translate(raw: Mapping[str, Any], settled: Mapping[str, Any]) -> Raw:
    """Settings with older names replaced by ours. settled: what earlier sources (a preset)
    already set.

    None under an older name is that tool's 'not given'. Raises SettingsError when two names of
    one setting are given.
    """
    ours: Raw = {key: value for key, value in raw.items() if key not in BY_NAME}
    carried: Raw = {}
    givers: dict[str, SeedName] = {}
    for row in (BY_NAME[key] for key, value in raw.items() if key in BY_NAME and value is not None):
        for setting, found in row.carried({**settled, **ours, **carried}, raw[row.name]).items():
            other = givers.get(setting)
            if setting in ours and not _adds(found, ours[setting]):
                raise SettingsError(
                    f"'{row.name}' and '{setting}' mean the same setting. Give one of them."
                )
            if other is not None and not (row.partial and other.partial):
                raise SettingsError(
                    f"'{row.name}' and '{other.name}' mean the same. Give one of them."
                )
            carried[setting], givers[setting] = found, row
    return {**ours, **carried}


def value_of(raw: Mapping[str, Any], setting: str) -> Any:
    """What settings say of one under any of its names; None where they say nothing. Raises
    SettingsError.

    >>> value_of({"model_name": "gpt-4"}, "model"), value_of({"model": "demo/reader"}, "model")
    ('openai/gpt-4', 'demo/reader')
    """
    return raw.get(setting) if BY_NAME.keys().isdisjoint(raw) else translate(raw, {}).get(setting)


def settings_in(raw: Mapping[str, Any]) -> set[str]:
    """Our names of what is given. Raises SettingsError.

    >>> sorted(settings_in({"num_concurrent_requests": 2, "seed": 1}))
    ['concurrency', 'seed']
    """
    return {*translate(raw, {})}


@dataclass(frozen=True, slots=True)
class Implied:
    """What older names bring where no preset is named: a tool's rules, by the names that bring
    them, and all other names by their tool, whose preset is to be named for more."""

    tool: str
    names: tuple[str, ...]
    rules: Raw
    others: Mapping[str, tuple[str, ...]]

    def note(self, settings: Mapping[str, Any]) -> str:
        """In a line: those of the rules that the settings hold, and the presets of all tools
        whose names were given."""
        parts = [_others_told(tool, names) for tool, names in self.others.items()]
        if self.rules:
            held = {name: value for name, value in self.rules.items() if settings[name] == value}
            shown = ", ".join(f"{name}={str(value).lower()}" for name, value in held.items())
            own = f"so by its rules: {shown}. Each can be set"
            parts.insert(0, _whose(self.tool, self.names, f", {own}", "other defaults"))
        return ". ".join(parts)


def implied(raw: Iterable[str]) -> Implied | None:
    """What older names bring where no preset is named; None without older names. Raises
    SettingsError for names of both tools that bring rules."""
    rows = [BY_NAME[name] for name in raw if name in BY_NAME]
    own = {row.name for row in rows if row.tool == _O}
    mistyped = own if own <= _MISTYPED else set()
    names: dict[str, list[str]] = {}
    others: dict[str, list[str]] = {}
    found: Raw = {}
    for row in rows:
        brought = [
            rules
            for settings, rules in RULES.get(row.tool, {}).items()
            if row.ours.startswith(settings) and row.name not in mistyped
        ]
        for rules in brought:
            found |= rules
        (names if brought else others).setdefault(row.tool, []).append(row.name)
    if len(names) > 1:
        both = " and ".join(f"{', '.join(those)} ({tool})" for tool, those in names.items())
        raise SettingsError(
            f"Names of two tools, which count and place differently: {both}. Name a preset "
            f"(needlemap list presets), or write needlemap's names "
            f"(needlemap help from-opencompass)."
        )
    if set(others) - {_BOTH} or names:  # a tool is known: its preset has what both have
        others.pop(_BOTH, None)
    tool, bringing = next(iter(names.items()), ("", []))
    others.pop(tool, None)
    rest = {tool: tuple(those) for tool, those in others.items()}
    return Implied(tool, tuple(bringing), found, rest) if rows else None


def _others_told(tool: str, names: Sequence[str]) -> str:
    """Of names that bring no rules."""
    read = [f"{name} (read as {name}s)" if name in _MISTYPED else name for name in names]
    return _whose(tool, read, "", "rules and defaults")


def _whose(tool: str, names: Sequence[str], brings: str, lacking: str) -> str:
    whose = f"{tool.replace(', ', ' and ')}'s"
    return (
        f"{', '.join(names)}: {whose} name{'s' * (len(names) > 1)}{brings}. For the rest "
        f"needlemap's defaults hold: {whose} {lacking} come with a preset, as {PRESETS_OF[tool]}"
    )


def _adds(found: Any, given: Any) -> bool:
    """Whether a mapping has keys beyond those that were given, so that it overrides none of
    them."""
    return isinstance(found, dict) and isinstance(given, dict) and set(found) > set(given)


def _negated(value: Any) -> bool:
    return str(value).lower() in ("false", "0", "no", "off")
