"""What can be typed behind each command, once: a class a command, whose fields are its flags.

Arguments that several commands take have names of their own. Settings are flags too: `settings/flags.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from needlemap.commands import complete_palettes, complete_presets, complete_runs
from needlemap.errors import SettingsError


def flag(words: str, *names: str, **more: Any) -> Any:
    """A flag with its help. names: those that are not the field's own."""
    return typer.Option(*names, help=words, **more)


def _copies(words: str, *names: str, **more: Any) -> Any:
    """A flag that says who asks, shown in a group of its own."""
    return flag(words, *names, rich_help_panel="Replicas", **more)


def with_flags(command: Callable[..., int | None]) -> Callable[..., None]:
    """A command whose parameters of classes become their fields' flags; what it returns is the exit code."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    typed: dict[str, Any] = {each.name: each.annotation for each in own if is_dataclass(each.annotation)}
    made = [flag for each in own for flag in (_flags(typed[each.name]) if each.name in typed else [each])]

    def run(**values: Any) -> None:
        for name, kind in typed.items():
            values[name] = kind(**{each.name: values.pop(each.name) for each in _flags(kind)})
        raise typer.Exit(command(**values) or 0)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    made = [each if each.kind is each.VAR_KEYWORD else each.replace(kind=each.KEYWORD_ONLY) for each in made]
    run.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in made}
    return run


def _flags(kind: Any) -> list[inspect.Parameter]:
    """A class's fields as parameters."""
    hints, own = get_type_hints(kind, include_extras=True), inspect.signature(kind).parameters.values()
    return [each.replace(annotation=hints[each.name]) for each in own]


def _fail_or_pass(typed: str) -> str:
    """Raises SettingsError for anything else."""
    if typed not in ("fail", "pass"):
        raise SettingsError(f"--on-undecided takes fail or pass, got '{typed}'.")
    return typed


Preset = Annotated[
    str | None,
    typer.Argument(
        help="A preset (needlemap list presets), a .yaml file, or suite:NAME (list suites).",
        autocompletion=complete_presets,
    ),
]
Out = Annotated[Path | None, flag("The folder for the run. A run that is there goes on.", "-o", "--out")]
AsMap = Annotated[bool, flag("Draw the map where there is no terminal, too.", "--map")]
Json = Annotated[bool, flag("Print one JSON document on standard output instead.", "--json")]
DifficultyFile = Annotated[
    str | None,
    flag("Ask at the difficulty that run --difficulty auto found.", "--difficulty", metavar="FILE|RUN"),
]
TrustRun = Annotated[
    bool, flag("Go on with a run from another machine, and open what its run.json names.", "--trust-run")
]
PlanOnly = Annotated[bool, flag("Print what would be asked, and ask nothing.", "--plan")]
OnUndecided = Annotated[
    str, flag("Where nobody can tell: 'fail' exits with 4, 'pass' with 0.", callback=_fail_or_pass)
]
JUnit = Annotated[Path | None, flag("Also write the verdicts as JUnit XML, for CI.", metavar="FILE")]
DatasetLength = Annotated[
    str, flag("For a figure's title as OpenCompass's, as 200K.", "--dataset-length", "--dataset_length")
]
Metric = Annotated[
    str, flag("Which score of an Inspect or lm-evaluation-harness log counts (default: first).")
]


def run_argument(words: str, metavar: str | None = None) -> Any:
    """A run's folder, or several."""
    return typer.Argument(help=words, metavar=metavar, autocompletion=complete_runs)


@dataclass(frozen=True, slots=True)
class RunFlags:
    """Of `run`. fail_under: in percent, the mean to judge it by; None for no verdict."""

    out: Out = None
    live: Annotated[
        bool,
        flag(
            "Also serve the report's page to a browser of this machine while the run goes on.",
            "--live/--no-live",
        ),
    ] = False
    difficulty: Annotated[
        str | None,
        flag(
            "auto: make the task harder until the model scores 60 to 95, and keep that difficulty; FILE or "
            "RUN: one that was kept.",
            metavar="auto|FILE|RUN",
        ),
    ] = None
    trust_run: TrustRun = False
    json: Json = False
    fail_under: Annotated[
        float | None,
        flag(
            "Exit with 0 when the mean is surely at least this, 1 when it is surely below, 4 when nobody can "
            "tell (by its 95 % interval).",
            metavar="PERCENT",
        ),
    ] = None
    map: AsMap = False
    junit: JUnit = None
    on_undecided: OnUndecided = "fail"


@dataclass(frozen=True, slots=True)
class ReplicaFlags:
    """Of `run`: copies of the model, and where they are; None, False and () where nothing is said. None
    changes an answer."""

    workers: Annotated[int | None, _copies("Copies on this machine, a GPU each if there are any.", min=1)] = (
        None
    )
    slurm: Annotated[bool, _copies("Copies as jobs of Slurm.", "--slurm")] = False
    partition: Annotated[str | None, _copies("Slurm's partition.", "-p", "--partition")] = None
    qos: Annotated[str | None, _copies("Slurm's QOS; auto: the site's choice.", "-q", "--qos")] = None
    max_num_workers: Annotated[
        int | None, _copies("Copies at a time, at most, on Slurm (default 32) or a cluster.", min=1)
    ] = None
    gpus_per_worker: Annotated[
        int | None, _copies("GPUs of each (default: 1 here; none asked of Slurm).", min=0)
    ] = None
    time: Annotated[str | None, _copies("Slurm's time limit, as 4:00:00 (default: the partition's).")] = None
    slurm_arg: Annotated[
        list[str] | None, _copies("Any further option of sbatch; repeat.", metavar="KEY=VALUE")
    ] = None
    cluster: Annotated[
        str | None,
        _copies("Copies on the workers of a Dask cluster that is there.", metavar="tls://HOST:PORT"),
    ] = None
    cluster_trusted: Annotated[
        bool, _copies("tcp:// too: not encrypted, and who reaches it runs code.", "--cluster-trusted")
    ] = False
    dashboard: Annotated[
        bool, _copies("Serve Dask's own page on 127.0.0.1:8787 (needs bokeh).", "--dashboard")
    ] = False
    dry_run: Annotated[
        bool, _copies("Print what would start the copies, and start nothing.", "--dry-run")
    ] = False

    def __post_init__(self) -> None:
        """Raises SettingsError for flags that do not fit."""
        given = [each.name for each in fields(self) if getattr(self, each.name) not in (None, False, [])]
        if self.slurm and self.workers is not None:
            raise SettingsError("--workers is for this machine. With --slurm: --max-num-workers.")
        if self.cluster is not None:
            _check_cluster(self.cluster, given)
        elif not self.slurm:
            for name in ("partition", "qos", "max_num_workers", "time", "slurm_arg"):
                if name in given:
                    raise SettingsError(f"{_typed(name)} goes with --slurm. On this machine: --workers N.")
        if not self.wanted and given:
            with_what = "--cluster" if given[0] == "cluster_trusted" else "--workers N or --slurm"
            raise SettingsError(f"{_typed(given[0])} goes with {with_what}.")

    @property
    def wanted(self) -> bool:
        """Whether the model is to have copies elsewhere."""
        return bool(self.slurm or self.workers or self.cluster)


def _check_cluster(address: str, given: list[str]) -> None:
    for name in given:
        if name not in ("cluster", "cluster_trusted", "max_num_workers"):
            raise SettingsError(f"--cluster is one that is there already: leave {_typed(name)} out.")
    scheme, _, rest = address.partition("://")
    if scheme not in ("tcp", "tls") or not rest:
        raise SettingsError(f"--cluster takes tls://HOST:PORT or tcp://HOST:PORT, got '{address}'.")
    if scheme == "tcp" and "cluster_trusted" not in given:
        raise SettingsError(
            f"Nothing that goes to '{address}' is encrypted, and whoever reaches one of its ports can run "
            f"code there. Where nobody else can: --cluster-trusted. Else: tls://HOST:PORT."
        )


def _typed(name: str) -> str:
    return {"partition": "-p", "qos": "-q"}.get(name, f"--{name.replace('_', '-')}")


@dataclass(frozen=True, slots=True)
class CheckFlags:
    """Of `check`, beside the model's and its limits."""

    max_length: Annotated[str | None, flag("The longest prompt, a promise; else 128k or less.")] = None
    minutes: Annotated[float | None, flag("Stop asking after so long.")] = None
    load: Annotated[int, flag("Prompts at a time where there is load.", min=2)] = 8
    reference: Annotated[str, flag("The same weights: hf/PATH, or a server.", metavar="MODEL|URL")] = ""
    probe: Annotated[list[str] | None, flag("Only this probe; repeat the flag.")] = None
    out: Out = None
    plan: PlanOnly = False
    json: Json = False
    junit: JUnit = None
    trust_run: TrustRun = False


@dataclass(frozen=True, slots=True)
class AbFlags:
    """Of `ab`, beside the models' and their limits."""

    arm: Annotated[
        list[str] | None, flag("An arm; the reference first, then the other.", metavar="NAME=URL|MODEL")
    ] = None
    arm_command: Annotated[
        list[str] | None,
        flag("An arm whose server is started, '... {port} ...', and ended.", metavar="NAME=COMMAND"),
    ] = None
    margin: Annotated[float, flag("The loss in points that does not matter, fixed beforehand.")] = 2.0
    until: Annotated[
        str | None,
        flag(
            "Ask until there is a verdict, 20,000 pairs at most; or so many pairs.", metavar="decided|PAIRS"
        ),
    ] = None
    on_undecided: OnUndecided = "fail"
    weigh: Annotated[
        bool, flag("Also ask both arms how likely they find the reference's answers.", "--weigh")
    ] = False
    difficulty: DifficultyFile = None
    out: Out = None
    plan: PlanOnly = False
    json: Json = False
    junit: JUnit = None
    trust_run: TrustRun = False


@dataclass(frozen=True, slots=True)
class ReportFlags:
    """Of `report`; '' where nothing was typed."""

    out: Annotated[Path | None, flag(".png, .svg, .pdf, .html, .md, .csv or .parquet.", "-o", "--out")] = None
    format: Annotated[
        str,
        flag("Of a table: cells, trials, opencompass. golden: one run, frozen small for tests, in a folder."),
    ] = "cells"
    title: Annotated[str | None, flag("Instead of the title made from the run.")] = None
    palette: Annotated[
        str | None,
        flag(
            "Colours: viridis (the default), cividis, grey, or red-amber-green: amber.",
            autocompletion=complete_palettes,
        ),
    ] = None
    width: Annotated[str, flag("Of a printed figure: 3.25in, 8.4cm, column, text, page.")] = ""
    style: Annotated[str, flag("Of a figure: as opencompass or needlehaystack draws it.")] = ""
    curves: Annotated[bool, flag("A figure of scores by length.", "--curves")] = False
    map: AsMap = False
    rules: Annotated[str, flag("Of effective length: absolute:90,auc. See docs.")] = ""
    log: Annotated[
        list[str] | None, flag("wandb:PROJECT, tensorboard:FOLDER; repeatable.", metavar="WHERE")
    ] = None
    step: Annotated[int, flag("For --log: the training step that the model is of.")] = 0
    dataset_length: DatasetLength = ""
    smooth: Annotated[
        bool, flag("Also a smoothed map, where it foretells better than raw cells.", "--smooth")
    ] = False
    metric: Metric = ""
    json: Json = False


@dataclass(frozen=True, slots=True)
class CompareFlags:
    """Of `compare`. margin, fail_if_worse: in points; fail_if_answers_differ: in percent."""

    margin: Annotated[float | None, flag("The loss in points that does not matter (2 if not given).")] = None
    fail_if_worse: Annotated[
        float | None, flag("As --margin, and exit with 1 where B is worse, 4 where undecided.")
    ] = None
    on_undecided: OnUndecided = "fail"
    answers: Annotated[
        bool, flag("Also which answers differ: the first ones, by length, by depth.", "--answers")
    ] = False
    fail_if_answers_differ: Annotated[
        float | None,
        flag(
            "Exit with 1 where more of B's answers than this differ from A's: 0 for a refactoring.",
            metavar="PERCENT",
        ),
    ] = None
    label: Annotated[
        list[str] | None,
        flag("What to call a run, as f16 and q4; give it twice. Then B is not A made again."),
    ] = None
    sequential: Annotated[bool, flag("A verdict that holds however often you look.", "--sequential")] = False
    metric: Metric = ""
    json: Json = False
    junit: JUnit = None


@dataclass(frozen=True, slots=True)
class ReplayFlags:
    """Of `replay`. model, key_env: the run's own, typed again, as a stranger's run.json may name any."""

    length: Annotated[str | None, flag("The cell's length in tokens.")] = None
    depth: Annotated[float | None, flag("The cell's depth in percent.")] = None
    repeat: Annotated[int, flag("Which repeat.")] = 0
    probe: Annotated[str | None, flag("Of a check: the probe that found something.")] = None
    arm: Annotated[str | None, flag("Of an ab: the arm, with --worst.", "--arm")] = None
    worst: Annotated[
        bool, flag("Of a check's --probe or an ab's --arm: the prompt that shows it.", "--worst")
    ] = False
    ask: Annotated[bool, flag("Also ask it again and show both answers.", "--ask")] = False
    trust_run: TrustRun = False
    model: Annotated[str | None, flag("The run's model again: --ask wants it of a python/ function.")] = None
    key_env: Annotated[
        str | None, flag("The variable of the key, where a run of elsewhere names an odd one.")
    ] = None
