"""Parse, call and print: a module for each command. Here: what a shell offers at Tab.

Imports are late, because a key press should not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, get_args, get_origin

Complete = Callable[[str], list[str]]
KINDS = (
    *("presets", "suites", "templates", "tokenizers"),
    *("models", "tasks", "scorers", "haystacks", "probes", "runs"),
)
_INSTALLED = {"task": "tasks", "scorer": "scorers", "haystack": "haystacks"}


def complete_presets(incomplete: str) -> list[str]:
    """Return presets and suites that start with a text."""
    from needlemap.settings.suites import MARK
    from needlemap.shelves import PRESETS, SUITES

    return _starting_with(incomplete, [*PRESETS.texts, *(f"{MARK}{name}" for name in SUITES.texts)])


def complete_models(incomplete: str) -> list[str]:
    """Return back ends, and after the name of a vendor's back end the models with a known price."""
    from needlemap.registry import installed

    backend, slash, _ = incomplete.partition("/")
    if slash:
        priced_models = _priced_models(backend)
        if priced_models:
            return _starting_with(incomplete, [f"{backend}/{name}" for name in priced_models])
    ours = ("demo/retriever", "baseline/bm25", "baseline/random")
    others = (f"{name}/" for name in installed("models") if name not in ("demo", "baseline"))
    return _starting_with(incomplete, [*ours, *others])


def _priced_models(backend: str) -> list[str]:
    """Return the models of a back end's vendor that have a known price."""
    from genai_prices.data import providers

    from needlemap.models import backend_or_default

    vendor = backend_or_default(backend).vendor or backend
    return [
        model.id for provider in providers if provider.id == vendor for model in provider.models
    ]


def complete_kinds(incomplete: str) -> list[str]:
    """Return kinds that `needlemap list` lists."""
    return _starting_with(incomplete, KINDS)


def complete_scorers(incomplete: str) -> list[str]:
    """Return scorers that start with a text."""
    return _installed("scorers", incomplete)


def complete_palettes(incomplete: str) -> list[str]:
    """Return palettes of figures that start with a text."""
    from needlemap.reports.colours import PALETTES

    return _starting_with(incomplete, PALETTES)


def complete_runs(incomplete: str) -> list[str]:
    """Return run folders, and other folders with a slash, because they may hold runs."""
    from needlemap.files import is_run_folder

    parent = Path(incomplete)
    if incomplete and not incomplete.endswith("/"):
        parent = parent.parent
    if not parent.is_dir():
        return []

    names = list[str]()
    for folder in sorted(path for path in parent.iterdir() if path.is_dir()):
        names.append(str(folder) if is_run_folder(folder) else f"{folder}/")
    return _starting_with(incomplete, names)


def completion_of(name: str) -> Complete | None:
    """Return the function that completes a setting's flag, or None if it can be any text."""
    from needlemap.settings import Settings

    annotation = Settings.model_fields[name].annotation
    if get_origin(annotation) is Literal:
        return lambda incomplete: _starting_with(incomplete, map(str, get_args(annotation)))
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

    return _starting_with(incomplete, ["auto", "server", *BUNDLED])


def _templates(incomplete: str) -> list[str]:
    from needlemap.shelves import TEMPLATES

    return _starting_with(incomplete, ["auto", *TEMPLATES.texts])


def _installed(kind: str, incomplete: str) -> list[str]:
    from needlemap.registry import installed

    return _starting_with(incomplete, sorted(installed(kind)))


def _starting_with(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
