"""From presets, YAML files and flags to checked settings. Later ones win: defaults, preset, file, flags."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from needlemap.errors import SettingsError, did_you_mean
from needlemap.keys import refuse_keys
from needlemap.models.connection import check_no_key
from needlemap.seed_names import BY_NAME, translate
from needlemap.settings import Settings
from needlemap.yaml_text import read_yaml

# What is hidden when nobody says what: values drawn afresh for each repeat, so that no model knows them.
_CITIES = [
    "Oslo",
    "Lima",
    "Cairo",
    "Quito",
    "Turin",
    "Osaka",
    "Perth",
    "Dakar",
    "Porto",
    "Riga",
    "Hanoi",
    "Tunis",
]
_CITIES_ZH = [
    "奥斯陆",
    "利马",
    "开罗",
    "基多",
    "都灵",
    "大阪",
    "珀斯",
    "达喀尔",
    "波尔图",
    "里加",
    "河内",
    "突尼斯",
]
_NUMBER = "10000:99999"
DEFAULT_ITEMS: dict[str, dict[str, Any]] = {
    "english": {
        "needle": "The locker code for {city} is {number}.",
        "question": "What is the locker code for {city}?",
        "keywords": ["{number}"],
        "draw": {"city": _CITIES, "number": _NUMBER},
    },
    "chinese": {
        "needle": "{city}的储物柜密码是{number}。",
        "question": "{city}的储物柜密码是多少？",
        "keywords": ["{number}"],
        "draw": {"city": _CITIES_ZH, "number": _NUMBER},
    },
}
_ADDRESSES = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL"}
_ITEM = ("needle", "needles", "question", "answer", "keywords", "draw")


def configure(
    named: str | None = None,
    given: Mapping[str, Any] | None = None,
    between: Mapping[str, Mapping[str, Any]] | None = None,
) -> Settings:
    """Settings from a preset's name or a .yaml file (which may itself name a preset), overridden by `given`.

    between: settings by where they stand, which override the preset and are overridden.
    Raises SettingsError for unknown names (with the nearest known one), unreadable files and wrong values.
    """
    settled = _named(named) if named else {}
    for where, data in (between or {}).items():
        settled = {**settled, **_translated(data, settled, where)}
    settled = {**settled, **_translated(given or {}, settled, "the command line")}
    if settled.get("task", "single") == "single" and not any(settled.get(name) for name in _ITEM):
        settled |= DEFAULT_ITEMS.get(str(settled.get("language", "english")), {})
    sources = ([named] if named else []) + (["the command line"] if given or not named else [])
    return _addressed(checked(settled, " or ".join(sources)))


def _addressed(settings: Settings) -> Settings:
    """Settings with the server's address that the environment names, so that it is part of what was asked."""
    address = os.environ.get(_ADDRESSES.get(settings.backend, ""))
    check_no_key(settings.base_url or address or "")
    refuse_keys(settings)
    return (
        settings.model_copy(update={"base_url": address}) if address and not settings.base_url else settings
    )


def checked(raw: Mapping[str, Any], where: str) -> Settings:
    """Settings from plain data. Raises SettingsError with the setting, what it got and what it takes."""
    try:
        return Settings.model_validate(dict(raw))
    except ValidationError as error:
        problem = error.errors()[0]
        name = problem["loc"][0]  # what follows are the types that were tried
        raise SettingsError(
            f"Setting '{name}' in {where}: {problem['msg']}, got {problem['input']!r}."
        ) from None


@cache
def preset_files() -> dict[str, str]:
    """The presets' YAML texts by name."""
    folder = files("needlemap") / "presets"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    return {name.removesuffix(".yaml"): (folder / name).read_text(encoding="utf-8") for name in names}


def preset_about(name: str) -> str:
    """The first comment line of a preset: what it is."""
    return preset_files()[name].splitlines()[0].removeprefix("#").strip()


def _named(name: str, inside: tuple[str, ...] = ()) -> dict[str, Any]:
    if name in inside:
        raise SettingsError(f"'{name}' is its own preset: {' -> '.join([*inside, name])}.")
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise SettingsError(f"No settings file at '{name}'.")
        return _file(_yaml(path.read_bytes(), name), name, (*inside, name))
    known = preset_files()
    if name.startswith("suite:"):
        raise SettingsError(
            f"'{name}' is several runs: needlemap run, plan, prompts and list suites take it."
        )
    if name not in known:
        raise SettingsError(f"Unknown preset '{name}'. {did_you_mean(name, known)} Or give a .yaml file.")
    return _file(_yaml(known[name].encode(), name), f"preset {name}", (*inside, name))


def _file(data: dict[str, Any], where: str, inside: tuple[str, ...]) -> dict[str, Any]:
    base = _named(str(data.pop("preset")), inside) if "preset" in data else {}
    return {**base, **_translated(data, base, where)}


def _yaml(raw: bytes, name: str) -> dict[str, Any]:
    try:
        data = read_yaml(raw.decode("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"'{name}' is not readable YAML: {' '.join(str(error).split())}") from None
    if data is not None and not isinstance(data, dict):
        raise SettingsError(f"'{name}' must be a mapping of settings to values, as 'model: openai/gpt-4o'.")
    return {str(key): value for key, value in (data or {}).items()}


def _translated(raw: Mapping[str, Any], settled: Mapping[str, Any], where: str) -> dict[str, Any]:
    known = {*Settings.model_fields, *BY_NAME}
    for name in raw:
        if name not in known:
            near = did_you_mean(name, known).split(" Known:")[0]
            hint = near if near.startswith("Did") else "See needlemap run --help."
            raise SettingsError(f"Unknown setting '{name}' in {where}. {hint}")
    return _merged(translate(raw, settled), settled)


def _merged(raw: dict[str, Any], settled: Mapping[str, Any]) -> dict[str, Any]:
    """Option mappings are merged key by key; everything else is replaced. Another task's or scorer's options
    are not this one's."""
    for name in ("task", "scorer"):
        if name in raw and name in settled and raw[name] != settled[name]:
            settled = {option: value for option, value in settled.items() if option != f"{name}_options"}
            raw.setdefault(f"{name}_options", {})
    for name in ("model_options", "task_options", "scorer_options", "request", "prices"):
        if isinstance(raw.get(name), dict) and isinstance(settled.get(name), dict):
            raw[name] = {**settled[name], **raw[name]}
    return raw
