"""`needlemap run`: ask, score, draw, and say how it went."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from needlemap.commands.settle import settle
from needlemap.errors import SettingsError
from needlemap.maps.map import Map
from needlemap.models.base import Model
from needlemap.reports.live import Lines, LiveMap, Silent, Tally, View
from needlemap.reports.terminal import plain_summary, terminal_map
from needlemap.reports.usage import usage_lines
from needlemap.runs.contexts import SavingContexts
from needlemap.runs.record import Record
from needlemap.runs.runner import Outcome
from needlemap.runs.session import Session, about, load_map, make_model, map_of
from needlemap.settings import Settings
from needlemap.trials import Experiment, prepare


def run_command(preset: str | None, out: Path | None, flags: Mapping[str, Any]) -> int:
    """Run or resume; returns the exit code."""
    settings = settle(preset, flags)
    if settings.save:
        return _run(settings, out or fresh(settings))
    if settings.save_contexts:
        raise SettingsError("--save-contexts writes into the run folder, and --no-save keeps none. Give one.")
    with tempfile.TemporaryDirectory() as folder:
        return _run(settings, Path(folder) / "run")


def _run(settings: Settings, path: Path) -> int:
    experiment = prepare(settings)
    session = Session.open(experiment, path)
    model = make_model(settings) if session.todo else None
    if not settings.quiet:
        _announce(session)
        _notes(model)
    outcome = Outcome()
    if model is not None:
        view = _view(session)
        watcher = SavingContexts(view, path) if settings.save_contexts else view
        try:
            with view:
                outcome = asyncio.run(session.run(model, watcher))
        except KeyboardInterrupt:
            return _interrupted(settings, path)
    _result(load_map(path), settings, path)
    if not settings.quiet:
        _usage(session)
    return _verdict(outcome, experiment, path)


def _interrupted(settings: Settings, path: Path) -> int:
    kept = f"What was scored is kept; to go on: the same command with -o {path}" if settings.save else ""
    print(f"needlemap: interrupted. {kept}".rstrip(), file=sys.stderr)
    return 130


def fresh(settings: Settings) -> Path:
    """A folder that no run has used: runs/MODEL-TASK-TIME."""
    name = "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in settings.model)
    path = Path("runs") / f"{name}-{settings.task}-{datetime.now():%Y%m%d-%H%M%S}"
    while path.exists():
        path = path.with_name(f"{path.name}-again")
    return path


def _announce(session: Session) -> None:
    """What is about to be asked, and what the settings silently would not say."""
    experiment = session.experiment
    grid, settings = experiment.grid, experiment.settings
    size = f"{len(grid.lengths)} lengths x {len(grid.depths)} depths x {settings.repeats}"
    lines = [
        f"{settings.model} · {experiment.task.name} · {size} = {len(experiment.trials)} trials · "
        f"{experiment.tokens_asked:,} prompt tokens ({experiment.tokenizer.name})"
    ]
    lines += [f"{session.done} already scored, {len(session.todo)} to ask"] if session.done else []
    for what, count in zip(("lengths", "depths"), grid.duplicates, strict=True):
        lines += [f"{count} {what} fell together after rounding and are asked once"] if count else []
    if any(trial.haystack_repeated for trial in experiment.trials):
        lines.append("warning: the haystack is shorter than the longest prompt and is repeated")
    collided = sorted({word for trial in experiment.trials for word in trial.collisions})
    lines += [f"warning: the haystack already holds {', '.join(map(repr, collided))}"] if collided else []
    lines += _same(experiment)
    missed = sum(trial.prompt.off_by != 0 for trial in experiment.trials)
    lines += [f"warning: {missed} prompts miss their length by a token or two (recorded)"] if missed else []
    print("\n".join(lines), file=sys.stderr, flush=True)


def _same(experiment: Experiment) -> list[str]:
    """How many prompts are asked twice: sentences are longer than the steps in depth, or repeats alike."""
    trials, first = experiment.trials, experiment.settings.first_repeat
    places = {
        (
            experiment.haystacks[trial.repeat - first],
            trial.cell.length_tokens,
            trial.prompt.positions,
            trial.prompt.haystack_tokens,
            tuple(needle.text for needle in trial.item.needles),
        )
        for trial in trials
    }
    same = len(trials) - len(places)
    if not same or experiment.settings.mode == "cold":
        return []
    return [f"note: {same} of {len(trials)} prompts equal one of another depth or repeat; n counts them once"]


def _notes(model: Model | None) -> None:
    """What a back end has to say about its model before it is asked."""
    for note in getattr(model, "notes", ()):
        print(f"note: {note}", file=sys.stderr, flush=True)


def _view(session: Session) -> View:
    settings = session.experiment.settings
    if settings.quiet:
        return Silent()
    tally = Tally(len(session.experiment.trials), session.done)
    if not sys.stderr.isatty():
        return Lines(tally)
    return LiveMap(tally, list(session.folder.records()), _Drawing(session.experiment, session))


class _Drawing:
    """Makes the map of records so far."""

    def __init__(self, experiment: Experiment, session: Session) -> None:
        self._about = about(experiment, session.folder)

    def __call__(self, records: list[Record]) -> Map:
        return map_of(self._about, records)


def _result(map: Map, settings: Settings, path: Path) -> None:
    """The map, on a terminal or as lines, and where it is kept."""
    if sys.stdout.isatty():
        Console().print(terminal_map(map))
    else:
        sys.stdout.write(plain_summary(map))
    if settings.save and not settings.quiet:
        print(f"\nrun: {path}\nfigure: needlemap report {path} -o map.png", file=sys.stderr)


def _usage(session: Session) -> None:
    """What the server counted, where that is worth a word."""
    experiment = session.experiment
    remote, framing = experiment.traits.remote, experiment.settings.framing_tokens
    for line in usage_lines(session.folder.records(), remote=remote, framing_tokens=framing):
        print(line, file=sys.stderr)


def _verdict(outcome: Outcome, experiment: Experiment, path: Path) -> int:
    """What stopped the run or failed in it, in one line each; the exit code."""
    if outcome.hopeless:
        print(f"needlemap: stopped, every request would fail: {outcome.hopeless}", file=sys.stderr)
        return 2
    if outcome.refused_from:
        fitting = [length for length in experiment.grid.lengths if length < outcome.refused_from]
        advice = f"Use --lengths up to {max(fitting):,}." if fitting else "Use shorter --lengths."
        print(
            f"needlemap: the model refused prompts of {outcome.refused_from:,} tokens and more "
            f"({outcome.refusal}). {advice}",
            file=sys.stderr,
        )
        return 2
    if outcome.stopped:
        print(
            f"needlemap: stopped by the budget: {outcome.stopped}. To go on: the same command with a higher "
            f"limit and -o {path}",
            file=sys.stderr,
        )
        return 3
    if outcome.failures:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.failures.items()))
        again = f"To ask them again: the same command with -o {path}" if experiment.settings.save else ""
        print(f"needlemap: not measured: {kinds}. {again}".rstrip(), file=sys.stderr)
        return 1
    return 0
