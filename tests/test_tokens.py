"""A text is tokenised once; spans and joins of it copy no token and lose no byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from needlemap.text.tokens import Span, TokenText, join, tiled


def text(*tokens: bytes) -> TokenText:
    ends = np.cumsum([0, *map(len, tokens)]).astype(np.int64)
    return TokenText(b"".join(tokens), np.arange(len(tokens), dtype=np.int32), ends)


def test_a_span_is_a_run_of_tokens_with_their_bytes():
    span = text(b"one", b" two", b" three").span(1, 3)
    assert (bytes(span.data), span.ids.tolist(), len(span)) == (b" two three", [1, 2], 2)


def test_a_span_without_ends_is_the_whole_text():
    whole = text(b"one", b" two").span()
    assert (bytes(whole.data), len(whole)) == (b"one two", 2)


def test_a_span_shares_the_texts_memory():
    source = text(b"one", b" two")
    assert np.shares_memory(source.span(1).ids, source.ids)
    assert source.span(1).data.obj is source.data


def test_an_empty_span_has_no_bytes():
    assert bytes(Span(text(b"one"), 1, 1).data) == b""


def test_a_text_that_nobody_counts_is_one_unknown_token():
    opaque = TokenText.opaque("für".encode())
    assert (len(opaque), opaque.ids.tolist(), bytes(opaque.span().data)) == (
        1,
        [-1],
        "für".encode(),
    )


def test_joined_texts_keep_their_tokens():
    joined = join([text(b"one", b" two"), text(), text(b" three")])
    assert joined.data == b"one two three"
    assert joined.ids.tolist() == [0, 1, 0]
    assert joined.offsets.tolist() == [0, 3, 7, 13]
    assert (joined.ids.dtype, joined.offsets.dtype) == (np.int32, np.int64)


def test_one_text_joined_is_itself():
    alone = text(b"one")
    assert join([alone]) is alone


def test_nothing_joined_is_an_empty_text():
    assert (len(join([])), join([]).data, join([]).offsets.tolist()) == (0, b"", [0])


@pytest.mark.parametrize(
    ("ends", "size", "offsets"),
    [
        ([2, 2, 2, 6], 6, [0, 2, 3, 4, 6]),  # three tokens of one four-byte character
        ([0, 0, 3], 3, [0, 1, 2, 3]),
        ([0, 1, 2], 2, [0, 0, 1, 2]),  # no byte to move into
        ([2, 4, 4], 6, [0, 2, 4, 6]),  # what is left over belongs to the last
        ([3, 2, 5], 5, [0, 3, 4, 5]),  # never backwards
        ([], 0, [0]),
    ],
)
def test_ends_become_offsets_that_tile_the_bytes(ends, size, offsets):
    assert tiled(np.array(ends, np.int64), size).tolist() == offsets


@given(st.lists(st.integers(0, 30), min_size=1, max_size=20))
def test_offsets_always_rise_from_the_first_byte_to_the_last(ends):
    offsets = tiled(np.array(sorted(ends), np.int64), 30)
    assert (offsets[0], offsets[-1], len(offsets)) == (0, 30, len(ends) + 1)
    assert (np.diff(offsets) >= 0).all()
