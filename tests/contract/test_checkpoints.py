"""A checkpoint is asked only if it is whole: all weights are there, are used, and are numbers.

A wrong conversion is just what people map. One with a weight, a layer or all names missing was
asked with random numbers in their place, and the map was one of zeros, exit code 0.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from needlemap.errors import SettingsError

pytest.importorskip("torch", reason="needs torch: python3 -m pip install '.[hf]'")

import torch
from safetensors.torch import load_file, save_file

from needlemap.models.hf import HuggingFaceModel

Change = Callable[[dict[str, Any]], None]
LAST = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture
def checkpoint(folders: Any, tmp_path: Path) -> Callable[..., str]:
    """The tiny llama's folder with other weights, and other words in its config.json."""

    def changed(change: Change, **config: Any) -> str:
        folder = tmp_path / "model"
        shutil.copytree(folders("llama"), folder)
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        known = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(known | config))
        return str(folder)

    return changed


def dropped(*names: str) -> Change:
    return lambda weights: [weights.pop(name) for name in names] and None


def layer_dropped(weights: dict[str, Any]) -> None:
    for name in [name for name in weights if name.startswith("model.layers.1.")]:
        del weights[name]


def renamed(weights: dict[str, Any]) -> None:
    for name in list(weights):
        weights[f"net.{name}"] = weights.pop(name)


def broken(value: float) -> Change:
    def change(weights: dict[str, Any]) -> None:
        weights[LAST][3, 5] = value

    return change


def added(name: str, like: str = LAST) -> Change:
    return lambda weights: weights.__setitem__(name, weights[like].clone())


def layer_added(weights: dict[str, Any]) -> None:
    weights |= {
        name.replace("layers.1.", "layers.2."): weight.clone()
        for name, weight in weights.items()
        if "layers.1." in name
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (dropped(LAST), rf"lacks 1 weight \({LAST}\), which would be random"),
        (layer_dropped, r"lacks 9 weights \(model.layers.1.input_layernorm.weight, "),
        (renamed, r"lacks \d+ weights"),
        (dropped("lm_head.weight"), r"lacks 1 weight \(lm_head.weight\)"),
        (broken(float("nan")), rf"holds NaN or infinity in 1 weight \({LAST}\)"),
        (broken(float("-inf")), "holds NaN or infinity"),
        (added("model.layers.1.mlp.up_proj.bias"), "that its config.json has no place for"),
        (added("model.layers.0.self_attn.q_norm.weight"), "has no place for"),
        (layer_added, r"holds 9 weights \(model.layers.2.input_layernorm.weight, "),
    ],
    ids=["one", "layer", "names", "head", "nan", "inf", "bias", "norm", "further layer"],
)
def test_a_checkpoint_that_is_not_whole_is_refused_in_words(checkpoint, change, said):
    with pytest.raises(SettingsError, match=said):
        HuggingFaceModel(checkpoint(change))


def test_a_run_of_it_asks_nothing(checkpoint, typed):
    folder = checkpoint(dropped(LAST))
    ended = typed("run", "--model", f"hf/{folder}", "--lengths", "500", "--depths", "50", code=2)
    assert f"lacks 1 weight ({LAST})" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("change", "config"),
    [
        (added("model.layers.0.self_attn.rotary_emb.inv_freq"), {}),  # Llama checkpoints of before
        (added("vision_tower.blocks.0.weight"), {}),
        (added("model.visual.merger.weight"), {}),
        (added("mtp.layers.0.weight"), {}),
        (added("score.weight"), {}),
        (dropped("lm_head.weight"), {"tie_word_embeddings": True}),
        (layer_added, {"num_nextn_predict_layers": 1}),
        (added("model.layers.0.self_attn.k_scale"), {}),
    ],
    ids=["frequencies", "tower", "inner tower", "draft", "score", "tied", "next tokens", "scales"],
)
def test_what_a_model_rightly_does_without_is_no_reason(checkpoint, change, config):
    model = HuggingFaceModel(checkpoint(change, **config))
    assert model.name


def test_logits_that_are_no_numbers_are_refused_before_anything_is_asked(checkpoint):
    def huge(weights: dict[str, Any]) -> None:
        weights["lm_head.weight"] = torch.full_like(weights["lm_head.weight"], 3e38)

    with pytest.raises(SettingsError, match="its logits are no numbers"):
        HuggingFaceModel(checkpoint(huge))
