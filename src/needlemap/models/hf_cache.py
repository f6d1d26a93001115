"""Reuse of a transformers model's cache for another prompt: a cache with room to grow,
snapshots of what it cannot be cropped back to, and from which length on a model turns its
positions otherwise.

What is added to a cache is written behind what is there, which stays where it is.
transformers' own `DynamicCache` joins old and new into fresh tensors at every token: a fifth of the
time of an answer token for 4 layers at 4,000 tokens on a CPU; for an 8B model at 128,000 tokens, 16
GB copied. Values are the same to the last bit. Only for caches whose layers keep every token.

Keys that were computed before such a switch of positions (longrope, dynamic NTK, code of one's own)
do not serve a prompt beyond it. Copies of the rotary modules are asked, on the CPU, whether the
first positions are turned otherwise in a longer text.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOM_TOKENS = 4096  # by which it grows at least; a quarter of its length when that is more


def roomy_cache() -> Any:
    """An empty cache of any number of layers. Imports transformers."""
    from transformers.cache_utils import Cache

    return Cache(layer_class_to_replicate=_layer_class())


def _layer_class() -> Any:
    """transformers' plain layer, made to write in place. A class made late, as its base is
    imported late."""
    from transformers.cache_utils import DynamicLayer

    return type("RoomyLayer", (DynamicLayer,), {"update": _update})


def _update(layer: Any, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
    """Add keys and values, (batch, kv_heads, tokens, head_dim); return all of them, as
    views."""
    if not layer.is_initialized:
        layer.lazy_initialization(key_states, value_states)
        layer.rooms = (key_states[..., :0, :], value_states[..., :0, :])
        layer.keys, layer.values = layer.rooms
    start = layer.keys.shape[-2]
    stop = start + key_states.shape[-2]
    keys, values = (
        _with_room(room, held, stop)
        for room, held in zip(layer.rooms, (layer.keys, layer.values), strict=True)
    )
    keys[..., start:stop, :] = key_states
    values[..., start:stop, :] = value_states
    layer.rooms = (keys, values)
    layer.keys, layer.values = keys[..., :stop, :], values[..., :stop, :]
    return layer.keys, layer.values


def _with_room(room: Any, held: Any, tokens: int) -> Any:
    """The room itself, or where it is too small a larger one that holds the same."""
    if tokens <= room.shape[-2]:
        return room
    shape = list(held.shape)
    shape[-2] = tokens + max(ROOM_TOKENS, tokens // 4)
    larger = held.new_empty(shape)
    larger[..., : held.shape[-2], :] = held
    return larger


def is_croppable(layer: Any) -> bool:
    """Whether a layer keeps what it has of every token, and nothing else: then it can be
    cropped exactly."""
    return _grows(layer) and not hasattr(layer, "conv_states")


def is_sliding(layer: Any) -> bool:
    """Whether a layer keeps the last tokens only."""
    return bool(getattr(layer, "is_sliding", False))


def token_bytes(cache: Any) -> dict[Any, int]:
    """What a cache of one token takes on each device."""
    held = [getattr(layer, name, None) for layer in cache.layers for name in ("keys", "values")]
    found: dict[Any, int] = {}
    for tensor in held:
        if tensor is not None:
            found[tensor.device] = (
                found.get(tensor.device, 0) + tensor.nelement() * tensor.element_size()
            )
    return found


def free_bytes(device: Any) -> float:
    """Free memory of a device; infinite if it is unknown."""
    import torch

    if device.type == "cuda":
        idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device)[0] + idle)
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return float("inf")
    found = dict(line.split(":", 1) for line in lines if ":" in line).get("MemAvailable", "")
    return 1024.0 * int(found.split()[0]) if found else float("inf")


def _grows(layer: Any) -> bool:
    """Whether a layer keeps every token's keys and values, beside whatever else. Layers that
    share another's have none."""
    from transformers.cache_utils import DynamicLayer

    shares = type(layer).__name__ == "DummyLayer"
    return shares or (isinstance(layer, DynamicLayer) and not is_sliding(layer))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a cache holds at one length beside the keys and values of every token, copied: recurrent
    states, windows. layers: None for a cache of an unknown kind, which `rest` then is a copy of."""

    rest: Any
    layers: tuple[dict[str, Any], ...] | None

    @classmethod
    def of(cls, cache: Any) -> Snapshot:
        """A copy of what the cache could not be cropped back to."""
        if not hasattr(cache, "layers"):
            return cls(copy.deepcopy(cache), None)
        rest = {name: _copied(value) for name, value in vars(cache).items() if name != "layers"}
        return cls(rest, tuple(_states(layer) for layer in cache.layers))

    def put(self, cache: Any, length_tokens: int) -> Any:
        """The cache, brought back to the length that the snapshot was made at."""
        if self.layers is None:
            return copy.deepcopy(self.rest)
        for name, value in self.rest.items():
            setattr(cache, name, _copied(value))
        for layer, states in zip(cache.layers, self.layers, strict=True):
            for name, value in states.items():
                setattr(layer, name, _copied(value))
            if is_croppable(layer):
                _crop(layer, length_tokens)
            elif _grows(layer) and layer.is_initialized:
                layer.keys, layer.values = (
                    each[..., :length_tokens, :] for each in (layer.keys, layer.values)
                )
        return cache


def _states(layer: Any) -> dict[str, Any]:
    """Copies of what a layer holds beside what grows with each token."""
    if is_croppable(layer):
        return {}
    grows = ("keys", "values") if _grows(layer) else ()
    return {name: _copied(value) for name, value in vars(layer).items() if name not in grows}


def _crop(layer: Any, length_tokens: int) -> None:
    """The one form of `crop` that means the same in every release: a negative number of tokens
    to remove."""
    held = layer.get_seq_length() if hasattr(layer, "get_seq_length") else 0
    if held > length_tokens:
        layer.crop(length_tokens - held)


def _copied(value: Any) -> Any:
    """A value with copies of all tensors in it."""
    if hasattr(value, "clone"):
        return value.clone()
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(each) for each in value)
    return value


_LONGEST = 2**21  # tokens up to which a switch is looked for
_FEW = 4  # positions that are compared


Turn = tuple[Any, dict[str, Any]]  # a rotary module, and what it wants beside positions


@dataclass(frozen=True, slots=True)
class Switch:
    """at: tokens up to which positions are turned in one way. steady: whether there is one other
    way beyond; else each length has its own. turns: rotary modules."""

    at: int
    steady: bool
    turns: tuple[Turn, ...] = ()

    def side(self, tokens: int) -> int:
        """A number that is equal for two lengths whose keys serve each other."""
        if tokens <= self.at:
            return 0
        return -1 if self.steady else tokens

    def reset(self) -> None:
        """Let the modules forget the lengths that they have seen."""
        for module, fields in self.turns:
            _turned(module, fields, _FEW + 1)


def switch_of(model: Any) -> Switch | None:
    """Where a model's positions switch; None where they never do. Imports torch."""
    turns = list(_turns(model))
    try:
        found = [
            _probed(copy.deepcopy(module).to("cpu"), fields) for module, fields in _distinct(turns)
        ]
    except (
        Exception
    ):  # a module's own code may raise anything: its configuration is what is left to ask
        found, turns = [], []
    if not turns:
        return configured_switch(model.config.to_dict())
    switches = [each for each in found if each is not None]
    if not switches:
        return None
    return Switch(
        min(at for at, _ in switches), all(steady for _, steady in switches), tuple(turns)
    )


def configured_switch(config: Mapping[str, Any]) -> Switch | None:
    """The same by the words of a configuration alone; None where it names no such
    positions."""
    found = []
    for holder, rope in _ropes(config):
        kind = str(rope.get("rope_type", rope.get("type", "")))
        if kind not in ("longrope", "su", "dynamic") or rope.get("alpha"):
            continue
        names = ("max_position_embeddings",) if kind == "dynamic" else ()
        names = (*names, "original_max_position_embeddings", "max_position_embeddings")
        sizes = [each.get(name) for name in names for each in (rope, holder, config)]
        known = [size for size in sizes if isinstance(size, int) and size > 0]
        found += [Switch(known[0], kind != "dynamic")] if known else []
    return min(found, key=lambda each: each.at, default=None)


def _ropes(config: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Everything in a configuration that names a kind of rotary positions, and what holds
    it."""
    for value in config.values():
        if isinstance(value, Mapping):
            if "rope_type" in value or "type" in value:
                yield config, value
            yield from _ropes(value)


def _turns(model: Any) -> Iterator[Turn]:
    """Rotary modules: they hold frequencies, some for each kind of layer, and take
    positions."""
    for module in model.modules():
        takes = inspect.signature(module.forward).parameters
        if "position_ids" not in takes:
            continue
        names = [name for name in {**vars(module), **module._buffers} if name.endswith("inv_freq")]
        plain = {name.removesuffix("inv_freq").rstrip("_") for name in names}
        kinds = sorted(
            kind for kind in plain if kind and not kind.endswith(("original", "long", "short"))
        )
        if "layer_type" in takes and kinds:
            yield from ((module, {"layer_type": kind}) for kind in kinds)
        elif names:
            yield module, {}


def _distinct(turns: list[Turn]) -> list[Turn]:
    """One of those that are made alike, as each layer has its own in some models."""
    found = {
        (type(module), id(getattr(module, "config", module)), str(fields)): (module, fields)
        for module, fields in turns
    }
    return list(found.values())


def _probed(module: Any, fields: dict[str, Any]) -> tuple[int, bool] | None:
    """(the longest text whose first positions are turned as a short one's, whether all beyond
    are turned alike); None where the length does not matter."""
    short = _turned(module, fields, _FEW + 1)
    low = high = _FEW + 1
    while _alike(_turned(module, fields, high), short):
        low, high = high, 2 * high
        if high > _LONGEST:
            return None
    beyond = [_turned(module, fields, 2 * high), _turned(module, fields, 8 * high)]
    while high - low > 1:
        middle = (low + high) // 2
        if _alike(_turned(module, fields, middle), short):
            low = middle
        else:
            high = middle
    return low, _alike(*beyond)


def _turned(module: Any, fields: dict[str, Any], tokens: int) -> Any:
    """What the first positions of a text of so many tokens are turned by."""
    import torch

    with torch.inference_mode():
        where = next((each.device for each in module.buffers()), "cpu")
        for last in (
            0,
            tokens - 1,
        ):  # a text of one token first: the module forgets what was before
            places = torch.tensor([[*range(_FEW), last]] if last else [[0]], device=where)
            made = module(torch.zeros(1, 1, 1, device=where), places, **fields)
    first = made[0] if isinstance(made, tuple | list) else made
    size = first.shape.index(_FEW + 1)
    return first.narrow(size, 0, _FEW).clone()


def _alike(left: Any, right: Any) -> bool:
    return bool((left == right).all())
