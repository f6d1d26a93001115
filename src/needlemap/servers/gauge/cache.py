"""The gauge with a coarse cache: keys and values in four or eight bits, as engines keep them.

Rounding moves margins in another way than a fault does. This engine computes how, so that a
coarse cache, which is its owner's choice, is distinguished from a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from needlemap.models.demo import Array, NumpyEngine
from needlemap.servers.gauge.checkpoint import load_weights

Round = Callable[[Array], Array]
WIDE = 32  # numbers that share a scale in llama.cpp
FP8_LEAST, FP8_BITS, FP8_MOST = -6, 3, 448.0  # exponent, bits behind the point, largest number


def four_bits(values: Array) -> Array:
    """Round in blocks to 4 bits: in each block the number that lies farthest from 0 is the last
    of 8 steps (q4_0 in llama.cpp's ggml-quants.c)."""
    blocks = values.reshape(*values.shape[:-1], -1, WIDE)
    far = np.abs(blocks).argmax(-1)[..., None]
    scale = np.take_along_axis(blocks, far, -1) / -8
    levels = np.minimum(15, np.floor(blocks * inverse(scale) + 8.5)) - 8
    made: Array = (levels * short(scale)).astype(np.float32)
    return made.reshape(values.shape)


def eight_bits(values: Array) -> Array:
    """Round in blocks to 8 bits (q8_0 in llama.cpp's ggml-quants.c)."""
    blocks = values.reshape(*values.shape[:-1], -1, WIDE)
    scale = np.abs(blocks).max(-1, keepdims=True) / 127
    levels = np.round(blocks * inverse(scale))
    made: Array = (levels * short(scale)).astype(np.float32)
    return made.reshape(values.shape)


def inverse(scale: NDArray[Any]) -> NDArray[Any]:
    """Return 1 / scale, and 0 for a block of zeros."""
    return np.where(scale == 0, 0, 1 / np.where(scale == 0, 1, scale))


def short(values: NDArray[Any]) -> Array:
    """Scales, which are kept in 16 bits."""
    return values.astype(np.float16).astype(np.float32)


def turned(rounded: Round) -> Round:
    """Round in the basis of a Hadamard matrix, as llama.cpp does since 2026."""

    def rounded_behind_turn(values: Array) -> Array:
        turn = hadamard(values.shape[-1])
        return rounded(values @ turn) @ turn.T

    return rounded_behind_turn


def hadamard(size: int) -> Array:
    """Sylvester's matrix of a power of 2, orthogonal: (size, size)."""
    made = np.ones((1, 1), np.float32)
    for _ in range(size.bit_length() - 1):
        made = np.block([[made, made], [made, -made]])
    turn: Array = made / np.sqrt(np.float32(size))
    return turn


def fp8(values: Array) -> Array:
    """Round to the nearest 8-bit float with 4 bits of exponent, without a scale
    (Micikevicius et al. 2022, arXiv:2209.05433)."""
    step = fp8_step(values)
    near: Array = np.clip(np.round(values / step) * step, -FP8_MOST, FP8_MOST).astype(np.float32)
    return near


def fp8_cut_off(values: Array) -> Array:
    """Return the 8-bit float next to each value toward 0: a mantissa cut off, not rounded.

    vLLM 0.32.0 filled its cache like this on a CPU.
    """
    step = fp8_step(values)
    cut: Array = np.clip(np.trunc(values / step) * step, -FP8_MOST, FP8_MOST).astype(np.float32)
    return cut


def fp8_step(values: Array) -> Array:
    """Distances of neighbouring 8-bit floats around each value."""
    exponent = np.floor(np.log2(np.maximum(np.abs(values), 2.0**FP8_LEAST)))
    step: Array = np.exp2(exponent - FP8_BITS)
    return step


# A cache coarser than the weights, as an engine may be told to keep it.
COARSER: tuple[Round, ...] = (turned(four_bits), turned(eight_bits), fp8)


class CoarseEngine(NumpyEngine):
    """The gauge whose keys and values are rounded."""

    def __init__(self, rounded: Round) -> None:
        super().__init__(load_weights())
        self._round = rounded

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
