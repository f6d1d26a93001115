"""The gauge's weights in other shapes and architectures: the same answers, other code in engines.

Each shape computes what the gauge computes, exactly in bfloat16, so that `gauge/numpy` stays its
reference. What is added is zeros, or neurons that are shut where the engine does right. Only
`qwen3` has weights, and a reference, of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from needlemap.errors import SettingsError, did_you_mean
from needlemap.models.demo import Array, NumpyEngine, Weights
from needlemap.servers.gauge.cache import hadamard
from needlemap.servers.gauge.checkpoint import (
    CONFIG,
    DATA,
    TENSORS,
    floats_of,
    load_engine,
    load_weights,
    read_config,
    read_files,
    read_tensors,
)

Bits = NDArray[np.uint16]
Tensors = dict[str, Bits]

QWEN3 = "qwen3"
# Tensors that write into the residual stream.
WRITERS = ("o_proj.weight", "down_proj.weight")
# Its head size is not its width divided by its heads.
USUAL = "llama"
# Of padded shapes, whose width is heads x head size.
WIDTH, HEADS, KV_HEADS = 512, 8, 4
# How many times as wide as the gauge they are.
TIMES = 4
# Tokens that the first layer of `windows` sees.
WINDOW = 64
EXPERTS, CHOSEN = 4, 2
# Neurons of the second layer that copy: ten digits, a full stop, neither.
COPIES = 12
# The number of the neuron that copies a full stop.
FULL_STOP = 10
# Nats by which a router prefers the right expert: the share of the other one is 1e-14.
SURE = 32.0
# Gates of a neuron that spoils the answer of the wrong expert.
SHUT, OPEN = -40.0, 8.0
# Times a full stop that is copied then.
SPOILT = 4.0

LLAMA_ONLY = ("attention_bias", "mlp_bias")
VOCABULARY = "tokenizer_config.json"
PROJECTIONS = "qkv"
GATE, UP, DOWN = "gate", "up", "down"
MIXTRAL = {GATE: "w1", DOWN: "w2", UP: "w3"}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint: its config.json, and the bits of each tensor."""

    config: dict[str, Any]
    tensors: Tensors

    @property
    def layers(self) -> Iterator[str]:
        """Yield the beginning of the names of each layer's tensors."""
        for number in range(self.config["num_hidden_layers"]):
            yield f"model.layers.{number}."

    def rename(self, architecture: str, model_type: str, **fields: Any) -> None:
        """Give the checkpoint the name and the fields of another architecture."""
        for name in LLAMA_ONLY:
            self.config.pop(name, None)
        self.config.update(architectures=[architecture], model_type=model_type, **fields)

    def files(self) -> dict[str, bytes]:
        """Return the files of the checkpoint by name: the gauge's, with these weights."""
        if self.config == read_config():
            return read_files()
        described = json.dumps(self.config, indent=2) + "\n"
        files = read_files() | {
            CONFIG: described.encode(),
            TENSORS: safetensors_bytes(self.tensors),
        }
        words = json.loads(files[VOCABULARY])
        words["model_max_length"] = self.config["max_position_embeddings"]
        return files | {VOCABULARY: (json.dumps(words, indent=2) + "\n").encode()}


def gauge_in_shape(name: str) -> Checkpoint:
    """Return the gauge in a shape. Raises SettingsError for an unknown name."""
    if name not in SHAPES:
        raise SettingsError(f"Unknown shape '{name}'. {did_you_mean(name, SHAPES)}")
    if name == QWEN3:
        return qwen3()
    checkpoint = Checkpoint(read_config(), dict(read_tensors()))
    if name != USUAL:
        pad(checkpoint)
        SHAPES[name](checkpoint)
    return checkpoint


def safetensors_bytes(tensors: Mapping[str, Bits]) -> bytes:
    """Return tensors as a file of safetensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position, blocks = 0, []
    for name, bits in sorted(tensors.items()):
        block = bits.astype("<u2").tobytes()
        header[name] = {
            "dtype": "BF16",
            "shape": list(bits.shape),
            "data_offsets": [position, position + len(block)],
        }
        position += len(block)
        blocks.append(block)
    described = json.dumps(header).encode()
    described += b" " * (-len(described) % 8)
    return len(described).to_bytes(8, "little") + described + b"".join(blocks)


def exact_bits(values: Array) -> Bits:
    """Return numbers as bits of bfloat16. Raises ValueError if one is not exact."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    if (bits & 0xFFFF).any():
        raise ValueError("A weight of a shape is not exact in bfloat16.")
    return (bits >> 16).astype(np.uint16)


def nearest_bits(values: Array) -> Bits:
    """Return numbers as bits of the nearest bfloat16, an even one of two."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def qwen3() -> Checkpoint:
    """Return the gauge with weights of its own.

    It has heads of 128, norms of queries and keys, YaRN, and scores that fall by less than 60 nats.
    The file has what each head does in rows of its own, mostly zeros. A rotation of the residual
    stream, which changes no answer, makes each weight a sum of many, so that rounding any tensor
    coarsely is felt. Its sums are exact, so that every machine writes the same bits.
    """
    config = config_of(QWEN3)
    rotation, tensors = rotation_of(config["hidden_size"]), {}
    with np.load(DATA / "qwen3.npz", allow_pickle=False) as file:
        for name in file.files:
            weights = floats_of(file[name]).astype(np.float64)
            if name.endswith(WRITERS):
                weights = rotation.T @ weights
            elif weights.ndim == 2:
                weights = weights @ rotation
            tensors[name] = nearest_bits(weights.astype(np.float32))
    return Checkpoint(config, tensors)


class YarnEngine(NumpyEngine):
    """The transformer with YaRN's positions (Peng et al. 2023, arXiv:2309.00071)."""

    def __init__(self, weights: Weights, rope: Mapping[str, Any]) -> None:
        super().__init__(weights)
        pairs = weights.head_width // 2

        def pair_that_turns(times: float) -> float:
            positions = rope["original_max_position_embeddings"] / (2 * np.pi * times)
            return float(pairs * np.log(positions) / np.log(weights.theta))

        low = np.floor(pair_that_turns(rope["beta_fast"]))
        high = np.ceil(pair_that_turns(rope["beta_slow"]))
        stretched = np.clip((np.arange(pairs) - low) / (high - low), 0, 1)
        turns = weights.theta ** (-np.arange(pairs) / pairs)
        turns *= 1 - stretched + stretched / rope["factor"]
        self._turns_by = turns.astype(np.float32)
        self._size = np.float32(0.1 * np.log(rope["factor"]) + 1)

    def _turns(self, start: int, stop: int) -> tuple[Array, Array]:
        cos, sin = super()._turns(start, stop)
        return cos * self._size, sin * self._size


def config_of(name: str) -> dict[str, Any]:
    """Return config.json of a reference: of `qwen3`, or of all other shapes."""
    if name != QWEN3:
        return read_config()
    config: dict[str, Any] = json.loads((DATA / "qwen3.json").read_text("utf-8"))
    return config


def engine_of(name: str) -> NumpyEngine:
    """Return a reference in NumPy with an empty cache: of `qwen3`, or of all other shapes."""
    if name != QWEN3:
        return load_engine()
    shape = qwen3()
    rope = shape.config["rope_parameters"]
    return YarnEngine(load_weights(shape.config, shape.tensors), rope)


def rotation_of(width: int) -> NDArray[np.float64]:
    """Return an orthogonal matrix whose entries are whole numbers divided by the width.

    Signs are drawn between two Hadamard matrices. width: a power of 2.
    """
    turn = hadamard(width).astype(np.float64) * np.sqrt(width)
    signs = np.random.default_rng(4).integers(0, 2, width) * 2 - 1
    rotation: NDArray[np.float64] = np.rint(turn) * signs @ np.rint(turn) / width
    return rotation


def pad(checkpoint: Checkpoint) -> None:
    """Make the residual stream as wide as all heads together, with zeros.

    A norm divides by the root of the mean square, which is a fourth over four times the width:
    halved weights and a fourth of the epsilon undo that.
    """
    config, tensors = checkpoint.config, checkpoint.tensors
    head = config["head_dim"]
    sizes = {
        "q_proj": (HEADS * head, WIDTH),
        "k_proj": (KV_HEADS * head, WIDTH),
        "v_proj": (KV_HEADS * head, WIDTH),
        "o_proj": (WIDTH, HEADS * head),
        "gate_proj": (WIDTH, WIDTH),
        "up_proj": (WIDTH, WIDTH),
        "down_proj": (WIDTH, WIDTH),
    }
    for name, bits in tensors.items():
        part = name.split(".")[-2]
        if part.endswith("norm"):
            weights = np.zeros(WIDTH, np.float32)
            weights[: len(bits)] = floats_of(bits) / np.sqrt(TIMES)
            tensors[name] = exact_bits(weights)
        else:
            tensors[name] = zero_padded(bits, sizes.get(part, (len(bits), WIDTH)))
    config |= {
        "hidden_size": WIDTH,
        "intermediate_size": WIDTH,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "rms_norm_eps": config["rms_norm_eps"] / TIMES,
    }


def zero_padded(bits: Bits, shape: tuple[int, ...]) -> Bits:
    """Return a tensor of a larger shape, with zeros behind its values in each direction."""
    larger = np.zeros(shape, np.uint16)
    larger[tuple(slice(0, size) for size in bits.shape)] = bits
    return larger


def keep_llama(_checkpoint: Checkpoint) -> None:
    """Leave the checkpoint a Llama."""


def mistral(checkpoint: Checkpoint) -> None:
    """Name it a Mistral without a window."""
    checkpoint.rename("MistralForCausalLM", "mistral", sliding_window=None)


def qwen2(checkpoint: Checkpoint) -> None:
    """Name it a Qwen2, whose projections have biases: zeros."""
    checkpoint.rename("Qwen2ForCausalLM", "qwen2", use_sliding_window=False)
    for prefix in checkpoint.layers:
        for part in PROJECTIONS:
            name = f"{prefix}self_attn.{part}_proj"
            rows = len(checkpoint.tensors[f"{name}.weight"])
            checkpoint.tensors[f"{name}.bias"] = np.zeros(rows, np.uint16)


def windows(checkpoint: Checkpoint) -> None:
    """Give the first layer a window: its heads look four tokens back at most.

    The second and the third must see all of the prompt.
    """
    qwen2(checkpoint)
    count = checkpoint.config["num_hidden_layers"]
    checkpoint.config.update(
        use_sliding_window=True,
        sliding_window=WINDOW,
        max_window_layers=1,
        layer_types=["sliding_attention"] + ["full_attention"] * (count - 1),
    )


def phi3(checkpoint: Checkpoint) -> None:
    """Join projections, as Phi-3 has them."""
    checkpoint.rename(
        "Phi3ForCausalLM",
        "phi3",
        sliding_window=None,
        original_max_position_embeddings=checkpoint.config["max_position_embeddings"],
        partial_rotary_factor=1.0,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
    )
    for prefix in checkpoint.layers:
        join(checkpoint.tensors, f"{prefix}self_attn.", PROJECTIONS, "qkv")
        join(checkpoint.tensors, f"{prefix}mlp.", (GATE, UP), "gate_up")


def join(tensors: Tensors, prefix: str, parts: str | tuple[str, ...], name: str) -> None:
    """Put projections into one tensor, one below the other."""
    rows = [tensors.pop(f"{prefix}{part}_proj.weight") for part in parts]
    tensors[f"{prefix}{name}_proj.weight"] = np.concatenate(rows)


def unequal_experts(checkpoint: Checkpoint) -> None:
    """Give the second layer experts of which only one is right for a token.

    It copies which digit a token is. Each expert has a neuron that is shut for its own three
    digits; for another's it makes a full stop of what is copied.
    """
    tensors, prefix = checkpoint.tensors, "model.layers.1."
    gate, up, down = (
        floats_of(tensors[f"{prefix}mlp.{part}_proj.weight"]) for part in (GATE, UP, DOWN)
    )
    mixtral(checkpoint)
    router = np.zeros((EXPERTS, WIDTH), np.float32)
    # The first neuron that copies nothing.
    spare = COPIES
    for expert, own_neurons in enumerate(np.split(np.arange(COPIES), EXPERTS)):
        others = np.setdiff1d(np.arange(COPIES), own_neurons)
        router[expert] = SURE * up[own_neurons].sum(axis=0)
        spoils = SHUT * up[own_neurons].sum(axis=0) + OPEN * up[others].sum(axis=0)
        changes = {
            GATE: with_row(gate, spare, spoils),
            # The gates that copy are always open: such a row is eight for any token.
            UP: with_row(up, spare, gate[0] / OPEN),
            DOWN: with_row(down.T, spare, SPOILT * down[:, FULL_STOP]).T,
        }
        for part, values in changes.items():
            name = f"{prefix}block_sparse_moe.experts.{expert}.{MIXTRAL[part]}.weight"
            tensors[name] = nearest_bits(values)
    tensors[f"{prefix}block_sparse_moe.gate.weight"] = nearest_bits(router)


def with_row(values: Array, number: int, row: Array) -> Array:
    """Return a copy with another row. Raises ValueError if the row was not zeros before."""
    if values[number].any():
        raise ValueError(f"Neuron {number} is in use.")
    changed = values.copy()
    changed[number] = row
    return changed


def mixtral(checkpoint: Checkpoint) -> None:
    """Name it a Mixtral whose four experts are equal and whose routers are drawn.

    Any two experts are right, but their shares must come to one.
    """
    checkpoint.rename(
        "MixtralForCausalLM",
        "mixtral",
        num_local_experts=EXPERTS,
        num_experts_per_tok=CHOSEN,
        sliding_window=None,
        router_aux_loss_coef=0.0,
        output_router_logits=False,
        router_jitter_noise=0.0,
    )
    tensors = checkpoint.tensors
    random = np.random.default_rng(1)
    # Beyond the width of the gauge all is zero.
    width = WIDTH // TIMES
    for prefix in checkpoint.layers:
        for part, name in MIXTRAL.items():
            bits = tensors.pop(f"{prefix}mlp.{part}_proj.weight")
            for expert in range(EXPERTS):
                tensors[f"{prefix}block_sparse_moe.experts.{expert}.{name}.weight"] = bits.copy()
        router = np.zeros((EXPERTS, WIDTH), np.float32)
        router[:, :width] = random.normal(size=(EXPERTS, width))
        tensors[f"{prefix}block_sparse_moe.gate.weight"] = nearest_bits(router)


# What an engine has for each shape alone: docs/gauge.md. All but two are padded.
SHAPES: Mapping[str, Callable[[Checkpoint], None]] = {
    USUAL: keep_llama,
    "padded": keep_llama,
    "mistral": mistral,
    "qwen2": qwen2,
    "phi3": phi3,
    "windows": windows,
    "experts": mixtral,
    "unequal-experts": unequal_experts,
    QWEN3: keep_llama,
}
