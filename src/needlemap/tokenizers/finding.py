"""Find a tokenizer by its name: a path, a bundled vocabulary, a model's name, or the hub."""

from __future__ import annotations

import os
from functools import cache, partial
from pathlib import Path

from needlemap.errors import NeedlemapError, VocabularyMissing, did_you_mean
from needlemap.extras import install_line
from needlemap.hub import fetch
from needlemap.registry import find, installed
from needlemap.text.tokens import Tokenizer
from needlemap.tokenizers.bundled import BUNDLED

_LLAMA_3 = ("", ".1", ".2", ".3")

# Starts of model names. One of '-:_' follows. OpenAI's are from its own list, the others from model
# cards. A version that is not listed may have another vocabulary (Qwen3.5 has), so it is not
# guessed.
_STARTS = {
    "gpt-oss": "o200k_harmony",
    "gpt-5": "o200k_base",
    "gpt-4.5": "o200k_base",
    "gpt-4.1": "o200k_base",
    "gpt-4o": "o200k_base",
    "chatgpt-4o": "o200k_base",
    "o1": "o200k_base",
    "o3": "o200k_base",
    "o4": "o200k_base",
    "gpt-4": "cl100k_base",
    "gpt-3.5": "cl100k_base",
    "gpt-35": "cl100k_base",
    "text-embedding-3": "cl100k_base",
    "text-embedding-ada-002": "cl100k_base",
    **{
        f"{name}{minor}": "llama3"
        for name in ("meta-llama-3", "llama-3", "llama3")
        for minor in _LLAMA_3
    },
    "qwen3": "qwen3",
    "qwen2.5": "qwen3",
    "qwen2": "qwen3",
}
_FILES = ("tokenizer.json", "tokenizer.model")
_SUFFIXES = (".json", ".model")
# A path may start with these, and no name does.
_PATHS = (".", "/", "~")
_SEPARATORS = {os.sep, os.altsep or os.sep}


@cache
def load(name: str, called: str | None = None) -> Tokenizer:
    """Return the tokenizer of a name.

    The name is a path (tokenizer.json, SentencePiece .model, or a folder with one of them), a
    bundled vocabulary (cl100k_base, ...), a model's name (gpt-4, Qwen3-8B, ...), 'PLUGIN:NAME', or
    a hub name (org/model). A bundled name means the bundled vocabulary, whatever is in the current
    folder: a folder of that name is ./NAME.

    called: the name that a path's tokenizer gets, by default the path. Raises VocabularyMissing
    with the places that were looked at and the vocabularies that exist.
    """
    path = Path(name).expanduser()
    bundled = bundled_for(name)
    file = path_of(name)
    if file is not None:
        return _from_path(file, called or name)
    plugin, _, rest = name.partition(":")
    if rest and plugin in installed("tokenizers"):
        return _load_plugin(plugin, rest)
    if bundled and not name.startswith(_PATHS):
        return _load_plugin("quicktok", bundled)
    if name.count("/") == 1 and not name.startswith(_PATHS) and path.suffix not in _SUFFIXES:
        return _from_hub(name)
    raise VocabularyMissing(
        f"Unknown tokenizer '{name}'. {_looked_at(path)} {did_you_mean(name, BUNDLED)}"
    )


def path_of(name: str) -> Path | None:
    """Return the file or folder that a tokenizer's name means, or None if it means none."""
    path = Path(name).expanduser()
    has_separator = any(sign in name for sign in _SEPARATORS)
    if not has_separator and (
        bundled_for(name) or name.partition(":")[0] in installed("tokenizers")
    ):
        return None
    try:
        return path if path.exists() else None
    except (OSError, ValueError):
        # It is too long for a path, or has a character that no path has.
        return None


def bundled_for(name: str) -> str | None:
    """Return the bundled vocabulary that a vocabulary's or model's name means, or None.

    >>> bundled_for("gpt-4o-mini"), bundled_for("meta-llama/Llama-3.1-8B"), bundled_for("claude-2")
    ('o200k_base', 'llama3', None)
    """
    short = name.lower().rsplit("/", 1)[-1].removeprefix("ft:")
    if short in BUNDLED:
        return short
    for start in sorted(_STARTS, key=len, reverse=True):
        if short == start or (short.startswith(start) and short[len(start)] in "-:_"):
            return _STARTS[start]
    return None


def _load_plugin(plugin: str, vocabulary: str, *name: str) -> Tokenizer:
    """Return a plug-in's tokenizer. Raises VocabularyMissing if it fails for any reason."""
    kind = find("tokenizers", plugin)
    try:
        tokenizer: Tokenizer = kind(vocabulary, *name)
    except VocabularyMissing:
        raise
    except Exception as error:
        # Both libraries raise plain Exception or RuntimeError for a bad file.
        raise VocabularyMissing(f"'{vocabulary}' is not a {plugin} tokenizer: {error}") from error
    return tokenizer


def _from_path(path: Path, name: str) -> Tokenizer:
    if path.is_dir():
        files = [path / file for file in _FILES if (path / file).is_file()]
        if not files:
            raise VocabularyMissing(
                f"No tokenizer in folder '{name}': it holds none of {', '.join(_FILES)}."
            )
        path = files[0]
    plugin = "sentencepiece" if path.suffix == ".model" else "huggingface"
    return _load_plugin(plugin, str(path), name)


def _from_hub(name: str) -> Tokenizer:
    """Return the tokenizer of a hub model, from the local cache or downloaded.

    Raises VocabularyMissing.
    """
    try:
        import huggingface_hub as hub
    except ImportError as error:
        raise VocabularyMissing(
            f"'{name}' looks like a hub model, which needs huggingface_hub. "
            f"Run: {install_line('hub')}, or give a path to its tokenizer.json."
        ) from error
    reasons = []
    for file in _FILES:
        try:
            path = fetch(partial(hub.hf_hub_download, name, file, etag_timeout=10), name)
        except NeedlemapError:
            raise
        except Exception as error:
            # The library raises errors of its own, those of its client, and OSError.
            reasons.append(f"{file}: {type(error).__name__}")
        else:
            return _from_path(path, name)
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    raise VocabularyMissing(
        f"No tokenizer for '{name}'. {_looked_at(Path(name))} Also in {home}/hub and on the hub "
        f"({'; '.join(reasons)}). Download its tokenizer.json and give its path. "
        f"Bundled: {', '.join(BUNDLED)}."
    )


def _looked_at(path: Path) -> str:
    return (
        f"Looked for a file or folder at {path.absolute()}, a bundled vocabulary and a known "
        f"model's name."
    )
