"""A tokenizer by name: a path, a bundled vocabulary, a model's name, the hub; never a silent
substitute."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from needlemap.errors import VocabularyMissing
from needlemap.servers.gauge.checkpoint import write_checkpoint
from needlemap.settings.reading import configure
from needlemap.tokenizers import BUNDLED, Bundled, bundled_for, load, path_of
from needlemap.tokenizers.huggingface import HuggingFace, SentencePiece
from needlemap.trials.resolve import resolve


@pytest.mark.parametrize(
    ("name", "vocabulary"),
    [
        ("cl100k_base", "cl100k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-4-1106-preview", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("gpt-4o", "o200k_base"),
        ("gpt-4o-mini", "o200k_base"),
        ("ft:gpt-4o-mini:org::id", "o200k_base"),
        ("openai/gpt-4.1-nano", "o200k_base"),
        ("o3-mini", "o200k_base"),
        ("gpt-5", "o200k_base"),
        ("openai/gpt-oss-120b", "o200k_harmony"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3"),
        ("meta-llama/Meta-Llama-3-8B", "llama3"),
        ("llama3.2:3b", "llama3"),
        ("Qwen/Qwen2.5-7B", "qwen3"),
        ("Qwen/Qwen3-8B", "qwen3"),
        ("qwen3:8b", "qwen3"),
        # Others of these families have another vocabulary, or one that is unknown here.
        ("Qwen/Qwen3.5-27B", None),
        ("Qwen/Qwen-7B", None),
        ("meta-llama/Llama-2-7b", None),
        ("meta-llama/Llama-4-Scout", None),
        ("gpt-4.9", None),
        ("gpt-2", None),
        ("claude-2", None),
        ("davinci", None),
    ],
)
def test_a_models_name_means_its_own_vocabulary_or_none(name, vocabulary):
    assert bundled_for(name) == vocabulary


def test_a_models_name_loads_without_a_network():
    tokenizer = load("Qwen/Qwen2.5-7B")
    assert isinstance(tokenizer, Bundled)
    assert tokenizer.fingerprint.startswith("quicktok:qwen3:")


def test_a_tokenizer_is_loaded_once():
    assert load("gpt-4") is load("gpt-4")


def test_paths_to_files_and_folders(vocabularies: Path, tmp_path: Path):
    assert isinstance(load(str(vocabularies / "byte-level.json")), HuggingFace)
    assert isinstance(load(str(vocabularies / "unigram.model")), SentencePiece)
    shutil.copy(vocabularies / "unigram.model", tmp_path / "tokenizer.model")
    assert isinstance(load(str(tmp_path)), SentencePiece)
    (tmp_path / "sub").mkdir()
    for name, file in (("byte-level.json", "tokenizer.json"), ("unigram.model", "tokenizer.model")):
        shutil.copy(vocabularies / name, tmp_path / "sub" / file)
    tokenizer = load(str(tmp_path / "sub"))
    assert isinstance(tokenizer, HuggingFace)
    assert tokenizer.name == str(tmp_path / "sub")


@pytest.mark.parametrize("name", [*BUNDLED, "gpt-4", "qwen3:8b", "quicktok:llama3"])
def test_a_bundled_name_means_the_bundled_vocabulary_wherever_it_is_typed(
    name, vocabularies, tmp_path, monkeypatch
):
    """A cloned repository's folder of that name was taken for it, also where a preset names it."""
    (tmp_path / name).mkdir()
    shutil.copy(vocabularies / "byte-level.json", tmp_path / name / "tokenizer.json")
    monkeypatch.chdir(tmp_path)
    load.cache_clear()
    assert isinstance(load(name), Bundled)
    assert path_of(name) is None
    assert isinstance(load(f"./{name}"), HuggingFace)


@pytest.mark.parametrize(("name", "is_read"), [("cl100k_base", False), ("./tokenizer.json", True)])
def test_a_chat_template_of_the_current_folder_is_read_where_it_is_named(
    name, is_read, tmp_path, monkeypatch
):
    """It was rendered for every server whose vocabulary is bundled."""
    write_checkpoint(tmp_path)
    monkeypatch.chdir(tmp_path)
    load.cache_clear()
    settings = configure(None, {"model": "openai/m", "tokenizer": name})
    assert (resolve(settings).reader is not None) == is_read


def test_a_path_that_is_not_there_is_no_bundled_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(VocabularyMissing, match=r"Unknown tokenizer './gpt-4'"):
        load("./gpt-4")


def test_a_plug_in_may_be_named_with_its_vocabulary(vocabularies: Path):
    assert isinstance(load("quicktok:llama3"), Bundled)
    assert isinstance(load(f"huggingface:{vocabularies / 'byte-level.json'}"), HuggingFace)
    assert isinstance(load(f"sentencepiece:{vocabularies / 'bpe.model'}"), SentencePiece)


def test_an_unknown_name_names_the_places_and_what_is_at_hand():
    with pytest.raises(VocabularyMissing) as caught:
        load("cl100k")
    text = str(caught.value)
    assert "Unknown tokenizer 'cl100k'. Looked for a file or folder at /" in text
    assert (
        "Did you mean 'cl100k_base'? Known: cl100k_base, llama3, o200k_base, o200k_harmony, qwen3."
        in text
    )


@pytest.mark.parametrize(
    "name", ["models/mine/tokenizer.json", "mine/tokenizer.json", "./mine", "~/nowhere"]
)
def test_a_path_that_is_not_there_is_not_looked_for_on_the_hub(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(VocabularyMissing, match=r"Looked for a file or folder at /"):
        load(name)


@pytest.mark.parametrize(
    ("file", "raw"),
    [("t.json", b"{}"), ("t.json", b"\xff"), ("t.json", b"not json"), ("t.model", b"xx")],
)
def test_a_broken_file_is_named(tmp_path, file, raw):
    (tmp_path / file).write_bytes(raw)
    with pytest.raises(
        VocabularyMissing, match=rf"{file}' (cannot be read|is not a sentencepiece tokenizer): "
    ):
        load(str(tmp_path / file))


def test_a_plug_in_that_cannot_read_its_vocabulary_says_so():
    with pytest.raises(
        VocabularyMissing, match=r"'nowhere.json' is not a huggingface tokenizer: .*No such file"
    ):
        load("huggingface:nowhere.json")


def test_a_folder_without_a_tokenizer_is_an_error(tmp_path):
    with pytest.raises(
        VocabularyMissing, match=r"it holds none of tokenizer\.json, tokenizer\.model"
    ):
        load(str(tmp_path))


def test_a_hub_name_that_cannot_be_had_names_cache_and_remedy(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(VocabularyMissing) as caught:
        load("nobody/no-such-model")
    text = str(caught.value)
    assert "No tokenizer for 'nobody/no-such-model'. Looked for a file or folder at /" in text
    assert "on the hub (tokenizer.json: " in text
    assert "Download its tokenizer.json and give its path. Bundled: cl100k_base" in text


def test_a_hub_name_in_the_cache_needs_no_network(monkeypatch, tmp_path, vocabularies):
    cache = tmp_path / "models--org--mine"
    (cache / "snapshots" / "abc").mkdir(parents=True)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("abc")
    shutil.copy(vocabularies / "byte-level.json", cache / "snapshots" / "abc" / "tokenizer.json")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert load("org/mine").name == "org/mine"


def test_without_the_hub_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(VocabularyMissing, match=r"python3 -m pip install 'huggingface-hub>=0\.34'"):
        load("nobody/another")


def test_without_the_sentencepiece_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(
        VocabularyMissing,
        match=r"needs 'sentencepiece'.*install 'sentencepiece>=0\.2\.1'",
    ):
        SentencePiece("any.model")
