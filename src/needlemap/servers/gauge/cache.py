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
# Numbers that share a scale in llama.cpp.
BLOCK = 32
# Smallest exponent, bits behind the point, and largest number of the float E4M3.
FP8_LEAST, FP8_BITS, FP8_MOST = -6, 3, 448.0


def four_bits(values: Array) -> Array:
    """Round in blocks to 4 bits (q4_0 in llama.cpp's ggml-quants.c).

    In each block the number that lies farthest from 0 is the last of 8 steps.
    """
    blocks = values.reshape(*values.shape[:-1], -1, BLOCK)
    farthest = np.abs(blocks).argmax(-1)[..., None]
    scale = np.take_along_axis(blocks, farthest, -1) / -8
    levels = np.minimum(15, np.floor(blocks * inverse(scale) + 8.5)) - 8
    rounded: Array = (levels * half_precision(scale)).astype(np.float32)
    return rounded.reshape(values.shape)


def eight_bits(values: Array) -> Array:
    """Round in blocks to 8 bits (q8_0 in llama.cpp's ggml-quants.c)."""
    blocks = values.reshape(*values.shape[:-1], -1, BLOCK)
    scale = np.abs(blocks).max(-1, keepdims=True) / 127
    levels = np.round(blocks * inverse(scale))
    rounded: Array = (levels * half_precision(scale)).astype(np.float32)
    return rounded.reshape(values.shape)


def inverse(scale: NDArray[Any]) -> NDArray[Any]:
    """Return 1 / scale, and 0 for a block of zeros."""
    return np.where(scale == 0, 0, 1 / np.where(scale == 0, 1, scale))


def half_precision(values: NDArray[Any]) -> Array:
    """Return values rounded to 16 bits, in which llama.cpp keeps scales."""
    return values.astype(np.float16).astype(np.float32)


def rotated_rounding(rounding: Round) -> Round:
    """Return a rounding in the basis of a Hadamard matrix, as llama.cpp has it since 2026."""

    def round_in_basis(values: Array) -> Array:
        basis = hadamard(values.shape[-1])
        return rounding(values @ basis) @ basis.T

    return round_in_basis


def hadamard(size: int) -> Array:
    """Return Sylvester's orthogonal matrix, (size, size). size: a power of 2."""
    signs = np.ones((1, 1), np.float32)
    for _ in range(size.bit_length() - 1):
        signs = np.block([[signs, signs], [signs, -signs]])
    matrix: Array = signs / np.sqrt(np.float32(size))
    return matrix


def fp8(values: Array) -> Array:
    """Round to the nearest 8-bit float with 4 bits of exponent, without a scale.

    Micikevicius et al. (2022), arXiv:2209.05433.
    """
    step = fp8_step(values)
    floats = np.round(values / step) * step
    rounded: Array = np.clip(floats, -FP8_MOST, FP8_MOST).astype(np.float32)
    return rounded


def fp8_cut_off(values: Array) -> Array:
    """Return the 8-bit float next to each value toward 0: a mantissa cut off, not rounded.

    vLLM 0.32.0 filled its cache like this on a CPU.
    """
    step = fp8_step(values)
    floats = np.trunc(values / step) * step
    cut_off: Array = np.clip(floats, -FP8_MOST, FP8_MOST).astype(np.float32)
    return cut_off


def fp8_step(values: Array) -> Array:
    """Return the distance of neighbouring 8-bit floats around each value."""
    exponent = np.floor(np.log2(np.maximum(np.abs(values), 2.0**FP8_LEAST)))
    step: Array = np.exp2(exponent - FP8_BITS)
    return step


# A cache coarser than the weights, as an engine may be told to keep it.
COARSER: tuple[Round, ...] = (rotated_rounding(four_bits), rotated_rounding(eight_bits), fp8)


class CoarseEngine(NumpyEngine):
    """The gauge whose keys and values are rounded."""

    def __init__(self, rounding: Round) -> None:
        super().__init__(load_weights())
        self._round = rounding

    def _cache_entries(self, keys: Array, values: Array) -> tuple[Array, Array]:
        # Blocks are cut from keys in llama.cpp's order.
        rounded_keys = self._round(to_llama_cpp_order(keys))
        return to_transformers_order(rounded_keys), self._round(values)


def to_llama_cpp_order(keys: Array) -> Array:
    """Return keys in llama.cpp's order: numbers that turn together are neighbours.

    In transformers' order they lie half a head apart.
    """
    half = keys.shape[-1] // 2
    return np.stack([keys[..., :half], keys[..., half:]], -1).reshape(keys.shape)


def to_transformers_order(keys: Array) -> Array:
    """Return keys in llama.cpp's order in that of transformers again."""
    return np.concatenate([keys[..., 0::2], keys[..., 1::2]], -1)
