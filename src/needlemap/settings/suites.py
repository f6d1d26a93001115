"""What a run asks: the settings of its families. A preset is one; a suite, which is data, names several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from needlemap.errors import SettingsError, did_you_mean
from needlemap.files import read_regular, read_yaml
from needlemap.settings.reading import COMMAND, Unheeded, configure, configure_in_part, older_rules
from needlemap.settings.settings import ITEM, Settings, marked, with_role

MARK = "suite:"
DEFAULT = "demo"
_KEYS = ("families", "settings")
_STAY = ("depths",)  # flags that a family with its own does not heed: it may ask about the whole text
_EACH = ("task", *ITEM)  # what makes a family


@dataclass(frozen=True, slots=True)
class Chosen:
    """suite: its name, '' without one. families: settings by name, '' that of the only one of a plain run.
    told: which rules an older tool's names bring; '' for none."""

    suite: str
    families: Mapping[str, Settings]
    told: str = ""

    @property
    def first(self) -> Settings:
        """The first family's, with what all families share."""
        return next(iter(self.families.values()))


def choose(named: str | None, flags: Mapping[str, Any]) -> Chosen:
    """The families of a preset, a file or a suite; of the demo without one and without a flag that matters.

    The same arguments mean the same trials, whichever command they are given to. Raises SettingsError.
    """
    if named is not None and named.startswith(MARK):
        suite = load_suite(named.removeprefix(MARK))
        return Chosen(suite.name, suite.settle(flags))
    named = named or (DEFAULT if set(flags) <= {*with_role("grid", "free")} else None)
    settings = configure(named, flags)
    older = None if settings.quiet else older_rules(named, flags)
    return Chosen("", {"": settings}, older.told(settings.model_dump()) if older else "")


@dataclass(frozen=True, slots=True)
class Suite:
    """about: what it is, in a line. families: the settings of each, of which `preset` may be one. settings:
    those of all families that do not have their own."""

    name: str
    about: str
    families: Mapping[str, Mapping[str, Any]]
    settings: Mapping[str, Any]

    def settle(self, flags: Mapping[str, Any]) -> dict[str, Settings]:
        """Each family's settings; later ones win: preset, suite, family, flags. Raises SettingsError."""
        for name in _EACH:
            if name in flags:
                raise SettingsError(
                    f"Each family of suite '{self.name}' has its own {name}: leave --{name} out."
                )
        for name in _STAY:
            if name in flags and all(name in own for own in self.families.values()):
                raise SettingsError(
                    f"Each family of suite '{self.name}' has its own {name}: leave --{name} out."
                )
        settled = {family: self._settled(family, flags) for family in self.families}
        self._refuse_unheeded([unheeded for _, unheeded in settled.values()])
        found = {family: settings for family, (settings, _) in settled.items()}
        for name in marked("shared"):
            values = [getattr(settings, name) for settings in found.values()]
            if any(value != values[0] for value in values):
                raise SettingsError(
                    f"Setting '{name}' must be the same for all families of suite '{self.name}': leave it "
                    f"out of its file, or set it there under 'settings'."
                )
        return found

    def _settled(self, family: str, flags: Mapping[str, Any]) -> tuple[Settings, list[Unheeded]]:
        """A family's settings, and what it does not read of those that it shares with others."""
        own = dict(self.families[family])
        preset, mine = own.pop("preset", None), f"family '{family}' of suite '{self.name}'"
        between = {self._place: self.settings, mine: own}
        given = {name: value for name, value in flags.items() if name not in _STAY or name not in own}
        try:
            settings, unheeded = configure_in_part(preset, given, between)
        except SettingsError as error:
            raise SettingsError(f"Family '{family}': {error}") from None
        shared = [each for each in unheeded if each.where in (self._place, COMMAND)]
        for each in unheeded:
            if each not in shared and not each.replaced:
                raise SettingsError(f"Family '{family}': {each.why}")
        return settings, shared

    @property
    def _place(self) -> str:
        """What errors call the settings that all families share."""
        return f"suite '{self.name}'"

    def _refuse_unheeded(self, families: Sequence[Sequence[Unheeded]]) -> None:
        """Raises SettingsError for a shared setting that no family reads; some may leave it to others."""
        names = [{(each.name, each.where) for each in unheeded} for unheeded in families]
        for name, where in sorted(set.intersection(*names)):
            why = next(each.why for each in families[0] if (each.name, each.where) == (name, where))
            raise SettingsError(f"No family of suite '{self.name}' reads '{name}'. {why}")


@cache
def suite_files() -> dict[str, str]:
    """The suites' YAML texts by name."""
    folder = files("needlemap") / "presets" / "suites"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    return {name.removesuffix(".yaml"): (folder / name).read_text(encoding="utf-8") for name in names}


def load_suite(name: str) -> Suite:
    """A suite by its name, or from a .yaml file of one's own. Raises SettingsError."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise SettingsError(f"No suite file at '{name}'.")
        return _parsed(path.stem, read_regular(path).decode("utf-8", "replace"))
    known = suite_files()
    if name not in known:
        raise SettingsError(f"Unknown suite '{name}'. {did_you_mean(name, known)} Or give a .yaml file.")
    return _parsed(name, known[name])


def _parsed(name: str, text: str) -> Suite:
    try:
        data = read_yaml(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"Suite '{name}' is not readable YAML: {' '.join(str(error).split())}") from None
    _check(name, data)
    first = text.partition("\n")[0]
    about = first.removeprefix("#").strip() if first.startswith("#") else ""
    families = {str(family): settings or {} for family, settings in data["families"].items()}
    return Suite(name, about, families, data.get("settings") or {})


def _check(name: str, data: Any) -> None:
    if not isinstance(data, dict) or not isinstance(data.get("families"), dict) or not data["families"]:
        raise SettingsError(
            f"Suite '{name}' needs families, as families: {{mine: {{preset: passkey}}}}. See docs/suites.md."
        )
    for key in data:
        if key not in _KEYS:
            raise SettingsError(f"Suite '{name}': unknown key '{key}'. {did_you_mean(str(key), _KEYS)}")
    for family, settings in [*data["families"].items(), ("settings", data.get("settings"))]:
        if settings is not None and not isinstance(settings, dict):
            raise SettingsError(f"Suite '{name}': '{family}' must be a mapping of settings to values.")
        if not plain_name(str(family)):
            raise SettingsError(
                f"Suite '{name}': '{family}' names a folder: use letters, digits, '-', '_' and '.'."
            )


def plain_name(family: str) -> bool:
    return family[:1].isalnum() and all(letter.isalnum() or letter in "-_." for letter in family)
