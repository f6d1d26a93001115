"""The gauge with a coarse cache: keys and values in four to eight bits, as engines keep them.

A coarse cache is its owner's choice. It moves margins in a way of its own. This engine
computes that way, to distinguish it from a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from needlemap.models.demo import Array, NumpyEngine
from needlemap.models.gauge import load_weights

Round = Callable[[Array], Array]
WIDE = 32  # numbers that share a scale in llama.cpp
FP8_LEAST, FP8_BITS, FP8_MOST = -6, 3, 448.0  # exponent, bits behind the point, largest number


def in_signed_blocks(values: Array, steps: int) -> Array:
    """llama.cpp's q4_0 (8 steps a side) and q5_0 (16): in each block the number that lies
    farthest from 0 is the last step (ggml-quants.c)."""
    blocks = values.reshape(*values.shape[:-1], -1, WIDE)
    far = np.abs(blocks).argmax(-1)[..., None]
    scale = np.take_along_axis(blocks, far, -1) / -steps
    turned = np.where(scale == 0, 0, 1 / np.where(scale == 0, 1, scale))
    levels = np.minimum(2 * steps - 1, np.floor(blocks * turned + steps + 0.5)) - steps
    made: Array = (levels * short(scale)).astype(np.float32)
    return made.reshape(values.shape)


def between_ends(values: Array, steps: int, size: int = WIDE) -> Array:
    """llama.cpp's q4_1 (15 steps) and q5_1 (31); with blocks of a whole head, LMDeploy's
    int4."""
    blocks = values.reshape(*values.shape[:-1], -1, size)
    least = blocks.min(-1, keepdims=True)
    scale = (blocks.max(-1, keepdims=True) - least) / steps
    levels = np.floor((blocks - least) / np.where(scale == 0, 1, scale) + 0.5)
    made: Array = (levels * short(scale) + short(least)).astype(np.float32)
    return made.reshape(values.shape)


def in_fp8(values: Array) -> Array:
    """The nearest 8-bit floats with 4 bits of exponent (Micikevicius et al. 2022,
    arXiv:2209.05433), without a scale."""
    exponent = np.floor(np.log2(np.maximum(np.abs(values), 2.0**FP8_LEAST)))
    step = np.exp2(exponent - FP8_BITS)
    near: Array = np.clip(np.round(values / step) * step, -FP8_MOST, FP8_MOST).astype(np.float32)
    return near


def short(values: NDArray[Any]) -> Array:
    """Scales, which are kept in 16 bits."""
    return values.astype(np.float16).astype(np.float32)


def behind_turn(values: Array, rounded: Round) -> Array:
    """Numbers rounded in the basis of a Hadamard matrix, as llama.cpp does since 2026."""
    turn = hadamard(values.shape[-1])
    return rounded(values @ turn) @ turn.T


def hadamard(size: int) -> Array:
    """Sylvester's matrix of a power of 2, orthogonal: (size, size)."""
    made = np.ones((1, 1), np.float32)
    for _ in range(size.bit_length() - 1):
        made = np.block([[made, made], [made, -made]])
    turn: Array = made / np.sqrt(np.float32(size))
    return turn


BLOCKS: Mapping[str, Round] = {
    "q4_0": partial(in_signed_blocks, steps=8),
    "q4_1": partial(between_ends, steps=15),
    "q5_0": partial(in_signed_blocks, steps=16),
    "q5_1": partial(between_ends, steps=31),
}
FORMATS: Mapping[str, Round] = {
    **{name: partial(behind_turn, rounded=each) for name, each in BLOCKS.items()},
    **{f"{name} of older llama.cpp": each for name, each in BLOCKS.items()},
    "int4": lambda values: between_ends(values, 15, values.shape[-1]),
    "fp8": in_fp8,
}


class CoarseEngine(NumpyEngine):
    """The gauge whose cache is of one of FORMATS."""

    def __init__(self, name: str) -> None:
        super().__init__(load_weights())
        self._round = FORMATS[name]

    def _kept(self, keys: Array, values: Array) -> tuple[Array, Array]:
        return apart(self._round(beside(keys))), self._round(values)


def beside(keys: Array) -> Array:
    """Keys in llama.cpp's order, in which numbers that turn together stand beside each
    other."""
    half = keys.shape[-1] // 2
    return np.stack([keys[..., :half], keys[..., half:]], -1).reshape(keys.shape)


def apart(keys: Array) -> Array:
    """The same back in the order of transformers."""
    return np.concatenate([keys[..., 0::2], keys[..., 1::2]], -1)
