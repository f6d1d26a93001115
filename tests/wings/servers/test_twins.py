"""Twins: a tiny random model of any architecture, whose answers depend on all of the context."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from needlemap.errors import SettingsError
from needlemap.servers.cli import gauge
from needlemap.servers.gauge import twins
from needlemap.servers.gauge.architectures import (
    ARCHITECTURES,
    Shape,
    head_counts,
    layers_for_each_kind,
    named_shape,
    read_own_config,
    row_of,
    shrunk_shape,
)

WHY = "needs torch: python3 -m pip install '.[hf]'"
SHORT = (512,)  # the length that a twin must hold; longer ones only say how far it does
QUICK = ("qwen3", "gemma3", "nemotron_h")  # full attention; windows; states, experts
pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers and torch


def written(like: str, folder: Path, seed: int = 1) -> twins.Twin:
    pytest.importorskip("torch", reason=WHY)
    pytest.importorskip("transformers", reason=WHY)
    return twins.write_twin(twins.shape_of(like), folder, seed, SHORT)


@pytest.fixture(scope="module", params=QUICK)
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[twins.Twin, Path]:
    folder = tmp_path_factory.mktemp("twin") / request.param
    return written(request.param, folder), folder


def test_every_tenth_of_the_context_moves_the_next_token(made):
    twin, _ = made
    assert twin.holds_tokens == 512
    assert twin.least_nats >= twins.LEAST_NATS


def test_cached_passes_of_transformers_agree_with_one_pass(made):
    twin, _ = made
    assert twin.cached_nats < 1e-3


def test_the_reference_is_kept_beside_it(made):
    """Each answer in printable characters, with the log-probability of each of its letters."""
    _, folder = made
    rows = [json.loads(line) for line in (folder / twins.REFERENCE).read_text("utf-8").splitlines()]
    assert sorted({len(row["prompt"]) for row in rows}) == list(twins.REFERENCE_LENGTHS)
    for row in rows:
        assert len(row["answer"]) == len(row["top"]) == twins.ANSWER
        assert set(row["answer"]) <= set(twins.PRINTABLE)
        for letter, top in zip(row["answer"], row["top"], strict=True):
            assert max(top, key=lambda text: top[text]) == letter
            assert all(nats < 0 for nats in top.values())


def test_each_text_is_spelt_in_one_way(made):
    import tokenizers

    _, folder = made
    vocabulary = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = "".join(twins.PRINTABLE) + '  Two  spaces, \n\nlines, 1234567, it\'s {"a": [1]} \\ end '
    ids = vocabulary.encode(text, add_special_tokens=False).ids
    assert ids == [twins.TOKENS.index(letter) for letter in text]
    assert vocabulary.decode(ids) == text


def assert_spells_alike(folder: Path) -> None:
    """transformers takes another class of tokenizer for each architecture: one added a token to
    the vocabulary of Qwen2's twin, which llama.cpp's converter then refused."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text = "Two  spaces, \n\nlines, 1234567 it's"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert ids == [twins.TOKENS.index(letter) for letter in text]
    assert max(tokenizer.get_vocab().values()) < len(twins.TOKENS)
    assert tokenizer.decode(ids) == text


def test_transformers_loads_it_and_its_template(made):
    import transformers

    _, folder = made
    assert_spells_alike(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    said = [{"role": "user", "content": "hi"}]
    text = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    assert text == "user: hi\nassistant: "
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert model.config.vocab_size == len(twins.TOKENS)


def test_a_seed_draws_the_same_bytes_and_another_one_others(tmp_path):
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        written("qwen2", tmp_path / folder, seed)
    one, same, other = (
        (tmp_path / folder / "model.safetensors").read_bytes() for folder in ("a", "b", "c")
    )
    assert one == same != other
    assert_spells_alike(tmp_path / "a")


def test_weights_are_exact_in_bfloat16(made):
    """Engines of any data type load the same numbers."""
    import torch
    from safetensors.torch import load_file

    _, folder = made
    for tensor in load_file(folder / "model.safetensors").values():
        assert torch.equal(tensor, tensor.to(torch.bfloat16).to(tensor.dtype))


def test_norms_are_no_constants(made):
    """An engine that leaves a norm's weight out must be seen."""
    from safetensors.torch import load_file

    _, folder = made
    norms = {n: t for n, t in load_file(folder / "model.safetensors").items() if "norm" in n}
    assert norms
    assert all(tensor.std() > 0.05 for tensor in norms.values())


MISTRAL: dict[str, Any] = {
    "model_type": "mistral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-5,
    "sliding_window": 4096,
    "rope_theta": 10000.0,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8"},
}


def test_a_configuration_of_ones_own_keeps_its_kinds(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(MISTRAL))
    written(str(tmp_path / "config.json"), tmp_path / "twin")
    told = json.loads((tmp_path / "twin" / "config.json").read_text("utf-8"))
    assert told["head_dim"] == 128
    assert told["num_attention_heads"] == 4 * told["num_key_value_heads"]
    assert told["rms_norm_eps"] == 1e-5
    assert told["rope_parameters"]["rope_theta"] == 10000.0
    assert told["hidden_size"] == 64
    assert told["sliding_window"] == 256
    assert "quantization_config" not in told


def test_a_model_that_cannot_reach_its_context_is_refused(tmp_path):
    """Three windows of 64 tokens do not see 512."""
    pytest.importorskip("torch", reason=WHY)
    shape = twins.shape_of("mistral")
    fields = {**shape.fields, "sliding_window": 64, "num_hidden_layers": 3}
    with pytest.raises(SettingsError, match="does not heed all of 512 tokens: changing tenth 1 "):
        twins.write_twin(Shape("mistral", fields), tmp_path / "twin")
    assert not (tmp_path / "twin").exists()


def test_sizes_that_transformers_refuses_are_said(tmp_path):
    pytest.importorskip("torch", reason=WHY)
    with pytest.raises(SettingsError, match="transformers cannot make a small 'llama'"):
        twins.write_twin(Shape("llama", {"hidden_size": -1}), tmp_path / "twin")


@pytest.mark.parametrize("like", ["qwen9", "nothing/../at-all", "no folder"])
def test_what_is_no_architecture_is_refused(like, monkeypatch):
    pytest.importorskip("transformers", reason=WHY)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(SettingsError, match="--like"):
        twins.shape_of(like)


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(SettingsError, match="holds other files"):
        twins.write_twin(Shape("llama", {}), tmp_path)


@pytest.mark.parametrize("text", ["[]", "{", '{"hidden_size": 64}', '{"model_type": 3}'])
def test_a_file_that_is_no_configuration_is_refused(text, tmp_path):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(SettingsError, match=r"config\.json"):
        read_own_config(tmp_path)


@pytest.mark.parametrize(
    ("name", "model_type"),
    [
        ("Llama", "llama"),
        ("Qwen3-MoE", "qwen3_moe"),
        ("Gemma 3", "gemma3_text"),
        ("gpt-oss", "gpt_oss"),
        ("DeepSeek V3", "deepseek_v3"),
        ("Qwen3-Next", "qwen3_next"),
        ("Granite 4 hybrid", "granitemoehybrid"),
        ("Nemotron-H", "nemotron_h"),
        ("LFM2", "lfm2"),
        ("Mamba 2", "mamba2"),
        ("Llama 4", "llama4_text"),
        ("Phi", "phi3"),
        ("OLMo", "olmo2"),
        ("GLM", "glm4"),
    ],
)
def test_people_write_names_as_they_like(name, model_type):
    row = row_of(name)
    assert row is not None
    assert row.model_type == model_type


def test_no_name_stands_for_two_architectures():
    names = [name for row in ARCHITECTURES for name in (row.model_type, *row.names)]
    assert len({name.lower().replace(" ", "") for name in names}) == len(names)


@pytest.mark.parametrize(
    ("own", "layers"),
    [
        ({"num_hidden_layers": 32}, 4),
        ({"num_hidden_layers": 2}, 2),
        ({"num_hidden_layers": 12, "layer_types": [*"ssssss", *"fsssss"]}, 7),
        (
            {"num_hidden_layers": 8, "layer_types": [*"ssssffff"], "mlp": [1, 0, 0, 0, 0, 0, 2, 0]},
            7,
        ),
        ({"num_hidden_layers": 48, "first_k_dense_replace": 5}, 6),
        ({"num_hidden_layers": 8, "unlike": [1, 2, 3]}, 4),
    ],
)
def test_there_is_a_layer_of_each_kind(own, layers):
    assert layers_for_each_kind(own, fewest=4) == layers


@pytest.mark.parametrize(
    ("heads", "shared", "small"),
    [(32, 8, (8, 2)), (32, 32, (4, 4)), (8, 1, (8, 1)), (64, None, (4, 4)), (40, 8, (10, 2))],
)
def test_as_many_heads_share_keys_as_in_the_model(heads, shared, small):
    made = head_counts({"num_attention_heads": heads, "num_key_value_heads": shared})
    assert (made["num_attention_heads"], made["num_key_value_heads"]) == small


def test_windows_of_one_of_ones_own_are_short_and_those_it_lacks_stay_away():
    own = {"num_hidden_layers": 26, "sliding_window": None, "head_dim": 256, "attn_bias": True}
    shape = shrunk_shape("gemma2", own)
    assert shape.fields["sliding_window"] is None
    assert shape.fields["head_dim"] == 256
    assert shape.fields["attn_bias"] is True
    assert shrunk_shape("gemma2", {**own, "sliding_window": 4096}).fields["sliding_window"] == 64


def test_sizes_are_only_given_to_those_who_know_them():
    shape = named_shape("smollm3", {"hidden_size": 2048, "sliding_window": None})
    assert shape.fields == {"hidden_size": 64}


def test_the_command_says_what_was_measured(tmp_path, capsys, monkeypatch):
    pytest.importorskip("torch", reason=WHY)
    monkeypatch.setattr(twins, "choose_scale", lambda *_: (2_048, 0.5))
    monkeypatch.setattr(twins, "reference_of", lambda *_: ([], 2e-5))
    gauge.function(tmp_path / "twin", gguf=False, like="smollm3")
    said = " ".join(" ".join(capsys.readouterr()).split())
    assert "a random smollm3 of 4 layers. It finds nothing, and heeds all of 2,048 tokens" in said
    assert "by 0.5 nats or more" in said


def test_without_llama_cpps_converter_a_gguf_is_refused(tmp_path, monkeypatch):
    from needlemap.servers.gauge.gguf import write_twin_gguf

    monkeypatch.setenv("NEEDLEMAP_GGUF_CONVERTER", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsError, match=r"needs llama\.cpp's convert_hf_to_gguf\.py"):
        write_twin_gguf(tmp_path)


def test_what_the_converter_says_last_is_shown(tmp_path, monkeypatch):
    from needlemap.servers.gauge.gguf import write_twin_gguf

    (tmp_path / "convert_hf_to_gguf.py").write_text("raise SystemExit('no such architecture')")
    (tmp_path / "gguf.py").write_text("class GGUFWriter:\n    write_header_to_file = None")
    (tmp_path / "conversion").mkdir()
    (tmp_path / "conversion" / "base.py").write_text("class TextModel: pass")
    monkeypatch.setenv("NEEDLEMAP_GGUF_CONVERTER", str(tmp_path))
    with pytest.raises(SettingsError, match="no such architecture"):
        write_twin_gguf(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("row", ARCHITECTURES, ids=lambda row: row.model_type)
def test_every_architecture_heeds_its_context_and_its_cache(row, tmp_path):
    twin = written(row.model_type, tmp_path)
    assert twin.least_nats >= twins.LEAST_NATS
    assert twin.cached_nats < 1e-3
    assert_spells_alike(tmp_path)
