"""Load the vocabularies that come with quicktok."""

from __future__ import annotations

import hashlib
import unicodedata
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from needlemap.errors import VocabularyMissing, did_you_mean
from needlemap.text.tokens import Tokenizer, TokenText

# A probe text. Its token ids were hashed when the vocabulary was last checked against its reference
# implementation: a wrong build would change lengths without a warning.
_PROBE = (
    "Where is it?\n\n  In 1234.5 lines: naïve café, 在上海的实验室。 e\u0301 <|endoftext|> 🙂 don't"
)
_PROBES = {
    "cl100k_base": "edabeac7d8002bdd",
    "o200k_base": "5ea30d8506681b12",
    "o200k_harmony": "5ea30d8506681b12",
    "llama3": "047343913489b279",
    "qwen3": "6cba4e88bc448a36",
}
BUNDLED = tuple(_PROBES)
# These normalise to Unicode NFC, as Qwen's own tokenizer does.
_NORMALISES = {"qwen3"}
# Characters or tokens. Below, plain lists are faster than the operations for long texts.
_SHORT = 4096


@dataclass(frozen=True, slots=True)
class Keyed:
    """A tokenizer that is hashed and compared by its fingerprint, whatever its own class does."""

    fingerprint: str
    tokenizer: Tokenizer = field(compare=False)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Keyed:
        """Return the tokenizer with its fingerprint."""
        return cls(tokenizer.fingerprint, tokenizer)


class Bundled(Tokenizer):
    """A byte-level BPE of quicktok's. Token bytes tile the text, so offsets are a running sum of
    lengths."""

    def __init__(self, name: str) -> None:
        if name not in _PROBES:
            raise VocabularyMissing(
                f"'{name}' is no vocabulary of quicktok's. {did_you_mean(name, BUNDLED)}"
            )
        # A list of names needs no vocabulary, so it is imported late.
        import quicktok

        self.name = name
        self._encoding = quicktok.get_encoding(name)
        self._nfc = name in _NORMALISES
        probe = np.array(self._encoding.encode_ordinary(_PROBE), np.int32)
        digest = hashlib.sha256(probe.tobytes()).hexdigest()[:16]
        if digest != _PROBES[name]:
            raise VocabularyMissing(
                f"quicktok {quicktok.__version__} tokenises '{name}' in a way that was not checked "
                f"(probe {digest}). Run: python3 -m pip install 'quicktok-v1>=0.4,<0.5'"
            )
        self.fingerprint = f"quicktok:{name}:{digest}"

    def index(self, data: bytes) -> TokenText:
        """Tokenise a text, normalised to NFC if the vocabulary's own tokenizer does that."""
        text = data.decode()
        if self._nfc and not unicodedata.is_normalized("NFC", text):
            text = unicodedata.normalize("NFC", text)
            data = text.encode()
        ids = self._ids(text)
        offsets = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(self._lengths(ids), out=offsets[1:])
        if offsets[-1] != len(data):
            raise VocabularyMissing(
                f"'{self.name}' lost bytes of a text: {offsets[-1]} of {len(data)}."
            )
        return TokenText(data, ids, offsets)

    def count(self, data: bytes) -> int:
        """Return the number of tokens."""
        return int(self._encoding.count(data))

    def _ids(self, text: str) -> NDArray[np.int32]:
        if len(text) < _SHORT:
            return np.array(self._encoding.encode_ordinary(text), np.int32)
        batch, _ = self._encoding.encode_batch([text], 1)
        return np.asarray(batch).astype(np.int32)

    def _lengths(self, ids: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the bytes of each token, (n,) int64. Only tokens that occur are looked up."""
        decode = self._encoding.decode_single_token_bytes
        if len(ids) < _SHORT:
            return np.array([len(decode(token)) for token in ids.tolist()], np.int64)
        sizes = np.zeros(1 + int(ids.max(initial=0)), np.int64)
        # Mark the tokens that occur: np.unique takes 40 times as long.
        sizes[ids] = 1
        distinct = np.flatnonzero(sizes)
        sizes[distinct] = [len(decode(token)) for token in distinct.tolist()]
        return sizes[ids]
