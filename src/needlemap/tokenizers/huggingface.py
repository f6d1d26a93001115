"""Load vocabularies from files: a Hugging Face tokenizer.json, or a SentencePiece `.model`."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Vocabulary

from needlemap.deadline import TimeUp, call_within
from needlemap.errors import SettingsError, VocabularyMissing
from needlemap.extras import install_line
from needlemap.files import read_regular
from needlemap.rendering import RENDERER
from needlemap.text import printable
from needlemap.text.tokens import Tokenizer, TokenText, join, tiled
from needlemap.untrusted import read_json

# Tokens of a vocabulary. The largest ones today have 2**18.
MOST_IN_VOCABULARY = 2**23
# For one text, which has at most 65,536 characters if texts are cut. It usually takes 0.05.
SECONDS = 30
# Characters that need no time limit: the haystack was tokenised before, by the same patterns.
_SHORT = 1_000
# Bytes of a vocabulary's file.
MOST_BYTES = 256 << 20
# The library needs 100 times a long string's size in memory. Pieces are faster too.
_CHUNK_BYTES = 65_536
# Normalizers that make a text no longer than Unicode's own forms do.
_MODEST = {
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Lowercase",
    "Strip",
    "StripAccents",
    "Nmt",
    "BertNormalizer",
    "ByteLevel",
}
# Characters that stand for one, or before a text, as in SentencePiece's vocabularies.
_SIGN = 4


class HuggingFace(Tokenizer):
    """A tokenizer.json. Special-token text inside a text is plain text; nothing is added around it.

    Additive where its tokens are bytes and it puts no space before a text.
    special: read special-token text as special tokens, as in a chat template's own text.
    """

    def __init__(self, path: str | Path, name: str | None = None, *, special: bool = False) -> None:
        raw = read_regular(Path(path), MOST_BYTES)
        self.name = name or str(path)
        self.fingerprint = f"huggingface:{hashlib.sha256(raw).hexdigest()[:16]}"
        self._tokenizer = read_vocabulary(path, raw)
        self._normalizer = _risky_normalizer(raw)
        self._tokenizer.encode_special_tokens = not special
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        parts = (self._tokenizer.pre_tokenizer, self._tokenizer.decoder)
        self._byte_level = any("ByteLevel" in repr(part) for part in parts)
        self._sizes = self._byte_sizes() if self._byte_level else None
        self.additive = False
        if self._sizes is not None:
            # It puts no space before a text.
            self.additive = int(self._sizes[self._encode("x").ids].sum()) == 1

    def index(self, data: bytes) -> TokenText:
        """Tokenise a text, normalised first if the tokenizer does that.

        A long text is tokenised in pieces, cut where counts add up.
        """
        text = data.decode()
        self._try_normalizer(text)
        if self._tokenizer.normalizer is not None and self._byte_level:
            text = self._tokenizer.normalizer.normalize_str(text)
        if not self.additive:
            return self._index_piece(text)
        return join([self._index_piece(piece) for piece in _pieces(text)])

    def count(self, data: bytes) -> int:
        """Return the number of tokens."""
        text = data.decode()
        self._try_normalizer(text)
        return len(self._encode(text).ids)

    def _try_normalizer(self, text: str) -> None:
        """Raise VocabularyMissing for a stranger's normalizer that makes a text too long.

        It is tried where memory and time are limited, before this process applies it.
        """
        if self._normalizer is not None:
            try:
                RENDERER.normalize(self._normalizer, text)
            except SettingsError as error:
                raise _unusable(self.name, "normalise a text", error) from None

    def _encode(self, text: str) -> Any:
        return encoded(self._tokenizer, text, self.name, add_special_tokens=False)

    def _index_piece(self, text: str) -> TokenText:
        encoding = self._encode(text)
        ids = np.array(encoding.ids, np.int32)
        # A text without any token is empty.
        data = text.encode() if len(ids) else b""
        offsets = np.zeros(len(ids) + 1, np.int64)
        if self._sizes is not None:
            np.cumsum(self._sizes[ids], out=offsets[1:])
        if self._sizes is None or offsets[-1] != len(data):
            offsets = tiled(_ends(encoding.offsets, text), len(data))
        return TokenText(data, ids, offsets)

    def _byte_sizes(self) -> NDArray[np.int64]:
        """Return the bytes of each token of a byte-level vocabulary.

        Its alphabet has one character for each byte.
        """
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        sizes = np.zeros(max(vocabulary.values()) + 1, np.int64)
        for token, number in vocabulary.items():
            sizes[number] = len(token)
        for number, added in self._tokenizer.get_added_tokens_decoder().items():
            sizes[number] = len(added.content.encode())
        return sizes


def read_vocabulary(path: str | Path, raw: bytes | None = None) -> Vocabulary:
    """Return the library's tokenizer of a file.

    raw: the file's bytes, if they are read already. Raises VocabularyMissing for a file that is
    broken or of absurd size.
    """
    try:
        raw = read_regular(Path(path), MOST_BYTES) if raw is None else raw
        normalizer = _risky_normalizer(raw)
        if normalizer is not None:
            # The library applies it to added tokens.
            added = read_json(raw).get("added_tokens") or ()
            texts = ["x", *(token["content"] for token in added)]
            RENDERER.normalize(normalizer, " ".join(texts))
        vocabulary = Vocabulary.from_str(raw.decode())
    except TimeUp:
        raise
    except BaseException as error:
        # The library may panic, which is not an Exception.
        raise _unusable(str(path), "be read", error) from None
    largest = max(vocabulary.get_vocab(with_added_tokens=True).values(), default=0)
    if largest >= MOST_IN_VOCABULARY:
        raise VocabularyMissing(
            f"'{path}' cannot be used: it numbers a token beyond {MOST_IN_VOCABULARY:,}."
        )
    return vocabulary


def encoded(tokenizer: Vocabulary, text: str, name: str, **options: bool) -> Any:
    """Return a text's encoding.

    A stranger's pattern can take forever, so a long text has its own thread, which may be
    abandoned. Raises VocabularyMissing if the library fails or is out of time.
    """
    try:
        if len(text) <= _SHORT:
            return tokenizer.encode(text, **options)
        try:
            # The library lets other threads run only for batches.
            return call_within(SECONDS, lambda: tokenizer.encode_batch([text], **options)[0])
        except TimeoutError:
            message = f"{len(text):,} characters take it more than {SECONDS} s."
            raise TimeoutError(message) from None
    except TimeUp:
        raise
    except BaseException as error:
        raise _unusable(name, "tokenise a text", error) from None


def _unusable(name: str, what: str, error: BaseException) -> BaseException:
    """Return the error to raise for an error of the library: an interruption is itself."""
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        return error
    message = printable(str(error), line=True)[:200]
    return VocabularyMissing(
        f"The tokenizer '{name}' cannot {what}: {message} Give another tokenizer.json, or make it "
        f"anew with transformers' save_pretrained."
    )


def _risky_normalizer(raw: bytes) -> dict[str, Any] | None:
    """Return the normalizer of a tokenizer.json if it may make a text longer without a limit."""
    normalizer = read_json(raw).get("normalizer")
    is_modest = not normalizer or all(map(_is_modest, _normalizers(normalizer)))
    return None if is_modest else normalizer


def _normalizers(normalizer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the normalizers of a sequence, or a single one."""
    inner = normalizer.get("normalizers")
    if not isinstance(inner, list):
        yield normalizer
        return
    for part in inner:
        yield from _normalizers(part)


def _is_modest(normalizer: dict[str, Any]) -> bool:
    kind = normalizer.get("type")
    pattern = normalizer.get("pattern")
    if kind == "Prepend":
        return len(normalizer.get("prepend", "")) <= _SIGN
    if kind == "Replace" and isinstance(pattern, dict):
        # A sign for a sign, or nothing longer.
        return len(normalizer.get("content", "")) <= max(1, len(pattern.get("String", "")))
    return kind in _MODEST


def _pieces(text: str) -> list[str]:
    """Return a text in pieces of about 64,000 characters, cut where counts add up.

    See `tokens.safe_cuts`.
    """
    pieces = []
    start = 0
    while len(text) - start > _CHUNK_BYTES:
        cut = start + _CHUNK_BYTES
        while cut < len(text) and not _safe(text, cut):
            cut += 1
        pieces.append(text[start:cut])
        start = cut
    return [*pieces, text[start:]]


def _safe(text: str, cut: int) -> bool:
    """Return True if counts add up at a cut of a text."""
    before = text[cut - 1]
    after = text[cut]
    second_after = text[cut + 1 : cut + 2]
    if after == " ":
        return "!" <= before <= "~" and second_after.isascii() and second_after.isalpha()
    return after in "，。；：" and "\u4e00" <= before <= "\u9fff"


def _ends(spans: list[tuple[int, int]], text: str) -> NDArray[np.int64]:
    """Return the byte where each token ends, (n,), from spans of characters.

    Of the tokens that share one character, all but the last end where it starts.
    """
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    # Bytes of each character in UTF-8.
    widths = 1 + (codes >= 0x80).astype(np.int64) + (codes >= 0x800) + (codes >= 0x10000)
    offsets = np.concatenate([[0], np.cumsum(widths)])
    pairs = np.array(spans, np.int64).reshape(-1, 2)
    is_shared = np.concatenate([(pairs[:-1] == pairs[1:]).all(axis=1), [False]])[: len(pairs)]
    return np.asarray(offsets[np.where(is_shared, pairs[:, 0], pairs[:, 1])], np.int64)


class SentencePiece(Tokenizer):
    """A SentencePiece model. Most put a dummy space before a text, so pieces need
    `count_inside`."""

    additive = False

    def __init__(self, path: str | Path, name: str | None = None) -> None:
        if sys.modules.get("sentencepiece", "") is None or find_spec("sentencepiece") is None:
            raise VocabularyMissing(
                "Tokenizer 'sentencepiece' needs 'sentencepiece', which is not installed. "
                f"Run: {install_line('sentencepiece')}"
            )
        self._raw = read_regular(Path(path), MOST_BYTES)
        self.name = name or str(path)
        self.fingerprint = f"sentencepiece:{hashlib.sha256(self._raw).hexdigest()[:16]}"
        self._pieces("x", "be read")

    def index(self, data: bytes) -> TokenText:
        """Tokenise a text. The library's offsets are made to tile the bytes.

        A text without any token is empty.
        """
        ids, ends = self._pieces(data.decode())
        data = data if len(ends) else b""
        return TokenText(data, np.array(ids, np.int32), tiled(np.array(ends, np.int64), len(data)))

    def count(self, data: bytes) -> int:
        """Return the number of tokens."""
        return len(self._pieces(data.decode())[0])

    def _pieces(self, text: str, what: str = "tokenise a text") -> tuple[list[int], list[int]]:
        """Return a text's ids and where they end, made where memory and time are limited."""
        try:
            return RENDERER.pieces(self._raw, text)
        except SettingsError as error:
            raise _unusable(self.name, what, error) from None
