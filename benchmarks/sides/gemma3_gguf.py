"""A twin of Gemma 3 as llama.cpp loads it, without llama.cpp's own converter.

    python gemma3_gguf.py FOLDER FILE

Needs PyPI's `gguf`; NEEDLEMAP_GGUF_CONVERTER names the folder that holds it. All numbers stay 32
bits. llama.cpp multiplies by a norm's weight, Gemma by the weight plus one. The output matrix is
drawn anew: a tied one repeats the last token of a template behind every prompt, and texts could
not show what differs.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from needlemap.servers.gauge.gguf import write_sizes, write_tokenizer

sys.path.append(os.environ.get("NEEDLEMAP_GGUF_CONVERTER", ""))

# Standard deviation of the output matrix: first choices stay close enough to change.
SPREAD = 0.15
# llama.cpp's number of a file whose matrices are 32-bit floats.
TYPE_F32 = 0
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def read_safetensors(path: Path) -> dict[str, NDArray[np.float32]]:
    """Return the tensors of a file whose numbers are all 32-bit floats."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    tensors = {}
    for name, row in header.items():
        if name != "__metadata__":
            start, stop = (8 + size + offset for offset in row["data_offsets"])
            numbers = np.frombuffer(data[start:stop], np.float32)
            tensors[name] = numbers.reshape(row["shape"])
    return tensors


def llama_cpp_name(name: str) -> str:
    """Return llama.cpp's name of a tensor.

    >>> llama_cpp_name("model.layers.3.mlp.up_proj.weight")
    'blk.3.ffn_up.weight'
    """
    if name in NAMES:
        return NAMES[name]
    _, _, block, rest = name.split(".", 3)
    return f"blk.{block}.{NAMES[rest.removesuffix('.weight')]}.weight"


def write(folder: Path, path: Path) -> None:
    """Write the twin of a folder as a GGUF file."""
    import gguf

    config = json.loads((folder / "config.json").read_text("utf-8"))
    writer = gguf.GGUFWriter(path, "gemma3")
    write_shape(writer, config)
    write_tokenizer(writer, folder, config=config, kinds=gguf.TokenType)
    for name, weights in read_safetensors(folder / "model.safetensors").items():
        offset = np.float32(1.0 if "norm" in name else 0.0)
        writer.add_tensor(llama_cpp_name(name), (weights + offset).astype(np.float32))
    writer.add_tensor("output.weight", output_matrix(folder, config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def output_matrix(folder: Path, config: dict[str, Any]) -> NDArray[np.float32]:
    """Return an output matrix under which the model answers with letters only.

    A server may trim spaces, or stop at the end of a text.
    """
    tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    vocabulary = tokenizer["model"]["vocab"].items()
    letters = [number for text, number in vocabulary if text.isascii() and text.isalpha()]

    shape = (config["vocab_size"], config["hidden_size"])
    random_matrix = np.random.default_rng(1).normal(0, SPREAD, shape)
    matrix = np.zeros_like(random_matrix)
    matrix[letters] = random_matrix[letters]
    return matrix.astype(np.float32)


def write_shape(writer: Any, config: dict[str, Any]) -> None:
    """Write the sizes, the window and the rotary base of the layers without a window."""
    write_sizes(writer, config)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["full_attention"]["rope_theta"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_file_type(TYPE_F32)


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
