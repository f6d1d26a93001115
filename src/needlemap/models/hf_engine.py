"""A transformers model and its KV cache as a `walk.Engine`.

What may be cropped is decided by looking at the cache that the model itself makes: only layers that keep
every token's keys and values as they are can be cropped exactly.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from needlemap.errors import Failure, Unmeasured
from needlemap.models.hf_cache import roomy_cache
from needlemap.models.walk import Ids, Logits

_NO_ROOM = re.compile(r"out of memory|can't allocate memory|not enough memory", re.IGNORECASE)
_KEEPING = ("DynamicLayer", "DummyLayer")  # every token's keys and values, unchanged; no state at all


class HuggingFaceEngine:
    """One sequence's cache, and the model that extends it in chunks.

    obstacle: why the cache cannot be cropped exactly; None where it can. full_cache: sliding-window layers
    keep all tokens too (their attention still sees only the window), so that they can be cropped.
    sliding: whether there are any that do not. vocabulary: how many tokens the model tells apart.
    """

    def __init__(self, model: Any, chunk_tokens: int, *, full_cache: bool = False) -> None:
        import torch

        self._torch, self._model = torch, model
        self._chunk = chunk_tokens
        self._device = first_device(model)
        takes = inspect.signature(model.forward).parameters
        self._cache_field = "cache_params" if "cache_params" in takes else "past_key_values"
        names = ("logits_to_keep", "num_logits_to_keep")
        self._keep_field = next((name for name in names if name in takes), None)
        self._roomy = False
        self._cache: Any = None
        self._length = 0
        self._recurrent = False
        self.check: Callable[[], None] = _nothing
        self.vocabulary = len(self.extend(np.zeros(1, np.int32)))  # a first token shows what cache it makes
        self.obstacle, self._recurrent = obstacle(self._cache)
        layers = getattr(self._cache, "layers", ())
        self.sliding = any(getattr(layer, "is_sliding", False) for layer in layers)
        if self.obstacle is None or (full_cache and self.sliding and not self._recurrent):
            self.obstacle, self.sliding, self._roomy = None, False, True
        self.crop(0)

    @property
    def cache(self) -> Any:
        """The model's own cache object, None while it is empty; for those who check it."""
        return self._cache

    def extend(self, ids: Ids) -> Logits:
        """Compute ids behind the cache; the last position's logits. Raises Unmeasured(MEMORY)."""
        size = self._step(len(ids))
        for start in range(0, len(ids), size):
            logits = self._forward(ids[start : start + size], 1)
        last: Logits = logits[-1]
        return last

    def extend_all(self, ids: Ids) -> Logits:
        """Compute ids behind the cache; every position's logits, (tokens, vocabulary)."""
        size = self._step(len(ids))
        parts = [ids[start : start + size] for start in range(0, len(ids), size)]
        return np.concatenate([self._forward(part, len(part)) for part in parts])

    def crop(self, length_tokens: int) -> None:
        """Keep the first length_tokens tokens. Raises RuntimeError when the cache did not do it."""
        if not length_tokens:
            self._cache, self._length = None, 0
            return
        # The one form of `crop` that means the same in every release: a negative number of tokens to remove.
        surplus = self._cache.get_seq_length() - length_tokens
        if surplus > 0:
            self._cache.crop(-surplus)
        if self._cache.get_seq_length() != length_tokens:
            raise RuntimeError(f"the cache holds {self._cache.get_seq_length()} tokens, not {length_tokens}")
        self._length = length_tokens

    def _step(self, tokens: int) -> int:
        """Tokens to compute at a time. Recurrent states take a whole prompt at once and then single tokens:
        several tokens behind a state would start from an empty one (transformers' Mamba, release 5.23)."""
        if not self._recurrent:
            return self._chunk
        return 1 if self._length else tokens

    def _forward(self, ids: Ids, keep: int) -> Logits:
        """Logits of the last `keep` positions, (keep, vocabulary)."""
        self.check()
        try:
            return self._compute(ids, keep)
        except (MemoryError, RuntimeError) as error:
            if not (isinstance(error, MemoryError) or _NO_ROOM.search(str(error))):
                raise
        # Outside of `except`, whose error would keep the failed computation's tensors alive.
        tokens = self._length + len(ids)
        self.crop(0)
        if self._torch.cuda.is_available():
            self._torch.cuda.empty_cache()
        raise Unmeasured(Failure.MEMORY, f"Out of memory at {tokens:,} tokens on {self._device}.")

    def _compute(self, ids: Ids, keep: int) -> Logits:
        fields: dict[str, Any] = {} if self._keep_field is None else {self._keep_field: keep}
        if self._cache is None and self._roomy:
            self._cache = roomy_cache()
        fields[self._cache_field] = self._cache
        with self._torch.inference_mode():
            tokens = self._torch.from_numpy(ids.astype(np.int64))[None].to(self._device)
            made = self._model(input_ids=tokens, use_cache=True, return_dict=True, **fields)
            self._cache = getattr(made, self._cache_field)
            self._length += len(ids)
            logits: Logits = made.logits[0, -keep:].float().cpu().numpy()
            return logits


def first_device(model: Any) -> Any:
    """Where a model wants its tokens. Offloaded weights say 'meta' of themselves; what moves them knows."""
    embeddings = model.get_input_embeddings()
    mover = getattr(embeddings, "_hf_hook", None)
    found = getattr(mover, "execution_device", None)
    return embeddings.weight.device if found is None else found


def obstacle(cache: Any) -> tuple[str | None, bool]:
    """Why a cache cannot be cropped exactly (None where it can), and whether it holds a recurrent state."""
    kinds = {type(layer).__name__: layer for layer in getattr(cache, "layers", ())}
    if not kinds or type(cache).__name__ != "DynamicCache":
        return f"its cache ({type(cache).__name__}) is of an unknown kind", True
    if any("Linear" in kind for kind in kinds):
        return "recurrent layers keep one state for all tokens", True
    sliding = [layer for layer in kinds.values() if getattr(layer, "is_sliding", False)]
    if sliding:
        window = getattr(sliding[0], "sliding_window", "some")
        return f"sliding-window layers keep the last {window} tokens only", False
    other = sorted(set(kinds) - set(_KEEPING))
    return (f"its cache has layers of an unknown kind ({', '.join(other)})" if other else None), False


def _nothing() -> None:
    """No objection."""
