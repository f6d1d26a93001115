"""Find extensions by Python entry points, and check their options by the constructor's signature.

docs/extending.md lists the groups. Built-ins and wings use this too. Nothing is imported before it
is named. A plug-in that cannot be imported is an error once it is named. `class
Levenshtein(metaclass=Checked)` is enough for options: a misspelt name or a value of the wrong type
is refused when the object is built.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from needlemap.errors import SettingsError, did_you_mean
from needlemap.extras import FROM_SOURCE, install_line, packages_of
from needlemap.secrets import raised_by

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Base = TypeVar("Base")

# Stands before a kind in the names of entry points' groups.
_GROUP = "needlemap."
# What is allowed, by the start of a validation error's name.
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a number",
    "bool": "true or false",
    "string": "text",
}
_BOUNDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most"}


@cache
def installed(kind: str) -> dict[str, EntryPoint]:
    """Return the extensions of a kind ('models', 'tasks', ...) by name, not yet imported."""
    return {point.name: point for point in _all().select(group=_GROUP + kind)}


@cache
def _all() -> Any:
    """Return every installed package's `EntryPoints`, read once for all kinds."""
    # Late: not needed if only prompts are built.
    from importlib.metadata import entry_points

    return entry_points()


@cache
def find(kind: str, name: str) -> Any:
    """Return the class that an extension registers.

    Raises SettingsError, for an unknown name with the nearest one.
    """
    points = installed(kind)
    noun = kind.removesuffix("s")
    if name not in points:
        raise SettingsError(f"Unknown {noun} '{name}'. {did_you_mean(name, points)}")
    refuse_two(kind, name)
    try:
        return points[name].load()
    except ImportError as error:
        missing = error.name or str(error)
        if missing.startswith("needlemap."):
            raise SettingsError(
                f"'{missing}' is not there: needlemap changed since it was installed. "
                f"Install it again. In its source, type: {FROM_SOURCE}"
            ) from error
        line = install_line(name) if packages_of(name) else f"python3 -m pip install '{missing}'"
        raise SettingsError(
            f"{noun.capitalize()} '{name}' needs '{missing}', which is not installed. Run: {line}"
        ) from error
    except Exception as error:
        # A plug-in's module may raise anything.
        raise SettingsError(
            f"{noun.capitalize()} '{name}' cannot be loaded ({points[name].value}): "
            f"{raised_by(error)}"
        ) from error


@cache
def refuse_two(kind: str, name: str) -> None:
    """Raise SettingsError if two packages register one name.

    It is not known which one is meant, and a built-in that comes later would replace a plug-in
    without a warning.
    """
    owners = {point.value: point.dist for point in _all().select(group=_GROUP + kind, name=name)}
    if len(owners) > 1:
        shown = sorted(
            f"{dist.name} {dist.version} ({value})" for value, dist in owners.items() if dist
        )
        raise SettingsError(
            f"{kind.removesuffix('s').capitalize()} '{name}' is registered by two packages: "
            f"{' and '.join(shown)}. Rename one in its entry points, or uninstall a package."
        )


def find_kind(kind: str, name: str, base: type[Base]) -> type[Base]:
    """Return the class that an extension registers.

    base: the base class of its kind. Raises SettingsError for an unknown name or another base.
    """
    extension = find(kind, name)
    if not isinstance(extension, type) or not issubclass(extension, base):
        noun = kind.removesuffix("s").capitalize()
        raise SettingsError(
            f"{noun} '{name}' is no subclass of `needlemap.plugins.{base.__name__}`."
        )
    return extension


class Checked(type):
    """Metaclass that checks keyword options against the constructor's signature."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        return super().__call__(*args, **checked(cls, options))


def checked(extension: type, options: Mapping[str, Any], kind: str = "") -> dict[str, Any]:
    """Return the options with their annotated types.

    kind: whose options they are, for the error; by default the extension's name. Raises
    SettingsError for an unknown name or a wrong value.
    """
    kind = kind or extension.__name__
    init = _constructor(extension)
    names = option_names(extension)
    positional = [name for name in inspect.signature(init).parameters if name not in names]
    for name in options:
        if name not in names and name not in positional:
            hint = did_you_mean(name, names) if names else "It takes none."
            raise SettingsError(f"Unknown option '{name}' of {kind}. {hint}")
    hints = get_type_hints(init, include_extras=True)
    return {
        name: _checked_value(kind, name, value, hints.get(name, Any))
        for name, value in options.items()
    }


def option_names(extension: type) -> list[str]:
    """Return the options that an extension's constructor names, in its order."""
    return [option.name for option in options_of(extension)]


def options_of(extension: type) -> list[inspect.Parameter]:
    """Return the options of an extension's constructor, with their defaults."""
    parameters = inspect.signature(_constructor(extension)).parameters.values()
    return [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def _constructor(extension: type) -> Any:
    return inspect.unwrap(extension.__init__)  # type: ignore[misc]


def _checked_value(kind: str, name: str, value: Any, hint: Any) -> Any:
    """Return a value of an annotated type.

    Raises SettingsError if the value cannot be converted to the type.
    """
    # Late: not needed if only prompts are built.
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    adapter = TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]
        allowed = problem.get("ctx", {}).get("expected")
        if not allowed:
            allowed = _KINDS.get(problem["type"].partition("_")[0])
        if problem["type"].startswith(("greater", "less")):
            schema = adapter.json_schema()
            bounds = [f"{words} {schema[key]}" for key, words in _BOUNDS.items() if key in schema]
            allowed = " and ".join(bounds)
        if allowed:
            reason = f" must be {allowed}"
        else:
            reason = f": {problem['msg'].removeprefix('Value error, ')}"
        raise SettingsError(f"Option '{name}' of {kind}{reason}, got {value!r}.") from None
