"""The gauge as llama.cpp loads it: one GGUF file in 16-bit floats, written from NumPy arrays.

Needs PyPI's `gguf`, and neither torch nor a converter. All weights are exact in 16 bits' range of
float32 only, so that vectors stay 32 bits, as llama.cpp's converter keeps them too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from needlemap.errors import SettingsError
from needlemap.extras import install_line
from needlemap.models.demo import Array
from needlemap.servers.gauge.checkpoint import (
    DATA,
    TEMPLATE,
    TOKENIZER,
    read_config,
    read_tensors,
    widened,
)

NAME = "gauge.gguf"
RULES = "smollm"  # llama.cpp's name for: digits one by one, then GPT-2's rules
TWIN = "twin.gguf"
CONVERTER, CONVERTER_FOLDER = "convert_hf_to_gguf.py", "NEEDLEMAP_GGUF_CONVERTER"
# The converter knows vocabularies by hashes of their ids, and refuses others. A twin's has no
# merges, so that any byte-level rules split it alike; but its file must have one, of bytes that no
# text of ASCII has.
RUN_CONVERTER = """
import runpy, sys
root, model, out, rules = sys.argv[1:]
sys.path[:0] = [root, root + "/gguf-py"]
import gguf
from conversion.base import TextModel
TextModel.get_vocab_base_pre = lambda self, tokenizer: rules
header = gguf.GGUFWriter.write_header_to_file
def header_with_a_merge(writer, path=None):
    if not any("tokenizer.ggml.merges" in part for part in writer.kv_data):
        writer.add_token_merges(["\u0100 \u0100"])
    return header(writer, path)
gguf.GGUFWriter.write_header_to_file = header_with_a_merge
sys.argv = ["convert", model, "--outfile", out, "--outtype", "f32"]
runpy.run_path(root + "/convert_hf_to_gguf.py", run_name="__main__")
"""
TYPE_F16 = 1  # llama.cpp's number of a file whose matrices are 16-bit floats
TENSORS = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_up_proj": "ffn_up",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w2": "ffn_down_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps",
}
# llama.cpp computes Mistral and Mixtral by the code of Llama.
FAMILIES = {"mistral": "llama", "mixtral": "llama"}
EXPERT = re.compile(r"experts\.(\d+)\.")


def write_gguf(
    path: Path,
    config: Mapping[str, Any] | None = None,
    tensors: Mapping[str, NDArray[np.uint16]] | None = None,
) -> None:
    """Write the gauge as a GGUF file.

    config, tensors: another shape's; tensors by name, as bits of bfloat16. Raises SettingsError
    without the package `gguf`.
    """
    try:
        import gguf
    except ImportError:
        raise SettingsError(f"--gguf needs the package gguf. Run: {install_line('gguf')}") from None
    config = config or read_config()
    family = FAMILIES.get(config["model_type"], config["model_type"])
    writer = gguf.GGUFWriter(path, family)
    _write_shape(writer, config)
    _write_yarn(writer, config["rope_parameters"], gguf.RopeScalingType)
    _write_tokenizer(writer, config, gguf.TokenType)
    for name, weights in stacked(tensors or read_tensors()).items():
        writer.add_tensor(*llama_cpp_tensor(name, weights, config, family))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def stacked(tensors: Mapping[str, NDArray[np.uint16]]) -> dict[str, Array]:
    """Return weights in 32 bits, those of all experts in one tensor."""
    weights = {name: widened(bits) for name, bits in tensors.items() if not EXPERT.search(name)}
    experts = defaultdict[str, dict[int, Array]](dict)
    for name, bits in tensors.items():
        if number := EXPERT.search(name):
            experts[EXPERT.sub("experts.", name)][int(number[1])] = widened(bits)
    for name, rows in experts.items():
        weights[name] = np.stack([rows[number] for number in sorted(rows)])
    return weights


def llama_cpp_tensor(
    name: str, weights: Array, config: Mapping[str, Any], family: str
) -> tuple[str, NDArray[Any]]:
    """Return llama.cpp's name of a tensor, and the tensor as it wants it."""
    stem, _, part = name.rpartition(".")
    prefix, kind = renamed(stem)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    if family == "llama" and kind in heads:
        weights = interleaved(weights, heads[kind])
    # A router stays in 32 bits, as llama.cpp's converter has it.
    is_matrix = weights.ndim > 1 and kind != "ffn_gate_inp"
    return f"{prefix}{kind}.{part}", weights.astype(np.float16) if is_matrix else weights


def write_twin_gguf(folder: Path) -> Path:
    """Write a twin's GGUF file, in 32-bit floats, beside it, by llama.cpp's own converter; its
    path. Raises SettingsError without the converter, or if it takes no such architecture."""
    script = converter()
    out = folder / TWIN
    line = (sys.executable, "-c", RUN_CONVERTER, str(script.parent), str(folder), str(out), RULES)
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode or not out.is_file():
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise SettingsError(f"llama.cpp's converter did not write '{out}': {said[:300]}")
    return out


def converter() -> Path:
    """Where llama.cpp's converter is. Raises SettingsError."""
    named = Path(os.environ.get(CONVERTER_FOLDER, ""), CONVERTER)
    found = str(named) if named.is_file() else shutil.which(CONVERTER)
    if found is None:
        raise SettingsError(
            f"--gguf of a twin needs llama.cpp's {CONVERTER}. Name the folder that holds it: "
            f"export {CONVERTER_FOLDER}=~/llama.cpp"
        )
    return Path(found).resolve()


def renamed(name: str) -> tuple[str, str]:
    """llama.cpp's name of a tensor: its block ('blk.0.', or '') and its kind."""
    if not name.startswith("model.layers."):
        return "", TENSORS[name]
    _, _, block, rest = name.split(".", 3)
    return f"blk.{block}.", TENSORS[rest]


def interleaved(weights: Array, heads: int) -> Array:
    """Rows in llama.cpp's order: pairs that turn together stand beside each other, where
    transformers has them half a head apart."""
    rows, columns = weights.shape
    pairs = weights.reshape(heads, 2, rows // heads // 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns).copy()


def _write_shape(writer: Any, told: Mapping[str, Any]) -> None:
    writer.add_name("needlemap gauge")
    writer.add_context_length(told["max_position_embeddings"])
    writer.add_embedding_length(told["hidden_size"])
    writer.add_block_count(told["num_hidden_layers"])
    writer.add_feed_forward_length(told["intermediate_size"])
    writer.add_head_count(told["num_attention_heads"])
    writer.add_head_count_kv(told["num_key_value_heads"])
    writer.add_key_length(told["head_dim"])
    writer.add_value_length(told["head_dim"])
    writer.add_rope_dimension_count(told["head_dim"])
    writer.add_rope_freq_base(told["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(told["rms_norm_eps"])
    writer.add_vocab_size(told["vocab_size"])
    writer.add_file_type(TYPE_F16)
    if experts := told.get("num_local_experts"):
        writer.add_expert_count(experts)
        writer.add_expert_used_count(told["num_experts_per_tok"])


def _write_yarn(writer: Any, rope: Mapping[str, Any], kinds: Any) -> None:
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(kinds.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def _write_tokenizer(writer: Any, told: Mapping[str, Any], kinds: Any) -> None:
    described = json.loads((DATA / TOKENIZER).read_text("utf-8"))
    special = {each["id"]: each["content"] for each in described["added_tokens"]}
    texts = {number: text for text, number in described["model"]["vocab"].items()} | special
    numbers = range(told["vocab_size"])
    merges = described["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(RULES)
    writer.add_token_list([texts[number] for number in numbers])
    writer.add_token_types([kinds.CONTROL if n in special else kinds.NORMAL for n in numbers])
    writer.add_token_merges([each if isinstance(each, str) else " ".join(each) for each in merges])
    writer.add_add_bos_token(False)
    writer.add_eos_token_id(told["eos_token_id"])
    writer.add_pad_token_id(told["pad_token_id"])
    writer.add_chat_template((DATA / TEMPLATE).read_text("utf-8"))
