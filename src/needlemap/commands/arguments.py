"""Declare the flags of each command, once: a class for each command, whose fields are its flags.

Arguments that several commands take have names of their own. Settings are flags too: see
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
from needlemap.settings.flags import Shown, flags_of, later, metavar_of, reader_of
from needlemap.settings.older_names import translate
from needlemap.untrusted import MOST_WHOLE

if TYPE_CHECKING:
    from needlemap.records.loaded import Loaded

# The settings that `--help` of a command shows. `--help-all` shows the others.
_PROMPT_SETTINGS = (
    "model",
    "base_url",
    "tokenizer",
    "lengths",
    "depths",
    "repeats",
    "task",
    "haystack_path",
)
OF_PLAN = (*_PROMPT_SETTINGS, "max_answer_tokens", "concurrency", "seek")
OF_PROMPTS = (
    *_PROMPT_SETTINGS,
    "needle",
    "question",
    "keywords",
    "template",
    "max_answer_tokens",
    "seed",
)
OF_RUN = (
    *_PROMPT_SETTINGS,
    "needle",
    "question",
    "keywords",
    "scorer",
    "concurrency",
    "limit_usd",
    "limit_tokens",
    "limit_time",
    "seek",
    "until",
)

# Settings that change no prompt, and that nothing reads if prompts are only written.
NOT_OF_PROMPTS = (
    "label",
    "step",
    "stream",
    "logprobs",
    "concurrency",
    "retries",
    "limit_usd",
    "limit_tokens",
    "seek",
    "within",
    "until",
    "scope",
    "ask_twice",
    "requests_per_minute",
    "tokens_per_minute",
    "canary",
    "closed_book",
    "prices",
    "save",
)

# The help of settings that mean something else in one command than in the others.
RUN_TEXTS = {"model": "The model (repeatable). By default the one of the server at --base-url."}
PROMPTS_TEXTS = {
    "model": "The model that they are for. By default the one of the server at --base-url.",
    "max_answer_tokens": "Tokens that are kept free for the answer. (default 300)",
}

# The parameter of a command that takes the flags of other packages.
ADDED = "added"
RARE_OPTIONS = later("Options")
# A message does not show whole numbers from here on. They do not fit into a float either.
_LARGEST_SHOWN = 10**300


def option(text: str, *names: str, **more: Any) -> Any:
    """Return a flag's option for `Annotated`.

    text: its help. names: its names, if they do not follow from the field's name. more: further
    arguments of `typer.Option`.
    """
    return typer.Option(*names, help=text, **more)


def flag(default: Any, text: str, *names: str, **more: Any) -> Any:
    """Return a dataclass field that is a flag of one command. Arguments as for `option`."""
    return field(default=default, metadata={"option": option(text, *names, **more)})


def rare(default: Any, text: str, *names: str, **more: Any) -> Any:
    """Return a field as `flag` does, for a flag that only `--help-all` shows."""
    return flag(default, text, *names, rich_help_panel=RARE_OPTIONS, **more)


def with_flags(
    command: Callable[..., int | None],
    settings: Sequence[str] = (),
    shown: Shown | None = None,
    added: Sequence[type] = (),
) -> Callable[..., None]:
    """Return a command for typer, with a flag for each field of the classes that it takes.

    command: its parameters that are dataclasses become flags, and what it returns is the exit code.
    settings: the settings that its **flags stand for. Each is a flag, and the command receives
    those that were typed. shown: how the command's help shows them. added: further classes of
    flags, whose instances the command's parameter `added` receives, if it has one.
    """
    classes = dict[str, Any]()
    own_flags = list[inspect.Parameter]()
    for parameter in _parameters(command):
        if is_dataclass(parameter.annotation):
            classes[parameter.name] = parameter.annotation
            own_flags += _flags(parameter.annotation)
        else:
            own_flags.append(parameter)
    for added_class in added:
        own_flags += _flags(added_class)
    setting_flags = flags_of(settings, completion_of, shown=shown or Shown())

    def run(**values: Any) -> None:
        _check_numbers(values)
        typed_settings = _take_settings([flag.name for flag in setting_flags], values)
        # A command with all settings takes a preset too, which decides what an older name means.
        if len(settings) < len(Settings.model_fields):
            typed_settings = translate(typed_settings, {})
        for name, flags_class in classes.items():
            values[name] = _take(flags_class, values)
        if added:
            values[ADDED] = tuple(_take(added_class, values) for added_class in added)
        raise typer.Exit(command(**values, **typed_settings) or 0)

    run.__name__ = command.__name__
    run.__doc__ = command.__doc__
    parameters = [*map(_by_name, own_flags), *setting_flags]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameters(command: Callable[..., int | None]) -> list[inspect.Parameter]:
    """Return a command's parameters, without **flags and the one for other packages' flags."""
    return [
        parameter
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD and parameter.name != ADDED
    ]


def _take_settings(names: Sequence[str], values: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that were typed, each read as its kind of value.

    names: of all settings that are flags. They are removed from `values`.
    """
    flag_values = {name: values.pop(name) for name in names}
    settings = dict[str, Any]()
    for name, value in flag_values.items():
        if value in (None, []):
            continue
        read = reader_of(name)
        settings[name] = value if read is None else read(value)
    return settings


def _check_numbers(values: Mapping[str, Any]) -> None:
    """Raise SettingsError for a typed number that is NaN or too large."""
    for name, value in values.items():
        # A comparison with NaN is False.
        if isinstance(value, int | float) and not -MOST_WHOLE <= value <= MOST_WHOLE:
            number = "a number of too many digits"
            if abs(value) < _LARGEST_SHOWN:
                number = f"{float(value):g}"
            raise SettingsError(
                f"{flag_name(name)} takes a number up to {MOST_WHOLE:,}, got {number}."
            )


def _take(flags_class: Any, values: dict[str, Any]) -> Any:
    """Return an instance of a class of flags, and remove its values from `values`."""
    return flags_class(**{flag.name: values.pop(flag.name) for flag in fields(flags_class)})


def _flags(flags_class: Any) -> Iterator[inspect.Parameter]:
    """Yield a parameter for each field of a class of flags."""
    hints = get_type_hints(flags_class, include_extras=True)
    for flag in fields(flags_class):
        annotation = hints[flag.name]
        flag_option = flag.metadata.get("option")
        if flag_option is not None:
            annotation = Annotated[annotation, flag_option]
        yield inspect.Parameter(
            flag.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=flag.default,
            annotation=annotation,
        )


def _by_name(flag: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter that is given by name, completed for typer.

    A switch that is off by default has no flag that denies it. The help names a flag's value in the
    same words as the values of settings.
    """
    kind, flag_option = get_args(flag.annotation)
    if isinstance(flag_option, OptionInfo):
        flag_option.metavar = flag_option.metavar or metavar_of(kind)
    if kind is bool and flag_option.default is ...:
        # Typer keeps a flag's first name here.
        flag_option.default = f"--{flag.name.replace('_', '-')}"
    return flag.replace(kind=flag.KEYWORD_ONLY)


Preset = Annotated[
    str | None,
    typer.Argument(
        # `run` alone is the preset demo, whose repeats are 6 and not the default of --repeats.
        help=(
            "A preset (needlemap list presets), a .yaml file, or suite:NAME. Its settings "
            "replace the defaults below. Without arguments: demo."
        ),
        metavar="PRESET",
        autocompletion=complete_presets,
    ),
]
Out = Annotated[
    Path | None,
    option("Folder for results. A run that is there is resumed.", "-o", "--out", metavar="DIR"),
]
Skip = Annotated[
    list[str] | None,
    option(
        "Leave out a family of a suite (repeatable).",
        metavar="FAMILY",
        rich_help_panel=RARE_OPTIONS,
    ),
]
AsMap = Annotated[
    bool,
    option("Draw the map if the output is not a terminal, too.", rich_help_panel=RARE_OPTIONS),
]
Json = Annotated[bool, option("Print one JSON document on standard output.")]
TrustRun = Annotated[
    bool,
    option(
        "Use a run from another machine, and open what its run.json names.",
        rich_help_panel=RARE_OPTIONS,
    ),
]
PlanOnly = Annotated[bool, option("Show what would be sent, and send nothing.")]
OnUndecided = Annotated[
    Literal["fail", "pass"],
    option("Exit code of NOT ENOUGH DATA: 4 (fail) or 0 (pass).", rich_help_panel=RARE_OPTIONS),
]
ExitZero = Annotated[
    bool, option("Exit with 0 whatever the verdict is.", rich_help_panel=RARE_OPTIONS)
]
InScope = Annotated[
    Literal["these", "new"],
    option(
        "What PASS is about: these prompts, or new haystacks too (72 or more).",
        rich_help_panel=RARE_OPTIONS,
    ),
]
JUnit = Annotated[Path | None, option("Also write the verdict as JUnit XML.", metavar="FILE")]
Metric = Annotated[
    str,
    option(
        "Score of an Inspect or lm-evaluation-harness log that counts (default: first).",
        metavar="NAME",
        rich_help_panel=RARE_OPTIONS,
    ),
]


def run_argument(text: str, metavar: str | None = None) -> Any:
    """Return an argument for a run's folder, or several. text: its help."""
    return typer.Argument(help=text, metavar=metavar, autocompletion=complete_runs)


@dataclass(frozen=True, slots=True)
class RunFlags:
    """The flags of `run`.

    Attributes:
        fail_under: The mean to compare with, in percent; None for no verdict.
    """

    out: Out = None
    trust_run: TrustRun = False
    json: Json = False
    fail_under: float | None = flag(
        None,
        "Verdict: is the mean (95 % interval) above this?",
        metavar="PERCENT",
    )
    map: AsMap = False
    skip: Skip = None
    junit: JUnit = None
    on_undecided: OnUndecided = "fail"
    exit_zero: ExitZero = False


@dataclass(frozen=True, slots=True)
class PlanFlags:
    """The flags of `plan`."""

    workers: int | None = rare(
        None, "Prompts at a time. By default as many as --concurrency.", max=MOST_AT_A_TIME
    )
    tokens_per_second: float | None = flag(
        None, "Prefill speed for short prompts, to show a time.", metavar="N"
    )
    model_config: Path | None = rare(
        None, "config.json of a model, to count floating-point operations.", metavar="FILE"
    )
    cache_tokens: int | None = rare(
        None, "Size of a server's prefix cache, to simulate it.", metavar="TOKENS"
    )
    cache_block: int = rare(16, "Block size of that cache.", metavar="TOKENS")
    skip: Skip = None
    json: Json = False


@dataclass(frozen=True, slots=True)
class ReportFlags:
    """The flags of `report`. A text that was not typed is ''."""

    out: Path | None = flag(
        None,
        "File to write: .html, .png, .svg, .pdf, .md, .csv or .parquet.",
        "-o",
        "--out",
        metavar="FILE",
    )
    format: str = flag(
        "cells",
        "Rows of a table: cells, trials or opencompass. golden: a small copy of one run for "
        "tests, in a folder.",
        metavar="NAME",
    )
    margin: float | None = flag(
        None,
        "With --format golden: margin of its tests. Too few prompts are refused.",
        metavar="POINTS",
    )
    title: str | None = flag(None, "Title of the figure or page.")
    palette: str | None = flag(
        None,
        "Colours: viridis (default), cividis, grey, or amber (red, amber, green).",
        metavar="NAME",
        autocompletion=complete_palettes,
    )
    width: str = flag(
        "", "Printed width of a figure: 3.25in, 8.4cm, column, text or page.", metavar="WIDTH"
    )
    style: str = flag("", "Draw a figure as opencompass or needlehaystack does.", metavar="NAME")
    curves: bool = flag(False, "Draw scores by length instead of a map.")
    map: AsMap = False
    rules: str = flag(
        "",
        "Rules of effective length, e.g. absolute:90,auc; see needlemap help statistics.",
        metavar="RULES",
    )
    metric: Metric = ""
    json: Json = False


class MoreReportFlags:
    """Base of the flags that another package adds to `report`; by default they change nothing."""

    @property
    def alone(self) -> str:
        """Return the flag that makes a report of its own of all runs, or '' if it is not typed."""
        return ""

    @property
    def elsewhere(self) -> str:
        """Return the flag that sends runs to another place, or '' if it is not typed."""
        return ""

    def report(self, runs: Sequence[Path], typed: ReportFlags) -> None:
        """Make the report of `alone`. Raises SettingsError."""

    def send(self, runs: Sequence[Loaded], typed: ReportFlags, rules: tuple[str, ...]) -> list[str]:
        """Send runs to another place, and return lines about where they are.

        rules: of effective length.
        """
        return []

    def titled(self, runs: Sequence[Loaded]) -> Sequence[Loaded]:
        """Return the runs under other titles."""
        return runs


@dataclass(frozen=True, slots=True)
class CompareFlags:
    """The flags of `compare`.

    Attributes:
        margin: In points.
        fail_if_worse: In points.
        fail_if_answers_differ: In percent.
    """

    margin: float | None = flag(
        None, "Largest loss that you accept. With it there is a verdict.", metavar="POINTS"
    )
    fail_if_worse: float | None = rare(None, "The older name of --margin.", metavar="POINTS")
    scope: InScope = "these"
    on_undecided: OnUndecided = "fail"
    exit_zero: ExitZero = False
    answers: bool = flag(False, "Also show which answers differ, by length and depth.")
    fail_if_answers_differ: float | None = flag(
        None,
        "FAIL if more answers of B differ from A's than this; 0 for a refactoring.",
        metavar="PERCENT",
    )
    label: list[str] | None = flag(
        None, "Name of a run, e.g. f16 and q4; give it twice.", metavar="NAME"
    )
    noise: list[Path] | None = flag(
        None,
        "A further run of A's model, to show how far runs differ by chance (repeatable).",
        metavar="RUN",
    )
    sequential: bool = rare(False, "Look for a verdict after each whole haystack.")
    metric: Metric = ""
    json: Json = False
    junit: JUnit = None


@dataclass(frozen=True, slots=True)
class ReplayFlags:
    """The flags of `replay`.

    Attributes:
        model: The run's own model, typed again, because a stranger's run.json may name any.
        key_env: The name of the run's own key, typed again for the same reason.
    """

    length: str | None = flag(None, "Length of the cell, e.g. 4k.", metavar="TOKENS")
    depth: float | None = flag(None, "Depth of the cell.", metavar="PERCENT")
    repeat: int = flag(0, "Number of the repeat.")
    ask: bool = flag(False, "Send the prompt again, and show both answers.")
    trust_run: TrustRun = False
    model: str | None = flag(
        None,
        "With --ask: the run's model again, if it is a python/ function.",
        metavar="BACKEND/NAME",
    )
    key_env: str | None = rare(
        None,
        "Environment variable of the key, if a run from elsewhere names an unusual one.",
        metavar="NAME",
    )


def is_address(path: Path) -> bool:
    """Return True if a path that was typed for a folder is a server's address."""
    return str(path).startswith(("http:/", "https:/"))


def flag_name(name: str) -> str:
    return {"partition": "-p", "qos": "-q"}.get(name, f"--{name.replace('_', '-')}")
