"""`needlemap list`: what is installed here, what one of it is and takes, and where runs
lie."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint
from inspect import Parameter, cleandoc
from pathlib import Path

from needlemap.commands import KINDS
from needlemap.errors import SettingsError, did_you_mean
from needlemap.registry import find, installed, options_of, refuse_two
from needlemap.settings import Settings, settings_of
from needlemap.settings.suites import MARK
from needlemap.shelves import PRESETS, SUITES, TEMPLATES
from needlemap.text import show
from needlemap.text.printing import in_columns
from needlemap.tokenizers import BUNDLED

RUNS = "runs"
EXTENSIONS = ("models", "tasks", "scorers", "haystacks", "probes")
_ANSWERS = ("asked", "sees", "cannot", "excludes")  # of a probe, in words


def list_command(kind: str | None, name: str | None = None) -> None:
    """Print the names of a kind, one a line, with a word on each where there is one; without a
    kind the kinds.

    name: of an extension, which is then described; of runs the folder where they lie, `runs`
    if not given.
    """
    if kind is None:
        show("".join(f"needlemap list {each}\n" for each in KINDS), end="")
        return
    if kind not in KINDS:
        raise SettingsError(f"Cannot list '{kind}'. {did_you_mean(kind, KINDS)}")
    if kind == RUNS:
        _list_runs(Path(name or RUNS))
    elif name is None:
        show("\n".join(in_columns(list(names_of(kind).items()))))
    elif kind in EXTENSIONS:
        show("\n".join(describe(kind, name)))
    else:
        raise SettingsError(f"'needlemap list {kind}' takes no name. Type: needlemap list {kind}")


def describe(kind: str, name: str) -> list[str]:
    """An extension's docstring and what it takes, in lines: options with their defaults, and
    settings that it reads. Raises SettingsError for an unknown or broken one."""
    made = find(kind, name)
    lines = cleandoc(made.__doc__ or import_module(made.__module__).__doc__ or "").splitlines()
    said = [(word, text) for word in _ANSWERS if (text := getattr(made, word, ""))]
    if kind == "probes" and said:
        return [*lines, "", *in_columns(said)]
    shared = settings_of(kind.removesuffix("s").capitalize())
    own, settings = list[str](), list[str]()
    for option in options_of(made) if isinstance(made, type) else ():
        if option.name in shared:
            settings.append(f"--{option.name.replace('_', '-')}")
        else:
            own.append(_with_default(option))
    flag = f"{kind[:-1]}_options"
    takes = {f"--{flag.replace('_', '-')}": own if flag in Settings.model_fields else []}
    rows = [(word, " ".join(values)) for word, values in (takes | {"reads": settings}).items()]
    rows = [row for row in rows if row[1]]
    return [*lines, "", *in_columns(rows)] if rows else lines


def _with_default(option: Parameter) -> str:
    """An option as it is typed."""
    # A folder of this installation is nothing to type.
    if option.default in (Parameter.empty, None, "") or isinstance(option.default, Path):
        return f"{option.name}=..."
    return f"{option.name}={option.default}"


def _list_runs(folder: Path) -> None:
    """Print a table of the runs in a folder and below."""
    from needlemap.reports.run_report import (  # late: other kinds need no statistics
        listed,
        runs_below,
    )

    if not folder.is_dir():
        raise SettingsError(
            f"No folder at '{folder}'. Where do runs lie? Type: needlemap list runs FOLDER"
        )
    rows = [listed(path) for path in runs_below(folder)]
    if not rows:
        raise SettingsError(
            f"No run in '{folder}' or below. Type another folder, or make one: needlemap run"
        )
    show("\n".join(in_columns([("run", "model", "task", "score", "cells", "state"), *rows])))


def names_of(kind: str) -> dict[str, str]:
    """Return the names of a kind, each with a line about it or ''."""
    for shelf, mark in ((PRESETS, ""), (SUITES, MARK), (TEMPLATES, "")):
        if kind == f"{shelf.noun}s":
            return {f"{mark}{name}": shelf.about(name) for name in shelf.texts}
    if kind == "tokenizers":
        bundled = dict.fromkeys(BUNDLED, "bundled, works offline")
        plugins = {f"{name}:...": point.value for name, point in installed("tokenizers").items()}
        return {
            **bundled,
            "PATH": "a tokenizer.json, a SentencePiece .model, or a folder",
            **plugins,
        }
    return {name: _about(kind, point) for name, point in sorted(installed(kind).items())}


def _about(kind: str, point: EntryPoint) -> str:
    """What an extension is, in the first line of its docstring; of others than ours whose it
    is."""
    package = point.dist.name if point.dist else ""
    try:
        refuse_two(kind, point.name)
    except SettingsError as error:
        return str(error)
    if package in ("", "needlemap"):
        about = import_module(point.module) if kind == "models" else point.load()
        return str(about.__doc__).partition("\n")[0]
    try:
        said = (find(kind, point.name).__doc__ or point.value).strip().partition("\n")[0]
    except SettingsError as error:
        said = str(error)
    return f"{said} ({package})"
