"""Read and copy the gauge, a small Llama that finds every needle.

A lost needle is the engine's fault.

`data` is its checkpoint, as engines load it. tools/train_gauge.py made it and says what each
head does. It answers a question that ends in "KEY?" with the digits that stand behind "KEY is" in
the document, and a full stop; in chat, or behind "Answer:". It knows no other task, and its text is
no prose.

This module copies the checkpoint, reads its weights without torch, and makes the NumPy engine that
computes what every engine should.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from needlemap.errors import SettingsError
from needlemap.models.demo import Array, Layer, NumpyEngine, Weights

DATA = Path(str(files("needlemap.servers.gauge") / "data"))
# The model that serves it in this process.
REFERENCE = "gauge/numpy"
CONFIG, TENSORS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
TEMPLATE = "chat_template.jinja"
FILES = (CONFIG, "generation_config.json", TENSORS, TOKENIZER, "tokenizer_config.json", TEMPLATE)


def read_files() -> dict[str, bytes]:
    """Return the checkpoint's files by name."""
    return {name: (DATA / name).read_bytes() for name in FILES}


def write_checkpoint(folder: Path, checkpoint: Mapping[str, bytes] | None = None) -> Path:
    """Write the checkpoint into a folder, which is made, and return the folder.

    checkpoint: the files of another shape, by name. Raises SettingsError if another file lies
    there.
    """
    if folder.exists() and not folder.is_dir():
        raise SettingsError(f"'{folder}' is a file. Name a folder for the gauge: -o FOLDER")
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in (checkpoint or read_files()).items():
        target = folder / name
        if target.exists() and target.read_bytes() != data:
            raise SettingsError(
                f"'{target}' is another file than the gauge's. Name an empty folder: -o FOLDER"
            )
        target.write_bytes(data)
    return folder


def read_config() -> dict[str, Any]:
    """Return the gauge's config.json."""
    config: dict[str, Any] = json.loads((DATA / CONFIG).read_text("utf-8"))
    return config


def holds_tokens() -> int:
    """Return the tokens of the longest prompt in which the gauge was measured to miss no needle."""
    return int(read_config()["holds_tokens"])


def read_tensors() -> dict[str, NDArray[np.uint16]]:
    """Return the stored bits of each tensor, by name.

    They are bfloat16, the first half of the bits of a float32.
    """
    data = (DATA / TENSORS).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    bits = np.frombuffer(data, "<u2", offset=8 + size)
    return {
        name: bits[row["data_offsets"][0] // 2 : row["data_offsets"][1] // 2].reshape(row["shape"])
        for name, row in header.items()
    }


def floats_of(bits: NDArray[np.uint16]) -> Array:
    """Return the numbers that bits of bfloat16 stand for, in 32 bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def load_weights(
    config: Mapping[str, Any] | None = None,
    tensors: Mapping[str, NDArray[np.uint16]] | None = None,
) -> Weights:
    """Return the gauge's weights, in 32 bits.

    config, tensors: another dense shape's; tensors by name, as bits of bfloat16.
    """
    config = config or read_config()
    bits = tensors or read_tensors()
    heads = config["num_attention_heads"]
    shared = config["num_key_value_heads"]

    def tensor(name: str) -> Array:
        return floats_of(bits[f"{name}.weight"])

    def join(*names: str) -> Array:
        return np.concatenate([tensor(name) for name in names])

    def head_norms(attention: str) -> Array | None:
        if f"{attention}q_norm.weight" not in bits:
            return None
        queries, keys = tensor(f"{attention}q_norm"), tensor(f"{attention}k_norm")
        return np.array([queries] * heads + [keys] * shared)[:, None]

    layers = []
    for number in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{number}."
        attention, inner = f"{prefix}self_attn.", f"{prefix}mlp."
        layers.append(
            Layer(
                norm_1=tensor(f"{prefix}input_layernorm"),
                attend=join(*(f"{attention}{part}_proj" for part in "qkv")),
                mix=tensor(f"{attention}o_proj"),
                norm_2=tensor(f"{prefix}post_attention_layernorm"),
                widen=join(f"{inner}gate_proj", f"{inner}up_proj"),
                narrow=tensor(f"{inner}down_proj"),
                norm_heads=head_norms(attention),
            )
        )
    return Weights(
        embedding=tensor("model.embed_tokens"),
        output=tensor("lm_head"),
        last_norm=tensor("model.norm"),
        layers=tuple(layers),
        heads=heads,
        shared=shared,
        theta=config["rope_parameters"]["rope_theta"],
        eps=config["rms_norm_eps"],
        short_angles=True,
    )


def load_engine() -> NumpyEngine:
    """Return the gauge in NumPy, with an empty cache."""
    return NumpyEngine(load_weights())
