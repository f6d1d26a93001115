"""The model that is meant where none is named: the one that a server at a given address lists.

The address is the command's (`--base-url`) or the environment's, $OPENAI_BASE_URL; of a file
only where the file is going to be asked anyway. A preset, a suite or a file that names a model
is left alone, and so is a command without a model and an address.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.grid import duration_s
from needlemap.http import Sent
from needlemap.http.compatible import ADDRESS, BACKEND, KEY, served_model
from needlemap.http.served import limits_of, list_models, wait_for
from needlemap.registry import find, installed
from needlemap.settings import MOST_S
from needlemap.settings.older_names import setting_value
from needlemap.settings.suites import given_in, is_demo
from needlemap.text import tell


def listed_model(
    named: str | None, flags: Mapping[str, Any], *, asks: bool = True, command: str = ""
) -> dict[str, Any]:
    """Return the settings `model` and `base_url` of the model that the server lists, and print it.

    If the settings name a model already, return {}. named: a preset, a file or a suite. asks:
    whether the command sends prompts, so that the address of a file may be used too. command: one
    that is of no use without a server. Raise NeedlemapError if no server is there, or if it does
    not list exactly one model.
    """
    if setting_value(flags, "model") or (is_demo(named, flags) and not command):
        return {}
    if named is not None and given_in(named, "model"):
        return {}
    address = flags.get("base_url") or (given_in(named, "base_url") if named else None)
    if address and not flags.get("base_url") and not asks:
        raise SettingsError(
            f"'{named}' has an address and no model, and nothing is asked here. Give --model "
            f"{served_model()}, or the address by --base-url."
        )
    address = address or os.environ.get(ADDRESS)
    if not address and command:
        raise SettingsError(
            f"{command} asks a server, and none is named. Type: needlemap {command} --model "
            f"{served_model()} --base-url http://HOST:PORT/v1"
        )
    if not address:
        return {}
    name, address = find_model(str(address), flags)
    return {"model": served_model(name), "base_url": address}


def known_settings(named: str | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that an installed package knows for the model, and print a note on them.

    Settings that somebody typed are left out. If no package knows the model, or if a preset, a
    file, a suite or a run whose prompts are asked is named, return {}.
    """
    model = setting_value(flags, "model")
    is_settled = named is not None or setting_value(flags, "prompts_of") is not None
    if is_settled or not isinstance(model, str):
        return {}
    for name in sorted(installed("known_models")):
        known, note = find("known_models", name)(model)
        settings = {key: value for key, value in known.items() if setting_value(flags, key) is None}
        if settings:
            if not setting_value(flags, "quiet"):
                tell(f"note: {note}")
            return settings
    return {}


def find_model(address: str, flags: Mapping[str, Any]) -> tuple[str, str]:
    """Return and print the only model that a server lists, and its address.

    A /v1 that the address lacks is added. flags: `wait`, `quiet` and the key's variable. Raise
    NeedlemapError if the server does not list exactly one model.
    """
    listed = list_models(
        address,
        sent_with(flags),
        wait_s=seconds_of(flags.get("wait", 0.0)),
        say=lambda words: tell(f"note: {words}"),
    )
    name = listed.only()
    if not setting_value(flags, "quiet"):
        tell(f"note: {listed.base_url} serves {name}: --model {served_model(name)}")
    return name, listed.base_url


def sent_with(flags: Mapping[str, Any]) -> Sent:
    """Return the secrets that go to a server of a compatible API. flags: those of a command."""
    options = flags.get("model_options")
    key_env = options.get("key_env") if isinstance(options, Mapping) else None
    return Sent(str(key_env or KEY))


class Reached(NamedTuple):
    """A server of a compatible API that is there.

    context: the longest prompt with its answer, in tokens, or None if the server does not report
    it.
    """

    address: str
    sent: Sent
    context: int | None

    def length_within(self, length: int, *, promised: bool) -> int:
        """Return the longest length that the context allows, with a note if that is less.

        length: of the longest prompt, in tokens. promised: True if it was typed, so that it stays.
        """
        if self.context is None or self.context >= length or promised:
            return length
        tell(f"note: the server's context is {self.context:,} tokens: --max-length {self.context}")
        return self.context


def tell_unknown_context(length: int, server: Reached | None) -> None:
    """Print up to which length a plan goes if nothing reports the model's context.

    length: of the longest prompt, in tokens, which nobody typed.
    """
    if server is None or server.context is None:
        tell(f"note: planned to {length:,} tokens, as the context is not known: --max-length N")


def reach_server(flags: Mapping[str, Any]) -> Reached | None:
    """Return the server that a command's flags name, once it is there.

    If the flags name another back end or no address, return None. Raise NeedlemapError if the
    server is not there within `wait`.
    """
    backend, _, name = str(flags.get("model", "")).partition("/")
    address = str(flags.get("base_url") or os.environ.get(ADDRESS, ""))
    if backend != BACKEND or not address:
        return None
    sent = sent_with(flags)
    wait_for(address, seconds_of(flags.get("wait", 0.0)), sent)
    return Reached(address, sent, limits_of(address, name, sent).context)


def time_limit(named: str | None, flags: Mapping[str, Any]) -> float | None:
    """Return how long a command may take, in seconds, or None for no limit.

    The flags decide, then the preset, file or suite that is named. A wrong one gives None here: its
    error is reported when it is read.
    """
    with suppress(NeedlemapError, TypeError, ValueError, OSError):
        typed = flags.get("limit_time")
        if typed is None and named is not None:
            typed = given_in(named, "limit_time")
        return None if typed is None else max(0.0, seconds_of(typed)) or None
    return None


def seconds_of(typed: Any) -> float:
    """Return the seconds of a flag's text or a Python argument.

    Raises SettingsError if it is not a duration.
    """
    try:
        return duration_s(typed) if isinstance(typed, str) else float(typed)
    except OverflowError:
        raise SettingsError(f"A duration is {MOST_S:,.0f} s at most.") from None


def limit_of(typed: str) -> float:
    """Return a command's limit of time, in seconds.

    Raises SettingsError if it is not a duration, or is not within the limits.
    """
    seconds = duration_s(typed)
    if not 0 < seconds <= MOST_S:
        raise SettingsError(f"--limit-time takes more than 0 s and up to {MOST_S:,.0f} s.")
    return seconds
