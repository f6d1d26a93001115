"""Vocabularies from files: a Hugging Face tokenizer.json, a SentencePiece `.model`."""

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

# Of a vocabulary. The largest today have 2**18.
MOST_IN_VOCABULARY = 2**23
SECONDS = 30  # for one text, of 65,536 characters at most where texts are cut; usual are 0.05
# characters, which need no watch: the haystack was tokenised before, by the same patterns
_SHORT = 1_000
MOST_BYTES = 256 << 20  # of a vocabulary's file
_CHUNK_BYTES = (
    65_536  # the library needs 100 times a long string's size in memory; pieces are faster too
)


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
        self._byte_level = "ByteLevel" in repr(
            self._tokenizer.pre_tokenizer
        ) or "ByteLevel" in repr(self._tokenizer.decoder)
        self._sizes = self._byte_sizes() if self._byte_level else None
        self.additive = (
            self._sizes is not None and int(self._sizes[self._encode("x").ids].sum()) == 1
        )

    def index(self, data: bytes) -> TokenText:
        """Tokenise, normalising first if the tokenizer does; long texts in pieces cut where
        counts add up."""
        text = data.decode()
        self._try_normalizer(text)
        if self._tokenizer.normalizer is not None and self._byte_level:
            text = self._tokenizer.normalizer.normalize_str(text)
        if not self.additive:
            return self._index_piece(text)
        return join([self._index_piece(piece) for piece in _pieces(text)])

    def count(self, data: bytes) -> int:
        """Number of tokens."""
        text = data.decode()
        self._try_normalizer(text)
        return len(self._encode(text).ids)

    def _try_normalizer(self, text: str) -> None:
        """Raises VocabularyMissing for a stranger's normalizer that makes too much of a text:
        it is tried where memory and time end, before this process follows it."""
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
        data = text.encode() if len(ids) else b""  # what it drops as a whole is no text
        offsets = np.zeros(len(ids) + 1, np.int64)
        if self._sizes is not None:
            np.cumsum(self._sizes[ids], out=offsets[1:])
        if self._sizes is None or offsets[-1] != len(data):
            offsets = tiled(_ends(encoding.offsets, text), len(data))
        return TokenText(data, ids, offsets)

    def _byte_sizes(self) -> NDArray[np.int64]:
        """Bytes of each token of a byte-level vocabulary, whose alphabet has one character a
        byte."""
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        sizes = np.zeros(max(vocabulary.values()) + 1, np.int64)
        for token, number in vocabulary.items():
            sizes[number] = len(token)
        for number, added in self._tokenizer.get_added_tokens_decoder().items():
            sizes[number] = len(added.content.encode())
        return sizes


def read_vocabulary(path: str | Path, raw: bytes | None = None) -> Vocabulary:
    """The library's tokenizer of a file. Raises VocabularyMissing for one that is torn, or of
    absurd size."""
    try:
        raw = read_regular(Path(path), MOST_BYTES) if raw is None else raw
        if (normalizer := _risky_normalizer(raw)) is not None:  # it is applied to added tokens
            added = read_json(raw).get("added_tokens") or ()
            RENDERER.normalize(normalizer, " ".join(["x", *(each["content"] for each in added)]))
        made = Vocabulary.from_str(raw.decode())
    except TimeUp:
        raise
    except BaseException as error:  # the library may panic, which is no Exception
        raise _unusable(str(path), "be read", error) from None
    if max(made.get_vocab(with_added_tokens=True).values(), default=0) >= MOST_IN_VOCABULARY:
        raise VocabularyMissing(
            f"'{path}' cannot be used: it numbers a token beyond {MOST_IN_VOCABULARY:,}."
        )
    return made


def encoded(tokenizer: Vocabulary, text: str, name: str, **options: bool) -> Any:
    """A text's encoding. Raises VocabularyMissing where the library cannot make it, or not in
    time.

    A stranger's pattern can take forever: a long text has a thread, which may be left behind.
    """
    try:
        if len(text) <= _SHORT:
            return tokenizer.encode(text, **options)
        try:  # for batches alone the library lets other threads run
            return call_within(SECONDS, lambda: tokenizer.encode_batch([text], **options)[0])
        except TimeoutError:
            words = f"{len(text):,} characters take it more than {SECONDS} s."
            raise TimeoutError(words) from None
    except TimeUp:
        raise
    except BaseException as error:
        raise _unusable(name, "tokenise a text", error) from None


def _unusable(name: str, what: str, error: BaseException) -> BaseException:
    """What to raise for an error of the library's."""
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        return error
    said = printable(str(error), line=True)[:200]
    return VocabularyMissing(
        f"The tokenizer '{name}' cannot {what}: {said} Give another tokenizer.json, or make it "
        f"anew with "
        f"transformers' save_pretrained."
    )


# Normalizers that make no more of a text than Unicode's own forms do.
_MODEST = {
    *("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "Nmt"),
    *("BertNormalizer", "ByteLevel"),
}
_SIGN = 4  # characters that stand for one, or before a text, as in SentencePiece's vocabularies


def _risky_normalizer(raw: bytes) -> dict[str, Any] | None:
    """The normalizer of a tokenizer.json, where it may make a text longer without a bound."""
    found = read_json(raw).get("normalizer")
    return found if found and not all(map(_is_modest, _normalizers(found))) else None


def _normalizers(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    inner = found.get("normalizers")
    if isinstance(inner, list):
        for each in inner:
            yield from _normalizers(each)
    else:
        yield found


def _is_modest(each: dict[str, Any]) -> bool:
    kind, pattern = each.get("type"), each.get("pattern")
    if kind == "Prepend":
        return len(each.get("prepend", "")) <= _SIGN
    if kind == "Replace" and isinstance(pattern, dict):  # a sign for a sign, or nothing longer
        return len(each.get("content", "")) <= max(1, len(pattern.get("String", "")))
    return kind in _MODEST


def _pieces(text: str) -> list[str]:
    """A text in pieces of about 64,000 characters, cut where counts add up (see
    `tokens.safe_cuts`)."""
    pieces, start = [], 0
    while len(text) - start > _CHUNK_BYTES:
        cut = start + _CHUNK_BYTES
        while cut < len(text) and not _safe(text, cut):
            cut += 1
        pieces.append(text[start:cut])
        start = cut
    return [*pieces, text[start:]]


def _safe(text: str, cut: int) -> bool:
    before, here, after = text[cut - 1], text[cut], text[cut + 1 : cut + 2]
    if here == " ":
        return "!" <= before <= "~" and after.isascii() and after.isalpha()
    return here in "，。；：" and "\u4e00" <= before <= "\u9fff"


def _ends(spans: list[tuple[int, int]], text: str) -> NDArray[np.int64]:
    """The byte where each token ends, (n,), from character spans. Of the tokens that share one
    character all but the last end where it begins."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    widths = 1 + (codes >= 0x80).astype(np.int64) + (codes >= 0x800) + (codes >= 0x10000)
    at = np.concatenate([[0], np.cumsum(widths)])
    pairs = np.array(spans, np.int64).reshape(-1, 2)
    shared = np.concatenate([(pairs[:-1] == pairs[1:]).all(axis=1), [False]])[: len(pairs)]
    return np.asarray(at[np.where(shared, pairs[:, 0], pairs[:, 1])], np.int64)


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
        """Tokenise; offsets are the library's, made to tile the bytes. A text that it drops is
        empty."""
        ids, ends = self._pieces(data.decode())
        data = data if len(ends) else b""
        return TokenText(data, np.array(ids, np.int32), tiled(np.array(ends, np.int64), len(data)))

    def count(self, data: bytes) -> int:
        """Number of tokens."""
        return len(self._pieces(data.decode())[0])

    def _pieces(self, text: str, what: str = "tokenise a text") -> tuple[list[int], list[int]]:
        """A text's ids and where they end, made where memory and time end."""
        try:
            return RENDERER.pieces(self._raw, text)
        except SettingsError as error:
            raise _unusable(self.name, what, error) from None
