"""The command line: parse, call, print. What a command does is elsewhere."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from needlemap.commands import arguments
from needlemap.commands.replicas import ReplicaFlags, with_replicas
from needlemap.errors import NeedlemapError, os_error_words
from needlemap.secrets import hidden
from needlemap.settings import marked, settings_of
from needlemap.settings.flags import GroupedCommand, with_settings
from needlemap.text import printable, show

if TYPE_CHECKING:
    from needlemap.settings.suites import Chosen

app = typer.Typer(
    name="needlemap",
    help="Where in its context does a language model find a fact, and where does it lose it?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its import would double the time that --help takes
    context_settings={"help_option_names": ["-h", "--help"]},
)
settings_flags = partial(with_settings, completion_of=arguments.completion_of)
model_flags = partial(settings_flags, names_of=(*settings_of("Model"), *marked("check")))
ab_flags = partial(settings_flags, names_of=(*settings_of("Model"), *marked("check", "ab")))


@app.callback()
def common(
    version: Annotated[bool, arguments.Version] = False,  # noqa: ARG001 - its callback does it
    debug: Annotated[bool, arguments.Debug] = False,
) -> None:
    """What stands before any command."""
    if debug:
        from needlemap.commands.termination import show_tracebacks

        show_tracebacks()


@app.command(cls=GroupedCommand)
@settings_flags
@with_replicas
def run(
    preset: arguments.Preset = None,
    out: arguments.Out = None,
    live: arguments.Live = False,
    difficulty: arguments.Difficulty = None,
    trust_run: arguments.TrustRun = False,
    json: arguments.Json = False,
    fail_under: arguments.FailUnder = None,
    map: arguments.AsMap = False,
    junit: arguments.JUnit = None,
    on_undecided: arguments.OnUndecided = "fail",
    *,
    replicas: ReplicaFlags,
    **flags: Any,
) -> None:
    """Ask, score and draw a map. Without arguments: a real run of a small model, no key or GPU."""
    if out is not None:
        _check_origin(out, trust_run)
    auto = difficulty == "auto"
    each = _each(preset, flags, None if auto else difficulty, trust_run)
    from needlemap.commands.run import Showing, run_command

    showing = Showing(live, json, fail_under, map, junit, on_undecided)
    if auto:
        from needlemap.commands.difficulty import auto_command

        raise typer.Exit(auto_command(_only(each), out, showing, replicas))
    raise typer.Exit(run_command(each, out, showing, replicas))


@app.command(cls=GroupedCommand)
@model_flags
def check(
    max_length: arguments.MaxLength = None,
    minutes: arguments.Minutes = None,
    load: arguments.Load = 8,
    reference: arguments.Elsewhere = "",
    probe: arguments.Probes = None,
    out: arguments.Out = None,
    plan: arguments.PlanOnly = False,
    json: arguments.Json = False,
    junit: arguments.JUnit = None,
    trust_run: arguments.TrustRun = False,
    **flags: Any,
) -> None:
    """Try whether a server computes long prompts right. It needs no reference and no settings."""
    from needlemap.asking.check import Asked
    from needlemap.commands.check import check_command, plan_check
    from needlemap.probes import PROBES
    from needlemap.settings.grid import tokens

    if out is not None:
        _check_origin(out, trust_run)
    limited = {"limit_time": 60 * minutes} if minutes is not None else {}
    most, probes = int(tokens(max_length or "128k")), tuple(probe or PROBES)
    asked = Asked(flags | limited, most, load, reference, probes, promised=max_length is not None)
    raise typer.Exit(plan_check(asked, json) if plan else check_command(asked, out, json, junit))


@app.command(cls=GroupedCommand)
@ab_flags
def ab(
    preset: arguments.Preset = None,
    arm: arguments.Arms = None,
    arm_command: arguments.ArmCommands = None,
    margin: arguments.AbMargin = 2.0,
    until: arguments.Until = None,
    on_undecided: arguments.OnUndecided = "fail",
    weigh: arguments.Weigh = False,
    difficulty: arguments.DifficultyFile = None,
    out: arguments.Out = None,
    plan: arguments.PlanOnly = False,
    json: arguments.Json = False,
    junit: arguments.JUnit = None,
    trust_run: arguments.TrustRun = False,
    **flags: Any,
) -> None:
    """Tell whether a changed engine is no worse. Two arms get the same prompts, until a verdict."""
    from needlemap.asking.ab import Asked
    from needlemap.commands.ab import Typed, ab_command, parse_until, plan_ab, typed_arms

    if out is not None:
        _check_origin(out, trust_run)
    arms, commands = typed_arms(arm or (), arm_command or (), flags.get("model", ""))
    named = preset or arguments.LONG_AB
    settle = partial(_each, named, difficulty=difficulty)
    asked = Asked(arms, flags, settle, margin, *parse_until(until), weigh)
    if plan:
        plan_ab(asked, json)
        return
    raise typer.Exit(ab_command(asked, Typed(out, on_undecided, json, junit, commands)))


@app.command(cls=GroupedCommand)
@settings_flags
def plan(
    preset: arguments.Preset = None,
    difficulty: arguments.DifficultyFile = None,
    workers: arguments.Workers = None,
    tokens_per_second: arguments.Speed = None,
    model_config: arguments.ModelConfig = None,
    cache_tokens: arguments.CacheTokens = None,
    cache_block: arguments.CacheBlock = 16,
    json: arguments.Json = False,
    **flags: Any,
) -> None:
    """Show what a run would ask and cost. Nothing is asked, and no key is needed."""
    from needlemap.commands.plan import plan_command
    from needlemap.plan.reckoned import Terms

    terms = Terms(workers, tokens_per_second, model_config, cache_tokens, cache_block)
    plan_command(_each(preset, flags, difficulty), terms, json)


@app.command(cls=GroupedCommand)
@settings_flags
def prompts(
    preset: arguments.Preset = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="The file to write.")] = None,
    difficulty: arguments.DifficultyFile = None,
    **flags: Any,
) -> None:
    """Write all prompts of a run as JSON Lines. Nothing is asked."""
    from needlemap.commands.plan import prompts_command

    prompts_command(_only(_each(preset, flags, difficulty)), out)


@app.command()
def score(
    file: arguments.Scored,
    scorer: arguments.Scorer,
    scorer_options: arguments.ScorerOptions = None,
    out: arguments.ScoredOut = None,
    trust_run: arguments.TrustRun = False,
) -> None:
    """Score answers again with another scorer. A run's, or a file's; nothing is asked."""
    from needlemap.commands.score import score_command

    for folder in (file, *([out] if out is not None else [])):
        _check_origin(folder, trust_run)
    raise typer.Exit(score_command(file, scorer, scorer_options or [], out))


@app.command()
def report(
    runs: arguments.Runs,
    out: arguments.Drawn = None,
    format: arguments.Format = "cells",
    title: Annotated[str | None, typer.Option(help="Instead of the title made from the run.")] = None,
    palette: arguments.Palette = None,
    width: Annotated[str, typer.Option(help="Of a printed figure: 3.25in, 8.4cm, column, text, page.")] = "",
    style: Annotated[str, typer.Option(help="Of a figure: as opencompass or needlehaystack draws it.")] = "",
    curves: Annotated[bool, typer.Option("--curves", help="A figure of scores by length.")] = False,
    map: arguments.AsMap = False,
    rules: Annotated[str, typer.Option(help="Of effective length: absolute:90,auc. See docs.")] = "",
    log: arguments.LogTo = None,
    step: Annotated[int, typer.Option(help="For --log: the training step that the model is of.")] = 0,
    dataset_length: arguments.DatasetLength = "",
    smooth: arguments.Smooth = False,
    metric: arguments.Metric = "",
    json: arguments.Json = False,
) -> None:
    """Draw finished or running runs. On the terminal, or into a file by its suffix."""
    from needlemap.commands.report import Look, report_command

    look = Look(title, palette, width, rules, style, curves, map, dataset_length, smooth, metric)
    report_command(runs, out, format, look, log or (), step, json)


@app.command(name="import")
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FOLDER|FILE...", help="Results of another tool.")],
    out: arguments.Imported,
    model: Annotated[str, typer.Option(help="The model's name, where files do not tell it.")] = "",
    scale: Annotated[str, typer.Option(help="LOWEST:HIGHEST score, where files do not show it.")] = "",
    tokenizer: Annotated[str, typer.Option(help="Whose tokens lengths count, to be shown.")] = "",
    dataset_length: arguments.DatasetLength = "",
    metric: arguments.Metric = "",
) -> None:
    """Turn results of other tools into runs. needlehaystack, OpenCompass, Inspect, lm-evaluation-harness."""
    from needlemap.commands.report import import_command
    from needlemap.interop import parsed_scale
    from needlemap.interop.imported import Said

    said = Said(model, parsed_scale(scale) if scale else None, tokenizer, dataset_length, metric)
    raise typer.Exit(import_command(files, out, said))


@app.command()
def compare(
    first: arguments.First,
    second: arguments.Second,
    margin: arguments.Margin = None,
    fail_if_worse: arguments.FailIfWorse = None,
    on_undecided: arguments.OnUndecided = "fail",
    answers: arguments.Answers = False,
    fail_if_answers_differ: arguments.FailIfAnswersDiffer = None,
    label: arguments.Labels = None,
    sequential: arguments.Sequential = False,
    metric: arguments.Metric = "",
    json: arguments.Json = False,
    junit: arguments.JUnit = None,
) -> None:
    """Tell whether one run is worse than another. Pair by pair: difference, interval, verdict."""
    from needlemap.commands.compare import Wanted, compare_command

    labels = tuple(label or ())
    typed = margin, fail_if_worse, on_undecided, answers, fail_if_answers_differ, labels, sequential, json
    raise typer.Exit(compare_command(first, second, Wanted(*typed, junit, metric)))


@app.command(name="list")
def list_(
    kind: arguments.Kind = None,
    folder: Annotated[Path | None, typer.Argument(help="Where runs lie (default: runs).")] = None,
) -> None:
    """List presets, tasks, models and other names. Or your runs, with their scores."""
    from needlemap.commands.plan import list_command

    list_command(kind, folder)


@app.command()
def replay(
    folder: arguments.Folder,
    length: arguments.Length = None,
    depth: arguments.Depth = None,
    repeat: Annotated[int, typer.Option(help="Which repeat.")] = 0,
    probe: arguments.FoundBy = None,
    arm: arguments.AskedOf = None,
    worst: arguments.Worst = False,
    ask: Annotated[bool, typer.Option("--ask", help="Also ask it again and show both answers.")] = False,
    trust_run: arguments.TrustRun = False,
    model: arguments.ModelAgain = None,
    key_env: arguments.KeyVariable = None,
) -> None:
    """Show one prompt of a run again, byte for byte. --ask: also ask it again."""
    from needlemap.commands.replay import Typed, replay_command, replayed

    found = replayed(folder, length, depth, repeat, probe, arm, worst)
    replay_command(*found, Typed(ask, trust_run, model, key_env))


def _check_origin(path: Path, trusted: bool) -> None:
    """Raises NeedlemapError for a run there that this machine did not begin, unless it is trusted."""
    if path.is_dir():
        from needlemap.records.families import check_origin

        check_origin(path, trusted)


def _each(
    preset: str | None, flags: dict[str, Any], difficulty: str | None, trusted: bool = False
) -> dict[str, Chosen]:
    """What is asked of each model, at a frozen difficulty if one is named."""
    from needlemap.asking.resume import with_lent_prompts
    from needlemap.settings.suites import choose_each

    each = {name: with_lent_prompts(chosen, trusted) for name, chosen in choose_each(preset, flags).items()}
    if difficulty is None:
        return each
    from needlemap.commands.difficulty import at_difficulty

    return {name: at_difficulty(chosen, flags, difficulty) for name, chosen in each.items()}


def _only(each: dict[str, Chosen]) -> Chosen:
    """What is asked of the only model. Raises SettingsError for several."""
    from needlemap.settings.suites import only_model

    return only_model(each)


def _limit_blas_threads() -> None:
    """Keep numpy's BLAS to one thread, unless the user or a model in this process may want more.

    Nothing here multiplies large matrices, and idle BLAS threads cost a quarter of a start's CPU time.
    """
    if not any(argument.startswith(("hf/", "lmdeploy/", "python/")) for argument in sys.argv):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def main() -> None:
    """Entry point. Exit codes: 0 done, 1 some not measured, 2 settings, 3 budget, 130 and 143 signals."""
    _limit_blas_threads()
    debug = [word for word in sys.argv[1:] if word == "--debug"]  # one for all commands, wherever it is typed
    try:
        words = [*debug[:1], *(word for word in sys.argv[1:] if word != "--debug")]
        app(words, prog_name="needlemap")
    except NeedlemapError as error:
        show(f"needlemap: {printable(hidden(str(error)))}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:  # a folder that cannot be written, a full disk; typer deals with broken pipes
        show(f"needlemap: {printable(hidden(os_error_words(error)))}", file=sys.stderr)
        sys.exit(2)
