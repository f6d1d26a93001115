"""A Hugging Face Llama folder as a GGUF in 32 bits: convert.py GGUF MODEL OUT.gguf

GGUF: the folder in which PyPI's `gguf` is installed (`.ci/servers` prints it); '' where this Python
has it. Of tokenizers only those of byte-level BPE are converted, of positions only plain RoPE.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RULES = "smollm"  # digits one by one, then GPT-2's: how the trained retriever splits text
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
}


def converted(model: str, out: str) -> None:
    """Write the model, its tokenizer and its chat template."""
    import gguf
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(model, dtype="float32")
    writer = gguf.GGUFWriter(out, "llama")
    _write_shape(writer, loaded.config)
    _write_tokenizer(writer, Path(model), loaded.config)
    heads = {"attn_q": loaded.config.num_attention_heads}
    heads["attn_k"] = loaded.config.num_key_value_heads
    for name, tensor in loaded.state_dict().items():
        if name == "lm_head.weight" and loaded.config.tie_word_embeddings:
            continue
        prefix, kind = _renamed(name.removesuffix(".weight"))
        weights = tensor.numpy()
        if kind in heads:
            weights = _interleaved(weights, heads[kind])
        writer.add_tensor(f"{prefix}{kind}.weight", weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _renamed(name: str) -> tuple[str, str]:
    """llama.cpp's name of a tensor: its block ('blk.0.', or '') and its kind."""
    if not name.startswith("model.layers."):
        return "", TENSORS[name]
    _, _, block, rest = name.split(".", 3)
    return f"blk.{block}.", TENSORS[rest]


def _interleaved(weights: Any, heads: int) -> Any:
    """Rows in llama.cpp's order: pairs that turn together stand beside each other, where
    transformers has them half a head apart."""
    rows, columns = weights.shape
    pairs = weights.reshape(heads, 2, rows // heads // 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns).copy()


def _write_shape(writer: Any, config: Any) -> None:
    rope = config.rope_parameters
    if rope["rope_type"] != "default":
        raise SystemExit(f"cannot convert positions of type '{rope['rope_type']}'")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(0)


def _write_tokenizer(writer: Any, model: Path, config: Any) -> None:
    import gguf

    told = json.loads((model / "tokenizer.json").read_text("utf-8"))
    special = {each["id"]: each["content"] for each in told["added_tokens"]}
    texts = {number: text for text, number in told["model"]["vocab"].items()} | special
    tokens = [texts.get(number, f"[PAD{number}]") for number in range(config.vocab_size)]
    normal, control = gguf.TokenType.NORMAL, gguf.TokenType.CONTROL
    unused = gguf.TokenType.UNUSED
    kinds = [
        control if number in special else normal if number in texts else unused
        for number in range(config.vocab_size)
    ]
    merges = [each if isinstance(each, str) else " ".join(each) for each in told["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(RULES)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_add_bos_token(False)
    for add, number in (
        (writer.add_bos_token_id, config.bos_token_id),
        (writer.add_eos_token_id, config.eos_token_id),
        (writer.add_pad_token_id, config.pad_token_id),
    ):
        if number is not None:
            add(number)
    template = model / "chat_template.jinja"
    if template.is_file():
        writer.add_chat_template(template.read_text("utf-8"))


if __name__ == "__main__":
    folder, source, target = sys.argv[1:4]
    sys.path[:0] = [folder] if folder else []
    converted(source, target)
