"""Provide the methods of the originals that make contexts, for classes that change one.

They do what the originals do, one cell at a time. If a derived class changes none of them, a
cell's context is made by `contexts.context`, which gives the same bytes and reads the folder
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from needlemap.errors import SettingsError
from needlemap.interop.needlehaystack.contexts import repeated, room
from needlemap.interop.needlehaystack.parameters import Parameters
from needlemap.tokenizers import load as load_tokenizer

PIECES = (
    "generate_context",
    "read_context_files",
    "encode_and_trim",
    "insert_needle",
    "get_context_length_in_tokens",
)
# Methods of the originals, and of their later package, that nothing here calls, each with what to
# define instead.
NEVER_CALLED = {
    "insert_needles": "insert_needle, which is given the whole context",
    "evaluate_model": "get_response_from_model",
    "get_langchain_runnable": "get_response_from_model",
}


class ContextMethods(Parameters):
    """The methods of a tester for contexts and depths, under the originals' names."""

    def get_encoding(self, context: str) -> list[int]:
        """Return the context's tokens."""
        text = self._tokenizer.index(context.encode())
        for position, token in enumerate(text.ids.tolist()):
            self._bytes_by_token.setdefault(token, bytes(text.span(position, position + 1).data))
        return [int(token) for token in text.ids]

    def get_decoding(self, encoded_context: Sequence[int]) -> str:
        """Return the text of tokens that `get_encoding` returned."""
        data = b"".join([self._bytes_by_token[int(token)] for token in encoded_context])
        return data.decode("utf-8", errors="replace")

    def get_context_length_in_tokens(self, context: str) -> int:
        """Return how many tokens a context has."""
        return len(self._encode(context))

    def read_context_files(self) -> str:
        """Return the haystack: all files of the folder, repeated until the longest context fits."""
        longest = max(self.lengths)
        return repeated(
            self.haystack_dir, lambda text: self.get_context_length_in_tokens(text) >= longest
        )

    def encode_and_trim(self, context: str, context_length: int) -> str:
        """Return a context's first `context_length` tokens as text."""
        return self._decode(self._encode(context)[:context_length])

    def insert_needle(self, context: str, depth_percent: float, context_length: int) -> str:
        """Return the context with the needle behind the last full stop before a depth.

        At depth 100 the needle is at the end.
        """
        haystack = self._encode(context)
        needle = self._encode(self.needle)
        budget = context_length - self.final_context_length_buffer
        haystack = haystack[: room(len(haystack), budget, needles=len(needle))]
        if depth_percent == 100:
            return self._decode(haystack + needle)

        stops = set(self._encode("."))
        position = int(len(haystack) * (depth_percent / 100))
        while position and haystack[position - 1] not in stops:
            position -= 1
        return self._decode(haystack[:position] + needle + haystack[position:])

    def defines(self, *names: str) -> bool:
        """Return True if a derived class, or the object itself, defines one of these methods."""
        return any(name in vars(self) or self._is_overridden(name) for name in names)

    def _is_overridden(self, name: str) -> bool:
        """Return True if the class that a method comes from is not one of this package."""
        package = __name__.rpartition(".")[0]
        for kind in type(self).__mro__:
            if name in vars(kind):
                return not f"{kind.__module__}.".startswith(f"{package}.")
        return False

    def check_methods(self) -> None:
        """Raise SettingsError for a method of the originals that would not be called."""
        kind = type(self).__name__
        for name, instead in NEVER_CALLED.items():
            if self.defines(name):
                raise SettingsError(
                    f"{kind} defines '{name}', which is never called here. Define {instead}."
                )
        for pair in (
            ("get_encoding", "get_decoding"),
            ("encode_text_to_tokens", "decode_tokens"),
        ):
            if self.defines(pair[0]) != self.defines(pair[1]):
                defined, missing = sorted(pair, key=self.defines, reverse=True)
                raise SettingsError(f"{kind} defines '{defined}' without '{missing}'. Define both.")

    def _encode(self, text: str) -> list[int]:
        """Return the tokens of a text, by the methods of a derived class if it has any."""
        own_tokens = self.own_tokens
        if own_tokens is None:
            return self.get_encoding(text)
        encode, _ = own_tokens
        return list(encode(text))

    def _decode(self, tokens: list[int]) -> str:
        """Return the text of tokens, by the methods of a derived class if it has any."""
        own_tokens = self.own_tokens
        if own_tokens is None:
            return self.get_decoding(tokens)
        _, decode = own_tokens
        return decode(tokens)

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self.tokenizer_name)

    @cached_property
    def _bytes_by_token(self) -> dict[int, bytes]:
        return {}
