"""The Python interface: `run` asks and keeps, `load` reads, `compare` pairs two, `make_plan`
counts first.

It takes the settings that YAML files and flags take, by the same names; a function may be a
model and a scorer. It prints nothing but progress. `arun` is `run` for code with an event
loop.
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
from needlemap.asking.chosen import folders_of, models_to_ask
from needlemap.asking.discovery import known_settings, listed_model, time_limit
from needlemap.asking.run import ModelsInTurn, try_servers
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
    from needlemap.reports.figures import Drawing


@contextmanager
def _for_python() -> Iterator[None]:
    """Errors from inside name arguments in place of flags."""
    try:
        yield
    except NeedlemapError as error:
        error.args = (in_python(str(error)), *error.args[1:])
        raise


@_for_python()
def load(path: str | Path) -> Run:
    """A run that is on the disk: asked here, elsewhere, or imported; also a folder with those
    of several models. Raises NeedlemapError when none is."""
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
    """Ask, score, keep; resumes a run that is at `out` (by default a new folder under runs/).

    preset: a preset's name, a .yaml file, or suite:NAME for several families. trust_run: go on
    with a run that this machine did not begin, ask the prompts of one, or run code that stands
    only in a file; 'prompts': ask the prompts of one only if that contacts no other server and
    runs no code. settings: any setting by its name (needlemap help run); unknown ones raise
    SettingsError. model: a name, or a function of messages that returns a str or an Answer;
    several in a list. scorer: a name, or a function of an answer and a Reference that returns a
    share in [0, 1], a bool or a Score. Both may be async. In a notebook it holds up the event
    loop until it ends; `await arun(...)` does not. Raises NeedlemapError when every request
    would fail.
    """
    return run_coroutine(_run(preset, out, trust_run, settings))


async def arun(
    preset: str | None = None,
    *,
    out: str | Path | None = None,
    trust_run: Trust = False,
    **settings: Any,
) -> Run:
    """`run`, to be awaited: it works on a loop and a thread of its own, and the caller's loop
    stays free.

    Cancelled, it ends as an interrupted run does: what was scored is kept.
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
        typed = plain_settings(settings)
        settled = typed | listed_model(preset, typed)
        settled |= known_settings(preset, settled)
        each = models_to_ask(preset, settled, trusted=trust_run)
        first = next(iter(each.values()))
        kept = first.first.save
        if not kept and out is not None:
            raise SettingsError("save=False keeps no folder. Leave out one of save and out.")
        if not kept:  # it lives as long as the run that is returned
            path = Path(mkdtemp(prefix="needlemap-"), "run")
        elif out is not None:
            path = Path(out)
        else:
            path = fresh_folder(first.first, first.suite, len(each))
        check_origin(path, trust_run is True, folders_of(each))
        if first.note:
            tell(f"note: {first.note}")
        with hold_folder(path):
            try:
                run = Run(path, await _ask(each, path))
            except BaseException:
                if not kept:
                    rmtree(path.parent, ignore_errors=True)
                raise
        if not kept:
            finalize(run, rmtree, path.parent, ignore_errors=True)
        return run


async def _ask(each: Mapping[str, Chosen], path: Path) -> dict[str, Outcome]:
    """Ask all models; how the asking of each family ended. Raises NeedlemapError where one
    cannot be asked."""
    models = ModelsInTurn(each, path, _Progress(Families(path, "", ("",))))
    await try_servers(each)
    outcomes = await models.run()
    return {
        f"{name}/{family}".strip("/"): outcome
        for name, found in outcomes.items()
        for family, outcome in found.items()
    }


class _Progress(ShowingObserver):
    """Shows the map filling in, or a line every ten seconds, unless `quiet`. refused: families
    that cannot be asked."""

    def __init__(self, families: Families) -> None:
        super().__init__(families)
        self.refused: list[str] = []

    def begins(self, name: str, session: Session, model: Model | None) -> None:
        """Say which of several."""
        if name and not session.experiment.settings.quiet:
            tell(name)

    def map_view(self, session: Session) -> type[MapView] | None:
        """The map in a notebook, else lines."""
        return NotebookMap if in_notebook() else None

    def ended(self, name: str, session: Session, outcome: Outcome) -> None:
        """Raises NeedlemapError when every request would fail."""
        if outcome.canary:
            raise NeedlemapError(f"Stopped before spending more. {outcome.canary}")
        if outcome.hopeless:
            raise NeedlemapError(f"Stopped, every request would fail: {outcome.hopeless}")

    def left_out(self, name: str, error: NeedlemapError) -> None:
        """Keep it for the end; what a limit left out is no error."""
        if isinstance(error, LimitReached):
            return
        self.refused.append(f"Family '{name}': {error}")

    def ends_model(self, name: str, outcomes: Mapping[str, Outcome]) -> None:
        """Raises NeedlemapError where families could not be asked."""
        super().ends_model(name, outcomes)
        if self.refused:
            kept = f"The other families are kept in '{self.families.path}'."
            raise NeedlemapError(f"{' '.join(self.refused)} {kept}")


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
    """B against A on the same trials, paired: the loss with its interval, and with a margin the
    verdict. Each a run, its folder, or a log of Inspect or lm-evaluation-harness.

    Of several families each is compared, and their mean decides. margin: the loss in points
    that does not matter. noise: further runs of A's model, which show how far runs differ for no
    reason. labels: what to call the two, as ("f16", "q4"). metric: of logs with several.
    scope: `new` for a verdict about new haystacks too.
    Raises NeedlemapError when the two asked something else.
    """
    both = families_of(_folder(a)), families_of(_folder(b))
    read = load_any(*both, labels, metric)
    further = [load_any(both[0], families_of(_folder(each)), (), metric) for each in noise]
    comparison, names = compare_runs(*both, read, margin, wanted=scope, noise=further)
    return Compared(comparison, names, tuple(run for two in read.values() for run in two))


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
    """What a run would ask and cost in each mode, before any call: what `needlemap plan
    --json` prints.

    Of several models it has that of each, and their sum. preset, settings: as `run` takes
    them. workers: lanes. tokens_per_second: prefill speed of one worker. model_config: a
    config.json, for floating-point operations. cache_tokens, cache_block: a server's prefix
    cache to simulate. Raises SettingsError.
    """
    from needlemap.plan.summary import Shape, Terms
    from needlemap.reports.plan_report import plan_report
    from needlemap.reports.renderers.json import to_json

    shape = Shape.of_config(Path(model_config)) if model_config is not None else None
    terms = Terms(workers, tokens_per_second, shape, cache_tokens, cache_block)
    with limited_to(time_limit(preset, settings)):
        typed = plain_settings(settings)
        settled = typed | listed_model(preset, typed, asks=False)
        settled |= known_settings(preset, settled)
        return to_json(plan_report(models_to_ask(preset, settled, planned=True), terms))


@_for_python()
def curves(
    runs: Iterable[Run | str | Path], *, title: str | None = None, width: str | None = None
) -> Drawing:
    """Scores by length of several runs in one picture, with bands and effective lengths; of
    suites a plot a family. Each a run or its folder. width: for a paper, as '3.25in' or
    'column'.

    Its `.svg`, `.png` and `.pdf` are the files' bytes; `.save(path)` writes one. Raises
    NeedlemapError where nothing was scored.
    """
    return curves_of([load(_folder(run)) for run in runs], title=title, width=width)


def _folder(run: Run | str | Path) -> Path:
    return run.path if isinstance(run, Run) else Path(run)


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they are written: paths and functions by their names."""
    plain: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value for name, value in settings.items()
    }
    for name in ("model", "model_name"):
        if name in plain:
            plain[name] = _model(plain[name])
    if "scorer" in plain:
        plain["scorer"] = _called(plain["scorer"])
    return plain


def _model(model: Any) -> Any:
    """A model, or several, with functions by their names. Raises SettingsError for two of one
    name."""
    if isinstance(model, list | tuple):
        functions: list[Callable[..., Any]] = [each for each in model if callable(each)]
        if len({_called(each) for each in functions}) < len(functions):
            raise SettingsError(
                "Two functions have one name, and go by it. Give each a name of its own."
            )
        return [_model(each) for each in model]
    if isinstance(model, dict) and "model" in model:
        return {**model, "model": _model(model["model"])}
    return _called(model)


def _called(named: Any) -> Any:
    """A function by its name; anything else as it is, to be checked as any setting is."""
    return f"{MARK}{name_function(named)}" if callable(named) else named
