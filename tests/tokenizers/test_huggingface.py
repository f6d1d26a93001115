"""A tokenizer.json of any kind: bytewise ones in pieces, others by the library's own offsets."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, normalizers, pre_tokenizers

from needlemap.errors import NeedlemapError, VocabularyMissing
from needlemap.haystacks.generated import Generated
from needlemap.tokenizers import huggingface
from needlemap.tokenizers.huggingface import HuggingFace


@pytest.fixture(scope="module")
def byte_level(vocabularies: Path) -> HuggingFace:
    return HuggingFace(vocabularies / "byte-level.json")


def changed(
    vocabularies: Path, tmp_path: Path, name: str = "byte-level.json", **parts: object
) -> HuggingFace:
    """The vocabulary with another normaliser or pre-tokeniser."""
    made = Tokenizer.from_file(str(vocabularies / name))
    for part, value in parts.items():
        setattr(made, part, value)
    made.save(str(tmp_path / "tokenizer.json"))
    return HuggingFace(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("language", ["english", "chinese"])
def test_a_long_text_in_pieces_has_the_ids_of_the_whole(byte_level, language):
    source = Generated(language=language)
    text = "\n\n".join(source.document(number).text for number in range(60))
    assert len(text) > 70_000
    assert byte_level.index(text.encode()).ids.tolist() == byte_level._encode(text).ids


def test_a_long_text_without_a_place_to_cut_is_one_piece(byte_level):
    text = "字" * 70_000
    assert byte_level.index(text.encode()).ids.tolist() == byte_level._encode(text).ids


def test_bytes_of_a_character_have_offsets_inside_it(vocabularies):
    made = HuggingFace(vocabularies / "byte-level.json").index("🙂".encode())
    assert made.offsets.tolist() == list(range(len(made) + 1))


def test_a_normalised_text_is_the_one_that_is_cut(vocabularies, tmp_path):
    tokenizer = changed(vocabularies, tmp_path, normalizer=normalizers.NFC())
    made = tokenizer.index("cafe\u0301 later".encode())
    assert made.data == "café later".encode()
    assert len(made) == tokenizer.count("cafe\u0301 later".encode())


def test_one_that_puts_a_space_before_a_text_is_not_additive(vocabularies, tmp_path):
    """Its pieces would each get a space: the ids of a long text would be others."""
    spaced = changed(
        vocabularies, tmp_path, pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True)
    )
    assert not spaced.additive
    text = "\n\n".join(Generated(language="chinese").document(number).text for number in range(30))
    made = spaced.index(text.encode())
    assert made.ids.tolist() == spaced._encode(text).ids
    assert (made.offsets[0], made.offsets[-1]) == (0, len(text.encode()))
    assert spaced.count_inside(b" word") == spaced.count(b"a word") - spaced.count(b"a")


def test_special_tokens_are_read_as_such_only_on_request(vocabularies):
    path = vocabularies / "byte-level.json"
    assert HuggingFace(path, special=True).count(b"<|im_end|>") == 1
    assert HuggingFace(path).count(b"<|im_end|>") > 1


def test_truncation_and_padding_of_the_file_are_off(vocabularies, tmp_path, byte_level):
    data = json.loads((vocabularies / "byte-level.json").read_text())
    data["truncation"] = {
        "direction": "Right",
        "max_length": 4,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    data["padding"] = {
        "strategy": {"Fixed": 64},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<|endoftext|>",
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    text = b"one two three four five six seven"
    assert HuggingFace(tmp_path / "tokenizer.json").count(text) == byte_level.count(text) > 4


def test_the_fingerprint_is_that_of_the_file(vocabularies, tmp_path, byte_level):
    copy = tmp_path / "copy.json"
    copy.write_bytes((vocabularies / "byte-level.json").read_bytes())
    assert HuggingFace(copy).fingerprint == byte_level.fingerprint
    copy.write_bytes(copy.read_bytes() + b"\n")
    assert HuggingFace(copy).fingerprint != byte_level.fingerprint


def test_a_name_is_the_path_unless_given(byte_level, vocabularies):
    assert byte_level.name == str(vocabularies / "byte-level.json")
    assert HuggingFace(vocabularies / "byte-level.json", "org/model").name == "org/model"


def test_a_cut_between_words_keeps_the_words_of_a_metaspace_vocabulary(vocabularies):
    made = HuggingFace(vocabularies / "metaspace.json").index(b"the town and the river")
    starts = {bytes(made.data[place : place + 3]) for place in made.offsets.tolist()}
    assert {b" an", b" th"} <= starts
    assert np.diff(made.offsets).min() >= 0


def test_a_pattern_that_never_ends_is_words_and_not_a_wait(vocabularies, tmp_path, monkeypatch):
    """A stranger's tokenizer.json may split by a pattern whose time grows by the cube of a text."""
    made = json.loads((vocabularies / "byte-level.json").read_text("utf-8"))
    slow = {"Regex": "[^一]{0,1500}[^一]{0,1500}[一二]"}
    split = {"type": "Split", "pattern": slow, "behavior": "Isolated", "invert": False}
    made["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, made["pre_tokenizer"]]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(made), encoding="utf-8")
    monkeypatch.setattr(huggingface, "SECONDS", 1)
    tokenizer = HuggingFace(tmp_path / "tokenizer.json")
    with pytest.raises(
        VocabularyMissing, match=r"cannot tokenise a text: .* characters take it more than 1 s"
    ):
        tokenizer.index(b"The harbour was quiet. " * 300)


def bomb(vocabularies: Path, folder: Path, **changed: object) -> Path:
    """A sound vocabulary with a stranger's normalizer."""
    data = json.loads((vocabularies / "metaspace.json").read_text())
    file = folder / "tokenizer.json"
    file.write_text(json.dumps({**data, **changed}))
    return file


def replaced(old: dict[str, str], new: str) -> dict[str, object]:
    return {"type": "Replace", "pattern": old, "content": new}


EIGHT = [replaced({"String": "e"}, "e" * 40)] * 8
NORMALIZERS = {
    "eight that replace": {"type": "Sequence", "normalizers": EIGHT},
    "eight in one another": {
        "type": "Sequence",
        "normalizers": [{"type": "Sequence", "normalizers": EIGHT}],
    },
    "one by a pattern": {
        "type": "Sequence",
        "normalizers": [replaced({"Regex": "."}, "x" * 60)] * 6,
    },
    "a long beginning": {"type": "Prepend", "prepend": "e" * 3_000_000},
}


@pytest.mark.parametrize(
    "normalizer",
    [pytest.param(value, id=name) for name, value in NORMALIZERS.items()],
)
def test_a_normalizer_that_makes_gigabytes_is_refused_in_words(vocabularies, tmp_path, normalizer):
    """The library ended the process, or never came to an end."""
    file = bomb(vocabularies, tmp_path, normalizer=normalizer)
    with pytest.raises(VocabularyMissing, match=r"cannot (be read|normalise a text)"):
        HuggingFace(file).count(b"The needle is here, everywhere.")


def test_a_normalizer_as_vocabularies_have_it_is_followed(vocabularies, tmp_path):
    usual = [{"type": "Prepend", "prepend": "▁"}, replaced({"String": " "}, "▁")]
    for several in (usual, [*usual, replaced({"Regex": " {2,}"}, "  ")]):
        sequence = {"type": "Sequence", "normalizers": several}
        file = bomb(vocabularies, tmp_path, normalizer=sequence)
        assert HuggingFace(file).count(b"The needle is here.") > 3


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_vocabulary_that_is_no_file_is_refused(tmp_path, kind):
    """Reading a pipe that nobody writes to never ends, and /dev/zero takes all memory."""
    file = tmp_path / "tokenizer.json"
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero")
    with pytest.raises(NeedlemapError, match="a pipe, a device or a socket"):
        HuggingFace(file)
