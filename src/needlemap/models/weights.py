"""Which weights and code a model folder holds: part of a trial's key, so that another one is asked anew."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from needlemap.errors import SettingsError

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
