"""Reuse of a transformers model's cache for another prompt: a cache with room to grow, copies of
what it cannot be cropped back to, and from which length on a model turns its positions otherwise.

Three kinds of layer are reused: full ones, which keep what they have of every token and are
cropped; and those with a sliding window or a recurrent state, which is copied where prompts part.

What is added to a full layer is written behind what is there, which stays where it is.
transformers' own layer joins old and new into fresh tensors at every token: a fifth of the time of
an answer token for 4 layers at 4,000 tokens on a CPU; for an 8B model at 128,000 tokens, 16 GB
copied. Values are the same to the last bit.

Keys that were computed before such a switch of positions (longrope, dynamic NTK) do not serve a
prompt beyond it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache as once
from typing import Any

# A room is the tensor that a full layer writes its keys or values into. It may have space for more
# tokens than the layer holds. A room that is too small is replaced by one with space for so many
# more tokens, or for a quarter of the present ones if that is more. So the room of a long text is
# copied a few times, and not at every token.
ROOM_TOKENS = 4096
# By their names, as transformers is imported late. Each of `_COPIED_KINDS` has states of its own,
# and `_HYBRID_KIND` the keys and values of every token, too. A dummy shares another layer's.
_FULL_KINDS = ("DynamicLayer", "DummyLayer", "RoomyLayer")
_HYBRID_KIND = "LinearAttentionAndFullAttentionLayer"
_COPIED_KINDS = (
    "DynamicSlidingWindowLayer",
    "LinearAttentionLayer",
    "LinearAttentionAndSlidingWindowAttentionLayer",
    _HYBRID_KIND,
)


def is_known(cache: Any) -> bool:
    """Return True if all layers are of a kind that is reused; other caches may hold more."""
    kinds = {type(layer).__name__ for layer in getattr(cache, "layers", ())}
    return type(cache).__name__ == "DynamicCache" and kinds <= {*_FULL_KINDS, *_COPIED_KINDS}


def is_full(cache: Any) -> bool:
    """Return True if a known cache can be cropped."""
    return all(type(layer).__name__ in _FULL_KINDS for layer in cache.layers)


def give_room(cache: Any) -> None:
    """Let the full layers of a known cache write in place from now on."""
    for layer in cache.layers:
        if type(layer).__name__ == "DynamicLayer" and layer.is_initialized:
            layer.__class__ = _roomy_layer()
            layer.rooms = layer.keys, layer.values


@once
def _roomy_layer() -> Any:
    """Return transformers' plain layer, made to write in place.

    The class is made late, as its base is imported late.
    """
    from transformers.cache_utils import DynamicLayer

    return type("RoomyLayer", (DynamicLayer,), {"update": _write_in_place})


def _write_in_place(
    layer: Any, key_states: Any, value_states: Any, *_: Any, **__: Any
) -> tuple[Any, Any]:
    """Add keys and values, (batch, kv_heads, tokens, head_dim), and return views of all."""
    start = layer.keys.shape[-2]
    stop = start + key_states.shape[-2]
    keys, values = (
        _large_enough(room, tensor, tokens=stop)
        for room, tensor in zip(layer.rooms, (layer.keys, layer.values), strict=True)
    )
    keys[..., start:stop, :] = key_states
    values[..., start:stop, :] = value_states
    layer.rooms = (keys, values)
    layer.keys, layer.values = keys[..., :stop, :], values[..., :stop, :]
    return layer.keys, layer.values


def _large_enough(room: Any, stored: Any, tokens: int) -> Any:
    """Return a layer's room if so many tokens fit into it, or else a larger room.

    stored: the keys or values that the layer holds, (batch, kv_heads, tokens, head_dim). A larger
    room starts with a copy of them; its other places are not set.
    """
    if tokens <= room.shape[-2]:
        return room

    stored_tokens = stored.shape[-2]
    spare_tokens = max(ROOM_TOKENS, tokens // 4)
    shape = list(stored.shape)
    shape[-2] = tokens + spare_tokens
    larger_room = stored.new_empty(shape)
    larger_room[..., :stored_tokens, :] = stored
    return larger_room


def is_sliding(layer: Any) -> bool:
    """Return True if a layer keeps the last tokens only."""
    return bool(getattr(layer, "is_sliding", False))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Copies of the windows and recurrent states that a known cache holds at one length.

    It is () for a full layer.
    """

    layers: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(cls, cache: Any) -> Snapshot:
        """Return a snapshot of the states of a cache that cropping does not restore."""
        return cls(tuple(_state_copies(layer) for layer in cache.layers))

    def put(self, cache: Any, length_tokens: int) -> None:
        """Restore the states of a cache, and crop its keys to the length of the snapshot."""
        for layer, states in zip(cache.layers, self.layers, strict=True):
            vars(layer).update(_copy_of(dict(states)))
            has_keys = type(layer).__name__ in (*_FULL_KINDS, _HYBRID_KIND)
            if has_keys and getattr(layer, "keys", None) is not None:
                layer.keys = layer.keys[..., :length_tokens, :]
                layer.values = layer.values[..., :length_tokens, :]


def _state_copies(layer: Any) -> dict[str, Any]:
    """Return copies of what a layer holds besides what grows with each token."""
    kind = type(layer).__name__
    if kind in _FULL_KINDS:
        return {}
    growing = ("keys", "values") if kind == _HYBRID_KIND else ()
    return {name: _copy_of(value) for name, value in vars(layer).items() if name not in growing}


def _copy_of(value: Any) -> Any:
    """Return a value with copies of all tensors in it."""
    if hasattr(value, "clone"):
        return value.clone()
    if isinstance(value, dict):
        return {key: _copy_of(part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copy_of(part) for part in value)
    return value


@dataclass(frozen=True, slots=True)
class Switch:
    """A length beyond which a model turns its positions in another way.

    at: tokens up to which positions are turned in one way. steady: whether there is one other way
    beyond; else each length has its own.
    """

    at: int
    steady: bool

    def side(self, tokens: int) -> int:
        """Return a number that is equal for two lengths whose keys serve each other."""
        if tokens <= self.at:
            return 0
        return -1 if self.steady else tokens


def configured_switch(config: Mapping[str, Any]) -> Switch | None:
    """Return where a model's positions switch, or None if its configuration names no switch."""
    switches = []
    for holder, rope in _ropes(config):
        kind = str(rope.get("rope_type", rope.get("type", "")))
        if kind not in ("longrope", "su", "dynamic") or rope.get("alpha"):
            continue
        names = ("max_position_embeddings",) if kind == "dynamic" else ()
        names = (*names, "original_max_position_embeddings", "max_position_embeddings")
        sizes = [part.get(name) for name in names for part in (rope, holder, config)]
        known_sizes = [size for size in sizes if isinstance(size, int) and size > 0]
        if known_sizes:
            switches.append(Switch(known_sizes[0], steady=kind != "dynamic"))
    return min(switches, key=lambda switch: switch.at, default=None)


def _ropes(config: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield each part of a configuration that names rotary positions, after the part it is in."""
    for value in config.values():
        if isinstance(value, Mapping):
            if "rope_type" in value or "type" in value:
                yield config, value
            yield from _ropes(value)
