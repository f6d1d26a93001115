"""A small decoder-only transformer in NumPy, with a KV cache that can be cropped: an `Engine` for `walk.py`.

Rotary positions, RMS norms before each part, SiLU-gated inner layers, embeddings tied to the output; float32
throughout. It runs any length: positions that were never trained make it wrong, not fail. No sampling, no
batches, no training (see tools/train_demo_model.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from needlemap.errors import Failure, Unmeasured
from needlemap.models.walk import Ids

Array = NDArray[np.float32]
CHUNK = 128  # tokens computed at a time: what a prompt needs beside the cache does not grow with its length
_GROWTH = 1024  # tokens by which the cache grows at least


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """attend: (3 width, width), queries, keys and values; mix: (width, width); widen: (2 inner, width), gates
    first; narrow: (width, inner); norm_1, norm_2: (width,)."""

    norm_1: Array
    attend: Array
    mix: Array
    norm_2: Array
    widen: Array
    narrow: Array


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """embedding: (vocabulary, width); last_norm: (width,). theta: base of rotary positions; eps: of norms."""

    embedding: Array
    last_norm: Array
    layers: tuple[Layer, ...]
    heads: int
    theta: float
    eps: float

    @classmethod
    def load(cls, path: Path) -> Weights:
        """From an .npz of fp16 arrays, in which 'N.mix' is layer N's."""
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name], np.float32) for name in file.files}
            sizes = {name: float(file[name]) for name in ("heads", "theta", "eps")}
        names = Layer.__dataclass_fields__
        count = sum(name.endswith(".mix") for name in arrays)
        layers = tuple(Layer(**{name: arrays[f"{n}.{name}"] for name in names}) for n in range(count))
        heads, theta, eps = int(sizes["heads"]), sizes["theta"], sizes["eps"]
        return cls(arrays["embedding"], arrays["last_norm"], layers, heads, theta, eps)

    @property
    def head_width(self) -> int:
        """Numbers in one head's query, key or value."""
        return int(self.embedding.shape[1]) // self.heads

    @property
    def parameters(self) -> int:
        """How many numbers were trained."""
        layers = [getattr(layer, name).size for layer in self.layers for name in Layer.__dataclass_fields__]
        return int(self.embedding.size + self.last_norm.size + sum(layers))


class NumpyEngine:
    """One sequence's cache, and the transformer that extends it. See `walk.Engine`.

    Its matrices are so small that BLAS threads only wait for each other (ten times slower on busy cores), so
    it computes in one; that also makes the result the same on any number of cores.
    """

    def __init__(self, weights: Weights) -> None:
        self._threads = ThreadpoolController()
        self._weights = weights
        self._length = 0
        self._cache = self._empty(0)

    @property
    def cache(self) -> Array:
        """Keys and values held: (layers, 2, heads, tokens, head width). A view, for those who check it."""
        return self._cache[:, :, :, : self._length]

    def extend(self, ids: Ids) -> Array:
        """Compute ids behind the cache; the last position's logits, (vocabulary,).

        Raises Unmeasured(MEMORY).
        """
        if not len(ids):
            raise ValueError("extend needs at least one token")
        last = deque(self._chunks(ids), maxlen=1)[0]
        return self._logits(last[-1])

    def extend_all(self, ids: Ids) -> Array:
        """As `extend`, but the logits of every position, (tokens, vocabulary)."""
        return self._logits(np.concatenate(list(self._chunks(ids))))

    def crop(self, length_tokens: int) -> int:
        """Keep the first length_tokens tokens, exactly as they were; none: free the memory."""
        if not 0 <= length_tokens <= self._length:
            raise ValueError(f"cannot crop a cache of {self._length} tokens to {length_tokens}")
        self._length = length_tokens
        if not length_tokens:
            self._cache = self._empty(0)
        return length_tokens

    def _chunks(self, ids: Ids) -> Iterator[Array]:
        """Hidden states of ids, chunk by chunk, which are then in the cache."""
        try:
            self._make_room(self._length + len(ids))
            for start in range(0, len(ids), CHUNK):
                with self._one_thread():
                    hidden = self._chunk(ids[start : start + CHUNK])
                yield hidden
        except MemoryError:
            tokens = self._length + len(ids)
            raise Unmeasured(Failure.MEMORY, f"No memory for a cache of {tokens:,} tokens.") from None

    def _logits(self, hidden: Array) -> Array:
        with self._one_thread():
            logits: Array = self._norm(hidden, self._weights.last_norm) @ self._weights.embedding.T
        return logits

    def _one_thread(self) -> AbstractContextManager[object]:
        context: AbstractContextManager[object] = self._threads.limit(limits=1, user_api="blas")
        return context

    def _chunk(self, ids: Ids) -> Array:
        """Hidden states of a few tokens, (tokens, width)."""
        start, stop = self._length, self._length + len(ids)
        cos, sin = self._turns(start, stop)
        hidden: Array = self._weights.embedding[ids]
        for layer, cache in zip(self._weights.layers, self._cache, strict=True):
            joint = self._norm(hidden, layer.norm_1) @ layer.attend.T
            parts = joint.reshape(len(ids), 3, self._weights.heads, -1).transpose(1, 2, 0, 3)
            both = turned(parts[:2], cos, sin)
            cache[0, :, start:stop], cache[1, :, start:stop] = both[1], parts[2]
            mixed = attention(both[0], cache[0, :, :stop], cache[1, :, :stop])
            hidden = hidden + mixed.transpose(1, 0, 2).reshape(hidden.shape) @ layer.mix.T
            hidden = hidden + gated(self._norm(hidden, layer.norm_2) @ layer.widen.T) @ layer.narrow.T
        self._length = stop
        return hidden

    def _norm(self, hidden: Array, scale: Array) -> Array:
        mean = np.mean(hidden * hidden, axis=-1, keepdims=True)
        normed: Array = hidden / np.sqrt(mean + np.float32(self._weights.eps)) * scale
        return normed

    def _turns(self, start: int, stop: int) -> tuple[Array, Array]:
        """Cosines and sines of positions start..stop: (tokens, head width / 2) each."""
        width = self._weights.head_width
        angles = np.arange(start, stop)[:, None] * self._weights.theta ** (-np.arange(0, width, 2) / width)
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    def _make_room(self, tokens: int) -> None:
        if tokens > self._cache.shape[3]:
            grown = self._empty(max(tokens, 2 * self._cache.shape[3], _GROWTH))
            grown[:, :, :, : self._length] = self.cache
            self._cache = grown

    def _empty(self, tokens: int) -> Array:
        weights = self._weights
        return np.empty((len(weights.layers), 2, weights.heads, tokens, weights.head_width), np.float32)


def attention(queries: Array, keys: Array, values: Array) -> Array:
    """Causal attention of the last tokens. queries: (heads, tokens, width); keys, values: (heads, all tokens,
    width). Returns (heads, tokens, width)."""
    tokens = queries.shape[1]
    scores = queries @ keys.transpose(0, 2, 1) / np.sqrt(np.float32(queries.shape[-1]))
    if tokens > 1:
        scores[:, :, -tokens:] += np.triu(np.full((tokens, tokens), -np.inf, np.float32), 1)
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    mixed: Array = scores @ values / scores.sum(axis=-1, keepdims=True)
    return mixed


def turned(vectors: Array, cos: Array, sin: Array) -> Array:
    """Rotary positions (Su et al. 2021, arXiv:2104.09864): each pair is turned by its position's angle."""
    left, right = halves(vectors)
    return np.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)


def gated(values: Array) -> Array:
    """The first half's x * sigmoid(x), written so that nothing overflows, times the second half."""
    gate, up = halves(values)
    half = np.float32(0.5)
    product: Array = gate * (half + half * np.tanh(half * gate)) * up
    return product


def halves(values: Array) -> tuple[Array, Array]:
    """The two halves of the last axis."""
    middle = values.shape[-1] // 2
    return values[..., :middle], values[..., middle:]
