"""Write the gauge as llama.cpp loads it: one GGUF file in 16-bit floats, from NumPy arrays.

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
    floats_of,
    read_config,
    read_tensors,
)

NAME = "gauge.gguf"
# llama.cpp's name for rules that split digits one by one, then as GPT-2 does.
RULES = "smollm"
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
# The only merge of a twin's vocabulary, as in RUN_CONVERTER.
UNUSED_MERGE = "\u0100 \u0100"
# llama.cpp's number of a file whose matrices are 16-bit floats.
TYPE_F16 = 1
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
    write_tokenizer(writer, DATA, config=config, kinds=gguf.TokenType)
    for name, weights in stack_experts(tensors or read_tensors()).items():
        writer.add_tensor(*llama_cpp_tensor(name, weights, config, family))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def stack_experts(tensors: Mapping[str, NDArray[np.uint16]]) -> dict[str, Array]:
    """Return weights in 32 bits, with those of all experts in one tensor."""
    weights = {name: floats_of(bits) for name, bits in tensors.items() if not EXPERT.search(name)}
    experts = defaultdict[str, dict[int, Array]](dict)
    for name, bits in tensors.items():
        if match := EXPERT.search(name):
            experts[EXPERT.sub("experts.", name)][int(match[1])] = floats_of(bits)
    for name, by_number in experts.items():
        weights[name] = np.stack([by_number[number] for number in sorted(by_number)])
    return weights


def llama_cpp_tensor(
    name: str, weights: Array, config: Mapping[str, Any], family: str
) -> tuple[str, NDArray[Any]]:
    """Return llama.cpp's name of a tensor, and the tensor as it wants it."""
    stem, _, part = name.rpartition(".")
    prefix, kind = llama_cpp_name(stem)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    if family == "llama" and kind in heads:
        weights = interleave_pairs(weights, heads[kind])
    # A router stays in 32 bits, as llama.cpp's converter has it.
    is_matrix = weights.ndim > 1 and kind != "ffn_gate_inp"
    return f"{prefix}{kind}.{part}", weights.astype(np.float16) if is_matrix else weights


def write_twin_gguf(folder: Path) -> Path:
    """Write a twin's GGUF file, in 32-bit floats, with llama.cpp's own converter.

    Return the file's path, which is in the twin's folder. Raises SettingsError if the converter is
    missing or does not know the architecture.
    """
    script = find_converter()
    out = folder / TWIN
    line = (sys.executable, "-c", RUN_CONVERTER, str(script.parent), str(folder), str(out), RULES)
    process = subprocess.run(line, capture_output=True, text=True, check=False)
    if process.returncode or not out.is_file():
        reason = (process.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise SettingsError(f"llama.cpp's converter did not write '{out}': {reason[:300]}")
    return out


def find_converter() -> Path:
    """Return the path of llama.cpp's converter. Raises SettingsError if it is not found."""
    path = Path(os.environ.get(CONVERTER_FOLDER, ""), CONVERTER)
    script = str(path) if path.is_file() else shutil.which(CONVERTER)
    if script is None:
        raise SettingsError(
            f"--gguf of a twin needs llama.cpp's {CONVERTER}. Name the folder that holds it: "
            f"export {CONVERTER_FOLDER}=~/llama.cpp"
        )
    return Path(script).resolve()


def llama_cpp_name(name: str) -> tuple[str, str]:
    """Return llama.cpp's name of a tensor: its block ('blk.0.', or '') and its kind."""
    if not name.startswith("model.layers."):
        return "", TENSORS[name]
    _, _, block, rest = name.split(".", 3)
    return f"blk.{block}.", TENSORS[rest]


def interleave_pairs(weights: Array, heads: int) -> Array:
    """Return rows in llama.cpp's order: pairs that turn together are neighbours.

    In transformers' order they lie half a head apart.
    """
    rows, columns = weights.shape
    pairs = weights.reshape(heads, 2, rows // heads // 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns).copy()


def write_sizes(writer: Any, config: Mapping[str, Any]) -> None:
    """Write a model's context length, its number of layers, and the sizes of a layer."""
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])


def _write_shape(writer: Any, config: Mapping[str, Any]) -> None:
    writer.add_name("needlemap gauge")
    write_sizes(writer, config)
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(TYPE_F16)
    if experts := config.get("num_local_experts"):
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])


def _write_yarn(writer: Any, rope: Mapping[str, Any], kinds: Any) -> None:
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(kinds.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def write_tokenizer(writer: Any, folder: Path, *, config: Mapping[str, Any], kinds: Any) -> None:
    """Write the vocabulary and the chat template of a model's folder.

    kinds: the package's `gguf.TokenType`.
    """
    tokenizer = json.loads((folder / TOKENIZER).read_text("utf-8"))
    special = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    texts = {number: text for text, number in tokenizer["model"]["vocab"].items()} | special
    numbers = range(config["vocab_size"])
    merges = tokenizer["model"].get("merges") or [UNUSED_MERGE]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(RULES)
    writer.add_token_list([texts[number] for number in numbers])
    writer.add_token_types([kinds.CONTROL if n in special else kinds.NORMAL for n in numbers])
    writer.add_token_merges(
        [merge if isinstance(merge, str) else " ".join(merge) for merge in merges]
    )
    writer.add_add_bos_token(False)
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])
    writer.add_chat_template((folder / TEMPLATE).read_text("utf-8"))
