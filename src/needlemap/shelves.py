"""Read YAML files by their names: presets, suites and templates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from needlemap.errors import SettingsError, did_you_mean
from needlemap.files import is_yaml, read_regular, read_yaml
from needlemap.registry import installed

# An error lists so many names at most.
_FEW = 20


@dataclass(frozen=True, slots=True)
class Shelf:
    """YAML files of one kind: those of packages have names, all others have paths.

    Attributes:
        folder: The folder of this package's files.
        noun: The name of the kind.
        own: The name of a file of the user's.
        known: The start of an error about a text.
        group: The group of entry points by which other packages add files. Each names a package
            that holds them. '' for none.
    """

    folder: str
    noun: str
    own: str
    known: str = ""
    group: str = ""

    @property
    def texts(self) -> Mapping[str, str]:
        """Return the texts of packages, by name. Raises SettingsError for a name that two have."""
        return _texts(self.folder, self.group)

    def about(self, name: str) -> str:
        """Return the first comment line of a package's file, which tells what it is."""
        return self.texts[name].partition("\n")[0].removeprefix("#").strip()

    def read(self, name: str) -> Any:
        """Return the data of a name or a path.

        Raises SettingsError if it is unknown or not readable.
        """
        if name in self.texts:
            return deepcopy(_data(self, name))
        text = self._text(name)
        import yaml

        try:
            return read_yaml(text.decode("utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            words = " ".join(str(error).split())
            raise SettingsError(f"{self.known}'{name}' is not readable YAML: {words}") from None

    def _text(self, name: str) -> bytes:
        path = Path(name)
        if is_yaml(name):
            if path.is_file():
                return read_regular(path)
            advice = ""
            if len(self.texts) <= _FEW:
                advice = f" Give a .yaml file or one of: {', '.join(self.texts)}."
            raise SettingsError(f"No {self.own} file at '{name}'.{advice}")
        if name.endswith(".py"):
            raise SettingsError(
                f"'{name}' is a Python file, as OpenCompass's configs are: no code is run for "
                f"settings. Write its fields as flags, or into a .yaml file: see "
                f"needlemap help from-opencompass."
            )
        raise SettingsError(f"Unknown {self.noun} '{name}'. {self._hint(name)}")

    def _hint(self, name: str) -> str:
        if self is PRESETS and name in SUITES.texts:
            return f"It is a suite. Type: needlemap run suite:{name}"
        near, _, names = did_you_mean(name, self.texts).partition("Known: ")
        if len(self.texts) <= _FEW:
            return f"{near}Known: {names} Or give a .yaml file."
        return f"{near}Type: needlemap list {self.noun}s. Or give a .yaml file."


@cache
def _texts(folder: str, group: str) -> Mapping[str, str]:
    """Return the YAML texts of this package's folder and of a group's packages, by name."""
    points = installed(group).values() if group else ()
    folders = [files("needlemap").joinpath(folder), *(files(point.value) for point in points)]
    texts = dict[str, str]()
    for place in folders:
        for name, text in _yamls(place):
            if name in texts:
                raise SettingsError(f"Two packages have a file '{name}'. Uninstall one of them.")
            texts[name] = text
    # In the order of their files: `ruler.yaml` comes after `ruler-niah.yaml`.
    return dict(sorted(texts.items(), key=lambda item: f"{item[0]}.yaml"))


def _yamls(place: Any) -> Iterator[tuple[str, str]]:
    for entry in place.iterdir():
        if entry.name.endswith(".yaml"):
            yield entry.name.removesuffix(".yaml"), entry.read_text(encoding="utf-8")


@cache
def _data(shelf: Shelf, name: str) -> Any:
    """Return the data of a package's file, read once.

    To read a template for each family took longer than to build it.
    """
    return read_yaml(shelf.texts[name])


PRESETS = Shelf("presets", "preset", "settings", group="presets")
SUITES = Shelf("presets/suites", "suite", "suite", "Suite ", group="suites")
TEMPLATES = Shelf("templates", "template", "template", "Template ")
