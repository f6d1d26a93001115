"""List the twins: architectures by name, and how small a twin of each is.

A row of the table has what a twin overrides in the configuration that transformers' class has by
itself: sizes, and the kinds of layers, norms, windows, rotary scaling and experts that published
models of the family have. Windows, and the lengths from which rotary scaling sets in, are short, so
that a prompt of a few hundred tokens is beyond them. A user's own configuration keeps all but its
sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from needlemap.errors import SettingsError, did_you_mean
from needlemap.files import read_regular
from needlemap.untrusted import read_json

# Positions of a twin.
LONGEST = 32_768
# Tokens of a sliding window, and of Llama 4's chunks.
WINDOW = 64
# Sizes that every twin has, if its configuration knows the name.
COMMON: Mapping[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": LONGEST,
    "sliding_window": WINDOW,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
}
# What a user's own configuration keeps although a row of the table names it.
KEPT = frozenset(
    {
        "head_dim",
        "rope_parameters",
        "query_pre_attn_scalar",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "v_head_dim",
        "use_qk_norm",
        "n_shared_experts",
    }
)
# What a small random model in one piece has no use for.
DROPPED = frozenset(
    {
        "model_type",
        "quantization_config",
        "auto_map",
        "transformers_version",
        "dtype",
        "torch_dtype",
    }
)
CONFIG = "config.json"
# Yarn as gpt-oss and DeepSeek have it, from 128 tokens on.
_YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "original_max_position_embeddings": 128,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
_LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "first_k_dense_replace": 1,
    "n_shared_experts": 1,
    "n_group": 2,
    "topk_group": 1,
}
_DELTA = {
    "head_dim": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    # A delta layer forgets a share of 1 / this size with each token.
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 32,
}


@dataclass(frozen=True, slots=True)
class Architecture:
    """A row of the table.

    Attributes:
        model_type: Transformers' name of the architecture.
        names: Other names that people use for it.
        overrides: What a twin overrides.
    """

    model_type: str
    names: tuple[str, ...] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)


ARCHITECTURES: tuple[Architecture, ...] = (
    Architecture("llama", ("llama3",), {"head_dim": 64, "rope_parameters": _LLAMA3}),
    Architecture("qwen2", ("qwen2.5",)),
    Architecture("qwen3", (), {"head_dim": 128}),
    # Published ones norm the shares of a token's experts, as llama.cpp always does.
    Architecture("qwen3_moe", (), {"head_dim": 128, "norm_topk_prob": True}),
    # Windows alone: what is heeded grows by one window a layer.
    Architecture("mistral", (), {"head_dim": 64, "sliding_window": 256, "num_hidden_layers": 6}),
    Architecture("mixtral", (), {"head_dim": 64, "sliding_window": None}),
    Architecture("gemma2", ("gemma",), {"head_dim": 64, "query_pre_attn_scalar": 64}),
    Architecture(
        "gemma3_text",
        ("gemma3",),
        {"head_dim": 64, "query_pre_attn_scalar": 64, "num_hidden_layers": 6},
    ),
    Architecture("gpt_oss", (), {"head_dim": 64, "rope_parameters": _YARN | {"rope_theta": 1.5e5}}),
    Architecture("phi3", ("phi", "phi4"), {"sliding_window": None}),
    Architecture("olmo2", ("olmo",)),
    Architecture("olmo3"),
    Architecture(
        "deepseek_v3",
        ("deepseek", "kimi k2"),
        {
            **_LATENT,
            "rope_parameters": _YARN | {"rope_theta": 1e4, "mscale": 1.0, "mscale_all_dim": 1.0},
        },
    ),
    Architecture("glm4", ("glm",), {"head_dim": 32}),
    Architecture(
        "glm4_moe",
        ("glm4.5",),
        {"head_dim": 32, "first_k_dense_replace": 1, "n_shared_experts": 1, "use_qk_norm": True},
    ),
    Architecture("qwen3_next", (), _DELTA),
    Architecture("qwen3_5_text", ("qwen3.5",), _DELTA),
    Architecture(
        "granitemoehybrid",
        ("granite4", "granite4 hybrid", "granite hybrid"),
        {
            "layer_types": [
                "linear_attention",
                "linear_attention",
                "full_attention",
                "linear_attention",
            ],
            "mamba_n_heads": 8,
            "mamba_d_head": 16,
            "mamba_d_state": 16,
            "shared_intermediate_size": 64,
            "intermediate_size": 64,
        },
    ),
    Architecture(
        "nemotron_h",
        (),
        {
            "layers_block_type": [
                "linear_attention",
                "moe",
                "full_attention",
                "linear_attention",
                "mlp",
            ],
            "num_hidden_layers": 5,
            "mamba_num_heads": 8,
            "mamba_head_dim": 16,
            "ssm_state_size": 16,
            "n_groups": 2,
            "head_dim": 32,
            "moe_shared_expert_intermediate_size": 64,
            # transformers 5.23 clamps the step to it in prompts and not in generated tokens.
            "time_step_min": 1e-9,
        },
    ),
    Architecture("lfm2", (), {"layer_types": ["conv", "full_attention", "conv", "full_attention"]}),
    Architecture(
        "mamba2", ("mamba",), {"num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 1}
    ),
    Architecture(
        "llama4_text",
        ("llama4",),
        {
            "head_dim": 64,
            "num_experts_per_tok": 1,
            "intermediate_size": 64,
            "intermediate_size_mlp": 128,
            "attention_chunk_size": WINDOW,
            "interleave_moe_layer_step": 2,
            "floor_scale": WINDOW,
            "rope_parameters": _LLAMA3,
        },
    ),
    Architecture(
        "falcon_h1",
        (),
        {
            "mamba_n_heads": 8,
            "mamba_d_head": 16,
            "mamba_d_ssm": 128,
            "mamba_d_state": 16,
            "mamba_n_groups": 1,
            "head_dim": 32,
        },
    ),
    Architecture("smollm3"),
    Architecture("cohere2", ("command", "command r"), {"logit_scale": 1.0}),
    Architecture(
        "gemma4_text",
        ("gemma4",),
        {
            "num_hidden_layers": 6,
            "head_dim": 64,
            "hidden_size_per_layer_input": 16,
            "vocab_size_per_layer_input": 104,
        },
    ),
    Architecture("mimo_v2_flash", ("mimo", "mimo v2")),
    Architecture("exaone4"),
    Architecture("ernie4_5_moe", ("ernie4.5",)),
    Architecture("minimax_m2"),
    Architecture("seed_oss"),
    Architecture("ministral3", ("ministral",)),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a twin is made by.

    model_type: transformers' name of the architecture. fields: of its configuration.
    """

    model_type: str
    fields: Mapping[str, Any]


def row_of(name: str) -> Architecture | None:
    """Return the row that has a name, in whatever spelling, or None if there is none.

    >>> row_of("Qwen3-MoE").model_type, row_of("Llama 4").model_type
    ('qwen3_moe', 'llama4_text')
    """
    plain = plain_name(name)
    for row in ARCHITECTURES:
        if plain in map(plain_name, (row.model_type, *row.names)):
            return row
    return None


def plain_name(name: str) -> str:
    """Return a name in lower case, without blanks and signs between its words."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def named_shape(name: str, class_config: Mapping[str, Any] | None) -> Shape:
    """Return the shape of the twin of an architecture.

    class_config: the configuration that its class has by itself; None if there is no class. Raises
    SettingsError if there is none.
    """
    row = row_of(name)
    if class_config is None:
        model_types = [row.model_type for row in ARCHITECTURES]
        raise SettingsError(
            f"--like {name}: no architecture that transformers knows, and no model's folder or "
            f"config.json. {did_you_mean(name, model_types)}"
        )
    model_type = row.model_type if row else name
    fields = {key: size for key, size in COMMON.items() if class_config.get(key) is not None}
    # The class may have None there: as many as there are heads.
    if "num_key_value_heads" in class_config:
        fields["num_key_value_heads"] = COMMON["num_key_value_heads"]
    return Shape(model_type, {**fields, **(row.overrides if row else {})})


def shrunk_shape(model_type: str, config: Mapping[str, Any]) -> Shape:
    """Return the shape of a twin of a model whose whole configuration is known.

    Its sizes are made small, and its layers are the first ones that have each of its kinds.
    config: that configuration.
    """
    small = named_shape(model_type, config)
    layers = layers_for_each_kind(config, fewest=small.fields.get("num_hidden_layers", 4))
    fields = dict[str, Any]()
    for name, value in config.items():
        if name in DROPPED:
            continue
        has_layers = is_per_layer(value, config.get("num_hidden_layers"))
        fields[name] = value[:layers] if has_layers else value
    for name, size in small.fields.items():
        if name in KEPT:
            continue
        if name in config and config[name] is None:
            fields[name] = None
        elif not isinstance(size, list):
            # A list of the table has a value for each layer; the model's own list was cut above.
            fields[name] = size
    if "num_hidden_layers" in config:
        fields["num_hidden_layers"] = layers
    return Shape(model_type, {**fields, **head_counts(config)})


def head_counts(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return sizes for few heads, of which as many share keys as in the model itself."""
    heads = config.get("num_attention_heads")
    key_value_heads = config.get("num_key_value_heads") or heads
    if not isinstance(heads, int) or not isinstance(key_value_heads, int):
        return {}
    heads_per_key = max(1, heads // key_value_heads)
    small_count = min(key_value_heads, 2 if heads_per_key > 1 else 4)
    return {
        "num_attention_heads": heads_per_key * small_count,
        "num_key_value_heads": small_count,
    }


def layers_for_each_kind(config: Mapping[str, Any], fewest: int) -> int:
    """Return how many of the first layers have each kind of layer that there is.

    fewest: the number of layers at least.
    """
    total = config.get("num_hidden_layers")
    if not isinstance(total, int):
        return fewest
    needed = [fewest]
    for value in config.values():
        if is_per_layer(value, total):
            needed += [value.index(kind) + 1 for kind in value]
    for step in ("interleave_moe_layer_step", "decoder_sparse_step", "first_k_dense_replace"):
        if isinstance(config.get(step), int):
            needed.append(config[step] + 1)
    return min(total, max(needed))


def is_per_layer(value: Any, layers: Any) -> bool:
    """Return True if a field of a configuration has a value for each layer."""
    return isinstance(value, list) and len(value) == layers and len(value) > 1


def read_own_config(path: Path) -> dict[str, Any]:
    """Return a config.json, or that of a folder.

    Raises NeedlemapError if it cannot be read, or has no model_type.
    """
    path = path / CONFIG if path.is_dir() else path
    try:
        config = read_json(read_regular(path))
    except (OSError, ValueError) as error:
        raise SettingsError(f"--like {path}: {error}") from None
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise SettingsError(f"--like {path}: no configuration of a model, as it has no model_type")
    return config
