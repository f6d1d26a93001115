"""Keys belong into the environment: a setting that holds one would be kept in run.json, and be shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from needlemap.errors import SettingsError
from needlemap.models.faults import hidden
from needlemap.settings.settings import Settings

_NAMES = re.compile(
    r"(?i)(^|[_-])(api[_-]?key|secret|password|passwd|authorization|access[_-]?token|bearer)$"
)
_MAYBE = re.compile(r"(?i)(token|auth|cookie|credentials?|signature|sig|code|session|pat|jwt)$")
_RANDOM = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w+/=.~:-]{16,}")  # what no word is
_VARIABLE = re.compile(r"\w*_API_KEY")
_MAPPINGS = ("request", "model_options", "scorer_options", "task_options")


def refuse_keys(settings: Settings) -> None:
    """Raises SettingsError for the first setting that holds a key."""
    for name in _MAPPINGS:
        for part in _named_keys(getattr(settings, name)):
            raise SettingsError(
                f"Setting '{name}' holds a key ({part}), which run.json would keep. Keys are read from the "
                f"environment only. Type: export OPENAI_API_KEY=YOUR-KEY (another variable: --model-options "
                f"key_env=NAME)"
            )


def check_key_names(settings: Any, instead: str) -> None:
    """Raises SettingsError where a file takes a key from a variable that is not named as keys are.

    A file may come from a stranger, with an address to send the key to. instead: what to type.
    """
    for name in key_names(settings):
        if not _VARIABLE.fullmatch(name):
            raise SettingsError(
                f"${name} would be sent as a key. Variables that a file names must end in _API_KEY. {instead}"
            )


def key_names(value: Any) -> Iterator[str]:
    """Every key_env in settings, also inside options."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from [str(part)] if name == "key_env" else key_names(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from key_names(part)


def _named_keys(value: Any, name: str = "") -> Iterator[str]:
    """The names under which a value, or what is inside it, is a key."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _named_keys(part, str(key))
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _named_keys(part, name)
    elif isinstance(value, str) and value and _is_key(name, value):
        yield name


def _is_key(name: str, value: str) -> bool:
    """Whether a value is a key, by its name, by its own look, or by both."""
    by_both = _MAYBE.search(name) and _RANDOM.fullmatch(value)
    return bool(_NAMES.search(name) or hidden(value) != value or by_both)
