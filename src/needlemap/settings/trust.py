"""Decide whose settings may name what this machine runs, and where it sends requests: the one
rule for settings that nobody typed.

A settings file that the user names is the user's word for model and address, but never for code:
`python/...` and a model's own code are refused if only the file names them. Another run
(`--prompts-of`, a golden) is data: what it names is refused if it would be sent a request or a
key, or imported. A value is accepted if the user types that value too, or `--trust-run`. `plan`
sends nothing to an address that stands in a file only, and runs none of the file's code.

A file that another run names is read if it lies in the current folder, as the files of a
repository do, and if no link leads out of that folder.

Code and addresses can stand in settings that are marked 'opened' or 'subject', and in options of
any kind.
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
# What of another run is trusted: nothing, everything, or what builds prompts from files.
Trust = bool | Literal["prompts"]
# A setting's name and its value. The name is '' if the value counts for all settings.
SettingValue = tuple[str, str]
CODE = "python/"
REMOTE = "trust_remote_code"
# If a hub's name stands here, it is code that is downloaded and run.
_KERNELS = "attn_implementation"
_WATCHED = {*marked("executes_or_opens", "model_identity"), *OPTIONS, REMOTE}
# Haystacks that are made here or read from this machine's files.
_PLAIN_SOURCES = ("generated", "folder", "txt", "jsonl")
# Back ends whose vocabulary comes with the package.
_PLAIN_MODELS = ("baseline", "demo", "gauge", "python")
_SENT = ("base_url", "key_env", "model")


def refuse_code(settings: Settings, typed: Mapping[str, Any], where: str = "a file") -> None:
    """Refuse code that settings name and nobody typed.

    typed: values by flag, or by name of argument. where: the place of the settings, for the
    message. Raises SettingsError.
    """
    trusted_values = _setting_values(typed)
    for name, value in code_in(settings.model_dump()):
        if _is_trusted(name, value, trusted_values):
            continue
        remedy = f"--{name.replace('_', '-')}"
        if value != REMOTE:
            remedy = f"{remedy} {hidden(value)}"
        raise SettingsError(
            f"{name} '{hidden(value)}' is code, which stands in {where} only. What you have "
            f"not typed does not run. If you trust it, type it too ({remedy}), or {TRUST}"
        )


def for_plan(settings: Settings, typed: Mapping[str, Any]) -> Settings:
    """Return settings that are safe to plan with.

    They import nothing that a file names, and no address in them stands in a file only. Raises
    SettingsError if the tokens would be counted by a server whose address nobody typed.
    """
    trusted_values = _setting_values(typed) | _environment_values(settings)
    lender = settings.prompts_of if isinstance(settings.prompts_of, PromptSource) else None
    tokenizers = [settings.tokenizer]
    if lender is not None:
        tokenizers.append(lender.tokenizer)
    for tokenizer in tokenizers:
        is_server = tokenizer.startswith("server:")
        if is_server and not _is_trusted("tokenizer", tokenizer, trusted_values):
            raise SettingsError(
                f"plan asks only an address that you typed, and '{hidden(tokenizer)}' stands in a "
                f"file. Type: --tokenizer {hidden(tokenizer)}"
            )

    changes: dict[str, Any] = {}
    if settings.base_url and not _is_trusted("base_url", settings.base_url, trusted_values):
        changes["base_url"] = None
    if (
        lender is not None
        and lender.base_url
        and not _is_trusted("base_url", lender.base_url, trusted_values)
    ):
        changes["prompts_of"] = lender.model_copy(update={"base_url": None})
    return without_code(settings, typed).model_copy(update=changes)


def without_code(settings: Settings, typed: Mapping[str, Any]) -> Settings:
    """Return settings without the code that nobody typed."""
    trusted_values = _setting_values(typed)
    untyped_names = {
        REMOTE if value == REMOTE else name
        for name, value in code_in(settings.model_dump())
        if not _is_trusted(name, value, trusted_values)
    }
    changes: dict[str, Any] = {}
    if "scorer" in untyped_names or "scorer_options" in untyped_names:
        changes["scorer"] = "auto"
        changes["scorer_options"] = {}
    if REMOTE in untyped_names:
        changes[REMOTE] = False
    return settings.model_copy(update=changes)


def refuse_untyped_model(model: str, typed: str | None) -> None:
    """Refuse a model in code that stands in a run's folder only. Raises SettingsError."""
    if model.startswith(CODE) and typed != model:
        raise SettingsError(
            f"'{model}' is code of this machine, which only what you type runs. To ask it, type "
            f"the same with --model {model}"
        )


def refuse_foreign(theirs: Settings, ours: Settings, folder: Path) -> None:
    """Refuse what another run names that is more than data, unless our settings name it too.

    That is what would be sent a request or a key, or imported, while the run's prompts are built
    or scored; and files outside of the current folder.

    theirs: settings of the run whose prompts are sent. folder: that run's folder. Raises
    SettingsError.
    """
    # The name of the other run's folder, or a label, vouches for nothing inside that run.
    our_values = ours.model_dump(exclude={"prompts_of", "label"})
    trusted_values = _setting_values(our_values) | _environment_values(theirs)
    for name, value in _foreign_values(theirs, scored=ours.scorer == "auto"):
        if not _is_trusted(name, value, trusted_values):
            raise SettingsError(
                f"'{folder}' names {name} '{hidden(value)}', which would be asked, run, or read "
                f"outside of the current folder. It is data: nothing that it names is. If you "
                f"trust it, type --{name.replace('_', '-')} {hidden(value)} too, or {TRUST}"
            )


def _environment_values(settings: Settings) -> set[SettingValue]:
    """Return the addresses that the environment names, as values of the settings that take one.

    They are those of compatible servers and of the model's back end.
    """
    variables = {ADDRESS, backend_or_default(settings.backend).base_url_variable}
    addresses = {os.environ.get(variable, "") for variable in variables if variable}
    return {(name, address) for name in ("base_url", "scorer_options") for address in addresses}


def code_in(settings: Mapping[str, Any]) -> Iterator[SettingValue]:
    """Yield the values of settings that are code, each with its setting's name."""
    for name in sorted(_WATCHED & settings.keys()):
        for key, value in parts_of(settings[name], name):
            if key == REMOTE and value and value not in ("false", "False"):
                yield name, REMOTE
            elif isinstance(value, str) and _is_code(key, value):
                yield name, value


def _is_code(key: str, value: str) -> bool:
    return value.startswith(CODE) or (key == _KERNELS and "/" in value)


def _foreign_values(theirs: Settings, *, scored: bool) -> Iterator[SettingValue]:
    """Yield the values of another run that this machine would run, read, or send requests to.

    scored: the run's prompts are scored by its own scorer too, not only built.
    """
    values = theirs.model_dump()
    if not scored:
        values |= {"scorer": "", "scorer_options": {}}
    # The model that answers is ours.
    values |= {"model": "", "model_options": {}, "request": {}, REMOTE: False}
    yield from code_in(values)
    if theirs.haystack not in _PLAIN_SOURCES:
        yield "haystack", theirs.haystack
    builder = theirs
    if isinstance(theirs.prompts_of, PromptSource):
        builder = prompt_source_of(theirs) or theirs
    yield from _tokenizers(builder)
    yield from _outside_files(theirs)
    if scored:
        yield from _scorers(theirs)


def _tokenizers(settings: Settings) -> Iterator[SettingValue]:
    """Yield what counts a run's tokens, unless it is here: a server, a hub, a model's own code."""
    # A late import, because most settings do not need it.
    from needlemap.tokenizers import bundled_for

    tokenizer = settings.tokenizer
    if tokenizer == "auto":
        is_bundled = settings.backend in _PLAIN_MODELS or bundled_for(settings.model_name)
        if not is_bundled and not Path(settings.model_name).expanduser().exists():
            yield "tokenizer", tokenizer if settings.base_url is None else "server"
            if settings.base_url:
                yield "base_url", settings.base_url
            else:
                yield "model", settings.model
    elif tokenizer == "server":
        yield "tokenizer", tokenizer
        yield "base_url", str(settings.base_url)
    elif not bundled_for(tokenizer) and not Path(tokenizer).expanduser().exists():
        yield "tokenizer", tokenizer
    if settings.trust_remote_code and settings.backend not in _PLAIN_MODELS:
        yield REMOTE, REMOTE


def _scorers(settings: Settings) -> Iterator[SettingValue]:
    """Yield a scorer that sends requests to a model, with its options.

    Of any other scorer yield the addresses and keys in its options.
    """
    from needlemap.registry import installed
    from needlemap.scorers import find_scorer
    from needlemap.tasks import make_task

    name = settings.scorer
    if name == "auto":
        name = make_task(settings).scorer
    asks_model = name in installed("scorers") and getattr(find_scorer(name), "asks", False)
    if asks_model:
        yield "scorer", settings.scorer
    for key, value in parts_of(settings.scorer_options, ""):
        if isinstance(value, str) and (asks_model or key in _SENT or "://" in value):
            yield "scorer_options", value


def _outside_files(settings: Settings) -> Iterator[SettingValue]:
    """Yield files and folders that would be read and lie, or lead, out of the current folder."""
    haystack_folder = Path(settings.haystack_path or "")
    if (
        settings.haystack_path
        and settings.haystack in _PLAIN_SOURCES
        and _is_outside(haystack_folder)
    ):
        yield "haystack_path", settings.haystack_path

    # Each with the folder that a relative path starts from.
    candidates: list[tuple[str, Any, Path]] = []
    for _, value in parts_of(settings.file_list, ""):
        candidates.append(("file_list", value, haystack_folder))
    for name in ("template", "task", "tokenizer", "task_options"):
        for _, value in parts_of(getattr(settings, name), ""):
            candidates.append((name, value, Path()))
    if settings.tokenizer == "auto":
        candidates.append(("model", settings.model_name, Path()))

    for name, value, folder in candidates:
        # No path holds a null character.
        if not isinstance(value, str) or not value or "\0" in value:
            continue
        path = folder / Path(value).expanduser()
        if os.path.lexists(path) and _is_outside(path):
            yield name, settings.model if name == "model" else value


def _is_outside(path: Path) -> bool:
    """Return True if a path leads out of the current folder, or holds a link that does."""
    home = Path.cwd().resolve()
    try:
        if not path.expanduser().resolve().is_relative_to(home):
            return True
        for parent, folders, files in os.walk(path.expanduser()):
            for name in (*folders, *files):
                inner = Path(parent, name)
                if inner.is_symlink() and not inner.resolve().is_relative_to(home):
                    return True
    except (OSError, RuntimeError, ValueError):
        # What cannot be followed is not read either.
        return True
    return False


def _setting_values(values: Mapping[str, Any]) -> set[SettingValue]:
    """Return every text in some settings, with the setting that it belongs to.

    A value of one setting vouches for no other. Of what is true, the name counts for all settings.
    """
    setting_values = set[SettingValue]()
    for name, value in values.items():
        for key, part in parts_of(value, name):
            # A model in a list can have settings of its own.
            owner = key if name == "model" and key in Settings.model_fields else name
            if owner not in Settings.model_fields:
                # An older tool's name: it is not known which setting it stands for.
                owner = ""
            if isinstance(part, str):
                setting_values.add((owner, part))
            elif part is True:
                setting_values.add(("", key))
    return setting_values


def _is_trusted(name: str, value: str, trusted_values: set[SettingValue]) -> bool:
    return (name, value) in trusted_values or ("", value) in trusted_values
