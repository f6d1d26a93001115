"""How the `hf` back end loads a model: on several devices, quantised, with code of its own."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from needlemap.asking.session import make_model
from needlemap.errors import SettingsError, VocabularyMissing
from needlemap.models import Answer, Decoding
from needlemap.settings.reading import configure
from needlemap.trials import Trial
from needlemap.trials.build import prepare

torch = pytest.importorskip("torch", reason="needs torch: python3 -m pip install '.[hf]'")
pytest.importorskip("transformers", reason="needs transformers: python3 -m pip install '.[hf]'")

from needlemap.models.hf import HuggingFaceModel  # noqa: E402
from needlemap.models.model_files import Loading, load_model  # noqa: E402

Folders = Callable[..., Path]
Trials = Callable[..., list[Trial]]
SHORT = Decoding(max_answer_tokens=6)


async def _ask(model: HuggingFaceModel, asked: list[Trial]) -> list[Answer]:
    try:
        return [await model.answer(trial.prompt, SHORT) for trial in asked]
    finally:
        await model.close()


def ask(folder: Path, asked: list[Trial], **options: Any) -> list[Answer]:
    return asyncio.run(_ask(HuggingFaceModel(str(folder), **options), asked))


@pytest.fixture
def folder(folders: Folders) -> Path:
    return folders("llama")


@pytest.fixture
def asked(trials: Trials, folder: Path) -> list[Trial]:
    return trials(folder, "bins")[:8]


def texts(answers: list[Answer]) -> list[str]:
    return [answer.text for answer in answers]


# --- several devices


def spread_over(*places: str) -> dict[str, str]:
    """Where each part of the two-layer model goes: embeddings, first layer, second layer, rest."""
    parts = ("model.embed_tokens", "model.layers.0", "model.layers.1", "model.norm")
    whole = dict(zip(parts, places, strict=True))
    return {**whole, "model.rotary_emb": places[0], "lm_head": places[3]}


@pytest.fixture
def accelerate() -> None:
    pytest.importorskip("accelerate", reason="needs accelerate: pip install accelerate")


@pytest.mark.usefixtures("accelerate")
@pytest.mark.parametrize(
    "options",
    [
        {"device_map": "cpu"},
        {"device_map": "auto"},
        {"device_map": "auto", "max_memory": {"cpu": "2GiB"}},
        {"device_map": spread_over("cpu", "cpu", "disk", "cpu")},
        {"device_map": spread_over("disk", "cpu", "disk", "cpu")},
    ],
    ids=["cpu", "auto", "max_memory", "one layer on disk", "embeddings on disk"],
)
def test_a_spread_model_answers_as_one_on_one_device_from_one_cache(
    folder: Path, asked: list[Trial], tmp_path: Path, options: dict[str, Any]
) -> None:
    if "disk" in str(options):
        options = {**options, "offload_folder": str(tmp_path)}
    expected, found = ask(folder, asked), ask(folder, asked, **options)
    assert texts(found) == texts(expected)
    assert len(set(texts(found))) > 1
    assert [answer.cached_tokens for answer in found] == [
        answer.cached_tokens for answer in expected
    ]
    assert sum(answer.cached_tokens or 0 for answer in found) > 500


@pytest.mark.usefixtures("accelerate")
def test_each_layers_cache_lies_where_its_layer_computes(folder: Path, asked: list[Trial]) -> None:
    from needlemap.models.hf_engine import HuggingFaceEngine
    from needlemap.models.model_files import Loading, load_model
    from needlemap.models.walk import Walk

    model = load_model(str(folder), Loading(device_map=spread_over("cpu", "cpu", "cpu", "cpu")))
    engine = HuggingFaceEngine(model, chunk_tokens=64)
    walk = Walk(engine, [])
    for trial in asked[:3]:
        walk.ask(trial.prompt.ids, 2)
        devices = [layer.keys.device for layer in engine.cache.layers]
        computing = [next(layer.parameters()).device for layer in model.model.layers]
        assert devices == computing
        assert all(layer.keys.shape[-2] == trial.prompt.tokens for layer in engine.cache.layers)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_memory": {"cpu": "1GiB"}}, "add --model-options device_map=auto"),
        ({"offload_folder": "x"}, "add --model-options device_map=auto"),
        ({"device_map": "auto", "device": "cpu"}, "not both"),
        ({"device_map": "everywhere"}, "everywhere"),
        ({"attn_implementation": "careful"}, "careful"),
        ({"max_memory": 3}, "Option 'max_memory'"),
    ],
)
def test_options_that_cannot_be_met_are_refused(
    folder: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        HuggingFaceModel(str(folder), **options)


def test_both_ways_to_compute_attention_answer_alike(folder: Path, asked: list[Trial]) -> None:
    found = {way: ask(folder, asked, attn_implementation=way) for way in ("eager", "sdpa")}
    assert texts(found["eager"]) == texts(found["sdpa"])
    assert len(set(texts(found["sdpa"]))) > 1


# --- models that are not asked


def spoilt(folder: Path, tmp_path: Path, **config: Any) -> Path:
    """The model's folder with another configuration."""
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    (copy / "config.json").write_text(json.dumps(config))
    return copy


def test_an_encoder_decoder_is_refused_in_one_sentence(folder: Path, tmp_path: Path) -> None:
    copy = spoilt(folder, tmp_path, model_type="t5", is_encoder_decoder=True)
    with pytest.raises(SettingsError, match=r"\(t5\) is an encoder-decoder") as refused:
        HuggingFaceModel(str(copy))
    assert len(str(refused.value)) < 400


def test_what_transformers_has_no_causal_class_for_is_refused_in_one_sentence(
    folder: Path, tmp_path: Path
) -> None:
    copy = spoilt(folder, tmp_path, model_type="vit")
    with pytest.raises(SettingsError, match=r"no causal language model: .* 'vit'") as refused:
        HuggingFaceModel(str(copy))
    assert len(str(refused.value)) < 400


# --- quantised weights


@pytest.mark.parametrize(
    ("fields", "shares"),
    [
        ({"load_in_8bit": True}, False),  # rounds by what all tokens of a pass are
        ({"load_in_4bit": True, "llm_int8_skip_modules": ["down_proj", "lm_head"]}, True),
    ],
    ids=["8 bit", "4 bit"],
)
def test_quantised_weights_answer_as_from_an_empty_cache(
    folder: Path, asked: list[Trial], fields: dict[str, Any], shares: bool
) -> None:
    pytest.importorskip("bitsandbytes", reason="needs bitsandbytes: pip install bitsandbytes")
    found = ask(folder, asked, quantization_config=fields)
    alone = [ask(folder, [trial], quantization_config=fields)[0] for trial in asked[:3]]
    assert texts(found)[:3] == texts(alone)
    assert (sum(answer.cached_tokens or 0 for answer in found) > 500) == shares
    assert texts(found) != texts(ask(folder, asked))  # coarser weights do answer otherwise


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"load_in_4bit": True, "bnb_4bit_quant_typ": "nf4"}, "Did you mean 'bnb_4bit_quant_type'"),
        ({"quant_method": "gptk"}, "gptk"),
        ({"bits": 4}, "quant_method"),
    ],
)
def test_a_misspelt_quantisation_is_refused(
    folder: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        HuggingFaceModel(str(folder), quantization_config=fields)


def test_a_quantised_folder_that_lacks_its_package_says_what_to_install(
    folder: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    config = json.loads((copy / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(SettingsError, match="pip install"):
        HuggingFaceModel(str(copy))


# --- code of its own

OWN = """
import pathlib
from transformers import LlamaConfig, LlamaForCausalLM
class OwnConfig(LlamaConfig):
    model_type = "never-heard-of"
class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig
    def forward(self, *args, **kwargs):
        pathlib.Path({path!r}).touch()
        return super().forward(*args, **kwargs)
"""


@pytest.fixture
def own(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model, of a kind that only its own file knows."""
    monkeypatch.setattr(
        "transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules")
    )
    copy = Path(shutil.copytree(folder, tmp_path / "own"))
    config = json.loads((copy / "config.json").read_text())
    named = {"AutoConfig": "own_code.OwnConfig", "AutoModelForCausalLM": "own_code.OwnModel"}
    config |= {"auto_map": named, "model_type": "never-heard-of", "architectures": ["OwnModel"]}
    (copy / "config.json").write_text(json.dumps(config))
    (copy / "own_code.py").write_text(OWN.format(path=str(tmp_path / "trace")))
    return copy


def settings(folder: Path, **more: Any) -> Any:
    given = {
        "model": f"hf/{folder}",
        "lengths": "300",
        "depths": "50",
        "max_answer_tokens": 6,
        **more,
    }
    return configure(None, given)


def test_a_models_own_code_is_not_run_unasked(own: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--trust-remote-code") as refused:
        make_model(settings(own))
    assert "with all that you may do here" in str(refused.value)
    assert not (tmp_path / "trace").exists()


def test_a_models_own_code_runs_when_it_is_trusted(
    own: Path, folder: Path, asked: list[Trial], tmp_path: Path
) -> None:
    model = make_model(settings(own, trust_remote_code=True))
    assert isinstance(model, HuggingFaceModel)
    assert texts(asyncio.run(_ask(model, asked))) == texts(ask(folder, asked))
    assert (tmp_path / "trace").exists()


def test_a_tokenizer_that_is_code_is_told_how_to_become_a_file(own: Path) -> None:
    (own / "tokenizer.json").unlink()
    with pytest.raises(VocabularyMissing) as plain:
        prepare(settings(own))
    assert "trust_remote_code" not in str(plain.value)
    config = json.loads((own / "tokenizer_config.json").read_text())
    config["auto_map"] = {"AutoTokenizer": ["own_tokens.OwnTokenizer", None]}
    (own / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(VocabularyMissing, match=r"runs its own code: .*trust_remote_code=True"):
        prepare(settings(own))


def test_trusted_code_is_part_of_a_trials_identity(own: Path) -> None:
    plain, trusted = prepare(settings(own)), prepare(settings(own, trust_remote_code=True))
    assert plain.trials[0].key != trusted.trials[0].key
    code = own / "own_code.py"
    code.write_text(code.read_text() + "# changed\n")
    changed = prepare(settings(own, trust_remote_code=True))
    assert changed.trials[0].key != trusted.trials[0].key


def test_more_layers_than_any_model_has_are_refused_before_they_are_built(
    folder: Path, tmp_path: Path
) -> None:
    """A billion layers never ended."""
    absurd = Path(shutil.copytree(folder, tmp_path / "absurd"))
    config = json.loads((absurd / "config.json").read_text())
    (absurd / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 10**9}))
    with pytest.raises(SettingsError, match=r"names 1,000,000,000 layers"):
        load_model(str(absurd), Loading(device="cpu"))


@pytest.mark.parametrize(
    "odd",
    [
        {"num_hidden_layers": "two"},
        {"hidden_size": -1},
        {"vocab_size": []},
        {"model_type": 5},
        {"dtype": "x"},
    ],
)
def test_a_configuration_of_wrong_values_is_words(
    folder: Path, tmp_path: Path, odd: dict[str, Any]
) -> None:
    spoilt = Path(shutil.copytree(folder, tmp_path / "spoilt"))
    config = json.loads((spoilt / "config.json").read_text())
    (spoilt / "config.json").write_text(json.dumps({**config, **odd}))
    with pytest.raises(SettingsError, match="cannot be loaded by transformers"):
        load_model(str(spoilt), Loading(device="cpu"))


def test_trust_is_given_in_one_way_and_only_where_code_runs(folder: Path) -> None:
    given = {"model_options": {"trust_remote_code": True}}
    with pytest.raises(SettingsError, match="Type: --trust-remote-code"):
        prepare(settings(folder).model_copy(update=given))
    with pytest.raises(SettingsError, match="it needs a model of hf or lmdeploy"):
        configure(None, {"model": "openai/m", "tokenizer": "qwen3", "trust_remote_code": True})
