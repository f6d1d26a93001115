"""`needlemap run --workers`, `--slurm`, `--attach`: workers elsewhere ask, this command looks after them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from needlemap.commands.announce import announce
from needlemap.commands.look_after import Part, finished, look_after, say
from needlemap.commands.report import show_families
from needlemap.commands.run import interrupted, warn
from needlemap.commands.termination import terminable
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.files import make_folder
from needlemap.models.base import Model
from needlemap.reports.live import Silent
from needlemap.runs.begun import is_replaced, set_aside
from needlemap.runs.families import families_of, fresh_folder
from needlemap.runs.fleet import Fleet
from needlemap.runs.launch import Launch
from needlemap.runs.launch_file import LaunchFile, check_launched_here, read_launch, refuse_launched
from needlemap.runs.launcher import Launcher
from needlemap.runs.origin import check_origin, is_ours
from needlemap.runs.presence import refuse_elsewhere
from needlemap.runs.runner import Outcome
from needlemap.runs.session import Session, about, make_model
from needlemap.runs.store import RUN_FILE, RunFolder, lock_folder, lock_launch, write_json
from needlemap.runs.work import lay_out, load_work, next_folder, units_of, work_folder
from needlemap.secrets import check_key_names
from needlemap.settings.reading import checked
from needlemap.settings.settings import Settings
from needlemap.text.printable import show
from needlemap.trials.build import prepare


def fleet_command(settings: Settings, out: Path | None, live: bool, fleet: Fleet) -> int:
    """Start workers for a run and look after them; the exit code."""
    if not settings.save:
        raise SettingsError("--no-save keeps no run folder, and workers share nothing else. Leave it out.")
    path = out or fresh_folder(settings)
    session = Session.open(prepare(settings), path)
    if fleet.dry_run:
        rehearse(session, Part(path))
        show(script(fleet, path, session))
        return 0
    return start(session, fleet, live, Part(path))


def attach_command(path: Path, asked: bool, live: bool, trusted: bool) -> int:
    """Look after the workers of an earlier command. asked: whether anything else was typed, which is
    refused."""
    if asked:
        raise SettingsError(
            "--attach takes no preset, no settings and no -o: what was started goes on as it is."
        )
    return _attach(_at_work(path), live, trusted)


def rehearse(session: Session, part: Part) -> None:
    """Say what the run itself would, and raise what it would, as far as this machine can tell."""
    if not session.experiment.settings.quiet:
        announce(session, by_workers=True)
    if not session.experiment.traits.remote:
        _model(session, part)


def script(fleet: Fleet, run: Path, session: Session) -> str:
    """What would start the workers of a run: no more of them than there are units of work."""
    kind, options = fleet.kind()
    units = units_of(session.experiment, session.todo, fleet.most)
    return make_launcher(kind, next_folder(run), options).script(min(fleet.most, max(1, len(units))))


def make_launcher(kind: str, folder: Path, options: Mapping[str, Any]) -> Launcher:
    """The launcher of a kind. Raises NeedlemapError when it cannot work here."""
    if kind == "slurm":
        from needlemap.runs.launch_slurm import Slurm

        return Slurm(folder, **options)
    from needlemap.runs.launch_processes import Processes

    return Processes(folder, **options)


def _launcher_again(file: LaunchFile, folder: Path) -> Launcher:
    """The launcher of an earlier command. Raises NeedlemapError where its options are none."""
    try:
        return make_launcher(file.kind, folder, file.options)
    except (TypeError, ValueError) as error:
        raise NeedlemapError(
            f"'{folder.parent.parent}' was started by options that are none: {error}."
        ) from None


def start(session: Session, fleet: Fleet, live: bool, part: Part) -> int:
    """Start workers for what is left of a run, and look after them; the exit code."""
    path, settings = session.folder.path, session.experiment.settings
    if not settings.quiet:
        announce(session, by_workers=True)
    if not session.wanted:
        return finished(session, Outcome(), part)
    model = _model(session, part)
    make_folder(path)
    with ExitStack() as stack:
        stack.enter_context(lock_launch(path))
        refuse_launched(path)
        kind, options = fleet.kind()
        launcher = make_launcher(kind, next_folder(path), options)
        with terminable() as ending:
            try:
                first = ending.run(session.run(model, Silent(), whole=False)) if model else Outcome()
            except KeyboardInterrupt:
                return interrupted(settings, part.whole, ending.code)
        session = Session.open(session.experiment, path)
        if first.over or not session.todo:
            return finished(session, first, part)
        warn(first)
        with lock_folder(path):  # nobody else is there
            if is_replaced(session.folder, session.experiment):
                set_aside(session.folder)
            write_json(path / RUN_FILE, about(session.experiment, session.folder))
            work = lay_out(path, session.experiment, session.todo, fleet.most)
        stack.enter_context(lock_folder(path, shared=True))
        for note in launcher.notes():
            show(f"note: {note}", file=sys.stderr, flush=True)
        workers = min(fleet.most, len(work.units))
        retry = 2 if fleet.retry is None else fleet.retry
        file = LaunchFile(
            number=int(work.folder.name),
            kind=kind,
            options=options,
            workers=workers,
            retry=retry,
            cwd=os.getcwd(),
            families=part.families,
            ran_s=part.ran_s,
        )
        launch = Launch(path, file, work, launcher, session.experiment)
        launch.submit(workers)
        return look_after(launch, launcher, session, live, part)


def _model(session: Session, part: Part) -> Model | None:
    """The model, to ask here what goes before all else, so that what would stop every worker stops it now.

    Only models elsewhere: those that live in a process may need a machine that this one is not. Raises
    SettingsError, for a missing key or an unknown price too.
    """
    settings = session.experiment.settings
    if session.experiment.traits.remote:
        return make_model(settings)
    if settings.closed_book:
        raise SettingsError(
            "Workers ask nothing of --closed-book, and this model lives in them. Leave it out; when they are "
            f"done: the same command with --closed-book, without workers, and -o {part.whole}"
        )
    return None


def _at_work(path: Path) -> Path:
    """The run whose workers are at work: of a suite's folder that of a family. Raises NeedlemapError."""
    if not path.is_dir():
        raise NeedlemapError(f"No folder '{path}' here. Give that of the run whose workers are at work.")
    if families_of(path).is_plain:
        return path
    for run in families_of(path).folders:
        if (file := read_launch(run)) is not None and file.ended is None:
            return run
    raise NeedlemapError(
        f"No workers were left to work on a family of '{path}'. To ask what is left: the command that "
        f"started it, with -o {path}"
    )


def _check_trusted(path: Path, file: LaunchFile, trusted: bool) -> None:
    """Raises NeedlemapError for what another machine wrote and nobody trusts, or that only the command that
    began it may start: a function of a module, or a key of an odd name."""
    check_origin(path, trusted)
    check_launched_here(path, file, trusted)
    about = RunFolder(path).about()
    if is_ours(about, about["settings"]):
        return
    instead = f"Type the command that began it, with -o {path}"
    check_key_names(about["settings"], instead)
    if str(about["settings"]["model"]).startswith("python/"):
        raise NeedlemapError(f"Its model is code of a machine, which only what you type runs. {instead}")


def _attach(path: Path, live: bool, trusted: bool) -> int:
    file = read_launch(path)
    if file is None or file.ended is not None:
        ended = f" It ended at {file.ended}." if file else ""
        raise NeedlemapError(
            f"No workers were left to work on '{path}'.{ended} To ask what is left: "
            f"the command that started it, with -o {path}"
        )
    _check_trusted(path, file, trusted)
    typed = path if path.name else path.absolute()  # of '.' nobody can tell the parent
    part = Part(typed.parent if file.families else typed, file.families, file.ran_s)
    path = path.absolute()
    try:
        os.chdir(file.cwd)  # where paths in the settings start
    except (OSError, ValueError) as error:
        raise NeedlemapError(f"The folder that the run was started in cannot be used: {error}") from None
    settings = checked(RunFolder(path).about()["settings"], str(path / RUN_FILE))
    session = Session.open(prepare(settings), path)
    if not settings.quiet:
        announce(session, by_workers=True)
    with lock_launch(path), lock_folder(path, shared=True):
        work = load_work(work_folder(path, file.number))
        if file.kind == "processes":
            refuse_elsewhere(work.folder)
        launcher = _launcher_again(file, work.folder)
        launch = Launch(path, file, work, launcher, session.experiment)
        code = look_after(launch, launcher, session, live, part)
    if file.families:
        show_families(families_of(path.parent))
        say(f"{path.name} is one family. To go on with the others: the same command with -o {part.whole}")
    return code
