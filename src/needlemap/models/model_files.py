"""The small files of a model: tokenizer, chat template, configuration. From a folder, or from the hub.

It reads no weights and runs none of a model's code. It tells which weights and code a folder holds: part of
a trial's key, so that another model is asked anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from needlemap.errors import SettingsError, VocabularyMissing

TOKENIZER = "tokenizer.json"
_LARGEST_BYTES = 2**26  # of a configuration or a template
_MOST = 2**53  # of any size


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """name: a folder or a hub name (org/model). revision: branch, tag or commit on the hub."""

    name: str
    revision: str | None = None

    @property
    def folder(self) -> Path | None:
        """The folder, None for a hub name. Raises SettingsError for a path that is not there."""
        path = Path(self.name).expanduser()
        if path.is_dir():
            return path
        if self.name.startswith((".", "/", "~")) or self.name.count("/") != 1:
            raise SettingsError(
                f"No model folder at '{path.absolute()}'. Give a folder, as hf/./my-model, or a hub name, as "
                f"hf/Qwen/Qwen3-0.6B (lmdeploy/... likewise)."
            )
        return None

    @property
    def tokenizer(self) -> Path:
        """Where its tokenizer.json is. Raises VocabularyMissing with what to do."""
        path = self.find(TOKENIZER)
        if path is None:
            own = "auto_map" in self.json("tokenizer_config.json")  # a tokenizer that is code, as InternLM's
            trust, warning = (", trust_remote_code=True", ", which runs its own code") if own else ("", "")
            raise VocabularyMissing(
                f"No {TOKENIZER} in '{self.name}'. Copy the one it was trained with there, or make it of its "
                f'other files{warning}: python -c "from transformers import AutoTokenizer as A; '
                f"A.from_pretrained('{self.name}'{trust}).save_pretrained('{self.name}')\""
            )
        return path

    def find(self, file: str) -> Path | None:
        """Where a file is, None if the model has none."""
        folder = self.folder
        if folder is None:
            return self._downloaded(file)
        try:
            return folder / file if (folder / file).is_file() else None
        except OSError as error:
            raise SettingsError(f"'{folder / file}' cannot be looked at: {error.strerror}.") from None

    def text(self, file: str) -> str | None:
        """A file's text, None if the model has none. Raises SettingsError for one that is no such text."""
        path = self.find(file)
        if path is None:
            return None
        try:
            if path.stat().st_size > _LARGEST_BYTES:
                raise SettingsError(
                    f"'{path}' has more than {_LARGEST_BYTES >> 20} MB: it is none of a model's."
                )
            return path.read_text(encoding="utf-8")
        except (ValueError, OSError) as error:
            raise SettingsError(f"'{path}' cannot be read as text: {error}") from None

    def json(self, file: str) -> dict[str, Any]:
        """A JSON file's object; empty if the model has none. Raises SettingsError if it is unreadable."""
        text = self.text(file)
        if text is None:
            return {}
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SettingsError(f"'{self.find(file)}' is not readable JSON: {error}") from None
        if not isinstance(data, dict):
            raise SettingsError(f"'{self.find(file)}' is no JSON object of names and values.")
        return data

    @property
    def positions(self) -> int | None:
        """Tokens that its configuration has positions for; None where it names no number."""
        return self.number("max_position_embeddings", "n_positions")

    def number(self, *names: str) -> int | None:
        """The first of some sizes that its configuration names, its text part first; None for none."""
        config = self.json("config.json")
        inner = config.get("text_config")
        for part in (inner if isinstance(inner, dict) else {}, config):
            for name in names:
                found = part.get(name)
                if type(found) is int and 0 < found < _MOST:
                    return found
        return None

    def _downloaded(self, file: str) -> Path | None:
        try:
            import huggingface_hub as hub
        except ImportError:
            raise SettingsError(
                f"'{self.name}' is not a folder here, and the hub needs huggingface_hub. "
                f"Run: pip install 'needlemap[hf]'"
            ) from None
        try:
            return Path(hub.hf_hub_download(self.name, file, revision=self.revision, etag_timeout=10))
        except hub.errors.LocalEntryNotFoundError as error:
            reason = str(error.__cause__ or error).splitlines()[0]
        except hub.errors.EntryNotFoundError:
            return None
        except (OSError, ValueError, hub.errors.HfHubHTTPError) as error:
            reason = str(error).splitlines()[0]
        at = f" at revision '{self.revision}'" if self.revision else ""
        raise SettingsError(
            f"'{self.name}'{at} is neither a folder here nor to be had from the hub: {reason} "
            f"Give a folder, as hf/./my-model."
        )


_KINDS = (".safetensors", ".npz", ".bin", ".pt", ".gguf", ".json", ".py")
_SAMPLE_BYTES = 65_536


def weights_fingerprint(folder: Path) -> str:
    """Hash of a folder's weight, configuration and code files: names, sizes, first and last 64 kB of each.

    Raises SettingsError. Whole files would take minutes; trained weights that differ at all differ there.
    """
    digest = hashlib.sha256()
    try:
        for file in sorted(path for path in folder.iterdir() if path.suffix in _KINDS and path.is_file()):
            size = file.stat().st_size
            digest.update(f"{file.name}\0{size}\0".encode(errors="surrogateescape"))
            with file.open("rb") as data:
                digest.update(data.read(_SAMPLE_BYTES))
                data.seek(max(0, size - _SAMPLE_BYTES), os.SEEK_SET)
                digest.update(data.read(_SAMPLE_BYTES))
    except OSError as error:
        raise SettingsError(f"The model folder '{folder}' cannot be read: {error}") from None
    return digest.hexdigest()[:16]
