"""Commands: each parses, calls and prints. Here: what a shell offers at Tab, for arguments and
for settings.

Nothing is imported before it is asked for: a key press should not wait.
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
    """Presets and suites."""
    from needlemap.settings.suites import MARK
    from needlemap.shelves import PRESETS, SUITES

    return _starting_with(incomplete, [*PRESETS.texts, *(f"{MARK}{name}" for name in SUITES.texts)])


def complete_models(incomplete: str) -> list[str]:
    """Back ends; behind the name of a vendor's the models with a known price."""
    from needlemap.registry import installed

    backend = incomplete.partition("/")[0]
    if "/" in incomplete and (priced := _priced(backend)):
        return _starting_with(incomplete, [f"{backend}/{name}" for name in priced])
    ours = ("demo/retriever", "baseline/bm25", "baseline/random")
    others = (f"{name}/" for name in installed("models") if name not in ("demo", "baseline"))
    return _starting_with(incomplete, [*ours, *others])


def _priced(backend: str) -> list[str]:
    from genai_prices.data import providers

    from needlemap.models import backend_or_default

    vendor = backend_or_default(backend).vendor or backend
    return [model.id for each in providers if each.id == vendor for model in each.models]


def complete_kinds(incomplete: str) -> list[str]:
    """What `needlemap list` lists."""
    return _starting_with(incomplete, KINDS)


def complete_scorers(incomplete: str) -> list[str]:
    """Scorers."""
    return _installed("scorers", incomplete)


def complete_palettes(incomplete: str) -> list[str]:
    """Palettes of figures."""
    from needlemap.reports.colours import PALETTES

    return _starting_with(incomplete, PALETTES)


def complete_runs(incomplete: str) -> list[str]:
    """Run folders by the beginning of their path; other folders, which may hold runs, with a
    slash."""
    from needlemap.files import is_run_folder

    typed = Path(incomplete)
    folder = typed if incomplete.endswith("/") or not incomplete else typed.parent
    found = sorted(each for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []
    named = [f"{each}{'' if is_run_folder(each) else '/'}" for each in found]
    return _starting_with(incomplete, named)


def completion_of(name: str) -> Complete | None:
    """What a setting's flag offers; None for what can be anything."""
    from needlemap.settings import Settings

    kind = Settings.model_fields[name].annotation
    if get_origin(kind) is Literal:
        return lambda incomplete: _starting_with(incomplete, map(str, get_args(kind)))
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
