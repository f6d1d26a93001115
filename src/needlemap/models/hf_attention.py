"""Attention behind a cache without a mask of queries times keys, where transformers would make one.

torch's own attention is fast for a square causal block and for a full one. A chunk of a prompt
behind a cache is neither: transformers makes a mask of queries times keys, which takes 1.5 to 2
times the time on a CPU, and keeps a GPU from its fast kernel. Here such a chunk is computed as what
it is: a full block over the keys that were there, and a causal one over its own. Each comes with
the logarithm of its sum of exponentials, and the two are put together by these (Milakov and
Gimelshein 2018, arXiv 1805.02867), equal to one pass but for rounding. On a GPU this needs 16-bit
numbers; with 32 bits a mask is used there. Layers with a sliding window keep transformers' masks.

Masks are still made, and carry beside them what they are: whatever else reads them finds them
right.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

# Set on a mask whose queries see all keys before them.
_SEES_ALL = "_needlemap_sees_all"
# Of torch's function for GPUs.
_LARGEST_HEAD, _AMPERE = 256, (8, 0)
_thread_state = threading.local()


@contextmanager
def split_attention() -> Iterator[None]:
    """Compute transformers' `sdpa` attention without a mask, in this thread and inside a block."""
    _install()
    _thread_state.on = True
    try:
        yield
    finally:
        _thread_state.on = False


@cache
def _install() -> None:
    """Put our functions in front of transformers' own, once.

    Outside of `split_attention` they only call transformers' own.
    """
    try:
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS as masks
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as functions

        sdpa_mask, sdpa_attention = masks["sdpa"], functions["sdpa"]
    # A release that keeps them elsewhere: passes are as they were.
    except (ImportError, KeyError):
        return
    masks["sdpa"] = partial(_marked_mask, sdpa_mask)
    functions["sdpa"] = partial(_attention, sdpa_attention)


def _marked_mask(sdpa_mask: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return transformers' mask, and mark it if its queries see all keys before them.

    The mask is (batch, 1, queries, keys), or None. sdpa_mask: transformers' own function.
    """
    mask = sdpa_mask(*args, **kwargs)
    is_on = getattr(_thread_state, "on", False)
    # `_sees_all` looks only at arguments that are given by name.
    if mask is not None and not args and is_on and _sees_all(kwargs):
        setattr(mask, _SEES_ALL, True)
    return mask


def _sees_all(kwargs: dict[str, Any]) -> bool:
    """Return True if the queries of a causal mask see all keys before them."""
    sizes = [kwargs.get(name, 0) for name in ("q_length", "kv_length", "q_offset", "kv_offset")]
    queries, keys, start, offset = sizes
    padding, window = kwargs.get("attention_mask"), kwargs.get("local_size")
    if not all(isinstance(size, int) for size in sizes) or not kwargs.get("allow_is_causal_skip"):
        return False
    # torch's function ends the process where there are no keys before.
    if queries < 2 or start < 1 or offset or start + queries != keys:
        return False
    if padding is not None and not bool(padding.all()):
        return False
    return window is None or keys < window


def _attention(
    sdpa_attention: Callable[..., Any],
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Compute attention in two blocks if the mask is marked, or else as transformers does.

    Return what transformers' `sdpa_attention_forward` returns: the attention, (batch, queries,
    heads, head_dim), and None in place of the weights. sdpa_attention: that function.
    """
    is_marked = getattr(attention_mask, _SEES_ALL, False)
    sees_all = is_marked and attention_mask.shape[-1] == key.shape[2]
    if not sees_all or args or not _is_supported(query, key, value, kwargs):
        return sdpa_attention(module, query, key, value, attention_mask, *args, **kwargs)

    attention = _two_block_attention(query, key, value, kwargs.get("scaling"))
    return attention.transpose(1, 2).contiguous(), None


def _is_supported(query: Any, key: Any, value: Any, kwargs: dict[str, Any]) -> bool:
    """Return True if `_flash_attention` of this device computes this attention."""
    for name in ("dropout", "position_bias", "cache", "softcap"):
        option = kwargs.get(name)
        if option is not None and not (isinstance(option, int | float) and not option):
            return False
    tensors = (query, key, value)
    return (
        len({tensor.shape[-1] for tensor in tensors}) == 1
        and query.shape[1] % key.shape[1] == 0
        and all(tensor.stride(-1) == 1 for tensor in tensors)
        and _flash_attention(query.device) is not None
        and (query.device.type == "cpu" or _fits_gpu_kernel(query))
    )


def _fits_gpu_kernel(query: Any) -> bool:
    """Return True if torch's function for GPUs takes numbers of 16 bits and heads of this size."""
    size: int = query.shape[-1]
    is_half: bool = query.element_size() == 2
    return is_half and size % 8 == 0 and size <= _LARGEST_HEAD


@cache
def _flash_attention(device: Any) -> Any:
    """Return torch's attention that also gives the logarithms of its sums, for a device.

    Return None if this release of torch has none, if the GPU is older than Ampere, or if the
    attention is switched off.
    """
    import torch

    operators = torch.ops.aten
    gpus: Any = torch.backends.cuda
    if device.type == "cpu":
        return getattr(operators, "_scaled_dot_product_flash_attention_for_cpu", None)
    if device.type != "cuda" or torch.version.cuda is None:
        return None
    is_available = gpus.is_flash_attention_available() and gpus.flash_sdp_enabled()
    if not is_available or torch.cuda.get_device_capability(device) < _AMPERE:
        return None
    return getattr(operators, "_scaled_dot_product_flash_attention", None)


def _two_block_attention(query: Any, key: Any, value: Any, scale: float | None) -> Any:
    """Return the attention, (batch, heads, queries, head_dim), of a chunk behind a cache.

    The last keys are the chunk's own, one for each query, and each query sees all keys before
    them.
    """
    batch, heads, queries, size = query.shape
    heads_per_key = heads // key.shape[1]
    start = key.shape[2] - queries
    flash_attention = _flash_attention(query.device)

    # The chunk's own keys: a causal block.
    chunk_keys_values = [
        tensor[:, :, start:].repeat_interleave(heads_per_key, dim=1) for tensor in (key, value)
    ]
    chunk_attention, chunk_log_sum = flash_attention(
        query, *chunk_keys_values, 0.0, True, scale=scale
    )[:2]

    # The cached keys: a full block. Heads that share keys are computed as further queries of one
    # head, so that the many cached keys are not copied for each head.
    packed_queries = query.reshape(batch, key.shape[1], heads_per_key * queries, size)
    cached_keys_values = [tensor[:, :, :start] for tensor in (key, value)]
    cached_attention, cached_log_sum = flash_attention(
        packed_queries, *cached_keys_values, 0.0, False, scale=scale
    )[:2]

    # The weight of the cached block is its sum of exponentials over both blocks' sums.
    cached_log_sum = cached_log_sum.reshape(batch, heads, queries)
    cached_weight = (cached_log_sum - chunk_log_sum).sigmoid()[..., None]
    return chunk_attention.lerp(
        cached_attention.reshape(chunk_attention.shape), cached_weight.to(chunk_attention.dtype)
    )
