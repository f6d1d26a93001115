"""Count the tokens of a running server by its own tokenizer end point: `/tokenize`.

llama.cpp and vLLM have one. No vocabulary is needed here. Text that spells a special token counts
as the server counts it: as that token. A haystack is one request. Counting where spans meet costs a
round trip each, about ten for a prompt.
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

# Time for a reply: so many seconds, and more for a long text.
_SOON_S = 10.0
_BYTES_A_SECOND = 100_000
# Bytes of a reply for each byte of a request, if that is more than any reply may have.
_MOST_TIMES = 400
_LARGEST_ID = 2**31
_PROBE = "Where is it?\n\n  In 1234.5 lines: naïve café, 在上海的实验室。 🙂 don't"
# GPT-2's alphabet: bytes that stand for themselves. The others are U+0100 and the following.
_SEEN = (*range(33, 127), *range(161, 173), *range(174, 256))
_HIDDEN = [byte for byte in range(256) if byte not in _SEEN]
_BYTES = {chr(byte): byte for byte in _SEEN} | {
    chr(256 + place): byte for place, byte in enumerate(_HIDDEN)
}

# The field of the text and the options of each kind of server: llama.cpp, vLLM. A server ignores
# fields that it does not know.
_DIALECTS = (
    ("content", {"add_special": False, "parse_special": True, "with_pieces": True}),
    ("prompt", {"add_special_tokens": False, "return_token_strs": True}),
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
        url = urlsplit(address.rstrip("/").removesuffix("/v1"))
        self.name = f"server:{url.geturl()}"
        self._door = SyncJsonClient(f"{url.scheme}://{url.netloc}", sent.headers())
        finalize(self, self._door.close)
        self._path = f"{url.path}/tokenize"
        self._field, self._options, probe = self._dialect()
        digest = hashlib.sha256(probe.ids.tobytes() + probe.offsets.tobytes())
        self.fingerprint = f"server:{digest.hexdigest()[:16]}"
        # It puts no space before a text.
        self.additive = len(_joined(self._tokens("x"))) == 1

    def index(self, data: bytes) -> TokenText:
        """Tokenise a text in one request."""
        return _text(self._tokens(data.decode()), data, self.name)

    def count(self, data: bytes) -> int:
        """Return the number of tokens of a text. The server may leave out their bytes."""
        options = {**self._options, "with_pieces": False}
        tokens = self._ask(self._field, data.decode(), options).get("tokens")
        if not isinstance(tokens, list):
            raise VocabularyMissing(f"{self.name} gave no tokens of a text. {_INSTEAD}")
        return len(tokens)

    def _dialect(self) -> tuple[str, Mapping[str, Any], TokenText]:
        """Return the field and the options that this server understands, and its tokens of _PROBE.

        Raises VocabularyMissing if the server returns no tokens for any of _DIALECTS.
        """
        answer = "nothing"
        for field, options in _DIALECTS:
            reply = self._ask(field, _PROBE, options)
            tokens = _pieces(reply)
            if tokens:
                return field, options, _text(tokens, _PROBE.encode(), self.name)
            answer = scrub(json.dumps(self._door.hide_in(reply)))[:120]
        raise VocabularyMissing(
            f"{self.name} has no tokenizer end point that shows its tokens (POST {self._path}: "
            f"{answer}). {_INSTEAD}"
        )

    def _tokens(self, text: str) -> list[tuple[int, bytes]]:
        if not text:
            return []
        return _pieces(self._ask(self._field, text, self._options))

    def _ask(self, field: str, text: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON object of one reply, or an empty one if it has none."""
        body = json.dumps({field: text, **options}).encode()
        try:
            reply = read_json(self._sent(body))
        except ValueError:
            return {}
        return reply if isinstance(reply, dict) else {}

    def _sent(self, body: bytes) -> str:
        """Send a request and return the reply's text.

        If the server has closed a kept connection meanwhile, it is opened again. Raises
        VocabularyMissing if the server does not answer.
        """
        most_bytes = max(LARGEST_BYTES, _MOST_TIMES * len(body))
        within_s = _SOON_S + len(body) / _BYTES_A_SECOND
        for is_last in (False, True):
            try:
                reply = self._door.ask("POST", self._path, body, within_s, most_bytes, _DO)
                if 300 <= reply.status < 400:
                    # A redirection is not followed.
                    self._door.check(reply, self.name)
                return reply.text
            except Unmeasured as failure:
                self._door.hide(failure)
                self._door.close()
                is_connection = failure.failure is Failure.CONNECTION
                if is_connection and not is_last:
                    continue
                advice = "Is it up?" if is_connection else _INSTEAD
                raise VocabularyMissing(
                    f"{self.name}: {str(failure).rstrip('.')}. {advice}"
                ) from failure
        raise AssertionError("the second attempt returns or raises")


_DO = "--tokenizer with a path to the model's tokenizer.json, or its hub name"
_INSTEAD = "Give --tokenizer a path to the model's tokenizer.json or its hub name."


def _pieces(reply: Mapping[str, Any]) -> list[tuple[int, bytes]]:
    """Return a reply's tokens as (id, bytes); none if it does not show them.

    >>> _pieces({"tokens": [{"id": 7, "piece": " a"}, {"id": 8, "piece": [195]}]})
    [(7, b' a'), (8, b'\\xc3')]
    >>> _pieces({"tokens": [7], "token_strs": ["Ġa"]})
    [(7, b' a')]
    """
    try:
        tokens = _shown(reply)
    except (TypeError, ValueError, KeyError):
        return []
    if not all(isinstance(number, int) and 0 <= number < _LARGEST_ID for number, _ in tokens):
        return []
    return tokens


def _shown(reply: Mapping[str, Any]) -> list[tuple[int, bytes]]:
    """Return the tokens of a reply whose values are not checked yet.

    Raises TypeError, ValueError or KeyError for a reply that no known server sends.
    """
    tokens = reply.get("tokens")
    texts = reply.get("token_strs")
    if not isinstance(tokens, list) or not tokens:
        return []
    if isinstance(texts, list) and all(letter in _BYTES for text in texts for letter in text):
        pieces = [bytes(_BYTES[letter] for letter in text) for text in texts]
        return list(zip(tokens, pieces, strict=True))
    if not all(isinstance(token, dict) and "piece" in token for token in tokens):
        return []
    shown = []
    for token in tokens:
        piece = token["piece"]
        data = piece.encode() if isinstance(piece, str) else bytes([*piece])
        shown.append((token["id"], data))
    return shown


def _joined(tokens: list[tuple[int, bytes]]) -> bytes:
    return b"".join([piece for _, piece in tokens])


def _text(tokens: list[tuple[int, bytes]], data: bytes, name: str) -> TokenText:
    """Return tokens as a token text.

    data: the bytes that were sent. Raises VocabularyMissing if the tokens' bytes are others.
    """
    joined = _joined(tokens)
    sizes = [len(piece) for _, piece in tokens]
    if sizes.count(0) > len(sizes) // 2:
        raise VocabularyMissing(
            f"{name} shows most of a text's tokens without a byte. Give --tokenizer a path instead."
        )
    if joined == b" " + data:
        # SentencePiece puts a space before a text.
        joined = data
        sizes[0] -= 1
    if joined not in (data, unicodedata.normalize("NFC", data.decode()).encode()):
        raise VocabularyMissing(
            f"{name} does not give back a text's bytes. Give --tokenizer a path instead."
        )
    ids = np.array([number for number, _ in tokens], np.int32)
    return TokenText(joined, ids, np.cumsum([0, *sizes]).astype(np.int64))
