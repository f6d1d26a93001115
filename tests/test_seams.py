"""Counting joined spans again only where they meet gives what tokenising the whole text gives."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needlemap.haystacks.generated import Generated
from needlemap.prompts import SeamCounter, SpanCounter
from needlemap.text.tokens import Cuts, Span, Tokenizer, TokenText
from needlemap.tokenizers import load

INSERTS = (
    "\nA fact.\n",
    "A fact.",
    " a ",
    "事实。",
    "\n\n",
    "1",
    "<|endoftext|>",
    "🙂",
    "",
    " ",
    "\u0301",
)


@pytest.fixture(
    scope="module", params=["cl100k_base", "o200k_base", "llama3", "qwen3", "byte-level.json"]
)
def tokenizer(request, vocabularies) -> Tokenizer:
    return load(str(vocabularies / request.param) if "." in request.param else request.param)


@cache
def haystack(tokenizer: Tokenizer, language: str) -> tuple[TokenText, SeamCounter]:
    text = tokenizer.index(Generated(language=language, seed=3).document(0).text.encode())
    return text, SeamCounter(tokenizer, text, Cuts.of(text))


def whole(tokenizer: Tokenizer, spans: list[Span]) -> int:
    data = b"".join(bytes(span.data) for span in spans)
    return tokenizer.count(data.decode("utf-8", "replace").encode())


@settings(deadline=None, max_examples=60)
@given(data=st.data(), language=st.sampled_from(["english", "chinese"]))
def test_the_count_is_that_of_the_whole_text_wherever_it_is_cut(tokenizer, data, language):
    text, counter = haystack(tokenizer, language)
    first, second, stop = sorted(data.draw(st.integers(0, len(text))) for _ in range(3))
    one, other, tail = (
        tokenizer.index(data.draw(st.sampled_from(INSERTS)).encode()) for _ in range(3)
    )
    pieces = [
        text.span(0, first),
        one.span(),
        text.span(first, second),
        other.span(),
        text.span(second, stop),
    ]
    assert counter.windowed
    assert counter.count([*pieces, tail.span()]) == whole(tokenizer, [*pieces, tail.span()])


def test_only_windows_around_the_seams_are_tokenised_again():
    tokenizer = Counted(load("cl100k_base"))
    text = tokenizer.index("".join(Generated().document(n).text for n in range(10)).encode())
    counter = SeamCounter(tokenizer, text, Cuts.of(text))
    tokenizer.bytes = 0
    spans = [text.span(0, 5000), tokenizer.index(b"\nA fact.\n").span(), text.span(5000, 10_000)]
    assert counter.count(spans) == whole(tokenizer.real, spans)
    assert tokenizer.bytes < 1500
    tokenizer.bytes = 0
    counter.count(spans)
    assert tokenizer.bytes == 0  # remembered


def test_a_vocabulary_whose_counts_do_not_add_up_is_counted_as_a_whole():
    tokenizer = Bytes()
    text = tokenizer.index(b"one two three four. " * 100)
    counter = SeamCounter(tokenizer, text, Cuts.of(text))
    assert not counter.windowed
    assert counter.count([text.span(0, 500), text.span(600, 1500)]) == 499 + 900 + 1


def test_a_text_without_safe_cuts_is_counted_as_a_whole():
    tokenizer = load("cl100k_base")
    text = tokenizer.index("字".encode() * 9000)
    counter = SeamCounter(tokenizer, text, Cuts.of(text))
    assert not counter.windowed
    assert counter.count([text.span()]) == len(text)


def test_spans_that_are_sent_as_ids_have_no_seams():
    text = load("cl100k_base").index(b"one two three four")
    assert SpanCounter().count([text.span(0, 1), text.span(1, 2), text.span(0, 4)]) == 6


class Counted:
    """Counts the bytes that it is asked to tokenise."""

    def __init__(self, real: Tokenizer) -> None:
        self.real, self.name, self.fingerprint, self.additive = (
            real,
            "counted",
            "counted",
            real.additive,
        )
        self.bytes = 0

    def index(self, data: bytes) -> TokenText:
        return self.real.index(data)

    def count(self, data: bytes) -> int:
        self.bytes += len(data)
        return self.real.count(data)

    count_inside = count


class Bytes:
    """One token a byte, and one for each text's beginning: no cut is safe."""

    name = fingerprint = "bytes"
    additive = True

    def index(self, data: bytes) -> TokenText:
        ends = np.arange(-1, len(data) + 1, dtype=np.int64).clip(0)
        return TokenText(data, np.zeros(len(data) + 1, np.int32), ends)

    def count(self, data: bytes) -> int:
        return len(data) + 1

    count_inside = count
