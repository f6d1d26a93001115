"""Make command-line flags from the settings: each is one flag of the same name, with its help.

The older tools' names and ways are flags too, hidden from `--help` and listed by
`needlemap help from-opencompass`.
"""

from __future__ import annotations

import inspect
from ast import literal_eval
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, get_args, get_origin

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from typer.core import TyperCommand

from needlemap.errors import SettingsError, validator_words
from needlemap.files import is_yaml, read_yaml
from needlemap.grid import Depths, Lengths
from needlemap.settings import KNOWN, Settings, help_texts
from needlemap.settings.older_names import REFUSED, TABLE, explanation_of
from needlemap.shelves import PRESETS

HELP_ALL = "--help-all"
# Ends the group of a flag that --help leaves to --help-all.
_LATER = " (--help-all)"
# Lists of texts.
_TEXTS = ("file_list", "needles", "keyword", "substr_validation_words")
# The groups of arguments and flags that only one command takes.
_ARGUMENTS, _OWN = "Arguments", "Options"
_ORDER = (_ARGUMENTS, "Model", "Grid", "Task", "Haystack", "Template", "Scoring", _OWN, "Run")
# Under which groups `--help` shows the few flags of others, so that it fits one screen.
_AMONG = {"Haystack": "Task", "Template": "Task", "Scoring": "Task", "Run": _OWN}
_OLDER = frozenset(row.name for row in TABLE)
_LISTS = tuple({*(row.name for row in TABLE if row.words), *_TEXTS})


class GroupedCommand(TyperCommand):
    """A command whose help lists its flags by the settings' groups.

    `--help` shows the flags of every day, `--help-all` all of them. The command takes the older
    tools' spelling too: `_` for `-` in a flag's name, True or False behind a switch, and several
    words behind a flag that takes a list.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments in our spelling or in the older tools'."""
        words = args[: args.index("--")] if "--" in args else args
        if HELP_ALL in words:
            ctx.meta[HELP_ALL] = True
            args = ["--help"]
        try:
            _refuse_older_flags(words, self.params, str(ctx.info_name))
            return super().parse_args(ctx, respell(args, self.params))
        except typer.BadParameter as error:
            # Its message is pydantic's.
            if isinstance(error.__cause__, ValidationError):
                got = error.__cause__.errors()[0]["input"]
                error.message = validator_words(error.message, got)
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group of flags, and which flags the help leaves out."""
        parameters = self.get_params(ctx)
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in _ORDER}
        leaves_out = False
        # Of a group, the flags of every day come first.
        for parameter in sorted(parameters, key=_is_later):
            row = parameter.get_help_record(ctx)
            if row is None:
                continue
            if _is_later(parameter) and HELP_ALL not in ctx.meta:
                leaves_out = True
                continue

            is_argument = parameter.param_type_name != "option"
            default_group = _ARGUMENTS if is_argument else _OWN
            group = str(getattr(parameter, "rich_help_panel", None) or default_group)
            group = group.removesuffix(_LATER)
            if HELP_ALL not in ctx.meta:
                group = _AMONG.get(group, group)
            groups.setdefault(group, []).append(_help_row(*row, is_argument=is_argument))

        if not groups["Grid"]:
            # The prompts of such a command are chosen by its own flags, so they come first.
            groups = {name: groups[name] for name in (_ARGUMENTS, "Model", _OWN)} | groups
        for group, rows in groups.items():
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows)

        if leaves_out:
            _write_paragraph(formatter, f"All flags: {ctx.command_path} {HELP_ALL}")
        elif HELP_ALL in ctx.meta and any(parameter.name in _OLDER for parameter in parameters):
            _write_paragraph(formatter, "Names of the older tools: needlemap help from-opencompass")


def later(group: str) -> str:
    """Return the name of a group's part that `--help` leaves to `--help-all`."""
    return group + _LATER


def _is_later(parameter: Any) -> bool:
    return str(getattr(parameter, "rich_help_panel", None)).endswith(_LATER)


def _help_row(name: str, words: str, *, is_argument: bool) -> tuple[str, str]:
    """Return the name of a flag or an argument, and its help.

    Python types are left out. So are the bounds of a number: an error names them.
    """
    words, _, extra = words.removesuffix("]").partition("  [")
    for part in extra.split("; "):
        if part.startswith("default: "):
            words += f" (default {part.removeprefix('default: ')})"
        elif part == "required":
            words += " (required)"
    return name.split(" <")[0] if is_argument else name, words


def _write_paragraph(formatter: Any, words: str) -> None:
    """Write a paragraph of a help."""
    formatter.write_paragraph()
    formatter.write_text(words)


# Returns the values of a flag that start with a text.
Completion = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class Shown:
    """How the help of a command shows settings.

    Attributes:
        everyday: The settings in `--help`. The others are in `--help-all`.
        nowhere: Settings in neither, because they mean nothing to the command. It takes them all
            the same, so that the flags of another command can be typed again, or so that it can
            say what to type instead.
        texts: The command's own help texts, by setting.
    """

    everyday: Collection[str] = ()
    nowhere: Collection[str] = ()
    texts: Mapping[str, str] = field(default_factory=dict)


def flags_of(
    names: Sequence[str],
    completion_of: Callable[[str], Completion | None],
    shown: Shown,
) -> list[inspect.Parameter]:
    """Return the flags of some settings, under our names and the older tools'.

    completion_of: returns how a shell completes a setting's flag, or None. shown: how the command's
    help shows the settings.
    """
    flags = [_parameter(name, completion_of(name), shown) for name in names]
    older_flags = [
        _hidden_parameter(row.name)
        for row in TABLE
        if names and row.setting in {*names, REFUSED} and row.name not in Settings.model_fields
    ]
    return flags + older_flags


def _parameters_by_flag(parameters: Sequence[Any]) -> dict[str, Any]:
    """Return a command's parameters by the spellings of their flags."""
    return {
        flag: parameter
        for parameter in parameters
        for flag in (*parameter.opts, *parameter.secondary_opts)
    }


def _refuse_older_flags(words: Sequence[str], parameters: Sequence[Any], command: str) -> None:
    """Raise SettingsError for a flag of an older tool that the command does not take.

    The error says what to type in its place.
    """
    parameters_by_flag = _parameters_by_flag(parameters)
    is_value = False
    for word in words:
        flag, equals, _ = word.partition("=")
        parameter = parameters_by_flag.get(flag) or parameters_by_flag.get(flag.replace("_", "-"))
        if flag.startswith("--") and parameter is None and not is_value:
            name = flag[2:].replace("-", "_")
            explanation = explanation_of(name, "on the command line", command)
            if explanation:
                raise SettingsError(explanation)

        is_switch = getattr(parameter, "is_flag", False)
        takes_word = parameter is not None and not equals and not is_switch
        is_value = takes_word and not is_value


def respell(args: Sequence[str], parameters: Sequence[Any]) -> list[str]:
    """Return arguments in our spelling.

    * `--save_contexts True` and `--save_contexts=True` become `--save-contexts`.
    * `--logprobs off` becomes `--no-logprobs`.
    * `--substr_validation_words a b` becomes that flag twice. A word that may be the preset ends
      such a list.
    * `--until no-worse-than RUN:2` takes both words.
    * Several `--needle` become `--needles`.
    """
    parameters_by_flag = _parameters_by_flag(parameters)
    words: list[str] = []
    remaining = list(args)
    while remaining:
        word = remaining.pop(0)
        if word == "--":
            return [*words, word, *remaining]

        flag, equals, value = word.partition("=")
        our_flag = flag.replace("_", "-")
        is_ours = flag in parameters_by_flag or our_flag not in parameters_by_flag
        if flag.startswith("--") and not is_ours:
            flag = our_flag
        if flag == "--until" and remaining[1:] and remaining[0] == "no-worse-than":
            remaining[:2] = [" ".join(remaining[:2])]

        parameter = parameters_by_flag.get(flag)
        is_on = _switch_value([value] if equals else remaining[:1])
        if parameter is not None and getattr(parameter, "is_flag", False) and is_on is not None:
            if not equals:
                del remaining[0]
            words += (parameter.opts if is_on else parameter.secondary_opts)[:1]
            continue

        words.append(f"{flag}{equals}{value}")
        if parameter is not None and parameter.name in _LISTS and not equals and remaining:
            words.append(remaining.pop(0))
            while (
                remaining and not remaining[0].startswith("-") and not _may_be_preset(remaining[0])
            ):
                words += [flag, remaining.pop(0)]
    return _respell_needles(words) if "--needles" in parameters_by_flag else words


def _respell_needles(words: Sequence[str]) -> list[str]:
    """Return arguments with `--needles` for `--needle`, if that is given more than once."""
    parts = [word.partition("=") for word in words]
    if sum(flag == "--needle" for flag, _, _ in parts) < 2:
        return list(words)
    return [
        ("--needles" if flag == "--needle" else flag) + equals + value
        for flag, equals, value in parts
    ]


def _switch_value(words: Sequence[str]) -> bool | None:
    """Return the value that the first word gives to a switch, or None if it gives none."""
    values = {"true": True, "false": False, "on": True, "off": False}
    return values.get(words[0].lower()) if words else None


def _may_be_preset(word: str) -> bool:
    return is_yaml(word) or word.startswith("suite:") or word in PRESETS.texts


def reader_of(name: str) -> Callable[[Any], Any] | None:
    """Return the function that reads a flag's text as a value of the setting.

    For example, it returns KEY=VALUE pairs as a mapping, and 'none' as None. If the text itself is
    the value, there is no function, and the result is None.
    """
    field = Settings.model_fields.get(name)
    if name in _TEXTS:
        return _file_names if name == "file_list" else _all_texts
    if name in _LISTS:
        return _parse_list
    if name == "model":
        return _one_or_several
    if field is None:
        return _parse_yaml
    if get_origin(field.annotation) is dict:
        return partial(mapping_of, name)
    return _optional if type(None) in get_args(field.annotation) else None


def _one_or_several(models: list[str]) -> str | list[str]:
    """Return the model that was typed, or a list if the flag was repeated."""
    return models if len(models) > 1 else models[0]


def _optional(value: Any) -> Any:
    return None if isinstance(value, str) and value.lower() == "none" else value


def _all_texts(words: Sequence[str]) -> list[str]:
    return [text for word in words for text in _texts(word)]


def _file_names(words: Sequence[str]) -> list[str]:
    return [name for text in _all_texts(words) for name in text.split(",")]


def _texts(word: str) -> list[str]:
    """Return the texts of a list in Python's spelling or YAML's, e.g. "['a', 'b']".

    Any other word is returned as the only text.
    """
    if not word.lstrip().startswith("["):
        return [word]
    try:
        value = literal_eval(word.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = _parse_yaml(word)
    return [str(part) for part in value] if isinstance(value, list) else [word]


def _parameter(name: str, completion: Completion | None, shown: Shown) -> inspect.Parameter:
    flag = f"--{name.replace('_', '-')}"
    field, known = Settings.model_fields[name], KNOWN[name]

    kind: Any = Optional[str]  # noqa: UP045 - typer reads it at run time
    if field.annotation is bool:
        kind = Optional[bool]  # noqa: UP045
        flag = f"{flag}/--no-{name.replace('_', '-')}"
    elif name == "model" or get_origin(field.annotation) in (list, dict):
        kind = Optional[list[str]]  # noqa: UP045

    text = help_texts()[name]
    if _shows_default(field):
        text += f" (default {field.default})"

    option = typer.Option(
        flag,
        help=shown.texts.get(name, text),
        metavar=known.metavar or metavar_of(field.annotation),
        rich_help_panel=known.group if name in shown.everyday else later(known.group),
        show_default=False,
        hidden="older" in known.marks or name in shown.nowhere,
        autocompletion=completion,
    )
    return _keyword(name, kind, option)


def _keyword(name: str, kind: Any, option: Any) -> inspect.Parameter:
    annotation = Annotated[kind, option]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _parse_list(words: Sequence[str]) -> Any:
    """Return the values of several words as one list, or the value of a single word.

    A word may itself be a list in YAML.
    """
    values = [_parse_yaml(word) for word in words]
    if len(values) == 1:
        return values[0]
    return [part for value in values for part in (value if isinstance(value, list) else [value])]


def _hidden_parameter(name: str) -> inspect.Parameter:
    option = typer.Option(f"--{name.replace('_', '-')}", hidden=True)
    return _keyword(name, Optional[list[str] if name in _LISTS else str], option)  # noqa: UP045


def metavar_of(kind: Any) -> str | None:
    """Return what a flag of a type takes, as its help shows it, or None for a switch.

    It is the flag's choices, KEY=VALUE, a path, a number or a text. Anything else, e.g. a DURATION,
    is the setting's own metavar.
    """
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if get_origin(kind) is dict:
        return "KEY=VALUE"
    if kind in (Lengths, Depths):
        return "TOKENS" if kind is Lengths else "PERCENT"
    kinds = {kind, *get_args(kind)}
    kinds |= {item for part in kinds if get_origin(part) is list for item in get_args(part)}
    if bool in kinds:
        return None
    if kinds & {int, float}:
        return "NUMBER" if float in kinds else "N"
    return "PATH" if Path in kinds else "TEXT"


def _shows_default(field: FieldInfo) -> bool:
    return field.default is not True and field.default not in (None, "", [], {}, False, "auto")


def mapping_of(name: str, pairs: Sequence[str]) -> dict[str, Any]:
    """Return the KEY=VALUE pairs of a flag as a mapping.

    Raises SettingsError if a pair has no '='.
    """
    values = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise SettingsError(f"--{name.replace('_', '-')} takes KEY=VALUE, got '{pair}'.")
        is_list = name == "draw" and "," in text
        values[key.strip()] = text.split(",") if is_list else _parse_yaml(text)
    return values


def _parse_yaml(text: Any) -> Any:
    """Return the value of a text in YAML: a number, true, false, a [list] or a {mapping}.

    Any other text is returned as it is.
    """
    import yaml

    try:
        value = read_yaml(text)
    except yaml.YAMLError:
        return text
    # A text with a colon is not a mapping.
    if isinstance(value, dict) and not text.lstrip().startswith("{"):
        return text
    return value
