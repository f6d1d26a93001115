"""Build a command of the command line when it is typed.

The core's commands are declared in `cli.py`. A wing or another package registers more by entry
points of group `needlemap.commands`, and adds flags to a command by classes of group
`needlemap.NAME_flags`, with the command's name as NAME. Neither is imported unless it is typed or
help is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from needlemap.commands.arguments import with_flags
from needlemap.deadline import limited_to
from needlemap.registry import find, installed
from needlemap.settings.flags import HELP_ALL, GroupedCommand, Shown

GROUP = "commands"
# The headings of the list of commands, in their order. A package may bring others.
MAP = "Map a model"
TEST = "Test a server"
COMPARE = "Compare and gate"
LOOK_UP = "Look up"
OTHER = "Other commands"
Function = TypeVar("Function", bound=Callable[..., int | None])
_HELP = ("-h", "--help", HELP_ALL)


@dataclass(frozen=True, slots=True)
class Command:
    """A command before it is built.

    Attributes:
        function: Parses, calls and prints. Its docstring is the command's help.
        group: The heading under which `needlemap --help` lists the command.
        settings: Names of the settings that the function's **flags stand for.
        shown: How the command's help shows those settings.
        extended: True if packages may add flags. The function's `added` then holds instances of
            their classes, and is empty unless one of their flags is typed.
    """

    function: Callable[..., int | None]
    group: str = OTHER
    settings: Sequence[str] = ()
    shown: Shown | None = None
    extended: bool = False

    def summary(self, name: str) -> TyperCommand:
        """Return the command without its flags, for the list of all commands."""
        return TyperCommand(name=name, help=self.function.__doc__)

    def build(self, name: str, words: Sequence[str] | None = None) -> TyperCommand:
        """Return the command with its flags.

        words: the words typed after the command; None to add the flags of all packages.
        """
        command = self._build(name, ())
        if self.extended and (words is None or _needs_more_flags(words, command)):
            group = f"{name}_flags"
            classes = [find(group, package) for package in sorted(installed(group))]
            return self._build(name, classes)
        return command

    def _build(self, name: str, added: Sequence[type]) -> TyperCommand:
        callback = with_flags(self.function, self.settings, shown=self.shown, added=added)
        info = CommandInfo(name=name, cls=GroupedCommand, callback=callback)
        command = get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None)
        assert isinstance(command, TyperCommand)
        return command


def declared(
    commands: dict[str, Command], *, name: str = "", **fields: Any
) -> Callable[[Function], Function]:
    """Return a decorator that declares a function as a command.

    commands: the commands to which it is added. name: the command's name; '' for the function's.
    fields: further fields of `Command`.
    """

    def declare(function: Function) -> Function:
        commands[name or function.__name__] = Command(function, **fields)
        return function

    return declare


def _needs_more_flags(words: Sequence[str], command: TyperCommand) -> bool:
    """Return True if the words request help, or hold a flag that the command does not have."""
    known_flags = set[str]()
    for parameter in command.params:
        known_flags |= {*parameter.opts, *parameter.secondary_opts}
    for word in words:
        if word.startswith("-"):
            flag = word.partition("=")[0].replace("_", "-")
            if flag in _HELP or flag not in known_flags:
                return True
    return False


class Commands(MutableMapping[str, Any]):
    """All commands by name, the core's first. Looking one up builds it with all its flags.

    Attributes:
        own: The core's commands by name, before they are built.
    """

    def __init__(self, own: dict[str, Command]) -> None:
        self.own = own

    def declared(self, name: str) -> Command | None:
        """Return a command before it is built, or None for an unknown name.

        Raises SettingsError if its package cannot be imported.
        """
        if name in self.own:
            return self.own[name]
        if name not in installed(GROUP):
            return None
        registered = find(GROUP, name)
        if isinstance(registered, Command):
            return registered
        return Command(registered)

    def __getitem__(self, name: str) -> TyperCommand:
        command = self.declared(name)
        if command is None:
            raise KeyError(name)
        return command.build(name)

    def __iter__(self) -> Iterator[str]:
        others = set(installed(GROUP)) - set(self.own)
        return iter((*self.own, *sorted(others)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __setitem__(self, name: str, command: Any) -> None:
        raise TypeError("a command is declared in `own` or by an entry point")

    def __delitem__(self, name: str) -> None:
        raise TypeError("a command is declared in `own` or by an entry point")


class CommandGroup(TyperGroup):
    """The group of all commands, which builds only the typed command.

    Attributes:
        own: The core's commands by name, before they are built.
    """

    own: ClassVar[dict[str, Command]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Commands = Commands(self.own)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the first word names."""
        ctx.meta[GROUP] = args[1:]
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by name, with the flags that a typed line needs or without flags."""
        command = self.commands.declared(cmd_name)
        if command is None:
            return None
        if GROUP in ctx.meta:
            return command.build(cmd_name, ctx.meta[GROUP])
        return command.summary(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands under their headings."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in (MAP, TEST, COMPARE)}
        width = max(map(len, self.commands))
        for name in self.commands:
            command = self.commands.declared(name)
            assert command is not None
            text = command.summary(name).get_short_help_str(formatter.width - width - 6)
            groups.setdefault(command.group, []).append((f"{name:{width}}", text))
        # Headings of other packages come before these two.
        for group in (LOOK_UP, OTHER):
            groups[group] = groups.pop(group, [])
        for group, rows in groups.items():
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows)


def limited_by(preset: str | None, flags: dict[str, Any]) -> AbstractContextManager[None]:
    """Return a context that limits the command's time, by its flags or by what its preset sets."""
    from needlemap.asking.discovery import time_limit

    return limited_to(time_limit(preset, flags))


def refuse_strangers(path: Path | None, trusted: bool, names: Iterable[str]) -> None:
    """Raise NeedlemapError for a run that another machine started, unless it is trusted.

    path: the run's folder. names: of further run folders in it.
    """
    if path is not None and path.is_dir():
        from needlemap.records.origin import check_origin

        check_origin(path, trusted, names)
