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

_ALL = "_needlemap_sees_all"  # set on a mask whose queries see all keys before them
_LARGEST_HEAD, _AMPERE = 256, (8, 0)  # of torch's function for GPUs
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
    """Put our functions before transformers' own, once: outside of `split_attention` they do
    nothing."""
    try:
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS as masks
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as functions

        theirs = masks["sdpa"], functions["sdpa"]
    except (ImportError, KeyError):  # a release that keeps them elsewhere: passes are as they were
        return
    masks["sdpa"], functions["sdpa"] = partial(_mask, theirs[0]), partial(_attention, theirs[1])


def _mask(theirs: Callable[..., Any], *args: Any, **given: Any) -> Any:
    """Transformers' mask, (batch, 1, queries, keys), with a note of what it is where that is
    known."""
    made = theirs(*args, **given)
    if made is not None and not args and getattr(_ours, "on", False) and _sees_all(given):
        setattr(made, _ALL, True)
    return made


def _sees_all(given: dict[str, Any]) -> bool:
    """Whether the queries of a causal mask see all keys before them."""
    sizes = [given.get(name, 0) for name in ("q_length", "kv_length", "q_offset", "kv_offset")]
    queries, keys, start, offset = sizes
    padding, window = given.get("attention_mask"), given.get("local_size")
    if not all(isinstance(size, int) for size in sizes) or not given.get("allow_is_causal_skip"):
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
    **given: Any,
) -> Any:
    """What transformers' `sdpa_attention_forward` returns, (batch, queries, heads, head_dim),
    and None."""
    sees_all = getattr(attention_mask, _ALL, False) and attention_mask.shape[-1] == key.shape[2]
    if sees_all and not args and _is_plain(query, key, value, given):
        return _in_two(query, key, value, given.get("scaling")).transpose(1, 2).contiguous(), None
    return theirs(module, query, key, value, attention_mask, *args, **given)


def _is_plain(query: Any, key: Any, value: Any, given: dict[str, Any]) -> bool:
    """Whether torch's function for this device computes this attention."""
    special = [given.get(name) for name in ("dropout", "position_bias", "cache", "softcap")]
    sizes = {each.shape[-1] for each in (query, key, value)}
    return (
        all(each is None or (isinstance(each, int | float) and not each) for each in special)
        and len(sizes) == 1
        and query.shape[1] % key.shape[1] == 0
        and all(each.stride(-1) == 1 for each in (query, key, value))
        and _flash(query.device) is not None
        and (query.device.type == "cpu" or _is_halved(query))
    )


def _is_halved(query: Any) -> bool:
    """Whether torch's function for GPUs takes numbers of this kind, and heads of this size."""
    size: int = query.shape[-1]
    halved: bool = query.element_size() == 2
    return halved and size % 8 == 0 and size <= _LARGEST_HEAD


@cache
def _flash(device: Any) -> Any:
    """torch's attention on a device that tells the logarithms of its sums; None where there is
    none: in a release without it, on a GPU before Ampere, or where it is switched off."""
    import torch

    ours = torch.ops.aten
    gpus: Any = torch.backends.cuda
    if device.type == "cpu":
        return getattr(ours, "_scaled_dot_product_flash_attention_for_cpu", None)
    if device.type != "cuda" or torch.version.cuda is None:
        return None
    there = gpus.is_flash_attention_available() and gpus.flash_sdp_enabled()
    if not there or torch.cuda.get_device_capability(device) < _AMPERE:
        return None
    return getattr(ours, "_scaled_dot_product_flash_attention", None)


def _in_two(query: Any, key: Any, value: Any, scale: float | None) -> Any:
    """Attention of queries that stand behind all but the last keys, (batch, heads, queries,
    head_dim).

    Heads that share keys are asked of those before as more queries, so that these are not
    copied.
    """
    batch, heads, queries, size = query.shape
    shared = heads // key.shape[1]
    start = key.shape[2] - queries
    flash = _flash(query.device)
    own = [each[:, :, start:].repeat_interleave(shared, dim=1) for each in (key, value)]
    near, near_sum = flash(query, *own, 0.0, True, scale=scale)[:2]
    packed = query.reshape(batch, key.shape[1], shared * queries, size)
    before = [each[:, :, :start] for each in (key, value)]
    far, far_sum = flash(packed, *before, 0.0, False, scale=scale)[:2]
    share = (far_sum.reshape(batch, heads, queries) - near_sum).sigmoid()[..., None]
    return near.lerp(far.reshape(near.shape), share.to(near.dtype))
