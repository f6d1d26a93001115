"""Command-line flags made from the settings: each setting is one flag of the same name, with the same help.

The older tools' names are flags too, hidden from `--help` and listed in docs/coming-from.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal, Optional, get_args, get_origin

import typer
import yaml
from pydantic.fields import FieldInfo
from typer.core import TyperCommand

from needlemap.errors import SettingsError
from needlemap.seed_names import TABLE
from needlemap.settings import Settings
from needlemap.yaml_text import read_yaml


class GroupedCommand(TyperCommand):
    """A command whose help lists its flags by the settings' groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """One section a group; the command's own flags come first."""
        groups: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is not None and parameter.param_type_name == "option":
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or "Options", []).append(row)
        for name, rows in groups.items():
            with formatter.section(name):
                formatter.write_dl(rows)


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose **flags become one flag a setting; it receives those that were given, parsed."""
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    names = {parameter.name for parameter in own}
    made = [_parameter(name, field) for name, field in Settings.model_fields.items()]
    made += [_hidden(row.name) for row in TABLE if row.name not in Settings.model_fields]

    def run(**values: Any) -> None:
        kept = {name: values[name] for name in names}
        flags = {
            name: value for name, value in values.items() if name not in names and value not in (None, [])
        }
        command(**kept, **{name: parsed(name, value) for name, value in flags.items()})

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature([*own, *made])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *made]}
    return run


def parsed(name: str, value: Any) -> Any:
    """A flag's text as the setting's kind of value: KEY=VALUE pairs become a mapping, 'none' None."""
    field = Settings.model_fields.get(name)
    if field is None:
        return _plain(value)
    if get_origin(field.annotation) is dict:
        return _mapping(name, value)
    if isinstance(value, str) and value.lower() == "none" and type(None) in get_args(field.annotation):
        return None
    if name == "file_list":
        return [part for text in value for part in text.split(",")]
    return value


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    flag = f"--{name.replace('_', '-')}"
    extra = field.json_schema_extra
    group = str(extra["group"]) if isinstance(extra, dict) else ""
    kind: Any = Optional[str]  # noqa: UP045 - typer reads it at run time
    if field.annotation is bool:
        kind, flag = Optional[bool], f"{flag}/--no-{name.replace('_', '-')}"  # noqa: UP045
    elif get_origin(field.annotation) in (list, dict):
        kind = Optional[list[str]]  # noqa: UP045
    shown = f"{field.description} (default {field.default})" if _worth_showing(field) else field.description
    option = typer.Option(
        flag, help=shown, metavar=_metavar(field), rich_help_panel=group, show_default=False
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )


def _hidden(name: str) -> inspect.Parameter:
    option = typer.Option(f"--{name.replace('_', '-')}", f"--{name}", hidden=True)
    kind: Any = Optional[str]  # noqa: UP045
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )


def _metavar(field: FieldInfo) -> str | None:
    """What a flag takes, for the help: its choices, KEY=VALUE, a number, or text."""
    kind = field.annotation
    if kind is bool:
        return None
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if get_origin(kind) is dict:
        return "KEY=VALUE"
    numbers = {int, float} & {kind, *get_args(kind)}
    return "SPEC" if str in get_args(kind) and numbers else "NUMBER" if numbers else "TEXT"


def _worth_showing(field: FieldInfo) -> bool:
    return field.default not in (None, "", [], {}, False)


def _mapping(name: str, pairs: list[str]) -> dict[str, Any]:
    found = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise SettingsError(f"--{name.replace('_', '-')} takes KEY=VALUE, got '{pair}'.")
        found[key.strip()] = text.split(",") if name == "draw" and "," in text else _plain(text)
    return found


def _plain(text: Any) -> Any:
    """A text as YAML reads it: numbers, true, false, [lists], {mappings}; else as it is."""
    try:
        value = read_yaml(text)
    except yaml.YAMLError:
        return text
    return text if isinstance(value, dict) and not text.lstrip().startswith("{") else value
