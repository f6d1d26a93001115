"""The vocabularies of quicktok: equal to tiktoken's, and checked before they are trusted."""

from __future__ import annotations

import pytest

from needlemap.errors import VocabularyMissing
from needlemap.tokenizers import BUNDLED, Bundled, bundled, load

GOLDEN = {  # tiktoken's ids of the text below
    "cl100k_base": [9906, 1917, 11, 220, 57668, 53901, 0],
    "o200k_base": [13225, 2375, 11, 220, 177519, 0],
}


def test_the_catalogue_lists_them_all():
    assert {load(name).name for name in BUNDLED} == {*BUNDLED} >= {*GOLDEN}


@pytest.mark.parametrize("name", GOLDEN)
def test_ids_are_the_reference_implementations(name):
    assert Bundled(name).index("Hello world, 你好!".encode()).ids.tolist() == GOLDEN[name]


@pytest.mark.parametrize("name", ["cl100k_base", "llama3"])
def test_a_vocabulary_that_tokenises_otherwise_than_checked_is_refused(name, monkeypatch):
    monkeypatch.setitem(bundled._PROBES, name, "0" * 16)
    with pytest.raises(
        VocabularyMissing, match=rf"tokenises '{name}' in a way that was not checked.*pip install"
    ):
        Bundled(name)


def test_qwen_brings_text_to_nfc_as_its_own_tokenizer_does():
    made = Bundled("qwen3").index("cafe\u0301".encode())
    assert made.data == "café".encode()
    assert Bundled("cl100k_base").index("cafe\u0301".encode()).data == "cafe\u0301".encode()


def test_an_unknown_vocabulary_is_an_error():
    with pytest.raises(
        VocabularyMissing,
        match=r"'cl10k_base' is no vocabulary of quicktok's. Did you mean 'cl100k",
    ):
        Bundled("cl10k_base")


def test_the_fingerprint_changes_with_the_vocabulary():
    assert Bundled("llama3").fingerprint == "quicktok:llama3:047343913489b279"
    assert len({Bundled(name).fingerprint for name in BUNDLED}) == len(BUNDLED)
