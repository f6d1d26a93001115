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
from needlemap.settings.flags import Shown, flags_of, later, reader_of, taken
from needlemap.settings.older_names import translate
from needlemap.untrusted import MOST_WHOLE

if TYPE_CHECKING:
    from needlemap.records.loaded import Loaded

# The settings that `--help` of a command shows. The others wait for `--help-all`.
_WHAT = ("model", "base_url", "tokenizer", "lengths", "depths", "repeats", "task", "haystack_path")
OF_PLAN = (*_WHAT, "max_answer_tokens", "concurrency", "seek")
OF_PROMPTS = (*_WHAT, "needle", "question", "keywords", "template", "max_answer_tokens", "seed")
OF_RUN = (
    *_WHAT,
    *("needle", "question", "keywords", "scorer", "concurrency"),
    *("limit_usd", "limit_tokens", "limit_time", "seek", "until"),
)

# Settings that change no prompt and of which nothing is read where prompts are only written.
NOT_OF_PROMPTS = (
    *("label", "step", "stream", "logprobs", "concurrency", "retries"),
    *("limit_usd", "limit_tokens", "seek", "within", "until", "scope", "ask_twice"),
    *("requests_per_minute", "tokens_per_minute", "canary", "closed_book", "prices", "save"),
)

# What a setting is in one command, where that is not what it is elsewhere.
RUN_TEXTS = {"model": "The model (repeatable). By default the one of the server at --base-url."}
PROMPTS_TEXTS = {
    "model": "The model that they are for. By default the one of the server at --base-url.",
    "max_answer_tokens": "Tokens that are kept free for the answer. (default 300)",
}

ADDED = "added"  # the parameter of a command that takes the flags of other packages
RARE_OPTIONS = later("Options")
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
    shown: Shown | None = None,
    added: Sequence[type] = (),
) -> Callable[..., None]:
    """A command whose parameters of classes become their fields' flags; what it returns is the
    exit code.

    settings: those that its **flags stand for. Each is a flag; the command receives those that
    were given. shown: how this command's help shows them. added: further classes of flags, whose
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
    chosen = flags_of(settings, completion_of, shown or Shown())
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
    """Of `plan`."""

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
    """Of `report`; '' where nothing was typed."""

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
    """Of `replay`. model, key_env: the run's own, typed again, as a stranger's run.json may
    name any."""

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
    """Whether a server's address was typed where a folder is meant."""
    return str(path).startswith(("http:/", "https:/"))


def flag_name(name: str) -> str:
    return {"partition": "-p", "qos": "-q"}.get(name, f"--{name.replace('_', '-')}")
