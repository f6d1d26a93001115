"""Command-line flags made from the settings: each setting is one flag of the same name, with
the same help.

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
from needlemap.settings.older_names import REFUSED, TABLE, explained
from needlemap.shelves import PRESETS

HELP_ALL = "--help-all"
_LATER = " (--help-all)"  # ends the group of a flag that --help leaves to --help-all
_TEXTS = ("file_list", "needles", "keyword", "substr_validation_words")  # lists of texts
_ARGUMENTS, _OWN = "Arguments", "Options"  # the groups of what only this command takes
_ORDER = (_ARGUMENTS, "Model", "Grid", "Task", "Haystack", "Template", "Scoring", _OWN, "Run")
# Under which groups `--help` shows the few flags of others, so that it fits one screen.
_AMONG = {"Haystack": "Task", "Template": "Task", "Scoring": "Task", "Run": _OWN}
_OLDER = frozenset(row.name for row in TABLE)
_LISTS = tuple({*(row.name for row in TABLE if row.words), *_TEXTS})


class GroupedCommand(TyperCommand):
    """A command whose help lists its flags by the settings' groups. `--help` shows those of every
    day, `--help-all` all of them. It takes the older tools' spelling too: `_` for `-` in a flag's
    name, True and False behind it, and several words behind one that takes a list.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, after the older spelling is made ours."""
        words = args[: args.index("--")] if "--" in args else args
        if HELP_ALL in words:
            ctx.meta[HELP_ALL] = True
            args = ["--help"]
        try:
            _refuse_theirs(words, self.params, str(ctx.info_name))
            return super().parse_args(ctx, respelt(args, self.params))
        except typer.BadParameter as error:  # in pydantic's words
            if isinstance(error.__cause__, ValidationError):
                got = error.__cause__.errors()[0]["input"]
                error.message = validator_words(error.message, got)
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """One section a group, and what else there is to read."""
        parameters = self.get_params(ctx)
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in _ORDER}
        left_out = False
        # Of a group, the flags of every day come first.
        for parameter in sorted(parameters, key=_is_later):
            row = parameter.get_help_record(ctx)
            if row is None:
                continue
            if _is_later(parameter) and HELP_ALL not in ctx.meta:
                left_out = True
                continue
            own = _OWN if parameter.param_type_name == "option" else _ARGUMENTS
            name = str(getattr(parameter, "rich_help_panel", None) or own).removesuffix(_LATER)
            if HELP_ALL not in ctx.meta:
                name = _AMONG.get(name, name)
            groups.setdefault(name, []).append(_row(*row, is_argument=own == _ARGUMENTS))
        if not groups["Grid"]:  # what a command asks is in its own flags
            groups = {name: groups[name] for name in (_ARGUMENTS, "Model", _OWN)} | groups
        for name, rows in groups.items():
            if rows:
                with formatter.section(name):
                    formatter.write_dl(rows)
        if left_out:
            _write(formatter, f"All flags: {ctx.command_path} {HELP_ALL}")
        elif HELP_ALL in ctx.meta and any(each.name in _OLDER for each in parameters):
            _write(
                formatter,
                "Names of the older tools: needlemap help from-opencompass",
            )


def later(group: str) -> str:
    """Return the name of a group's part that `--help` leaves to `--help-all`."""
    return group + _LATER


def _is_later(parameter: Any) -> bool:
    return str(getattr(parameter, "rich_help_panel", None)).endswith(_LATER)


def _row(name: str, words: str, *, is_argument: bool) -> tuple[str, str]:
    """A flag or an argument and its help, without a Python type, and without the bounds of a
    number, which only a wrong one needs."""
    words, _, extra = words.removesuffix("]").partition("  [")
    for part in extra.split("; "):
        if part.startswith("default: "):
            words += f" (default {part.removeprefix('default: ')})"
        elif part == "required":
            words += " (required)"
    return name.split(" <")[0] if is_argument else name, words


def _write(formatter: Any, words: str) -> None:
    """A paragraph of a help."""
    formatter.write_paragraph()
    formatter.write_text(words)


Completion = Callable[[str], list[str]]  # what stands behind a flag, by how it begins


@dataclass(frozen=True, slots=True)
class Shown:
    """How the help of a command shows settings.

    everyday: those in `--help`; the others wait for `--help-all`. nowhere: those in neither, as
    they mean nothing to the command: it takes them all the same, so that the flags of another
    command can be typed again, or says what to type instead. texts: its own help of some.
    """

    everyday: Collection[str] = ()
    nowhere: Collection[str] = ()
    texts: Mapping[str, str] = field(default_factory=dict)


def flags_of(
    names: Sequence[str],
    completion_of: Callable[[str], Completion | None],
    shown: Shown,
) -> list[inspect.Parameter]:
    """The flags of some settings, those of the older tools' names too.

    completion_of: what a shell offers for a setting. shown: how a command's help shows them.
    """
    made = [_parameter(name, completion_of(name), shown) for name in names]
    return made + [
        _hidden(row.name)
        for row in TABLE
        if names and row.setting in {*names, REFUSED} and row.name not in Settings.model_fields
    ]


def _refuse_theirs(words: Sequence[str], parameters: Sequence[Any], command: str) -> None:
    """Raises SettingsError for a flag of an older tool that the command does not take, as YAML's
    reader does."""
    owners = {flag: each for each in parameters for flag in (*each.opts, *each.secondary_opts)}
    is_value = False
    for word in words:
        flag, equals, _ = word.partition("=")
        owner = owners.get(flag) or owners.get(flag.replace("_", "-"))
        if flag.startswith("--") and owner is None and not is_value:
            name = flag[2:].replace("-", "_")
            if told := explained(name, "on the command line", command):
                raise SettingsError(told)
        takes_word = owner is not None and not equals and not getattr(owner, "is_flag", False)
        is_value = takes_word and not is_value


def respelt(args: Sequence[str], parameters: Sequence[Any]) -> list[str]:
    """Arguments in our spelling.

    `--save_contexts True` and `--save_contexts=True` are `--save-contexts`, `--logprobs off` is
    `--no-logprobs`;
    `--substr_validation_words a b` is that flag twice. A word that may be the preset ends such
    a list. `--until no-worse-than RUN:2` takes both words. Several `--needle` are `--needles`.
    """
    owners = {flag: each for each in parameters for flag in (*each.opts, *each.secondary_opts)}
    made: list[str] = []
    waiting = list(args)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            return [*made, word, *waiting]
        flag, equals, value = word.partition("=")
        if flag.startswith("--") and flag not in owners and flag.replace("_", "-") in owners:
            flag = flag.replace("_", "-")
        if flag == "--until" and waiting[1:] and waiting[0] == "no-worse-than":
            waiting[:2] = [" ".join(waiting[:2])]
        owner = owners.get(flag)
        wanted = _truth([value] if equals else waiting[:1])
        if owner is not None and getattr(owner, "is_flag", False) and wanted is not None:
            del waiting[: 0 if equals else 1]
            made += (owner.opts if wanted else owner.secondary_opts)[:1]
            continue
        made.append(f"{flag}{equals}{value}")
        if owner is not None and owner.name in _LISTS and not equals and waiting:
            made.append(waiting.pop(0))
            while waiting and not waiting[0].startswith("-") and not _names_preset(waiting[0]):
                made += [flag, waiting.pop(0)]
    return _several(made) if "--needles" in owners else made


def _several(words: Sequence[str]) -> list[str]:
    """Arguments whose `--needle` is that of several, where it is given more than once."""
    one = [word.partition("=") for word in words]
    if sum(flag == "--needle" for flag, _, _ in one) < 2:
        return list(words)
    return [
        ("--needles" if flag == "--needle" else flag) + rest + value for flag, rest, value in one
    ]


def _truth(words: Sequence[str]) -> bool | None:
    spelt = {"true": True, "false": False, "on": True, "off": False}
    return spelt.get(words[0].lower()) if words else None


def _names_preset(word: str) -> bool:
    return is_yaml(word) or word.startswith("suite:") or word in PRESETS.texts


def reader_of(name: str) -> Callable[[Any], Any] | None:
    """What reads the text of a flag as the setting's kind of value: KEY=VALUE pairs as a
    mapping, 'none' as None. None where the text is the value."""
    field = Settings.model_fields.get(name)
    if name in _TEXTS:
        return _file_names if name == "file_list" else _all_texts
    if name in _LISTS:
        return _listed
    if name == "model":
        return _one_or_several
    if field is None:
        return _plain
    if get_origin(field.annotation) is dict:
        return partial(mapping_of, name)
    return _optional if type(None) in get_args(field.annotation) else None


def _one_or_several(models: list[str]) -> str | list[str]:
    """The model of a flag that is repeated for several."""
    return models if len(models) > 1 else models[0]


def _optional(value: Any) -> Any:
    return None if isinstance(value, str) and value.lower() == "none" else value


def _all_texts(words: Sequence[str]) -> list[str]:
    return [text for word in words for text in _texts(word)]


def _file_names(words: Sequence[str]) -> list[str]:
    return [name for text in _all_texts(words) for name in text.split(",")]


def _texts(word: str) -> list[str]:
    """A word, or the texts of a list in Python's spelling or YAML's, such as "['a', 'b']"."""
    if not word.lstrip().startswith("["):
        return [word]
    try:
        found = literal_eval(word.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = _plain(word)
    return [str(part) for part in found] if isinstance(found, list) else [word]


def _parameter(name: str, completion: Completion | None, shown: Shown) -> inspect.Parameter:
    flag = f"--{name.replace('_', '-')}"
    field, known = Settings.model_fields[name], KNOWN[name]
    kind: Any = Optional[str]  # noqa: UP045 - typer reads it at run time
    if field.annotation is bool:
        kind, flag = Optional[bool], f"{flag}/--no-{name.replace('_', '-')}"  # noqa: UP045
    elif name == "model" or (
        get_origin(field.annotation) in (list, dict) and "sentences" not in known.marks
    ):
        kind = Optional[list[str]]  # noqa: UP045
    text = help_texts()[name]
    if _worth_showing(field):
        text += f" (default {field.default})"
    option = typer.Option(
        flag,
        help=shown.texts.get(name, text),
        metavar=known.metavar or taken(field.annotation),
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


def _listed(words: Sequence[str]) -> Any:
    """Words as a list, of which one may be a list in YAML; one word alone is as it stands."""
    found = [_plain(word) for word in words]
    if len(found) == 1:
        return found[0]
    return [part for each in found for part in (each if isinstance(each, list) else [each])]


def _hidden(name: str) -> inspect.Parameter:
    option = typer.Option(f"--{name.replace('_', '-')}", hidden=True)
    return _keyword(name, Optional[list[str] if name in _LISTS else str], option)  # noqa: UP045


def taken(kind: Any) -> str | None:
    """What a flag of this type takes, in the help's words: its choices, KEY=VALUE, a path, a
    number, or text. None for a switch. What else is typed, such as a DURATION, its own metavar
    names."""
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if get_origin(kind) is dict:
        return "KEY=VALUE"
    if kind in (Lengths, Depths):
        return "TOKENS" if kind is Lengths else "PERCENT"
    kinds = {kind, *get_args(kind)}
    kinds |= {inner for each in kinds if get_origin(each) is list for inner in get_args(each)}
    if bool in kinds:
        return None
    if kinds & {int, float}:
        return "NUMBER" if float in kinds else "N"
    return "PATH" if Path in kinds else "TEXT"


def _worth_showing(field: FieldInfo) -> bool:
    return field.default is not True and field.default not in (None, "", [], {}, False, "auto")


def mapping_of(name: str, pairs: Sequence[str]) -> dict[str, Any]:
    """The KEY=VALUE pairs of a flag. Raises SettingsError."""
    found = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise SettingsError(f"--{name.replace('_', '-')} takes KEY=VALUE, got '{pair}'.")
        found[key.strip()] = text.split(",") if name == "draw" and "," in text else _plain(text)
    return found


def _plain(text: Any) -> Any:
    """A text as YAML reads it: numbers, true, false, [lists], {mappings}; else as it is."""
    import yaml

    try:
        value = read_yaml(text)
    except yaml.YAMLError:
        return text
    return text if isinstance(value, dict) and not text.lstrip().startswith("{") else value
