"""Run `needlemap list`: print what is installed, describe an extension, and find runs."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint
from inspect import Parameter, cleandoc
from pathlib import Path
from typing import Any

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
# Attributes of a probe that describe it in words.
_PROBE_TEXTS = ("asked", "sees", "cannot", "excludes")


def list_command(kind: str | None, name: str | None = None) -> None:
    """Print the names of a kind, one a line with a text on each, or the kinds without a kind.

    name: of an extension, to describe it; for runs, their folder (by default `runs`). Raises
    SettingsError for an unknown kind or name.
    """
    if kind is None:
        show("".join(f"needlemap list {known_kind}\n" for known_kind in KINDS), end="")
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
    """Return an extension's docstring, its options with their defaults, and settings that it reads.

    The result is lines of text. Raises SettingsError for an unknown or broken extension.
    """
    extension = find(kind, name)
    docstring = extension.__doc__ or import_module(extension.__module__).__doc__ or ""
    lines = cleandoc(docstring).splitlines()
    rows = list[tuple[str, str]]()
    if kind == "probes":
        for attribute in _PROBE_TEXTS:
            rows.append((attribute, getattr(extension, attribute, "")))
        rows = [row for row in rows if row[1]]
    if not rows:
        rows = _option_rows(kind, extension)
    if not rows:
        return lines
    return [*lines, "", *in_columns(rows)]


def _option_rows(kind: str, extension: Any) -> list[tuple[str, str]]:
    """Return a row of an extension's options and a row of the settings that it reads, if any."""
    shared_settings = settings_of(kind.removesuffix("s").capitalize())
    options = list[str]()
    flags = list[str]()
    if isinstance(extension, type):
        for option in options_of(extension):
            if option.name in shared_settings:
                flags.append(f"--{option.name.replace('_', '-')}")
            else:
                options.append(_with_default(option))

    rows = list[tuple[str, str]]()
    setting = f"{kind[:-1]}_options"
    if options and setting in Settings.model_fields:
        rows.append((f"--{setting.replace('_', '-')}", " ".join(options)))
    if flags:
        rows.append(("reads", " ".join(flags)))
    return rows


def _with_default(option: Parameter) -> str:
    """Return an option as it is typed."""
    # Nobody types a folder of this installation.
    if option.default in (Parameter.empty, None, "") or isinstance(option.default, Path):
        return f"{option.name}=..."
    return f"{option.name}={option.default}"


def _list_runs(folder: Path) -> None:
    """Print a table of the runs in a folder and below. Raises SettingsError without a run."""
    # This import is late because only runs need statistics.
    from needlemap.reports.run_report import run_row, runs_below

    if not folder.is_dir():
        raise SettingsError(
            f"No folder at '{folder}'. Where do runs lie? Type: needlemap list runs FOLDER"
        )
    rows = [run_row(path) for path in runs_below(folder)]
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
    entry_points = installed(kind)
    if kind == "tokenizers":
        return {
            **dict.fromkeys(BUNDLED, "bundled, works offline"),
            "PATH": "a tokenizer.json, a SentencePiece .model, or a folder",
            **{f"{name}:...": entry_point.value for name, entry_point in entry_points.items()},
        }
    return {name: _about(kind, entry_point) for name, entry_point in sorted(entry_points.items())}


def _about(kind: str, entry_point: EntryPoint) -> str:
    """Return the first line of an extension's docstring, and its package if it is not ours.

    Return the error instead if the extension is broken or its name is registered twice.
    """
    package = entry_point.dist.name if entry_point.dist else ""
    try:
        refuse_two(kind, entry_point.name)
    except SettingsError as error:
        return str(error)
    if package in ("", "needlemap"):
        # A back end is described by its module.
        documented = import_module(entry_point.module) if kind == "models" else entry_point.load()
        return str(documented.__doc__).partition("\n")[0]

    try:
        extension = find(kind, entry_point.name)
        about = (extension.__doc__ or entry_point.value).strip().partition("\n")[0]
    except SettingsError as error:
        about = str(error)
    return f"{about} ({package})"
