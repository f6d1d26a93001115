"""`needlemap list`: what is installed here, by name."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint

from needlemap.errors import SettingsError, did_you_mean
from needlemap.prompts.templates import template_files
from needlemap.settings.reading import preset_about, preset_files
from needlemap.settings.registry import installed
from needlemap.settings.suites import MARK, load_suite, suite_files
from needlemap.text.printable import show
from needlemap.tokenizers.catalogue import BUNDLED

_EXTENSIONS = ("models", "tasks", "scorers", "haystacks")
KINDS = ("presets", "suites", "templates", "tokenizers", *_EXTENSIONS)


def list_command(kind: str | None) -> None:
    """Print the names of a kind, one a line, with a word on each where there is one; else the kinds."""
    if kind is None:
        show("".join(f"needlemap list {each}\n" for each in KINDS), end="")
        return
    if kind not in KINDS:
        raise SettingsError(f"Cannot list '{kind}'. {did_you_mean(kind, KINDS)}")
    rows = _rows(kind)
    wide = max(map(len, rows))
    for name, about in rows.items():
        show(f"{name:<{wide}}  {about}".rstrip())


def _rows(kind: str) -> dict[str, str]:
    if kind == "presets":
        return {name: preset_about(name) for name in preset_files()}
    if kind == "suites":
        return {f"{MARK}{name}": load_suite(name).about for name in suite_files()}
    if kind == "templates":
        return {
            name: text.splitlines()[0].removeprefix("#").strip() for name, text in template_files().items()
        }
    if kind == "tokenizers":
        bundled = dict.fromkeys(BUNDLED, "bundled, works offline")
        plugins = {f"{name}:...": point.value for name, point in installed("tokenizers").items()}
        return {**bundled, "PATH": "a tokenizer.json, a SentencePiece .model, or a folder", **plugins}
    return {name: _about(kind, point) for name, point in sorted(installed(kind).items())}


def _about(kind: str, point: EntryPoint) -> str:
    """What an extension is: one of ours in its own first words, others by where they come from."""
    package = point.dist.name if point.dist else ""
    if package not in ("", "needlemap"):
        return f"{point.value} ({package})"
    about = point.load() if kind in ("tasks", "haystacks") else import_module(point.module)
    return str(about.__doc__).partition("\n")[0]
