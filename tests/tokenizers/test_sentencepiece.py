"""A SentencePiece model: its byte offsets, and pieces counted without the space it puts before a
text."""

from __future__ import annotations

import pytest

from needlemap.errors import VocabularyMissing
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


def test_a_model_that_makes_gigabytes_of_a_text_is_refused_in_words(tmp_path):
    """Its own normalizer had neither time nor memory limits, as that of a tokenizer.json has."""
    import sentencepiece

    rules, lines, file = tmp_path / "rules.tsv", tmp_path / "lines", tmp_path / "t.model"
    rules.write_text(f"65\t{' '.join(['42'] * 2000)}\n")
    lines.write_text("\n".join(f"the quick brown fox {number}" for number in range(400)))
    sentencepiece.SentencePieceTrainer.train(
        input=str(lines),
        model_prefix=str(file.with_suffix("")),
        vocab_size=120,
        hard_vocab_limit=False,
        normalization_rule_tsv=str(rules),
        minloglevel=2,
    )
    tokenizer = SentencePiece(file)
    assert tokenizer.count(b"fox") > 0
    with pytest.raises(VocabularyMissing, match="cannot tokenise a text: it takes more than"):
        tokenizer.count(b"e" * 200_000)
    assert tokenizer.count(b"fox") > 0
