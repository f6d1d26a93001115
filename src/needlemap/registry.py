"""One door for every extension: Python entry points, and options checked by the constructor's
signature.

docs/extending.md lists the groups. Built-ins and wings use it too. Nothing is imported before it is
named; a plug-in that cannot be imported is an error when it is named. `class
Levenshtein(metaclass=Checked)` is all it takes for options: a misspelt name or a value of the
wrong type is refused when it is built.
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

_GROUP = "needlemap."  # before a kind, in the names of entry points' groups
_KINDS = {  # what is allowed, by how the name of a validation error begins
    "int": "a whole number",
    "float": "a number",
    "finite": "a number",
    "bool": "true or false",
    "string": "text",
}
_BOUNDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most"}


@cache
def installed(kind: str) -> dict[str, EntryPoint]:
    """The extensions of a kind ('models', 'tasks', ...) by name, not yet imported."""
    return {point.name: point for point in _all().select(group=_GROUP + kind)}


@cache
def _all() -> Any:
    """Every installed package's `EntryPoints`: one look at their files serves all kinds."""
    from importlib.metadata import entry_points  # not for those who only build prompts

    return entry_points()


@cache
def find(kind: str, name: str) -> Any:
    """The class that an extension registers. Raises SettingsError with the nearest known
    name."""
    known = installed(kind)
    if name not in known:
        noun = kind.removesuffix("s")
        raise SettingsError(f"Unknown {noun} '{name}'. {did_you_mean(name, known)}")
    refuse_two(kind, name)
    try:
        return known[name].load()
    except ImportError as error:
        missing = error.name or str(error)
        if missing.startswith("needlemap."):
            raise SettingsError(
                f"'{missing}' is not there: needlemap changed since it was installed. "
                f"Install it again. In its source, type: {FROM_SOURCE}"
            ) from error
        line = install_line(name) if packages_of(name) else f"python3 -m pip install '{missing}'"
        raise SettingsError(
            f"{kind.removesuffix('s').capitalize()} '{name}' needs '{missing}', which is not "
            f"installed. Run: {line}"
        ) from error
    except Exception as error:  # a plug-in's module may raise anything
        raise SettingsError(
            f"{kind.removesuffix('s').capitalize()} '{name}' cannot be loaded "
            f"({known[name].value}): {raised_by(error)}"
        ) from error


@cache
def refuse_two(kind: str, name: str) -> None:
    """Raises SettingsError where two packages register one name: which is meant is not known,
    and a built-in that comes later would take a plug-in's place without a word."""
    owners = {point.value: point.dist for point in _all().select(group=_GROUP + kind, name=name)}
    if len(owners) > 1:
        shown = sorted(f"{dist.name} {dist.version} ({at})" for at, dist in owners.items() if dist)
        raise SettingsError(
            f"{kind.removesuffix('s').capitalize()} '{name}' is registered by two packages: "
            f"{' and '.join(shown)}. Rename one in its entry points, or uninstall a package."
        )


def find_kind(kind: str, name: str, base: type[Base]) -> type[Base]:
    """The class that an extension registers. Raises SettingsError, also where its base is not
    its kind's."""
    made = find(kind, name)
    if not isinstance(made, type) or not issubclass(made, base):
        noun = kind.removesuffix("s").capitalize()
        raise SettingsError(
            f"{noun} '{name}' is no subclass of `needlemap.plugins.{base.__name__}`."
        )
    return made


class Checked(type):
    """Metaclass: keyword options are checked against the constructor's signature when an
    object is built."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        return super().__call__(*args, **checked(cls, options))


def checked(extension: type, options: Mapping[str, Any], kind: str = "") -> dict[str, Any]:
    """The options with their annotated types. Raises SettingsError for an unknown name or a
    wrong value.

    kind: whose they are, for the error; by default the extension's name.
    """
    kind = kind or extension.__name__
    init, named = _constructor(extension), option_names(extension)
    positional = [name for name in inspect.signature(init).parameters if name not in named]
    for name in options:
        if name not in named and name not in positional:
            known = did_you_mean(name, named) if named else "It takes none."
            raise SettingsError(f"Unknown option '{name}' of {kind}. {known}")
    hints = get_type_hints(init, include_extras=True)
    return {
        name: _typed(kind, name, value, hints.get(name, Any)) for name, value in options.items()
    }


def option_names(extension: type) -> list[str]:
    """The options that an extension's constructor names, in its order."""
    return [option.name for option in options_of(extension)]


def options_of(extension: type) -> list[inspect.Parameter]:
    """The same with their defaults."""
    parameters = inspect.signature(_constructor(extension)).parameters.values()
    return [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def _constructor(extension: type) -> Any:
    return inspect.unwrap(extension.__init__)  # type: ignore[misc]


def _typed(kind: str, name: str, value: Any, hint: Any) -> Any:
    from pydantic import (
        ConfigDict,
        TypeAdapter,
        ValidationError,
    )  # not for those who only build prompts

    adapter = TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]
        allowed = problem.get("ctx", {}).get("expected") or _KINDS.get(
            problem["type"].partition("_")[0]
        )
        if problem["type"].startswith(("greater", "less")):
            said = adapter.json_schema()
            allowed = " and ".join(
                f"{words} {said[key]}" for key, words in _BOUNDS.items() if key in said
            )
        wanted = (
            f" must be {allowed}"
            if allowed
            else f": {problem['msg'].removeprefix('Value error, ')}"
        )
        raise SettingsError(f"Option '{name}' of {kind}{wanted}, got {value!r}.") from None
