"""The model in the box: a small transformer in NumPy that retrieves, with its weights in the
package.

`demo/retriever` was trained on sequences of at most 256 tokens of the generated haystack to answer
the default English question, and on nothing else: it finds that kind of needle within that length
and loses it beyond. It does not chat, and knows no other wording. tools/train_demo_model.py made
it; training.json beside its weights says how, and what it was measured to find.

Decoder only, with a KV cache that can be cropped: an `Engine` for `walk.py`. Rotary positions, RMS
norms before each part, SiLU-gated inner layers, embeddings tied to the output; float32 throughout.
It runs any length: positions that were never trained make it wrong, not fail. No sampling, no
batches, no training.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from needlemap.errors import Failure, SettingsError, Unmeasured, did_you_mean
from needlemap.models import MARK, Answer, Decoding, Traits
from needlemap.models.model_files import weights_fingerprint
from needlemap.models.walk import Engine, Ids, WalkingModel
from needlemap.prompts import TEXT, Prompt
from needlemap.text.tokens import Tokenizer, TokenText
from needlemap.tokenizers import load

Array = NDArray[np.float32]
# Tokens computed at a time: what a prompt needs besides the cache does not grow with its length.
CHUNK = 128
# Scores of attention at a time: half a megabyte.
_SCORES = 2**17
# Nats below a query's best score. Of scores far below, e to the score is a denormal number, with
# which Intel's processors compute a hundred times slower; e to this is lost next to 1.
_LEAST = np.float32(-60)
# Tokens by which the cache grows at least.
_GROWTH = 1024
NAMES = ("retriever",)
WEIGHTS, TOKENIZER = "retriever.npz", "tokenizer.json"
DATA = Path(str(files("needlemap") / "models" / "demo_data"))


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One layer's arrays.

    Attributes:
        attend: (heads + 2 shared, each of a head's width; width), queries, keys and values.
        mix: (width, heads' width).
        widen: (2 inner, width), gates first.
        narrow: (width, inner).
        norm_1, norm_2: (width,).
        norm_heads: (heads + shared, 1, a head's width), of queries and keys; None: they have none.
    """

    norm_1: Array
    attend: Array
    mix: Array
    norm_2: Array
    widen: Array
    narrow: Array
    norm_heads: Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """A transformer's arrays and numbers.

    Attributes:
        embedding, output: (vocabulary, width).
        last_norm: (width,).
        heads: The heads of queries.
        shared: The heads of keys and values.
        theta: The base of rotary positions.
        eps: That of norms.
        short_angles: Whether rotary angles are rounded to 32 bits before their cosine is taken, as
            other engines do.
    """

    embedding: Array
    output: Array
    last_norm: Array
    layers: tuple[Layer, ...]
    heads: int
    shared: int
    theta: float
    eps: float
    short_angles: bool = False

    @classmethod
    def load(cls, path: Path) -> Weights:
        """Read an .npz of fp16 arrays, in which 'N.mix' is layer N's."""
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name], np.float32) for name in file.files}
            sizes = {name: float(file[name]) for name in ("heads", "theta", "eps")}
        names = Layer.__dataclass_fields__.keys() - {"norm_heads"}
        count = sum(name.endswith(".mix") for name in arrays)
        layers = tuple(
            Layer(**{name: arrays[f"{index}.{name}"] for name in names}) for index in range(count)
        )
        return cls(
            embedding=arrays["embedding"],
            output=arrays["embedding"],
            last_norm=arrays["last_norm"],
            layers=layers,
            heads=int(sizes["heads"]),
            shared=int(sizes["heads"]),
            theta=sizes["theta"],
            eps=sizes["eps"],
        )

    @property
    def head_width(self) -> int:
        """Return how many numbers one head's query, key or value has."""
        return int(self.layers[0].attend.shape[0]) // (self.heads + 2 * self.shared)


class NumpyEngine(Engine):
    """One sequence's cache, and the transformer that extends it. See `walk.Engine`.

    Its matrices are so small that BLAS threads only wait for each other (ten times slower on busy
    cores), so it computes in one; that also makes the result the same on any number of cores.
    """

    def __init__(self, weights: Weights) -> None:
        self._threads = ThreadpoolController()
        self._weights = weights
        turns = weights.theta ** (-np.arange(0, weights.head_width, 2) / weights.head_width)
        self._turns_by: NDArray[Any] = turns.astype(np.float32) if weights.short_angles else turns
        self._length = 0
        self._cache = self._empty_cache(0)

    @property
    def cache(self) -> Array:
        """Return keys and values held: (layers, 2, shared heads, tokens, head width).

        It is a view, for those who check it.
        """
        return self._cache[:, :, :, : self._length]

    def extend(self, ids: Ids) -> Array:
        """Compute ids behind the cache, and return the last position's logits, (vocabulary,).

        Raises Unmeasured(MEMORY).
        """
        if not len(ids):
            raise ValueError("extend needs at least one token")
        with self._one_thread():
            last = deque(self._chunks(ids, last_only=True), maxlen=1)[0]
            return self._logits(last[-1])

    def extend_all(self, ids: Ids) -> Array:
        """Return the logits of every position, (tokens, vocabulary)."""
        with self._one_thread():
            return self._logits(np.concatenate(list(self._chunks(ids))))

    def crop(self, length_tokens: int) -> int:
        """Keep the first length_tokens tokens, exactly as they were; none: free the memory."""
        if not 0 <= length_tokens <= self._length:
            raise ValueError(f"cannot crop a cache of {self._length} tokens to {length_tokens}")
        self._length = length_tokens
        if not length_tokens:
            self._cache = self._empty_cache(0)
        return length_tokens

    def _chunks(self, ids: Ids, *, last_only: bool = False) -> Iterator[Array]:
        """Yield hidden states of ids, chunk by chunk, which are then in the cache.

        last_only: whether only those of the last chunk are computed to the end.
        """
        try:
            self._make_room(self._length + len(ids))
            for start in range(0, len(ids), CHUNK):
                self.check()
                is_whole = not last_only or start + CHUNK >= len(ids)
                yield self._chunk(ids[start : start + CHUNK], is_whole=is_whole)
        except MemoryError:
            tokens = self._length + len(ids)
            raise Unmeasured(
                Failure.MEMORY, f"No memory for a cache of {tokens:,} tokens."
            ) from None

    def _logits(self, hidden: Array) -> Array:
        logits: Array = self._norm(hidden, self._weights.last_norm) @ self._weights.output.T
        return logits

    def _one_thread(self) -> AbstractContextManager[object]:
        context: AbstractContextManager[object] = self._threads.limit(limits=1, user_api="blas")
        return context

    def _chunk(self, ids: Ids, *, is_whole: bool = True) -> Array:
        """Return hidden states of a few tokens, (tokens, width).

        is_whole: if False, they are those before the last layer, of which only the cache is needed.
        """
        start, stop = self._length, self._length + len(ids)
        cos, sin = self._turns(start, stop)
        heads, shared = self._weights.heads, self._weights.shared
        hidden: Array = self._weights.embedding[ids]
        for layer, cache in zip(self._weights.layers, self._cache, strict=True):
            projected = self._norm(hidden, layer.norm_1) @ layer.attend.T
            by_head = projected.reshape(len(ids), heads + 2 * shared, -1).transpose(1, 0, 2)
            turning = by_head[: heads + shared]
            if layer.norm_heads is not None:
                turning = self._norm(turning, layer.norm_heads)
            rotated = turned(turning, cos, sin)
            keys, values = self._cache_entries(rotated[heads:], by_head[heads + shared :])
            cache[0, :, start:stop], cache[1, :, start:stop] = keys, values
            if layer is self._weights.layers[-1] and not is_whole:
                break
            mixed = attention(rotated[:heads], cache[0, :, :stop], cache[1, :, :stop])
            hidden = hidden + mixed.transpose(1, 0, 2).reshape(len(ids), -1) @ layer.mix.T
            inner = gated(self._norm(hidden, layer.norm_2) @ layer.widen.T)
            hidden = hidden + inner @ layer.narrow.T
        self._length = stop
        return hidden

    def _cache_entries(self, keys: Array, values: Array) -> tuple[Array, Array]:
        """Return what the cache holds of new keys and values.

        Each is (shared heads, tokens, head width).
        """
        return keys, values

    def _norm(self, hidden: Array, scale: Array) -> Array:
        total: Array = np.add.reduce(hidden * hidden, axis=-1, keepdims=True)
        mean = total / np.float32(hidden.shape[-1])
        normed: Array = hidden / np.sqrt(mean + np.float32(self._weights.eps)) * scale
        return normed

    def _turns(self, start: int, stop: int) -> tuple[Array, Array]:
        """Return cosines and sines of positions start..stop: (tokens, head width / 2) each."""
        angles = np.arange(start, stop, dtype=self._turns_by.dtype)[:, None] * self._turns_by
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    def _make_room(self, tokens: int) -> None:
        """Enlarge the cache so that it can hold some tokens.

        Its size doubles, so that an answer token by token does not copy it each time.
        """
        capacity = self._cache.shape[3]
        if tokens > capacity:
            larger_cache = self._empty_cache(max(tokens, 2 * capacity, _GROWTH))
            larger_cache[:, :, :, : self._length] = self.cache
            self._cache = larger_cache

    def _empty_cache(self, tokens: int) -> Array:
        weights = self._weights
        return np.empty(
            (len(weights.layers), 2, weights.shared, tokens, weights.head_width), np.float32
        )


def attention(queries: Array, keys: Array, values: Array) -> Array:
    """Return causal attention of the last tokens: (heads, tokens, width).

    queries: (heads, tokens, width). keys, values: (shared heads, all tokens, width), each for as
    many heads.
    """
    heads, tokens, width = queries.shape
    grouped = queries.reshape(len(keys), -1, width) / np.sqrt(np.float32(width))
    mixed = [_attended(*group, tokens) for group in zip(grouped, keys, values, strict=True)]
    return np.stack(mixed).reshape(heads, tokens, width)


def _attended(queries: Array, keys: Array, values: Array, tokens: int) -> Array:
    """Return the heads that share keys and values, one behind the other: (heads * tokens, width).

    Keys are taken block by block, so that scores stay in the processor's cache; what was mixed
    before is weighed again (online softmax, Milakov & Gimelshein 2018, arXiv:1805.02867).
    """
    block = max(1, _SCORES // len(queries))
    first = len(keys) - tokens
    best_scores = np.full((len(queries), 1), -np.inf, np.float32)
    total: Array = np.zeros_like(best_scores)
    mixed: Array = np.zeros_like(queries)
    for start in range(0, len(keys), block):
        scores = queries @ keys[start : start + block].T
        places = np.arange(start, start + scores.shape[1])
        if places[-1] > first:
            is_later = places > np.arange(first, len(keys))[:, None]
            scores.reshape(-1, *is_later.shape)[:, is_later] = -np.inf
        new_best = np.maximum(best_scores, scores.max(axis=-1, keepdims=True))
        rescaling = np.exp(best_scores - new_best)
        scores -= new_best
        np.maximum(scores, _LEAST, out=scores)
        np.exp(scores, out=scores)
        total = total * rescaling + scores.sum(axis=-1, keepdims=True)
        mixed = mixed * rescaling + scores @ values[start : start + block]
        best_scores = new_best
    return mixed / total


def turned(vectors: Array, cos: Array, sin: Array) -> Array:
    """Turn each pair by its position's angle.

    Rotary positions: Su et al. 2021, arXiv:2104.09864.
    """
    left, right = halves(vectors)
    return np.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)


def gated(values: Array) -> Array:
    """Return the first half's x * sigmoid(x) times the second half, without overflow."""
    gate, up = halves(values)
    half = np.float32(0.5)
    product: Array = gate * (half + half * np.tanh(half * gate)) * up
    return product


def halves(values: Array) -> tuple[Array, Array]:
    """Return the two halves of the last axis."""
    middle = values.shape[-1] // 2
    return values[..., :middle], values[..., middle:]


class DemoModel(WalkingModel):
    """The model in the box, which answers greedily, one prompt after another.

    folder: other weights and tokenizer, as tools/train_demo_model.py writes them, instead of the
    package's.
    """

    unread, free = ("temperature", "thinking_tokens", "request", "concurrency"), True
    backend = "demo"

    def __init__(self, name: str, *, folder: Path = DATA) -> None:
        check_name(name)
        vocabulary = tokenizers.Tokenizer.from_file(tokenizer_in(folder))
        super().__init__(name, load_engine(folder), stop_tokens(vocabulary), vocabulary)

    @classmethod
    def traits(cls, name: str, options: Mapping[str, Any]) -> Traits:
        """Return its traits: one plain text, in tokens of its own vocabulary, fed as ids."""
        check_name(name)
        folder = Path(options.get("folder", DATA))
        path = tokenizer_in(folder)
        return Traits(
            chat=False,
            tokenizer=path,
            render=partial(rendered, load(path)),
            teacher=True,
            serial=True,
            weights=weights_fingerprint(folder),
            request=(),
        )

    def answer_ids(self, prompt: Prompt, answer: str) -> Ids:
        """Return the ids of an answer of one line, behind a blank."""
        return np.array(
            self._vocabulary.encode(f" {answer}", add_special_tokens=False).ids, np.int32
        )

    def refuse(self, ids: Ids, answer_tokens: int, decoding: Decoding) -> None:
        """Raise Unmeasured for request fields and temperatures: it has neither."""
        if decoding.temperature:
            raise Unmeasured(
                Failure.REJECTED, "demo/retriever always answers greedily. Use --temperature 0."
            )
        if decoding.request:
            fields = ", ".join(sorted(decoding.request))
            raise Unmeasured(
                Failure.REJECTED, f"demo/retriever takes no request fields, got {fields}."
            )

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        """Answer once, without the blank that stands before an answer. Raises Unmeasured."""
        answer = await super().answer(prompt, decoding)
        return replace(answer, text=answer.text.removeprefix(" "))


def check_name(name: str) -> None:
    """Raise SettingsError for a model that is not in the box."""
    if name not in NAMES:
        raise SettingsError(f"Unknown demo model '{name}'. {did_you_mean(name, NAMES)}")


def tokenizer_in(folder: Path) -> str:
    """Return the path of a folder's tokenizer. Raises SettingsError if a file is missing."""
    for file in (WEIGHTS, TOKENIZER):
        if not (folder / file).is_file():
            raise SettingsError(
                f"No {file} in '{folder}'. Leave the option 'folder' out to ask the model in the "
                f"package, or make one: python tools/train_demo_model.py --out FOLDER"
            )
    return str(folder / TOKENIZER)


def load_engine(folder: Path) -> NumpyEngine:
    """Return the transformer in a folder, with an empty cache."""
    return NumpyEngine(Weights.load(folder / WEIGHTS))


def stop_tokens(vocabulary: tokenizers.Tokenizer) -> tuple[int, ...]:
    """Return every token that holds a line break: an answer is one line."""
    size = vocabulary.get_vocab_size()
    return tuple(number for number in range(size) if "\n" in vocabulary.decode([number]))


def rendered(tokenizer: Tokenizer, rows: Sequence[tuple[str, str]]) -> tuple[TokenText, TokenText]:
    """Return the tokens around a context, of one plain text and nothing more.

    The model has no special token.
    """
    if rows[0][0] != TEXT:
        raise SettingsError("demo/retriever takes one plain text, no chat. Use --template text-en.")
    head, _, tail = "".join(text for _, text in rows).partition(MARK)
    return tokenizer.index(head.encode()), tokenizer.index(tail.encode())
