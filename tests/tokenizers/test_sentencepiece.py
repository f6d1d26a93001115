"""A SentencePiece model: its byte offsets, and pieces counted without the space it puts before a
text."""

from __future__ import annotations

import pytest

from needlemap.tokenizers.huggingface import SentencePiece

pytest.importorskip("sentencepiece")


@pytest.fixture(scope="module", params=["unigram.model", "bpe.model"])
def tokenizer(request, vocabularies) -> SentencePiece:
    return SentencePiece(vocabularies / request.param)


def test_tokens_begin_at_the_bytes_of_their_words(tokenizer):
    made = tokenizer.index(b"the town and the river")
    assert {3, 8, 12} <= set(made.offsets.tolist())
    assert made.data == b"the town and the river"


def test_a_piece_from_inside_has_no_space_before_it(tokenizer):
    whole = tokenizer.index(b"the town and the river")
    place = whole.offsets.tolist().index(8)
    assert tokenizer.count_inside(b" and the river") == len(whole) - place


def test_it_is_never_taken_for_additive(tokenizer):
    assert tokenizer.additive is False


def test_bytes_of_an_unknown_character_have_offsets_inside_it(vocabularies):
    made = SentencePiece(vocabularies / "bpe.model").index("a🙂".encode())
    assert made.offsets.tolist()[-4:] == [2, 3, 4, 5]


def test_the_fingerprint_is_that_of_the_file(vocabularies):
    files = [vocabularies / "unigram.model", vocabularies / "bpe.model"]
    assert len({SentencePiece(file).fingerprint for file in files}) == 2
