"""A tokenizer as a part of a cache's key: equal where vocabulary and rules are."""

from __future__ import annotations

from dataclasses import dataclass, field

from needlemap.text.tokens import Tokenizer


@dataclass(frozen=True, slots=True)
class Keyed:
    """Hashes and compares by fingerprint, whatever the tokenizer's own class does."""

    fingerprint: str
    tokenizer: Tokenizer = field(compare=False)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Keyed:
        """The tokenizer with its fingerprint."""
        return cls(tokenizer.fingerprint, tokenizer)
