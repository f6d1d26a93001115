"""Offer needlemap to Python: `run` measures, `load` reads, `compare` pairs two runs.

`make_plan` counts tokens and costs first, and `curves` draws. They take the settings of YAML files
and flags, by the same names; a function may be a model and a scorer. They print nothing but
progress. `arun` is `run` for code with an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Literal
from weakref import finalize

from needlemap.asking import Outcome
from needlemap.asking.chosen import find_models_to_ask, folders_of
from needlemap.asking.discovery import time_limit
from needlemap.asking.run import FamiliesToAsk, ModelsInTurn, try_servers
from needlemap.asking.session import Session
from needlemap.deadline import LimitReached, limited_to
from needlemap.errors import NeedlemapError, SettingsError, in_python
from needlemap.models import Model
from needlemap.records.families import Families, families_of, fresh_folder
from needlemap.records.folder import RunFolder
from needlemap.records.lock import hold_folder
from needlemap.records.origin import check_origin
from needlemap.reports.live import MapView, NotebookMap, ShowingObserver, in_notebook
from needlemap.reports.pairing import compare_runs, load_any
from needlemap.reports.public_api import Compared, Run, curves_of
from needlemap.scorers import MARK, name_function
from needlemap.settings.suites import Chosen
from needlemap.settings.trust import Trust
from needlemap.sync import await_in_thread, run_coroutine
from needlemap.text import tell

if TYPE_CHECKING:
    from needlemap.reports.figures.drawing import Drawing


@contextmanager
def _for_python() -> Iterator[None]:
    """Let errors raised within name arguments in place of flags."""
    try:
        yield
    except NeedlemapError as error:
        error.args = (in_python(str(error)), *error.args[1:])
        raise


@_for_python()
def load(path: str | Path) -> Run:
    """Load a run from the disk: measured here, elsewhere, or imported.

    The path may also be a folder with the runs of several models. Raises NeedlemapError if there is
    no run.
    """
    run = Run(families_of(path).path)
    if families_of(path).is_plain and not run.models:
        RunFolder(path).about()
    return run


@_for_python()
def run(
    preset: str | None = None,
    *,
    out: str | Path | None = None,
    trust_run: Trust = False,
    **settings: Any,
) -> Run:
    """Measure a model and keep the run. A run that is at `out` is resumed.

    In a notebook it blocks the event loop until it ends; `await arun(...)` does not.

    Args:
        preset: A preset's name, a .yaml file, or suite:NAME for several families.
        out: The run's folder. By default a new one under runs/.
        trust_run: Resume a run that this machine did not start, ask the prompts of one, or run code
            that only a file names. 'prompts': ask the prompts of one, if that contacts no other
            server and runs no code.
        settings: Any setting by its name (needlemap help run). `model` is a name, or a function of
            messages that returns a str or an Answer; several in a list. `scorer` is a name, or a
            function of an answer and a Reference that returns a share in [0, 1], a bool or a Score.
            Both functions may be async.

    Raises SettingsError for unknown settings, and NeedlemapError if every request would fail. If
    one of several models fails, the others are still asked, then NeedlemapError names each that
    failed. What was answered is kept at `out`: `load` reads it, and the same call resumes it.
    """
    return run_coroutine(_run(preset, out, trust_run, settings))


async def arun(
    preset: str | None = None,
    *,
    out: str | Path | None = None,
    trust_run: Trust = False,
    **settings: Any,
) -> Run:
    """Measure as `run` does, on a loop and a thread of its own: the caller's loop stays free.

    If it is cancelled, it ends as an interrupted run does: what was scored is kept.
    """
    with _for_python():
        return await await_in_thread(_run(preset, out, trust_run, settings))


async def _run(
    preset: str | None,
    out: str | Path | None,
    trust_run: Trust,
    settings: Mapping[str, Any],
) -> Run:
    with limited_to(time_limit(preset, settings)):
        chosen_by_model = find_models_to_ask(preset, plain_settings(settings), trusted=trust_run)
        chosen = next(iter(chosen_by_model.values()))
        is_kept = chosen.first.save
        if not is_kept and out is not None:
            raise SettingsError("save=False keeps no folder. Leave out one of save and out.")
        if not is_kept:
            # It lives as long as the run that is returned.
            path = Path(mkdtemp(prefix="needlemap-"), "run")
        elif out is not None:
            path = Path(out)
        else:
            path = fresh_folder(chosen.first, chosen.suite, len(chosen_by_model))
        check_origin(path, trust_run is True, folders_of(chosen_by_model))
        if chosen.note:
            tell(f"note: {chosen.note}")
        with hold_folder(path):
            try:
                run = Run(path, await _ask(chosen_by_model, path))
            except BaseException:
                if not is_kept:
                    rmtree(path.parent, ignore_errors=True)
                raise
        if not is_kept:
            finalize(run, rmtree, path.parent, ignore_errors=True)
        return run


async def _ask(chosen_by_model: Mapping[str, Chosen], path: Path) -> dict[str, Outcome]:
    """Ask all models, and return how each family ended.

    Raises NeedlemapError if one failed, once all others were asked.
    """
    progress = _Progress(Families(path, "", ("",)))
    models = ModelsInTurn(chosen_by_model, path, progress)
    await try_servers(chosen_by_model)
    outcomes = await models.run()
    if progress.errors:
        summary = f"{len(progress.errors)} of {len(chosen_by_model)} models failed."
        if next(iter(chosen_by_model.values())).first.save:
            summary += f" What was answered is kept in '{path}'."
        lines = [
            f"Model '{chosen_by_model[name].first.model}': {error}"
            for name, error in progress.errors.items()
        ]
        raise NeedlemapError("\n".join([summary, *lines]))
    return {
        f"{name}/{family}".strip("/"): outcome
        for name, model_outcomes in outcomes.items()
        for family, outcome in model_outcomes.items()
    }


class _Progress(ShowingObserver):
    """Shows the map filling in, or a line every ten seconds, unless `quiet`.

    Attributes:
        refused: Errors of a model's families that cannot be asked.
        errors: The error of each of several models that failed, by the model's folder.
    """

    def __init__(self, families: Families) -> None:
        super().__init__(families)
        self.refused: list[str] = []
        self.errors: dict[str, NeedlemapError] = {}

    def begins_model(self, name: str, asking: FamiliesToAsk) -> None:
        """Show a model's families from now on."""
        super().begins_model(name, asking)
        self.refused = []

    def begins(self, name: str, session: Session, model: Model | None) -> None:
        """Print the family's name if there are several."""
        if name and not session.experiment.settings.quiet:
            tell(name)

    def map_view(self, session: Session) -> type[MapView] | None:
        """Return the map for a notebook, or None for lines."""
        return NotebookMap if in_notebook() else None

    def ended(self, name: str, session: Session, outcome: Outcome) -> None:
        """Raise NeedlemapError if every request would fail."""
        if outcome.canary:
            raise NeedlemapError(f"Stopped before spending more. {outcome.canary}")
        if outcome.hopeless:
            raise NeedlemapError(f"Stopped, every request would fail: {outcome.hopeless}")

    def left_out(self, name: str, error: NeedlemapError) -> None:
        """Keep an error for the end. A family that a limit left out is not an error."""
        if isinstance(error, LimitReached):
            return
        self.refused.append(f"Family '{name}': {error}")

    def ends_model(self, name: str, outcomes: Mapping[str, Outcome]) -> None:
        """Fail the model if families could not be asked."""
        super().ends_model(name, outcomes)
        if self.refused:
            kept = f"The other families are kept in '{self.families.path}'."
            self.leaves_model(name, NeedlemapError(f"{' '.join(self.refused)} {kept}"))

    def leaves_model(self, name: str, error: NeedlemapError) -> None:
        """Keep the error of one of several models for the end, so that the others still run.

        If there is only one model, raise its error.
        """
        if not name:
            super().leaves_model(name, error)
        self.errors[name] = error


@_for_python()
def compare(
    a: Run | str | Path,
    b: Run | str | Path,
    *,
    margin: float | None = None,
    noise: Sequence[Run | str | Path] = (),
    labels: Sequence[str] = (),
    metric: str = "",
    scope: Literal["these", "new"] = "these",
) -> Compared:
    """Compare run B with run A on the same trials, paired.

    The result has the loss with its interval, and a verdict if there is a margin. Each run is a
    run, its folder, or a log of Inspect or lm-evaluation-harness. Of several families each is
    compared, and their mean decides.

    Args:
        a: The reference.
        b: The run to judge.
        margin: The loss in points that does not matter.
        noise: Further runs of A's model, which show how far runs differ without a reason.
        labels: Names of the two, e.g. ("f16", "q4").
        metric: The metric of logs with several.
        scope: 'new' for a verdict about new haystacks too.

    Raises NeedlemapError if the two did not ask the same.
    """
    both = families_of(_folder(a)), families_of(_folder(b))
    loaded = load_any(*both, labels, metric)
    further = [load_any(both[0], families_of(_folder(other)), (), metric) for other in noise]
    comparison, names = compare_runs(*both, loaded, margin, wanted=scope, noise=further)
    runs = tuple(run for pair in loaded.values() for run in pair)
    return Compared(comparison, names, runs)


@_for_python()
def make_plan(
    preset: str | None = None,
    *,
    workers: int | None = None,
    tokens_per_second: float | None = None,
    model_config: str | Path | None = None,
    cache_tokens: int | None = None,
    cache_block: int = 16,
    **settings: Any,
) -> dict[str, Any]:
    """Return what a run would ask and cost in each mode, as `needlemap plan --json` prints it.

    Nothing is sent. Of several models the plan has each, and their sum.

    Args:
        preset: As `run` takes it.
        workers: How many lanes there are.
        tokens_per_second: Prefill speed of one worker.
        model_config: A config.json, for floating-point operations.
        cache_tokens: The size of a server's prefix cache to simulate.
        cache_block: Tokens of one of its blocks.
        settings: As `run` takes them.

    Raises SettingsError.
    """
    from needlemap.plan.summary import Shape, Terms
    from needlemap.reports.plan_report import plan_report
    from needlemap.reports.renderers.json import to_json

    shape = Shape.of_config(Path(model_config)) if model_config is not None else None
    terms = Terms(
        workers=workers,
        tokens_per_second=tokens_per_second,
        shape=shape,
        cache_tokens=cache_tokens,
        cache_block=cache_block,
    )
    with limited_to(time_limit(preset, settings)):
        chosen_by_model = find_models_to_ask(
            preset, plain_settings(settings), asks=False, planned=True
        )
        return to_json(plan_report(chosen_by_model, terms))


@_for_python()
def curves(
    runs: Iterable[Run | str | Path], *, title: str | None = None, width: str | None = None
) -> Drawing:
    """Draw the scores of several runs by length, with bands and effective lengths.

    Each run is a run or its folder. A suite has a plot for each family. The drawing's `.svg`,
    `.png` and `.pdf` are the bytes of files; `.save(path)` writes one.

    width: for a paper, e.g. '3.25in' or 'column'. Raises NeedlemapError if nothing was scored.
    """
    return curves_of([load(_folder(run)) for run in runs], title=title, width=width)


def _folder(run: Run | str | Path) -> Path:
    return run.path if isinstance(run, Run) else Path(run)


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as they are written: paths and functions by their names."""
    plain: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value for name, value in settings.items()
    }
    for name in ("model", "model_name"):
        if name in plain:
            plain[name] = _model_setting(plain[name])
    if "scorer" in plain:
        plain["scorer"] = _function_setting(plain["scorer"])
    return plain


def _model_setting(model: Any) -> Any:
    """Return the setting `model`, with the names of functions in place of the functions.

    Raises SettingsError if two functions have the same name.
    """
    if isinstance(model, list | tuple):
        functions: list[Callable[..., Any]] = [part for part in model if callable(part)]
        if len({_function_setting(function) for function in functions}) < len(functions):
            raise SettingsError(
                "Two functions have one name, and go by it. Give each a name of its own."
            )
        return [_model_setting(part) for part in model]
    if isinstance(model, dict) and "model" in model:
        return {**model, "model": _model_setting(model["model"])}
    return _function_setting(model)


def _function_setting(value: Any) -> Any:
    """Return the name of a function, or any other value as it is. Settings are checked later."""
    if not callable(value):
        return value
    return f"{MARK}{name_function(value)}"
