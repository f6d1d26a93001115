"""Every vocabulary: offsets tile the bytes, counts are those of the ids, special-token text is
plain text."""

from __future__ import annotations

import random

import numpy as np
import pytest

from needlemap.text.tokens import Tokenizer
from needlemap.tokenizers import load

BUNDLED = ("cl100k_base", "o200k_base", "o200k_harmony", "llama3", "qwen3")
TRAINED = ("byte-level.json", "metaspace.json", "unigram.model", "bpe.model")
PIECES = (
    *(
        "word",
        " Word",
        " ",
        "  ",
        "\n",
        "\n\n",
        "\t",
        ".",
        "?!",
        "'s",
        "123",
        "naïve",
        "e\u0301",
        "ﬁ",
        "K",
    ),
    *(
        "上海",
        "实验室",
        "。",
        "，",
        "“引”",
        "🙂",
        "👩‍👩‍👧",
        "🇳🇴",
        "\u200b",
        "\u00a0",
        "\ufeff",
        "\x00",
        "İ",
    ),
    *(
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        "<|begin_of_text|>",
        "<s>",
        "</s>",
        "<unk>",
        "[INST]",
    ),
)


@pytest.fixture(scope="module", params=[*BUNDLED, *TRAINED])
def tokenizer(request, vocabularies) -> Tokenizer:
    return load(str(vocabularies / request.param) if "." in request.param else request.param)


def texts(seed: int, count: int) -> list[str]:
    draw = random.Random(seed)
    return ["", *("".join(draw.choices(PIECES, k=draw.randint(1, 40))) for _ in range(count))]


def test_offsets_tile_the_bytes_and_counts_are_the_ids(tokenizer):
    for text in texts(1, 300):
        made = tokenizer.index(text.encode())
        assert (made.ids.dtype, made.offsets.dtype) == (np.int32, np.int64)
        assert len(made.offsets) == len(made.ids) + 1
        assert (made.offsets[0], made.offsets[-1]) == (0, len(made.data))
        assert (np.diff(made.offsets) >= 0).all()
        assert tokenizer.count(text.encode()) == len(made)


def test_bytes_stay_as_they_are_unless_the_vocabulary_normalises(tokenizer):
    for text in texts(2, 50):
        same = tokenizer.index(text.encode()).data == text.encode()
        assert same or tokenizer.name == "qwen3" or len(tokenizer.index(text.encode())) == 0


def test_special_token_text_is_as_many_tokens_as_any_other_text(tokenizer):
    assert tokenizer.count(b"<|endoftext|>") > 1
    assert tokenizer.count(b"a <|im_end|> b") > 3


def test_a_fingerprint_names_the_vocabulary(tokenizer):
    assert tokenizer.fingerprint.split(":")[0] in ("quicktok", "huggingface", "sentencepiece")
    assert tokenizer.name


@pytest.mark.parametrize("name", [*BUNDLED, "byte-level.json"])
def test_every_token_of_a_bytewise_vocabulary_has_its_own_bytes(name, vocabularies):
    tokenizer = load(str(vocabularies / name) if "." in name else name)
    made = tokenizer.index("naïve 上海🙂 <|im_end|>".encode())
    assert (np.diff(made.offsets) > 0).all()
    assert tokenizer.additive
