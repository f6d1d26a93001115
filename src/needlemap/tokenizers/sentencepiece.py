"""A SentencePiece `.model` file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import sentencepiece

from needlemap.text.tokens import Tokenizer, TokenText, tiled


class SentencePiece(Tokenizer):
    """A SentencePiece model. Most put a dummy space before a text, so pieces need `count_inside`."""

    additive = False

    def __init__(self, path: str | Path, name: str | None = None) -> None:
        raw = Path(path).read_bytes()
        self.name = name or str(path)
        self.fingerprint = f"sentencepiece:{hashlib.sha256(raw).hexdigest()[:16]}"
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=raw)

    def index(self, data: bytes) -> TokenText:
        """Tokenise; offsets are the library's, made to tile the bytes. A text that it drops is empty."""
        found = self._processor.encode(data, return_type="offset_mapping")
        ends = np.array([stop for _, stop in found["offsets"]], np.int64)
        data = data if len(ends) else b""
        return TokenText(data, np.array(found["ids"], np.int32), tiled(ends, len(data)))

    def count(self, data: bytes) -> int:
        """Number of tokens."""
        return len(self._processor.encode(data, out_type=int))
