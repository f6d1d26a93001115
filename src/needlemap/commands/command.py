"""Commands of the command line, each built when it is typed.

The core's commands are declared in `cli.py`. A wing or another package registers more by entry
points of group `needlemap.commands`, and adds flags to a command by classes of group
`needlemap.NAME_flags`, NAME being the command's. Neither is imported unless it is typed or help is
asked for.
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
# The headings of the list of commands, in their order; a package may bring others.
MAP, TEST, COMPARE, LOOK_UP = "Map a model", "Test a server", "Compare and gate", "Look up"
OTHER = "Other commands"
Function = TypeVar("Function", bound=Callable[..., int | None])
_HELP = ("-h", "--help", HELP_ALL)


@dataclass(frozen=True, slots=True)
class Command:
    """A command before it is built.

    group: under which heading `needlemap --help` lists it. settings: names of the settings that
    its **flags stand for; shown: how its help shows them. extended: whether packages may add
    flags; the function's `added` then holds their instances, none unless one of their flags is
    typed.
    """

    function: Callable[..., int | None]
    group: str = OTHER
    settings: Sequence[str] = ()
    shown: Shown | None = None
    extended: bool = False

    def summary(self, name: str) -> TyperCommand:
        """The command without its flags, for the list of all."""
        return TyperCommand(name=name, help=self.function.__doc__)

    def build(self, name: str, words: Sequence[str] | None = None) -> TyperCommand:
        """The command with its flags. words: what is typed behind it; without them, every flag."""
        built = self._build(name, ())
        if self.extended and (words is None or _asks_for_more(words, built)):
            group = f"{name}_flags"
            return self._build(name, [find(group, each) for each in sorted(installed(group))])
        return built

    def _build(self, name: str, added: Sequence[type]) -> TyperCommand:
        callback = with_flags(self.function, self.settings, self.shown, added)
        info = CommandInfo(name=name, cls=GroupedCommand, callback=callback)
        built = get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None)
        assert isinstance(built, TyperCommand)
        return built


def declared(
    commands: dict[str, Command], *, name: str = "", **about: Any
) -> Callable[[Function], Function]:
    """Declare the decorated function as a command, under its own name if none is given."""

    def declare(function: Function) -> Function:
        commands[name or function.__name__] = Command(function, **about)
        return function

    return declare


def _asks_for_more(words: Sequence[str], built: TyperCommand) -> bool:
    """Return True if the words ask for help, or hold a flag that the command alone lacks."""
    known = set[str]()
    for parameter in built.params:
        known |= {*parameter.opts, *parameter.secondary_opts}
    flags = [word.partition("=")[0].replace("_", "-") for word in words if word.startswith("-")]
    return any(flag in _HELP or flag not in known for flag in flags)


class Commands(MutableMapping[str, Any]):
    """All commands by name, the core's first. Looking one up builds it with all its flags."""

    def __init__(self, own: dict[str, Command]) -> None:
        self.own = own

    def declared(self, name: str) -> Command | None:
        """A command before it is built; None for an unknown name. Raises SettingsError for one
        whose package cannot be imported."""
        if name in self.own:
            return self.own[name]
        if name not in installed(GROUP):
            return None
        found = find(GROUP, name)
        return found if isinstance(found, Command) else Command(found)

    def __getitem__(self, name: str) -> TyperCommand:
        declared = self.declared(name)
        if declared is None:
            raise KeyError(name)
        return declared.build(name)

    def __iter__(self) -> Iterator[str]:
        return iter((*self.own, *sorted({*installed(GROUP)} - {*self.own})))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __setitem__(self, name: str, command: Any) -> None:
        raise TypeError("a command is declared in `own` or by an entry point")

    def __delitem__(self, name: str) -> None:
        raise TypeError("a command is declared in `own` or by an entry point")


class CommandGroup(TyperGroup):
    """The commands, of which the typed one alone is built. own: the core's, by name."""

    own: ClassVar[dict[str, Command]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Commands = Commands(self.own)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the first word names."""
        ctx.meta[GROUP] = args[1:]
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by name: of a typed line with the flags that it needs, else without any."""
        declared = self.commands.declared(cmd_name)
        if declared is None:
            return None
        if GROUP in ctx.meta:
            return declared.build(cmd_name, ctx.meta[GROUP])
        return declared.summary(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands under their headings."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in (MAP, TEST, COMPARE)}
        width = max(map(len, self.commands))
        for name in self.commands:
            declared = self.commands.declared(name)
            assert declared is not None
            words = declared.summary(name).get_short_help_str(formatter.width - width - 6)
            groups.setdefault(declared.group, []).append((f"{name:{width}}", words))
        # What comes from elsewhere stands behind ours.
        for group in (LOOK_UP, OTHER):
            groups[group] = groups.pop(group, [])
        for group, rows in groups.items():
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows)


def limited_by(preset: str | None, flags: dict[str, Any]) -> AbstractContextManager[None]:
    """Within it the command's time ends where its flags say so, or what it names."""
    from needlemap.asking.discovery import time_limit

    return limited_to(time_limit(preset, flags))


def refuse_strangers(path: Path | None, trusted: bool, names: Iterable[str]) -> None:
    """Raises NeedlemapError for a run there, or in the folders of these names in it, that this
    machine did not begin, unless it is trusted."""
    if path is not None and path.is_dir():
        from needlemap.records.origin import check_origin

        check_origin(path, trusted, names)
