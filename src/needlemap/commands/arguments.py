"""Arguments that several commands take, and what a shell offers for them and for settings at Tab.

Nothing is imported before it is asked for: a key press should not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin

import typer

from needlemap import __version__
from needlemap.settings import Settings
from needlemap.text import show

Complete = Callable[[str], list[str]]
_PRICED = ("openai", "anthropic")
_INSTALLED = {"task": "tasks", "scorer": "scorers", "haystack": "haystacks"}


def complete_presets(incomplete: str) -> list[str]:
    """Presets and suites."""
    from needlemap.files import PRESETS, SUITES
    from needlemap.settings.suites import MARK

    return _begun(incomplete, [*PRESETS.texts, *(f"{MARK}{name}" for name in SUITES.texts)])


def complete_models(incomplete: str) -> list[str]:
    """Back ends; behind `openai/` and `anthropic/` the models with a known price."""
    from needlemap.settings.registry import installed

    backend = incomplete.partition("/")[0]
    if "/" in incomplete and backend in _PRICED:
        return _begun(incomplete, [f"{backend}/{name}" for name in _priced(backend)])
    ours = ("demo/retriever", "baseline/bm25", "baseline/random")
    others = (f"{name}/" for name in installed("models") if name not in ("demo", "baseline"))
    return _begun(incomplete, [*ours, *others])


def _priced(backend: str) -> Iterable[str]:
    from genai_prices.data import providers

    return (model.id for each in providers if each.id == backend for model in each.models)


def complete_kinds(incomplete: str) -> list[str]:
    """What `needlemap list` lists."""
    from needlemap.commands.plan import KINDS

    return _begun(incomplete, KINDS)


def complete_scorers(incomplete: str) -> list[str]:
    """Scorers."""
    return _installed("scorers", incomplete)


def complete_palettes(incomplete: str) -> list[str]:
    """Palettes of figures."""
    from needlemap.reports import PALETTES

    return _begun(incomplete, PALETTES)


def complete_runs(incomplete: str) -> list[str]:
    """Run folders by the beginning of their path; other folders, which may hold runs, with a slash."""
    from needlemap.files import is_run_folder

    typed = Path(incomplete)
    folder = typed if incomplete.endswith("/") or not incomplete else typed.parent
    found = sorted(each for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []
    return _begun(incomplete, [f"{each}{'' if is_run_folder(each) else '/'}" for each in found])


def completion_of(name: str) -> Complete | None:
    """What a setting's flag offers; None for what can be anything."""
    kind = Settings.model_fields[name].annotation
    if get_origin(kind) is Literal:
        return lambda incomplete: _begun(incomplete, map(str, get_args(kind)))
    if name in _INSTALLED:
        return lambda incomplete: _installed(_INSTALLED[name], incomplete)
    return {
        "model": complete_models,
        "tokenizer": _tokenizers,
        "template": _templates,
        "prompts_of": complete_runs,
    }.get(name)


def _tokenizers(incomplete: str) -> list[str]:
    from needlemap.tokenizers import BUNDLED

    return _begun(incomplete, ["auto", "server", *BUNDLED])


def _templates(incomplete: str) -> list[str]:
    from needlemap.files import TEMPLATES

    return _begun(incomplete, ["auto", *TEMPLATES.texts])


def _installed(kind: str, incomplete: str) -> list[str]:
    from needlemap.settings.registry import installed

    return _begun(incomplete, sorted(installed(kind)))


def _begun(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


Preset = Annotated[
    str | None,
    typer.Argument(
        help="A preset (needlemap list presets), a .yaml file, or suite:NAME (list suites).",
        autocompletion=complete_presets,
    ),
]
Out = Annotated[
    Path | None, typer.Option("-o", "--out", help="The folder for the run. A run that is there goes on.")
]
Live = Annotated[
    bool,
    typer.Option(
        "--live/--no-live",
        help="Also serve the report's page to a browser of this machine while the run goes on.",
    ),
]
AsMap = Annotated[bool, typer.Option("--map", help="Draw the map where there is no terminal, too.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output instead.")]
DifficultyFile = Annotated[
    str | None,
    typer.Option(
        "--difficulty", metavar="FILE|RUN", help="Ask at the difficulty that run --difficulty auto found."
    ),
]
Kind = Annotated[
    str | None,
    typer.Argument(
        help="presets, suites, templates, tasks, models, scorers, haystacks, tokenizers, runs.",
        autocompletion=complete_kinds,
    ),
]
TrustRun = Annotated[
    bool,
    typer.Option(
        "--trust-run",
        help="Go on with a run from another machine, and open what its run.json names.",
    ),
]
Runs = Annotated[
    list[Path],
    typer.Argument(
        help="Run folders, a folder that holds some, or results of other tools.",
        autocompletion=complete_runs,
    ),
]
DatasetLength = Annotated[
    str,
    typer.Option(
        "--dataset-length", "--dataset_length", help="For a figure's title as OpenCompass's, as 200K."
    ),
]
Smooth = Annotated[
    bool, typer.Option("--smooth", help="Also a smoothed map, where it foretells better than raw cells.")
]
Metric = Annotated[
    str, typer.Option(help="Which score of an Inspect or lm-evaluation-harness log counts (default: first).")
]
FailUnder = Annotated[
    float | None,
    typer.Option(
        metavar="PERCENT",
        help="Exit with 0 when the mean is surely at least this, 1 when it is surely below, 4 when "
        "nobody can tell (by its 95 % interval).",
    ),
]
Palette = Annotated[
    str | None,
    typer.Option(
        help="Colours: viridis (the default), cividis, grey, or red-amber-green: amber.",
        autocompletion=complete_palettes,
    ),
]
Folder = Annotated[
    Path, typer.Argument(metavar="RUN", help="The run's folder.", autocompletion=complete_runs)
]
First = Annotated[
    Path,
    typer.Argument(
        metavar="RUN_A",
        help="The reference, a run's or suite's folder, or a log.",
        autocompletion=complete_runs,
    ),
]
Second = Annotated[
    Path,
    typer.Argument(
        metavar="RUN_B", help="What to judge: another of the same kind.", autocompletion=complete_runs
    ),
]
Margin = Annotated[
    float | None, typer.Option(help="The loss in points that does not matter (2 if not given).")
]
FailIfWorse = Annotated[
    float | None, typer.Option(help="As --margin, and exit with 1 where B is worse, 4 where undecided.")
]
OnUndecided = Annotated[str, typer.Option(help="Where nobody can tell: 'fail' exits with 4, 'pass' with 0.")]
Sequential = Annotated[
    bool,
    typer.Option(
        "--sequential",
        help="A verdict that holds however often you look.",
    ),
]
Difficulty = Annotated[
    str | None,
    typer.Option(
        metavar="auto|FILE|RUN",
        help="auto: make the task harder until the model scores 60 to 95, and keep that difficulty; "
        "FILE or RUN: one that was kept.",
    ),
]
Answers = Annotated[
    bool, typer.Option("--answers", help="Also which answers differ: the first ones, by length, by depth.")
]
FailIfAnswersDiffer = Annotated[
    float | None,
    typer.Option(
        metavar="PERCENT",
        help="Exit with 1 where more of B's answers than this differ from A's: 0 for a refactoring.",
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option(help="What to call a run, as f16 and q4; give it twice. Then B is not A made again."),
]
JUnit = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Also write the verdicts as JUnit XML, for CI.")
]
Format = Annotated[
    str,
    typer.Option(
        help="Of a table: cells, trials, opencompass. golden: one run, frozen small for tests, in a folder."
    ),
]
LONG_AB = "suite:long-ab"
Arms = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=URL|MODEL", help="An arm; the reference first, then the other."),
]
ArmCommands = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=COMMAND", help="An arm whose server is started, '... {port} ...', and ended."),
]
Weigh = Annotated[
    bool, typer.Option("--weigh", help="Also ask both arms how likely they find the reference's answers.")
]
AbMargin = Annotated[float, typer.Option(help="The loss in points that does not matter, fixed beforehand.")]
Until = Annotated[
    str | None,
    typer.Option(
        metavar="decided|PAIRS", help="Ask until there is a verdict, 20,000 pairs at most; or so many pairs."
    ),
]
MaxLength = Annotated[str | None, typer.Option(help="The longest prompt, a promise; else 128k or less.")]
Minutes = Annotated[float | None, typer.Option(help="Stop asking after so long.")]
Load = Annotated[int, typer.Option(min=2, help="Prompts at a time where there is load.")]
Elsewhere = Annotated[str, typer.Option(metavar="MODEL|URL", help="The same weights: hf/PATH, or a server.")]
Probes = Annotated[list[str] | None, typer.Option(help="Only this probe; repeat the flag.")]
PlanOnly = Annotated[bool, typer.Option("--plan", help="Print what would be asked, and ask nothing.")]
Length = Annotated[str | None, typer.Option(help="The cell's length in tokens.")]
Depth = Annotated[float | None, typer.Option(help="The cell's depth in percent.")]
FoundBy = Annotated[str | None, typer.Option(help="Of a check: the probe that found something.")]
AskedOf = Annotated[str | None, typer.Option("--arm", help="Of an ab: the arm, with --worst.")]
Worst = Annotated[
    bool, typer.Option("--worst", help="Of a check's --probe or an ab's --arm: the prompt that shows it.")
]
Workers = Annotated[int | None, typer.Option(help="Lanes; by default as many as --concurrency.")]
Speed = Annotated[float | None, typer.Option(help="Prefill speed of one worker, of short prompts.")]
ModelConfig = Annotated[Path | None, typer.Option(help="A config.json, for floating-point operations.")]
CacheTokens = Annotated[int | None, typer.Option(help="A server's prefix cache to simulate.")]
CacheBlock = Annotated[int, typer.Option(help="Its block size in tokens.")]
Drawn = Annotated[
    Path | None, typer.Option("-o", "--out", help=".png, .svg, .pdf, .html, .md, .csv or .parquet.")
]
LogTo = Annotated[
    list[str] | None, typer.Option(metavar="WHERE", help="wandb:PROJECT, tensorboard:FOLDER; repeatable.")
]
Imported = Annotated[
    Path, typer.Option("-o", "--out", help="The new run's folder; of several runs, the folder of these.")
]
Scored = Annotated[
    Path,
    typer.Argument(
        metavar="FILE|RUN",
        help="JSON Lines with answer and reference (keywords, question), or a run's folder.",
        autocompletion=complete_runs,
    ),
]
Scorer = Annotated[
    str,
    typer.Option(help="levenshtein, keyword, substring, exact, judge, ...", autocompletion=complete_scorers),
]
ScorerOptions = Annotated[list[str] | None, typer.Option(help="The scorer's own options, KEY=VALUE.")]
ScoredOut = Annotated[
    Path | None, typer.Option("-o", "--out", help="Where scored lines go, or the new run's folder.")
]
ModelAgain = Annotated[
    str | None, typer.Option(help="The run's model again: --ask wants it of a python/ function.")
]
KeyVariable = Annotated[
    str | None, typer.Option(help="The variable of the key, where a run of elsewhere names an odd one.")
]


def _version(wanted: bool) -> None:
    if wanted:
        show(f"needlemap {__version__}")
        raise typer.Exit


Version = typer.Option("--version", is_eager=True, callback=_version, help="Print the version and leave.")


Debug = typer.Option(
    "--debug", help="Also show where your own functions and plug-ins raised; with any command."
)
