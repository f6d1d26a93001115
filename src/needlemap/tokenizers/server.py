"""The tokens of a running server, by its own tokenizer end point: llama.cpp's or vLLM's
`/tokenize`.

No vocabulary is needed here. Text that spells a special token counts as the server counts it: as
that token. A haystack is one request; counting where spans meet costs a round trip each, about ten
for a prompt.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from weakref import finalize

import numpy as np

from needlemap.errors import Failure, Unmeasured, VocabularyMissing
from needlemap.http import LARGEST_BYTES, Sent, SyncJsonClient, check_address
from needlemap.secrets import scrub
from needlemap.text.tokens import Tokenizer, TokenText
from needlemap.untrusted import read_json

_SOON_S, _BYTES_A_SECOND = 10.0, 100_000  # for a reply: so long, and more for a long text
_MOST_TIMES = (
    400  # bytes of a reply for each byte that was sent, where that is more than any reply may have
)
_LARGEST_ID = 2**31
_PROBE = "Where is it?\n\n  In 1234.5 lines: naïve café, 在上海的实验室。 🙂 don't"
_SEEN = (
    *range(33, 127),
    *range(161, 173),
    *range(174, 256),
)  # bytes that stand for themselves in GPT-2's
_HIDDEN = [byte for byte in range(256) if byte not in _SEEN]  # alphabet; these are U+0100 and on
_BYTES = {chr(byte): byte for byte in _SEEN} | {
    chr(256 + place): byte for place, byte in enumerate(_HIDDEN)
}

# How each kind of server is asked; what it does not know, it leaves unread.
_DIALECTS = (
    ("content", {"add_special": False, "parse_special": True, "with_pieces": True}),  # llama.cpp
    ("prompt", {"add_special_tokens": False, "return_token_strs": True}),  # vLLM
)
_COMPATIBLE = Sent()


class Server(Tokenizer):
    """`server:http://HOST:PORT`: the server's address, with or without /v1. sent: the secrets that
    go there; of one that was typed $OPENAI_API_KEY, if set.

    Raises VocabularyMissing for servers that have no such end point, or do not show their tokens'
    bytes, and SettingsError for what is no address.
    """

    def __init__(self, address: str, sent: Sent = _COMPATIBLE) -> None:
        check_address(address)
        where = urlsplit(address.rstrip("/").removesuffix("/v1"))
        self.name = f"server:{where.geturl()}"
        self._door = SyncJsonClient(f"{where.scheme}://{where.netloc}", sent.headers())
        finalize(self, self._door.close)
        self._path = f"{where.path}/tokenize"
        self._field, self._options, probe = self._dialect()
        digest = hashlib.sha256(probe.ids.tobytes() + probe.offsets.tobytes())
        self.fingerprint = f"server:{digest.hexdigest()[:16]}"
        self.additive = len(_joined(self._tokens("x"))) == 1  # no space is put before a text

    def index(self, data: bytes) -> TokenText:
        """Tokenise, in one request."""
        return _text(self._tokens(data.decode()), data, self.name)

    def count(self, data: bytes) -> int:
        """Number of tokens."""
        found = self._ask(self._field, data.decode(), {**self._options, "with_pieces": False}).get(
            "tokens"
        )
        if not isinstance(found, list):
            raise VocabularyMissing(f"{self.name} gave no tokens of a text. {_INSTEAD}")
        return len(found)

    def _dialect(self) -> tuple[str, Mapping[str, Any], TokenText]:
        """The field and options that this server understands, and its tokens of a text."""
        said = "nothing"
        for field, options in _DIALECTS:
            reply = self._ask(field, _PROBE, options)
            found = _pieces(reply)
            if found:
                return field, options, _text(found, _PROBE.encode(), self.name)
            said = scrub(json.dumps(self._door.hide_in(reply)))[:120]
        raise VocabularyMissing(
            f"{self.name} has no tokenizer end point that shows its tokens (POST {self._path}: "
            f"{said}). "
            f"{_INSTEAD}"
        )

    def _tokens(self, text: str) -> list[tuple[int, bytes]]:
        return _pieces(self._ask(self._field, text, self._options)) if text else []

    def _ask(self, field: str, text: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """One reply's JSON object; empty if it holds none."""
        body = json.dumps({field: text, **options}).encode()
        try:
            said = read_json(self._sent(body))
        except ValueError:
            return {}
        return said if isinstance(said, dict) else {}

    def _sent(self, body: bytes) -> str:
        """A reply's text; a kept connection that the server closed meanwhile is opened once
        more."""
        most = max(LARGEST_BYTES, _MOST_TIMES * len(body))
        within_s = _SOON_S + len(body) / _BYTES_A_SECOND
        for last in (False, True):
            try:
                reply = self._door.ask("POST", self._path, body, within_s, most, _DO)
                if 300 <= reply.status < 400:  # it is not followed
                    self._door.check(reply, self.name)
                return reply.text
            except Unmeasured as failure:
                self._door.hide(failure)
                self._door.close()
                if failure.failure is Failure.CONNECTION and not last:
                    continue
                up = " Is it up?" if failure.failure is Failure.CONNECTION else f" {_INSTEAD}"
                raise VocabularyMissing(
                    f"{self.name}: {str(failure).rstrip('.')}.{up}"
                ) from failure
        raise AssertionError("the second attempt returns or raises")


_DO = "--tokenizer with a path to the model's tokenizer.json, or its hub name"
_INSTEAD = "Give --tokenizer a path to the model's tokenizer.json or its hub name."


def _pieces(reply: Mapping[str, Any]) -> list[tuple[int, bytes]]:
    """A reply's tokens as (id, bytes); empty when it does not show them.

    >>> _pieces({"tokens": [{"id": 7, "piece": " a"}, {"id": 8, "piece": [195]}]})
    [(7, b' a'), (8, b'\\xc3')]
    >>> _pieces({"tokens": [7], "token_strs": ["Ġa"]})
    [(7, b' a')]
    """
    try:
        found = _shown(reply)
    except (TypeError, ValueError, KeyError):
        return []
    sound = all(isinstance(number, int) and 0 <= number < _LARGEST_ID for number, _ in found)
    return found if sound else []


def _shown(reply: Mapping[str, Any]) -> list[tuple[int, bytes]]:
    """The same. Raises TypeError, ValueError or KeyError for what no server of ours says."""
    tokens, texts = reply.get("tokens"), reply.get("token_strs")
    if not isinstance(tokens, list) or not tokens:
        return []
    if isinstance(texts, list) and all(letter in _BYTES for text in texts for letter in text):
        shown = [bytes(_BYTES[letter] for letter in text) for text in texts]
        return list(zip(tokens, shown, strict=True))
    if not all(isinstance(token, dict) and "piece" in token for token in tokens):
        return []
    pieces = [token["piece"] for token in tokens]
    shown = [piece.encode() if isinstance(piece, str) else bytes([*piece]) for piece in pieces]
    return [(token["id"], piece) for token, piece in zip(tokens, shown, strict=True)]


def _joined(tokens: list[tuple[int, bytes]]) -> bytes:
    return b"".join([piece for _, piece in tokens])


def _text(tokens: list[tuple[int, bytes]], data: bytes, name: str) -> TokenText:
    """Tokens as a token text. Raises VocabularyMissing when their bytes are not those of the
    text."""
    joined = _joined(tokens)
    sizes = [len(piece) for _, piece in tokens]
    if sizes.count(0) > len(sizes) // 2:
        raise VocabularyMissing(
            f"{name} shows most of a text's tokens without a byte. Give --tokenizer a path instead."
        )
    if joined == b" " + data:  # the space that SentencePiece puts before a text
        joined, sizes[0] = data, sizes[0] - 1
    if joined not in (data, unicodedata.normalize("NFC", data.decode()).encode()):
        raise VocabularyMissing(
            f"{name} does not give back a text's bytes. Give --tokenizer a path instead."
        )
    ids = np.array([number for number, _ in tokens], np.int32)
    return TokenText(joined, ids, np.cumsum([0, *sizes]).astype(np.int64))
