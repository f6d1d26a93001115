"""Tiny models with random weights of every architecture that transformers has a causal class for.

A configuration's own defaults, with every size made small by the name of its field. Weights are
drawn wide, so that a random model looks at its context: at the usual scale a stale cache gives the
right answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from tinymodel import VOCABULARY

WINDOW = 48  # tokens, far fewer than in a prompt
SWITCH = (
    288  # tokens from which on some turn positions otherwise: within the answers of some prompts
)
LAYERS = 4
_LAYERED = "num_hidden_layers n_layer num_layers n_layers decoder_layers encoder_layers num_blocks"
_NAMES: dict[int | float, str] = {
    VOCABULARY: "vocab_size vocab_size_per_layer_input",
    64: "hidden_size d_model n_embd dim embed_dim embedding_size word_embed_proj_dim emb_dim",
    96: "intermediate_size ffn_dim n_inner d_inner d_ff encoder_ffn_dim decoder_ffn_dim ffn_hidden_size "  # noqa: E501
    "dim_ff dff",
    4: "num_attention_heads n_head n_heads num_heads decoder_attention_heads encoder_attention_heads "  # noqa: E501
    "num_experts n_routed_experts num_local_experts moe_num_experts",
    2: "num_key_value_heads num_kv_heads num_experts_per_tok moe_topk moe_top_k top_k_experts moe_k "  # noqa: E501
    "linear_num_key_heads linear_num_value_heads mamba_expand index_n_heads",
    16: "head_dim kv_channels kv_lora_rank q_lora_rank qk_rope_head_dim qk_nope_head_dim v_head_dim "  # noqa: E501
    "linear_key_head_dim linear_value_head_dim mamba_d_head mamba_head_dim "
    "hidden_size_per_layer_input "
    "rotary_dim dim_head",
    2048: "max_position_embeddings n_positions n_ctx max_seq_len context_length",
    0.3: "initializer_range init_std initializer_std init_range",
    32: "moe_intermediate_size shared_expert_intermediate_size expert_ffn_hidden_size mamba_chunk_size "  # noqa: E501
    "chunk_size moe_shared_expert_intermediate_size index_head_dim",
    1: "n_group topk_group n_groups mamba_n_groups bos_token_id",
    WINDOW: "sliding_window attention_window_size window_size attention_chunk_size",
    8: "mamba_d_state mamba_n_heads mamba_num_heads state_size ssm_state_size",
    128: "mamba_d_ssm",
    24: "index_topk",
    5: "eos_token_id",
}
SIZES = {name: size for size, names in _NAMES.items() for name in names.split()} | {
    **dict.fromkeys(_LAYERED.split(), LAYERS),
    "tie_word_embeddings": False,
    "pad_token_id": 0,
}
_LONG = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": SWITCH}
_LONG |= {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
_MSCALE = {"short_mscale": 1.1, "long_mscale": 1.3}
_DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
_COMPRESSED = ("heavily_compressed_attention", "compressed_sparse_attention") * 2
_GEMMA3N = {"num_hidden_layers": 10, "num_kv_shared_layers": 4}
# What the sizes alone do not make: fields that must fit each other.
_FITTED: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1, 3]},
    "bailing_hybrid": {
        "layer_group_size": 2,
        "num_group": 1,
        "n_group": 1,
        "topk_group": 1,
        "num_experts": 4,
        "num_experts_per_tok": 2,
    },
    "deepseek_v4": {
        "o_groups": 2,
        "o_lora_rank": 16,
        "layer_types": [*_COMPRESSED],
        "mlp_layer_types": ["hash_moe", "moe"] * 2,
    },
    "deepseek_v2": {"num_experts_per_tok": 2, "n_routed_experts": 4},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "gemma3n": _GEMMA3N,
    "gemma3n_text": _GEMMA3N,
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "zamba2": {"layers_block_type": ["mamba", "hybrid"] * 2},
    "nemotron": {"num_key_value_heads": 2},
    "granitemoe": {"attention_multiplier": 0.25},
    "granitemoeshared": {"attention_multiplier": 0.25},
    "granitemoe_swa": {"attention_multiplier": 0.25},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2, "num_hidden_layers": 4},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "minimax": {"num_hidden_layers": 2, "block_size": 16},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2, "num_hidden_layers": 4},
    "mamba2": {"num_heads": 8},
    "zaya": {"num_experts_per_tok": 1},
    "reformer": {"is_decoder": True, "axial_pos_embds": False},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
        "ffn_config": {
            "ffn_hidden_size": 96,
            "moe_num_experts": 4,
            "moe_top_k": 2,
            "hidden_size": 64,
        },
    },
    "cohere_compass_text": {
        "rope_parameters": {
            "full_attention": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "mrope_section": [4, 2, 2],
            }
        },
        "layer_types": ["full_attention"] * 4,
    },
    "inkling_text": {
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 2,
        "swa_head_dim": 16,
        "sliding_window_size": WINDOW,
        "layer_types": ["hybrid_sliding", "hybrid"] * 2,
        "mlp_layer_types": ["dense", "sparse"] * 2,
        "d_rel": 8,
        "rel_extent": 64,
        "logits_mup_width_multiplier": 1.0,
        "route_scale": 1.0,
    },
    "inkling2_text": {
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 2,
        "swa_head_dim": 16,
        "sliding_window_size": WINDOW,
        "layer_types": ["hybrid_sliding", "hybrid"] * 2,
        "unpadded_vocab_size": VOCABULARY,
        "d_rel": 8,
        "rel_extent": 64,
        "n_layers_per_attn_res_block": 2,
    },
    "kimi_linear": {
        "linear_head_dim": 16,
        "linear_num_heads": 4,
        "qk_head_dim": 32,
        "num_key_value_heads": 4,
        "num_experts_per_token": 2,
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "mlp_layer_types": ["dense", "sparse"] * 2,
    },
    "longcat_flash": {
        "zero_expert_num": 2,
        "qk_head_dim": 32,
        "moe_topk": 2,
        "num_layers": 2,
        "num_hidden_layers": 4,
    },
    "minimax_m3_vl_text": {
        "dense_intermediate_size": 96,
        "shared_intermediate_size": 96,
        "layer_types": ["full_attention"] * 4,
        "mlp_layer_types": ["dense", "sparse"] * 2,
    },
}
# Of these the language model has no class of its own that could be loaded, or no small form.
_LEFT_OUT = (
    "emu3", "mllama", "musicgen", "musicgen_melody", "gemma4_assistant", "gemma4_unified_assistant", "git",  # noqa: E501
    "blt", "phi4_multimodal", "qwen4_exp", "qwen4_exp_text", "dots3_note",
    "dots3_note_text",
)  # fmt: skip
_VARIANTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("llama longrope", "llama", {"rope_parameters": _LONG}),
    (
        "phi3 longrope",
        "phi3",
        {"rope_parameters": _LONG, "original_max_position_embeddings": SWITCH},
    ),
    ("phimoe longrope", "phimoe", {"rope_parameters": _LONG | _MSCALE}),
    ("llama dynamic", "llama", {"rope_parameters": _DYNAMIC, "max_position_embeddings": SWITCH}),
    (
        "llama linear",
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}},
    ),
    (
        "llama yarn",
        "llama",
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}},
    ),
    ("mistral no window", "mistral", {"sliding_window": None}),
    ("falcon alibi", "falcon", {"alibi": True}),
    ("roberta decoder", "roberta", {"is_decoder": True}),
    ("bert decoder", "bert", {"is_decoder": True}),
)
_MROPE = {"rope_type": "default", "rope_theta": 1e4}
_SIGHT = {"hidden_size": 64, "out_hidden_size": 64, "num_heads": 4, "depth": 2}
# Models that also take images: what their text part, and their image part, are given.
MULTIMODAL: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "mistral3": ({}, {}),
    "qwen2_vl": ({"rope_parameters": _MROPE | {"mrope_section": [2, 3, 3]}}, _SIGHT),
    "qwen2_5_vl": ({"rope_parameters": _MROPE | {"mrope_section": [2, 3, 3]}}, _SIGHT),
    "qwen3_vl": (
        {"rope_parameters": _MROPE | {"mrope_section": [2, 3, 3]}},
        _SIGHT | {"deepstack_visual_indexes": [0, 1]},
    ),
    "glm4v": (
        {"rope_parameters": _MROPE | {"partial_rotary_factor": 0.5, "mrope_section": [1, 1, 2]}},
        _SIGHT,
    ),
    "internvl": ({}, {}),
    "llava": ({}, {}),
    "llava_onevision": ({}, {}),
    "idefics3": ({}, {}),
    "aya_vision": ({}, {}),
}
SMOKE = ("llama", "qwen2_5_vl", "gemma3_text", "mamba", "jamba", "phi3 longrope", "bert")


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of configuration, and what it is given beside its sizes."""

    name: str
    kind: str
    given: Mapping[str, Any] = field(default_factory=dict)


def cases() -> Iterator[Case]:
    """All that have a causal class, some that also take images and have none, and some with other
    positions and windows."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    kinds = sorted(set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - set(_LEFT_OUT)) + sorted(MULTIMODAL)
    yield from (Case(kind, kind) for kind in kinds)
    yield from (Case(*variant) for variant in _VARIANTS)


def made(kind: str, **given: Any) -> Any:
    """A tiny configuration; of one that holds several the language model's, unless only the whole
    has a class."""
    from transformers import CONFIG_MAPPING

    if kind in MULTIMODAL:
        return _seeing(CONFIG_MAPPING[kind](), *MULTIMODAL[kind], given)
    fitted = _FITTED.get(kind, {})
    whole = CONFIG_MAPPING[kind]()
    text = whole.get_text_config(decoder=True)
    fields = text.to_dict()
    if "kv_lora_rank" in fields:
        fitted = {"num_key_value_heads": 4, **fitted}
    named = (name for name in fields if fields[name] is not None or name == "head_dim")
    small = {name: SIZES[name] for name in named if name in SIZES}
    sized = {**small, **fitted, **given}
    return type(text)(**sized, **_mixed(text, type(text)(**sized), set(given) | set(fitted)))


def _seeing(whole: Any, text: dict[str, Any], sight: dict[str, Any], given: dict[str, Any]) -> Any:
    """A tiny configuration of a model that also takes images."""
    parts = {
        name: _sized(part, fitted).to_dict()
        for name, part, fitted in (
            ("text_config", whole.get_text_config(decoder=True), text | given),
            ("vision_config", whole.vision_config, sight),
        )
    }
    return type(whole)(**parts)


def _sized(part: Any, fitted: dict[str, Any]) -> Any:
    fields = part.to_dict()
    plain = (name for name in fields if isinstance(fields[name], int | float) or name == "head_dim")
    return type(part)(**{name: SIZES[name] for name in plain if name in SIZES} | fitted)


def _mixed(full: Any, tiny: Any, fixed: Collection[str]) -> dict[str, list[str]]:
    """Kinds of layers by turns, where so few layers lack one that the full form has."""
    found = {}
    for name in ("layer_types", "mlp_layer_types"):
        kinds = list(dict.fromkeys(getattr(full, name, None) or ()))
        held = getattr(tiny, name, None) or ()
        if name not in fixed and set(kinds) - set(held):
            found[name] = [kind for kind, _ in zip(cycle(kinds), held, strict=False)]
    return found
