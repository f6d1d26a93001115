"""Translate the older tools' names for settings, by one table.

The table is also printed in docs/from-opencompass.md.

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
# The place of a key in the table, in place of a setting: no setting may hold one.
REFUSED = "environment"


@dataclass(frozen=True, slots=True)
class OlderName:
    """A setting's name in an older tool.

    Attributes:
        name: The name.
        tool: The tool that has it.
        ours: Our setting in words, which start with the setting's name.
        carry: Returns our settings for a value, from the settings so far and the value. None if
            the setting `ours` takes the value as it is.
        partial: Whether it sets a part of the setting, so that names of other parts may be given
            too.
        words: Whether its flag takes several words.
    """

    name: str
    tool: str
    ours: str
    carry: Callable[[Raw, Any], Raw] | None = None
    partial: bool = False
    words: bool = False

    @property
    def setting(self) -> str:
        """Return the first of our settings that the name sets, or REFUSED for a key."""
        return re.split(r"\W", self.ours)[0]

    def settings_for(self, raw: Raw, value: Any) -> Raw:
        """Return our settings for a value of the older name.

        raw: the settings so far. Raises SettingsError if the value cannot be translated.
        """
        return self.carry(raw, value) if self.carry else {self.ours: value}


def _carry_part(ours: str, key: str) -> Callable[[Raw, Any], Raw]:
    """Return a function that sets one key of a setting {min, max, count, scale}.

    The other keys stay as they are. If the setting is not given so far, they are the defaults of
    the older tool.
    """

    def carry(raw: Raw, value: Any) -> Raw:
        settings_so_far = raw[ours] if isinstance(raw.get(ours), dict) else _STARTS[ours]
        return {ours: {**settings_so_far, key: value}}

    return carry


def _carry_scorer(raw: Raw, value: Any) -> Raw:
    methods = {"gpt4": "judge", "substring_match": "substring", "substring_method": "substring"}
    if str(value) not in methods:
        raise SettingsError(
            f"Unknown evaluation_method '{value}'. {did_you_mean(str(value), methods)}"
        )
    if value == "gpt4":
        return {"scorer": "judge"}

    # Options of another scorer do not fit this one.
    is_substring = raw.get("scorer", "substring") == "substring"
    options = _mapping(raw, "scorer_options") if is_substring else {}
    return {"scorer": "substring", "scorer_options": {**options, "anywhere": True}}


def _carry_trim(raw: Raw, value: Any) -> Raw:
    return {"scorer_options": {**_mapping(raw, "scorer_options"), "trim": value}}


def _mapping(raw: Raw, setting: str) -> Raw:
    """Return a setting's mapping, or {} if it is not given. Raise SettingsError for a text."""
    value = raw.get(setting, {})
    if not isinstance(value, dict):
        raise SettingsError(
            f"Setting '{setting}' takes a mapping of names to values, got {value!r}."
        )
    return value


def _carry_source(kind: str) -> Callable[[Raw, Any], Raw]:
    """Return a function that sets the haystack of a kind to a path."""
    return lambda _raw, value: {"haystack": kind, "haystack_path": value}


def _carry_model(_raw: Raw, value: Any) -> Raw:
    """Return the setting `model` for a model's name, with the back end that the older tool used.

    Raises SettingsError if several models are given.
    """
    if isinstance(value, list | tuple | dict):
        raise SettingsError(f"model_name is one model's name, got {value!r}. Several: 'model'.")

    name = str(value)
    # A name of ours starts with its back end already.
    if name.partition("/")[0] in installed("models"):
        return {"model": name}

    backend = "anthropic" if "claude" in name.lower() else "openai"
    return {"model": f"{backend}/{name}"}


def _carry_position(_raw: Raw, value: Any) -> Raw:
    return {"question_position": str(value).lower()}


def _carry_version(_raw: Raw, value: Any) -> Raw:
    # Versions count from 1, repeats from 0.
    try:
        return {"first_repeat": int(value) - 1}
    except (TypeError, ValueError):
        raise SettingsError(
            f"results_version is a whole number from 1 on, got {value!r}."
        ) from None


def _refuse_key(_raw: Raw, _value: Any) -> Raw:
    raise SettingsError(
        "API keys are read from the environment only: set OPENAI_API_KEY or ANTHROPIC_API_KEY, and "
        "leave "
        "the key out of settings and command lines, where others can read it."
    )


def _carry_words(_raw: Raw, value: Any) -> Raw:
    return {"keywords": value if isinstance(value, list) else [str(value)]}


def _carry_exact(raw: Raw, value: Any) -> Raw:
    """Return the setting `depths` for depths that needlehaystack does not round.

    It rounds evenly spaced depths to whole percents, but not those of a list or a sigmoid.
    """
    if raw.get("depth_rounding") == "round":
        return {"depths": value, "depth_rounding": "none"}
    return {"depths": value}


def _carry_scale(raw: Raw, value: Any) -> Raw:
    settings = _carry_part("depths", "scale")(raw, value)
    if value == "sigmoid":
        return _carry_exact(raw, settings["depths"])
    return settings


# needlehaystack's own defaults, which hold if only one key of a setting is given.
_STARTS = {
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
# Names of OpenCompass that may be our `lengths` and `depths` with a letter missing.
_MISTYPED = {"length", "depth"}
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

TABLE: tuple[OlderName, ...] = (
    OlderName("haystack_dir", _N, "haystack=txt, haystack_path", _carry_source("txt")),
    OlderName("retrieval_question", _BOTH, "question"),
    OlderName("results_version", _N, "first_repeat (version 1 is repeat 0)", _carry_version),
    OlderName("context_lengths_min", _N, "lengths (min)", _carry_part("lengths", "min"), True),
    OlderName("context_lengths_max", _N, "lengths (max)", _carry_part("lengths", "max"), True),
    OlderName(
        "context_lengths_num_intervals",
        _N,
        "lengths (count)",
        _carry_part("lengths", "count"),
        True,
    ),
    OlderName("context_lengths", _BOTH, "lengths", words=True),
    OlderName("document_depth_percent_min", _N, "depths (min)", _carry_part("depths", "min"), True),
    OlderName("document_depth_percent_max", _N, "depths (max)", _carry_part("depths", "max"), True),
    OlderName(
        "document_depth_percent_intervals",
        _BOTH,
        "depths (count)",
        _carry_part("depths", "count"),
        True,
    ),
    OlderName("document_depth_percent_interval_type", _BOTH, "depths (scale)", _carry_scale, True),
    OlderName("document_depth_percents", _N, "depths", _carry_exact, words=True),
    OlderName("model_name", _N, "model", _carry_model),
    OlderName("save_results", _N, "save"),
    OlderName("openai_api_key", _N, "environment variable OPENAI_API_KEY", _refuse_key),
    OlderName("anthropic_api_key", _N, "environment variable ANTHROPIC_API_KEY", _refuse_key),
    OlderName("num_concurrent_requests", _N, "concurrency"),
    OlderName("final_context_length_buffer", _N, "reserve_tokens"),
    OlderName(
        "seconds_to_sleep_between_completions",
        _N,
        "pause_s",
        lambda _, value: {"pause_s": value or 0},
    ),
    OlderName(
        "print_ongoing_status",
        _N,
        "quiet (the opposite)",
        lambda _, value: {"quiet": _is_false(value)},
    ),
    OlderName("evaluation_method", _N, "scorer: judge, or substring anywhere=true", _carry_scorer),
    OlderName("substr_validation_words", _N, "keywords", _carry_words, words=True),
    OlderName("path", _O, "haystack=jsonl, haystack_path", _carry_source("jsonl")),
    OlderName("length", _O, "lengths", words=True),
    OlderName("depth", _O, "depths", words=True),
    OlderName("tokenizer_model", _O, "tokenizer"),
    OlderName("num_repeats_per_file", _O, "repeats"),
    OlderName("num_records_per_file", _O, "repeats"),
    OlderName("length_buffer", _O, "reserve_tokens"),
    OlderName("guided", _O, "guide"),
    OlderName("keyword", _O, "keywords", _carry_words, words=True),
    OlderName("position", _O, "question_position", _carry_position),
    OlderName("use_trim", _O, "scorer_options trim", _carry_trim, True),
    OlderName("max_out_len", _O, "max_answer_tokens"),
)
BY_NAME = {row.name: row for row in TABLE}


def explanation_of(name: str, where: str, command: str = "") -> str:
    """Return what to write in place of an older tool's name that neither a setting nor a flag has.

    If no older tool has the name, the result is ''.

    where: the words for its place. command: the command whose flag it would be; '' in a file.

    >>> explanation_of("abbr", "in x.yaml")[:48], explanation_of("lenght", "in x.yaml")
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
    """Return settings with the older names replaced by ours.

    settled: the settings of earlier sources, e.g. of a preset. Raises SettingsError if one setting
    is given by two names.
    """
    ours: Raw = {key: value for key, value in raw.items() if key not in BY_NAME}
    # An older tool takes None as 'not given'.
    rows = [BY_NAME[key] for key, value in raw.items() if key in BY_NAME and value is not None]

    translated: Raw = {}
    givers: dict[str, OlderName] = {}
    for row in rows:
        settings_so_far = {**settled, **ours, **translated}
        for setting, value in row.settings_for(settings_so_far, raw[row.name]).items():
            other = givers.get(setting)
            if setting in ours and not _extends(value, ours[setting]):
                raise SettingsError(
                    f"'{row.name}' and '{setting}' mean the same setting. Give one of them."
                )
            if other is not None and not (row.partial and other.partial):
                raise SettingsError(
                    f"'{row.name}' and '{other.name}' mean the same. Give one of them."
                )
            translated[setting] = value
            givers[setting] = row
    return {**ours, **translated}


def setting_value(raw: Mapping[str, Any], setting: str) -> Any:
    """Return a setting's value, given under our name or an older one, or None if it is not given.

    Raises SettingsError if an older name cannot be translated.

    >>> setting_value({"model_name": "gpt-4"}, "model")
    'openai/gpt-4'
    """
    if BY_NAME.keys().isdisjoint(raw):
        return raw.get(setting)
    return translate(raw, {}).get(setting)


def setting_names(raw: Mapping[str, Any]) -> set[str]:
    """Return our names of the settings that are given.

    Raises SettingsError if an older name cannot be translated.

    >>> sorted(setting_names({"num_concurrent_requests": 2, "seed": 1}))
    ['concurrency', 'seed']
    """
    return {*translate(raw, {})}


@dataclass(frozen=True, slots=True)
class ImpliedRules:
    """The rules that hold because of older names, if no preset is named.

    Attributes:
        tool: The tool that has the rules; '' if no name brings rules.
        names: Its names that bring them.
        rules: The rules, as settings.
        others: By tool, the other older names. Only a preset brings that tool's defaults.
    """

    tool: str
    names: tuple[str, ...]
    rules: Raw
    others: Mapping[str, tuple[str, ...]]

    def note(self, settings: Mapping[str, Any]) -> str:
        """Return a line with the rules that are in force, and with the presets of the tools.

        A rule is in force unless the settings hold another value.
        """
        parts = [_other_names_note(tool, names) for tool, names in self.others.items()]
        if self.rules:
            in_force = [name for name, value in self.rules.items() if settings[name] == value]
            listed = ", ".join(f"{name}={str(self.rules[name]).lower()}" for name in in_force)
            consequence = f", so by its rules: {listed}. Each can be set"
            parts.insert(0, _tool_note(self.tool, self.names, consequence, "other defaults"))
        return ". ".join(parts)


def implied_rules(raw: Iterable[str]) -> ImpliedRules | None:
    """Return the rules that older names bring if no preset is named, or None without older names.

    Raises SettingsError if names of both tools bring rules.
    """
    rows = [BY_NAME[name] for name in raw if name in BY_NAME]
    if not rows:
        return None

    # OpenCompass's 'length' and 'depth' bring rules only next to another name of that tool.
    opencompass_names = {row.name for row in rows if row.tool == _O}
    mistyped = opencompass_names if opencompass_names <= _MISTYPED else set()

    names: dict[str, list[str]] = {}
    others: dict[str, list[str]] = {}
    all_rules: Raw = {}
    for row in rows:
        row_rules = [
            rules
            for settings, rules in RULES.get(row.tool, {}).items()
            if row.ours.startswith(settings) and row.name not in mistyped
        ]
        for rules in row_rules:
            all_rules |= rules
        names_by_tool = names if row_rules else others
        names_by_tool.setdefault(row.tool, []).append(row.name)

    if len(names) > 1:
        both = " and ".join(
            f"{', '.join(tool_names)} ({tool})" for tool, tool_names in names.items()
        )
        raise SettingsError(
            f"Names of two tools, which count and place differently: {both}. Name a preset "
            f"(needlemap list presets), or write needlemap's names "
            f"(needlemap help from-opencompass)."
        )

    # If a tool is known, its preset has what both tools have.
    if set(others) - {_BOTH} or names:
        others.pop(_BOTH, None)
    tool, tool_names = next(iter(names.items()), ("", []))
    others.pop(tool, None)
    return ImpliedRules(
        tool=tool,
        names=tuple(tool_names),
        rules=all_rules,
        others={other: tuple(other_names) for other, other_names in others.items()},
    )


def _other_names_note(tool: str, names: Sequence[str]) -> str:
    """Return the note on a tool's names that bring no rules."""
    labels = [f"{name} (read as {name}s)" if name in _MISTYPED else name for name in names]
    return _tool_note(tool, labels, "", "rules and defaults")


def _tool_note(tool: str, names: Sequence[str], consequence: str, lacking: str) -> str:
    """Return the note on a tool's names.

    consequence: what follows from them. lacking: what only the tool's preset brings.
    """
    whose = f"{tool.replace(', ', ' and ')}'s"
    plural = "s" if len(names) > 1 else ""
    return (
        f"{', '.join(names)}: {whose} name{plural}{consequence}. For the rest "
        f"needlemap's defaults hold: {whose} {lacking} come with a preset, as {PRESETS_OF[tool]}"
    )


def _extends(value: Any, given: Any) -> bool:
    """Return True if a mapping has the given keys and more, so that it overrides none of them."""
    return isinstance(value, dict) and isinstance(given, dict) and set(value) > set(given)


def _is_false(value: Any) -> bool:
    return str(value).lower() in ("false", "0", "no", "off")
