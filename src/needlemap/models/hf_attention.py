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
_ALL = "_needlemap_sees_all"
# Of torch's function for GPUs.
_LARGEST_HEAD, _AMPERE = 256, (8, 0)
_ours = threading.local()


@contextmanager
def split_attention() -> Iterator[None]:
    """Within it, passes of this thread through transformers' `sdpa` attention need no mask."""
    _install()
    _ours.on = True
    try:
        yield
    finally:
        _ours.on = False


@cache
def _install() -> None:
    """Put our functions before transformers' own, once.

    Outside of `split_attention` they do nothing.
    """
    try:
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS as masks
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as functions

        their_mask, their_attention = masks["sdpa"], functions["sdpa"]
    # A release that keeps them elsewhere: passes are as they were.
    except (ImportError, KeyError):
        return
    masks["sdpa"] = partial(_mask, their_mask)
    functions["sdpa"] = partial(_attention, their_attention)


def _mask(theirs: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return transformers' mask, (batch, 1, queries, keys), with a note of what it is if known."""
    mask = theirs(*args, **kwargs)
    if mask is not None and not args and getattr(_ours, "on", False) and _sees_all(kwargs):
        setattr(mask, _ALL, True)
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
    theirs: Callable[..., Any],
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Return what transformers' `sdpa_attention_forward` returns.

    That is (batch, queries, heads, head_dim), and None.
    """
    sees_all = getattr(attention_mask, _ALL, False) and attention_mask.shape[-1] == key.shape[2]
    if sees_all and not args and _is_plain(query, key, value, kwargs):
        return _in_two(query, key, value, kwargs.get("scaling")).transpose(1, 2).contiguous(), None
    return theirs(module, query, key, value, attention_mask, *args, **kwargs)


def _is_plain(query: Any, key: Any, value: Any, kwargs: dict[str, Any]) -> bool:
    """Return True if torch's function for this device computes this attention."""
    for name in ("dropout", "position_bias", "cache", "softcap"):
        option = kwargs.get(name)
        if option is not None and not (isinstance(option, int | float) and not option):
            return False
    tensors = (query, key, value)
    return (
        len({tensor.shape[-1] for tensor in tensors}) == 1
        and query.shape[1] % key.shape[1] == 0
        and all(tensor.stride(-1) == 1 for tensor in tensors)
        and _flash(query.device) is not None
        and (query.device.type == "cpu" or _is_halved(query))
    )


def _is_halved(query: Any) -> bool:
    """Return True if torch's function for GPUs takes such numbers, and heads of this size."""
    size: int = query.shape[-1]
    is_half: bool = query.element_size() == 2
    return is_half and size % 8 == 0 and size <= _LARGEST_HEAD


@cache
def _flash(device: Any) -> Any:
    """Return torch's attention on a device that gives the logarithms of its sums, or None.

    There is none in a release without it, on a GPU before Ampere, or if it is switched off.
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


def _in_two(query: Any, key: Any, value: Any, scale: float | None) -> Any:
    """Return attention of queries that stand behind all but the last keys.

    It is (batch, heads, queries, head_dim). Heads that share keys are computed as more queries of
    those before, so that these are not copied.
    """
    batch, heads, queries, size = query.shape
    shared = heads // key.shape[1]
    start = key.shape[2] - queries
    flash = _flash(query.device)
    own_keys_values = [
        tensor[:, :, start:].repeat_interleave(shared, dim=1) for tensor in (key, value)
    ]
    near, near_sum = flash(query, *own_keys_values, 0.0, True, scale=scale)[:2]
    packed = query.reshape(batch, key.shape[1], shared * queries, size)
    earlier = [tensor[:, :, :start] for tensor in (key, value)]
    far, far_sum = flash(packed, *earlier, 0.0, False, scale=scale)[:2]
    share = (far_sum.reshape(batch, heads, queries) - near_sum).sigmoid()[..., None]
    return near.lerp(far.reshape(near.shape), share.to(near.dtype))
