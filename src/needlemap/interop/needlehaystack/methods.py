"""The methods by which the originals make a context and a schedule, for classes that change
one.

They do what the originals do, a cell at a time. Where a derived class changes none of them a
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
# Methods of the originals, and of their later package, that nothing here calls: what to write
# instead.
NEVER_CALLED = {
    "insert_needles": "insert_needle, which is given the whole context",
    "evaluate_model": "get_response_from_model",
    "get_langchain_runnable": "get_response_from_model",
}


class ContextMethods(Parameters):
    """A tester's methods for contexts and depths, under the originals' names."""

    def get_encoding(self, context: str) -> list[int]:
        """The context's tokens."""
        text = self._tokenizer.index(context.encode())
        for place, number in enumerate(text.ids.tolist()):
            self._bytes.setdefault(number, bytes(text.span(place, place + 1).data))
        return [int(number) for number in text.ids]

    def get_decoding(self, encoded_context: Sequence[int]) -> str:
        """The text of tokens that `get_encoding` gave."""
        data = b"".join([self._bytes[int(number)] for number in encoded_context])
        return data.decode("utf-8", errors="replace")

    def get_context_length_in_tokens(self, context: str) -> int:
        """How many tokens a context has."""
        return len(self._encoded(context))

    def read_context_files(self) -> str:
        """The haystack: all files of the folder, repeated until they hold the longest
        context."""
        most = max(self.lengths)
        return repeated(
            self.haystack_dir, lambda text: self.get_context_length_in_tokens(text) >= most
        )

    def encode_and_trim(self, context: str, context_length: int) -> str:
        """A context's first tokens."""
        return self._decoded(self._encoded(context)[:context_length])

    def insert_needle(self, context: str, depth_percent: float, context_length: int) -> str:
        """The context with the needle behind the last full stop before a depth; at 100 at its
        end."""
        whole, hidden = self._encoded(context), self._encoded(self.needle)
        budget = context_length - self.final_context_length_buffer
        kept = whole[: room(len(whole), budget, len(hidden))]
        if depth_percent == 100:
            return self._decoded(kept + hidden)
        stops = set(self._encoded("."))
        point = int(len(kept) * (depth_percent / 100))
        while point and kept[point - 1] not in stops:
            point -= 1
        return self._decoded(kept[:point] + hidden + kept[point:])

    def defines(self, *names: str) -> bool:
        """Whether a derived class, or the object itself, has one of these methods of its
        own."""
        ours = __name__.rpartition(".")[0]
        return any(
            name in vars(self)
            or next(
                (
                    not f"{kind.__module__}.".startswith(f"{ours}.")
                    for kind in type(self).__mro__
                    if name in vars(kind)
                ),
                False,
            )
            for name in names
        )

    def check_methods(self) -> None:
        """Raises SettingsError for a method of the originals that would not be called."""
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
                has, lacks = sorted(pair, key=self.defines, reverse=True)
                raise SettingsError(f"{kind} defines '{has}' without '{lacks}'. Define both.")

    def _encoded(self, text: str) -> list[int]:
        return list((self.own_tokens or (self.get_encoding, None))[0](text))

    def _decoded(self, tokens: list[int]) -> str:
        return (self.own_tokens or (None, self.get_decoding))[1](tokens)

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self.tokenizer_name)

    @cached_property
    def _bytes(self) -> dict[int, bytes]:
        return {}
