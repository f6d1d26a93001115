"""What can be typed behind each command, once: a class a command, whose fields are its flags.

Arguments that several commands take have names of their own. Settings are flags too:
`settings/flags.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from needlemap.commands import complete_palettes, complete_presets, complete_runs, completion_of
from needlemap.errors import SettingsError
from needlemap.settings import MOST_AT_A_TIME, Settings
from needlemap.settings.flags import RARE, flags_of, reader_of, taken
from needlemap.settings.older_names import translate
from needlemap.untrusted import MOST_WHOLE

if TYPE_CHECKING:
    from needlemap.records.loaded import Loaded

# What a setting is in one command, where that is not what it is elsewhere.
RUN_TEXTS = {
    "model": "Who answers, BACKEND/NAME; repeat the flag for several. By default "
    "the model that the server at --base-url lists; without a server, baseline/bm25."
}

ADDED = "added"  # the parameter of a command that takes the flags of other packages
RARE_OPTIONS = f"Options, {RARE}"
_LARGEST = 10**300  # of whole numbers, the least power of ten that a message need not show


def option(words: str, *names: str, **more: Any) -> Any:
    """What a flag is, for `Annotated`: its help, its names where they are not made of the
    field's."""
    return typer.Option(*names, help=words, **more)


def flag(default: Any, words: str, *names: str, **more: Any) -> Any:
    """A field that is a flag of one command alone."""
    return field(default=default, metadata={"option": option(words, *names, **more)})


def rare(default: Any, words: str, *names: str, **more: Any) -> Any:
    """A flag of one command alone that `--help` leaves to `--help-all`."""
    return flag(default, words, *names, rich_help_panel=RARE_OPTIONS, **more)


def with_flags(
    command: Callable[..., int | None],
    settings: Sequence[str] = (),
    texts: Mapping[str, str] | None = None,
    added: Sequence[type] = (),
) -> Callable[..., None]:
    """A command whose parameters of classes become their fields' flags; what it returns is the
    exit code.

    settings: those that its **flags stand for. Each is a flag; the command receives those that
    were given. texts: this command's own help of some. added: further classes of flags, whose
    instances its parameter `added` receives, if it has one.
    """
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    own = [each for each in parameters if each.kind is not each.VAR_KEYWORD and each.name != ADDED]
    typed: dict[str, Any] = {
        each.name: each.annotation for each in own if is_dataclass(each.annotation)
    }
    flags = [
        made
        for each in own
        for made in (_flags(typed[each.name]) if each.name in typed else [each])
    ] + [made for kind in added for made in _flags(kind)]
    chosen = flags_of(settings, completion_of, texts or {})
    readers = {each.name: read for each in chosen if (read := reader_of(each.name))}

    def run(**values: Any) -> None:
        _checked(values)
        flags = {each.name: values.pop(each.name) for each in chosen}
        given = {name: value for name, value in flags.items() if value not in (None, [])}
        for name in (name for name in readers if name in given):
            given[name] = readers[name](given[name])
        if len(settings) < len(Settings.model_fields):
            # Of all settings a preset is among them, which decides what an older name means.
            given = translate(given, {})
        for name, kind in typed.items():
            values[name] = _taken_from(values, kind)
        if added:
            values[ADDED] = tuple(_taken_from(values, kind) for kind in added)
        raise typer.Exit(command(**values, **given) or 0)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    every = [*map(_named, flags), *chosen]
    run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in every}
    return run


def _checked(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """A command's own flags as they were typed. Raises SettingsError for a number that is none, or
    that no flag counts so far."""
    for name, value in values.items():
        if isinstance(value, int | float) and not -MOST_WHOLE <= value <= MOST_WHOLE:
            shown = f"{float(value):g}" if abs(value) < _LARGEST else "a number of too many digits"
            raise SettingsError(
                f"{flag_name(name)} takes a number up to {MOST_WHOLE:,}, got {shown}."
            )
    return values


def _taken_from(values: dict[str, Any], kind: Any) -> Any:
    """An instance of a class of flags, of those values that are its own."""
    return kind(**{each.name: values.pop(each.name) for each in fields(kind)})


def _flags(kind: Any) -> Iterator[inspect.Parameter]:
    """A class's fields as parameters."""
    hints = get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        said, hint = each.metadata.get("option"), hints[each.name]
        hint = hint if said is None else Annotated[hint, said]
        yield inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hint
        )


def _named(flag: inspect.Parameter) -> inspect.Parameter:
    """A parameter given by name. A switch that is off by default has no flag that denies it.
    The help names a flag's value in the same words as those of the settings."""
    kind, said = get_args(flag.annotation)
    if isinstance(said, OptionInfo):
        said.metavar = said.metavar or taken(kind)
    if kind is bool and said.default is ...:
        said.default = f"--{flag.name.replace('_', '-')}"  # where typer keeps the first name
    return flag.replace(kind=flag.KEYWORD_ONLY)


Preset = Annotated[
    str | None,
    typer.Argument(
        help="A preset (needlemap list presets), a .yaml file, or suite:NAME (list suites).",
        autocompletion=complete_presets,
    ),
]
Out = Annotated[
    Path | None, option("The folder for the run. A run that is there goes on.", "-o", "--out")
]
Skip = Annotated[
    list[str] | None,
    option("A family of a suite to leave out; may be repeated.", metavar="FAMILY"),
]
AsMap = Annotated[bool, option("Draw the map where there is no terminal, too.")]
Json = Annotated[bool, option("Print one JSON document on standard output instead.")]
TrustRun = Annotated[
    bool,
    option(
        "Go on with a run from another machine, and open what its run.json names.",
        rich_help_panel=RARE_OPTIONS,
    ),
]
PlanOnly = Annotated[bool, option("Print what would be asked, and ask nothing.")]
OnUndecided = Annotated[
    Literal["fail", "pass"],
    option("NOT ENOUGH DATA: 'fail' exits with 4, 'pass' with 0."),
]
ExitZero = Annotated[bool, option("Print the verdict, and exit with 0 whatever it is.")]
InScope = Annotated[
    Literal["these", "new"],
    option("What exit code 0 is for: 'these' prompts, or 'new' haystacks too (72 or more)."),
]
JUnit = Annotated[
    Path | None, option("Also write the verdicts as JUnit XML, for CI.", metavar="FILE")
]
Metric = Annotated[
    str,
    option(
        "Which score of an Inspect or lm-evaluation-harness log counts (default: first).",
        rich_help_panel=RARE_OPTIONS,
    ),
]


def run_argument(words: str, metavar: str | None = None) -> Any:
    """A run's folder, or several."""
    return typer.Argument(help=words, metavar=metavar, autocompletion=complete_runs)


@dataclass(frozen=True, slots=True)
class RunFlags:
    """Of `run`. fail_under: in percent, the mean to judge it by; None for no verdict."""

    out: Out = None
    trust_run: TrustRun = False
    json: Json = False
    fail_under: float | None = flag(
        None,
        "The least mean, by its 95 % interval: PASS if all of it is above, FAIL if all is below.",
        metavar="PERCENT",
    )
    map: AsMap = False
    skip: Skip = None
    junit: JUnit = None
    on_undecided: OnUndecided = "fail"
    exit_zero: ExitZero = False


@dataclass(frozen=True, slots=True)
class PlanFlags:
    """Of `plan`."""

    workers: int | None = rare(
        None, "Lanes; by default as many as --concurrency.", max=MOST_AT_A_TIME
    )
    tokens_per_second: float | None = rare(None, "Prefill speed of one worker, of short prompts.")
    model_config: Path | None = rare(None, "A config.json, for floating-point operations.")
    cache_tokens: int | None = rare(None, "A server's prefix cache to simulate.")
    cache_block: int = rare(16, "Its block size in tokens.")
    skip: Skip = None
    json: Json = False


@dataclass(frozen=True, slots=True)
class ReportFlags:
    """Of `report`; '' where nothing was typed."""

    out: Path | None = flag(None, ".png, .svg, .pdf, .html, .md, .csv or .parquet.", "-o", "--out")
    format: str = flag(
        "cells",
        "Of a table: cells, trials, opencompass. golden: one run, frozen small for tests, in a "
        "folder.",
    )
    margin: float | None = flag(
        None, "Of a golden: the margin of its tests, in points. Too few prompts are refused."
    )
    title: str | None = flag(None, "Instead of the title made from the run.")
    palette: str | None = flag(
        None,
        "Colours: viridis (the default), cividis, grey, or red-amber-green: amber.",
        autocompletion=complete_palettes,
    )
    width: str = flag("", "Of a printed figure: 3.25in, 8.4cm, column, text, page.")
    style: str = flag("", "Of a figure: as opencompass or needlehaystack draws it.")
    curves: bool = flag(False, "A figure of scores by length.")
    map: AsMap = False
    rules: str = flag("", "Of effective length: absolute:90,auc. See docs.")
    metric: Metric = ""
    json: Json = False


class MoreReportFlags:
    """Base of the flags that another package adds to `report`; by default they change nothing."""

    @property
    def alone(self) -> str:
        """The flag that makes a report of its own of all runs; '' if it is not typed."""
        return ""

    @property
    def elsewhere(self) -> str:
        """The flag that sends runs elsewhere; '' if it is not typed."""
        return ""

    def report(self, runs: Sequence[Path], typed: ReportFlags) -> None:
        """Make the report of `alone`. Raises SettingsError."""

    def send(self, runs: Sequence[Loaded], typed: ReportFlags, rules: tuple[str, ...]) -> list[str]:
        """Send runs elsewhere. rules: of effective length. Returns lines about where they are."""
        return []

    def titled(self, runs: Sequence[Loaded]) -> Sequence[Loaded]:
        """Return the runs under other titles."""
        return runs


@dataclass(frozen=True, slots=True)
class CompareFlags:
    """Of `compare`. margin, fail_if_worse: in points; fail_if_answers_differ: in percent."""

    margin: float | None = flag(
        None, "The loss in points that does not matter. With it there is a verdict."
    )
    fail_if_worse: float | None = rare(None, "The older name of --margin.")
    scope: InScope = "these"
    on_undecided: OnUndecided = "fail"
    exit_zero: ExitZero = False
    answers: bool = flag(False, "Also which answers differ: the first ones, by length, by depth.")
    fail_if_answers_differ: float | None = flag(
        None,
        "Exit with 1 where more of B's answers than this differ from A's: 0 for a refactoring.",
        metavar="PERCENT",
    )
    label: list[str] | None = flag(None, "What to call a run, as f16 and q4; give it twice.")
    noise: list[Path] | None = flag(
        None,
        "A further run of A's model; repeat the flag. It shows how far runs differ for no reason.",
        metavar="RUN",
    )
    sequential: bool = rare(False, "A verdict looked for after each whole haystack.")
    metric: Metric = ""
    json: Json = False
    junit: JUnit = None


@dataclass(frozen=True, slots=True)
class ReplayFlags:
    """Of `replay`. model, key_env: the run's own, typed again, as a stranger's run.json may
    name any."""

    length: str | None = flag(None, "The cell's length in tokens.")
    depth: float | None = flag(None, "The cell's depth in percent.")
    repeat: int = flag(0, "Which repeat.")
    ask: bool = flag(False, "Also ask it again and show both answers.")
    trust_run: TrustRun = False
    model: str | None = flag(None, "The run's model again: --ask wants it of a python/ function.")
    key_env: str | None = rare(
        None, "The variable of the key, where a run of elsewhere names an odd one."
    )


def is_address(path: Path) -> bool:
    """Whether a server's address was typed where a folder is meant."""
    return str(path).startswith(("http:/", "https:/"))


def flag_name(name: str) -> str:
    return {"partition": "-p", "qos": "-q"}.get(name, f"--{name.replace('_', '-')}")
