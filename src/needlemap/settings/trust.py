"""Who may say what this machine runs and asks: the one rule for settings that nobody typed.

A settings file that the user names is the user's word for model and address, never for code:
what it alone says of `python/...` and of a model's own code is refused. Another run
(`--prompts-of`, a golden) is data: what it names that would be asked, imported or sent a key
is refused. Whoever types the very value, or `--trust-run`, is heard. `plan` asks no address
that stands in a file only, and runs nothing of it.

A file that another run names is read where it lies in the current folder, as those of a
repository do, and where no link leads out of it.

Where code and addresses can stand: in settings that are marked 'opened' or 'subject', and in
options of any kind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from needlemap.errors import SettingsError
from needlemap.http.compatible import ADDRESS
from needlemap.models import backend_or_default
from needlemap.secrets import hidden, parts_of
from needlemap.settings import OPTIONS, PromptSource, Settings, marked, prompt_source_of

TRUST = "--trust-run"
Trust = bool | Literal["prompts"]  # of another run: nothing, all, or what builds prompts from files
CODE = "python/"
REMOTE = "trust_remote_code"
_KERNELS = "attn_implementation"  # a hub's name of one is code that is downloaded and run
_WATCHED = {*marked("executes_or_opens", "model_identity"), *OPTIONS, REMOTE}
_PLAIN_SOURCES = ("generated", "folder", "txt", "jsonl")  # haystacks of this machine's files
_PLAIN_MODELS = ("baseline", "demo", "gauge", "python")  # whose vocabulary comes with the package
_SENT = ("base_url", "key_env", "model")


def refuse_code(settings: Settings, typed: Mapping[str, Any], where: str = "a file") -> None:
    """Raises SettingsError for code that settings name and nobody typed. typed: by flag, or as
    arguments."""
    said = _pairs(typed)
    for name, value in code_in(settings.model_dump()):
        if not _is_said(name, value, said):
            flag = f"--{name.replace('_', '-')}"
            typed_too = flag if value == REMOTE else f"{flag} {hidden(value)}"
            raise SettingsError(
                f"{name} '{hidden(value)}' is code, which stands in {where} only. What you have "
                f"not typed does not run. If you trust it, type it too ({typed_too}), or {TRUST}"
            )


def for_plan(settings: Settings, typed: Mapping[str, Any]) -> Settings:
    """Settings to be planned: nothing of a file's is imported, and no address is asked that
    stands in a file only."""
    said = _pairs(typed) | _of_environment(settings)
    lender = settings.prompts_of if isinstance(settings.prompts_of, PromptSource) else None
    for name in (settings.tokenizer, lender.tokenizer if lender else ""):
        if name.startswith("server:") and not _is_said("tokenizer", name, said):
            raise SettingsError(
                f"plan asks only an address that you typed, and '{hidden(name)}' stands in a file. "
                f"Type: --tokenizer {hidden(name)}"
            )
    instead: dict[str, Any] = {}
    if settings.base_url and not _is_said("base_url", settings.base_url, said):
        instead["base_url"] = None
    if lender and lender.base_url and not _is_said("base_url", lender.base_url, said):
        instead["prompts_of"] = lender.model_copy(update={"base_url": None})
    return without_code(settings, typed).model_copy(update=instead)


def without_code(settings: Settings, typed: Mapping[str, Any]) -> Settings:
    """Settings without code that nobody typed."""
    said = _pairs(typed)
    instead: dict[str, Any] = {}
    foreign = {
        REMOTE if value == REMOTE else name
        for name, value in code_in(settings.model_dump())
        if not _is_said(name, value, said)
    }
    if foreign & {"scorer", "scorer_options"}:
        instead |= {"scorer": "auto", "scorer_options": {}}
    if REMOTE in foreign:
        instead[REMOTE] = False
    return settings.model_copy(update=instead)


def refuse_untyped_model(model: str, typed: str | None) -> None:
    """Raises SettingsError for a model in code that stands in a run's folder only."""
    if model.startswith(CODE) and typed != model:
        raise SettingsError(
            f"'{model}' is code of this machine, which only what you type runs. To ask it, type "
            f"the same with --model {model}"
        )


def refuse_foreign(theirs: Settings, ours: Settings, folder: Path) -> None:
    """Raises SettingsError where a run whose prompts are asked names what would be asked,
    imported or sent a key while they are built or scored, or a file that lies outside of the
    current folder, unless our own settings say the very same."""
    own = ours.model_dump(exclude={"prompts_of", "label"})  # a folder's name vouches for nothing
    said = _pairs(own) | _of_environment(theirs)
    for name, value in _reached(theirs, ours.scorer == "auto"):
        if not _is_said(name, value, said):
            raise SettingsError(
                f"'{folder}' names {name} '{hidden(value)}', which would be asked, run, or read "
                f"outside of the current folder. It is data: nothing that it names is. If you "
                f"trust it, type --{name.replace('_', '-')} {hidden(value)} too, or {TRUST}"
            )


def _of_environment(settings: Settings) -> set[tuple[str, str]]:
    """Addresses that the environment names: of compatible servers, and of the model's back
    end."""
    variables = {ADDRESS, backend_or_default(settings.backend).base_url_variable}
    named = {os.environ.get(name, "") for name in variables if name}
    return {(name, value) for name in ("base_url", "scorer_options") for value in named}


def code_in(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is code of the values of settings, each with its setting's name."""
    for name in sorted(_WATCHED & settings.keys()):
        for key, value in parts_of(settings[name], name):
            if key == REMOTE and value and value not in ("false", "False"):
                yield name, REMOTE
            elif isinstance(value, str) and (
                value.startswith(CODE) or (key == _KERNELS and "/" in value)
            ):
                yield name, value


def _reached(theirs: Settings, scored: bool) -> Iterator[tuple[str, str]]:
    """What another run's settings would make this machine ask or run while its prompts are
    built and, if its scorer is taken over, scored."""
    own = theirs.model_dump()
    if not scored:
        own |= {"scorer": "", "scorer_options": {}}
    own |= {"model": "", "model_options": {}, "request": {}, REMOTE: False}
    yield from code_in(own)
    if theirs.haystack not in _PLAIN_SOURCES:
        yield "haystack", theirs.haystack
    built = prompt_source_of(theirs) if isinstance(theirs.prompts_of, PromptSource) else theirs
    yield from _tokenizers(built or theirs)
    yield from _files(theirs)
    if scored:
        yield from _scorers(theirs)


def _tokenizers(settings: Settings) -> Iterator[tuple[str, str]]:
    """Whom the run's tokens are asked of: its server, a hub, or a model's own code."""
    from needlemap.tokenizers import bundled_for  # late: most settings need none

    name = settings.tokenizer
    if name == "auto":
        known = settings.backend in _PLAIN_MODELS or bundled_for(settings.model_name)
        if not known and not Path(settings.model_name).expanduser().exists():
            yield "tokenizer", name if settings.base_url is None else "server"
            yield (
                ("base_url", settings.base_url) if settings.base_url else ("model", settings.model)
            )
    elif name == "server":
        yield "tokenizer", name
        yield "base_url", str(settings.base_url)
    elif not bundled_for(name) and not Path(name).expanduser().exists():
        yield "tokenizer", name
    if settings.trust_remote_code and settings.backend not in _PLAIN_MODELS:
        yield REMOTE, REMOTE


def _scorers(settings: Settings) -> Iterator[tuple[str, str]]:
    """A scorer that asks a model, with whom it asks; addresses and keys in any scorer's
    options."""
    from needlemap.registry import installed
    from needlemap.scorers import find_scorer
    from needlemap.tasks import make_task

    name = make_task(settings).scorer if settings.scorer == "auto" else settings.scorer
    asks = name in installed("scorers") and getattr(find_scorer(name), "asks", False)
    if asks:
        yield "scorer", settings.scorer
    for key, value in parts_of(settings.scorer_options, ""):
        if isinstance(value, str) and (asks or key in _SENT or "://" in value):
            yield "scorer_options", value


def _files(settings: Settings) -> Iterator[tuple[str, str]]:
    """Files and folders that would be read and lie, or lead, out of the current folder."""
    folder = Path(settings.haystack_path or "")
    if settings.haystack_path and settings.haystack in _PLAIN_SOURCES and _is_outside(folder):
        yield "haystack_path", settings.haystack_path
    named = [("file_list", value, folder) for _, value in parts_of(settings.file_list, "")]
    for name in ("template", "task", "tokenizer", "task_options"):
        named += [(name, value, Path()) for _, value in parts_of(getattr(settings, name), "")]
    if settings.tokenizer == "auto":
        named.append(("model", settings.model_name, Path()))
    for name, value, beside in named:
        if isinstance(value, str) and "\0" not in value:
            path = beside / Path(value).expanduser()
            if value and os.path.lexists(path) and _is_outside(path):
                yield name, settings.model if name == "model" else value


def _is_outside(path: Path) -> bool:
    """Whether a path leads out of the current folder, or is a folder with a link that does."""
    home = Path.cwd().resolve()
    try:
        if not path.expanduser().resolve().is_relative_to(home):
            return True
        for at, folders, files in os.walk(path.expanduser()):
            for name in (*folders, *files):
                inner = Path(at, name)
                if inner.is_symlink() and not inner.resolve().is_relative_to(home):
                    return True
    except (OSError, RuntimeError, ValueError):  # what cannot be followed is not looked at
        return True
    return False


def _pairs(values: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Every text in some settings with the setting that it is said of, '' for all; of what is
    true its name. A value of one setting vouches for no other."""
    found = set[tuple[str, str]]()
    for name, value in values.items():
        for key, part in parts_of(value, name):
            of = key if name == "model" and key in Settings.model_fields else name
            of = of if of in Settings.model_fields else ""  # an older tool's name
            if isinstance(part, str):
                found.add((of, part))
            elif part is True:
                found.add(("", key))
    return found


def _is_said(name: str, value: str, said: set[tuple[str, str]]) -> bool:
    return bool({(name, value), ("", value)} & said)
