"""tiktoken's vocabulary file, rebuilt from quicktok's, so that tiktoken works without a network.

The file is the original to the last byte: its sha256 is the one that tiktoken itself demands.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import quicktok

_TOKENS = 100_256
_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
_CACHED_AS = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"  # sha1 of the address it is published at


def write_ranks(folder: Path) -> None:
    """Put cl100k_base where TIKTOKEN_CACHE_DIR=folder finds it."""
    encoding = quicktok.get_encoding("cl100k_base")
    lines = [
        b"%s %d\n" % (base64.b64encode(encoding.decode_single_token_bytes(token)), token)
        for token in range(_TOKENS)
    ]
    data = b"".join(lines)
    if hashlib.sha256(data).hexdigest() != _SHA256:
        raise RuntimeError(
            "quicktok's cl100k_base is not the published one: nothing here can be compared."
        )
    (folder / _CACHED_AS).write_bytes(data)
